"""Extension of a test set by new rows."""

from __future__ import annotations

from dataclasses import replace

from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.testset import CHANGES, Testset


def documents_of(testset: Testset) -> Docstore:
    """Return the passages from which a test set was generated.

    Raises:
        ConfigError: if they are unknown, as for a test set that was loaded from a file.
    """
    if testset._origin is None:
        raise ConfigError(
            "extend needs the documents, which a test set from a file does not know: "
            "generator.extend(testset, size, documents=documents)"
        )
    return testset._origin.store


def extended(testset: Testset, addition: Testset) -> Testset:
    """Return a test set with the rows of a test set and of an addition to it."""
    kept, added = ([row.id for row in part.rows] for part in (testset, addition))
    changes: dict[str, list[str]] = dict(zip(CHANGES, (kept, added, [], []), strict=True))
    return replace(
        addition,
        rows=[*testset.rows, *addition.rows],
        notes=[*dict.fromkeys([*testset.notes, *addition.notes])],
        complete=testset.complete and addition.complete,
        changes=changes,
        number=testset.number + 1,
    )
