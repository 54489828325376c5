"""Runs that end when the samples asked about, in random order, suffice."""

import asyncio
import random
import threading
from concurrent.futures import wait
from contextlib import nullcontext
from dataclasses import replace
from statistics import fmean

import pytest
from helpers.doors import report_by
from helpers.each import each, error_of
from helpers.reports import LOST
from helpers.waiting import PATIENCE

from langchain_rageval import (
    Budget,
    ConfigError,
    Decided,
    Judge,
    OfflineJudge,
    Precise,
    Report,
    Row,
    Sample,
    Score,
    evaluate,
    faithfulness,
    metric,
)
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.evaluation.until import SequentialRun
from langchain_rageval.report.files import write_report
from langchain_rageval.run.threads import DaemonThreads
from langchain_rageval.statistics.sequential import ConfidenceSequence

VALUES = [1.0] * 700 + [0.5] * 200 + [0.0] * 100
random.Random(0).shuffle(VALUES)


def samples(values=VALUES):
    return [Sample(id=f"s{n}", question=f"Вопрос {n}?", answer=f"{value}") for n, value in enumerate(values)]


@metric(reads={"answer"}, aspect="style")
def value(sample):
    return float(sample.answer)


def worsened(by):
    return samples([max(0.0, score - by) for score in VALUES])


@pytest.mark.parametrize(("threshold", "verdict"), [(0.7, "passed"), (0.9, "failed")])
def test_a_run_ends_when_its_gate_is_decided_and_its_file_says_so(tmp_path, threshold, verdict):
    options = {"until": Decided({"value": threshold}), "progress": False, "max_concurrency": 4}
    report = evaluate(samples(), value, out=tmp_path / "report.jsonl", **options)
    assert Report.load(tmp_path / "report.jsonl") == report  # with its decisions and what was left out
    decision = report.decisions["value"]
    assert decision.verdict == verdict
    assert decision.samples == len(report.rows) < 300
    assert decision.low <= fmean(VALUES) <= decision.high
    assert decision.known == ("low" if verdict == "passed" else "high")
    assert decision.low >= threshold if verdict == "passed" else decision.high <= threshold
    assert decision.required == f"at least {threshold:g} is required"
    assert len(report.left_out) == 1000 - len(report.rows)
    assert {row.index for row in report.rows}.isdisjoint(index for index, _ in report.left_out)
    assert [row.index for row in report.rows] == sorted(row.index for row in report.rows)
    assert all(row.sample.id == f"s{row.index}" for row in report.rows)


def test_the_note_gives_the_verdict_and_what_the_interval_means():
    report = evaluate(samples(), value, until=Decided({"value": 0.5}), progress=False, max_concurrency=1)
    decision = report.decisions["value"]
    assert report.notes == [
        f"{len(report.rows)} of 1000 samples were asked about, in random order: value passed: at least "
        f"{decision.low:.3f}, at least 0.5 is required, after {decision.samples} samples. These bounds hold whenever a "
        "run stops; the probability that they all pass wrongly, or that any is wrongly failed, is at most 0.05."
    ]


def test_the_order_is_random_and_that_of_the_seed():
    first, again, other = (
        {row.index for row in evaluate(samples(), value, until=Precise(0.1, seed=seed), progress=False).rows}
        for seed in (1, 1, 2)
    )
    assert first <= again or again <= first  # how many were under way when it stopped is chance
    assert not first <= set(range(len(first)))
    assert not first <= other
    assert not other <= first


@pytest.mark.gate
@each(
    ("by", "margin", "verdict"),
    [(0.0, 0.02, "no worse"), (0.3, 0.02, "worse"), (-0.3, 0.02, "better"), (-0.3, 0.0, "better")],
)
def test_a_run_ends_when_it_is_known_how_it_compares_with_a_baseline(by, margin, verdict):
    baseline = evaluate(worsened(max(0.0, -by)), value, progress=False)
    report = evaluate(worsened(max(0.0, by)), value, until=Decided.against(baseline, margin), progress=False)
    decision = report.decisions["value"]
    assert decision.verdict == verdict
    assert decision.samples == len(report.rows) < 1000


