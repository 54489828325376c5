"""Ray Data: `evaluate` on a distributed data set, and conversion of the result to a Report.

Ray distributes the data and starts and restarts the workers; each worker runs the same engine as `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from langchain_core.runnables import RunnablePassthrough
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from langchain_rageval.data.field_names import check_fields
from langchain_rageval.data.loading import Fields, parse_record
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, MixedMeasures
from langchain_rageval.evaluation.options import StreamOptions
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.free_checks import FreeChecks
from langchain_rageval.report.report import Report
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.run import CALL_DEFAULTS, CallOptions, fill_defaults
from langchain_rageval.run.usage import UsageMeter

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

MakeMetrics = Callable[[], AnyMetric | Sequence[AnyMetric]]

_BATCHES_PER_WORKER = 2  # the second batch uses the slots that become free at the end of the first
_SAMPLES_PER_SLOT = 4
_TEXTS = ("id", "question", "answer")
_LISTS = (
    *("contexts", "references", "reference_contexts", "context_ids", "reference_context_ids"),
    *("retrieved", "retrieved_ids"),
)
_JSON = ("relevance", "metadata")
_COLUMNS = ("index", *_TEXTS, *_LISTS, *_JSON, "scores", "notes")
_METRIC_SUFFIXES = ("", "_reason", "_unscored", "_failure")
_SCORES = TypeAdapter(dict[str, Score])


def evaluate_dataset(
    dataset: Dataset,
    make_metrics: MakeMetrics,
    *,
    fields: Fields | None = None,
    index: str | None = None,
    concurrency: int | tuple[int, int] = 1,
    batch_size: int | None = None,
    journal: str | Path | None = None,
    num_cpus: float = 0.1,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    **calls: Unpack[CallOptions],
) -> Dataset:
    """Score the rows of a Ray data set in workers on all machines of a Ray cluster.

    The result is lazy: scoring starts when it is read. It has one row for each input row, in any order; use
    `sort("index")`, or Ray's `preserve_order`. Its columns are

    * `index`: place in the input; null unless `index` names its column;
    * `id`, `question`, `answer`, `contexts`, `references`, `reference_contexts`, `context_ids`,
      `reference_context_ids`, `retrieved`, `retrieved_ids`: fields of the sample; `relevance` and `metadata` as JSON;
    * for each metric a column with its name for the value, null if there is none, and columns with the suffixes
      `_reason`, `_unscored` and `_failure` for the texts;
    * `scores`: the complete scores as JSON; `notes`: caveats for the reader.

    A worker processes two batches at a time with one shared limit of model calls, so that calls do not wait for the
    slowest sample of a batch; it holds about four batches in memory. A worker that dies is restarted and repeats its
    batches, except for scores in the journal. A row that cannot be read or scored becomes a failure.

    Args:
        dataset: rows in any vocabulary that `Sample.parse` reads.
        make_metrics: function that builds judge and metrics; called once in each worker, because clients cannot be sent
            to another process. Keys are read from the worker's environment.
        fields: field of Sample to its column or dotted path.
        index: column with the place of each row in the input, a whole number of at least 0; not part of the sample.
        concurrency: number of workers, or (minimum, maximum) for autoscaling.
        batch_size: rows in a batch; by default four times `max_concurrency`.
        journal: path of an SQLite file on a local disk of the worker's machine; on network shares SQLite can lose data.
            Workers on one machine share it. A repeated run pays only for scores that it does not contain.
        num_cpus: CPUs that Ray reserves for each worker. Workers mostly wait for the model, so a small number is
            enough; if the workers reserve all CPUs, none is left to read the data and Ray waits forever.
        num_gpus: GPUs of each worker, for models that run in it, such as a cross-encoder.
        resources: other resources of each worker, by Ray's names.
        runtime_env: Ray's runtime environment for each worker, such as `{"env_vars": {...}}`.
        **calls: `max_concurrency`, `timeout` and `retry` of the model calls in each worker, as in `evaluate`.

    Returns:
        A lazy data set of plain columns, which can be stored as Parquet; `report_of` converts it to a Report.

    Raises:
        ConfigError: if an option is invalid or Ray is not installed. Errors in a worker, such as a missing key, end the
            run with Ray's own error, which contains the cause.
    """
    _check(dataset)
    from ray.data import ActorPoolStrategy

    if not callable(make_metrics):
        kind = type(make_metrics).__name__
        raise ConfigError(f"make_metrics must be a function that builds the metrics in a worker, got {kind}")
    if not isinstance(journal, str | Path | None):
        raise ConfigError(f"journal must be the path of a file, got {type(journal).__name__}")
    check_fields(fields or {})
    options: StreamOptions = {
        **fill_defaults(evaluate_dataset, calls, CALL_DEFAULTS),
        "on_failure": "record",
        "callbacks": None,
        "journal": journal and Path(journal).absolute(),
        "budget": None,
        "progress": False,
        "strict": False,
        "fields": None,
    }
    Evaluation(RunnablePassthrough(), options)  # raises on invalid options here, not in the workers
    size = _SAMPLES_PER_SLOT * options["max_concurrency"] if batch_size is None else batch_size
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    least, most = _worker_limits(concurrency)
    return dataset.repartition(target_num_rows_per_block=size, strict=True).map_batches(
        EvaluationWorker,
        fn_constructor_args=(make_metrics, options, dict(fields or {}), index),
        batch_format="pyarrow",
        batch_size=size,
        compute=ActorPoolStrategy(
            min_size=least,
            max_size=most,
            max_concurrent_calls_per_actor=_BATCHES_PER_WORKER,
            enable_true_multi_threading=True,
        ),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=resources and dict(resources),
        runtime_env=runtime_env and dict(runtime_env),
        udf_modifying_row_count=False,
    )


def _worker_limits(concurrency: Any) -> tuple[int, int]:
    match concurrency:
        case int(least) if least > 0:
            return least, least
        case (int(least), int(most)) if 0 < least <= most:
            return least, most
    raise ConfigError(f"concurrency must be a number of workers, or (minimum, maximum), got {concurrency!r}")


def _check(dataset: Any) -> None:
    try:
        from ray.data import Dataset
    except ImportError:
        raise ConfigError('evaluate_dataset needs Ray: pip install "ray[data]"') from None
    if not isinstance(dataset, Dataset):
        raise ConfigError(
            f"dataset must be a ray.data.Dataset, got {type(dataset).__name__}; use evaluate for other data"
        )


def report_of(dataset: Dataset) -> Report:
    """Convert the result of `evaluate_dataset`, also after a round trip through Parquet, to a Report.

    Returns:
        Rows in the order of `index`, or of the samples' ids if it is null. They equal those of `evaluate` with the same
        samples, except for durations and for which metric carries the usage of shared calls.

    Raises:
        ConfigError: if the data set is not a result of `evaluate_dataset`.
    """
    _check(dataset)
    records = [record for batch in dataset.iter_batches(batch_format="pyarrow") for record in batch.to_pylist()]
    if lacking := sorted({name for record in records for name in _COLUMNS if name not in record}):
        raise ConfigError(
            f"the rows lack {', '.join(lacking)}: pass the result of evaluate_dataset with all its columns"
        )
    records.sort(key=lambda record: (record["index"] or 0, record["id"], record["metadata"]))
    rows = [_row(record, place) for place, record in enumerate(records)]
    mixed = MixedMeasures()
    for row in rows:
        mixed.add(row)
    notes = dict.fromkeys(note for record in records for note in record["notes"])
    return Report(rows, [*notes, *mixed.notes(), *FreeChecks(rows).notes()])


class EvaluationWorker:
    """Ray actor that scores batches with one evaluation and one shared limit of model calls.

    Args:
        make_metrics: function that builds the metrics.
        options: options of `evaluate`; the journal is a path.
        fields: field of Sample to its column or dotted path.
        index: column with the place of each row; None if there is none.
    """

    def __init__(self, make_metrics: MakeMetrics, options: StreamOptions, fields: Fields, index: str | None) -> None:
        path = options["journal"]
        journal = Journal(path) if isinstance(path, Path) else path
        self._evaluation = Evaluation(make_metrics(), {**options, "journal": journal})
        self._fields = fields
        self._index = index
        _schema([name for metric in self._evaluation.metrics for name in names_of(metric)])

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Return the rows of a batch with scores, in the same order, as Ray requires when it repeats a batch."""
        import pyarrow

        records = batch.to_pylist()
        places = [None if self._index is None else _pop_index(record, self._index) for record in records]
        parsed = [self._parse(record, place) for record, place in zip(records, places, strict=True)]
        run = replace(self._evaluation.run, meter=UsageMeter(prices=self._evaluation.run.meter.prices))
        job = self._evaluation.part(run)
        with closing(job.rows([error or sample for sample, error in parsed])) as rows:
            report = job.build_report(list(rows))
        recomputed = {*job.notes_on_rows()}  # by report_of, over all batches
        notes = [note for note in report.notes if note not in recomputed]
        lines = [
            _line(row.scores, sample, place) | {"notes": notes}
            for row, (sample, _), place in zip(report.rows, parsed, places, strict=True)
        ]
        names = list(dict.fromkeys(name for row in report.rows for name in row.scores))
        return pyarrow.Table.from_pylist(lines, _schema(names))

    def _parse(self, record: dict[str, Any], place: int | None) -> tuple[Sample, SampleError | None]:
        """Return the sample, or a placeholder with the record's text and the error."""
        try:
            return parse_record(record, self._fields), None
        except (SampleError, ValueError, RecursionError) as error:
            text = repr({column: value for column, value in record.items() if value is not None})  # Arrow adds nulls
            name = journal_key(text)[:16] if place is None else place
            placeholder = Sample(id=f"row-{name}", question="", metadata={"unreadable": text[:1000]})
            return placeholder, error if isinstance(error, SampleError) else SampleError(str(error))


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
    line = sample.model_dump() | {name: _json(getattr(sample, name)) for name in _JSON}
    for name, score in scores.items():
        failed = score.comment if score.failure else None
        line |= dict(zip(_columns(name), (score.value, score.reason, score.unscored, failed), strict=True))
    return line | {"index": place, "scores": _SCORES.dump_json(dict(scores)).decode()}


