"""Write and read reports as files in JSON lines, and return their rows as DataFrames.

The first line of a file is the head with notes and state of the run; a line for each row follows.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TextIO

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from langchain_rageval._internal.page import pluralize
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.data.notes import note_of, notes_as_json
from langchain_rageval.data.schema import Row, Usage, without_surrogates
from langchain_rageval.errors import ConfigError, list_choices

if TYPE_CHECKING:
    import pandas


Outcome = Literal["passed", "failed", "better", "no worse", "worse", "precise", "undecided"]
Bound = Literal["low", "high", ""]
"""End of an interval that proves a verdict; "" if both do, or none."""


@dataclass(frozen=True)
class Decision:
    """Result for one metric of a run with a stopping rule (the option `until=` of `evaluate`): verdict and interval.

    The interval is for the mean over all samples of the run that have a score, or for the mean gain over the baseline.
    The run checks the interval after each sample and may stop after any; the interval allows for this (confidence
    sequence), so that wrong verdicts are no more likely than `error`. A gate uses only one of the two ends.

    Attributes:
        verdict: "passed" or "failed" for a gate; "better", "no worse" or "worse" than a baseline; "precise" if the
            interval became narrow enough; "undecided" if the samples or the budget ended first.
        low: lower end of the interval.
        high: upper end of the interval.
        samples: number of samples that the interval is computed from.
        error: the option `error` of the stopping rule. With the rule `Decided`, it bounds two probabilities: that all
            gates of the run pass although one should fail, and that any gate fails although it should pass. With the
            rule `Precise` (stop when the intervals are narrow enough), it bounds the probability that any interval does
            not contain its mean.
        required: the requirement, such as "at least 0.8".
        known: end of the interval that proves the verdict, "low" or "high"; "" if both ends do, or neither does.
    """

    verdict: Outcome
    low: float
    high: float
    samples: int
    error: float
    required: str = ""
    known: Bound = ""

    def __str__(self) -> str:
        """Return verdict, the bound that proves it or the interval, requirement and number of samples as text."""
        required = f", {self.required}" if self.required else ""
        interval = f" [{self.low:.3f}, {self.high:.3f}]"
        found = {"low": f": at least {self.low:.3f}", "high": f": at most {self.high:.3f}"}.get(self.known, interval)
        return f"{self.verdict}{found}{required}, after {pluralize(self.samples, 'sample')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as a dict for JSON, with the attributes of the decision as keys."""
        return asdict(self)


@dataclass(frozen=True)
class Canaries:
    """Result of testing the run's judges on statements with known verdicts.

    Attributes:
        asked: number of test statements, over all judges.
        right: number of right verdicts.
        failed: names of the judges with at least three errors in eight statements, or four in twenty-four. A judge with
            one or two errors in eight statements is asked sixteen more.
        usage: calls, tokens and seconds of the check.
    """

    asked: int
    right: int
    failed: Sequence[str]
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, repr=False)
class ReportData:
    """Data of a report: the scored samples in the order of the input, and facts about the run.

    Attributes:
        rows: one row for each sample; a list, or a sequence that reads the rows from a file.
        notes: remarks that limit or explain the numbers, such as that the offline judge (word overlap) gave scores.
        complete: False if the run was interrupted.
        left_out: pairs of sample index and metric name, one for each score that was not computed, because it did not
            fit the budget, or because a run with a stopping rule (`until=` of `evaluate`) did not need it.
        provenance: configurations (judge, prompts, options) that produced the scores; `Report.instruments` lists them
            by metric.
        decisions: mapping of a metric to the decision of a run with a stopping rule; empty for other runs.
        unreadable: number of input records that are not valid samples; these records have no rows.
        canaries: verdicts of the judges on test statements with known verdicts; None if the judges were not tested.
        asked_again: calls, tokens and seconds for scoring rows of a baseline a second time, see `rageval ci --anchors`.
        name: name of the run: the name of the file from which the report was first loaded; "" before.
        finished: when the run ended, UTC, in ISO 8601; "" if it is unknown.
        version: version of the package that scored; "" if it is unknown.
    """

    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    left_out: list[tuple[int, str]] = field(default_factory=list)
    provenance: Provenance = field(default_factory=Provenance, compare=False)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    unreadable: int = field(default=0, kw_only=True)
    canaries: Canaries | None = field(default=None, kw_only=True)
    asked_again: Usage = field(default_factory=Usage, kw_only=True)
    name: str = field(default="", compare=False)
    finished: str = field(default="", compare=False)
    version: str = field(default="", compare=False)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def head_of(data: ReportData) -> Mapping[str, Any]:
    """Return the head of a report's file: a mapping with the facts about the run, for the first line of the file.

    The keys are attributes of `ReportData`, except that `instruments` holds the `provenance`. `notes`, `complete`,
    `left_out` and `instruments` are always there; other facts only if they are known and not empty.
    """
    known = {key: value for key in ("version", "name", "finished") if (value := getattr(data, key))}
    run = {"notes": data.notes, "complete": data.complete, "left_out": data.left_out}
    decisions = {name: decision.to_dict() for name, decision in data.decisions.items()}
    canaries = _adapter(Canaries).dump_python(data.canaries, mode="json") if data.canaries is not None else {}
    again = data.asked_again.model_dump() if data.asked_again.calls else {}
    more = {"decisions": decisions, "unreadable": data.unreadable, "canaries": canaries, "asked_again": again}
    return {**known, **run, "instruments": data.provenance.as_json(), **{key: one for key, one in more.items() if one}}


