"""Statistics of probe results, thresholds that decide on intervals, and gates that demand an examined judge."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.reports import row, scored

from langchain_rageval import ConfigError, Judge, OfflineJudge, Report, agreement, evaluate, exact_match, faithfulness
from langchain_rageval.data.instrument import step_digests
from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.metrics import BUILDERS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.promptset import PromptSet
from langchain_rageval.trust.examination import EMBEDDING_STEP, EXAMINATIONS, CitedVerdict, Probe, ProbeResult, ReplyLog
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, assess_step, step_statistics
from langchain_rageval.trust.items import Label, LabelledItem, labelled_items
from langchain_rageval.trust.qualification import Citations, ExaminedJudge, Proportion, judge_gates, write_agreement
from langchain_rageval.trust.qualify import qualify_judge

# step_statistics: from probe results to statistics, without a model


SUPPORTED = Label(accepted=("supported",), evidence=("2",))
LABELS = (SUPPORTED, Label(accepted=("contradicted", "absent")), Label(accepted=()))
FIELDS = {"id": "i", "pair": "i", "step": "verify_statements", "kind": "table", "source": ""}
ITEM = LabelledItem(**FIELDS, labels=LABELS, contexts=("a", "b"))


def result(*verdicts, variant="plain", repeat=0, cites=("2.1",), **more):
    given = [CitedVerdict(verdict, cites if verdict == "supported" else ()) for verdict in verdicts]
    notes = ReplyLog(Counter(json_schema=1), repeated=more.pop("repeated", False))
    return ProbeResult(Probe(ITEM, variant, repeat), given, notes, **more)


def statistics_of(*results):
    scored = {one.probe.item: sum(bool(label.accepted) for label in one.probe.item.labels) for one in results}
    hits = {item: dict.fromkeys(("word_overlap", "rules"), [True, False][:count]) for item, count in scored.items()}
    return step_statistics("verify_statements", results, hits, Usage(calls=len(results), input_tokens=7, seconds=1.5))


def test_right_counts_the_labelled_verdicts_of_the_first_repeat():
    found = statistics_of(result("supported", "absent", "supported"), result("absent", "absent", "absent", repeat=1))
    assert (found.right.hits, found.right.of, found.verdicts) == (2, 2, {"supported": 1, "absent": 1})
    assert found.flips.value == 0.5
    assert (found.output_mode, found.calls, found.tokens, found.seconds) == ("json_schema", 2, 7, 1.5)


def test_flips_are_the_pairs_of_repeats_that_disagree():
    first = enumerate(["supported", "absent", "absent"])
    asks = [result(verdict, "absent", "absent", repeat=repeat) for repeat, verdict in first]
    assert statistics_of(*asks).flips.value == (2 / 3 + 0) / 2


def test_variants_are_compared_with_the_first_repeat():
    found = statistics_of(
        result("supported", "absent", "absent"),
        result("absent", "absent", "supported", variant="reverse"),
        result("absent", "contradicted", "absent", variant="padded"),
    )
    assert (found.order_bias.value, found.length_bias.value, found.right.of) == (0.5, 1.0, 2)


def test_the_constant_answer_is_the_verdict_that_the_most_labels_accept():
    probe = Probe(ITEM.model_copy(update={"labels": (LABELS[1], Label(accepted=("absent",)))}))
    assert statistics_of(ProbeResult(probe, [CitedVerdict("supported")] * 2)).constant == 1


def test_only_citations_of_right_verdicts_count():
    found = statistics_of(result("supported", "absent", "absent", cites=("2.1", "1.1", "2.4", "21.1")))
    assert (found.citations.precision.value, found.citations.recall.value) == (0.5, 1.0)
    assert (found.citations.first.value, found.citations.due_first) == (0.25, 0.0)
    wrong = statistics_of(result("absent", "absent", "absent")).citations
    assert (wrong.precision.value, wrong.recall.value) == (None, None)


def test_different_items_with_one_id_are_counted_apart():
    other = ITEM.model_copy(update={"labels": LABELS[:1]})
    twice = [ProbeResult(Probe(other, repeat=repeat), [CitedVerdict("absent")]) for repeat in (0, 1)]
    found = statistics_of(result("supported", "absent", "absent"), *twice)
    assert (found.right.hits, found.right.of, found.flips.of) == (2, 3, 1)


def test_transport_errors_count_only_as_lost():
    lost = ProbeResult(Probe(ITEM, repeat=1), failure=Failure(error="ConnectError", message="gone"), lost=True)
    refused = ProbeResult(Probe(ITEM, "padded"), failure=Failure(error="JudgeOutputError", message="no JSON"))
    found = statistics_of(result("supported", "absent", "absent", repeated=True), lost, refused)
    assert (found.answered.hits, found.answered.of, found.lost, found.error) == (1, 2, 1, "ConnectError: gone")
    assert (found.valid.hits, found.valid.of) == (0, 2)
    assert found.length_bias.value is None


def test_right_verdicts_are_counted_by_kind_of_item():
    other = ITEM.model_copy(update={"id": "j", "kind": "how-to"})
    lost = ITEM.model_copy(update={"id": "k", "kind": "list"})
    gone = ProbeResult(Probe(lost), failure=Failure(error="ConnectError", message="gone"), lost=True)
    absent = ProbeResult(Probe(other), [CitedVerdict("absent")] * 3)
    found = statistics_of(result("supported", "absent", "absent"), absent, gone)
    shares = {kind: (share.hits, share.of, share.value) for kind, share in found.right_by_kind.items()}
    assert shares == {"table": (2, 2, 1.0), "how-to": (1, 2, 0.5), "list": (0, 0, None)}
    assert [kind for kind, _ in found.weakest_kinds] == ["list", "how-to", "table"]


def test_the_hard_half_is_compared_with_each_baseline_by_pairs():
    hard = []
    for name, second in (("a", "absent"), ("b", "supported")):
        item = ITEM.model_copy(update={"id": name, "pair": "p", "half": "hard"})
        hard.append(ProbeResult(Probe(item), [*map(CitedVerdict, ("supported", second, "absent"))]))
    found = statistics_of(result("supported", "absent", "absent"), *hard)
    assert (found.plain.hits, found.plain.of, found.hard.hits, found.hard.of, found.hard.units) == (2, 2, 3, 4, 1)
    assert (found.right.of, found.constant, found.word_overlap, found.rules) == (6, 0.5, 0.5, 0.5)
    assert found.lead.keys() == {"constant", "word_overlap", "rules"}
    assert {mean for mean, *_ in found.lead.values()} == {0.25}
    assert all(low < 0.25 < high for _, low, high in found.lead.values())
    plain_only = statistics_of(result("supported", "absent", "absent"))
    assert (plain_only.hard.of, {mean for mean, *_ in plain_only.lead.values()}) == (0, {0.5})


# Thresholds decide on intervals, and a metric is as fit as its worst step


NONE = Proportion.of_units([])


def share(hits, of):
    return Proportion.of_units((float(item < hits), item) for item in range(of))


def verdict(**figures):
    given = {"right": share(90, 100), "plain": share(50, 50), "hard": share(40, 50), "verdicts": {"yes": 25, "no": 25}}
    given["lead"] = {"constant": (0.4, 0.2, 0.6), "word_overlap": (0.3, 0.1, 0.5), "rules": (0.5, 0.3, 0.7)}
    given |= dict.fromkeys(("answered", "valid"), share(50, 50)) | {"citations": None, "lost": 0, "error": ""}
    given |= dict.fromkeys(("flips", "order_bias", "length_bias"), share(0, 50))
    return assess_step(SimpleNamespace(**given | figures))


def cited(precision, recall, first=NONE, due_first=0.25):
    return Citations(precision, recall, first, due_first)


@each(
    ("figures", "expected"),
    [
        ({}, "fit"),
        ({"plain": share(47, 50)}, "fit"),
        ({"plain": share(44, 50)}, "fit with care"),
        ({"plain": share(38, 50)}, "cannot tell"),
        ({"plain": share(27, 50)}, "unfit"),
        ({"plain": share(6, 6)}, "cannot tell"),
        ({"plain": NONE, "right": share(27, 50)}, "unfit"),
        ({"right": NONE, "plain": NONE, "hard": NONE, "lead": {}}, "cannot tell"),
        ({"lead": {"constant": (0.2, -0.1, 0.5)}}, "cannot tell"),
        ({"lead": {"word_overlap": (0.2, 0.1, 0.3), "rules": (0.0, -0.1, 0.1)}}, "unfit"),
        ({"lead": {"word_overlap": (0.0, -0.1, 0.1)}, "hard": share(50, 50)}, "cannot tell"),
        ({"lead": {}}, "fit"),
        ({"flips": share(5, 50)}, "fit with care"),
        ({"flips": share(25, 50)}, "unfit"),
        ({"flips": NONE, "order_bias": NONE, "length_bias": NONE}, "fit"),
        ({"order_bias": share(25, 50)}, "unfit"),
        ({"length_bias": share(10, 50)}, "cannot tell"),
        ({"answered": share(30, 50)}, "cannot tell"),
        ({"answered": share(20, 50)}, "unfit"),
        ({"valid": share(5, 50)}, "fit with care"),
        ({"citations": cited(share(45, 50), share(45, 50))}, "fit"),
        ({"citations": cited(share(35, 50), share(50, 50))}, "fit with care"),
        ({"citations": cited(share(10, 50), share(50, 50))}, "unfit"),
        ({"citations": cited(share(50, 50), share(10, 50))}, "unfit"),
        ({"lost": 5}, "fit"),
        ({"lost": 6, "error": "gone"}, "cannot tell"),
    ],
)
def test_the_interval_decides_and_the_worst_figure_counts(figures, expected):
    level, reasons = verdict(**figures)
    assert level == expected
    assert len(reasons) == 1


def test_reasons_give_the_share_of_right_verdicts_or_all_that_is_wrong():
    assert verdict()[1] == ["right verdicts 90 of 100, 90% [83%, 94%]"]
    assert verdict(flips=share(25, 50), valid=share(5, 50))[1] == [
        "verdicts unchanged when asked again 25 of 50, 50% [37%, 63%]",
        "replies valid at once 5 of 50, 10% [4%, 21%]",
    ]
    assert verdict(lead={"constant": (0.0, -0.1, 0.1), "rules": (0.1, -0.1, 0.3)}, verdicts={"yes": 50})[1] == [
        "every verdict was 'yes', no better on hard items than without reading the texts",
        "perhaps no better on hard items than rules about the surface of texts",
    ]
    first = cited(share(10, 50), share(50, 50), share(48, 50))
    due = "96% are of the first chunk, 25% would be right"
    assert verdict(citations=first)[1] == [f"relevant citations 10 of 50, 20% [11%, 33%]: {due}"]
    assert "first chunk" not in verdict(citations=cited(share(10, 50), share(50, 50), share(12, 50)))[1][0]


def test_a_metric_is_as_fit_as_its_worst_step():
    steps = {"extract_statements": ("fit", ["a"]), "verify_statements": ("unfit", ["b", "c"])}
    assert assess_metric(steps, "faithfulness") == ("unfit", "verify_statements: b; c. extract_statements: a.")
    steps["verify_statements"] = ("fit with care", ["d"])
    assert assess_metric(steps, "faithfulness")[0] == "fit with care"
    missing = "no labelled item examines it: write items for it, or compare its scores with labels of people"
    assert assess_metric({}, "rubric") == ("cannot tell", f"grade_rubric: {missing}.")
    missing = "no embeddings were examined: add embeddings (--embeddings MODEL)"
    assert assess_metric({}, "answer_similarity") == ("cannot tell", f"measure_similarity: {missing}.")


def test_the_table_names_metrics_and_steps_that_there_are():
    assert STEPS_OF.keys() <= BUILDERS.keys() | {"llm_grader", "standalone_question", "critic"}
    named = {step for steps in STEPS_OF.values() for step in steps}
    assert EXAMINATIONS.keys() == named <= ANSWER_SCHEMAS.keys() | {EMBEDDING_STEP, "answer_check"}


def test_a_proportion_shows_counts_value_and_interval():
    assert str(share(45, 50)) == "45 of 50, 90% [79%, 96%]"
    assert str(share(45, 50).complement) == "5 of 50, 10% [4%, 21%]"
    assert (str(NONE), NONE.complement, NONE.value) == ("–", NONE, None)
    assert Proportion.of_units([(0.5, 0), (1.0, 1)]).hits == 1.5


# Gates that demand a judge that was examined: by `qualify`, or by people's labels


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
    others = [Judge(OfflineJudge(), draws=3), Judge(OfflineJudge(), prompts=own)]
    for judge in (*others, Judge(OfflineJudge(disable_streaming=True))):
        (gate,) = judge_gates(report_by(judge), ["faithfulness"], path)
        assert (gate.verdict, gate.codes) == ("undecided", ["another-judge"])
        assert f"run `rageval qualify --judge … --out {path}` again" in gate.reason
    for judge in (Judge(OfflineJudge(), attempts=5), Judge(OfflineJudge(), language="en")):
        assert judge_gates(report_by(judge), ["faithfulness"], path)[0].verdict == "passed"


NOT_EXAMINED = [(content, "judge-not-examined") for content in (None, {"verdict": {}})]
UNFIT = ({"verdict": {"faithfulness": "unfit"}}, "judge-unfit")


@each(("content", "code"), [*NOT_EXAMINED, UNFIT, ({"examined": {}}, "another-judge")])
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
    answers = [SAMPLE["answer"], "Elephants fly."] * 20
    samples = [{**SAMPLE, "id": str(n), "answer": answer} for n, answer in enumerate(answers)]
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
