"""Instrument: the configuration that produced a score (judges, prompts, formula), as digests and as readable data."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from langchain_rageval._internal.description import digest_of
from langchain_rageval._internal.page import shortened

UNKNOWN = "unknown"
"""Digest of a part that cannot be identified."""

Part = Mapping[str, Any]

_PLURAL = {"prompts", "criteria"}
_LONGEST_VALUE = 60
_MOST_DIFFERENCES = 5
_MODEL_NAMES = ("model", "model_name", "model_path", "model_uri", "model_id", "deployment_name", "path", "function")
_CODE = {"code", "calls", "source", "distribution", "package"}
"""Names whose values identify code and installed versions."""
_RETRIES = {"language", "attempts"}
"""Names of options of a judge that do not affect the digest of a step."""
_DIGESTS = {"prompts", "own_prompt", "schema", "code", "calls", "attributes", "source", "uses", "criteria"}
"""Names whose values are hashes or long texts; a difference is named, not shown."""


@dataclass(frozen=True)
class Instrument:
    """Configuration that produced a score, in two parts: how facts are found, and how the number is computed from them.

    Facts are the results of a metric's steps, such as the judge's verdict on each statement of the answer. Two scores
    with equal, known parts were produced in the same way.

    Attributes:
        digests: digests of the two parts, as in `Score.instrument`.
        found_by: part that decides which facts are found: judges with their models, prompts, options of the steps; None
            if the part is unknown or not stored.
        counted_by: part that decides the number: the function that computes the number from the facts, and the options
            of the metric; None if the part is unknown or not stored.
        unknown: reason why a part cannot be identified, and the remedy; "" if both parts are known.
    """

    digests: str
    found_by: Part | None = None
    counted_by: Part | None = None
    unknown: str = ""

    @classmethod
    def of(cls, found_by: Part | None, counted_by: Part | None, unknown: str = "") -> Instrument:
        """Build an instrument (configuration that produced a score) from its two parts, and compute their digests.

        `found_by` describes judges, prompts and steps; `counted_by` describes the formula of the score. A part that is
        None is not known: its digest is "unknown", and the argument `unknown` is the reason.
        """
        return cls(join_digests(_digest(found_by), _digest(counted_by)), found_by, counted_by, unknown)

    @property
    def judges(self) -> list[str]:
        """Names of the judges' models, without classes and settings; for a model without a name, its class."""
        return list(dict.fromkeys(_judges(self.found_by)))

    def differences(self, other: Instrument) -> list[str]:
        """Return the differences from another instrument (configuration that produced a score) in words.

        An example is "judge model_name: 'a' != 'b'". Each of the parts `found_by` and `counted_by` is compared only if
        it is known in both instruments; otherwise it adds no difference. After five differences of a part follows the
        number of the others, as in "3 more".
        """
        parts = ((self.found_by, other.found_by), (self.counted_by, other.counted_by))
        return [words for own, its in parts for words in differences(own, its)]

    def __repr__(self) -> str:
        """Return the hashes and `str` of the instrument."""
        return f"Instrument({self.digests}: {self})"

    def __str__(self) -> str:
        """Return the models, the steps, and what is unknown, on one line."""
        found = dict.fromkeys(map(_model_name, _values_of("model", self.found_by)))
        steps = list(_step_names((self.found_by or {}).get("steps", ())))
        parts = [", ".join(found), " → ".join(dict.fromkeys(steps)), self.unknown]
        return "; ".join([part for part in parts if part] or [self.digests])