def instruments_of(data: ReportData) -> dict[str, list[Instrument]]:
    """Return for each metric the configurations (judge, prompts, options) that gave scores, in order of appearance."""
    digests: dict[str, dict[str, None]] = {}
    for row in data.rows:
        for name, score in row.scores.items():
            digests.setdefault(name, {})[score.instrument] = None
    return {name: [data.provenance.instrument(name, one) for one in found] for name, found in digests.items()}


def judge_names(data: ReportData, metric: str | None = None) -> list[str]:
    """Return the names of the judges of a metric, by default of all metrics, in order of appearance."""
    known = instruments_of(data)
    found = known.get(metric, []) if metric is not None else [one for own in known.values() for one in own]
    return list(dict.fromkeys(name for one in found for name in one.judges))


def metric_names(data: ReportData) -> list[str]:
    """Return the names of the metrics, in the order in which the rows have them."""
    return list(dict.fromkeys(name for row in data.rows for name in row.scores))


def check_metric(data: ReportData, metric: str) -> None:
    """Raise ConfigError if the report has no such metric."""
    names = metric_names(data)
    if metric not in names:
        raise ConfigError(f"the report has no metric {metric!r}; it has {list_choices(metric, names)}")


def metric_or_only(data: ReportData, metric: str | None) -> str:
    """Return the name of the metric; if `metric` is None, the name of the only metric of the report.

    Raises:
        ConfigError: if the report has no such metric, or if `metric` is None and the report has several metrics or
            none.
    """
    if metric is not None:
        check_metric(data, metric)
        return metric
    names = metric_names(data)
    if len(names) != 1:
        raise ConfigError(f"name the metric; the report has {', '.join(names) or 'none'}")
    return names[0]


def to_data_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    """Return a pandas DataFrame with one line for each row of a report; see `Report.to_pandas`."""
    import pandas

    return pandas.DataFrame([_record(row) for row in rows])


def _record(row: Row) -> dict[str, Any]:
    sample = row.sample
    record: dict[str, Any] = {"id": sample.id, "question": sample.question, "answer": sample.answer}
    record |= {"contexts": sample.contexts, "references": sample.references}
    record |= {f"metadata.{name}": value for name, value in sample.metadata.items()}
    for name, score in row.scores.items():
        without = score.comment if score.value is None else None
        record |= {name: score.value, f"{name}.reason": score.reason, f"{name}.without": without}
    return record


Head = Mapping[str, Any]
"""Data of a report about its run: `notes`, `complete`, `left_out` and `instruments`."""

State = tuple[int, int]
"""Size of a file in bytes, and time of its last change in nanoseconds."""

_HEAD = "rageval_report"
HEAD = f'{{"{_HEAD}":'.encode()
"""First bytes of a head line."""

_INDEX = re.compile(rb'\{"index":(\d+),')


