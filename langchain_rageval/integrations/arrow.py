"""Arrow tables: `score_batch` scores the rows of one table, for Spark, Dask, DuckDB and other engines that map tables.

A table of scores has one row for each row of samples, in the same order. The columns do not depend on the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import reduce
from operator import itemgetter, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from langchain_core.runnables import Runnable, RunnablePassthrough
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from langchain_rageval._internal.cached import PerProcess
from langchain_rageval.data.field_names import check_fields
from langchain_rageval.data.instrument import Provenance
from langchain_rageval.data.loading import Fields, SampleIds, parse_record
from langchain_rageval.data.notes import code_of
from langchain_rageval.data.schema import Row, Sample, Score, Usage
from langchain_rageval.errors import ConfigError, JudgeUnavailable, SampleError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, MixedMeasures
from langchain_rageval.evaluation.job import STOPPED
from langchain_rageval.evaluation.options import StreamOptions
from langchain_rageval.metrics.structure import failure_scores, names_of
from langchain_rageval.report.files import head_of
from langchain_rageval.report.free_checks import FreeChecks
from langchain_rageval.report.report import Report
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.run import CALL_DEFAULTS, CallOptions, fill_defaults

if TYPE_CHECKING:
    import pyarrow

MakeMetrics = Callable[[], AnyMetric | Sequence[AnyMetric]]

TEXTS = ("id", "question", "answer")
LISTS = (
    *("contexts", "references", "reference_contexts", "context_ids", "reference_context_ids"),
    *("retrieved", "retrieved_ids"),
)
JSON = ("relevance", "metadata")
COLUMNS = ("index", *TEXTS, *LISTS, *JSON, "scores", "notes")
_LATER_COLUMNS = ("time", "asked", "run")  # which tables of earlier versions lack
_METRIC_SUFFIXES = ("", "_reason", "_unscored", "_failure")
_SCORES = TypeAdapter(dict[str, Score])
_MOST_SCORERS = 4  # in a process
_SCORERS: PerProcess[dict[Any, BatchScorer]] = PerProcess(dict)
_COUNTED = ("budget-spent", "budget-spent-unread", "random-order", "file-order")  # notes of each batch alone


def score_batch(
    table: pyarrow.Table,
    make_metrics: MakeMetrics,
    *,
    fields: Fields | None = None,
    index: str | None = None,
    journal: str | Path | None = None,
    **calls: Unpack[CallOptions],
) -> pyarrow.Table:
    """Score the rows of an Arrow table, in this process.

    Calls with the same arguments in one process share the metrics, which are built once, and one limiter of model
    calls. The limiter remembers which rate the endpoint allows and which judge does not answer.

    Args:
        table: rows with any field names that `Sample.parse` reads.
        make_metrics: function that builds judge and metrics, and returns the metrics.
        fields: mapping of fields of Sample to column names or dotted paths.
        index: name of the column with the place of each row in the whole data set, a whole number of at least 0; the
            place is not part of the sample.
        journal: path of an SQLite file for finished scores, as in `evaluate`.
        **calls: `max_concurrency`, `timeout`, `retry` and `price` of the model calls, as in `evaluate`.

    Returns:
        One row for each row of the table, in the same order: the fields of the sample, and for each metric its value
        and texts; see `evaluate_dataset` for all columns. If a row cannot be read or scored, the columns hold a
        failure.

    Raises:
        ConfigError: if an argument is invalid.
    """
    options = options_of(fill_defaults(score_batch, calls, CALL_DEFAULTS), make_metrics, fields, journal)
    scorers, key = _SCORERS.value, (make_metrics, repr(sorted(options.items())), repr(fields), index)
    if key not in scorers:
        while len(scorers) >= _MOST_SCORERS:
            scorers.pop(next(iter(scorers)), None)
        scorers[key] = BatchScorer(make_metrics, options, fields or {}, index)
    return scorers[key](table)


def options_of(
    calls: CallOptions, make_metrics: Any, fields: Fields | None, journal: str | Path | None, **more: Any
) -> StreamOptions:
    """Check arguments of `score_batch` or `evaluate_dataset`; return them, with `more`, as options for `evaluate`.

    Raises:
        ConfigError: if an argument is invalid.
    """
    if not callable(make_metrics) or isinstance(make_metrics, Runnable):
        kind = type(make_metrics).__name__
        raise ConfigError(f"make_metrics must be a function that builds the metrics in a worker, got {kind}")
    if not isinstance(journal, str | Path | None):
        raise ConfigError(f"journal must be the path of a file, got {type(journal).__name__}")
    check_fields(fields or {})
    options: StreamOptions = {**calls, "journal": journal and Path(journal).absolute(), **more}  # type: ignore[typeddict-item]
    Evaluation(RunnablePassthrough(), {**options, "journal": None})  # raises on invalid options
    return options


class BatchScorer:
    """Scores several tables with one set of metrics; all tables share one limit of model calls.

    Args:
        make_metrics: function that builds the metrics.
        options: options of `evaluate`; the journal is a path.
        fields: mapping of fields of Sample to column names or dotted paths.
        index: name of the column with the place of each row in the whole data set; None if there is no such column.

    Raises:
        ConfigError: if a metric or an option is invalid, or a metric's column has the name of another column.
    """

    def __init__(self, make_metrics: MakeMetrics, options: StreamOptions, fields: Fields, index: str | None) -> None:
        path = options.get("journal")
        journal = Journal(path) if isinstance(path, Path) else path
        self.evaluation = Evaluation(make_metrics(), {**options, "journal": journal})
        self._fields = fields
        self._index = index
        self._names = [name for metric in self.evaluation.metrics for name in names_of(metric)]
        _schema(self._names)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Return the rows of a batch with scores, in the same order, as Ray requires when it repeats a batch."""
        import pyarrow

        records = batch.to_pylist()
        places = [None if self._index is None else _pop_index(record, self._index) for record in records]
        parsed = [self._parse(record, place) for record, place in zip(records, places, strict=True)]
        job = self.evaluation.part(self.evaluation.run.metered())
        ids = SampleIds()  # two questions may have one id
        with closing(job.rows([error or ids.distinct(sample) for sample, error in parsed])) as rows:
            report = job.build_report(list(rows))
        rows_by_place = {row.index: row for row in report.rows}
        stopped = next((note for note in report.notes if code_of(note) in STOPPED), "")
        recomputed = {*job.notes_on_rows()}  # by `report_of_table`, over all batches
        notes = [note for note in report.notes if note not in recomputed and code_of(note) not in _COUNTED]
        if job.left_out:
            notes.append(f"The budget of {job.run.governor.budget} is spent; scores without a value were left out.")
        lines = []
        for number, ((sample, _), place) in enumerate(zip(parsed, places, strict=True)):
            left_out = {name for at, name in job.left_out if at == number}
            row = rows_by_place.get(number)
            whole = self._complete(row.scores if row else {}, stopped, left_out)
            more = {"time": row.time and row.time.isoformat(), "asked": row.asked} if row else {"asked": []}
            lines.append(_line(whole, sample, place) | more | {"notes": notes})
        if lines:
            head = head_of(report)
            lines[0]["run"] = to_json({key: head[key] for key in ("version", "finished", "instruments")}).decode()
        names = list(dict.fromkeys([*self._names, *(name for row in report.rows for name in row.scores)]))
        return pyarrow.Table.from_pylist(lines, _schema(names))

    def _complete(self, scores: Mapping[str, Score], stopped: str, left_out: set[str]) -> dict[str, Score]:
        """Return the scores of a row; failures for those whose judge is not called any more."""
        error, metrics = JudgeUnavailable(stopped), self.evaluation.metrics if stopped else ()
        failed = (item for metric in metrics for item in failure_scores(metric, error, Usage()).items())
        return {name: score for name, score in failed if name not in left_out} | dict(scores)

    def _parse(self, record: dict[str, Any], place: int | None) -> tuple[Sample, SampleError | None]:
        """Return the sample, or a placeholder with the record's text and the error."""
        try:
            return parse_record(record, self._fields), None
        except (SampleError, ValueError, RecursionError) as error:
            text = repr({column: value for column, value in record.items() if value is not None})  # Arrow adds nulls
            name = journal_key(text)[:16] if place is None else place
            placeholder = Sample(id=f"row-{name}", question="", metadata={"unreadable": text[:1000]})
            return placeholder, error if isinstance(error, SampleError) else SampleError(str(error))


