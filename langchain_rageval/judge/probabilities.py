"""Probabilities of verdicts, computed from the log-probabilities of a reply's tokens.

The tokens are joined as bytes, because a token may end within a character of several bytes. The JSON is then searched
in the joined text. The server returns the most probable tokens for each position. At the position where a verdict
begins, the probabilities of the tokens that begin the same label are added. The probability of a label is its sum,
divided by the total of the sums of all labels.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from itertools import accumulate, repeat
from math import exp
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from langchain_rageval.judge.repairs import BOOLEAN_WORDS
from langchain_rageval.prompts.answer_schemas import ITEM_KEYS

_BRACKET = re.compile(r"[\[{]")
_TOKEN = re.compile(  # of JSON: a bracket, a key with its colon, a value, or a quote or colon that belongs to none
    r"""(?P<open>[\[{])|(?P<close>[\]}])"""
    r"""|(?:(?P<quote>["'])(?P<string>(?:[^\\]|\\.)*?)(?P=quote)|(?P<word>[^\s,:\[\]{}"']+))(?P<colon>\s*:)?"""
    r"""|(?P<stray>["':])""",
    re.DOTALL,
)
_NOT_LETTERS = re.compile(r"[^a-z0-9_]")
_DIGITS = re.compile(r"-?\d*")
_BEFORE_VALUE = " \t\r\n\"'`:"
_LEAST_MASS = 1e-6  # of all labels together; below it the tokens say nothing about the verdict
_ATTRIBUTE = "_rageval_probabilities"

_Values = dict[str, list[tuple[str, int]]]
"""Plain values in the JSON of a reply by their keys: the texts of the values, and the places where they begin."""

Distribution = Mapping[str, float]
"""Probabilities of the labels of a verdict, which add up to 1; "true" and "false" for a truth value."""


class _Token(NamedTuple):
    """Token of a reply: its bytes as Latin-1 text, and the tokens that were possible in its place, itself included."""

    text: str
    alternatives: Mapping[str, float]


class _Verdict(NamedTuple):
    """Verdict in an answer: the object that holds it, its field, and its label."""

    holder: BaseModel
    field: str
    label: str


def assign_probabilities(answer: BaseModel, reply: BaseMessage) -> bool:
    """Set the probabilities of the verdicts in an answer from the token log-probabilities of the reply.

    Args:
        answer: the parsed reply. `probabilities_of` later returns the probabilities set here.
        reply: message of the model.

    Returns:
        True if the reply has log-probabilities, even if they cannot be matched to the verdicts.
    """
    if not (tokens := _tokens_of(reply)):
        return False
    verdicts = list(_verdicts_in(answer))
    text = "".join(token.text for token in tokens)
    starts = [0, *accumulate(len(token.text) for token in tokens)]
    for values in _json_values(text):
        if (places := _places_of(verdicts, values)) is None:
            continue
        for verdict, place in zip(verdicts, places, strict=True):
            spellings = _spellings(type(verdict.holder), verdict.field)
            if (distribution := _distribution(tokens, text, starts, place, spellings)) is not None:
                verdict.holder.__dict__.setdefault(_ATTRIBUTE, {})[verdict.field] = distribution
        break
    return True


def probabilities_of(holder: BaseModel, field: str) -> Distribution:
    """Return the probability of each label of the verdict in a field; empty if the probabilities are unknown."""
    found: Mapping[str, Distribution] = holder.__dict__.get(_ATTRIBUTE, {})
    return found.get(field, {})


def least_probability(answer: BaseModel) -> float | None:
    """Return the lowest probability of a label that an answer gives as a verdict; None if no probability is known."""
    known = [(probabilities_of(verdict.holder, verdict.field), verdict.label) for verdict in _verdicts_in(answer)]
    return min((distribution.get(label, 0.0) for distribution, label in known if distribution), default=None)


def verdict_key(answer: Any) -> Any:
    """Return the verdicts of an answer with the numbers of their items, without reasons and evidence.

    The key is equal for two answers with the same verdicts. The order of items counts unless the items are numbered.
    """
    if isinstance(answer, list | tuple):
        keys = [verdict_key(item) for item in answer]
        numbered = all(isinstance(item, BaseModel) and ITEM_KEYS & type(item).model_fields.keys() for item in answer)
        return sorted(keys, key=repr) if numbered else keys
    if not isinstance(answer, BaseModel):
        return answer
    return [
        (name, verdict_key(getattr(answer, name)))
        for name, annotation in decided_fields(type(answer)).items()
        if name in ITEM_KEYS or _is_verdict(name, annotation) or _inner_classes(annotation)
    ]


def has_verdicts(kind: type[BaseModel]) -> bool:
    """Return True if an answer class, or a class that a field of it contains, has a verdict or refers to an item.

    A verdict is a field of the type bool, of whole numbers (a grade), or with a fixed set of labels. Fields that refer
    to an item by its number or name are `statement`, `context`, `answer`, `reference`, `entity` and `criterion`.
    """
    own = _verdict_fields(kind) or ITEM_KEYS & kind.model_fields.keys()
    inner = [one for info in kind.model_fields.values() for one in _inner_classes(info.annotation)]
    return bool(own) or any(map(has_verdicts, inner))


def _tokens_of(reply: BaseMessage) -> list[_Token]:
    """Return the tokens of a reply with their probabilities; an empty list if the server sent none."""
    found = reply.response_metadata.get("logprobs")
    items = found.get("content") if isinstance(found, Mapping) else found
    if isinstance(found, Mapping) and isinstance(found.get("tokens"), list):
        # the columns of OpenAI's completions, which some engines send for chats
        columns = found["tokens"], found.get("token_logprobs") or [], found.get("top_logprobs") or repeat({})
        items = []
        for token, logprob, top in zip(*columns, strict=False):
            others = [{"token": text, "logprob": number} for text, number in (top or {}).items()]
            items.append({"token": token, "logprob": logprob, "top_logprobs": others})
    return [_token(item) for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _token(item: Mapping[str, Any]) -> _Token:
    text, others = _latin(item), item.get("top_logprobs") or []
    alternatives = {_latin(one): _probability(one) for one in others if isinstance(one, Mapping)}
    return _Token(text, {text: _probability(item), **alternatives})


def _latin(item: Mapping[str, Any]) -> str:
    """Return the bytes of a token as Latin-1 text, in which each byte is a character."""
    content = str(item.get("token") or "").encode(errors="replace")
    with suppress(TypeError, ValueError):
        content = bytes(item.get("bytes") or content)
    return content.decode("latin-1")


def _probability(item: Mapping[str, Any]) -> float:
    logprob = item.get("logprob")
    return exp(min(logprob, 0.0)) if isinstance(logprob, int | float) and logprob == logprob else 0.0


def decided_fields(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of an answer class that hold a decision, with their types; fields of text are left out."""
    fields = answer.model_fields.items()
    return {name: kind for name, field in fields if (kind := plain_type(field.annotation)) is not str}


def plain_type(annotation: Any) -> Any:
    """Return a type annotation without `None` and without `Annotated` metadata."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        others = [part for part in get_args(annotation) if part is not NoneType]
        return plain_type(others[0]) if len(others) == 1 else annotation
    return annotation


def _verdict_fields(kind: type[BaseModel]) -> list[str]:
    """Return the fields of a class that hold a verdict: a truth value, one of several labels, or a grade."""
    return [name for name, annotation in decided_fields(kind).items() if _is_verdict(name, annotation)]


def _is_verdict(name: str, annotation: Any) -> bool:
    return annotation is bool or (annotation is int and name not in ITEM_KEYS) or bool(labels_of(annotation))


def _inner_classes(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic classes in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [inner for part in get_args(annotation) for inner in _inner_classes(part)]


def _verdicts_in(answer: Any) -> Iterator[_Verdict]:
    """Yield each verdict in an answer, in the order of its fields."""
    if isinstance(answer, list | tuple):
        for item in answer:
            yield from _verdicts_in(item)
    if isinstance(answer, BaseModel):
        own = _verdict_fields(type(answer))
        for name in type(answer).model_fields:
            value = getattr(answer, name)
            if name in own:
                yield _Verdict(answer, name, verdict_label(value))
            else:
                yield from _verdicts_in(value)


def labels_of(annotation: Any) -> list[str]:
    """Return the labels that a type annotation allows; an empty list for types without labels."""
    if get_origin(annotation) is Literal:
        return [str(label) for label in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    return []


def verdict_label(value: Any) -> str:
    """Return a verdict as a label: "true" or "false" for a boolean, the value of an enumeration, otherwise its text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(getattr(value, "value", value)).strip()


@lru_cache(maxsize=256)
def _spellings(kind: type[BaseModel], field: str) -> Mapping[str, str]:
    """Return the label of each spelling, as Latin-1 text of its bytes; none for a number."""
    annotation = kind.model_fields[field].annotation
    if annotation is bool:
        words = {word: "true" if value else "false" for word, value in BOOLEAN_WORDS.items()}
    else:
        words = {label: label for label in labels_of(annotation)}
    variants = {form: label for word, label in words.items() for form in (word, word.capitalize(), word.upper())}
    return {form.encode().decode("latin-1"): label for form, label in variants.items()}


def _json_values(text: str) -> Iterator[_Values]:
    """Yield the values of each piece of JSON in a text, the last piece first: drafts stand before the answer."""
    pieces: list[_Values] = []
    at, broken = 0, set[int]()
    while (start := _BRACKET.search(text, at)) is not None:
        at = start.end()
        if start.start() not in broken and (piece := _piece(text, start.start(), broken)) is not None:
            values, at = piece
            pieces.append(values)
    yield from reversed(pieces)


def _piece(text: str, start: int, broken: set[int]) -> tuple[_Values, int] | None:
    """Return the values in the brackets at a place, with their keys, and the place after them; None if no JSON.

    In the latter case the places of the brackets that have no end are added to `broken`.
    """
    values: _Values = {}
    places: list[int] = []  # of the brackets around a token
    keys: list[str | None] = [""]  # of the values in them; None in an object between a value and the next key
    for token in _TOKEN.finditer(text, start):
        kind, key = token.lastgroup, keys[-1]
        group = "word" if token["word"] else "string"
        if kind == "stray" or (key is None) != (kind == "colon" or token[0] == "}"):
            break
        if kind == "open":
            places.append(token.start())
            keys.append(key)
        elif kind == "close":
            if text[places[-1]] + token[0] not in ("[]", "{}"):
                break
            places.pop()
            keys.pop()
        elif key is not None:
            values.setdefault(_NOT_LETTERS.sub("", key.casefold()), []).append((token[group], token.start(group)))
        if not places:
            return values, token.end()
        if text[places[-1]] == "{":
            keys[-1] = token[group] if kind == "colon" else None
    broken.update(places)
    return None


def _places_of(verdicts: Sequence[_Verdict], values: _Values) -> list[int] | None:
    """Return the place of each verdict among the values of a reply; None if they are not the same verdicts."""
    fields = Counter(verdict.field for verdict in verdicts)
    if any(len(values.get(field, ())) != count for field, count in fields.items()):
        return None
    places = []
    for verdict in verdicts:
        text, place = values[verdict.field].pop(0)
        if _label_of_tokens(text.lstrip(), "", _spellings(type(verdict.holder), verdict.field)) != verdict.label:
            return None
        places.append(place)
    return places


def _distribution(
    tokens: Sequence[_Token], text: str, starts: Sequence[int], place: int, spellings: Mapping[str, str]
) -> Distribution | None:
    """Return the probabilities of the labels at a place of the text; None if no label has any.

    A token that begins several labels is followed to the next one if it was chosen; otherwise it counts for the label
    that it spells, if it spells one.
    """
    number = bisect_right(starts, place) - 1
    prefix = text[starts[number] : place]
    mass: dict[str, float] = {}
    path, written = 1.0, ""
    for token, end in zip(tokens[number:], starts[number + 1 :], strict=True):
        following = text[end : end + 1]
        next_path, next_written = 0.0, ""
        for alternative, probability in token.alternatives.items():
            own = alternative[len(prefix) :] if alternative.startswith(prefix) else alternative.lstrip(_BEFORE_VALUE)
            if not written:
                own = own.lstrip(_BEFORE_VALUE)
            is_chosen = alternative == token.text
            label = _label_of_tokens(written + own, following if is_chosen else "", spellings)
            if label is not None:
                mass[label] = mass.get(label, 0.0) + path * probability
            elif is_chosen:
                next_path, next_written = path * probability, written + own
        if not next_path:
            break
        path, written, prefix = next_path, next_written, ""
    total = sum(mass.values())
    return {label: share / total for label, share in mass.items()} if total >= _LEAST_MASS else None


def _label_of_tokens(text: str, following: str, spellings: Mapping[str, str]) -> str | None:
    """Return the only label that some tokens begin or spell; None if there are several or none.

    Args:
        text: the tokens.
        following: character of the reply that follows them; "" if it is unknown.
        spellings: label of each spelling; none for a number, which any digits spell.
    """
    if not spellings:
        match = _DIGITS.match(text)
        digits = match[0] if match else ""
        is_open = digits == text and following.isdigit()
        return digits if digits.lstrip("-") and not is_open else None
    if text in spellings:
        if not following:
            return spellings[text]
        text += following
    labels = {label for form, label in spellings.items() if text and form.startswith(text)}
    if not labels:  # a longer text: the longest label before its end
        forms = [form for form in spellings if text.startswith(form) and not text[len(form) : len(form) + 1].isalnum()]
        labels = {spellings[form] for form in sorted(forms, key=len)[-1:]}
    return labels.pop() if len(labels) == 1 else None
