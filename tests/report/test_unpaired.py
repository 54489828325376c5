"""Comparisons beside that of pairs: over different samples, by anchors that show a moved judge, and by evolution."""

import random
from datetime import timedelta
from io import BytesIO

import pytest
from helpers.each import each, error_of
from helpers.manual import load_benchmark
from helpers.reports import START, failed, over, row, scored, unscored
from helpers.scripted import answering, human_of, statements, supported, verdicts
from helpers.stored import assert_stored, described, plain
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel
from scipy.stats import hypergeom

from langchain_rageval import ConfigError, Judge, OfflineJudge, Report, evaluate, exact_match, faithfulness, trend
from langchain_rageval.report.metric_comparison import (
    LEAST_ANCHORS,
    JudgeShift,
    MetricComparison,
    moved_verdicts,
    rows_to_ask_again,
)
from langchain_rageval.report.rescoring import join_reports
from langchain_rageval.report.unpaired import mix_shifts

# Runs over different samples, and in what their questions differ


def run_of(start, values, **sample):
    """Return a report of samples that no other start gives."""
    names = {n: {"id": f"{start}-{n}", "question": f"Вопрос {start} {n}?"} for n in range(len(values))}
    return Report([row(n, scored(value), **names[n], **sample) for n, value in enumerate(values)])


def shares(good, size):
    return [1.0] * good + [0.0] * (size - good)


def test_means_over_different_samples_are_compared():
    found = run_of("prod", shares(60, 100)).compare(run_of("dev", shares(90, 100)), paired=False)
    metric = found["faithfulness"]
    assert (metric.verdict, metric.mean, metric.baseline, metric.samples) == ("worse", 0.6, 0.9, (100, 100))
    assert metric.difference == pytest.approx(-0.3)
    assert metric.low < -0.3 < metric.high < 0
    assert str(metric) == "faithfulness worse: -0.300 [-0.408, -0.183], p < 0.001 (100 and 100 samples)"
    assert [(gate.verdict, gate.reason) for gate in found.gates()] == [("failed", f"{metric} [worse]")]
    assert found.notes == []


def test_too_few_samples_decide_nothing():
    found = run_of("prod", shares(0, 5)).compare(run_of("dev", shares(90, 100)), paired=False)
    assert found["faithfulness"].verdict == "too few samples"
    (gate,) = found.gates()
    told = "faithfulness too few samples (5 and 100 samples): at least 6 are needed [too-few-pairs]"
    assert (gate.verdict, gate.reason) == ("undecided", told)
    least = run_of("prod", shares(0, 6)).compare(run_of("dev", shares(90, 100)), paired=False)
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
    count = len(metadata)
    fields = zip(questions or ["When?"] * count, metadata, tags or [{}] * count, strict=True)
    numbered = ((n, f"{prefix}{n}", *own) for n, own in enumerate(fields))
    return [row(n, scored(1.0), id=name, question=q, metadata=m, tags=t) for n, name, q, m, t in numbered]


def test_the_p_value_of_a_shift_is_that_of_the_hypergeometric_distribution():
    topics = [["a"] * good + ["b"] * (60 - good) for good in (39, 23)]
    sides = [tagged(name, [{"topic": topic} for topic in own]) for name, own in zip("xy", topics, strict=True)]
    (shift,) = mix_shifts(*sides)
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
    shifts = mix_shifts(tagged("c", own), tagged("b", its))
    assert [shift.by for shift in shifts] == [f"metadata.{name}" for name in found]
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
    metadata = [[{"topic": topic} for topic in own] for own in topics]
    questions = ["x" * 9] * 50, ["y" * 40] * 50
    sides = [Report(tagged("xy"[n], metadata[n], None, questions[n])) for n in (0, 1)]
    (note,) = sides[0].compare(sides[1], paired=False).notes
    assert [shift.fields["by"] for shift in note.fields["shifts"]] == ["length of the question", "metadata.topic"]
    assert (note.code, note.fields["by"]) == ("questions-differ-by", "metadata.topic")
    plain = [Report(tagged("xy"[n], [{}] * 50, None, questions[n])) for n in (0, 1)]
    (note,) = plain[0].compare(plain[1], paired=False).notes
    assert (note.code, note.fields["by"]) == ("questions-differ", "")


def test_at_most_four_dropped_slices_are_named():
    own = tagged("c", [{"topic": "a"}] * 20)
    its = tagged("b", [{"topic": topic} for topic in "abcdefg" * 4])
    found = Report(own).compare(Report(its), paired=False, reweight="metadata.topic")
    (note,) = [note for note in found.notes if note.code == "slices-dropped"]
    assert note.fields == {"slices": ["b", "c", "d", "e"], "share": pytest.approx(6 / 7)}


def test_lost_coverage_is_a_problem():
    lacking = [row(n, unscored(), id=f"u{n}", question=f"Q{n}") for n in range(50)]
    half = Report([*run_of("prod", shares(50, 50)).rows, *lacking])
    found = half.compare(run_of("dev", shares(100, 100)), paired=False)
    assert found["faithfulness"].coverage_fell
    assert found["faithfulness"].verdict == "lost coverage"
    told = "faithfulness lost coverage: a smaller share of the samples has a score [lost-coverage-unpaired]"
    assert [gate.reason for gate in found.gates()] == [told]


