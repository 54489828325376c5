"""Gates are red when the evaluated application does not work: by `check`, by `compare` and on the command line."""

import json

import pytest
from helpers.each import each
from helpers.reports import report_of, row, scored, unscored

from langchain_rageval import BelowThreshold, ConfigError, OfflineJudge, Report, evaluate, faithfulness
from langchain_rageval.cli.main import run

PLACES = ["Munich", "Berlin", "Hamburg", "Cologne", "Dresden", "Leipzig", "Bremen", "Essen", "Bonn", "Kiel"]
REFUSAL = "I do not know: the documents do not say."


def good(number):
    fact = f"{PLACES[number]} was founded in {1100 + number} by a duke."
    return {"question": f"When was {PLACES[number]} founded?", "answer": fact, "contexts": [fact]}


GOOD = [good(number) for number in range(10)]
DEAD = {
    "refuses everything": [{**sample, "answer": REFUSAL} for sample in GOOD],
    "dead retriever": [{**sample, "contexts": []} for sample in GOOD],
    "swapped contexts": [{**s, "contexts": GOOD[n - 1]["contexts"]} for n, s in enumerate(GOOD)],
    "empty answers": [{**sample, "answer": ""} for sample in GOOD],
    "one sample repeated": [GOOD[0]] * 10,
}
IDS = [{**sample, "id": str(number)} for number, sample in enumerate(GOOD)]
MIXED_UP = {
    "shuffled ids": [{**sample, "id": str((number + 3) % 10)} for number, sample in enumerate(GOOD)],
    "ids of unrelated questions": [{**s, "question": f"Why {n}?", "id": str(n)} for n, s in enumerate(GOOD)],
}


def scored_report(samples):
    return evaluate(samples, faithfulness(OfflineJudge()), progress=False)


def command(*words):
    return run([str(word) for word in words])


@pytest.fixture
def written(tmp_path):
    def write(name, samples):
        path = tmp_path / name
        path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        return path

    return write


def test_a_working_application_passes_every_gate(written):
    report = scored_report(GOOD)
    report.compare(scored_report(GOOD)).check()
    report.check({"faithfulness": 0.8}, baseline=scored_report(GOOD))
    path, out = written("good.jsonl", GOOD), written("report.jsonl", [])
    assert command("evaluate", path, "--fail-under", "faithfulness=0.8", "--out", out, "--quiet") == 0
    assert command("compare", out, out, "--fail-if-worse") == 0


@pytest.mark.parametrize("samples", DEAD.values(), ids=DEAD)
def test_a_dead_application_fails_every_gate(written, samples):
    report, baseline = scored_report(samples), scored_report(GOOD)
    with pytest.raises(BelowThreshold):
        report.check({"faithfulness": 0.8})
    with pytest.raises(BelowThreshold):
        report.check({}, baseline=baseline)
    with pytest.raises(BelowThreshold):
        report.compare(baseline).check()
    before, after = written("before", []), written("after", [])
    baseline.to_jsonl(before)
    path = written("samples.jsonl", samples)
    assert command("evaluate", path, "--fail-under", "faithfulness=0.8", "--out", after, "--quiet") == 1
    assert command("compare", before, after, "--fail-if-worse") == 1


@pytest.mark.parametrize("samples", MIXED_UP.values(), ids=MIXED_UP)
def test_ids_of_other_questions_are_refused(written, capsys, samples):
    report, baseline = scored_report(samples), scored_report(IDS)
    first = report.rows[0].sample
    other = IDS[int(first.id)]["question"]
    message = (
        f"the id {first.id!r} has the question {first.question!r} in the candidate and {other!r} in the baseline: give "
        "each question its own id, or leave the ids out to pair by question"
    )
    for gate in (report.compare, lambda other: report.check({}, baseline=other)):
        with pytest.raises(ConfigError) as caught:
            gate(baseline)
        assert str(caught.value) == message
    before, after = written("before", []), written("after", [])
    baseline.to_jsonl(before)
    report.to_jsonl(after)
    assert command("compare", before, after, "--fail-if-worse") == 2
    assert capsys.readouterr().err == f"rageval: {message}\n"