def test_a_baseline_of_another_judge_is_refused():
    texts = [Sample(question=f"{n}?", answer="It is 5 km.", contexts=["It is 5 km."]) for n in range(3)]
    baseline = evaluate(texts, faithfulness(OfflineJudge()), progress=False)
    other = faithfulness(Judge(OfflineJudge(), draws=3))
    assert str(error_of(ConfigError, evaluate, texts, other, until=Decided.against(baseline), progress=False)) == (
        "another judge, prompts, options or version scored faithfulness in the baseline: the difference "
        "cannot be attributed to the systems; score both in the same way"
    )


def test_a_precise_run_ends_when_all_intervals_are_narrow():
    report = evaluate(samples(), value, until=Precise(0.05), progress=False)
    decision = report.decisions["value"]
    assert decision.verdict == "precise"
    assert decision.high - decision.low <= 0.1
    assert len(report.rows) < 1000


@pytest.mark.parametrize(("door", "max_concurrency"), [("evaluate", 1), ("evaluate", 4), ("aevaluate", 2)])
async def test_a_slow_sample_does_not_let_the_others_run_on(door, max_concurrency):
    """Two workers for each slot, one sample for each worker: then all wait for the slow one, which is drawn first."""
    first, scored = threading.Lock(), threading.Semaphore(0)

    @metric(reads={"answer"}, aspect="style")
    def one_is_slow(sample):
        if first.acquire(blocking=False):
            for _ in range(2 * max_concurrency - 1):
                scored.acquire()
        else:
            scored.release()
        return float(sample.answer)

    options = {"until": Decided({"one_is_slow": 0.7}), "max_concurrency": max_concurrency}
    report = await report_by(door, iter(samples()), one_is_slow, **options)
    assert report.decisions["one_is_slow"].verdict == "passed"
    assert len(report.rows) < 300


def test_an_error_of_a_slow_sample_ends_the_threads_that_wait_for_it(monkeypatch):
    first, waits, ends = threading.Lock(), threading.Event(), []

    class Watched(SequentialRun):
        def _may_continue(self):
            may_continue = super()._may_continue()
            if not may_continue:
                waits.set()
            return may_continue

    class Threads(DaemonThreads):
        def submit(self, job):
            ends.append(super().submit(job))
            return ends[-1]

    @metric(reads={"answer"}, aspect="style")
    def first_fails(sample):
        if first.acquire(blocking=False):
            assert waits.wait(PATIENCE)
            raise MemoryError("the value does not fit")
        return float(sample.answer)

    monkeypatch.setattr("langchain_rageval.evaluation.job.SequentialRun", Watched)
    threads = Threads()
    monkeypatch.setattr("langchain_rageval.run.run.shared_threads", lambda: threads)
    options = {"until": Decided({"first_fails": 0.7}), "on_failure": "raise", "max_concurrency": 1}
    error_of(MemoryError, evaluate, samples(), first_fails, progress=False, **options)
    assert wait(ends, PATIENCE).not_done == set()


def test_nothing_is_decided_by_fewer_pairs_than_a_comparison_needs():
    baseline = evaluate(samples([1.0] * 20), value, progress=False)
    rule = Decided.against(baseline, 0.1, error=0.5)
    decision = evaluate(samples([0.0] * 20), value, until=rule, progress=False, max_concurrency=1).decisions["value"]
    assert (decision.verdict, decision.samples) == ("worse", 6)


def test_a_decision_of_an_earlier_version_loads(tmp_path):
    old = {"verdict": "passed", "low": 0.75, "high": 1.0, "samples": 30, "error": 0.05, "required": "at least 0.5"}
    path, head = tmp_path / "run.jsonl", {"notes": [], "complete": True, "left_out": [], "instruments": {}}
    for decision, text in (
        (old, "passed [0.750, 1.000], at least 0.5, after 30 samples"),
        ({**old, "known": "low"}, "passed: at least 0.750, at least 0.5, after 30 samples"),
    ):
        write_report(path, [], {**head, "decisions": {"faithfulness": decision}})
        loaded = Report.load(path).decisions["faithfulness"]
        assert (str(loaded), loaded.to_dict()) == (text, {"known": "", **decision})
    write_report(path, [], {**head, "decisions": {"faithfulness": {**old, "known": "both"}}})
    with pytest.raises(ConfigError, match="is not a report"):
        Report.load(path)