@pytest.mark.parametrize(("hard", "verdict"), [(50, "inconclusive"), (6, "inconclusive"), (5, "no worse")])
def test_slices_that_the_candidate_lacks_are_named_and_decide_nothing(hard, verdict):
    def run_of(prefix, easy, hard):
        rows = [row(n, scored(float(n < easy)), id=f"{prefix}{n}") for n in range(easy + hard)]
        return over(Report(rows), metadata=lambda one: {"topic": "easy" if one.index < easy else "hard"})

    found = run_of("c", 300, 0).compare(run_of("b", 100 - hard, hard), 0.1, paired=False, reweight="metadata.topic")
    assert found["faithfulness"].verdict == verdict
    (note,) = [note for note in found.notes if note.code == "slices-dropped"]
    told = "of the baseline's samples (hard) have no counterpart in the candidate and are left out of faithfulness."
    assert note == f"{hard}% {told}"
    full = run_of("c", 300, 300).compare(run_of("b", 50, 50), 0.2, paired=False, reweight="metadata.topic")
    assert (full["faithfulness"].verdict, [note.code for note in full.notes]) == ("no worse", ["reweighted"])


@pytest.mark.parametrize("range", [(None, None), (1, 5), None])
def test_a_metric_without_any_value_has_too_few_samples(range):
    nothing = Report([row(n, unscored("none", range=range), id=f"n{n}", question=f"N{n}?") for n in [*[0] * 9]])
    some = run_of("s", [0.5] * 9)
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


# Anchors: rows that did not change show how far the judge itself has moved between two runs


FIELDS = {"answer": "Munich is old.", "contexts": ["Munich is old."], "references": ["no"]}
SAMPLES = [{"id": str(n), "question": f"Q{n}?", **FIELDS} for n in range(3)]


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
    verdicts = ("undecided", "undecided") if anew else ("worse", "failed")
    assert (found["faithfulness"].verdict, found.gates()[0].verdict) == verdicts
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


# `Report.by_evolution`: paired differences within trees between each evolution and the simple question


def tree_row(place, tree, evolution, *scores):
    return row(place, *scores, metadata={"tree_id": tree, "evolution": evolution}, question=f"Question {place}?")


def forest(harder=0.5, trees=8):
    """Return a report of trees in which reasoning costs `harder` of each value, and a condition nothing."""
    rows = []
    for number in range(trees):
        value = 0.5 + 0.05 * number
        for evolution, own in (("simple", value), ("reasoning", value - harder), ("conditional", value)):
            scores = [scored(own), scored(1 - own, "noise_sensitivity", direction="lower")]
            rows.append(tree_row(len(rows), f"tree-{number}", evolution, *scores))
    return Report(rows)


def test_rows_without_a_tree_and_trees_without_a_simple_question_are_noted():
    rows = [*forest().rows, row(99, scored(1.0)), tree_row(100, "tree-x", "reasoning", scored(0.0))]
    found = Report(rows).by_evolution()
    assert found.notes == ["Left out: 1 sample without a tree.", "1 trees without a simple question were left out."]
    assert (found["reasoning"]["faithfulness"].clusters, found.trees) == (8, 8)


def test_a_report_without_trees_is_refused_with_the_remedy():
    remedy = "generate the test set with TestsetGenerator(..., tree=True), and keep the metadata of its samples"
    error = error_of(ConfigError, Report([row(0, scored(1.0))]).by_evolution)
    assert str(error) == f"no sample has metadata.tree_id and metadata.evolution: {remedy}"
    lone = Report([tree_row(0, "a", "simple", scored(1.0)), tree_row(1, "b", "reasoning", scored(1.0))])
    with pytest.raises(ConfigError, match=r"^no tree of questions .* has both a simple question and another evolution"):
        lone.by_evolution()


def test_the_comparison_is_a_table_in_html_and_pandas():
    found = forest().by_evolution()
    frame = found.to_pandas()
    assert (list(frame.evolution), list(frame.trees)) == (["reasoning"] * 2 + ["conditional"] * 2, [8] * 4)
    assert frame.difference[0] == found["reasoning"]["faithfulness"].difference
    assert found._repr_html_().count("<tr>") == 5


def test_the_page_has_a_section_only_if_there_are_trees(tmp_path):
    for language, title in {"en": "What makes questions harder", "ru": "Что усложняет вопросы"}.items():
        for report, is_there in ((forest(), True), (Report([row(0, scored(1.0))]), False)):
            report.to_html(tmp_path / "r.html", language=language)
            assert (title in (tmp_path / "r.html").read_text(encoding="utf-8")) is is_there


def test_the_figure_is_drawn_as_stored():
    more = {f"m{place}": scored(0.5, f"m{place}") for place in range(3)}
    rows = [row.model_copy(update={"scores": {**row.scores, **more}}) for row in forest(trees=7).rows]
    rows[1].scores["m1"] = scored(0.75, "m1")
    for place in range(1, len(rows), 3):
        rows[place].scores["m2"] = failed("m2")
    assert_stored("plot_of_evolutions.txt", described(Report(rows).by_evolution().plot()))
    odd = [row.model_copy(update={"scores": {"$\\oops$": scored(0.5, "$\\oops$")}}) for row in rows]
    Report(odd).by_evolution().plot().savefig(BytesIO())  # the name is no formula


def test_the_table_is_as_stored_also_of_a_report_in_a_file(tmp_path):
    found = forest(trees=7).by_evolution()
    assert_stored("evolutions.txt", f"{found}\n{plain(found.cells())}\n{plain(found)}\n{found.notes}\n")
    forest(trees=7).to_jsonl(tmp_path / "r.jsonl")
    assert repr(Report.load(tmp_path / "r.jsonl", lazy=True).by_evolution()) == repr(found)
