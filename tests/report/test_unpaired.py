"""Comparison of runs over different samples, and in what their questions differ."""

import random

import pytest
from helpers.reports import failed, row, scored, unscored

from langchain_rageval import Report
from langchain_rageval.report.unpaired import mix_shifts


def run(start, values, **sample):
    """Return a report of samples that no other start gives."""
    rows = [
        row(number, scored(value), id=f"{start}-{number}", question=f"Вопрос {start} {number}?", **sample)
        for number, value in enumerate(values)
    ]
    return Report(rows)


def shares(good, size):
    return [1.0] * good + [0.0] * (size - good)


def test_means_over_different_samples_are_compared():
    found = run("prod", shares(60, 100)).compare(run("dev", shares(90, 100)), paired=False)
    metric = found["faithfulness"]
    assert (metric.verdict, metric.mean, metric.baseline, metric.samples) == ("worse", 0.6, 0.9, (100, 100))
    assert metric.difference == pytest.approx(-0.3)
    assert metric.low < -0.3 < metric.high < 0
    assert str(metric) == "faithfulness worse: -0.300 [-0.408, -0.183], p < 0.001 (100 and 100 samples)"
    assert [(gate.verdict, gate.reason) for gate in found.gates()] == [("failed", f"{metric} [worse]")]
    assert found.notes == []


def test_a_margin_that_the_interval_excludes_is_no_worse():
    production, development = run("prod", shares(900, 1000)), run("dev", shares(900, 1000))
    assert production.compare(development, 0.05, paired=False)["faithfulness"].verdict == "no worse"
    assert production.compare(development, paired=False)["faithfulness"].verdict == "inconclusive"


def test_too_few_samples_decide_nothing():
    found = run("prod", shares(0, 5)).compare(run("dev", shares(90, 100)), paired=False)
    assert found["faithfulness"].verdict == "too few samples"
    (gate,) = found.gates()
    told = "faithfulness too few samples (5 and 100 samples): at least 6 are needed [too-few-pairs]"
    assert (gate.verdict, gate.reason) == ("undecided", told)
    least = run("prod", shares(0, 6)).compare(run("dev", shares(90, 100)), paired=False)
    assert least["faithfulness"].verdict == "worse"


def chats(start, values, turns=3):
    """Return a report whose samples are turns of conversations, all of which have the value of the conversation."""
    rows = [row for value in values for row in [value] * turns]
    metadata = [{"conversation": f"{start}-{number // turns}"} for number in range(len(rows))]
    return Report(
        [
            row(
                number,
                scored(value),
                id=f"{start}-{number}",
                question=f"Вопрос {start} {number}?",
                metadata=metadata[number],
            )
            for number, value in enumerate(rows)
        ]
    )


def test_the_turns_of_a_conversation_are_one_cluster_unless_clusters_are_turned_off():
    live, plain = chats("prod", shares(20, 40)), chats("test", shares(36, 40), turns=1)
    found = live.compare(plain, paired=False)
    note = "120 samples are turns of 40 conversations: the intervals treat conversations, not samples, as independent."
    assert found.notes == [f"In the candidate: {note}"]
    alone = chats("prod", shares(20, 40), turns=1).compare(plain, paired=False)["faithfulness"]
    metric = found["faithfulness"]
    assert (metric.low, metric.high) == pytest.approx((alone.low, alone.high), abs=0.01)
    independent = live.compare(plain, paired=False, cluster=None)
    assert independent.notes == []
    assert independent["faithfulness"].high - independent["faithfulness"].low < metric.high - metric.low
    both = live.compare(chats("test", shares(36, 40)), paired=False)
    assert both.notes[1] == f"In the baseline: {note}"


def mixed(start, easy, hard):
    """Return a run whose easy questions score 0.9, and hard ones 0.5."""
    rng, rows = random.Random(start), []
    for number in range(easy + hard):
        is_easy = number < easy
        value = float(rng.random() < (0.9 if is_easy else 0.5))
        topic = {"topic": "easy" if is_easy else "hard"}
        rows.append(row(number, scored(value), id=f"{start}-{number}", question=f"Q {number}?", metadata=topic))
    return Report(rows)


def test_a_shift_of_the_mix_is_named_and_reweighting_undoes_it():
    production, development = mixed("prod", 50, 350), mixed("dev", 350, 50)
    plain = production.compare(development, paired=False)
    assert plain["faithfulness"].verdict == "worse"
    assert plain.notes == [
        "The questions differ: metadata.topic: easy 12% (baseline 88%), hard 88% (baseline 12%). A difference of the "
        'means may be due to them; reweight="metadata.topic" compares at equal shares.'
    ]
    equal = production.compare(development, paired=False, reweight="metadata.topic")
    assert equal["faithfulness"].verdict == "inconclusive"
    assert abs(equal["faithfulness"].difference) < 0.1
    assert equal.notes == ["Both runs are compared at the baseline's shares of metadata.topic."]