class RowsOnDisk(Sequence[Row]):
    """Sequence of the rows in a report's file, in the order of the samples; a row is read when it is accessed.

    The file stays open, so the rows remain readable if the file is replaced or removed. Thread-safe.

    Args:
        path: path of the file.
        offsets: offset of each row in bytes, in the order of the samples.
        state: size of the file in bytes and time of its last change in nanoseconds, when the offsets were computed.

    Raises:
        ConfigError: if the file does not exist, or has changed since the offsets were computed.
    """

    def __init__(self, path: Path, offsets: Sequence[int], state: State) -> None:
        self._path = path
        self._offsets = offsets
        self._state = state
        self._lock = threading.Lock()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read: {error.strerror}; restore the file, which holds the rows of the report"
            ) from None
        if _state(self._file) != state:
            self._file.close()
            raise ConfigError(f"{path} has changed; load the report again")

    def __len__(self) -> int:
        """Return the number of rows in the file."""
        return len(self._offsets)

    def __getitem__(self, place: Any) -> Any:
        """Return one row of the file, or a list of rows for a slice."""
        if isinstance(place, slice):
            return list(map(self._read, self._offsets[place]))
        return self._read(self._offsets[place])

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows, with one in memory at a time."""
        return map(self._read, self._offsets)

    def __eq__(self, other: object) -> bool:
        """Return True if the rows are equal, in a file or in a list."""
        if not isinstance(other, RowsOnDisk | list):
            return NotImplemented
        return len(self) == len(other) and all(own == its for own, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the sequence as text: the number of rows and the path of the file."""
        return f"<{pluralize(len(self), 'row')} in {self._path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to path, offsets and state; a copy opens the file again."""
        return RowsOnDisk, (self._path.absolute(), self._offsets, self._state)

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()

    def _read(self, offset: int) -> Row:
        with self._lock:
            self._file.seek(offset)
            line = self._file.readline()
        return _row(self._path, line, lambda: self._number_of(offset))

    def _number_of(self, offset: int) -> int:
        """Return the number of the line at an offset."""
        with self._lock:
            self._file.seek(0)
            return self._file.read(offset).count(b"\n") + 1


class ReportFile:
    """File of a report that is written during the run; it is named `<name>.part` until the run ends.

    If the process is killed, the `.part` file holds the finished rows, and `Report.load` reads it.

    Args:
        path: path of the report. An existing file is replaced when the run ends.

    Raises:
        ConfigError: if the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self._target = Path(path)
        self._part = self._target.with_name(f"{self._target.name}.part")
        self._indexes, self._offsets = array("q"), array("q")
        with _writing(self._target):
            # A buffer would be flushed again on close, and fail again on a full disk.
            self._file = self._part.open("wb", buffering=0)
        try:
            self._write(head_line({"notes": [], "complete": False, "left_out": [], "instruments": {}}))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        """Return the file, for use in a `with` block."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the file without renaming it."""
        self._file.close()

    def append(self, row: Row) -> None:
        """Write a row. The data is passed to the operating system before the method returns."""
        offset = self._file.tell()
        self._write(row_line(row))
        self._indexes.append(row.index)
        self._offsets.append(offset)

    @property
    def indexes(self) -> set[int]:
        """Indexes of the samples that are already in the file."""
        return set(self._indexes)

    def finish(self, head: Head) -> RowsOnDisk:
        """Write the final head (a line of facts about the run), rename the file to its final name, and return its rows.

        The final head overrides the provisional head in the first line of the file.
        """
        self._write(head_line(head))
        state = _state(self._file)
        with _writing(self._target):
            self._file.close()
            os.replace(self._part, self._target)
        return RowsOnDisk(self._target, _ordered(self._indexes, self._offsets), state)

    def discard(self) -> None:
        """Remove the `.part` file; an existing report at the final path is unchanged."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        left = memoryview(line.encode())
        with _writing(self._target):
            while left:
                left = left[self._file.write(left) :]


def write_report(path: str | Path | TextIO, rows: Iterable[Row], head: Head) -> None:
    """Write a report to a temporary file and rename it, so that the target is never half-written.

    Args:
        path: path of the file; or an open text file, which stays open.
        rows: rows of the report.
        head: facts about the run for the first line, such as notes and version; see `head_of`.

    Raises:
        ConfigError: if the file cannot be written.
    """
    lines = chain([head_line(head)], map(row_line, rows))
    if not isinstance(path, str | Path):
        path.writelines(lines)
        return
    target = Path(path)
    with _writing(target):
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
            os.chmod(beside, 0o644)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise


def begins_with(path: str | Path, start: bytes) -> bool:
    """Return True if a file begins with these bytes; False if not, or if the file cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(start)) == start
    except OSError:
        return False


