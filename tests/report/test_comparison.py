"""Two reports over the same samples: verdicts, what they rest on, and what is refused."""

import re
from collections import Counter
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from helpers.each import each
from helpers.reports import failed, report_of, row, scored, unscored
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Report
from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.report.metric_comparison import MetricComparison, with_verdict
from langchain_rageval.report.pairing import pair_rows
from langchain_rageval.statistics import detectable_difference, holm, paired_difference


def values(*given, **more):
    return report_of(*(scored(value, **more) for value in given))


def compared(candidate, baseline, **options):
    return values(*candidate).compare(values(*baseline), **options)["faithfulness"]


BETTER = ([1.0] * 8, [0.0] * 8)
LITTLE_WORSE = ([0.49] * 400, [0.5] * 400)


# Verdicts


@each(
    ("candidate", "baseline", "margin", "verdict"),
    [
        (*BETTER, 0.0, "better"),
        (*BETTER[::-1], 0.0, "worse"),
        ([1.0] * 6, [0.0] * 6, 0.0, "better"),
        ([1.0] * 5, [0.0] * 5, 0.0, "too few pairs"),
        ([], [], 0.0, "too few pairs"),
        ([1.0, 0.0] * 10, [0.0, 1.0] * 10, 0.0, "inconclusive"),
        ([1.0] * 100, [1.0] * 100, 0.0, "inconclusive"),
        ([1.0] * 100, [1.0] * 100, 0.05, "no worse"),
        ([1.0] * 10, [1.0] * 10, 0.05, "inconclusive"),
        (*LITTLE_WORSE, 0.0, "worse"),
        (*LITTLE_WORSE, 0.05, "no worse"),
        (*LITTLE_WORSE[::-1], 0.05, "better"),
    ],
)
def test_verdicts_speak_of_the_candidate(candidate, baseline, margin, verdict):
    report = Report([row(place, scored(value)) for place, value in enumerate(candidate)] or [row(0, unscored())])
    other = Report([row(place, scored(value)) for place, value in enumerate(baseline)] or [row(0, scored(1.0))])
    assert report.compare(other, margin=margin)["faithfulness"].verdict == verdict


@each(
    ("difference", "low", "high", "loss", "p", "margin", "verdict"),
    [
        (0.1, 0.01, 0.2, 0.5, 0.049, 0.0, "better"),
        (0.1, 0.01, 0.2, 0.5, 0.05, 0.0, "inconclusive"),
        (0.1, 0.01, 0.2, 0.5, 0.051, 0.5, "no worse"),
        (0.1, 0.01, 0.2, 0.5, 0.051, 0.49, "inconclusive"),
        (-0.1, -0.2, -0.01, 0.5, 0.049, 0.0, "worse"),
        (-0.1, -0.2, -0.01, 0.5, 0.05, 0.0, "inconclusive"),
        (-0.1, -0.2, -0.01, 0.5, 0.049, 0.15, "worse"),  # losses above the margin are in the interval
        (-0.1, -0.2, -0.01, 0.5, 0.049, 0.2, "inconclusive"),
        (-0.1, -0.2, -0.01, 0.5, 0.049, 0.3, "inconclusive"),
        (-0.1, -0.2, -0.01, 0.5, 0.049, 0.5, "no worse"),
        (0.0, -0.2, 0.0, 0.5, 0.049, 0.3, "inconclusive"),
        (-0.1, -0.2, -0.01, 0.5, None, 0.0, "too few pairs"),
    ],
)
def test_the_verdict_follows_from_p_value_interval_and_largest_loss(difference, low, high, loss, p, margin, verdict):
    numbers = {"difference": difference, "low": low, "high": high, "largest_loss": loss}
    one = MetricComparison("m", "higher", **numbers, p_unadjusted=0.5)
    turned = replace(one, direction="lower", difference=-difference, low=-high, high=-low)
    for metric in (one, turned):
        found = with_verdict(metric, p, margin)
        assert (found.verdict, found.pairs_verdict, found.p_value) == (verdict, verdict, 0.5 if p is None else p)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=6, max_size=25), st.sampled_from([0.0, 0.1, 0.9]))
