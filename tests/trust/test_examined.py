"""Gates that demand a judge that was examined: by `qualify`, or by people's labels."""

import json
from dataclasses import replace

import pytest
from helpers.each import each
from helpers.reports import row, scored

from langchain_rageval import ConfigError, Judge, OfflineJudge, Report, agreement, evaluate, exact_match, faithfulness
from langchain_rageval.data.instrument import step_digests
from langchain_rageval.prompts.promptset import PromptSet
from langchain_rageval.trust.fitness import STEPS_OF
from langchain_rageval.trust.items import labelled_items
from langchain_rageval.trust.qualification import ExaminedJudge, judge_gates, write_agreement
from langchain_rageval.trust.qualify import qualify_judge

SAMPLE = {"question": "Q?", "answer": "Munich is old.", "contexts": ["Munich is old."], "references": ["It is old."]}


def report_by(judge):
    return evaluate([SAMPLE], [faithfulness(judge), exact_match()], progress=False)


@pytest.fixture(scope="module")
def qualification():
    items = [item for item in labelled_items("en") if item.step in STEPS_OF["faithfulness"]]
    return qualify_judge(OfflineJudge(), language="en", items=items, quick=True, repeats=1, progress=False)


def test_a_qualification_is_bound_to_judge_and_prompts(qualification, tmp_path):
    path = tmp_path / "judge.json"
    fit = replace(qualification, verdict={**qualification.verdict, "faithfulness": "fit with care"})
    fit.to_json(path)
    (gate,) = judge_gates(report_by(OfflineJudge()), ["faithfulness", "exact_match"], path)
    assert (gate.metric, gate.requirement) == ("faithfulness", "an examined judge")
    assert (gate.verdict, gate.codes) == ("passed", [])
    assert ExaminedJudge.load(path).date == qualification.date > "2020"
    own = PromptSet.default("en").replace("verify_statements", instruction="Be strict.")
    others = [Judge(OfflineJudge(), draws=3), Judge(OfflineJudge(disable_streaming=True))]
    others += [Judge(OfflineJudge(), prompts=own)]
    for judge in others:
        (gate,) = judge_gates(report_by(judge), ["faithfulness"], path)
        assert (gate.verdict, gate.codes) == ("undecided", ["another-judge"])
        assert f"run `rageval qualify --judge … --out {path}` again" in gate.reason
    for judge in (Judge(OfflineJudge(), attempts=5), Judge(OfflineJudge(), language="en")):
        assert judge_gates(report_by(judge), ["faithfulness"], path)[0].verdict == "passed"


@each(
    ("content", "code"),
    [
        (None, "judge-not-examined"),
        ({"verdict": {}}, "judge-not-examined"),
        ({"verdict": {"faithfulness": "unfit"}}, "judge-unfit"),
        ({"examined": {}}, "another-judge"),
    ],
)
def test_a_missing_or_unfit_judge_leaves_the_gate_undecided(qualification, tmp_path, content, code):
    path = tmp_path / f"{code}.json"
    if content is not None:
        path.write_text(json.dumps({**qualification.to_dict(), "verdict": {"faithfulness": "fit"}, **content}))
    (gate,) = judge_gates(report_by(OfflineJudge()), ["faithfulness"], path)
    assert (gate.verdict, gate.codes) == ("undecided", [code])
    assert f"--out {path}" in gate.reason


def test_scores_without_a_known_judge_are_not_examined(qualification, tmp_path):
    qualification.to_json(tmp_path / "judge.json")
    unknown = Report([row(0, scored(1.0, instrument="unknown.unknown"))])
    assert judge_gates(unknown, ["faithfulness"], tmp_path / "judge.json")[0].codes == ["another-judge"]


@each(("people", "verdict"), [([1, 0] * 20, "fit"), ([0, 1] * 20, "unfit"), ([1, 0, 0, 1] * 10, "unfit")])
def test_an_agreement_examines_a_judge_too(tmp_path, people, verdict):
    samples = [
        {**SAMPLE, "id": str(n), "answer": SAMPLE["answer"] if n % 2 == 0 else "Elephants fly."} for n in range(40)
    ]
    report = evaluate(samples, faithfulness(OfflineJudge()), progress=False)
    found = agreement(report.scores(), {str(n): label for n, label in enumerate(people)})
    write_agreement(tmp_path / "judge.json", found, "faithfulness", report)
    examined = ExaminedJudge.load(tmp_path / "judge.json")
    assert examined.verdict == {"faithfulness": verdict}
    assert examined.steps == step_digests(report.instruments()["faithfulness"][0].found_by)
    (gate,) = judge_gates(report, ["faithfulness"], tmp_path / "judge.json")
    assert gate.codes == ([] if verdict == "fit" else ["judge-unfit"])


@each("content", ["", "[]", "{}", '{"date": 1}'])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(ConfigError, match="does not describe an examined judge"):
        ExaminedJudge.load(tmp_path / "other.json")
