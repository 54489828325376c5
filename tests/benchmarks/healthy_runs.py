"""Measure how often `rageval ci --baseline` is red although the system is the one of the baseline.

    python tests/benchmarks/healthy_runs.py                # 1,000 runs, about three minutes
    python tests/benchmarks/healthy_runs.py --runs 100

Every question has a chance of its own to be answered well, the same in both runs. Metrics of one sample go together, as
those of one judge do. A score fails alone, or with all scores of its sample. Seeds are fixed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from math import sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.reports import failed, row, scored, unscored

from langchain_rageval import Report, Row, Score

KINDS = {
    "answers": "Die Kasse Nr. {n} schließt um {hour} Uhr, so steht es in der Hausordnung.",
    "refusals": "Dazu steht nichts in den Unterlagen.",
    "own words": "Вопрос {n} не по нашей части, загляните в раздел «Справка».",
    "yes or no": "Да.",
    "chats": "Касса {n} закрывается в {hour} часов, об этом сказано в правилах дома.",
    "pages": "<html><body>Касса {n} закрывается в {hour} часов.</body></html>",
}
SIZES, METRICS, FAILURES = (20, 50, 300), (1, 6, 12), (0.0, 0.01, 0.02, 0.04)
REFUSED = 0.3
TURNS = 3


@dataclass(frozen=True)
class Setting:
    """What a run is like.

    Attributes:
        kind: key of `KINDS`.
        size: number of samples.
        metrics: number of metrics.
        failures: share of the scores that fail.
    """

    kind: str
    size: int
    metrics: int
    failures: float

    def run(self, rng: random.Random, chances: list[float]) -> Report:
        """Return a report on questions that are answered well with these chances."""
        rows = [self._row(number, chance, rng) for number, chance in enumerate(chances)]
        return Report(rows)

    def _row(self, number: int, chance: float, rng: random.Random) -> Row:
        refuses = self.kind in ("refusals", "own words") and number % 10 < 10 * REFUSED
        answer = KINDS["refusals" if self.kind == "refusals" and refuses else self.kind if refuses else self._plain]
        whole_sample = rng.random() < self.failures / 2
        luck = rng.random()
        scores = [self._score(metric, refuses, chance, luck, whole_sample, rng) for metric in range(self.metrics)]
        chat = {"conversation": f"c{number // TURNS}"} if self.kind == "chats" else {}
        text = answer.format(n=number, hour=8 + number % 12)
        return row(number, *scores, question=f"Wann schließt Kasse {number}?", answer=text, metadata=chat)

    @property
    def _plain(self) -> str:
        return "answers" if self.kind in ("refusals", "own words") else self.kind

    def _score(self, metric: int, refuses: bool, chance: float, luck: float, whole: bool, rng: random.Random) -> Score:
        name = "faithfulness" if metric == 0 else f"metric {metric}"
        if whole or rng.random() < self.failures / 2:
            return failed(name)
        if refuses and metric % 3 == 0:
            return unscored(metric=name)
        good = (luck if rng.random() < 0.5 else rng.random()) < chance
        return scored(float(good) if metric % 2 else round(rng.choice((0.8, 1.0)) if good else 0.4, 1), name)


def settings() -> Iterator[Setting]:
    """Yield the settings of the runs, again and again."""
    return cycle(Setting(*one) for one in product(KINDS, SIZES, METRICS, FAILURES))


def is_green(setting: Setting, seed: int) -> bool:
    """Return True if a run passes against a baseline of the same system."""
    rng = random.Random(seed)
    base = rng.uniform(0.6, 0.98)
    chances = [min(1.0, max(0.0, base + rng.gauss(0, 0.2))) for _ in range(setting.size)]
    baseline, candidate = setting.run(rng, chances), setting.run(rng, chances)
    allowed = {"html"} if setting.kind == "pages" else set()
    return all(gate.verdict == "passed" for gate in candidate.gates({}, baseline=baseline, allow=allowed))


def shares(runs: int) -> dict[str, tuple[int, int]]:
    """Return the number of red runs and of all runs, in all and by each value of a setting."""
    red: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for seed, setting in enumerate(islice(settings(), runs)):
        sizes = (f"n = {setting.size}", f"{setting.metrics} metrics", f"{setting.failures:.0%} failed")
        names = ("all", setting.kind, *sizes)
        count.update(names)
        if not is_green(setting, seed):
            red.update(names)
    return {name: (red[name], count[name]) for name in count}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="number of runs (default: %(default)s)")
    for name, (red, count) in shares(parser.parse_args().runs).items():
        share = red / count
        print(f"| {name} | {red} of {count} | {share:.3f} ± {1.96 * sqrt(share * (1 - share) / count):.3f} |")