def test_the_note_counts_only_samples_that_the_budget_did_not_leave_out():
    texts = [Sample(question=f"Где {n}?", answer="За 5 км.", contexts=["За 5 км."]) for n in range(50)]
    options = {"until": Decided({"faithfulness": 0.5}), "budget": Budget(calls=4), "progress": False}
    report = evaluate(texts, faithfulness(OfflineJudge()), **options)
    assert 0 < len(report.rows) < 5
    assert report.decisions["faithfulness"].verdict == "undecided"
    assert len(report.rows) + len(report.left_out) >= 50
    assert report.notes[0].startswith(f"{len(report.rows)} of 50 samples were asked about, in random order: ")


def test_gates_and_a_baseline_are_decided_together():
    baseline = evaluate(samples(), value, progress=False)
    rule = replace(Decided.against(baseline, 0.1), gates={"value": 0.6})
    report = evaluate(samples(), value, until=rule, progress=False, max_concurrency=1)
    verdicts = {key: decision.verdict for key, decision in report.decisions.items()}
    assert verdicts == {"value": "passed", "value against the baseline": "no worse"}
    assert len(report.rows) < 1000


@each(("direction", "end"), [("higher", "least"), ("lower", "most")])
def test_a_gate_that_only_all_samples_decide_is_decided_by_them_and_passes_at_its_threshold(direction, end):
    part = metric(reads={"answer"}, aspect="style", name="m", direction=direction)(lambda sample: float(sample.answer))
    report = evaluate(samples([1.0, 0.0, 1.0, 1.0]), part, until=Decided({"m": 0.75}), progress=False)
    decision = report.decisions["m"]
    assert (decision.verdict, decision.required) == ("passed", f"at {end} 0.75 is required")
    assert (decision.low, decision.high) == (0.75, 0.75)
    assert report.left_out == []


@each(
    ("make", "message"),
    [
        (lambda: Decided({}), 'Decided takes thresholds by metric, such as {"faithfulness": 0.8}, got {}'),
        (lambda: Decided({"value": "0.8"}), "the threshold of value must be a number, got '0.8'"),
        (lambda: Decided({"value": 0.8}, error=5), "error must be a probability between 0 and 1, such as 0.05, got 5"),
        (lambda: Precise(0), "half_width must be a number above 0, got 0"),
        (lambda: Decided({"value": 0.8}, seed=0.5), "seed must be a whole number, got 0.5"),
        (lambda: Precise(0.1, seed=None), "seed must be a whole number, got None"),
        (lambda: Decided.against("main.jsonl"), "Decided.against takes a report, got str; Report.load reads one"),
        (
            lambda: Decided.against(Report([]), 0) and Decided.against(Report([]), -1),
            "margin must be a number of at least 0, in the metrics' units, got -1",
        ),
        (
            lambda: evaluate(samples(), value, until=Decided({"faithfulness": 0.8}), progress=False),
            "no metric of this run is called 'faithfulness'; it has value",
        ),
        (
            lambda: evaluate(samples(), value, until=Decided.against(Report([])), progress=False),
            "the baseline has none of the metrics value; it has none",
        ),
    ],
)
def test_invalid_rules_are_refused_before_any_call(make, message):
    assert str(error_of(ConfigError, make)) == message


# What the rules count, compared with bounds that are computed from all samples


def made(name="m", **options):
    """Return a metric whose scores the tests give to the rule themselves."""
    return metric(**{"reads": {"answer"}, "aspect": "style", "name": name, **options})(lambda sample: 0.0)


def score_of(kind, name="m"):
    outcome = {"failed": {"failure": LOST}, "unscored": {"unscored": "no"}}.get(kind, {"value": kind})
    return Score(metric=name, aspect="style", **outcome)


def row_of(index, kind, answer="a", metadata=None, audit=None, name=None):
    sample = Sample(id=name or f"s{index}", question=f"{index}?", answer=answer, metadata=metadata or {})
    audited = {} if audit is None else {"m": score_of(audit)}
    return Row(index=index, sample=sample, scores={"m": score_of(kind)}, audit=audited)


def decided(rule, part, rows, **options):
    """Return the run of a rule, all whose rows were drawn before the first of them is counted."""
    given = [row.sample for row in rows]
    run = SequentialRun(rule, given, [part], len(rows), **options)
    for place in [drawn.index for drawn in run]:
        run.add(rows[place], is_audited=bool(rows[place].audit))
    return run


