"""AnswerLimits: what an answer to one request can contain, and the JSON schema that says so.

Servers that build a grammar from the schema of each request then cannot cite a sentence that does not exist, leave out
or repeat an item, or fill a list or a text without end. Other servers get the schema of the answer class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Values = tuple[str, ...] | tuple[int, ...]

REASON_LENGTH = 400
TEXT_LENGTH = 500
_LONGEST_TEXT = {"reason": REASON_LENGTH}  # llama.cpp takes a text of at most 1,999 characters


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What an answer to one request can contain. Fields are named as in the answer class, at any depth.

    Attributes:
        items: name of the list that has one item for each value, name of the field of an item that holds the value, and
            the values in order; None if no list is fixed.
        values: names of fields, or of lists, and the values that they can contain.
        lengths: names of lists and the largest numbers of their items.
    """

    items: tuple[str, str, Values] | None = None
    values: tuple[tuple[str, Values], ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()


def narrow_schema(schema: Mapping[str, Any], limits: AnswerLimits) -> Mapping[str, Any]:
    """Return the schema of an answer class, restricted to what an answer to one request can contain.

    Schemas of equal requests are one object; those of requests of one shape, such as five statements about the same
    sentences, are equal, so that servers find them in their caches.
    """
    return _narrow(json.dumps(schema), limits)


@lru_cache(maxsize=512)
def _narrow(schema: str, limits: AnswerLimits) -> Mapping[str, Any]:
    narrowed = _Narrowing(limits)
    written: dict[str, Any] = narrowed.restrict(json.loads(schema), "")
    return written | ({"$defs": narrowed.definitions} if narrowed.definitions else {})


class _Narrowing:
    """Restriction of one schema."""

    def __init__(self, limits: AnswerLimits) -> None:
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
                return node | {"maxLength": _LONGEST_TEXT.get(name, TEXT_LENGTH)}
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
