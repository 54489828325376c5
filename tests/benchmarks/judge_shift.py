"""Simulate a judge that changes silently, and labels of people: the tables of results/judge_shift.md.

    python tests/benchmarks/judge_shift.py                      # print the tables, about five minutes
    python tests/benchmarks/judge_shift.py --write              # replace them in the document

Two runs of 200 samples with values of 0 and 1, mean .8. Of some samples the answer is equal in both runs and the models
were asked anew: the anchors. A judge is "harsher" by 5% if it turns 5% of its verdicts to 0, and "noisy" by 5% if it
turns 5% of them round. All draws have fixed seeds.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from table_in_document import RESULTS, show_or_write

from langchain_rageval import Report, Row, Sample, Score
from langchain_rageval.report.people import corrected

DOCUMENT = RESULTS / "judge_shift.md"
SIZE, MEAN = 200, 0.8
SCORES = [Score(metric="m", aspect="answer", value=value, instrument="a" * 16 + "." + "b" * 16) for value in (0.0, 1.0)]
SAMPLES = [[Sample(id=f"q{n}", question=f"Q{n}?", answer=f"A{n}{side}") for n in range(SIZE)] for side in ("", "b")]


def report(values: np.ndarray, changed: int, side: int) -> Report:
    """Return a run of which the first samples have another answer than the other run."""
    return Report(
        [
            Row(index=n, sample=SAMPLES[side if n < changed else 0][n], scores={"m": SCORES[int(value)]}, asked=["m"])
            for n, value in enumerate(values)
        ]
    )


def judged(rng: np.random.Generator, truth: np.ndarray, harsher: float, noisy: float) -> np.ndarray:
    """Return the verdicts of a judge that is harsher than the truth, and noisy."""
    turned = np.where(rng.random(SIZE) < harsher, 0.0, truth)
    return np.where(rng.random(SIZE) < noisy, 1 - turned, turned)


def simulate(
    runs: int, *, anchors: int, gain: float = 0.0, harsher: float = 0.0, noisy: float = 0.0, seed: int = 0
) -> dict[str, float]:
    """Return the shares of the verdicts, and of shifts whose interval misses the shift of the judge.

    Args:
        runs: number of simulations.
        anchors: number of samples whose answer is the same in both runs.
        gain: true difference of the systems over all samples.
        harsher: share of the verdicts that the judge of the candidate turns to 0.
        noisy: share of the verdicts that either judge turns round.
        seed: seed of the draws.
    """
    rng, verdicts = np.random.default_rng(seed), Counter[str]()
    changed = SIZE - anchors
    for _ in range(runs):
        before = (rng.random(SIZE) < MEAN).astype(float)
        after = before.copy()
        if changed:
            mean = MEAN + gain * SIZE / changed
            after[:changed] = rng.random(changed) < mean
        candidate = report(judged(rng, after, harsher, noisy), changed, 1)
        found = candidate.compare(report(judged(rng, before, 0.0, noisy), changed, 0))
        verdicts[found["m"].verdict] += 1
        if (shift := found.judge_shift.get("m")) is not None:
            verdicts["missed"] += not shift.low <= -harsher * MEAN * (1 - 2 * noisy) <= shift.high
    return {name: count / runs for name, count in verdicts.items()}


CELLS = (
    ("same system, judge harsher by 3%", {"anchors": 200, "harsher": 0.03}),
    ("same system, judge harsher by 5%", {"anchors": 200, "harsher": 0.05}),
    ("same system, judge harsher by 10%", {"anchors": 200, "harsher": 0.1}),
    ("same system, judge noisy by 5%", {"anchors": 200, "noisy": 0.05}),
    ("other answers, equally good, judge harsher by 10%; 100 anchors", {"anchors": 100, "harsher": 0.1}),
    ("other answers, equally good, judge harsher by 10%; 40 anchors", {"anchors": 40, "harsher": 0.1}),
    ("other answers, equally good, same judge; 40 anchors", {"anchors": 40}),
    ("other answers, +.10, same judge; 0 anchors", {"anchors": 0, "gain": 0.1}),
    ("other answers, +.10, same judge; 40 anchors", {"anchors": 40, "gain": 0.1}),
    ("other answers, +.10, same judge; 100 anchors", {"anchors": 100, "gain": 0.1}),
    ("other answers, +.10, judge noisy by 2%; 100 anchors", {"anchors": 100, "gain": 0.1, "noisy": 0.02}),
    ("other answers, -.10, same judge; 100 anchors", {"anchors": 100, "gain": -0.1}),
)


def labels(runs: int, pairs: int, gain: float, seed: int = 1) -> dict[str, float]:
    """Return how often labels of some of 200 pairs show a gain, and the contrary, by a judge that is right for 85%."""
    rng, signs = np.random.default_rng(seed), Counter[int]()
    for _ in range(runs):
        truth = [(rng.random(SIZE) < mean).astype(float) for mean in (0.7 + gain, 0.7)]
        judge = [np.where(rng.random(SIZE) < 0.85, side, 1 - side) for side in truth]
        moves, seen = truth[0] - truth[1], judge[0] - judge[1]
        known = [float(move) if place < pairs else None for place, move in enumerate(moves)]
        found = corrected(list(zip(known, map(float, seen), strict=True)), (-1.0, 1.0), None)
        signs[0 if found is None else (found.low > 0) - (found.high < 0)] += 1
    return {"shown": signs[1] / runs, "contrary": signs[-1] / runs}


def tables(runs: int) -> str:
    """Return the tables."""
    lines = [
        "| case | better | worse | undecided | inconclusive | shift outside its interval |",
        "|---|---|---|---|---|---|",
    ]
    names = ("better", "worse", "undecided", "inconclusive", "missed")
    for name, options in CELLS:
        found = simulate(runs, **options)
        lines.append(f"| {name} | {' | '.join(f'{found.get(one, 0.0):.3f}' for one in names)} |")
    lines += ["", "| labelled pairs of 200 | true gain | shown | contrary shown |", "|---|---|---|---|"]
    for gain in (0.0, 0.1, 0.2):
        for pairs in (20, 40, 60, 100, 200):
            found = labels(runs, pairs, gain)
            lines.append(f"| {pairs} | {gain:+.2f} | {found['shown']:.3f} | {found['contrary']:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    show_or_write(__doc__, tables, DOCUMENT, runs=1_000, of="simulations of each row")
