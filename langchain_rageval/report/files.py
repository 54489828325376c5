"""A report on disk: JSON lines, the first about the run, then one row each."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_rageval._version import __version__
from langchain_rageval.errors import ConfigError
from langchain_rageval.schema import Row

_HEAD = "rageval_report"


def write_report(path: str | Path, rows: Iterable[Row], head: Mapping[str, Any]) -> None:
    """Write beside the target first and then put it in place, so that nothing half-written is ever there.

    Raises:
        ConfigError: if the place cannot be written to.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} cannot be written: it is no file; choose another place")
    first = json.dumps({_HEAD: {"version": __version__, **head}}, ensure_ascii=False)
    try:
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(first + "\n")
                file.writelines(row.model_dump_json(fallback=str) + "\n" for row in rows)
            os.chmod(beside, 0o644)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another place") from None


def read_report(path: str | Path) -> tuple[list[Row], Mapping[str, Any]]:
    """Rows and head of a report.

    Raises:
        ConfigError: if the file is not there, or is no report.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a file that Report.to_jsonl wrote") from None
    head = _head(path, lines[0])
    return [_row(path, number, line) for number, line in enumerate(lines[1:], 2) if line], head


def _head(path: str | Path, line: str) -> Mapping[str, Any]:
    try:
        head = dict(json.loads(line)[_HEAD])
        head["notes"] = [str(note) for note in head.get("notes", [])]
        head["complete"] = bool(head.get("complete", True))
        return head
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path} is no report: its first line lacks {_HEAD!r}; Report.to_jsonl writes it") from None


def _row(path: str | Path, number: int, line: str) -> Row:
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        where: Sequence[Any] = problem["loc"]
        raise ConfigError(
            f"{path}, line {number}: no row of a report: {'.'.join(map(str, where))}: {problem['msg']}"
        ) from None