def test_a_metric_where_less_is_better_is_judged_as_one_of_the_complements(pairs, margin):
    sides = zip(*pairs, strict=True)
    here, there = ([1 - value for value in side] for side in sides)
    found = compared(here, there, margin=margin)
    lower = [values(*side, direction="lower") for side in zip(*pairs, strict=True)]
    less = lower[0].compare(lower[1], margin=margin)["faithfulness"]
    assert less.difference == pytest.approx(-found.difference, abs=1e-9)
    assert (less.largest_loss, less.p_value) == pytest.approx((found.largest_loss, found.p_value), abs=1e-9)
    assert (less.verdict, less.better, less.worse) == (found.verdict, found.better, found.worse)


def test_several_metrics_are_adjusted_for_by_holm_and_those_with_too_few_pairs_do_not_count():
    def report(*columns):
        names = ["a", "b", "c", "few"]
        rows = zip(*columns, strict=True)
        cells = ([scored(v, n) for n, v in zip(names, line, strict=True) if v is not None] for line in rows)
        return report_of(*cells)

    few = [1.0] * 5 + [None] * 5
    ones, flat = [1.0] * 10, [0.0] * 10
    found = report(ones, ones, ones, few).compare(report(flat, flat[:7] + [1.0] * 3, [0.0] * 9 + [1.0], few))
    raw = [paired_difference([1.0] * count + [0.0] * (10 - count)).p_value for count in (10, 7, 9)]
    assert [found[name].p_unadjusted for name in "abc"] == pytest.approx(raw)
    assert [found[name].p_value for name in "abc"] == pytest.approx(holm(raw))
    assert (found["few"].p_value, found["few"].verdict) == (1.0, "too few pairs")


def test_a_metric_with_values_outside_0_to_1_and_without_a_range_is_never_no_worse():
    for values, verdict in (([5.0] * 300, "inconclusive"), ([1.0] * 300, "no worse")):
        report = report_of(*(scored(value, range=None) for value in values))
        assert report.compare(report, margin=0.2)["faithfulness"].verdict == verdict


@each("first", [None, failed("grade")])
def test_the_scale_of_the_values_changes_nothing_but_the_unit(first):
    """Also if the first score lacks the range, or is missing."""

    def grades(*values):
        rows = [row(0, scored(0.5, "other"), *([] if first is None else [first]))]
        more = [row(n, scored(0.5, "other"), scored(1 + 4 * v, "grade", range=(1, 5))) for n, v in enumerate(values, 1)]
        return Report(rows + more)

    here, there = [0.5, 0.75, 0.5, 0.25] * 8, [0.5, 0.5, 0.5, 0.0] * 8
    plain, grade = values(*here).compare(values(*there)), grades(*here).compare(grades(*there))
    for name in ("difference", "low", "high", "largest_loss"):
        assert getattr(grade["grade"], name) == pytest.approx(4 * getattr(plain["faithfulness"], name)), name
    assert grade["grade"].p_unadjusted == pytest.approx(plain["faithfulness"].p_unadjusted)
    for own in (here, [1.0] * 30):
        for options, scaled in (({}, {}), ({"baseline": values(*there)}, {"baseline": grades(*there)})):
            least = values(*own).minimum_detectable_difference("faithfulness", **options)
            found = grades(*own).minimum_detectable_difference("grade", **scaled)
            assert found == pytest.approx(4 * least)
    unbounded = report_of(*(scored(value, range=(None, None)) for value in here))
    assert unbounded.minimum_detectable_difference("faithfulness") == inf
    empty = report_of(*(scored(0.0, range=(0, 0)) for _ in range(12)))
    least = values(*[0.0] * 12).minimum_detectable_difference("faithfulness")
    assert empty.minimum_detectable_difference("faithfulness") == least


# Pairs


KEYS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["P?", "Q?", "R  ?", "R ?", "S?"])), max_size=8)


def rows_of(keys):
    return [row(n, scored(1.0), id=name, question=question) for n, (name, question) in enumerate(keys)]


def keys_of(rows):
    return [(one.sample.id, " ".join(one.sample.question.split())) for one in rows]


