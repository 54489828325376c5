"""Seeded random order of passages, and selection of the passages from which questions start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from random import Random
from typing import Any, TypeVar

from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.candidate import Passage

T = TypeVar("T")

_SOURCE = "source"
_MOST_NAMES = 5  # values that an error lists

Focus = str | Sequence[str] | Mapping[str, Any]
"""Sources, or a mapping of metadata name to value or values. A `*` in a text stands for any characters."""


def passages_in_focus(passages: Sequence[Passage], focus: Focus | None) -> list[Passage]:
    """Return the passages whose source or metadata `focus` selects; all passages if `focus` is None.

    Args:
        passages: passages of all documents.
        focus: a source or a list of sources; or a mapping of `source` or names in the metadata to a value or a list of
            values. A passage is selected if, for each name, the passage has one of the listed values. A list in its
            metadata, such as tags, holds several values. A `*` in a listed text stands for any characters.

    Raises:
        ConfigError: if a name or a value occurs in no passage (the message lists the nearest names or values), or if no
            passage is selected.
    """
    if focus is None:
        return list(passages)
    wanted = focus if isinstance(focus, Mapping) else {_SOURCE: focus}
    chosen = {str(name): _as_list(values) for name, values in wanted.items()}
    if not chosen or not all(chosen.values()):
        raise ConfigError(f"focus must name at least one source or value, got {focus!r}")
    names = {_SOURCE, *(name for passage in passages for name in passage.metadata)}
    focused = list(passages)
    for name, values in chosen.items():
        if name not in names:
            raise ConfigError(f"focus: no passage has {name!r} in its metadata; {_nearest(name, names)}")
        known = {str(value) for passage in passages for value in _values(passage, name)}
        for value in values:
            if not any(_matches(own, value) for own in known):
                raise ConfigError(f"focus: no passage has the {name} {value!r}; {_nearest(str(value), known)}")
        focused = [p for p in focused if any(_matches(str(own), value) for own in _values(p, name) for value in values)]
    if not focused:
        raise ConfigError(f"focus: no passage has all of {dict(wanted)!r}; choose fewer values")
    return focused


def _matches(own: str, value: Any) -> bool:
    is_pattern = isinstance(value, str) and "*" in value
    return own == str(value) or (is_pattern and fnmatchcase(own, value.replace("[", "[[]")))


def _values(passage: Passage, name: str) -> list[Any]:
    own = _as_list(passage.metadata.get(name))
    return list(dict.fromkeys([passage.source, *own])) if name == _SOURCE else own


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=_MOST_NAMES)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = sorted(known)
    rest = len(shown) - _MOST_NAMES
    return f"there are {', '.join(map(repr, shown[:_MOST_NAMES]))}" + (f" and {rest} more" if rest > 0 else "")


def draw_order(passages: Iterable[Passage], seed: int, stratify: str = "source") -> list[Passage]:
    """Return passages in random order, with the passages of every document or topic spread evenly over the list.

    Args:
        passages: passages of all documents.
        seed: random seed; the same seed gives the same order on every machine, whatever the order of the documents.
        stratify: name of the metadata that divides the passages into strata, such as "topic".

    Raises:
        ConfigError: if `stratify` is neither "source" nor in the metadata of any passage.
    """
    passages = list(passages)
    names = {_SOURCE, *(name for passage in passages for name in passage.metadata)}
    if stratify not in names:
        raise ConfigError(f"stratify: no passage has {stratify!r} in its metadata; {_nearest(stratify, names)}")
    strata: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        own = [passage.source] if stratify == _SOURCE else sorted(map(str, _values(passage, stratify)))
        strata[", ".join(own)].append(passage)
    return spread(strata, Random(seed))


def spread(strata: Mapping[str, list[T]], random: Random) -> list[T]:
    """Return the items of all strata in random order, with the items of every stratum spread evenly over the list.

    `strata` maps the name of a stratum to the list of its items; `random` shuffles these lists in place.
    """
    places: list[tuple[float, str, T]] = []
    for stratum, own in sorted(strata.items()):
        random.shuffle(own)
        offset = random.random()
        places += [((index + offset) / len(own), stratum, item) for index, item in enumerate(own)]
    return [item for _, _, item in sorted(places, key=lambda place: place[:2])]