def report_of_tables(tables: Iterable[pyarrow.Table]) -> Report:
    """Return the report of tables of scores; rows are in the order of `index`, or of sample ids if `index` is null.

    `left_out` of the report lists the scores that did not fit the budget.

    Raises:
        ConfigError: if a table does not have the columns of a table of scores.
    """
    records, names = list[dict[str, Any]](), dict[str, None]()
    for table in tables:
        records += table.to_pylist()
        scored = (name.removesuffix("_failure") for name in table.column_names if name.endswith("_failure"))
        names |= dict.fromkeys(scored)
    if lacking := ", ".join(sorted({name for record in records for name in COLUMNS if name not in record})):
        raise ConfigError(f"the rows lack {lacking}: pass the result of evaluate_dataset with all its columns")
    records.sort(key=lambda record: (record["index"] or 0, record["id"], record["metadata"]))
    rows = [_row(record, place) for place, record in enumerate(records)]
    left_out = [(row.index, name) for row in rows for name in names if name not in row.scores]
    mixed = MixedMeasures()
    for row in rows:
        mixed.add(row)
    runs = [from_json(record["run"]) for record in records if record.get("run")]
    provenance = reduce(or_, (Provenance.load(run["instruments"]) for run in runs), Provenance())
    of_batches = dict.fromkeys(note for record in records for note in record["notes"])
    rows = [row for row in rows if row.scores]
    notes = [*of_batches, *mixed.notes(), *FreeChecks(rows).notes()]
    failures = (score.failure for row in rows for score in row.scores.values() if score.failure)
    complete = all(failure.error != JudgeUnavailable.__name__ for failure in failures)
    last = max(runs, key=itemgetter("finished"), default={"version": "", "finished": ""})
    return Report(rows, notes, complete, left_out, provenance, finished=last["finished"], version=last["version"])