@dataclass(frozen=True)
class Provenance:
    """Readable parts of the instruments (configurations that produced the scores) of a report.

    Attributes:
        parts: mapping of each digest to its part.
        unknown: mapping of the name of a metric to the reason why a part of its instrument cannot be identified.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, data: Any) -> Provenance:
        """Build a Provenance from the data of `as_json`; empty for other data, such as of an earlier version."""
        stored = data if isinstance(data, Mapping) else {}
        values = (stored.get(name) for name in ("parts", "unknown"))
        return cls(*(dict(value) if isinstance(value, Mapping) else {} for value in values))

    def as_json(self) -> dict[str, Any]:
        """Return the attributes `parts` and `unknown` as a dict for JSON, which `load` reads.

        "parts" maps each digest to a part of an instrument (configuration that produced a score). "unknown" maps the
        name of a metric to the reason why a part of its instrument cannot be identified.
        """
        return asdict(self)

    def __or__(self, other: Provenance) -> Provenance:
        """Return a copy with the parts and reasons of another run added."""
        return Provenance(self.parts | other.parts, self.unknown | other.unknown)

    def with_instrument(self, metric: str, instrument: Instrument) -> Provenance:
        """Return a copy that also stores the instrument of a metric (configuration that produced its scores).

        The two parts of the instrument, `found_by` and `counted_by`, are stored by their digests unless they are None.
        If the instrument has a reason for an unknown part, the reason replaces the stored reason of the metric.
        """
        pairs = zip(split_digests(instrument.digests), (instrument.found_by, instrument.counted_by), strict=True)
        known = {digest: part for digest, part in pairs if part is not None}
        unknown = {metric: instrument.unknown} if instrument.unknown else {}
        return Provenance(self.parts | known, self.unknown | unknown)

    def with_counting(self, metric: str, instrument: Instrument) -> Provenance:
        """Return a copy that also stores how a metric computes its value from verdicts (the part `counted_by`).

        The instrument's other part, `found_by` (judges and prompts), is not stored: a report that is scored again from
        its stored verdicts asks no judge, so `found_by` stays the same. If `counted_by` is None, the reason is stored.
        """
        reason = "" if instrument.counted_by is not None else instrument.unknown
        counting = replace(instrument, found_by=None, unknown=reason)
        return self.with_instrument(metric, counting)

    def instrument(self, metric: str, digests: str) -> Instrument:
        """Return the instrument (configuration) that produced a score; a part that is not stored here is None.

        Args:
            metric: name of the metric, by which the reason for an unknown part is stored.
            digests: digests of the parts `found_by` and `counted_by`, as in `Score.instrument`.
        """
        found, counted = split_digests(digests)
        reason = self.unknown.get(metric, "it was not recorded") if UNKNOWN in (found, counted) else ""
        return Instrument(digests, self.parts.get(found), self.parts.get(counted), reason)


def join_digests(found_by: str, counted_by: str) -> str:
    """Return the digests of an instrument (configuration that produced a score) as "<found_by>.<counted_by>".

    Args:
        found_by: digest of the part that decides the verdicts: judges, prompts and steps.
        counted_by: digest of the part that computes the score from the verdicts.
    """
    return f"{found_by}.{counted_by}"


def split_digests(instrument: str) -> tuple[str, str]:
    """Split the text of `Score.instrument`, "<found_by>.<counted_by>", into its two digests, in this order.

    The first digest identifies the judges, prompts and steps of a score, the second the formula of the score. For the
    single hash that version 0.1.0 wrote, both are "unknown".
    """
    found, dot, counted = instrument.partition(".")
    return (found, counted) if dot else (UNKNOWN, UNKNOWN)


def step_digests(part: Any) -> dict[str, str]:
    """Return the digest of judge and prompts of each step of a metric, by the name of the step.

    `part` is a description of steps as nested mappings and lists, such as `Instrument.found_by`. The judge's options
    `language` and `attempts` do not affect the digest. Steps without a judge are omitted.
    """
    found: dict[str, str] = {}
    if isinstance(part, Mapping) and _has_name(part) and "judge" in part:
        prompts = {key: part.get(key) for key in ("prompts", "own_prompt")}
        found[part["step"]] = digest_of({"judge": _without(part["judge"], _RETRIES), **prompts})
    for item in _items(part):
        found |= step_digests(item)
    return found


def differences(one: Part | None, other: Part | None) -> list[str]:
    """Return the differences of two instruments' parts in words: at most five, then for example "3 more".

    Args:
        one: part of the candidate; None if it is not stored. There are then no differences.
        other: part of the baseline, likewise.
    """
    if one is None or other is None:
        return []
    found = list(dict.fromkeys(_differences(one, other, ())))
    more = len(found) - _MOST_DIFFERENCES
    return [*found[:_MOST_DIFFERENCES], f"{more} more"] if more > 0 else found


def without_code(part: Any) -> Any:
    """Return a part of an instrument (configuration that produced a score) without values that identify code.

    `part` is `Instrument.found_by` or `Instrument.counted_by`: nested mappings and lists. In the returned copy, the
    keys "code", "calls", "source", "distribution" and "package" are omitted at every depth.
    """
    return _without(part, _CODE)


def _without(part: Any, names: Collection[str]) -> Any:
    """Return a copy of a part without some names at every depth."""
    if isinstance(part, Mapping):
        return {name: _without(item, names) for name, item in part.items() if name not in names}
    return [_without(item, names) for item in part] if isinstance(part, list) else part


def _items(part: Any) -> Iterable[Any]:
    """Return the values of a mapping or the items of a list; nothing of any other value."""
    return part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()


def _digest(part: Part | None) -> str:
    return UNKNOWN if part is None else digest_of(part)


def _differences(one: Any, other: Any, path: tuple[str, ...]) -> Iterator[str]:
    if one == other:
        return
    are_lists = isinstance(one, list) and isinstance(other, list) and len(one) == len(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        owner = (f"of {one['step']}",) if _has_name(one) and one["step"] == other.get("step") else ()
        code_differs = one.get("code") != other.get("code")
        for name in dict.fromkeys([*one, *other]):
            if name in ("uses", "calls") and code_differs:
                continue  # other code uses other names
            yield from _differences(one.get(name), other.get(name), (*path, *owner, str(name)))
    elif are_lists and any(isinstance(item, Mapping) for item in (*one, *other)):
        for own, its in zip(one, other, strict=True):
            yield from _differences(own, its, path)
    else:
        yield _in_words(one, other, path)


def _in_words(one: Any, other: Any, path: tuple[str, ...]) -> str:
    of = next((name for name in reversed(path) if name.startswith("of ")), "")
    names = [name for name in path if not name.startswith("of ") and name != "steps"]
    if "judge" in names:
        of = ""
        names = [name for place, name in enumerate(names) if name != "model" or place == len(names) - 1]
    subject = " ".join([*names, of]).strip()
    if _DIGESTS & set(names):
        return f"{subject} {'differ' if names[-1] in _PLURAL else 'differs'}"
    return f"{subject}: {_value(one)} != {_value(other)}"


def _value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "none" if value is None else text
    return shortened(text, _LONGEST_VALUE)


def _has_name(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("step"), str)


def _step_names(part: Any) -> Iterator[str]:
    """Yield the names of the steps in a part, also of those in stages of stages."""
    if isinstance(part, list):
        for item in part:
            yield from _step_names(item)
    elif isinstance(part, Mapping):
        if isinstance(part.get("stages"), list):
            yield from _step_names(part["stages"])
        elif _has_name(part):
            yield part["step"]


def _judges(part: Any) -> Iterator[str]:
    """Yield the name of each model under the key "judge" in a part; of a path or an address, the last component."""
    for judge in _values_of("judge", part):
        for model in _values_of("model", judge):
            name = _own_name(model) or _model_name(model if isinstance(model, Mapping) else {})
            yield name.rstrip("/").rpartition("/")[2] if name.startswith(("/", ".")) or "://" in name else name


def _values_of(key: str, part: Any) -> Iterator[Any]:
    """Yield the values under a key that holds a mapping, at any depth of a part but not within such a value."""
    if isinstance(part, Mapping) and isinstance(part.get(key), Mapping):
        yield part[key]
        return
    for item in _items(part):
        yield from _values_of(key, item)


def _own_name(model: Any) -> str:
    """Return the name of a model, or of the first one inside a wrapper; "" if none has a name."""
    return _name_in(model) or next(filter(None, map(_own_name, _items(model))), "")


def _name_in(model: Any) -> str:
    names = map(model.get, _MODEL_NAMES) if isinstance(model, Mapping) else ()
    return next((name for name in names if isinstance(name, str)), "")


def _model_name(model: Mapping[str, Any]) -> str:
    kind = model.get("class")
    kind = kind.get("name") if isinstance(kind, Mapping) else kind
    inner = next((part for part in model.values() if isinstance(part, Mapping) and "function" in part), {})
    name = _name_in(model) or inner.get("function") or model.get("version")
    short = str(kind or "model").rpartition(".")[2]
    return f"{short} {name}" if name else short