@given(KEYS, KEYS)
def test_rows_are_paired_by_id_and_question_then_by_a_question_that_is_unique(here, there):
    candidate, baseline = rows_of(here), rows_of(there)
    found = pair_rows(candidate, baseline)
    ours, theirs = Counter(keys_of(candidate)), Counter(keys_of(baseline))
    both = ours & theirs
    own, other = ([question for _, question in (side - both).elements()] for side in (ours, theirs))
    by_question = {question for question in own if own.count(question) == other.count(question) == 1}
    pairs = [(*keys_of([own]), *keys_of([its])) for own, its in found.pairs]
    assert Counter(own for own, its in pairs if own == its) == both
    assert {own[1] for own, its in pairs if own != its} == by_question
    assert len(pairs) == both.total() + len(by_question)
    assert [own.index for own, _ in found.pairs] == sorted(own.index for own, _ in found.pairs)
    alone = [*found.missing, *found.reworded]
    assert sorted(map(id, [*(its for _, its in found.pairs), *alone])) == sorted(map(id, baseline))
    ids_of_rest = {name for name, _ in (ours - both).elements()}
    rewording = [False] * len(found.missing) + [True] * len(found.reworded)
    assert [one.sample.id in ids_of_rest for one in alone] == rewording


@given(st.lists(st.sampled_from("ab"), max_size=6), st.lists(st.sampled_from("ab"), max_size=6))
def test_several_rows_of_one_sample_are_paired_in_order(here, there):
    candidate, baseline = (rows_of([(name, "Q?") for name in names]) for names in (here, there))
    places = [(own.index, its.index) for own, its in pair_rows(candidate, baseline).pairs if own.sample.id == "a"]
    ours, theirs = ([n for n, name in enumerate(names) if name == "a"] for names in (here, there))
    of_a = [(own, its) for own, its in places if baseline[its].sample.id == "a"]
    assert of_a == list(zip(ours, theirs, strict=False))


def test_reports_without_a_common_sample_say_what_to_do():
    here = Report([row(place, scored(1.0), id=f"x-{place}") for place in range(8)])
    found = here.compare(values(*[0.0] * 8))
    nothing = found["faithfulness"]
    assert (nothing.verdict, nothing.difference, nothing.p_value, nothing.interval) == ("lost coverage", None, None, "")
    told = "No sample is in both reports. Samples are paired by id and question, else by question alone: "
    assert found.notes == [f"{told}ask the same questions in both runs."]
    assert "faithfulness lost coverage (0 pairs" in repr(found)
    assert (len(found), list(found), dict(values().compare(values()))) == (1, ["faithfulness"], {})


def test_metrics_of_one_report_alone_are_named():
    here = report_of([scored(1.0), scored(1.0, "new")])
    found = here.compare(report_of([scored(1.0), scored(1.0, "old"), scored(1.0, "older")]))
    assert list(found) == ["faithfulness"]
    assert found.notes == ["Only the candidate has new.", "Only the baseline has old, older."]


# Coverage


@each(("lost", "gained", "p"), [(7, 0, 1 / 128), (6, 0, 1 / 64), (4, 1, 6 / 32), (3, 3, 1.0), (0, 7, 1.0), (0, 0, 1.0)])
def test_coverage_is_tested_one_sided(lost, gained, p):
    here = report_of(*[scored(1.0)] * 9, *[unscored()] * lost, *[scored(1.0)] * gained)
    there = report_of(*[scored(1.0)] * (9 + lost), *[unscored()] * gained)
    found = here.compare(there)["faithfulness"]
    assert (found.lost, found.gained, found.coverage_p) == (lost, gained, pytest.approx(p))


@pytest.mark.parametrize(("lost", "verdict"), [(6, "better"), (7, "lost coverage")])
def test_who_leaves_significantly_more_without_a_score_lost_coverage(lost, verdict):
    """One-sided at 1%: 6 of 6 is p = 1/64 and 7 of 7 is 1/128."""
    here = report_of(*[scored(1.0)] * 20, *[unscored("no reason to score")] * lost)
    found = here.compare(values(*[0.0] * (20 + lost)))
    assert (found["faithfulness"].verdict, found["faithfulness"].lost) == (verdict, lost)
    assert found["faithfulness"].coverage_fell == (verdict == "lost coverage")
    note = (
        f"faithfulness: {lost} samples scored in the baseline lack a score, 0 the other way round; the remaining "
        "samples may be the easier ones."
    )
    assert found.notes == ([note] if verdict == "lost coverage" else [])


