"""The table `scores` of an SQLite file, which `SqliteSink` writes and `Report.load` reads."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_rageval.data.schema import Failure, Finding, Row, Sample, Score, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import begins_with

COLUMNS: Mapping[str, tuple[str, Callable[[Row, Score], Any]]] = {
    "run_id": ("TEXT NOT NULL", lambda row, _: str(row.sample.metadata.get("run_id", row.sample.id))),
    "metric": ("TEXT NOT NULL", lambda _, score: score.metric),
    "written": ("REAL NOT NULL", lambda row, _: row.time.timestamp() if row.time else time.time()),
    "value": ("REAL", lambda _, score: score.value),
    "unscored": ("TEXT", lambda _, score: score.unscored),
    "error": ("TEXT", lambda _, score: score.failure and score.failure.error),
    "message": ("TEXT", lambda _, score: score.failure and score.failure.message),
    "reason": ("TEXT", lambda _, score: score.reason),
    "aspect": ("TEXT", lambda _, score: score.aspect),
    "direction": ("TEXT", lambda _, score: score.direction),
    "instrument": ("TEXT", lambda _, score: score.instrument),
    "calls": ("INTEGER", lambda _, score: score.usage.calls),
    "input_tokens": ("INTEGER", lambda _, score: score.usage.input_tokens),
    "output_tokens": ("INTEGER", lambda _, score: score.usage.output_tokens),
    "seconds": ("REAL", lambda _, score: score.usage.seconds),
    "question": ("TEXT", lambda row, _: row.sample.question),
    "answer": ("TEXT", lambda row, _: row.sample.answer),
    "contexts": ("TEXT", lambda row, _: _json(row.sample.contexts)),
    "metadata": ("TEXT", lambda row, _: _json(row.sample.metadata)),
    "findings": ("TEXT", lambda _, score: _json([finding.model_dump() for finding in score.findings])),
    "sample_id": ("TEXT", lambda row, _: row.sample.id),
    "tags": ("TEXT", lambda row, _: _json(row.tags)),
    "history": ("TEXT", lambda row, _: _json([turn.model_dump() for turn in row.sample.history] or None)),
    "money": ("REAL", lambda _, score: score.usage.money),
    "retrieved": ("TEXT", lambda row, _: _json(row.sample.retrieved)),
    "asked": ("INTEGER", lambda row, score: int(score.metric in row.asked)),
}
"""Columns of the table `scores` with their SQL types and what they hold. The primary key is (run_id, metric).

`written` is the time of scoring in seconds since 1970. Exactly one of `value`, `unscored` and `error` is not NULL.
`contexts`, `retrieved`, `metadata`, `findings`, `tags` and `history` are JSON; `history` is NULL outside of
conversations, `retrieved` where it is unknown or equal to `contexts`. `asked` is 1 if a model was asked
anew, see `Row`.
"""

_ADDED = ("sample_id", "tags", "history", "money", "retrieved", "asked")  # missing in files of version 0.1.0


def prepare_table(connection: sqlite3.Connection) -> None:
    """Create the table `scores`, or add the columns that the table of an earlier version lacks."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    connection.execute(f"CREATE TABLE IF NOT EXISTS scores ({columns}, PRIMARY KEY (run_id, metric)) WITHOUT ROWID")
    for name in _ADDED:
        if name not in _columns_of(connection):
            connection.execute(f"ALTER TABLE scores ADD COLUMN {name} {COLUMNS[name][0]}")


def write_scores(connection: sqlite3.Connection, row: Row) -> None:
    """Write the scores of a row in one transaction; they replace earlier scores of the row by the same metrics."""
    values = [tuple(value(row, score) for _, value in COLUMNS.values()) for score in row.scores.values()]
    places = ", ".join("?" * len(COLUMNS))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(f"INSERT OR REPLACE INTO scores ({', '.join(COLUMNS)}) VALUES ({places})", values)


def is_sqlite(path: str | Path) -> bool:
    """Return True if a file begins like an SQLite file."""
    return begins_with(path, b"SQLite format 3\x00")


def read_score_table(path: str | Path) -> list[Row]:
    """Return the rows of the table `scores` in an SQLite file, in the order in which they were written.

    Another process may write to the file at the same time. Each run of a chain is one row. The samples have no
    references, because the table does not store references.

    Raises:
        ConfigError: if the file cannot be read or has no table of this package.
    """
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            if COLUMNS.keys() - _columns_of(connection) - set(_ADDED):
                raise ConfigError(
                    f"{path} has no scores of a SqliteSink; load a file that SqliteSink or Report.to_jsonl wrote"
                )
            records = connection.execute("SELECT * FROM scores ORDER BY run_id, metric").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read: {error}; load a file that SqliteSink wrote") from None
    rows = [_row(path, list(scores)) for _, scores in groupby(records, key=lambda record: record["run_id"])]
    rows.sort(key=lambda row: (row.time or datetime.min.replace(tzinfo=UTC), row.sample.id))
    return [row.model_copy(update={"index": index}) for index, row in enumerate(rows)]


def _columns_of(connection: sqlite3.Connection) -> set[str]:
    return {str(column[1]) for column in connection.execute("PRAGMA table_info(scores)")}


def _row(path: str | Path, records: list[sqlite3.Row]) -> Row:
    """Return the row of one run from its scores."""
    first = dict(records[0])
    try:
        metadata = json.loads(first["metadata"] or "{}")
        sample = Sample(
            id=first.get("sample_id") or first["run_id"],
            question=first["question"] or "",
            history=json.loads(first.get("history") or "[]"),
            answer=first["answer"],
            contexts=json.loads(first["contexts"] or "null"),
            retrieved=json.loads(first.get("retrieved") or "null"),
            metadata={"run_id": first["run_id"], **metadata},
        )
        scores = {str(record["metric"]): _score(dict(record)) for record in records}
        when = datetime.fromtimestamp(max(record["written"] for record in records), UTC)
        asked = [str(record["metric"]) for record in records if dict(record).get("asked")]
        tags = json.loads(first.get("tags") or "{}")
        return Row(index=0, sample=sample, scores=scores, time=when, asked=asked, tags=tags)
    except (ValidationError, ValueError, TypeError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(f"{path}, run {first['run_id']}: not a row of a report: {problem}") from None


def _score(record: dict[str, Any]) -> Score:
    tokens = {name: record.get(name) for name in ("input_tokens", "output_tokens", "money")}
    error = record["error"]
    return Score(
        metric=record["metric"],
        aspect=record["aspect"] or "",
        direction=record["direction"] or "higher",
        value=record["value"],
        reason=record["reason"] or "",
        findings=[Finding(**finding) for finding in json.loads(record["findings"] or "[]")],
        unscored=record["unscored"],
        failure=None if error is None else Failure(error=error, message=record["message"] or ""),
        usage=Usage(calls=record["calls"] or 0, seconds=record["seconds"] or 0.0, **tokens),
        instrument=record["instrument"] or "",
    )


def _json(value: Any) -> str | None:
    """Return JSON with non-ASCII characters as they are; values without a JSON form become text."""
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
