"""SqliteSink: write scores to a table of an SQLite file, for SQL queries while the chain runs."""

from __future__ import annotations

from pathlib import Path

from langchain_rageval._internal.sqlite_file import SqliteFile
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.score_table import prepare_table, write_scores


class SqliteSink:
    """Writes each score to the table `scores` of an SQLite file. Threads and processes may share the file.

    `Report.load` reads the file. `langchain_rageval.report.score_table.COLUMNS` lists the columns. Scores that are
    written again replace the earlier ones. The file is opened at the first row, closed before a fork, and reopened
    after it. It is in WAL mode, so readers never wait.

    Args:
        path: path of the file, which may hold other tables; the file and its folder are created if missing.

    Raises:
        ConfigError: if the path is a folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; pass the path of a file")
        self._file = SqliteFile(self.path, prepare_table)

    def __repr__(self) -> str:
        """Return the sink as text: its class and the path of the file."""
        return f"SqliteSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Write the scores of a row in one transaction; they survive a crash of the process.

        Raises:
            sqlite3.Error: if the row cannot be written; the file is then unchanged.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open() as connection, connection:
            write_scores(connection, row)

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        self._file.close()