def test_languages_and_lengths_are_properties():
    russian = [row(n, scored(1.0), id=f"r{n}", question=f"Когда закрывается касса номер {n}?") for n in range(50)]
    english = [row(n, scored(1.0), id=f"e{n}", question=f"When? {n}") for n in range(50)]
    shifts = mix_shifts(russian, english)
    assert {shift.by for shift in shifts} == {"language", "length of the question"}
    assert shifts[0].distance == 1.0
    assert mix_shifts(russian, russian) == []
    assert mix_shifts([], english) == []
    own, its = (
        [row(n, scored(1.0), id=f"{n}", question="When?", metadata={"topic": topic}) for n, topic in enumerate(topics)]
        for topics in ("a" * 15 + "c" * 35, "a" * 20 + "b" * 20 + "c" * 10)
    )
    assert [[*shift.shares] for shift in mix_shifts(own, its)] == [["c", "b", "a"]]


def test_lost_coverage_is_a_problem():
    lacking = [row(n, unscored(), id=f"u{n}", question=f"Q{n}") for n in range(50)]
    half = Report([*run("prod", shares(50, 50)).rows, *lacking])
    found = half.compare(run("dev", shares(100, 100)), paired=False)
    assert found["faithfulness"].coverage_fell
    assert found["faithfulness"].verdict == "lost coverage"
    told = "faithfulness lost coverage: a smaller share of the samples has a score [lost-coverage-unpaired]"
    assert [gate.reason for gate in found.gates()] == [told]


@pytest.mark.parametrize(("hard", "verdict"), [(50, "inconclusive"), (4, "no worse")])
def test_slices_that_the_candidate_lacks_are_named_and_decide_nothing(hard, verdict):
    def run(prefix, easy, hard):
        topics = ["easy"] * easy + ["hard"] * hard
        return Report(
            [
                row(n, scored(float(topic == "easy")), id=f"{prefix}{n}", metadata={"topic": topic})
                for n, topic in enumerate(topics)
            ]
        )

    found = run("c", 300, 0).compare(run("b", 100 - hard, hard), 0.1, paired=False, reweight="metadata.topic")
    assert found["faithfulness"].verdict == verdict
    (note,) = [note for note in found.notes if note.code == "slices-dropped"]
    assert note == (
        f"{hard}% of the baseline's samples (hard) have no counterpart in the candidate and are left out of "
        "faithfulness."
    )
    full = run("c", 300, 300).compare(run("b", 50, 50), 0.2, paired=False, reweight="metadata.topic")
    assert (full["faithfulness"].verdict, [note.code for note in full.notes]) == ("no worse", ["reweighted"])


@pytest.mark.parametrize("range", [(None, None), (1, 5), None])
def test_a_metric_without_any_value_has_too_few_samples(range):
    nothing = Report([row(n, unscored("none", range=range), id=f"n{n}", question=f"N{n}?") for n in [*[0] * 9]])
    some = run("s", [0.5] * 9)
    for sides, verdict in (((nothing, nothing), "too few samples"), ((nothing, some), "lost coverage")):
        found = sides[0].compare(sides[1], paired=False)["faithfulness"]
        assert (found.difference, found.p_value, found.verdict) == (None, None, verdict)


@pytest.mark.parametrize("reweight", [None, "metadata.topic"])
def test_the_scale_of_the_values_changes_nothing_but_the_unit(reweight):
    def graded(report):  # from 1 to 5; the first row has no range
        rows = [row(999, failed(), id=f"{report.rows[0].sample.id}-failed", question="Q?")]
        for one in report.rows:
            grade = scored(1 + 4 * one.scores["faithfulness"].value, range=(1, 5))
            rows.append(one.model_copy(update={"scores": {"faithfulness": grade}}))
        return Report(rows)

    sides = mixed("prod", 30, 50), mixed("dev", 50, 30)
    plain = sides[0].compare(sides[1], paired=False, reweight=reweight)["faithfulness"]
    grade = graded(sides[0]).compare(graded(sides[1]), paired=False, reweight=reweight)["faithfulness"]
    for name in ("difference", "low", "high", "largest_loss"):
        assert getattr(grade, name) == pytest.approx(4 * getattr(plain, name)), name
    assert (grade.mean, grade.baseline) == pytest.approx((1 + 4 * plain.mean, 1 + 4 * plain.baseline))
    assert (grade.p_value, grade.verdict, grade.samples) == (pytest.approx(plain.p_value), plain.verdict, (80, 80))


def test_values_of_another_scale_keep_their_unit():
    values, others = [1.0, 5.0, 4.0, 4.0, 2.0, 5.0, 3.0], [2.0, 1.0, 1.0, 3.0, 1.0, 2.0, 1.0]
    metric = run("a", values).compare(run("b", others), paired=False)["faithfulness"]
    assert (metric.mean, metric.baseline) == (pytest.approx(24 / 7), pytest.approx(11 / 7))
    assert metric.difference == pytest.approx(13 / 7)
    assert 0 < metric.low < 13 / 7 < metric.high <= 4
    shifted = run("a", [value - 1 for value in values]).compare(run("b", [value - 1 for value in others]), paired=False)
    assert shifted["faithfulness"].low == pytest.approx(metric.low)
    equal = [4.0] * 7
    assert run("a", equal).compare(run("b", equal), 0.1, paired=False)["faithfulness"].verdict == "inconclusive"
    negative = run("a", [-0.5, *shares(3, 6)]).compare(run("b", shares(2, 8)), paired=False)["faithfulness"]
    assert negative.mean == pytest.approx(2.5 / 7)