def test_one_id_repeated_fails_every_gate():
    report = scored_report([{**GOOD[0], "id": "0"}] * 10)
    with pytest.raises(
        BelowThreshold, match=r"^faithfulness scored 1 different of 10 samples, at least 5 are needed to"
    ):
        report.check({"faithfulness": 0.8})
    with pytest.raises(
        BelowThreshold, match=r"faithfulness too few pairs: .* in 1 cluster, .*: at least 6 are needed$"
    ):
        report.compare(report).check()
    with pytest.raises(ConfigError, match=r"^nothing was compared: "):
        report.compare(scored_report(GOOD)).check()


def test_other_ids_of_the_same_questions_are_paired_by_question():
    comparison = scored_report(DEAD["swapped contexts"]).compare(scored_report(IDS))
    assert (comparison["faithfulness"].verdict, comparison["faithfulness"].pairs) == ("worse", 10)
    assert comparison.notes == ["10 samples were paired by question, because their ids differ."]


@each(
    ("candidate", "baseline", "reason"),
    [
        (Report([]), Report([]), "the candidate and the baseline have no samples."),
        (Report([]), report_of(scored(1.0)), "the candidate has no samples."),
        (report_of(scored(1.0)), Report([]), "the baseline has no samples."),
    ],
)
def test_a_comparison_with_nothing_has_a_note_and_fails(candidate, baseline, reason):
    comparison = candidate.compare(baseline)
    assert comparison.notes[-1] == f"Nothing was compared: {reason}"
    with pytest.raises(ConfigError, match=r"^nothing was compared: the reports have no metric in common; "):
        comparison.check()


def test_a_comparison_without_pairs_ends_with_2(tmp_path, capsys):
    report_of(*[scored(1.0)] * 8).to_jsonl(tmp_path / "before")
    other = [row(n, scored(1.0), id=f"x-{n}", question=f"Why {n}?") for n in range(8)]
    Report(other).to_jsonl(tmp_path / "after")
    assert command("compare", tmp_path / "before", tmp_path / "after", "--fail-if-worse") == 2
    assert capsys.readouterr().err == (
        "rageval: nothing was compared: faithfulness too few pairs (0 pairs, 0 better, 0 worse): at least 6 are "
        "needed; No sample is in both reports. Samples are paired by id, by default a hash of the question, else by "
        "question: set an id for each question.\n"
    )


def test_few_scores_do_not_pass_and_the_message_says_so():
    report = report_of(scored(1.0), *[unscored()] * 29)
    with pytest.raises(BelowThreshold) as caught:
        report.check({"faithfulness": 0.8})
    few = "faithfulness scored 1 of 30 samples, at least 5 are needed to pass"
    assert str(caught.value) == f"faithfulness is unscored for 29 of 30 samples, at most 50% may; {few}"
    with pytest.raises(BelowThreshold) as caught:
        report.check({"faithfulness": 0.8}, max_unscored=1.0)
    assert str(caught.value) == few
    report_of(*[scored(1.0)] * 5, *[unscored()] * 20).check({"faithfulness": 0.8}, max_unscored=0.8)
    report_of(scored(1.0), unscored()).check({"faithfulness": 0.8})


def test_few_pairs_do_not_pass_and_the_message_says_so():
    comparison = report_of(*[scored(1.0)] * 5).compare(report_of(*[scored(1.0)] * 5))
    with pytest.raises(BelowThreshold) as caught:
        comparison.check()
    assert str(caught.value) == f"{comparison['faithfulness']}: at least 6 are needed"


def test_fewer_than_half_of_the_samples_in_common_do_not_pass():
    others = [row(n, scored(1.0), id=f"x-{n}", question=f"Why {n}?") for n in range(7, 30)]
    report = Report([*(row(n, scored(1.0)) for n in range(7)), *others])
    comparison = report.compare(report_of(*[scored(1.0)] * 30))
    assert comparison.problems == ["only 7 of 30 samples were paired, at least half are needed"]


def test_accepted_shares_go_from_0_to_1():
    report = report_of(*[scored(1.0)] * 10)
    for option in ("max_failed", "max_unscored"):
        for share in (0, 0.0, 1, 1.0):
            report.check({"faithfulness": 0.5}, **{option: share})
        for share in (-0.01, 1.01, "1"):
            with pytest.raises(ConfigError, match=f"^{option} must be a share from 0 to 1, got {share!r}$"):
                report.check({"faithfulness": 0.5}, **{option: share})
