"""Comparison of runs over different samples, and in what their questions differ."""

import random

import pytest
from helpers.reports import failed, row, scored, unscored
from scipy.stats import hypergeom

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


def test_too_few_samples_decide_nothing():
    found = run("prod", shares(0, 5)).compare(run("dev", shares(90, 100)), paired=False)
    assert found["faithfulness"].verdict == "too few samples"
    (gate,) = found.gates()
    told = "faithfulness too few samples (5 and 100 samples): at least 6 are needed [too-few-pairs]"
    assert (gate.verdict, gate.reason) == ("undecided", told)
    least = run("prod", shares(0, 6)).compare(run("dev", shares(90, 100)), paired=False)
    assert least["faithfulness"].verdict == "worse"


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
    first, second = mix_shifts(russian, english)
    assert (first.by, first.distance, second.by) == ("language", 1.0, "length of the question")
    assert mix_shifts(russian, russian) == mix_shifts([], english) == mix_shifts(russian, []) == []


def tagged(prefix, metadata, tags=None, questions=None):
    """Return rows with these metadata, tags and questions, one for each."""
    rows = [
        row(n, scored(1.0), id=f"{prefix}{n}", question=questions[n] if questions else "When?", metadata=own)
        for n, own in enumerate(metadata)
    ]
    return [one.model_copy(update={"tags": own}) for one, own in zip(rows, tags or [{}] * len(rows), strict=True)]


def test_the_p_value_of_a_shift_is_that_of_the_hypergeometric_distribution():
    topics = [["a"] * good + ["b"] * (60 - good) for good in (39, 23)]
    (shift,) = mix_shifts(
        *(tagged(n, [{"topic": topic} for topic in own]) for n, own in zip("xy", topics, strict=True))
    )
    assert (shift.by, shift.distance) == ("metadata.topic", pytest.approx(16 / 60))
    assert shift.shares == {"a": pytest.approx((39 / 60, 23 / 60)), "b": pytest.approx((21 / 60, 37 / 60))}
    exact = hypergeom(120, 62, 60)
    assert shift.p_value == pytest.approx(exact.cdf(23) + exact.sf(38), abs=0.004)
    assert str(shift) == str(shift.note)
    assert "a 65% (baseline 38%)" in str(shift)


@pytest.mark.parametrize(
    ("own", "its", "found"),
    [
        ([{"t": "a"}] * 50, [{"t": "b"}] * 50, ["t"]),
        ([{"t": True}] * 50, [{"t": False}] * 50, ["t"]),
        ([{"t": 1}] * 50, [{"t": 2}] * 50, []),  # numbers are no kinds
        ([{"t": "a"}] * 50, [{"t": "a"}] * 50, []),
        ([{"t": "a"}] * 25 + [{}] * 25, [{"t": "b"}] * 25 + [{}] * 25, ["t"]),  # half of the rows have it
        ([{"t": "a"}] * 24 + [{}] * 26, [{"t": "b"}] * 50, []),
        ([{"t": "a"}] * 50, [{}] * 50, []),
        ([{"t": f"a{n % 10}"} for n in range(50)], [{"t": f"b{n % 10}"} for n in range(50)], ["t"]),  # 20 values
        ([{"t": f"a{n % 11}"} for n in range(50)], [{"t": f"b{n % 10}"} for n in range(50)], []),
        ([{"t": "a", "s": "x"}] * 50, [{"t": "b", "s": "y"}] * 50, ["s", "t"]),
        ([{"t": "a"}] * 55 + [{"t": "b"}] * 445, [{"t": "b"}] * 500, ["t"]),
        ([{"t": "a"}] * 45 + [{"t": "b"}] * 455, [{"t": "b"}] * 500, []),  # a distance below a tenth
        ([{"t": "a"}] * 2, [{"t": "b"}] * 2, []),  # chance
    ],
)
def test_properties_that_most_rows_have_are_compared(own, its, found):
    assert [shift.by for shift in mix_shifts(tagged("c", own), tagged("b", its))] == [
        f"metadata.{name}" for name in found
    ]
    none = [{}] * len(own), [{}] * len(its)
    if all(isinstance(value, str) for side in (own, its) for one in side for value in one.values()):
        shifts = mix_shifts(tagged("c", none[0], own), tagged("b", none[1], its))
        assert [shift.by for shift in shifts] == [f"tags.{name}" for name in found]


def test_the_lengths_of_questions_are_parted_by_the_quarters_of_the_baseline():
    lengths = [39] * 40, [10] * 10 + [20] * 10 + [30] * 10 + [40] * 10
    own, its = (tagged(str(n), [{}] * 40, None, ["?" * length for length in one]) for n, one in enumerate(lengths))
    shift = next(one for one in mix_shifts(own, its) if one.by == "length of the question")
    assert shift.shares["very long"] == (1.0, 0.25)
    assert sum(its for _, its in shift.shares.values()) == 1.0
    assert str(shift).startswith("length of the question: very long 100% (baseline 25%)")
    assert mix_shifts(tagged("x", [{}], None, ["?"]), tagged("y", [{}], None, ["????"])) == []


def test_the_remedy_for_other_questions_is_a_property_that_can_be_reweighted():
    topics = [["a"] * 45 + ["b"] * 5, ["a"] * 15 + ["b"] * 35]
    sides = [
        Report(tagged(name, [{"topic": topic} for topic in own], None, [name * length] * 50))
        for name, own, length in zip("xy", topics, (9, 40), strict=True)
    ]
    (note,) = sides[0].compare(sides[1], paired=False).notes
    assert [shift.fields["by"] for shift in note.fields["shifts"]] == ["length of the question", "metadata.topic"]
    assert (note.code, note.fields["by"]) == ("questions-differ-by", "metadata.topic")
    plain = Report(tagged("x", [{}] * 50, None, ["x" * 9] * 50))
    (note,) = plain.compare(Report(tagged("y", [{}] * 50, None, ["y" * 40] * 50)), paired=False).notes
    assert (note.code, note.fields["by"]) == ("questions-differ", "")


def test_at_most_four_dropped_slices_are_named():
    own = tagged("c", [{"topic": "a"}] * 20)
    its = tagged("b", [{"topic": topic} for topic in "abcdefg" * 4])
    found = Report(own).compare(Report(its), paired=False, reweight="metadata.topic")
    (note,) = [note for note in found.notes if note.code == "slices-dropped"]
    assert note.fields == {"slices": ["b", "c", "d", "e"], "share": pytest.approx(6 / 7)}


def test_lost_coverage_is_a_problem():
    lacking = [row(n, unscored(), id=f"u{n}", question=f"Q{n}") for n in range(50)]
    half = Report([*run("prod", shares(50, 50)).rows, *lacking])
    found = half.compare(run("dev", shares(100, 100)), paired=False)
    assert found["faithfulness"].coverage_fell
    assert found["faithfulness"].verdict == "lost coverage"
    told = "faithfulness lost coverage: a smaller share of the samples has a score [lost-coverage-unpaired]"
    assert [gate.reason for gate in found.gates()] == [told]


@pytest.mark.parametrize(("hard", "verdict"), [(50, "inconclusive"), (6, "inconclusive"), (5, "no worse")])
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
