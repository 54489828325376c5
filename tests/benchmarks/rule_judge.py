"""Tune a judge of surface rules, and qualify judges that do not call a model.

    python tests/benchmarks/rule_judge.py --write           # tune, and write the packaged rules of all languages
    python tests/benchmarks/rule_judge.py en                # balanced accuracy of the rules, and what they are fit for
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
from random import Random

import numpy as np
from sklearn.tree import DecisionTreeClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.item_checks import HEADLINE, options_of

from langchain_rageval.data.schema import Usage
from langchain_rageval.trust.examination import EMBEDDING_STEP, CitedVerdict, Probe, ProbeResult
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, step_statistics
from langchain_rageval.trust.items import LabelledItem, labelled_items
from langchain_rageval.trust.qualification import StepQualification
from langchain_rageval.trust.qualify import _baseline_hits
from langchain_rageval.trust.surface import rule_half, rule_verdicts, surface_features

RULES = Path(str(files("langchain_rageval.trust") / "labelled_items" / "rules.json"))
LANGUAGES = ("en", "ru")


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


def rules_of(language: str) -> dict[str, list[object]]:
    """Return for each step the rules that are tuned on either half of its pairs."""
    items = labelled_items(language)
    return {
        step: [tune([i for i in items if i.step == step and rule_half(i.pair) == half]) for half in (0, 1)]
        for step in sorted({item.step for item in items} - {EMBEDDING_STEP})
    }


def balanced_accuracy(items: list[LabelledItem], language: str) -> float:
    """Return the mean over the kinds of labels of the share that the rules get right."""
    hits: dict[str, list[bool]] = {}
    for item in items:
        for label, verdict in zip(item.labels, rule_verdicts(item, language), strict=True):
            if label.accepted:
                hits.setdefault(label.accepted[0], []).append(verdict in label.accepted)
    return float(np.mean([np.mean(own) for own in hits.values()]))


def qualified(verdicts: dict[str, list[str]], language: str) -> dict[str, StepQualification]:
    """Return the statistics of a judge with these verdicts on the items."""
    items = [item for item in labelled_items(language) if item.step != EMBEDDING_STEP]
    hits = {item.id: _baseline_hits(item, language) for item in items}
    baselines = {name: {item: own[name] for item, own in hits.items()} for name in ("word_overlap", "rules")}
    results: dict[str, list[ProbeResult]] = {}
    for item in items:
        given = [
            CitedVerdict(verdict, label.evidence[:1])
            for verdict, label in zip(verdicts[item.id], item.labels, strict=True)
        ]
        results.setdefault(item.step, []).append(ProbeResult(Probe(item), given))
    return {step: step_statistics(step, own, baselines, Usage()) for step, own in results.items()}


def fit_for(steps: dict[str, StepQualification]) -> dict[str, list[str]]:
    """Return the metrics by verdict; embeddings count as fit."""
    fitness = {name: (step.verdict, step.reasons) for name, step in steps.items()} | {EMBEDDING_STEP: ("fit", [])}
    found: dict[str, list[str]] = {}
    for metric in STEPS_OF:
        if STEPS_OF[metric] != (EMBEDDING_STEP,):
            found.setdefault(assess_metric(fitness, metric)[0], []).append(metric)
    return found


def flipped(language: str, share: float, seed: int) -> dict[str, list[str]]:
    """Return the right verdicts on all items, a share of them replaced by another verdict of the step."""
    random, verdicts = Random(seed), {}
    for item in labelled_items(language):
        own = []
        for label in item.labels:
            right = label.accepted[0] if label.accepted else "–"
            others = [verdict for verdict in options_of(item) if verdict not in label.accepted]
            own.append(random.choice(others) if others and random.random() < share else right)
        verdicts[item.id] = own
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("language", nargs="?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--flips", type=int)
    options = parser.parse_args()
    if options.write:
        RULES.write_text(json.dumps({language: rules_of(language) for language in LANGUAGES}) + "\n", encoding="utf-8")
        return
    items = [item for item in labelled_items(options.language) if item.step != EMBEDDING_STEP]
    if options.flips:
        for share in (0.0, 0.1, 0.2, 0.3):
            runs = options.flips if share else 1
            counts: Counter[tuple[str, str]] = Counter()
            for seed in range(runs):
                steps = qualified(flipped(options.language, share, seed), options.language)
                counts.update((name, step.verdict) for name, step in steps.items())
                for verdict, metrics in fit_for(steps).items():
                    counts.update(("metrics", verdict) for _ in metrics)
            print(f"{share:.0%} flipped, {runs} runs")
            for name in [*HEADLINE, "metrics"]:
                total = sum(count for (one, _), count in counts.items() if one == name)
                own = {verdict: count / total for (one, verdict), count in counts.items() if one == name}
                print(f"  {name:22}", ", ".join(f"{verdict} {value:.1%}" for verdict, value in sorted(own.items())))
        return
    scores = []
    for step in sorted({item.step for item in items}):
        own = [item for item in items if item.step == step]
        hard = [item for item in own if item.half == "hard"]
        scores.append(balanced_accuracy(own, options.language))
        accuracy = balanced_accuracy(hard, options.language) if hard else float("nan")
        print(f"{step:22} all {scores[-1]:.2f}  hard {accuracy:.2f}")
    print(f"mean {np.mean(scores):.2f}, highest {max(scores):.2f}")
    steps = qualified({item.id: rule_verdicts(item, options.language) for item in items}, options.language)
    for verdict, metrics in fit_for(steps).items():
        print(f"{verdict}: {', '.join(metrics)}")


if __name__ == "__main__":
    main()
