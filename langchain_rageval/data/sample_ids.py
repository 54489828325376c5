"""SampleIds: distinct ids for the samples of one run or file.

The default id of a sample is a hash of its question. The second and later samples with an id and a question that
occurred before get the suffixes `-2`, `-3`, and so on, in their order. An id of two different questions is an error.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Sequence

from langchain_rageval.data.schema import Sample, default_id
from langchain_rageval.errors import SampleError

_NUMBERED = re.compile(r"(.+)-[1-9][0-9]*", re.DOTALL)


class DuplicateIdError(SampleError):
    """Two samples with different questions have one id; unlike other sample errors, it ends a run."""


class _Hashes:
    """Set of hashes that takes about nine bytes for each; a set of Python takes eighty, too many for long streams."""

    def __init__(self) -> None:
        self._buckets = [array("q") for _ in range(1024)]

    def __contains__(self, value: Hashable) -> bool:
        number = hash(value)
        return number in self._buckets[number % len(self._buckets)]

    def add(self, value: Hashable) -> None:
        """Add the hash of a value that the set does not contain."""
        number = hash(value)
        self._buckets[number % len(self._buckets)].append(number)


class SampleIds:
    """Ids of the samples read so far, as hashes."""

    def __init__(self) -> None:
        self._seen = _Hashes()  # ids, and pairs of an id and its question unless the id is the hash of the question
        self._numbers: dict[str, int] = {}  # repeated id to the last number appended to it

    def clashes(self, sample: Sample) -> bool:
        """Return True if an earlier sample has the same id and another question."""
        if sample.id not in self._seen or _is_default(sample):
            return False
        return _identity(sample) not in self._seen

    def distinct(self, sample: Sample) -> Sample:
        """Return the sample, or a copy with a numbered id if its id occurred before."""
        if sample.id not in self._seen:
            self._add(sample)
            return sample
        number = self._numbers.get(sample.id, 1) + 1
        while f"{sample.id}-{number}" in self._seen:
            number += 1
        self._numbers[sample.id] = number
        numbered = sample.model_copy(update={"id": f"{sample.id}-{number}"})
        self._add(numbered)
        return numbered

    def _add(self, sample: Sample) -> None:
        self._seen.add(sample.id)
        if not _is_default(sample):
            self._seen.add(_identity(sample))

    def checked(self, sample: Sample, place: str) -> Sample:
        """Return the sample with a distinct id.

        Args:
            sample: the next sample.
            place: where it was found, for the error.

        Raises:
            DuplicateIdError: if an earlier sample has the same id and another question.
        """
        if self.clashes(sample):
            raise DuplicateIdError(f"{place}: {describe_clash(sample)}; give each its own, or leave the ids out", "id")
        return self.distinct(sample)


def _is_default(sample: Sample) -> bool:
    return sample.id == default_id(sample.question, sample.history)


def _identity(sample: Sample) -> Hashable:
    """Return the id of a sample with what it must not be shared by: the question, and the history if it has one."""
    history = tuple((turn.role, turn.text) for turn in sample.history)
    return (sample.id, sample.question, history) if history else (sample.id, sample.question)


def describe_clash(sample: Sample) -> str:
    """Return the statement that the id of a sample is also that of an earlier one with another question."""
    return f"two different samples have the id {sample.id!r}"


def describe_place(index: int, question: str) -> str:
    """Return the row number, the index and the question of a sample, for a message."""
    return f"row {index + 1} (index {index}), question {question!r}"


def original_ids(samples: Sequence[tuple[str, str]]) -> list[str]:
    """Return for each sample the id without a number that `SampleIds` appended; repeats of a sample share it.

    Args:
        samples: id and question of each sample.
    """
    known = set(samples)

    def original(name: str, question: str) -> str:
        match = _NUMBERED.fullmatch(name)
        return match[1] if match and (match[1], question) in known else name

    return [original(name, question) for name, question in samples]
