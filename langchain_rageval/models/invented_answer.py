"""Invented answers: values that fit a JSON schema and mean nothing, for steps that the offline judge does not know."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_TEXTS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00",
    "duration": "P1D",
    "email": "offline@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def invent_answer(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a JSON schema without `$ref`: always the same, the first or the least that is allowed.

    Lists have one item unless the schema requires more; booleans are true. A `pattern` of a text, and conditions of
    validators that the schema does not show, are not met.
    """
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return invent_answer(schema[name][0])
    if "allOf" in schema:
        return invent_answer({key: part for one in schema["allOf"] for key, part in one.items()})
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _BY_TYPE[kind[0] if isinstance(kind, list) else kind](schema)


def _object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: invent_answer(properties.get(name, {})) for name in schema.get("required", properties)}


def _array(schema: Mapping[str, Any]) -> list[Any]:
    if "prefixItems" in schema:
        return [invent_answer(item) for item in schema["prefixItems"]]
    count = min(max(1, schema.get("minItems", 1)), schema.get("maxItems", 1_000))
    return [_distinct(schema.get("items", {}), number) for number in range(count)]


def _text(schema: Mapping[str, Any]) -> str:
    text = _TEXTS.get(schema.get("format", ""), "offline")
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _distinct(schema: Mapping[str, Any], number: int) -> Any:
    """Return an item of a list; of several allowed values another one for each item."""
    return schema["enum"][number % len(schema["enum"])] if "enum" in schema else invent_answer(schema)


def _number(schema: Mapping[str, Any], usual: float) -> float:
    """Return a number that a schema allows: the usual one if it does, else one at or near a bound."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
    high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    unit = schema.get("multipleOf", 1 if schema.get("type") == "integer" else 0)
    bounds = [number for number in (low, high, low + usual, high - usual, (low + high) / 2) if math.isfinite(number)]
    candidates = [usual, *bounds, *(math.ceil(bound / unit) * unit for bound in bounds if unit), unit]
    return next((number for number in candidates if _is_allowed(number, schema, unit)), usual)


def _is_allowed(number: float, schema: Mapping[str, Any], unit: float) -> bool:
    within = schema.get("minimum", -math.inf) <= number <= schema.get("maximum", math.inf)
    inside = schema.get("exclusiveMinimum", -math.inf) < number < schema.get("exclusiveMaximum", math.inf)
    return within and inside and not (unit and number % unit)


_BY_TYPE: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "object": _object,
    "array": _array,
    "integer": lambda schema: int(_number(schema, 1)),
    "number": lambda schema: float(_number(schema, 0.5)),
    "boolean": lambda _: True,
    "null": lambda _: None,
    "string": _text,
}
