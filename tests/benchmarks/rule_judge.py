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
from types import SimpleNamespace
from typing import get_args

import numpy as np
from sklearn.tree import DecisionTreeClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.item_checks import HEADLINE, options_of

from langchain_rageval.data.schema import Usage
from langchain_rageval.statistics import paired_difference
from langchain_rageval.trust.examination import EMBEDDING_STEP, CitedVerdict, Probe, ProbeResult
from langchain_rageval.trust.fitness import STEPS_OF, assess_metric, assess_step, step_statistics
from langchain_rageval.trust.items import LabelledItem, labelled_items
from langchain_rageval.trust.qualification import Fitness, Proportion, StepQualification
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


def simulate(language: str, share: float, runs: int) -> list[dict[str, tuple[str, list[str]]]]:
    """Return for each run the verdict on each step of a judge that gives another verdict to a share of the labels.

    Each question is asked once. A label is flipped unless all verdicts of its step are right.
    """
    random, found = np.random.default_rng(0), [{EMBEDDING_STEP: ("fit", [])} for _ in range(runs)]
    by_step: dict[str, list[LabelledItem]] = {}
    for item in labelled_items(language):
        by_step.setdefault(item.step, []).append(item)
    whole, none = Proportion.mean([1.0] * 100), Proportion.mean([])
    for step, items in by_step.items():
        if step == EMBEDDING_STEP:
            continue
        scored = [(item, label) for item in items for label in item.labels if label.accepted]
        hard, pairs = np.array([item.half == "hard" for item, _ in scored]), np.array([i.pair for i, _ in scored])
        movable = np.array([not {*options_of(item)} <= {*label.accepted} for item, label in scored])
        constant = Counter(
            verdict for (_, label), is_hard in zip(scored, hard, strict=True) if is_hard for verdict in label.accepted
        ).most_common(1)[0][0]
        known = [_baseline_hits(item, language) for item in items]
        hits = {name: [hit for own in known for hit in own[name]] for name in ("word_overlap", "rules")}
        hits["constant"] = [constant in label.accepted for _, label in scored]
        baselines = {name: np.array(own, float)[hard] for name, own in hits.items()}
        for run in found:
            right = 1.0 - (movable & (random.random(len(scored)) < share))
            leads = {n: paired_difference([*(right[hard] - own)], pairs[hard].tolist()) for n, own in baselines.items()}
            plain = Proportion.of_units(zip(right[~hard], pairs[~hard], strict=True))
            run[step] = assess_step(
                SimpleNamespace(
                    right=plain,
                    plain=plain,
                    hard=SimpleNamespace(of=len(right), value=right[hard].mean()),
                    lead={name: (lead.mean, lead.low, lead.high) for name, lead in leads.items()},
                    verdicts={"one": 1, "other": 1},
                    citations=None,
                    lost=0,
                    **dict.fromkeys(("answered", "valid"), whole),
                    **dict.fromkeys(("flips", "order_bias", "length_bias"), none),
                )
            )
    return found


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
    for share in (0.0, 0.1, 0.2, 0.3) if options.flips else ():
        runs = simulate(options.language, share, options.flips if share else 1)
        counts: dict[str, Counter[str]] = {"steps": Counter(), "metrics": Counter()}
        for run in runs:
            for step, (level, _) in run.items():
                if step != EMBEDDING_STEP:
                    counts.setdefault(step if step in HEADLINE else "other steps", Counter())[level] += 1
                    counts["steps"][level] += 1
            counts["metrics"].update(assess_metric(run, metric)[0] for metric in STEPS_OF)
        print(f"{share:.0%} flipped, {len(runs)} runs")
        for name, own in counts.items():
            print(f"  {name:22}", ", ".join(f"{level} {own[level] / own.total():.1%}" for level in get_args(Fitness)))
    if options.flips:
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
