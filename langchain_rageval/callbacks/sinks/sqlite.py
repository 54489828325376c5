"""SqliteSink: scores in an SQLite file, one row each, to be asked in SQL while the chain runs."""

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
"""Of the table `scores`, whose key is run_id and metric.

`written` is seconds since 1970; of `value`, `unscored` and `error` exactly one is there; `contexts`, `metadata` and
`findings` are JSON.
"""


class SqliteSink:
    """Writes each score of a row to the table `scores` of an SQLite file. Usable from threads and by several processes.

    The columns are listed in `COLUMNS`. A run that is written again replaces its earlier row.
    The file is opened when the first row comes, and anew after a fork; it stands in WAL mode, so readers never wait.

    Args:
        path: of the file, which may hold tables of yours; made, like its folder, if it is not there.

    Raises:
        ConfigError: if the path is a folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; name a file in it")
        self._file = SqliteFile(self.path, _prepare)

    def __repr__(self) -> str:
        """The place."""
        return f"SqliteSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Write a row; it is on its way to the disk when this returns.

        Raises:
            sqlite3.Error: if it cannot be written; then nothing of it is.
        """
        written = time.time()
        values = [tuple(told(row.sample, score, written).values()) for score in row.scores.values()]
        places = ", ".join("?" * len(COLUMNS))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(f"INSERT OR REPLACE INTO scores ({', '.join(COLUMNS)}) VALUES ({places})", values)

    def close(self) -> None:
        """Close the file; it opens again when it is used."""
        self._file.close()


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    connection.execute(f"CREATE TABLE IF NOT EXISTS scores ({columns}, PRIMARY KEY (run_id, metric)) WITHOUT ROWID")


def told(sample: Sample, score: Score, written: float) -> dict[str, Any]:
    """A score as the columns have it."""
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
    """JSON that keeps its letters; what it cannot hold goes in as text."""
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