def random_rows(rng, low, high):
    """Return rows and, for each, the lowest and the highest value that its score may have; None if it has no value."""
    share, rows, known = rng.choice([0.0, 0.04, 0.1, 0.4]), [], []
    for index in range(rng.randint(1, 45)):
        value = rng.choice([low, high, rng.uniform(low, high)])
        kind = "failed" if rng.random() < share else rng.choice([value, value, value, "unscored", "blank", "hidden"])
        answer, metadata = {"blank": (" ", {}), "hidden": ("", {"answerable": False})}.get(kind, ("a", {}))
        score = "unscored" if kind in ("blank", "hidden") else kind
        rows.append(row_of(index, score, answer, metadata))
        known.append((low, high) if kind == "failed" else (kind, kind) if kind == value else kind)
    return rows, known


@each("seed", range(25))
def test_a_gate_whose_samples_are_all_counted_is_decided_by_the_bounds_of_their_mean(seed):
    rng = random.Random(seed)
    low, high = rng.choice([(0.0, 1.0), (-1.0, 1.0), (2.0, 10.0)])
    lower_is_better, reads = rng.random() < 0.5, {"answer"} if rng.random() < 0.7 else {"question"}
    rows, known = random_rows(rng, low, high)
    worst = high if lower_is_better else low
    of_blank = (worst, worst) if reads == {"answer"} else "unscored"
    known = [of_blank if value == "blank" else value for value in known]
    values = [value for value in known if isinstance(value, tuple)]
    unknown = sum(one < other for one, other in values)
    is_widened = unknown > 0.05 * len(known)
    counted = values if is_widened else [value for value in values if value[0] == value[1]]
    least, most = map(fmean, zip(*counted, strict=True)) if counted else (low, high)
    threshold = rng.choice([least - 0.01, (least + most) / 2, most + 0.01])
    part = made(range=(low, high), direction="lower" if lower_is_better else "higher", reads=reads)
    run = decided(Decided({"m": threshold}), part, rows)
    decision = run.decisions["m"]
    assert (decision.low, decision.high) == pytest.approx((least, most))
    assert decision.samples == len(counted)
    is_covered = 2 * (len(known) - len(values)) <= len(known)
    sure = least >= threshold - 1e-12, most >= threshold - 1e-12
    passed, failed = (
        (not sure[1] or most <= threshold, least > threshold) if lower_is_better else (sure[0], not sure[1])
    )
    expected = "failed" if failed else "passed" if passed and is_covered else "undecided"
    if counted and min(abs(least - threshold), abs(most - threshold)) > 1e-9:
        assert decision.verdict == expected
        assert decision.known == {"undecided": ""}.get(
            expected, "low" if (expected == "failed") == lower_is_better else "high"
        )
    assert [note for note in run.notes if code_of(note) == "unknown-values"] == [
        Note("unknown-values", metric="m", count=unknown, asked=len(known))
    ] * is_widened


@each(("unscored", "verdict"), [(5, "passed"), (6, "undecided")])
def test_a_gate_passes_if_at_most_half_of_the_samples_are_unscored(unscored, verdict):
    rows = [row_of(index, "unscored" if index < unscored else 1.0) for index in range(10)]
    assert decided(Decided({"m": 0.5}), made(), rows).decisions["m"].verdict == verdict


