"""Ray Data: `evaluate` on a distributed data set, and conversion of the result to a Report.

Ray distributes the data and starts and restarts the workers; each worker runs the same engine as `evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

from langchain_rageval.data.loading import Fields
from langchain_rageval.errors import ConfigError, JudgeUnavailable, check_number
from langchain_rageval.evaluation.options import StreamOptions
from langchain_rageval.integrations.arrow import BatchScorer, MakeMetrics, options_of, report_of_tables
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import Budget, Cost
from langchain_rageval.run.governor import Lease, LeasingGovernor, Ledger
from langchain_rageval.run.run import CALL_DEFAULTS, CallOptions, fill_defaults

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

_BATCHES_PER_WORKER = 2  # the second batch uses the slots that become free at the end of the first
_SAMPLES_PER_SLOT = 4


def evaluate_dataset(
    dataset: Dataset,
    make_metrics: MakeMetrics,
    *,
    fields: Fields | None = None,
    index: str | None = None,
    concurrency: int | tuple[int, int] = 1,
    batch_size: int | None = None,
    journal: str | Path | None = None,
    budget: Budget | None = None,
    patience: float = 600.0,
    num_cpus: float = 0.1,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    **calls: Unpack[CallOptions],
) -> Dataset:
    """Score the rows of a Ray data set in workers on all machines of a Ray cluster.

    The result is lazy: scoring starts when the result is read. It has one row for each input row, in any order; to
    restore the order, use `sort("index")` or Ray's `preserve_order`. The columns of the result are:

    * `index`: place in the input; null unless the argument `index` names the column of the places;
    * `id`, `question`, `answer`, `contexts`, `references`, `reference_contexts`, `context_ids`,
      `reference_context_ids`, `retrieved`, `retrieved_ids`: fields of the sample;
    * `relevance`, `metadata`: fields of the sample as JSON;
    * for each metric a column with the name of the metric, which holds the value or null, and columns with the suffixes
      `_reason`, `_unscored` and `_failure`, which hold texts;
    * `scores`: the complete scores as JSON;
    * `time`: UTC time of the last score;
    * `asked`: names of the metrics whose scores of the row come only from new model calls, not from a journal or cache;
    * `notes`: remarks that limit what the scores mean;
    * `run`: version, end time and metric configurations of the run as JSON, in the first row of each batch; null in
      other rows.

    Budget and limits of the model calls apply to all workers together. An actor assigns shares of them to the workers,
    with one message for many calls. Calls never exceed the budget; tokens exceed it only by the calls in progress. A
    score that does not fit the budget has no value; `report_of` lists the score in `left_out`.

    A worker processes two batches at a time, so that calls do not wait for the slowest sample of a batch. It holds
    about four batches in memory. A worker that dies is restarted and repeats its batches, except for scores in the
    journal. A row that cannot be read or scored becomes a failure. If the judge is down, the workers wait. After
    `patience` seconds, or after a few permanent errors in a row, such as a wrong key, the workers stop calling the
    judge. Finished rows are then delivered, and the other rows are failures with the last error of the judge. If the
    judge has answered nothing at all, the run ends with this error.

    Args:
        dataset: rows with any field names that `Sample.parse` reads.
        make_metrics: function that builds judge and metrics, and returns the metrics. It is called once in each worker,
            because clients cannot be sent to another process. API keys are read from the worker's environment.
        fields: mapping of fields of Sample to column names or dotted paths.
        index: name of the column with the place of each row in the input, a whole number of at least 0; the place is
            not part of the sample.
        concurrency: number of workers, or (minimum, maximum) for autoscaling.
        batch_size: rows in a batch; by default four for each concurrent model call of a worker.
        journal: path of an SQLite file on a local disk of the worker's machine; on network shares SQLite can lose data.
            Workers on one machine share the file. A repeated run pays only for scores that the journal lacks.
        budget: limit on the cost of all workers together; None sets no limit.
        patience: seconds to wait for a judge that is down; 0 does not wait.
        num_cpus: CPUs that Ray reserves for each worker. Workers mostly wait for the model, so a small number is
            enough; if the workers reserve all CPUs, none is left to read the data and Ray waits forever.
        num_gpus: GPUs of each worker, for models that run in it, such as a cross-encoder.
        resources: other resources of each worker, by Ray's names.
        runtime_env: Ray's runtime environment for each worker, such as `{"env_vars": {...}}`.
        **calls: `max_concurrency`, `timeout`, `retry` and `price` of the model calls, as in `evaluate`.
            `max_concurrency` applies to all workers together.

    Returns:
        A lazy data set of plain columns, which can be stored as Parquet; `report_of` converts it to a Report.

    Raises:
        ConfigError: if an option is invalid or Ray is not installed. An error in a worker, such as a missing key, ends
            the run with Ray's own error, which contains the cause.
    """
    _check(dataset)
    import ray
    from ray.data import ActorPoolStrategy

    complete = fill_defaults(evaluate_dataset, calls, CALL_DEFAULTS)
    options = options_of(complete, make_metrics, fields, journal, budget=budget)
    check_number("patience must be a number of seconds of at least 0", patience, lambda seconds: seconds >= 0)
    least, most = _worker_limits(concurrency)
    slots = -(-options["max_concurrency"] // least)  # of a worker
    size = _SAMPLES_PER_SLOT * slots if batch_size is None else batch_size
    if not isinstance(size, int) or size < 1:
        raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    ledger = ray.remote(num_cpus=0)(Ledger).remote(budget, options["max_concurrency"], least)
    return dataset.repartition(target_num_rows_per_block=size, strict=True).map_batches(
        EvaluationWorker,
        fn_constructor_args=(ledger, patience, make_metrics, options, dict(fields or {}), index),
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
    """Convert the result of `evaluate_dataset` to a Report; the result may have been stored as Parquet and read back.

    Returns:
        The report, with rows in the order of `index`, or of sample ids if `index` is null. The rows equal the rows that
        `evaluate` gives for the same samples, with two exceptions: durations, and the metric to which the usage of a
        shared call is assigned.

    Raises:
        ConfigError: if the data set is not a result of `evaluate_dataset`.
    """
    _check(dataset)
    return report_of_tables(dataset.iter_batches(batch_format="pyarrow"))


class EvaluationWorker(BatchScorer):
    """Ray actor that scores batches of rows; concurrency and budget are shared with the other workers.

    Args:
        ledger: handle of the actor that assigns budget and concurrency to the workers.
        patience: seconds to wait for a judge that is down.
        make_metrics: function that builds the metrics.
        options: options of `evaluate`; the journal is a path.
        more: the other arguments of `BatchScorer`.
    """

    def __init__(
        self, ledger: Any, patience: float, make_metrics: MakeMetrics, options: StreamOptions, *more: Any
    ) -> None:
        super().__init__(make_metrics, options, *more)
        run = self.evaluation.run
        budget, limit = run.governor.budget, options["max_concurrency"]
        lease = partial(_lease, ledger, uuid4().hex)
        self._governor = LeasingGovernor(lease, budget, run.meter, limit, patience=patience)
        self.evaluation.begin(replace(run, governor=self._governor))

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Return the rows of a batch with scores, in the same order, as Ray requires when it repeats a batch.

        Raises:
            JudgeUnavailable: if the judge was down for longer than the workers wait, and has answered none of them.
        """
        table = super().__call__(batch)
        if self._governor.is_impatient and not self._governor.is_answered:
            notes = (note for notes in table["notes"].to_pylist() for note in notes)
            raise JudgeUnavailable(next(notes, "a judge is down"))
        return table


def _lease(ledger: Any, worker: str, spent: Cost, wanted: Cost) -> Lease:
    import ray

    lease: Lease = ray.get(ledger.lease.remote(worker, spent, wanted))
    return lease
