"""Independent units and slices: which samples count as one observation, and which slice a sample belongs to."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from langchain_rageval.data.loading import REPEAT_NUMBER
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.text.language import detect_language

By = str | Callable[[Sample], Any]

NONE = "(none)"
"""Slice of the rows without a value."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Slicer:
    """Rule that assigns each sample to a slice, such as a language.

    Args:
        by: a function of the sample; or the name or dotted path of a field, such as "metadata.split", where
            "metadata." may be left out. A "language" that is not in the metadata is detected from the question.

    Raises:
        ConfigError: if `by` is neither a text nor a function.
    """

    def __init__(self, by: By) -> None:
        if not isinstance(by, str) and not callable(by):
            raise ConfigError(f"a slice or cluster is a path such as 'metadata.split', or a function, got {by!r}")
        self._by = by
        self._seen = self._known = False
        self._metadata: set[str] = set()

    def slice_of(self, sample: Sample) -> str | None:
        """Return the name of the slice of a sample; None if the sample has no value or a blank value."""
        label = _text(_value_at(sample, self._by) if isinstance(self._by, str) else self._by(sample))
        self._seen, self._known = True, self._known or label is not None
        self._metadata.update(sample.metadata)
        return label

    def check_known(self) -> None:
        """Raise ConfigError if `slice_of` was called, but no sample had a value of the property that defines slices."""
        if self._seen and not self._known:
            fields = ", ".join(f"metadata.{name}" for name in sorted(self._metadata))
            raise ConfigError(f"no sample has a value for {self._by!r}; the metadata are {fields or 'empty'}")


def slices_of(rows: Sequence[Row], by: By | None) -> list[str | None]:
    """Return the name of each row's slice, None without a value; "all" for every row if `by` is None.

    Raises:
        ConfigError: if there are rows, and no sample has a value for `by`.
    """
    if by is None:
        return ["all"] * len(rows)
    slicer = Slicer(by)
    slices = [slicer.slice_of(row.sample) for row in rows]
    slicer.check_known()
    return slices


def in_reading_order(labels: Iterable[str]) -> list[str]:
    """Return the names of slices in their original order; in numeric order if all names are numbers, such as turns."""
    names = list(labels)
    return sorted(names, key=float) if all(map(_NUMBER.fullmatch, names)) else names


def _value_at(sample: Sample, path: str) -> Any:
    head, _, rest = path.partition(".")
    if head in Sample.model_fields:
        return _inside(getattr(sample, head), rest)
    value = _inside(sample.metadata, path)
    return detect_language(sample.language_text) if value is None and path == "language" else value


def _inside(value: Any, path: str) -> Any:
    if not path or value is None:
        return value
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    head, _, rest = path.partition(".")
    return _inside(value.get(head), rest) if rest else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    if isinstance(value, float) and isnan(value):
        return None
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except TypeError:  # keys of types that JSON lacks, or that cannot be sorted
        return str(value)


AUTO = "auto"
"""Cluster by the rule of `Units`; no path of a sample is called so."""

_NAMED = {"conversation": "conversation", "tree": "tree_id"}
_NOTES = {"conversation": "conversations", "tree": "trees", "question": "repeats"}
_PAIRED_NOTES = {"conversation": "paired-conversations", "tree": "trees", "question": "repeated-samples"}


