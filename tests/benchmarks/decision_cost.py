"""Simulate what a decision costs; prints the table of results/decision_cost.md.

    python tests/benchmarks/decision_cost.py                    # print the table, a few minutes
    python tests/benchmarks/decision_cost.py --write            # replace the table in the document

A gate lies 0.10 below the strong judge's mean of 1,000 samples. The scores are simulated with fixed seeds, the calls
per sample are those that `compare.py` measures, and the prices are ratios of list prices. No model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from table_in_document import RESULTS, show_or_write, statement_scores

from langchain_rageval import Audit, Decided, OfflineJudge, Value, metric
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.evaluation.until import SequentialRun

DOCUMENT = RESULTS / "decision_cost.md"

SAMPLES = 1_000
DISTANCE = 0.10
RUNS = 100
CALLS_OURS, CALLS_RAGAS = 8, 14  # per sample, for six metrics, as compare.py measures them
BATCH_PRICE = 0.5  # of the price of live calls
CHEAP_PRICE = 0.06  # of the strong model's, as of gpt-4o-mini to gpt-4o in list prices
ROUNDS = (50, 150, 350, 750, SAMPLES)  # samples after which a run with a rule and a batch API may stop
SHARES = (0.1, 0.2, 0.3)
RIGHT = 0.9  # share of the samples on which the cheap judge has the strong one's score

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """Samples that a run asks about, in the mean over simulated runs.

    Attributes:
        own: number of samples that the metrics' judge scores.
        strong: number of those that the strong judge of the audit scores, too.
        wrong: share of the runs with a wrong verdict.
        undecided: share of the runs that end without one.
    """

    own: float
    strong: float = 0.0
    wrong: float = 0.0
    undecided: float = 0.0


@metric(reads={"answer"}, aspect="grounding")
def faithful(sample: Sample) -> Value:
    """Stand for faithfulness, whose scores are simulated."""
    return Value(1.0)


def cheap_scores(rng: np.random.Generator, scores: Floats) -> Floats:
    """Draw the scores of a lenient cheap judge: 1 where it does not see what is wrong."""
    return np.where(rng.random(SAMPLES) < RIGHT, scores, 1.0)


@cache
def _samples() -> list[Sample]:
    return [Sample(id=f"s{number}", question=f"Question {number}?", answer="") for number in range(SAMPLES)]


def _score(value: float) -> Score:
    return Score.model_construct(metric="faithful", aspect="grounding", value=float(value))


def simulate(runs: int, share: float | None, *, in_rounds: bool) -> Asked:
    """Simulate runs that stop when the gate is decided.

    Args:
        runs: number of runs.
        share: share of an audit of a cheap judge; None if the strong judge scores alone.
        in_rounds: True if a run stops at the end of a round of batches, False if it stops at once.
    """
    own = strong = wrong = undecided = 0
    for number in range(runs):
        rng = np.random.default_rng([number, round(1000 * (share or 0))])
        truth = statement_scores(rng, SAMPLES, 0.8)
        shown = truth if share is None else cheap_scores(rng, truth)
        samples = _samples()
        draw = None if share is None else Audit(OfflineJudge(), share, number).draw(samples, exact=False)
        rule = Decided({"faithful": float(truth.mean()) - DISTANCE}, seed=number)
        run = SequentialRun(rule, samples, [faithful], 1, {"faithful"} if draw else (), share)
        for drawn in run:
            audited = draw is not None and drawn.item.id in draw
            audit = {"faithful": _score(truth[drawn.index])} if audited else {}
            scores = {"faithful": _score(shown[drawn.index])}
            row = Row.model_construct(index=drawn.index, sample=drawn.item, scores=scores, audit=audit)
            run.add(row, is_audited=audited)
        asked = SAMPLES - len(run.left_out)
        end = next(size for size in ROUNDS if size >= asked) if in_rounds else asked
        rest = {index for index, _ in run.left_out[end - asked :]}
        own += end
        strong += sum(draw is not None and sample.id in draw for n, sample in enumerate(samples) if n not in rest)
        verdict = run.decisions["faithful"].verdict
        wrong += verdict == "failed"
        undecided += verdict == "undecided"
    return Asked(own / runs, strong / runs, wrong / runs, undecided / runs)


def table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table; costs are strong calls, relative to ragas on all samples."""
    everything = SAMPLES * CALLS_RAGAS
    alone, in_rounds = (simulate(runs, None, in_rounds=rounds) for rounds in (False, True))
    lines: list[tuple[str, Asked, int, float, float]] = [
        ("ragas, strong judge, all samples", Asked(SAMPLES), CALLS_RAGAS, 1.0, 1.0),
        ("ours plain, strong judge, all samples", Asked(SAMPLES), CALLS_OURS, 1.0, 1.0),
        ("with `until=`", alone, CALLS_OURS, 1.0, 1.0),
        ("with `until=` and `batch=`", in_rounds, CALLS_OURS, 1.0, BATCH_PRICE),
    ]
    for share in SHARES:
        audited = simulate(runs, share, in_rounds=True)
        name = f"with `until=`, `batch=` and `audit=`, share {share:g}, cheap judge"
        lines.append((name, audited, CALLS_OURS, CHEAP_PRICE, BATCH_PRICE))
    yield "| run | samples asked | audited | cost in strong calls | of ragas | wrong | undecided |"
    yield "|---|---|---|---|---|---|---|"
    for name, asked, calls, price, discount in lines:
        cost = calls * discount * (asked.own * price + asked.strong)
        figures = f"{asked.own:,.0f} | {asked.strong:,.0f} | {cost:,.0f} | {cost / everything:.1%}"
        yield f"| {name} | {figures} | {asked.wrong:.0%} | {asked.undecided:.0%} |"


if __name__ == "__main__":
    show_or_write(__doc__, lambda runs: "\n".join(table(runs)), DOCUMENT, runs=RUNS, of="runs per line")