@each("seed", range(20))
def test_a_baseline_whose_pairs_are_all_counted_is_compared_by_every_gain_that_missing_pairs_could_have(seed):
    rng = random.Random(seed)
    size, kept = rng.randint(6, 40), rng.choice([0.8, 0.93, 0.96, 1.0])
    margin, gain = rng.choice([0.0, 0.02, 0.2]), rng.choice([-0.6, -0.3, -0.1, -0.01, 0.0, 0.05, 0.4])
    low, high, lower_is_better = *rng.choice([(0.0, 1.0), (1.0, 5.0)]), rng.random() < 0.5
    width, sign = high - low, -1 if lower_is_better else 1
    before = [rng.uniform(low + 0.4 * width, high - 0.4 * width) for _ in range(size)]
    after = [min(max(value + sign * gain * width, low), high) for value in before]
    rows = [row_of(index, value) for index, value in enumerate(after)][: max(1, round(kept * size))]
    lost = 1 - len(rows) / size
    rule = Decided.against(Report([row_of(index, value) for index, value in enumerate(before)]), margin * width)
    part = made(range=(low, high), direction="lower" if lower_is_better else "higher")
    lost = lost if 20 * (size - len(rows)) > size else 0.0
    is_few = len(rows) < 6 or lost > 0
    with pytest.warns(UserWarning, match="^m: ") if is_few else nullcontext():
        run = decided(rule, part, [*rows, *(row_of(len(rows) + n, low, name=f"own-{n}") for n in range(2))])
    gains = [sign * (new - old) for new, old in zip(after[: len(rows)], before, strict=False)]
    least, most = (fmean(gains) * (1 - lost) + end for end in (-width * lost, width * lost))
    decision = run.decisions["m"]
    assert (decision.low, decision.high) == pytest.approx((fmean(gains), fmean(gains)))
    assert decision.samples == len(rows)
    if min(abs(least), abs(least + margin * width), abs(most + margin * width)) > 1e-6:
        known = "better" if least > 0 else "no worse" if least > -margin * width else ""
        worse = "worse" if most < -margin * width else "undecided"
        assert decision.verdict == ("undecided" if len(rows) < 6 else known or worse)
    assert [code_of(note) for note in run.notes[1:]] == ["until-few-pairs"] * is_few


@each(("pairs", "reworded"), [(19, 0), (18, 0), (10, 4), (5, 1), (0, 0)])
def test_more_than_five_percent_of_missing_pairs_are_noted(pairs, reworded):
    baseline = [row_of(index, 0.5) for index in range(20)]
    given = [*baseline[:pairs], *(row_of(40 + n, 0.5, name=f"s{pairs + n}") for n in range(reworded)), row_of(50, 0.5)]
    with nullcontext() if pairs == 19 else pytest.warns(UserWarning, match=f"^m: {pairs} of the baseline's 20 "):
        run = SequentialRun(Decided.against(Report(baseline)), [row.sample for row in given], [made()], 1)
    expected = Note("until-few-pairs", metric="m", pairs=pairs, samples=20, reworded=reworded, least=6)
    assert run.notes[1:] == ([] if pairs == 19 else [expected])


@each(("unscored", "verdict"), [(10, "better"), (11, "undecided")])
def test_a_gain_is_about_the_pairs_and_the_own_judge(unscored, verdict):
    baseline = Report([row_of(index, 0.5) for index in range(20)])
    rows = [row_of(index, "unscored" if index < unscored else 0.75, audit=0.0) for index in range(80)]
    run = decided(Decided.against(baseline), made(), rows, audited={"m"}, share=0.5)
    decision = run.decisions["m"]
    assert (decision.verdict, decision.low, decision.high) == (verdict, 0.25, 0.25)
    assert decision.samples == 20 - unscored


@each(("cheap", "share"), [(0.9, 0.5), (0.2, 0.25), (1.0, 0.1)])
def test_an_audited_value_is_corrected_by_the_difference_of_the_judges_over_the_share(cheap, share):
    """Without a value of the cheap judge, the middle of the range takes its place; a missing one of the strong judge
    may have been any."""
    low, high, rng = 0.0, 2.0, random.Random(1)
    options = {"audited": {"m"}, "share": share}
    kinds = [rng.choice([cheap, cheap, "failed", "unscored"]) for _ in range(30)]
    strong = [rng.choice([None, 0.0, 1.5]) for _ in kinds]
    for missing in (False, True):
        if missing:
            strong[7], kinds[7] = "failed", cheap
        rows = [row_of(index, kind, audit=given) for index, (kind, given) in enumerate(zip(kinds, strong, strict=True))]
        run = decided(Precise(0.01), made(range=(low, high)), rows, **options)
        width = (high - low) / share
        ends = [ConfidenceSequence(10**9, 0.025, low=high - width, high=low + width) for _ in range(2)]
        for place in random.Random(0).sample(range(len(rows)), len(rows)):
            if kinds[place] == "unscored":
                continue
            value = 1.0 if kinds[place] == "failed" else kinds[place]
            possible = {None: (value, value), "failed": (low, high)}.get(strong[place], (strong[place],) * 2)
            weight = 0.0 if strong[place] is None else 1 / share
            for end, known in zip(ends, possible, strict=True):
                end.add(value * (1 - weight) + known * weight if weight else value)
        decision = run.decisions["m"]
        expected = max(ends[0].interval[0], low), min(ends[1].interval[1], high)
        assert (decision.low, decision.high) == pytest.approx(expected)
        assert decision.required == "at most ±0.01 is required of the strong judge's mean"
        assert [code_of(note) for note in run.notes[1:]] == ["audit-without-score"] * missing


