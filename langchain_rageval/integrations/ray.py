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
from langchain_rageval.run.governor import Governor, Lease, LeasingGovernor, Ledger
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

    The result is lazy: scoring starts when it is read. It has one row for each input row, in any order; use
    `sort("index")`, or Ray's `preserve_order`. Its columns are

    * `index`: place in the input; null unless `index` names its column;
    * `id`, `question`, `answer`, `contexts`, `references`, `reference_contexts`, `context_ids`,
      `reference_context_ids`, `retrieved`, `retrieved_ids`: fields of the sample; `relevance` and `metadata` as JSON;
    * for each metric a column with its name for the value, null if there is none, and columns with the suffixes
      `_reason`, `_unscored` and `_failure` for the texts;
    * `scores`: the complete scores as JSON; `time`: when the last one was finished, UTC; `asked`: names of those whose
      models were asked anew; `notes`: caveats; `run`: in the first row of each batch, version, end and instruments of
      its run as JSON, and null in the others.

    Budget, price and limits of the model calls are those of all workers together. An actor gives them out in leases,
    one message for many calls: calls never exceed the budget, and tokens only by the calls under way. A score that did
    not fit has no value; `report_of` lists it in `left_out`.

    A worker processes two batches at a time, so that calls do not wait for the slowest sample of a batch; it holds
    about four batches in memory. A worker that dies is restarted and repeats its batches, except for scores in the
    journal. A row that cannot be read or scored becomes a failure. If the judge is down, the workers wait for it. After
    `patience` seconds, or after a few permanent errors in a row, as of a wrong key, it is not called any more: the
    finished rows are delivered, and the others are failures with the judge's last error. A run in which a judge that is
    down has answered nothing ends with that error.

    Args:
        dataset: rows in any vocabulary that `Sample.parse` reads.
        make_metrics: function that builds judge and metrics; called once in each worker, because clients cannot be sent
            to another process. Keys are read from the worker's environment.
        fields: field of Sample to its column or dotted path.
        index: column with the place of each row in the input, a whole number of at least 0; not part of the sample.
        concurrency: number of workers, or (minimum, maximum) for autoscaling.
        batch_size: rows in a batch; by default four for each model call that a worker may have under way.
        journal: path of an SQLite file on a local disk of the worker's machine; on network shares SQLite can lose data.
            Workers on one machine share it. A repeated run pays only for scores that it does not contain.
        budget: what all workers together may spend; None sets no limit.
        patience: seconds to wait for a judge that is down; 0 does not wait.
        num_cpus: CPUs that Ray reserves for each worker. Workers mostly wait for the model, so a small number is
            enough; if the workers reserve all CPUs, none is left to read the data and Ray waits forever.
        num_gpus: GPUs of each worker, for models that run in it, such as a cross-encoder.
        resources: other resources of each worker, by Ray's names.
        runtime_env: Ray's runtime environment for each worker, such as `{"env_vars": {...}}`.
        **calls: `max_concurrency`, of all workers together, `timeout`, `retry` and `price` of the model calls, as in
            `evaluate`.

    Returns:
        A lazy data set of plain columns, which can be stored as Parquet; `report_of` converts it to a Report.

    Raises:
        ConfigError: if an option is invalid or Ray is not installed. Errors in a worker, such as a missing key, end the
            run with Ray's own error, which contains the cause.
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
        fn_constructor_args=(make_metrics, options, dict(fields or {}), index, ledger, patience),
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
    return report_of_tables(dataset.iter_batches(batch_format="pyarrow"))


class EvaluationWorker(BatchScorer):
    """Ray actor that scores batches with one evaluation, within the limits of all workers.

    Args:
        make_metrics: as for `BatchScorer`.
        options: as for `BatchScorer`.
        fields: as for `BatchScorer`.
        index: as for `BatchScorer`.
        ledger: handle of the actor that gives out budget and concurrency; None to use those of the options alone.
        patience: seconds to wait for a judge that is down.
    """

    def __init__(
        self,
        make_metrics: MakeMetrics,
        options: StreamOptions,
        fields: Fields,
        index: str | None,
        ledger: Any = None,
        patience: float = 0.0,
    ) -> None:
        super().__init__(make_metrics, options, fields, index)
        run = self.evaluation.run
        budget, limit = run.governor.budget, options.get("max_concurrency", CALL_DEFAULTS["max_concurrency"])
        governor = Governor(budget, run.meter, limit, patience=patience)
        if ledger is not None:
            lease = partial(_lease, ledger, uuid4().hex)
            governor = LeasingGovernor(lease, budget, run.meter, limit, patience=patience)
        self.evaluation.begin(replace(run, governor=governor))
        self._governor = governor

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