def is_report(path: str | Path) -> bool:
    """Return True if a file begins like a report of `write_report`."""
    return begins_with(path, HEAD)


def read_report(path: str | Path) -> tuple[RowsOnDisk, Head]:
    """Return the rows and the head of a report file; for an interrupted run, the rows that are complete in the file.

    The head is a mapping with facts about the run, such as `notes`, `complete` and `version`.

    Raises:
        ConfigError: if the file does not exist or is not a report.
    """
    indexes, offsets = array("q"), array("q")
    try:
        with Path(path).open("rb") as file:
            line = file.readline()
            if not line:
                raise ConfigError(f"{path} is empty: nothing was written to it yet")
            head, at = _head(path, line), len(line)
            for number, line in enumerate(file, 2):
                if not head["complete"] and not line.endswith(b"\n"):
                    break
                if line.startswith(HEAD):
                    head = _head(path, line)
                elif line.strip():
                    match = _INDEX.match(line)
                    indexes.append(int(match[1]) if match else _row(path, line, partial(int, number)).index)
                    offsets.append(at)
                at += len(line)
            state = _state(file)
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} cannot be read: {problem}; name a file of --out, Report.to_jsonl or a sink"
        ) from None
    return RowsOnDisk(Path(path), _ordered(indexes, offsets), state), head


def _state(file: IO[bytes]) -> State:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _ordered(indexes: array[int], offsets: array[int]) -> array[int]:
    """Return the offsets of the rows in the order of their indexes; for a repeated index, the last offset."""
    places = np.unique(np.asarray(indexes)[::-1], return_index=True)[1]
    return array("q", np.asarray(offsets)[::-1][places].tobytes())


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} cannot be written: it is not a file; choose another path")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another path") from None


def head_line(head: Head) -> str:
    """Return the head of a report as a line of JSON, the first line of its file.

    The head is a mapping with facts about the run, such as `notes`, `complete` and `version`.
    """
    notes = notes_as_json(head.get("notes", ()))
    return json.dumps({_HEAD: {"version": __version__, **head, "notes": notes}}, ensure_ascii=False) + "\n"


def row_line(row: Row) -> str:
    """Return a row as a line of JSON; metadata that JSON cannot represent are written as text."""
    exclude = {name for name in ("audit", "asked") if not getattr(row, name)}
    try:
        return row.model_dump_json(fallback=_text, exclude=exclude) + "\n"
    except PydanticSerializationError:
        sample = row.sample.model_copy(update={"metadata": _writable(row.sample.metadata)})
        return row.model_copy(update={"sample": sample}).model_dump_json(fallback=_text, exclude=exclude) + "\n"


def _writable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with values that JSON cannot represent as text: they must not prevent writing a report."""
    writable = {}
    for name, value in metadata.items():
        try:
            writable[name] = from_json(to_json(value, fallback=_text))
        except ValueError:
            writable[name] = _text(value)
    return writable


def _text(value: Any) -> str:
    return str(without_surrogates(str(value)))


def _head(path: str | Path, line: bytes) -> Head:
    try:
        head = dict(json.loads(line)[_HEAD])
        return {
            **{key: str(head.get(key, "")) for key in ("name", "finished", "version")},
            "notes": [note_of(note) for note in head.get("notes", [])],
            "complete": bool(head.get("complete", True)),
            "left_out": [(int(index), str(metric)) for index, metric in head.get("left_out", [])],
            "provenance": Provenance.load(head.get("instruments")),
            "decisions": _adapter(dict[str, Decision]).validate_python(head.get("decisions") or {}),
            "unreadable": int(head.get("unreadable", 0)),
            "canaries": _adapter(Canaries | None).validate_python(head.get("canaries") or None),
            "asked_again": Usage.model_validate(head.get("asked_again") or {}),
        }
    except UnicodeDecodeError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"{path} is not a report: its first line lacks {_HEAD!r}; Report.to_jsonl writes it"
        ) from None


def _row(path: str | Path, line: bytes, number: Callable[[], int]) -> Row:
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        location = ".".join(map(str, problem["loc"])) or "JSON"
        raise ConfigError(f"{path}, line {number()}: not a row of a report: {location}: {problem['msg']}") from None
