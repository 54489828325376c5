"""Tune a judge of surface rules, and qualify judges that do not call a model.

    python tests/benchmarks/rule_judge.py --write           # tune, and write the packaged rules of all languages
    python tests/benchmarks/rule_judge.py en                # what the baselines get right, what the rules are fit for
    python tests/benchmarks/rule_judge.py en --flips 1000   # verdicts on judges that flip 10, 20 and 30% at random

The rules are decision trees of depth three over 25 features. Each half of the pairs is decided by rules that were tuned
on the other half, so that no figure is about items that the rules have seen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
from sklearn.tree import DecisionTreeClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.item_checks import HEADLINE, options_of

from langchain_rageval.statistics import paired_difference
from langchain_rageval.trust.examination import EMBEDDING_STEP
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, assess_step
from langchain_rageval.trust.items import LabelledItem, labelled_items, rule_half, surface_features
from langchain_rageval.trust.qualification import Fitness, Proportion
from langchain_rageval.trust.qualify import _baseline_hits

RULES = Path(str(files("langchain_rageval.trust") / "labelled_items" / "rules.json"))


def tune(items: list[LabelledItem]) -> object:
    """Return the rule that is tuned on some items of a step, in the form of `rule_verdicts`."""
    scored = [
        (features, label.accepted[0], item.half)
        for item in items
        for features, label in zip(surface_features(item), item.labels, strict=True)
        if label.accepted
    ]
    rows, labels, halves = zip(*scored, strict=True)
    counts = Counter(zip(labels, halves, strict=True))
    weights = [1 / counts[label, half] for label, half in zip(labels, halves, strict=True)]
    names = list(rows[0])
    model = DecisionTreeClassifier(max_depth=3, min_samples_leaf=4, random_state=0)
    model.fit(np.array([[*row.values()] for row in rows]), labels, sample_weight=np.array(weights) / sum(weights))
    tree = model.tree_

    def branch(node: int) -> object:
        if tree.children_left[node] < 0:
            return str(model.classes_[np.argmax(tree.value[node][0])])
        below, above = branch(tree.children_left[node]), branch(tree.children_right[node])
        return (
            [names[tree.feature[node]], round(float(tree.threshold[node]), 4), below, above]
            if below != above
            else below
        )

    return branch(0)


def items_by_step(language: str) -> dict[str, list[LabelledItem]]:
    """Return the packaged items by step, without those for embeddings."""
    items: dict[str, list[LabelledItem]] = {}
    for item in labelled_items(language):
        items.setdefault(item.step, []).append(item)
    del items[EMBEDDING_STEP]
    return items


class StepLabels:
    """The scored labels of a step, in one order, with what the baselines get right.

    Attributes:
        first: the first accepted verdict of each label.
        hard: whether each label is of the hard half.
        pairs: pair of each label.
        movable: whether another verdict of the step would be wrong.
        hits: baseline to whether it gets each label right, 0 or 1.
    """

    def __init__(self, items: list[LabelledItem], language: str) -> None:
        scored = [(item, label) for item in items for label in item.labels if label.accepted]
        self.first = np.array([label.accepted[0] for _, label in scored])
        self.hard = np.array([item.half == "hard" for item, _ in scored])
        self.pairs = np.array([item.pair for item, _ in scored])
        self.movable = np.array([not {*options_of(item)} <= {*label.accepted} for item, label in scored])
        verdicts = Counter(verdict for item, label in scored if item.half == "hard" for verdict in label.accepted)
        constant = verdicts.most_common(1)[0][0]
        known = [_baseline_hits(item, language) for item in items]
        self.hits = {"constant": np.array([float(constant in label.accepted) for _, label in scored])}
        for name in ("word_overlap", "rules"):
            self.hits[name] = np.array([float(hit) for own in known for hit in own[name]])

    def accuracy(self, right: np.ndarray, chosen: np.ndarray) -> float:
        """Return the balanced accuracy on some labels: the mean over the verdicts of the share that is right."""
        return float(np.mean([right[chosen & (self.first == one)].mean() for one in {*self.first[chosen]}]))

    def assess(self, right: np.ndarray) -> tuple[Fitness, list[str]]:
        """Return the verdict on a judge that gets these labels right, 0 or 1, and is asked once."""
        hard, pairs = self.hard, self.pairs[self.hard].tolist()
        plain = Proportion.of_units(zip(right[~hard], self.pairs[~hard], strict=True))
        leads = {name: paired_difference([*(right - own)[hard]], pairs) for name, own in self.hits.items()}
        return assess_step(
            SimpleNamespace(
                right=plain,
                plain=plain,
                hard=SimpleNamespace(of=len(pairs), value=right[hard].mean()),
                lead={name: (lead.mean, lead.low, lead.high) for name, lead in leads.items()},
                verdicts={"one": 1, "other": 1},
                citations=None,
                lost=0,
                **dict.fromkeys(("answered", "valid"), Proportion.of_units((1.0, item) for item in range(100))),
                **dict.fromkeys(("flips", "order_bias", "length_bias"), Proportion.of_units([])),
            )
        )


def metric_verdicts(steps: dict[str, tuple[Fitness, list[str]]]) -> dict[str, Fitness]:
    """Return the verdict on each metric that asks a judge; embeddings count as fit."""
    fitness = steps | {EMBEDDING_STEP: ("fit", [])}
    return {name: assess_metric(fitness, name)[0] for name, own in STEPS_OF.items() if own != (EMBEDDING_STEP,)}


def print_flips(steps: dict[str, StepLabels], runs: int) -> None:
    """Print a table of the verdicts on judges that give another verdict to a share of the labels."""
    random = np.random.default_rng(0)
    print(f"| flipped | of | {' | '.join(get_args(Fitness))} |\n|---|---|---|---|---|---|")
    for share in (0.0, 0.1, 0.2, 0.3):
        counts = {name: Counter[str]() for name in ("headline steps", "other steps", "metrics")}
        for _ in range(runs if share else 1):
            found = {
                step: own.assess(1.0 - (own.movable & (random.random(len(own.hard)) < share)))
                for step, own in steps.items()
            }
            for step, (level, _reasons) in found.items():
                counts["headline steps" if step in HEADLINE else "other steps"][level] += 1
            counts["metrics"].update(metric_verdicts(found).values())
        for name, own in counts.items():
            shares = (f"{own[level] / own.total():.1%}" for level in get_args(Fitness))
            print(f"| {share:.0%} | {name} | {' | '.join(shares)} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("language", nargs="?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--flips", type=int)
    options = parser.parse_args()
    if options.write:
        rules = {
            language: {
                step: [tune([item for item in own if rule_half(item.pair) == half]) for half in (0, 1)]
                for step, own in items_by_step(language).items()
            }
            for language in ("en", "ru")
        }
        RULES.write_text(json.dumps(rules) + "\n", encoding="utf-8")
        return
    items = items_by_step(options.language)
    steps = {step: StepLabels(own, options.language) for step, own in items.items()}
    if options.flips:
        print_flips(steps, options.flips)
        return
    print(
        "| step | plain items | hard pairs | constant | word overlap | rules | rules, balanced | balanced, all items |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for step in sorted(steps, key=lambda step: (step not in HEADLINE, step)):
        own, rules = steps[step], steps[step].hits["rules"]
        plain = sum(item.half == "plain" for item in items[step])
        shares = " | ".join(f"{hits[own.hard].mean():.0%}" for hits in own.hits.values())
        balanced = " | ".join(f"{own.accuracy(rules, chosen):.2f}" for chosen in (own.hard, own.hard | True))
        print(f"| {step} | {plain} | {len({*own.pairs[own.hard]})} | {shares} | {balanced} |")
    counts = Counter(metric_verdicts({step: own.assess(own.hits["rules"]) for step, own in steps.items()}).values())
    print("\nThe rules are", ", ".join(f"{level!r} for {count} metrics" for level, count in counts.items()))


if __name__ == "__main__":
    main()
