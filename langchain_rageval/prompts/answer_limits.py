"""AnswerLimits: what an answer to one request can contain, and the JSON schema that says so.

Servers that build a grammar from the schema of each request then cannot cite a sentence that does not exist, leave out
or repeat an item, or fill a list or a text without end. Other servers get the schema of the answer class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Values = tuple[str, ...] | tuple[int, ...]

TEXT_LENGTH = 500  # characters; llama.cpp takes at most 1,999
REASON_LENGTHS = (400, 200, 100)
_GRADE = "grade"
_TOKENS_BESIDE_REASON = 40  # of one item: keys, number, evidence and verdict
_CHARACTERS_PER_TOKEN = 2  # as of languages other than English


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of the answer to one request. Fields are named as in the answer class, at any depth.

    Attributes:
        items: name of the list that has one item for each value, name of the field of an item that holds the value, and
            the values in order; None if no list is fixed.
        values: names of fields, or of lists, and the values that they can contain.
        lengths: names of lists and the largest numbers of their items.
    """

    items: tuple[str, str, Values] | None = None
    values: tuple[tuple[str, Values], ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()

    def numbers_from_zero(self, answer: Any) -> bool:
        """Return True if an answer has an item 0 and lacks the last one: its numbers are one less than in the request.

        Args:
            answer: the answer as JSON-like data.
        """
        named = [self.items[1:]] if self.items else []
        for name, values in (*named, *self.values):
            if values[:1] == (1,) and name != _GRADE:
                numbers = set(_numbers_in(answer, name))
                if 0 in numbers and values[-1] not in numbers:
                    return True
        return False


def _numbers_in(answer: Any, name: str) -> Iterator[int]:
    """Yield the numbers under a name in the objects of a nested answer; lists of numbers are left out."""
    parts = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    if isinstance(answer, dict) and isinstance(answer.get(name), int):
        yield answer[name]
    for part in parts:
        yield from _numbers_in(part, name)


def narrow_schema(
    schema: Mapping[str, Any], limits: AnswerLimits, output_tokens: int | None = None
) -> Mapping[str, Any]:
    """Return the schema of an answer class, restricted to what an answer to one request can contain.

    Schemas of equal requests are one object; those of requests of one shape, such as five statements about the same
    sentences, are equal, so that servers find them in their caches.

    Args:
        schema: the schema of the answer class.
        limits: what the answer can contain.
        output_tokens: maximum length of a reply; reasons are shorter if the items would not fit. None for no maximum.
    """
    return _narrow(
        json.dumps(schema), limits, _reason_length(len(limits.items[2]) if limits.items else 1, output_tokens)
    )


def _reason_length(items: int, output_tokens: int | None) -> int:
    """Return the longest reason, in characters, that leaves room for all items of a reply in the output limit."""
    if output_tokens is None:
        return REASON_LENGTHS[0]
    room = (output_tokens // max(items, 1) - _TOKENS_BESIDE_REASON) * _CHARACTERS_PER_TOKEN
    return next((length for length in REASON_LENGTHS if length <= room), REASON_LENGTHS[-1])


@lru_cache(maxsize=512)
def _narrow(schema: str, limits: AnswerLimits, reason_length: int) -> Mapping[str, Any]:
    narrowed = _Narrowing(limits, reason_length)
    written: dict[str, Any] = narrowed.restrict(json.loads(schema), "")
    return written | ({"$defs": narrowed.definitions} if narrowed.definitions else {})


class _Narrowing:
    """Restriction of one schema."""

    def __init__(self, limits: AnswerLimits, reason_length: int) -> None:
        self.reason_length = reason_length
        self.values = dict(limits.values)
        self.lengths = dict(limits.lengths)
        self.items = limits.items
        self.definitions: dict[str, Any] = {}

    def restrict(self, node: dict[str, Any], name: str) -> dict[str, Any]:
        """Return the schema of a field, or of an object, with its limits."""
        if self.items and name == self.items[0]:
            return self._one_by_one(node, *self.items[1:])
        values = self.values.get(name)
        match node.get("type"):
            case "array":
                items = _one_of(node["items"], values) if values else self.restrict(node["items"], "")
                most = self.lengths.get(name, len(values) if values else None)
                return node | {"items": items} | ({"maxItems": most} if most else {})
            case "object":
                return node | {
                    "properties": {key: self.restrict(field, key) for key, field in node["properties"].items()}
                }
            case "string" if "enum" not in node and not values:
                return node | {"maxLength": self.reason_length if name == "reason" else TEXT_LENGTH}
        return _one_of(node, values) if values else node

    def _one_by_one(self, node: dict[str, Any], key: str, values: Values) -> dict[str, Any]:
        """Return the schema of a list with one item for each value of a field.

        The other fields are equal in all items and are defined once, which keeps schema and grammar small.
        """
        item = node["items"]
        fields = {name: field for name, field in item["properties"].items() if name != key}
        self.definitions |= {name: self.restrict(field, name) for name, field in fields.items()}
        references = {name: {"$ref": f"#/$defs/{name}"} for name in fields}
        number = item["properties"][key]
        in_order = {name: references.get(name, number) for name in item["properties"]}
        items = [item | {"properties": in_order | {key: _one_of(number, (value,))}} for value in values]
        rest = {name: value for name, value in node.items() if name != "items"}
        return rest | {"prefixItems": items, "minItems": len(values), "maxItems": len(values)}


def _one_of(node: dict[str, Any], values: tuple[str | int, ...]) -> dict[str, Any]:
    return node | ({"const": values[0]} if len(values) == 1 else {"enum": list(values)})
