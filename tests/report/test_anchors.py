"""Anchors: rows that did not change show how far the judge itself has moved between two runs."""

from datetime import timedelta

import pytest
from helpers.each import each
from helpers.manual import load_benchmark
from helpers.reports import START, over, row, scored
from helpers.scripted import answering, human_of, statements, supported, verdicts
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel

from langchain_rageval import Judge, OfflineJudge, Report, evaluate, exact_match, faithfulness, trend
from langchain_rageval.report.metric_comparison import (
    LEAST_ANCHORS,
    JudgeShift,
    MetricComparison,
    moved_verdicts,
    rows_to_ask_again,
)
from langchain_rageval.report.rescoring import join_reports

SAMPLE = {"answer": "Munich is old.", "contexts": ["Munich is old."], "references": ["no"]}
SAMPLES = [{"id": str(n), "question": f"Q{n}?", **SAMPLE} for n in range(3)]


def asked(report):
    return [one.asked for one in report.rows]


def test_a_row_says_which_scores_were_asked_anew(tmp_path):
    metrics = [faithfulness(OfflineJudge()), exact_match()]
    first = evaluate(SAMPLES, metrics, journal=tmp_path / "j.db", progress=False, out=tmp_path / "r.jsonl")
    assert asked(first) == [["faithfulness"]] * 3 == asked(Report.load(tmp_path / "r.jsonl"))
    again = evaluate(SAMPLES, metrics, journal=tmp_path / "j.db", progress=False)
    assert asked(again) == [[]] * 3
    assert again == first  # rows of a resumed run are equal
    both = join_reports(again, evaluate(SAMPLES[:1], metrics, progress=False))
    assert asked(both) == [["faithfulness"], [], []]


def test_a_reply_from_a_cache_is_not_asked_anew():
    def reply(messages):
        text = human_of(messages)
        return statements("Munich is old.") if '"text"' in text else verdicts(supported(1))

    judge = faithfulness(Judge(answering(reply)))
    assert asked(evaluate(SAMPLES[:1], judge, progress=False)) == [["faithfulness"]]
    set_llm_cache(InMemoryCache())
    try:
        replies = [statements("Munich is old.").model_dump_json(), verdicts(supported(1)).model_dump_json()]
        cached = faithfulness(Judge(FakeListChatModel(responses=replies), mode="prompt"))
        runs = [evaluate(SAMPLES[:1], cached, progress=False) for _ in range(2)]
    finally:
        set_llm_cache(None)
    assert [one.rows[0].scores["faithfulness"].value for one in runs] == [1.0, 1.0]
    assert [asked(one) for one in runs] == [[["faithfulness"]], [[]]]


def run(values, *, changed=0, anew=True, side="new"):
    """Return a run whose first rows have other answers than those of the other side."""
    anew = ["faithfulness"] if anew else []
    answers = [side if n < changed else "same" for n in range(len(values))]
    return Report([row(n, scored(float(value)), answer=answers[n], asked=anew) for n, value in enumerate(values)])


GOOD = [1] * 160 + [0] * 40
HARSHER = [0] * 20 + [1] * 140 + [0] * 40


def test_a_judge_that_has_moved_alone_makes_its_verdict_undecided():
    found = run(HARSHER).compare(run(GOOD))
    metric, shift = found["faithfulness"], found.judge_shift["faithfulness"]
    assert (metric.verdict, metric.difference) == ("undecided", -0.1)
    assert (shift.difference, shift.low, shift.high, shift.anchors) == (-0.1, metric.low, metric.high, 200)
    assert shift.p_value == metric.p_unadjusted
    (gate,) = found.gates()
    assert (gate.verdict, gate.codes) == ("undecided", ["judge-shift"])
    assert str(shift) in gate.reason
    assert found.gates(allow={"judge-shift"})[0].verdict == "failed"
    assert [note.code for note in found.notes] == ["judge-shift-found"]
    new, old = (
        Report([row(n, scored(1 - value, metric="exact_match"), scored(value)) for n, value in enumerate(values)])
        for values in (HARSHER, GOOD)
    )
    both = over(new, asked=["faithfulness"]).compare(over(old, asked=["faithfulness"]))
    assert [both[name].verdict for name in ("faithfulness", "exact_match")] == ["undecided", "better"]
    for other in (run(GOOD, anew=False), over(run(GOOD), asked=[])):
        plain = run(HARSHER).compare(other)
        assert (plain["faithfulness"].verdict, dict(plain.judge_shift)) == ("worse", {})


def test_a_system_that_has_changed_keeps_its_verdict_while_the_judge_has_not_moved():
    better = [1] * 100 + GOOD[100:]
    before = [1] * 70 + [0] * 30 + GOOD[100:]
    found = run(better, changed=100).compare(run(before, changed=100, side="old"))
    assert found["faithfulness"].verdict == "better"
    shift = found.judge_shift["faithfulness"]
    assert (shift.difference, shift.anchors) == (0.0, 100)
    assert -0.01 < shift.low < 0 < shift.high < 0.01
    assert found.gates()[0].verdict == "passed"


