"""Labelled items: requests to a judge with the right verdicts, most of them in pairs that differ in one detail.

Each language has files `<world>.<language>.yaml`, one for each set of documents, with chunks and with items that refer
to the chunks. The file `singles.<language>.jsonl` holds items with their own texts. `labelled_items/README.md`
describes the form.

The module also holds a baseline judge: rules that decide by surface features of the items, without understanding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple
from zlib import crc32

import yaml
from pydantic import ValidationError

from langchain_rageval._internal.files import load_yaml
from langchain_rageval.data.schema import InputModel, Turn
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of

_FOLDER = files("langchain_rageval") / "trust" / "labelled_items"
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MEMBERS = ("a", "b")
_LABELLED = ("statements", "references", "terms", "sentences")

CRITERIA: Mapping[str, Sequence[str]] = {
    "grade_rubric": ("correctness", "completeness", "readability"),
    "grade_passage": ("clarity", "depth", "structure", "relevance"),
    "review_question": ("standalone", "answerable"),
    "compare_questions": ("deeper", "broader"),
    "review_follow_up": ("depends", "same", "open"),
}
"""Name of a step to the criteria that it decides on, in the order of the labels."""

CHUNK_STEPS = ("grade_contexts", "grade_relevance", "find_passages")
"""Steps that decide on each chunk."""


class Label(InputModel):
    """The right verdicts for one statement, chunk, sentence, term, criterion or answer of a labelled item.

    Attributes:
        accepted: the verdicts that are right; empty if the judge's verdict on this statement, chunk etc. is not scored.
        evidence: numbers of chunks or sentences, such as "2" or "2.3", of which a right verdict must cite one; empty if
            no citation is required.
        number: number of the labelled sentence, such as "2.3"; "" if the label is not about a sentence.
    """

    accepted: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    number: str = ""

    def reversed(self, chunks: int) -> Label:
        """Return a copy of the label for chunks in reverse order, with other chunk numbers in `evidence` and `number`.

        Chunk n of `chunks` chunks becomes chunk `chunks` + 1 - n.
        """
        evidence = tuple(_reverse_number(number, chunks) for number in self.evidence)
        number = self.number and _reverse_number(self.number, chunks)
        return self.model_copy(update={"evidence": evidence, "number": number})


class LabelledItem(InputModel):
    """Request to the judge, or three texts to compare by embeddings, with the right verdicts.

    Attributes:
        id: name of the item.
        pair: name of the pair that the item belongs to; the item's own name if there is no pair. Intervals treat a pair
            as one unit.
        half: "plain" if a careful reader judges the item right at first reading, "hard" for members of minimal pairs.
        step: name of the judge step that is run.
        kind: what makes the item hard, such as "table" or "another year"; "plain prose" for an excerpt from an existing
            text.
        source: where the texts come from.
        labels: one for each statement, chunk, sentence, term or criterion that the step judges, in order, or one for
            the answer.
        question: as in a sample.
        answer: as in a sample.
        contexts: as in a sample.
        references: as in a sample; for `classify_statements`, the statements of the reference; for `compare_questions`
            the parent question; for `review_follow_up` the question in a form that needs no earlier turns.
        statements: the statements of the answer that the step receives, or the statements, facts or needs of a
            conversation.
        turns: number of the conversation turn of each of `statements`.
        terms: terms that a reply must name, or must not name. Words joined by " + " must be together in one statement;
            of words joined by "/" one suffices.
        history: earlier turns of the conversation, the oldest first.
        aspect: name of the aspect that is judged.
        padding: a sentence about another topic; a test adds it to each chunk, to see whether the verdicts change.
        text: the text that is compared.
        near: a text that means nearly the same as `text`.
        far: a text whose meaning differs from that of `text`.
    """

    id: str
    pair: str
    step: str
    kind: str
    labels: tuple[Label, ...]
    half: Literal["plain", "hard"] = "plain"
    source: str = "written for this set"
    question: str = ""
    answer: str | None = None
    contexts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    turns: tuple[int, ...] = ()
    terms: tuple[str, ...] = ()
    history: tuple[Turn, ...] = ()
    aspect: str = ""
    padding: str = ""
    text: str = ""
    near: str = ""
    far: str = ""


def _reverse_number(number: str, chunks: int) -> str:
    chunk, dot, sentence = number.partition(".")
    return f"{chunks + 1 - int(chunk)}{dot}{sentence}"


@cache
def labelled_items(language: str) -> tuple[LabelledItem, ...]:
    """Return the packaged labelled items of a language, grouped by step.

    Raises:
        ConfigError: if the package has none in this language.
    """
    texts = {file.name: file for file in _FOLDER.iterdir()}
    known = sorted(name.split(".")[1] for name in texts if name.startswith("singles."))
    if language not in known:
        raise ConfigError(f"labelled items come in {', '.join(known)}, got language={language!r}: choose one of them")
    singles = texts[f"singles.{language}.jsonl"].read_text(encoding="utf-8").splitlines()
    items = [item for line in singles for item in expand_record(json.loads(line))]
    for name in sorted(name for name in texts if name.endswith(f".{language}.yaml")):
        world = load_yaml(texts[name].read_text(encoding="utf-8"))
        items += [item for record in world["items"] for item in expand_record(record, world)]
    return tuple(sorted(items, key=lambda item: item.step))


def load_items(path: str | Path) -> list[LabelledItem]:
    """Return the labelled items of a user's file, JSON Lines or YAML, written like the files in `labelled_items`.

    Raises:
        ConfigError: if the file cannot be read, or a record is not written in this way; the message names the place
            of the record.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        is_yaml = Path(path).suffix in (".yaml", ".yml")
        records = load_yaml(text) if is_yaml else [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: labelled items could not be read: {problem}") from None
    return read_items(records, str(path))


def read_items(records: Iterable[Mapping[str, Any] | LabelledItem], source: str) -> list[LabelledItem]:
    """Return labelled items (requests with known right verdicts) from mappings or finished items.

    A mapping describes an item or a pair of items by fields such as `step` and `gold`; `labelled_items/README.md` lists
    the fields. Error messages begin with `source`, the name of the input.

    Raises:
        ConfigError: if a mapping does not have these fields; the message names the place of the record.
    """
    items: list[LabelledItem] = []
    for place, record in enumerate(records, 1):
        try:
            items += [record] if isinstance(record, LabelledItem) else expand_record(record)
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise ConfigError(f"{source}: record {place} is no labelled item: {error}") from None
    return items


def expand_record(record: Mapping[str, Any], world: Mapping[str, Any] | None = None) -> Iterator[LabelledItem]:
    """Yield the labelled item of a record, or both items of a pair, each with the common fields and its own fields.

    Args:
        record: an item or a pair, as item files contain it.
        world: content of the item file (documents on one subject): `chunks` maps names to texts, and `padding` is an
            irrelevant sentence that tests add to chunks. The record lists names in its own `chunks`. None for a record
            with its own texts, in `contexts` or other fields.
    """
    common = {name: value for name, value in record.items() if name not in _MEMBERS}
    if not any(member in record for member in _MEMBERS):
        yield _item(common, world, common["id"])
        return
    for member in _MEMBERS:
        yield _item({"half": "hard", **common, **record[member]}, world, f"{common['pair']}-{member}")


def _item(record: Mapping[str, Any], world: Mapping[str, Any] | None, name: str) -> LabelledItem:
    fields = {"pair": name, **record, "id": name}
    gold, keys = fields.pop("gold", None), fields.pop("chunks", None)
    if keys is not None:
        if world is None:
            raise ValueError("chunks are only for packaged items; write contexts, a list of texts, instead")
        order = Random(fields["pair"]).sample(keys, len(keys))
        fields |= {"contexts": [world["chunks"][key].strip() for key in order], "padding": world["padding"]}
    else:
        order = [str(place) for place in range(1, len(fields.get("contexts", ())) + 1)]
    sentences = NumberedContexts.of(fields.get("contexts", ())).sentences
    labels: list[Label] = []
    for field in _LABELLED:
        entries = fields.get(field) or []
        if entries and isinstance(entries[0], Mapping):
            elements, of_field, turns = zip(*(_entry(entry, sentences) for entry in entries), strict=True)
            labels += of_field
            fields[field] = elements
            fields |= {"turns": turns} if turns[0] else {}
    if "sentences" in fields:
        numbers = [_number_of(text, sentences) for text in fields.pop("sentences")]
        labels = [label.model_copy(update={"number": number}) for label, number in zip(labels, numbers, strict=True)]
    if isinstance(gold, Mapping):
        named = CRITERIA.get(fields["step"], order)
        by_name = {str(element): verdict for element, verdict in gold.items()}
        if unknown := by_name.keys() - {*named, "rest"}:
            raise ValueError(f"gold names {', '.join(sorted(unknown))}, which are not among {', '.join(named)}")
        labels = [Label(accepted=_verdicts(by_name.get(element, by_name.get("rest")))) for element in named]
    elif gold is not None:
        labels = [Label(accepted=_verdicts(gold))]
    return LabelledItem(**fields, labels=labels)


def _entry(entry: Mapping[Any, Any], sentences: Mapping[str, str]) -> tuple[str, Label, int]:
    """Return the text of a labelled element, its label, and its turn, or 0."""
    ((verdict, text),) = ((key, value) for key, value in entry.items() if key not in ("by", "turn"))
    by = entry.get("by", ())
    evidence = tuple(_number_of(fragment, sentences) for fragment in ([by] if isinstance(by, str) else by))
    return text, Label(accepted=_verdicts(verdict), evidence=evidence), entry.get("turn", 0)


def _verdicts(text: Any) -> tuple[str, ...]:
    """Return the accepted verdicts of a text such as "contradicted|absent"; none for "unscored" and None."""
    if text is None or text == "unscored":
        return ()
    return ("yes" if text else "no",) if isinstance(text, bool) else tuple(str(text).split("|"))


def _number_of(fragment: str, sentences: Mapping[str, str]) -> str:
    """Return the number of the only sentence that contains a fragment; the fragment may be a number itself."""
    if _NUMBER.fullmatch(fragment):
        return fragment
    found = [number for number, text in sentences.items() if fragment in text]
    if len(found) != 1:
        raise ValueError(f"{fragment!r} occurs in {len(found)} sentences of the contexts, not in one")
    return found[0]


_NEGATION = re.compile(r"\b(not|no|never|none|without|nor|n't|не|нет|ни|никогда|без|нельзя)\b", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(may|might|perhaps|probably|expected|about|could|some|can|может|могут|возможно|вероятно|около|ожида\w+|обычно)\b",
    re.IGNORECASE,
)


class Element(NamedTuple):
    """Text that one label is about, such as a statement, with the texts that a reader would compare with it."""

    text: str
    question: str
    source: Sequence[str]


def elements_of(item: LabelledItem) -> list[Element]:
    """Return an `Element` for each label of an item, in the order of the labels.

    An `Element` holds the text that the label is about, the question, and the texts to compare the first text with.
    """
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
    """Return 25 surface features of each labelled text: lengths, overlaps, digits, negations and positions."""
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
    """Return the number (0 or 1) of the half to which a pair belongs, computed from the name of the pair.

    The rules that judge the pair were tuned on the pairs of the other half.
    """
    return crc32(pair.encode()) % 2


def rule_verdicts(item: LabelledItem, language: str) -> list[str]:
    """Return a verdict of the baseline judge on each labelled text of an item, by rules about the surface of texts.

    The rules of a step are two decision trees, one for each half of the pairs (see `rule_half`). The tree for one half
    was tuned on the other half by `tests/benchmarks/rule_judge.py`, so no tree judges the items it was tuned on.
    `follow_rule` describes the form of a tree. A `language` (ISO 639-1 code) without rules uses the English ones. A
    verdict is "" if there are no rules for the step.
    """
    trees = _rules().get(language, _rules()["en"]).get(item.step, ["", ""])
    return [follow_rule(trees[1 - rule_half(item.pair)], features) for features in surface_features(item)]


def follow_rule(tree: Any, features: dict[str, float]) -> str:
    """Return the verdict that a decision tree reaches for the features of one text, as from `surface_features`.

    A tree is a verdict, such as "yes", or a list [name of a feature, threshold, tree for values up to it, tree for
    values above it].
    """
    while not isinstance(tree, str):
        feature, threshold, below, above = tree
        tree = below if features[feature] <= threshold else above
    return tree
