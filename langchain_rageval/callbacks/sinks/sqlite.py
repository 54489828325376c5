"""SqliteSink: write scores to a table of an SQLite file, for SQL queries while the chain runs."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from langchain_rageval._internal.sqlite_file import SqliteFile
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import ConfigError

COLUMNS = {
    "run_id": "TEXT NOT NULL",
    "metric": "TEXT NOT NULL",
    "written": "REAL NOT NULL",
    "value": "REAL",
    "unscored": "TEXT",
    "error": "TEXT",
    "message": "TEXT",
    "reason": "TEXT",
    "aspect": "TEXT",
    "direction": "TEXT",
    "instrument": "TEXT",
    "calls": "INTEGER",
    "input_tokens": "INTEGER",
    "output_tokens": "INTEGER",
    "seconds": "REAL",
    "question": "TEXT",
    "answer": "TEXT",
    "contexts": "TEXT",
    "metadata": "TEXT",
    "findings": "TEXT",
}
"""Columns of the table `scores` with their SQL types. The primary key is (run_id, metric).

`written` is the time in seconds since 1970. Exactly one of `value`, `unscored` and `error` is not NULL. `contexts`,
`metadata` and `findings` are JSON.
"""


class SqliteSink:
    """Writes each score to the table `scores` of an SQLite file. Threads and processes may share the file.

    `COLUMNS` lists the columns. Scores that are written again replace the earlier ones. The file is opened at the first
    row, and reopened after a fork. It is in WAL mode, so readers never wait.

    Args:
        path: path of the file, which may hold other tables; the file and its folder are created if missing.

    Raises:
        ConfigError: if the path is a folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; pass the path of a file")
        self._file = SqliteFile(self.path, _prepare)

    def __repr__(self) -> str:
        """Return the sink as text: its class and the path of the file."""
        return f"SqliteSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Write the scores of a row in one transaction; they survive a crash of the process.

        Raises:
            sqlite3.Error: if the row cannot be written; the file is then unchanged.
        """
        written = time.time()
        values = [tuple(_column_values(row.sample, score, written).values()) for score in row.scores.values()]
        places = ", ".join("?" * len(COLUMNS))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"INSERT OR REPLACE INTO scores ({', '.join(COLUMNS)}) VALUES ({places})", values)

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        self._file.close()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    connection.execute(f"CREATE TABLE IF NOT EXISTS scores ({columns}, PRIMARY KEY (run_id, metric)) WITHOUT ROWID")


def _column_values(sample: Sample, score: Score, written: float) -> dict[str, Any]:
    """Return the values of a score by column, in the order of `COLUMNS`."""
    failure, usage = score.failure, score.usage
    return {
        "run_id": str(sample.metadata.get("run_id", sample.id)),
        "metric": score.metric,
        "written": written,
        "value": score.value,
        "unscored": score.unscored,
        "error": failure and failure.error,
        "message": failure and failure.message,
        "reason": score.reason,
        "aspect": score.aspect,
        "direction": score.direction,
        "instrument": score.instrument,
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "seconds": usage.seconds,
        "question": sample.question,
        "answer": sample.answer,
        "contexts": _json(sample.contexts),
        "metadata": _json(sample.metadata),
        "findings": _json([finding.model_dump() for finding in score.findings]),
    }


def _json(value: Any) -> str | None:
    """Return JSON with non-ASCII characters as they are; values without a JSON form become text."""
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
