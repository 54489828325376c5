"""Ray Data: `evaluate` over a data set that is spread over many machines, and the way back to a Report.

Ray moves the data, starts the workers and starts them again when they die; in each worker runs the same engine as
everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnablePassthrough
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from langchain_rageval.data.field_names import check_fields
from langchain_rageval.data.loading import Fields
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.options import StreamOptions
from langchain_rageval.evaluation.mixed_measures import MixedMeasures
from langchain_rageval.metrics.outcome import names_of
from langchain_rageval.report.report import Report
from langchain_rageval.run.journal import Journal, key_of
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.usage_meter import Meter

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

MakeMetrics = Callable[[], AnyMetric | Sequence[AnyMetric]]

_AT_ONCE = 2  # batches in one worker: the second fills the slots that the end of the first leaves free
_SAMPLES_PER_SLOT = 4
_TEXTS = ("id", "question", "answer")
_LISTS = ("contexts", "references", "reference_contexts", "context_ids", "reference_context_ids")
_JSON = ("relevance", "metadata")
_OURS = ("index", *_TEXTS, *_LISTS, *_JSON, "scores", "notes")
_OF_A_METRIC = ("", "_reason", "_unscored", "_failure")
_SCORES = TypeAdapter(dict[str, Score])


def evaluate_dataset(
    dataset: Dataset,
    make_metrics: MakeMetrics,
    *,
    fields: Fields | None = None,
    index: str | None = None,
    concurrency: int | tuple[int, int] = 1,
    max_concurrency: int = 16,
    batch_size: int | None = None,
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    journal: str | Path | None = None,
    num_cpus: float = 0.1,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Dataset:
    """Score the rows of a Ray data set with metrics, in workers on as many machines as Ray has.

    Nothing runs before the result is read. Rows come in any order (`sort("index")`, or Ray's own `preserve_order`),
    one for each row of the input, with the columns

    * `index`: place in the input; null unless `index` names a column for it;
    * `id`, `question`, `answer`, `contexts`, `references`, `reference_contexts`, `context_ids`,
      `reference_context_ids`: of the sample; `relevance` and `metadata` in JSON;
    * for each metric its value under its name, null when there is none; with `_reason`, `_unscored` and `_failure`
      after the name, the words to it;
    * `scores`: all that the metrics said, in JSON; `notes`: what a reader of the numbers should know.

    A worker asks for two batches at a time and has one pool of model calls for both, so that calls do not wait for the
    slowest sample of a batch; its memory holds some four batches. A worker that dies is started again, and its batches
    are done again from the beginning, except for what is in the journal. What cannot be scored or read is a failure on
    its row.

    Args:
        dataset: rows in any vocabulary that `Sample.parse` reads.
        make_metrics: called once in each worker, where it makes judge and metrics: clients cannot travel, and keys are
            found in the worker's environment.
        fields: field of Sample to the column, or dotted path, that has it.
        index: column with the place of each row in the input, a whole number from 0 on. It is no part of the sample.
        concurrency: number of workers, or the least and the most for Ray to choose between.
        max_concurrency: most model calls at a time in each worker; see `evaluate`.
        batch_size: rows in a batch; by default four for each of these calls.
        timeout: seconds for one model call.
        retry: of calls that the transport lost.
        journal: path of an SQLite file on a disk of the worker's own machine, not on a network share, where SQLite can
            lose data. Workers on one machine share it. The same call again pays only for what it does not hold.
        num_cpus: that Ray keeps for each worker: few, for workers mostly wait for the model. Where they hold all that
            there are, none is left to read the data with, and Ray waits for ever.
        num_gpus: of each worker, for models that run in it, such as a cross-encoder.
        resources: other resources of each worker, by Ray's names for them.
        runtime_env: Ray's environment for each worker, such as `{"env_vars": {...}}`.

    Returns:
        A lazy data set of plain columns, which survive Parquet; `report_of` makes a Report of it.

    Raises:
        ConfigError: if an option cannot be used or Ray is not installed. What only a worker finds out, such as a key
            that its environment lacks, ends the run with Ray's own error, which names it.
    """
    _check(dataset)
    from ray.data import ActorPoolStrategy

    if not callable(make_metrics):
        came = type(make_metrics).__name__
        raise ConfigError(f"make_metrics takes a function that makes the metrics in a worker, got {came}")
    if not isinstance(journal, str | Path | None):
        raise ConfigError(f"journal takes the path of a file, got {type(journal).__name__}")
    check_fields(fields or {})
    options: StreamOptions = {
        "max_concurrency": max_concurrency,
        "on_failure": "record",
        "timeout": timeout,
        "retry": retry,
        "callbacks": None,
        "journal": journal and Path(journal).absolute(),
        "budget": None,
    }
    Evaluation.of(RunnablePassthrough(), options)  # raises here what else the workers would raise of the options
    size = _SAMPLES_PER_SLOT * max_concurrency if batch_size is None else batch_size
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"batch_size takes a whole number from 1 on, got {batch_size!r}")
    least, most = _bounds(concurrency)
    return dataset.repartition(target_num_rows_per_block=size, strict=True).map_batches(
        EvaluationWorker,
        fn_constructor_args=(make_metrics, options, dict(fields or {}), index),
        batch_format="pyarrow",
        batch_size=size,
        compute=ActorPoolStrategy(
            min_size=least,
            max_size=most,
            max_concurrent_calls_per_actor=_AT_ONCE,
            enable_true_multi_threading=True,
        ),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=resources and dict(resources),
        runtime_env=runtime_env and dict(runtime_env),
        udf_modifying_row_count=False,
    )


def _bounds(concurrency: Any) -> tuple[int, int]:
    match concurrency:
        case int(least) if least > 0:
            return least, least
        case (int(least), int(most)) if 0 < least <= most:
            return least, most
    raise ConfigError(f"concurrency takes a number of workers, or the least and the most, got {concurrency!r}")


def _check(dataset: Any) -> None:
    try:
        from ray.data import Dataset
    except ImportError:
        raise ConfigError('ray needs its package: pip install "langchain-rageval[ray]"') from None
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"dataset takes a ray.data.Dataset, got {type(dataset).__name__}; evaluate takes other data")


def report_of(dataset: Dataset) -> Report:
    """The report of what `evaluate_dataset` gave, also after Parquet.

    Returns:
        Rows in the order of `index`, or of the samples' ids where it is null: those of `evaluate` with the same
        samples, but for how long each took and who paid for what several share.

    Raises:
        ConfigError: if the data set holds anything else.
    """
    _check(dataset)
    records = [record for batch in dataset.iter_batches(batch_format="pyarrow") for record in batch.to_pylist()]
    if lacking := sorted({name for record in records for name in _OURS if name not in record}):
        raise ConfigError(
            f"the rows have no {', '.join(lacking)}: pass what evaluate_dataset gave, with all its columns"
        )
    records.sort(key=lambda record: (record["index"] or 0, record["id"], record["metadata"]))
    rows = [_row(record, place) for place, record in enumerate(records)]
    mixed = MixedMeasures()
    for row in rows:
        mixed.add(row)
    notes = dict.fromkeys(note for record in records for note in record["notes"])
    return Report(rows, [*notes, *mixed.notes()])


class EvaluationWorker:
    """What Ray keeps in an actor: an evaluation that goes on from batch to batch, with one pool of model calls.

    Args:
        make_metrics: makes the metrics.
        options: of `Evaluation.of`, the journal by its path.
        fields: field of Sample to the column that has it.
        index: column with the place of each row, if there is one.
    """

    def __init__(self, make_metrics: MakeMetrics, options: StreamOptions, fields: Fields, index: str | None) -> None:
        path = options["journal"]
        journal = Journal(path) if isinstance(path, Path) else path
        self._evaluation = Evaluation.of(make_metrics(), {**options, "journal": journal})
        self._fields = fields
        self._index = index
        _schema([name for metric in self._evaluation.metrics for name in names_of(metric)])

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """The rows of a batch with their scores, in its order: when Ray repeats a batch, it counts on the same rows."""
        import pyarrow

        records = batch.to_pylist()
        places = [None if self._index is None else _taken(record, self._index) for record in records]
        read = [self._read(record, place) for record, place in zip(records, places, strict=True)]
        run = replace(self._evaluation.run, meter=Meter())
        job = replace(self._evaluation, run=run, mixed_measures=MixedMeasures())
        with closing(job.rows([error or sample for sample, error in read])) as rows:
            report = job.build_report(list(rows))
        mixed = set(job.mixed_measures.notes())  # counted anew over all batches by report_of
        notes = [note for note in report.notes if note not in mixed]
        lines = [
            _line(row.scores, sample, place) | {"notes": notes}
            for row, (sample, _), place in zip(report.rows, read, places, strict=True)
        ]
        names = list(dict.fromkeys(name for row in report.rows for name in row.scores))
        return pyarrow.Table.from_pylist(lines, _schema(names))

    def _read(self, record: dict[str, Any], place: int | None) -> tuple[Sample, SampleError | None]:
        """The sample; of a record that is none, what can be kept of it, and why."""
        try:
            return Sample.parse(record, self._fields), None
        except (SampleError, ValueError, RecursionError) as error:
            told = repr({column: value for column, value in record.items() if value is not None})  # as before Arrow
            name = key_of(told)[:16] if place is None else place
            kept = Sample(id=f"row-{name}", question="", metadata={"unreadable": told[:1000]})
            return kept, error if isinstance(error, SampleError) else SampleError(str(error))


def _taken(record: dict[str, Any], index: str) -> int:
    """The place of a record, taken out of it.

    Raises:
        ConfigError: if the column is not there or holds anything else.
    """
    place = record.pop(index, None)
    if not isinstance(place, int) or place < 0:
        raise ConfigError(f"index names a column of whole numbers from 0 on; under {index!r} is {place!r}")
    return place


def _line(scores: Mapping[str, Score], sample: Sample, place: int | None) -> dict[str, Any]:
    line = sample.model_dump() | {name: _json(getattr(sample, name)) for name in _JSON}
    for name, score in scores.items():
        failed = score.comment if score.failure else None
        line |= dict(zip(_columns(name), (score.value, score.reason, score.unscored, failed), strict=True))
    return line | {"index": place, "scores": _SCORES.dump_json(dict(scores)).decode()}


def _row(record: Mapping[str, Any], place: int) -> Row:
    try:
        read = {name: from_json(record[name]) for name in _JSON}
        sample = Sample(**{name: record[name] for name in (*_TEXTS, *_LISTS)} | read)
        index = place if record["index"] is None else record["index"]
        return Row(index=index, sample=sample, scores=_SCORES.validate_json(record["scores"]))
    except ValueError as error:
        raise ConfigError(f"row {record['id']!r} is none of evaluate_dataset: {error}") from error


def _json(value: Any) -> str:
    return to_json(value, bytes_mode="base64", fallback=str).decode()


def _columns(metric: str) -> list[str]:
    return [metric + suffix for suffix in _OF_A_METRIC]


def _schema(metrics: Iterable[str]) -> pyarrow.Schema:
    """The same types whatever a batch holds.

    Raises:
        ConfigError: if the name of a metric is that of a column.
    """
    import pyarrow

    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    columns = {"index": pyarrow.int64()} | dict.fromkeys(_TEXTS, text) | dict.fromkeys(_LISTS, texts)
    columns |= dict.fromkeys(_JSON, text)
    for metric in metrics:
        own = dict(zip(_columns(metric), (pyarrow.float64(), text, text, text), strict=True))
        if doubled := sorted(own.keys() & (columns.keys() | {"scores", "notes"})):
            raise ConfigError(
                f"{metric} would make a second column {', '.join(doubled)}; give it another name with name=..."
            )
        columns |= own
    return pyarrow.schema(list((columns | {"scores": text, "notes": texts}).items()))