def test_the_reasons_for_lost_coverage_count_and_name_what_is_gone():
    here = report_of(*[scored(1.0)] * 20, *[unscored("no reason to score")] * 7)
    (gate,) = here.compare(values(*[1.0] * 27)).gates()
    assert gate.reason.startswith("faithfulness lost coverage: 7 of 27 samples scored in the baseline lack a score")
    found, ids = values(*[1.0] * 20).compare(values(*[1.0] * 27)), [f"q-{n}" for n in range(20, 25)]
    (reason,) = found["faithfulness"].lost_coverage
    assert reason.fields == {"count": 7, "scored": 27, "ids": ids}
    assert [note.fields for note in found.notes] == [{"here": 0, "there": 7, "ids": ids}]
    more = values(*[1.0] * 27).compare(values(*[1.0] * 20))
    assert more.notes == ["Paired by id; 7 samples are only in the candidate, 0 only in the baseline."]
    worse = values(*[0.0] * 20).compare(values(*[1.0] * 27))["faithfulness"]
    assert (worse.verdict, bool(worse.lost_coverage)) == ("worse", True)


@each(
    ("value", "baseline", "lost", "verdict"),
    [
        (1.0, 1.0, 1, "inconclusive"),
        (1.0, 1.0, 2, "inconclusive"),
        (1.0, 1.0, 6, "lost coverage"),
        (0.0, 0.0, 6, "inconclusive"),  # of zeros nothing can be lost
        (1.0, 0.5, 2, "better"),
        (0.55, 0.5, 2, "inconclusive"),
        (0.0, 1.0, 6, "worse"),
    ],
)
def test_of_more_than_5_percent_failed_scores_the_worst_is_assumed(value, baseline, lost, verdict):
    here = report_of(*[scored(value)] * (20 - lost), *[failed()] * lost)
    found = here.compare(values(*[baseline] * 20))
    assert (found["faithfulness"].verdict, found["faithfulness"].lost) == (verdict, lost)
    codes = [reason.code for reason in found["faithfulness"].lost_coverage]
    assert codes == (["lost-scores"] if lost == 6 and baseline == 1.0 and verdict != "worse" else [])


MISSING, REWORDED = "missing-samples", "reworded-samples"


@each(("gone", "rewording", "codes"), [(1, 0, []), (2, 0, [MISSING]), (0, 2, [REWORDED]), (2, 2, [MISSING, REWORDED])])
def test_more_than_5_percent_of_missing_or_reworded_samples_are_lost_coverage_unless_allowed(gone, rewording, codes):
    here = values(*[1.0] * (20 - gone))
    questions = ["Since when is there a Munich?"] * rewording + ["When was Munich founded?"] * len(here)
    rows = [row(n, scored(1.0), question=question) for n, question in enumerate(questions[: len(here)])]
    found = Report(rows).compare(values(*[1.0] * 20))
    (gate,) = found.gates()
    assert (gate.verdict, gate.codes) == (("failed", codes) if codes else ("passed", ["inconclusive"]))
    assert found["faithfulness"].verdict == ("lost coverage" if codes else "inconclusive")
    (allowed,) = found.gates(allow=codes)
    assert (allowed.verdict, allowed.codes) == ("passed", ["inconclusive"])
    assert all(f"[{code}]" in gate.reason for code in gate.codes)
    found.check(allow=codes)


def test_a_requirement_of_no_worse_needs_a_margin_and_does_not_accept_what_is_not_shown():
    few, many = (values(*[1.0] * size) for size in (30, 300))
    with pytest.raises(ConfigError, match=r'require="no worse" needs a margin above 0'):
        few.compare(few, require="no worse")
    with pytest.raises(ConfigError, match=r"require must be one of .*'confirmed', got 'better'$"):
        few.compare(few).check("better")
    many.compare(many, 0.02, require="no worse").check()
    (gate,) = few.compare(few, 0.02).gates("no worse")
    assert (gate.verdict, gate.requirement) == ("undecided", "no worse than the baseline by more than 0.02")
    told = r"a loss up to 0\.125 is possible, rare losses that no pair shows included \[inconclusive\]$"
    assert re.search(told, gate.reason)
    few.compare(few, 0.02).check()


