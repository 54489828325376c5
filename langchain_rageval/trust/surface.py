"""Surface features of labelled items, and a judge of rules that decides by them and understands nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from zlib import crc32

from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of
from langchain_rageval.trust.items import CHUNK_STEPS, CRITERIA, LabelledItem

_NEGATION = re.compile(r"\b(not|no|never|none|without|nor|n't|не|нет|ни|никогда|без|нельзя)\b", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(may|might|perhaps|probably|expected|about|could|some|can|может|могут|возможно|вероятно|около|ожида\w+|обычно)\b",
    re.IGNORECASE,
)


class Element(NamedTuple):
    """What one label of an item is about, with the texts that a reader would compare it with."""

    text: str
    question: str
    source: Sequence[str]


def elements_of(item: LabelledItem) -> list[Element]:
    """Return the element of each label of an item, in order; `source` holds sentences."""
    sentences = NumberedContexts.of(item.contexts).sentences
    turns = [turn.text for turn in item.history]
    said = [*turns, *([item.question] if turns or item.turns else []), *([item.answer] if item.answer else [])]
    if item.step == "classify_statements":
        sides = ((item.statements, item.references), (item.references, item.statements))
        return [Element(text, item.question, other) for own, other in sides for text in own]
    if item.step in CHUNK_STEPS:
        return [Element(text, " ".join([item.question, *item.references]), said) for text in item.contexts]
    if item.step == "select_sentences":
        return [Element(sentences[label.number], item.question, [*sentences.values()]) for label in item.labels]
    if item.statements:
        others = [*sentences.values(), *said] or item.statements
        return [Element(text, item.question, [o for o in others if o != text]) for text in item.statements]
    if item.terms:
        texts = [*said, *item.references, *sentences.values()]
        return [
            Element(term, item.question, [s for text in texts for s in split_sentences(text)]) for term in item.terms
        ]
    answer = item.answer or item.question
    source = [*sentences.values(), *item.references, *turns]
    return [Element(answer, item.question, source)] * len(CRITERIA.get(item.step, "."))


def surface_features(item: LabelledItem) -> list[dict[str, float]]:
    """Return 25 surface features of each element of an item: lengths, overlaps, digits, negations and positions."""
    elements = elements_of(item)
    rows = [_features(element) for element in elements]
    for place, row in enumerate(rows):
        row |= {"place": place / max(1, len(rows) - 1), "first": float(place == 0), "elements": float(len(rows))}
        for name in ("characters", "of question", "of best sentence"):
            row[f"rank of {name}"] = sum(other[name] > row[name] for other in rows) / max(1, len(rows) - 1)
    return rows


def _features(element: Element) -> dict[str, float]:
    text, question, source = element
    stems, asked, numbers = stems_of(text), stems_of(question), numbers_of(text)
    shares = [len(stems & stems_of(sentence)) / max(1, len(stems)) for sentence in source] or [0.0]
    best = source[shares.index(max(shares))] if source else ""
    everything = " ".join(source)
    return {
        "characters": float(len(text)),
        "words": float(len(words_of(text))),
        "sentences": float(len(split_sentences(text))),
        "letters a word": len(text) / max(1, len(words_of(text))),
        "numbers": float(len(numbers)),
        "numbers not in source": float(len(numbers - numbers_of(everything))),
        "numbers not in best sentence": float(len(numbers - numbers_of(best))),
        "numbers of question": float(len(numbers & numbers_of(question))),
        "negations": float(len(_NEGATION.findall(text))),
        "negations differ": float(bool(_NEGATION.search(text)) != bool(_NEGATION.search(best))),
        "hedges": float(len(_HEDGE.findall(text))),
        "capitals": float(sum(word[:1].isupper() for word in text.split())),
        "questions": float(text.count("?")),
        "of question": len(asked & stems) / max(1, len(asked)),
        "in question": len(asked & stems) / max(1, len(stems)),
        "of best sentence": max(shares),
        "of source": len(stems & stems_of(everything)) / max(1, len(stems)),
        "place of best sentence": shares.index(max(shares)) / max(1, len(shares) - 1),
        "lines": float(text.count("\n")),
    }


@cache
def _rules() -> dict[str, dict[str, list[Any]]]:
    """Return by language and step two decision trees, each tuned on the pairs of one half."""
    text = (files("langchain_rageval.trust") / "labelled_items" / "rules.json").read_text(encoding="utf-8")
    rules: dict[str, dict[str, list[Any]]] = json.loads(text)
    return rules


def rule_half(pair: str) -> int:
    """Return 0 or 1: the half of the pairs that a pair belongs to when rules are tuned."""
    return crc32(pair.encode()) % 2


def rule_verdicts(item: LabelledItem, language: str) -> list[str]:
    """Return the verdicts of a judge of surface rules, which were tuned on the half without this pair.

    `tests/benchmarks/rule_judge.py` tunes them. A rule is a tree of [feature, threshold, tree up to it, tree above it],
    whose leaves are verdicts. "" if there are no rules for the step.
    """
    trees = _rules().get(language, _rules()["en"]).get(item.step, ["", ""])
    return [follow_rule(trees[1 - rule_half(item.pair)], features) for features in surface_features(item)]


def follow_rule(tree: Any, features: dict[str, float]) -> str:
    """Return the verdict at the leaf of a decision tree."""
    while not isinstance(tree, str):
        feature, threshold, below, above = tree
        tree = below if features[feature] <= threshold else above
    return tree