class Units:
    """Independent units of a run: groups of samples that intervals and tests count as one.

    A unit is the first of these groups that applies to a sample: a conversation (`metadata.conversation`); a tree of a
    generated test set (`metadata.tree_id`); the repeats of one question, which have the same question and references,
    and ids that differ only in an appended number; otherwise the sample alone.

    Args:
        samples: samples of the run, in order; `add` adds further samples.
        cluster: dotted path or function of a sample that replaces this rule; None if every sample is a unit.
    """

    def __init__(self, samples: Iterable[Sample] = (), cluster: By | None = AUTO) -> None:
        self._slicer = None if cluster in (None, AUTO) else Slicer(cluster)
        self._is_auto = cluster == AUTO
        self._kinds: list[str] = []
        self._keys = array("q")  # of each sample two hashes: of its unit, and of the unit that it repeats
        self._known: list[int] = []
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Add a sample of the run; samples are added in the order of the run."""
        kind, name, other = self._key(sample)
        self._kinds.append(kind)
        original = REPEAT_NUMBER.sub("", name) if kind == "question" else name
        self._keys.extend((hash((kind, name, other)), hash((kind, original, other))))

    def _key(self, sample: Sample) -> tuple[str, str, int]:
        """Return the kind and name of a sample's unit, and a number that tells apart samples with one id."""
        if not self._is_auto:  # a sample without a value is a cluster by itself
            label = None if self._slicer is None else self._slicer.slice_of(sample)
            return ("sample", "", len(self._kinds)) if label is None else ("cluster", label, 0)
        for kind, name in _NAMED.items():
            if (label := _text(sample.metadata.get(name))) is not None:
                return kind, label, 0
        return "question", sample.id, hash((sample.question, *(sample.references or ())))

    @property
    def _numbers(self) -> list[int]:
        """Number of the unit of each sample."""
        if len(self._known) < len(self._kinds):
            keys, originals = np.reshape(self._keys, (-1, 2)).T
            known = np.sort(keys)  # np.isin would take megabytes
            units = np.where(known[np.searchsorted(known, originals, "right") - 1] == originals, originals, keys)
            _, firsts, places = np.unique(units, return_index=True, return_inverse=True)
            self._known = np.argsort(np.argsort(firsts))[places].tolist()  # in the order of the first samples
        return self._known

    def groups(self, places: Iterable[int] | None = None) -> list[int] | None:
        """Return the number of each sample's unit; None if each sample is a unit by itself.

        A unit is a group of samples that count as one observation, such as a conversation. `places` are positions of
        samples in the run, from 0; only these samples are then considered. If the argument `cluster` of `Units` is a
        dotted path of the sample (such as "metadata.document") or a function, the result is never None.

        Raises:
            ConfigError: if there are samples, and none of them has a value for `cluster`.
        """
        if self._slicer is not None:
            self._slicer.check_known()
        numbers = self._numbers if places is None else list(map(self._numbers.__getitem__, places))
        return numbers if self._slicer is not None or len(set(numbers)) < len(numbers) else None

    def kind(self, places: Iterable[int]) -> str:
        """Return the kind of the units that have several samples: "conversation", "tree", "question" or "cluster".

        Several kinds give "unit"; if no unit has several samples, the result is "cluster". A tree is the questions of a
        generated test set about one fact. `places` are the positions of the samples in the run, from 0.
        """
        counts = Counter((self._kinds[place], self._numbers[place]) for place in places)
        kinds = {kind for (kind, _), count in counts.items() if count > 1} or {"cluster"}
        return kinds.pop() if len(kinds) == 1 else "unit"

    def notes(self, *, paired: bool = False) -> list[Note]:
        """Return notes on units (groups of samples that count as one observation) with several samples.

        For each kind, such as conversations, a note counts the samples and the units. If conversations or trees
        (questions about one fact) are among these units, a note counts the samples whose metadata lack the id of a
        conversation or tree. `paired` is True for the samples of paired runs: the notes are then worded for pairs.
        """
        notes = []
        for kind, code in (_PAIRED_NOTES if paired else _NOTES).items():
            own = [number for number, its in zip(self._numbers, self._kinds, strict=True) if its == kind]
            if len(set(own)) < len(own):
                notes.append(Note(code, samples=len(own), units=len(set(own))))
                if kind in _NAMED and (loose := self._kinds.count("question")):
                    notes.append(Note("without-unit", count=loose, samples=len(self._kinds), field=_NAMED[kind]))
        return notes


class ScoresById(dict[str, Score]):
    """Scores of a metric by sample id.

    Args:
        scores: the scores.
        units: mapping of sample ids to independent units, see `Units`; empty if each sample is a unit by itself.
    """

    def __init__(self, scores: Mapping[str, Score], units: Mapping[str, int]) -> None:
        super().__init__(scores)
        self.units = units