@each(
    ("verdict", "ends", "p", "moved"),
    [
        ("better", ("better", "inconclusive"), 0.5, {"inconclusive"}),  # a claim needs no significant shift
        ("worse", ("inconclusive", "better"), 0.5, {"inconclusive", "better"}),
        ("better", ("better", "better"), 0.0001, None),
        ("inconclusive", ("worse", "inconclusive"), 0.5, None),
        ("inconclusive", ("worse", "inconclusive"), 0.0049, {"worse"}),  # Holm-adjusted over two metrics
        ("inconclusive", ("worse", "inconclusive"), 0.0051, None),
    ],
)
def test_a_verdict_has_moved_if_the_correction_by_an_end_of_the_shift_changes_it(verdict, ends, p, moved):
    clear = {"better": (0.5, 0.001), "worse": (-0.5, 0.001), "inconclusive": (0.1, 0.5)}

    def comparison(name, verdict):
        difference, p_value = clear[verdict]
        numbers = {"low": difference - 0.2, "high": difference + 0.2, "largest_loss": 0.9, "p_unadjusted": p_value}
        return MetricComparison(name, "higher", difference=difference, pairs=30, verdict=verdict, **numbers)

    def shifted(one, by):
        return comparison(one.metric, {0.0: one.verdict, -0.1: ends[0], -0.05: ends[1]}[by])

    metrics = [comparison("other", "inconclusive"), comparison("m", verdict)]
    shifts = {"m": JudgeShift(-0.08, -0.1, -0.05, 40, p), "unused": JudgeShift(0.0, 0.0, 0.0, 40, 0.9)}
    assert moved_verdicts(metrics, shifts, 0.0, shifted) == ({} if moved is None else {"m": moved})
    assert moved_verdicts(metrics, {}, 0.0, shifted) == {}


@each("anchors", [LEAST_ANCHORS - 1, LEAST_ANCHORS])
def test_under_twenty_anchors_say_nothing(anchors):
    found = run(GOOD, changed=200 - anchors).compare(run(GOOD, changed=200 - anchors, side="old"))
    assert list(found.judge_shift) == (["faithfulness"] if anchors >= LEAST_ANCHORS else [])


def test_anchors_need_no_value_for_the_cluster_that_other_rows_have():
    topics = {"metadata": lambda one: {"topic": str(one.index)} if one.index < 100 else {}}
    sides = [over(run(GOOD, changed=100, side=side), **topics) for side in ("new", "old")]
    found = sides[0].compare(sides[1], cluster="topic")
    assert found.judge_shift["faithfulness"].anchors == 100


def test_rows_that_were_scored_again_are_anchors_whatever_the_candidate_answers():
    baseline = run(GOOD, anew=False, side="old", changed=200)
    drawn = rows_to_ask_again(baseline.rows, 40)
    assert [one.index for one in drawn] == sorted(one.index for one in rows_to_ask_again(baseline.rows, 40, seed=0))
    assert drawn != rows_to_ask_again(baseline.rows, 40, seed=1)
    again = over(Report(drawn), scores={"faithfulness": scored(0.0)}, asked=["faithfulness"])
    found = run(HARSHER, changed=200).compare(baseline, anchors=again)
    share = sum(one.scores["faithfulness"].value for one in drawn) / 40
    assert (found.judge_shift["faithfulness"].difference, found["faithfulness"].verdict) == (-share, "undecided")


def renamed(report, start):
    """Return a run whose rows have other ids and questions of their own, such as one of production."""
    return over(report, id=lambda one: f"live-{start + one.index}", question=lambda one: f"Q{one.index}?")


@each("anew", [True, False])
def test_runs_over_different_samples_share_anchors_by_their_texts(anew):
    """Ids differ: what the judge has lost on equal texts is not blamed on the system."""
    candidate, baseline = renamed(run(HARSHER, anew=anew), 1000), renamed(run(GOOD), 0)
    found = candidate.compare(baseline, paired=False)
    shift = found.judge_shift.get("faithfulness")
    assert (found["faithfulness"].verdict, found.gates()[0].verdict) == (
        ("undecided", "undecided") if anew else ("worse", "failed")
    )
    assert (shift and (shift.difference, shift.anchors)) == ((-0.1, 200) if anew else None)
    twice = Report([*candidate.rows, *renamed(run(HARSHER, anew=anew), 2000).rows])
    assert twice.compare(baseline, paired=False).judge_shift == found.judge_shift  # equal rows are one anchor


def test_a_trend_gives_the_shift_of_the_judge_apart():
    live = over(renamed(run(HARSHER), 1000), time=lambda one: START + timedelta(hours=one.index))
    found = trend(live, renamed(run(GOOD), 0))
    assert found.judge_shift["faithfulness"].difference == pytest.approx(-0.1)
    assert "the judge itself has moved by -0.100" in repr(found)


@pytest.mark.gate
@each(
    ("cell", "verdicts", "most"),
    [
        ({"anchors": 200, "harsher": 0.03}, ("better", "worse"), 0.05),
        ({"anchors": 200, "harsher": 0.1}, ("better", "worse"), 0.05),
        ({"anchors": 100, "gain": 0.1}, ("worse", "undecided", "inconclusive"), 0.3),
    ],
)
def test_simulated_drift_is_not_taken_for_a_change_of_the_system(cell, verdicts, most):
    found = load_benchmark("judge_shift").simulate(20, **cell)
    assert sum(found.get(verdict, 0) for verdict in verdicts) <= most
