"""`evaluate`, `aevaluate` and `astream_evaluate`: score samples; `evaluate_from_files`: the same without model calls.

`evaluate_from_files` reads the replies of the models from a journal, and writes requests that have no reply to a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any, Unpack

from langchain_rageval.data.schema import Row
from langchain_rageval.evaluation.batched_evaluation import BatchedEvaluation
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, Samples, flatten_metrics, size_of
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, STREAM_DEFAULTS, EvaluateOptions, StreamOptions
from langchain_rageval.report.report import Report
from langchain_rageval.run.batch.providers import recorded_openai
from langchain_rageval.run.batch.recorder import Recorder, ReplyStore
from langchain_rageval.run.batch.wave_files import FileWaves, WaveFile, WaveWritten
from langchain_rageval.run.batch.waves import Waves
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.progress import Progress, show_progress
from langchain_rageval.run.run import fill_defaults


def evaluate(samples: Samples, metrics: AnyMetric | Sequence[AnyMetric], **options: Unpack[EvaluateOptions]) -> Report:
    """Score samples with metrics, in worker threads.

    Args:
        samples: a list, an iterator, a path that `load_samples` reads, a DataFrame, a data set of mappings, LangSmith
            examples, a Testset or a Report. Each item is anything that `Sample.parse` reads. An invalid item of a list,
            DataFrame or Testset raises before any call. An invalid item of another source becomes a failure in its row.
        metrics: Runnables that return a Score, or a mapping of names to Scores. A suite is replaced by its metrics.
        **options: described in `EvaluateOptions` and its bases:

            * `max_concurrency=16`: maximum number of model calls at a time;
            * `timeout=60.0`: seconds for one model call;
            * `retry=None`: a RetryPolicy for transport errors, by default ten attempts;
            * `price=None`: prices of models, {"model": (input, output)} per million tokens, for `usage.money`;
            * `journal=None`: path of a file that stores finished scores, so that a second call resumes the run;
            * `budget=None`: a Budget that limits what the run may spend, on samples in random order;
            * `progress=True`: show the progress on stderr;
            * `on_failure="record"`: store a failure in its score, or "raise" the first one;
            * `fields=None`: mapping from fields of Sample to the names in your data;
            * `strict=False`: record a failure for a sample that lacks a field which other samples have; True raises;
            * `callbacks=None`: LangChain callback handlers for every metric;
            * `out=None`: path of a file for the rows, which then take no memory;
            * `until=None`: `Decided(...)` or `Precise(...)`, to stop when the scored samples suffice;
            * `audit=None`: `Audit(strong_judge)`, to let a strong judge score a random part of the samples, too;
            * `batch=None`: `Batch()`, to send the requests through the provider's batch API, at half the price;
            * `canaries=None`: True first asks each judge plain statements with known verdicts; too many errors make
              `Report.check` fail. None asks only with the stopping rule `Decided`.

    Returns:
        The report; its rows are in the order of the samples. `report.left_out` lists the scores that did not fit the
        budget or were not needed. `report.decisions` holds the decisions of a run with `until=`. `report.audit` holds
        the estimated mean of the strong judge. Ctrl-C ends the run: the report then holds the finished scores, and
        `report.complete` is False.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option has an invalid value, or two metrics have the same name.
        SampleError: if an item of a list or DataFrame is not a sample; if all samples lack a field that a metric reads;
            or if two samples with different questions have the same id.
        JournalError: if the journal cannot be read or written.

    Warns:
        UserWarning: before the first call, if a request about the longest sample of a list exceeds the context window
            of its model. The window is known only from LangChain's profile of the model or from the option `num_ctx`.
    """
    job = _job(samples, metrics, fill_defaults(evaluate, options, EVALUATE_DEFAULTS))
    with job.open_output(samples) as output:
        try:
            with _shown(job) as progress, closing(job.rows(job.samples)) as rows:
                for row in rows:
                    progress.advance(sum(score.failure is not None for score in row.scores.values()))
                    job.keep(row, output)
        except KeyboardInterrupt:
            return job.build_report(output, complete=False)
        return job.build_report(output)


async def aevaluate(
    samples: Samples | AsyncIterator[Any], metrics: AnyMetric | Sequence[AnyMetric], **options: Unpack[EvaluateOptions]
) -> Report:
    """Score samples with metrics on the caller's event loop, with the async methods of the models.

    Args:
        samples: as for `evaluate`, or an async iterator.
        metrics: as for `evaluate`.
        **options: as for `evaluate`.

    Returns:
        The report, as `evaluate` returns it. The errors are those of `evaluate` too.
    """
    chosen = fill_defaults(aevaluate, options, EVALUATE_DEFAULTS)
    if any(chosen[name] is not None for name in ("until", "audit", "batch")):  # all samples must be known
        flatten_metrics(metrics)  # raises before the samples are read
        samples = [item async for item in samples] if isinstance(samples, AsyncIterable) else samples
    job = _job(samples, metrics, chosen)
    with job.open_output(samples) as output:
        async with aclosing(_awith_progress(job)) as rows:
            async for row in rows:
                job.keep(row, output)
        return job.build_report(output)


def astream_evaluate(
    samples: Samples | AsyncIterator[Any], metrics: AnyMetric | Sequence[AnyMetric], **options: Unpack[StreamOptions]
) -> AsyncGenerator[Row]:
    """Score samples with metrics on the caller's event loop, and yield the row of each sample when it is finished.

    Memory does not grow with the number of samples.

    Args:
        samples: as for `evaluate`, or an async iterator.
        metrics: as for `evaluate`.
        **options: as for `evaluate`, except that `out` does not exist and `progress` is False by default.

    Yields:
        Each row, in the order in which rows are finished.

    Raises:
        BudgetExceeded: after the last row, if a score did not fit the budget.
    """
    return _stream(samples, metrics, fill_defaults(astream_evaluate, options, STREAM_DEFAULTS))


async def _stream(
    samples: Samples | AsyncIterator[Any], metrics: AnyMetric | Sequence[AnyMetric], options: StreamOptions
) -> AsyncGenerator[Row]:
    job = Evaluation(metrics, options, samples)
    async with aclosing(_awith_progress(job)) as rows:
        async for row in rows:
            yield row
    job.raise_if_left_out()


def _job(samples: Any, metrics: AnyMetric | Sequence[AnyMetric], options: EvaluateOptions) -> Evaluation:
    return (Evaluation if options["batch"] is None else BatchedEvaluation)(metrics, options, samples)


async def _awith_progress(job: Evaluation) -> AsyncGenerator[Row]:
    """Yield the rows of an evaluation, and show its progress."""
    with _shown(job) as progress:
        async with aclosing(job.arows(job.samples)) as rows:
            async for row in rows:
                progress.advance(sum(score.failure is not None for score in row.scores.values()))
                yield row


@contextmanager
def _shown(job: Evaluation) -> Iterator[Progress]:
    """Show the progress of an evaluation, and the state of its batches."""
    with show_progress(size_of(job.samples), job.run.meter, show=job.options["progress"]) as progress:
        if isinstance(job, BatchedEvaluation) and isinstance(job.waves, Waves):
            job.waves.show = progress.show
        yield progress


_SUPPORTED = "requests are written for models of ChatOpenAI, such as vllm:MODEL and openai:MODEL"


def evaluate_from_files(
    samples: Any, metrics: Sequence[AnyMetric], journal: Journal, path: Path | None, *, strict: bool = False
) -> Report | WaveFile:
    """Score samples with the replies in a journal; write the requests that have no reply yet to a file.

    Args:
        samples: as for `evaluate`.
        metrics: as for `evaluate`.
        journal: holds the replies and the finished scores.
        path: path of the file for the next requests. None takes `wave-1.jsonl` for the first requests. For later
            requests, None takes the path of the last file in the journal with the next number, as in `wave-2.jsonl`.
            If the requests are those of the last file, the number stays the same.
        strict: as for `evaluate`.

    Returns:
        The report if all replies are known, otherwise the file of the next requests.

    Raises:
        ConfigError: if requests to a judge cannot be written to files.
    """
    recorder = Recorder(ReplyStore(journal, keeps_refusals=True), [recorded_openai], _SUPPORTED, live=False)
    files = recorder, FileWaves(recorder, journal, path)
    job = BatchedEvaluation(metrics, {"journal": journal, "strict": strict}, samples, files)
    rows: list[Row] = []
    try:
        with closing(job.rows(job.samples)) as finished:
            for row in finished:
                job.keep(row, rows)
    except WaveWritten as written:
        return written.wave
    return job.build_report(rows)
