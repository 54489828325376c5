"""Diff of two test sets: rows added, rows dropped, and changed fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, ClassVar, Protocol

from langchain_rageval._internal.html import bold, details, item_list, paragraph, text
from langchain_rageval.testset.row import TestsetRow

_NOT_COMPARED = {"id", "history"}
_WIDTH = 100


class _Rows(Protocol):
    @property
    def rows(self) -> list[TestsetRow]: ...

    @property
    def version(self) -> str: ...


@dataclass(frozen=True, repr=False)
class TestsetDiff:
    """Differences from one test set to another one; False if there are none.

    Attributes:
        before: version of the earlier test set.
        after: version of the later one.
        added: rows of the later test set alone.
        dropped: rows of the earlier test set alone.
        changed: id of a row of both test sets to its changed fields: name to the earlier and the later value.
        same: number of rows without a change.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class

    before: str
    after: str
    added: list[TestsetRow]
    dropped: list[TestsetRow]
    changed: Mapping[str, Mapping[str, tuple[Any, Any]]]
    same: int

    def __bool__(self) -> bool:
        """Return True if the test sets differ."""
        return bool(self.added or self.dropped or self.changed)

    def __repr__(self) -> str:
        """Return the differences as text: a line with the counts, then a line for each row and changed field."""
        return "\n".join([self.title, *(f"{sign} {what}" for sign, what in self.lines())])

    def _repr_html_(self) -> str:
        """Return the differences as HTML, for notebooks."""
        groups = {"+": "added", "-": "dropped", "~": "changed"}
        parts = [paragraph(bold(self.title))]
        for sign, name in groups.items():
            items = [text(what) for own, what in self.lines() if own == sign]
            parts += [details(f"{name} ({len(items)})", item_list(items))] if items else []
        return "".join(parts)

    @property
    def title(self) -> str:
        """Line with the versions and the counts."""
        changes = f"{len(self.added)} added, {len(self.dropped)} dropped, {len(self.changed)} changed"
        return f"{self.before} -> {self.after}: {changes}, {self.same} the same"

    def lines(self) -> list[tuple[str, str]]:
        """Return sign and text of each difference: "+" for an added row, "-" for a dropped one, "~" for a field."""
        groups = (("-", self.dropped), ("+", self.added))
        rows = [(sign, f"{row.id} {row.question}") for sign, group in groups for row in group]
        fields = [
            ("~", f"{name} {field}: {_short(before)} -> {_short(after)}")
            for name, changes in self.changed.items()
            for field, (before, after) in changes.items()
        ]
        return rows + fields

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as JSON data; added and dropped rows by id."""
        return {
            "before": self.before,
            "after": self.after,
            "added": [row.id for row in self.added],
            "dropped": [row.id for row in self.dropped],
            "changed": {
                name: {field: {"before": before, "after": after} for field, (before, after) in changes.items()}
                for name, changes in self.changed.items()
            },
            "same": self.same,
        }


def diff_rows(before: _Rows, after: _Rows) -> TestsetDiff:
    """Return the differences from one test set to another one; see `Testset.diff`."""
    later = {row.id: row for row in after.rows}
    by_question = {row.question: row for row in after.rows if row.id not in {old.id for old in before.rows}}
    pairs = [(old, later.get(old.id) or by_question.get(old.question)) for old in before.rows]
    found = {new.id for _, new in pairs if new is not None}
    changes = {old.id: _changes(old, new) for old, new in pairs if new is not None}
    changed = {name: fields for name, fields in changes.items() if fields}
    return TestsetDiff(
        before=before.version,
        after=after.version,
        added=[row for row in after.rows if row.id not in found],
        dropped=[old for old, new in pairs if new is None],
        changed=changed,
        same=len(changes) - len(changed),
    )


def _changes(before: TestsetRow, after: TestsetRow) -> dict[str, tuple[Any, Any]]:
    old, new = (row.model_dump(mode="json", fallback=str, exclude=_NOT_COMPARED) for row in (before, after))
    return {name: (value, new.get(name)) for name, value in old.items() if value != new.get(name)}


def _short(value: Any) -> str:
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    return shorten(" | ".join(map(str, items)), _WIDTH, placeholder="…")
