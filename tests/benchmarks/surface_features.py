"""Say how far surface features give the labels of the hard items away, and what is wrong with the items.

    python tests/benchmarks/surface_features.py en               # a line for each step
    python tests/benchmarks/surface_features.py en --items       # also the elements that the features get right

A logistic regression on 25 features (lengths, overlaps, digits, negations, positions) predicts each label; it is fitted
on other pairs than it predicts. Chance is .50 in balanced accuracy for labels of two kinds.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.item_checks import problems

from langchain_rageval.statistics import holm, student_t_p
from langchain_rageval.trust.items import LabelledItem, elements_of, labelled_items, surface_features

LIMIT = 0.55
_KIND = {"FN": "FP", "facts": "stated", "no facts": "not stated"}


def table_of(items: list[LabelledItem]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Return features, labels, pairs and texts of all labelled elements; of several accepted verdicts the first."""
    rows = [
        (
            [*features.values()],
            _KIND.get(label.accepted[0], label.accepted[0]),
            item.pair,
            f"{item.id}: {element.text[:90]!r} {label.accepted}",
        )
        for item in items
        for features, label, element in zip(surface_features(item), item.labels, elements_of(item), strict=True)
        if label.accepted
    ]
    features, labels, pairs, texts = zip(*rows, strict=True)
    return np.array(features), np.array(labels), np.array(pairs), list(texts)


def predict(features: np.ndarray, labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the label of each row as predicted from the rows of other pairs."""
    predicted = labels.copy()
    for learned, other in GroupKFold(min(10, len(set(pairs)))).split(features, labels, pairs):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, class_weight="balanced", max_iter=2000))
        predicted[other] = model.fit(features[learned], labels[learned]).predict(features[other])
    return predicted


def score(labels: np.ndarray, predicted: np.ndarray, pairs: np.ndarray) -> tuple[float, float]:
    """Return the balanced accuracy, rescaled so that chance is .5, and the p-value of more than `LIMIT`."""
    kinds, counts = np.unique(labels, return_counts=True)
    weights = {kind: len(labels) / (len(kinds) * count) for kind, count in zip(kinds, counts, strict=True)}
    values = defaultdict(list)
    chance = 1 / len(kinds)
    for label, guess, pair in zip(labels, predicted, pairs, strict=True):
        values[pair].append(weights[label] * (0.5 + 0.5 * ((label == guess) - chance) / (1 - chance)))
    sums = np.array([sum(own) for own in values.values()])
    sizes = np.array([len(own) for own in values.values()])
    value = sums.sum() / len(labels)
    spread = np.std(sums - value * sizes, ddof=1) / np.mean(sizes) / np.sqrt(len(sums))
    t = (value - LIMIT) / max(spread, 1e-9)
    return value, student_t_p(t, len(sums) - 1) / 2 if t > 0 else 1.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("language")
    parser.add_argument("--items", action="store_true")
    parser.add_argument("--all", action="store_true", help="of both halves")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    items = labelled_items(options.language)
    print("\n".join(problems(items, options.language)) or "the form is right")
    scores = {}
    for step in sorted({item.step for item in items} - {"measure_similarity"}):
        own = [item for item in items if item.step == step and (options.all or item.half == "hard")]
        if len({item.pair for item in own}) < 4:
            continue
        features, labels, pairs, texts = table_of(own)
        predicted = predict(features, labels, pairs)
        scores[step] = (*score(labels, predicted, pairs), len(labels), len(set(pairs)))
        if options.items:
            print("\n".join(t for t, one, other in zip(texts, labels, predicted, strict=True) if one == other))
    adjusted = holm([p for _, p, *_ in scores.values()]) if scores else []
    for (step, (value, _, count, pairs)), p in zip(scores.items(), adjusted, strict=True):
        print(f"{step:22} {value:.2f}  p(more than {LIMIT}) {p:.2f}  {count} labels in {pairs} pairs")
    if scores:
        print(f"mean {np.mean([value for value, *_ in scores.values()]):.2f}")


if __name__ == "__main__":
    main()