# Instruments


def test_different_instruments_are_refused_by_name_unless_allowed():
    here = report_of(*([scored(1.0, "a", instrument="x"), scored(1.0, "b", instrument="z")] for _ in range(8)))
    there = report_of(*([scored(0.0, "a", instrument="y"), scored(0.0, "b", instrument="z")] for _ in range(8)))
    with pytest.raises(ConfigError, match=r"scored a \(instrument x != y\): .*allow_different_instruments=True"):
        here.compare(there)
    found = here.compare(there, allow_different_instruments=True)
    assert [metric.verdict for metric in found.values()] == ["better", "better"]
    why = "a difference may be due to the instruments, not the systems."
    unrecorded = "candidate: it was not recorded; baseline: it was not recorded"
    assert found.notes == [
        f"Different instruments (judge, prompts, options or version) scored a (instrument x != y): {why}",
        f"a, b: it is unknown whether the same instrument gave the scores ({unrecorded}); {why}",
    ]


def by_instruments(*parts):
    """Return a run of eight scores by each of these instruments: what finds the facts, and what counts them."""
    provenance, rows = Provenance(), []
    for found_by, counted_by in parts:
        instrument = Instrument.of(found_by, counted_by, "why")
        provenance = provenance.with_instrument("faithfulness", instrument)
        rows += [row(len(rows), scored(0.5, instrument=instrument.digests)) for _ in range(8)]
    return Report([row(n, *one.scores.values()) for n, one in enumerate(rows)], provenance=provenance)


A, B, CODE = {"judge": "a", "code": "1"}, {"judge": "b", "code": "1"}, {"judge": "a", "code": "2"}
PLAIN, BETA = {"beta": 1}, {"beta": 2}


@each(
    ("here", "there", "codes", "words"),
    [
        ([(A, PLAIN)], [(A, PLAIN)], [], ""),
        ([(A, PLAIN)], [(B, PLAIN)], ["different-instruments"], "judge: 'a' != 'b'"),
        ([(A, BETA)], [(A, PLAIN)], ["different-instruments"], "beta: 2 != 1"),
        ([(A, BETA)], [(B, PLAIN)], ["different-instruments"], "judge: 'a' != 'b'; beta: 2 != 1"),
        ([(A, PLAIN), (B, PLAIN)], [(A, PLAIN)], ["different-instruments"], "judge: 'b' != 'a'"),
        ([(A, PLAIN)], [(A, PLAIN), (B, PLAIN)], ["different-instruments"], "judge: 'a' != 'b'"),
        ([(A, PLAIN), (B, PLAIN)], [(B, PLAIN), (A, PLAIN)], [], ""),
        ([(CODE, PLAIN)], [(A, PLAIN)], ["other-code"], "code differs"),
        ([(CODE, BETA)], [(A, PLAIN)], ["different-instruments"], "code differs; beta: 2 != 1"),
        ([(None, PLAIN)], [(A, PLAIN)], ["unknown-instruments"], "candidate: why"),
        ([(A, PLAIN)], [(None, PLAIN)], ["unknown-instruments"], "baseline: why"),
        ([(None, BETA)], [(A, PLAIN)], ["different-instruments", "unknown-instruments"], "beta: 2 != 1"),
    ],
)
def test_instruments_are_compared_part_by_part_and_other_code_is_only_noted(here, there, codes, words):
    candidate, baseline = by_instruments(*here), by_instruments(*there)
    notes = candidate.compare(baseline, allow_different_instruments=True).notes
    assert [note.code for note in notes if "instrument" in note.code or note.code == "other-code"] == codes
    assert words in "".join(notes[:1])
    if "different-instruments" in codes:
        with pytest.raises(ConfigError, match=re.escape(f"scored faithfulness ({words}): ")):
            candidate.compare(baseline)
    else:
        candidate.compare(baseline)