def _pop_index(record: dict[str, Any], index: str) -> int:
    """Remove the index column from a record and return its value.

    Raises:
        ConfigError: if the column is missing or its value is not a whole number of at least 0.
    """
    place = record.pop(index, None)
    if not isinstance(place, int) or place < 0:
        raise ConfigError(
            f"index must be the name of a column of whole numbers of at least 0; column {index!r} holds {place!r}"
        )
    return place


def _line(scores: Mapping[str, Score], sample: Sample, place: int | None) -> dict[str, Any]:
    as_json = {name: to_json(getattr(sample, name), bytes_mode="base64", fallback=str).decode() for name in JSON}
    line = sample.model_dump() | as_json
    for name, score in scores.items():
        cells = score.value, score.reason, score.unscored, score.comment if score.failure else None
        line |= {name + suffix: cell for suffix, cell in zip(_METRIC_SUFFIXES, cells, strict=True)}
    return line | {"index": place, "scores": _SCORES.dump_json(dict(scores)).decode()}


def _row(record: Mapping[str, Any], place: int) -> Row:
    try:
        decoded = {name: from_json(record[name]) for name in JSON}
        sample = Sample(**{name: record[name] for name in (*TEXTS, *LISTS)} | decoded)
        index = place if record["index"] is None else record["index"]
        scores, asked = _SCORES.validate_json(record["scores"]), record.get("asked") or []
        return Row(index=index, sample=sample, scores=scores, time=record.get("time"), asked=asked)
    except ValueError as error:
        raise ConfigError(f"row {record['id']!r} does not come from a table of scores: {error}") from error


def _schema(metrics: Iterable[str]) -> pyarrow.Schema:
    """Return the schema of the result, so that all batches have the same column types.

    Raises:
        ConfigError: if a metric's column has the name of another column.
    """
    import pyarrow

    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    columns = {"index": pyarrow.int64()} | dict.fromkeys(TEXTS, text) | dict.fromkeys(LISTS, texts)
    columns |= dict.fromkeys(JSON, text)
    for metric in metrics:
        metric_columns = {metric + suffix: text if suffix else pyarrow.float64() for suffix in _METRIC_SUFFIXES}
        if repeated := sorted(metric_columns.keys() & (columns.keys() | {"scores", "notes", *_LATER_COLUMNS})):
            raise ConfigError(
                f"{metric} needs a column {', '.join(repeated)}, which already exists; rename it with name=..."
            )
        columns |= metric_columns
    columns |= {"scores": text, "time": text, "asked": texts, "notes": texts, "run": text}
    return pyarrow.schema(list(columns.items()))