def _row(record: Mapping[str, Any], place: int) -> Row:
    try:
        decoded = {name: from_json(record[name]) for name in _JSON}
        sample = Sample(**{name: record[name] for name in (*_TEXTS, *_LISTS)} | decoded)
        index = place if record["index"] is None else record["index"]
        return Row(index=index, sample=sample, scores=_SCORES.validate_json(record["scores"]))
    except ValueError as error:
        raise ConfigError(f"row {record['id']!r} does not come from evaluate_dataset: {error}") from error


def _json(value: Any) -> str:
    return to_json(value, bytes_mode="base64", fallback=str).decode()


def _columns(metric: str) -> list[str]:
    return [metric + suffix for suffix in _METRIC_SUFFIXES]


def _schema(metrics: Iterable[str]) -> pyarrow.Schema:
    """Return the schema of the result, so that all batches have the same column types.

    Raises:
        ConfigError: if a metric's column has the name of another column.
    """
    import pyarrow

    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    columns = {"index": pyarrow.int64()} | dict.fromkeys(_TEXTS, text) | dict.fromkeys(_LISTS, texts)
    columns |= dict.fromkeys(_JSON, text)
    for metric in metrics:
        metric_columns = dict(zip(_columns(metric), (pyarrow.float64(), text, text, text), strict=True))
        if repeated := sorted(metric_columns.keys() & (columns.keys() | {"scores", "notes"})):
            raise ConfigError(
                f"{metric} needs a column {', '.join(repeated)}, which already exists; rename it with name=..."
            )
        columns |= metric_columns
    return pyarrow.schema(list((columns | {"scores": text, "notes": texts}).items()))
