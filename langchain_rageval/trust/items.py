"""Labelled items: requests to a judge with the right verdicts, most of them in pairs that differ in one detail.

Each language has a file per document world, `<world>.<language>.yaml`, with chunks of documents and items that refer to
them, and `singles.<language>.jsonl`, items with their own texts. `labelled_items/README.md` describes the form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from langchain_rageval.data.schema import InputModel, Turn
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.layout import NumberedContexts

_FOLDER = files("langchain_rageval") / "trust" / "labelled_items"
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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
        accepted: the verdicts that are right; empty if the verdict on this element is not scored.
        evidence: numbers of chunks or sentences, such as "2" or "2.3", of which a right verdict must cite one; empty if
            no citation is required.
        number: number of the labelled sentence, such as "2.3"; "" if the label is not about a sentence.
    """

    accepted: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    number: str = ""

    def reversed(self, chunks: int) -> Label:
        """Return the label for chunks in reverse order: chunk n of `chunks` chunks becomes chunk `chunks` + 1 - n."""
        evidence = tuple(_reverse_number(number, chunks) for number in self.evidence)
        number = self.number and _reverse_number(self.number, chunks)
        return self.model_copy(update={"evidence": evidence, "number": number})


class LabelledItem(InputModel):
    """Request to the judge, or three texts to compare by embeddings, with the right verdicts.

    Attributes:
        id: its name.
        pair: name of the pair that it belongs to, which is the unit of intervals; its own name if there is no pair.
        half: "plain" if a careful reader needs no second look, "hard" for the members of minimal pairs.
        step: name of the judge step that is run.
        kind: what makes the item hard, such as "table" or "another year"; "plain prose" for an excerpt.
        source: where the texts come from.
        labels: one for each statement, chunk, sentence, term or criterion that the step judges, in order, or one for
            the answer.
        question: as in a sample.
        answer: as in a sample.
        contexts: as in a sample.
        references: as in a sample; for `classify_statements`, the statements of the reference; for `compare_questions`
            the parent question; for `review_follow_up` the question as understood without its turns.
        statements: the statements of the answer that the step receives, or the statements, facts or needs of a
            conversation.
        turns: numbers of the turns of `statements`.
        terms: what a reply must name or not: words joined by " + " must be together in one statement; of words joined
            by "/" one suffices.
        history: earlier turns of the conversation, the oldest first.
        aspect: name of the aspect that is judged.
        padding: a sentence about another topic.
        text: the text that is compared.
        near: a text that means nearly the same as `text`.
        far: a text that does not.
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
        world = _LOADER(texts[name].read_text(encoding="utf-8")).get_single_data()
        items += [item for record in world["items"] for item in expand_record(record, world)]
    return tuple(sorted(items, key=lambda item: item.step))


def load_items(path: str | Path) -> list[LabelledItem]:
    """Return the labelled items of a user's file, JSON Lines or YAML, in the form that `labelled_items` has.

    Raises:
        ConfigError: if the file cannot be read, or a record is not in the form; the message names its place.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        is_yaml = Path(path).suffix in (".yaml", ".yml")
        records = (
            _LOADER(text).get_single_data()
            if is_yaml
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: labelled items could not be read: {error}") from None
    return read_items(records, str(path))


def read_items(records: Iterable[Mapping[str, Any] | LabelledItem], source: str) -> list[LabelledItem]:
    """Return labelled items, of which records are expanded; `source` names them in errors.

    Raises:
        ConfigError: if a record is not in the form, or two items have one name.
    """
    items: list[LabelledItem] = []
    for place, record in enumerate(records, 1):
        try:
            items += [record] if isinstance(record, LabelledItem) else expand_record(record)
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise ConfigError(f"{source}: record {place} is no labelled item: {error}") from None
    return items


def expand_record(record: Mapping[str, Any], world: Mapping[str, Any] | None = None) -> Iterator[LabelledItem]:
    """Yield the item of a record, or both items of a pair, whose fields are those of the record and of its member.

    Args:
        record: an item in the form in which items are written.
        world: its documents: `chunks` by name, and `padding`; None for an item with its own texts.
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
            raise ValueError("chunks are of a packaged world; write contexts, a list of texts, instead")
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