def test_the_errors_of_a_rule_are_divided_among_its_questions():
    """Gates may wrongly pass only together, so each takes the whole error for that, and its part to fail wrongly."""
    rows = [row_of(index, value) for index, value in enumerate(VALUES[:60])]
    baseline = Report([row_of(index, 0.5) for index in range(60)])
    found = {}
    for rule, names, errors, threshold in (
        (Precise(0.001, error=0.1), "mn", (0.025, 0.025), None),
        (Decided({"m": 0.79, "n": 0.79}, error=0.1), "mn", (0.1, 0.05), 0.79),
        (Decided.against(baseline, 0.0, error=0.1), "m", (0.1, 0.05), 0.5),
    ):
        run = SequentialRun(rule, [row.sample for row in rows], [made(name) for name in names], 1)
        before, watched = (0.5, [0.0]) if names == "m" else (0.0, [] if threshold is None else [threshold])
        known, verdicts = ConfidenceSequence(60, *errors, low=-1.0 if before else 0.0, watched=watched), []
        for drawn in run:
            value = VALUES[drawn.index]
            scores = {name: score_of(value, name) for name in names}
            run.add(rows[drawn.index].model_copy(update={"scores": scores}), is_audited=False)
            known.add(value - before)
            for decision in run.decisions.values():
                assert (decision.low, decision.high) == pytest.approx(known.interval)
            verdicts.append(run.decisions["m"].verdict)
            if before:
                sure = [known.exceeds(0.0, error) for error in (0.05, 0.1)]
                expected = "better" if sure[0] else "no worse" if sure[1] else "undecided"
                assert verdicts[-1] == (expected if len(verdicts) >= 6 else "undecided")
        found[names] = verdicts
    assert (found["m"][-2:], len(found["m"]) < 60) == (["no worse", "better"], True)


async def test_rows_count_in_the_order_of_their_samples_and_no_sample_is_drawn_far_ahead():
    rows = [row_of(index, 0.5) for index in range(12)]
    run = SequentialRun(Precise(0.001), [row.sample for row in rows], [made(), made("n")], 3)
    drawing = aiter(run)
    drawn = [(await anext(drawing)).index for _ in range(3)]
    assert (len(run), drawn) == (12, random.Random(0).sample(range(12), 12)[:3])
    waiting = asyncio.ensure_future(anext(drawing))
    run.add(rows[drawn[1]], is_audited=False)
    await asyncio.sleep(0.001)
    assert (waiting.done(), run.decisions["m"].samples) == (False, 0)
    run.add(rows[drawn[0]], is_audited=False)
    drawn.append((await asyncio.wait_for(waiting, PATIENCE)).index)
    assert run.decisions["m"].samples == 2
    left_out = [(index, name) for index in random.Random(0).sample(range(12), 12)[4:] for name in ("m", "n")]
    assert run.left_out == left_out
    empty = Row(index=drawn[2], sample=rows[drawn[2]].sample, scores={})  # the budget left it out
    run.add(empty, is_audited=False)
    assert (run.decisions["m"].samples, run.notes[0].startswith("3 of 12 samples")) == (2, True)
    run.end()
    assert [drawn async for drawn in drawing] == []
    assert SequentialRun(Precise(0.1), [], [made()], 1).notes == []


@each(("low", "high"), [(0.0, float("inf")), (float("-inf"), 1.0)])
def test_a_metric_without_a_finite_range_is_refused(low, high):
    with pytest.raises(ConfigError, match="until= needs metrics with a finite range; the range of m is "):
        SequentialRun(Precise(0.1), samples([0.5]), [made(range=(low, high))], 1)
