"""evaluate, aevaluate, astream_evaluate: metrics over many samples, on one flat pool of model calls.

There is no barrier between samples or metrics, and one slow sample holds up no other. `evaluate` calls the models'
sync methods from worker threads, so it works in a notebook and never touches a loop; the other two stay on the
caller's loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval.data.schema import Row
from langchain_rageval.evaluation.engine import Evaluation, OnFailure
from langchain_rageval.evaluation.inputs import AnyMetric, Samples, checked, size_of
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.progress import show_progress
from langchain_rageval.run.retry import RetryPolicy


def evaluate(
    samples: Samples,
    metrics: AnyMetric | Sequence[AnyMetric],
    *,
    max_concurrency: int = 16,
    on_failure: OnFailure = "record",
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    progress: bool = True,
    callbacks: list[BaseCallbackHandler] | None = None,
    journal: str | Path | Journal | None = None,
    budget: Budget | None = None,
    out: str | Path | None = None,
) -> Report:
    """Score samples with metrics, in worker threads.

    Args:
        samples: a list, an iterator, a path that `load_samples` reads, a DataFrame, a data set of mappings, LangSmith
            examples, a Testset; each item anything that `Sample.parse` reads. Lists, DataFrames and Testsets are
            checked before any call; of the others, an item that cannot be scored is a failure on its row.
        metrics: Runnables that return a Score, or a mapping of names to Scores; a suite counts as its metrics.
        max_concurrency: most model calls at a time; halved when a chat endpoint answers 429, and growing again while
            calls go well. Whoever was turned away waits as long as Retry-After says, and nobody else does.
        on_failure: "record" a failure on its score, or "raise" the first.
        timeout: seconds for one model call, a client's own retries included; None waits as long as the client does. The
            wait for a chat model's `rate_limiter` counts only where the model has a cache, or is wrapped.
        retry: of calls that the transport lost; by default ten tries with waits up to a minute.
        progress: show it on stderr.
        callbacks: LangChain callback handlers for every metric.
        journal: path of an SQLite file that keeps each score when it is finished. The same call with the same file,
            after a crash or Ctrl-C, pays only for what is not in it; failures are tried again. Several processes and
            several configurations may share one.
        budget: what the run may spend. A score that no longer fits is left out, as are all after it; what is under way
            is finished, so that more is spent only where a score costs more than its kind does as a rule. Of a list,
            everything that the journal holds is still in the report; an iterator or a file is not read on.
        out: path of a file for the rows. They are written as they are finished, beside it until the run ends, and the
            report reads them from there: memory does not grow with the number of samples.

    Returns:
        The report, rows in the order of the samples, with `report.left_out`. Ctrl-C ends the run and gives what is
        finished, with `report.complete` False.

    Raises:
        ConfigError: if an option cannot be used, or two metrics have one name.
        SampleError: if a list or DataFrame holds a sample that a metric cannot read.
        JournalError: if the journal cannot be read or written.
    """
    job = Evaluation.of(metrics, max_concurrency, on_failure, timeout, retry, callbacks, journal, budget)
    source = checked(samples, job.metrics)
    with job.keeping(out, samples) as kept:
        try:
            with closing(_shown(job, source, progress)) as rows:
                for row in rows:
                    kept.append(row)
        except KeyboardInterrupt:
            return job.report(kept, complete=False)
        return job.report(kept)


async def aevaluate(
    samples: Samples | AsyncIterator[Any],
    metrics: AnyMetric | Sequence[AnyMetric],
    *,
    max_concurrency: int = 16,
    on_failure: OnFailure = "record",
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    progress: bool = True,
    callbacks: list[BaseCallbackHandler] | None = None,
    journal: str | Path | Journal | None = None,
    budget: Budget | None = None,
    out: str | Path | None = None,
) -> Report:
    """As `evaluate`, through the models' async methods on the caller's loop; samples may be an async iterator."""
    job = Evaluation.of(metrics, max_concurrency, on_failure, timeout, retry, callbacks, journal, budget)
    source = checked(samples, job.metrics)
    with job.keeping(out, samples) as kept:
        async with aclosing(_ashown(job, source, progress)) as rows:
            async for row in rows:
                kept.append(row)
        return job.report(kept)


async def astream_evaluate(
    samples: Samples | AsyncIterator[Any],
    metrics: AnyMetric | Sequence[AnyMetric],
    *,
    max_concurrency: int = 16,
    on_failure: OnFailure = "record",
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    progress: bool = False,
    callbacks: list[BaseCallbackHandler] | None = None,
    journal: str | Path | Journal | None = None,
    budget: Budget | None = None,
) -> AsyncGenerator[Row]:
    """As `aevaluate`, yielding each row when it is finished; memory does not grow with the number of samples.

    Raises:
        BudgetExceeded: after the last row, if the budget had no room for all scores.
    """
    job = Evaluation.of(metrics, max_concurrency, on_failure, timeout, retry, callbacks, journal, budget)
    async with aclosing(_ashown(job, checked(samples, job.metrics), progress)) as rows:
        async for row in rows:
            yield row
    job.refuse_left_out()


def _shown(job: Evaluation, source: Any, progress: bool) -> Generator[Row]:
    with show_progress(size_of(source), job.run.meter, show=progress) as shown, closing(job.rows(source)) as rows:
        for row in rows:
            shown.advance(sum(score.failure is not None for score in row.scores.values()))
            yield row


async def _ashown(job: Evaluation, source: Any, progress: bool) -> AsyncGenerator[Row]:
    with show_progress(size_of(source), job.run.meter, show=progress) as shown:
        async with aclosing(job.arows(source)) as rows:
            async for row in rows:
                shown.advance(sum(score.failure is not None for score in row.scores.values()))
                yield row