@each(
    ("baseline", "options", "problem"),
    [
        (values(0.5), {"rare_losses": True}, "rare_losses= was removed: compare always allows for a loss"),
        (values(0.5, direction="lower"), {"allow_different_instruments": True}, "disagree on whether higher is better"),
        *((values(0.5), {"margin": m}, "number of at least 0") for m in (-0.1, nan, inf, "0.1", None)),
        ("baseline.jsonl", {}, "compare takes a report, got str"),
        (values(0.5), {"reweight": "language"}, "reweight= needs paired=False"),
    ],
)
def test_what_cannot_be_compared_is_refused(baseline, options, problem):
    with pytest.raises(ConfigError, match=problem):
        values(0.5).compare(baseline, **options)


# How small a difference could be seen


def test_the_detectable_difference_of_independent_values_takes_their_spread():
    """Ten 1s and ten 0s have the deviation √(5/19); differences at correlation ½ have the same."""
    report = values(*[1.0] * 10, *[0.0] * 10)
    for correlation, factor in ((0.5, 1.0), (0.0, 2**0.5), (-1, 2.0)):
        expected = detectable_difference(factor * (5 / 19) ** 0.5, 20, largest_deviation=factor * 0.5)
        found = report.minimum_detectable_difference("faithfulness", correlation=correlation)
        assert found == pytest.approx(expected)


@pytest.mark.gate
def test_so_large_a_difference_is_found_in_four_of_five_comparisons():
    rng, found = np.random.default_rng(8), []
    for _ in range(300):
        baseline = rng.uniform(0.3, 0.6, 30)
        before, first = values(*baseline), values(*(baseline + rng.normal(0, 0.05, 30)))
        detectable = first.minimum_detectable_difference("faithfulness", baseline=before)
        second = values(*(baseline + rng.normal(detectable, 0.05, 30)))
        found.append(second.compare(before)["faithfulness"].verdict == "better")
    assert 0.73 <= np.mean(found) <= 0.87


@pytest.mark.gate
def test_of_equal_values_complete_losses_are_found_in_four_of_five_comparisons():
    rng, equal = np.random.default_rng(8), values(*[1.0] * 30)
    loss = equal.minimum_detectable_difference("faithfulness")
    later = [values(*(rng.random(30) >= loss).astype(float)) for _ in range(300)]
    verdicts = [report.compare(equal)["faithfulness"].verdict for report in later]
    assert 0.73 <= np.mean([verdict == "worse" for verdict in verdicts]) <= 0.87


@each(
    ("report", "options", "problem"),
    [
        (values(1.0, 0.0), {"metric": "recall"}, "no metric 'recall'"),
        (values(1.0, 0.0), {"baseline": report_of()}, "no metric 'faithfulness'"),
        (values(1.0), {}, "at least two scored samples, got 1"),
        (report_of(failed(), unscored(), scored(1.0)), {}, "got 1"),
        *(
            (values(1.0, 0.0), {option: value}, "power and alpha lie between 0 and 1, correlation from -1 to below 1")
            for option, ends in {"power": (0.0, 1.0), "alpha": (0.0, 1.0), "correlation": (-1.01, 1.0)}.items()
            for value in ends
        ),
    ],
)
def test_an_invalid_comparison_is_refused(report, options, problem):
    with pytest.raises(ConfigError, match=problem):
        report.minimum_detectable_difference(**{"metric": "faithfulness", **options})


@each(("pairs", "margin"), [(6, 0.0), (10, 0.0), (30, 0.0), (30, 0.1)])
def test_of_equal_values_the_least_share_of_losses_is_found_by_trial(pairs, margin):
    nearly = [1.0] * (pairs - 1) + [1.0 - margin]
    spread = np.std(nearly, ddof=1)
    losses = [loss / 1000 for loss in range(1, 1001)]
    deviations = [max(spread, (loss * (1 - loss)) ** 0.5) for loss in losses]
    tries = zip(losses, deviations, strict=True)
    found = [loss for loss, by in tries if detectable_difference(by, pairs, largest_deviation=1 - loss) <= loss]
    expected = min(found, default=inf)
    assert values(*nearly).minimum_detectable_difference("faithfulness") == pytest.approx(expected)
