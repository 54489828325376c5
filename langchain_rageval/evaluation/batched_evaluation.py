"""Evaluation through batch APIs: the next requests of all samples are collected and sent together (a wave).

After each wave, every sample is scored again from its beginning. Requests that were already sent are answered from
their stored replies.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from itertools import islice, repeat
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import ensure_config
from langsmith.run_helpers import tracing_context

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import JudgeOutputError, RagevalError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.options import Batch, EvaluateOptions
from langchain_rageval.evaluation.scheduler import PendingSample, Task
from langchain_rageval.metrics.structure import called_models, score_sample
from langchain_rageval.run.batch.providers import recorded_anthropic, recorded_openai
from langchain_rageval.run.batch.recorder import Recorder, Recording, ReplyStore, Unanswered
from langchain_rageval.run.batch.wave_files import FileWaves
from langchain_rageval.run.batch.waves import Waves
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.run import Run
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.run.usage import UsageMeter, model_label

_FIRST_SAMPLES = 50  # of a run with a stopping rule; the next waves are of twice as many samples each
_MOST_SAMPLES = 20_000  # in memory at a time
_SUPPORTED = (
    "batch= takes judges of ChatOpenAI and ChatAnthropic, such as openai:MODEL and anthropic:MODEL; leave it out for "
    "other judges"
)


def round_sizes(*, stops: bool) -> Iterator[int]:
    """Yield, without end, the sizes of the groups of samples that are scored one group after the other.

    Without a stopping rule, each group has 20,000 samples. With a stopping rule (`stops`), the first group has 50
    samples, and each further group twice as many, up to 20,000.
    """
    size = _FIRST_SAMPLES if stops else _MOST_SAMPLES
    while True:
        yield size
        size = min(2 * size, _MOST_SAMPLES)


class BatchedEvaluation(Evaluation):
    """Runs one call of `evaluate` or `aevaluate` whose requests are sent in batches.

    Args:
        metrics: metrics and suites.
        options: options of `evaluate`; missing options have their default values.
        samples: samples in any form.
        files: the values of `recorder` and `waves` for requests in files; None for the batch API of the provider.

    Attributes:
        recorder: answers the requests of the models from stored replies, and collects unanswered requests.
        waves: sends the collected requests together (a wave) through the batch API and waits for their replies. If
            `files` is given, `waves` writes the requests to a file instead and ends the run.

    Raises:
        ConfigError: if the batch API does not support a judge.
    """

    def __init__(
        self,
        metrics: AnyMetric | Sequence[AnyMetric],
        options: EvaluateOptions,
        samples: Any,
        files: tuple[Recorder, FileWaves] | None = None,
    ) -> None:
        super().__init__(metrics, options, samples)
        self.recorder: Recorder
        self.waves: Waves | FileWaves
        if files is not None:
            self.recorder, self.waves = files
        else:
            journal = self.score_store.journal
            self.recorder = Recorder(ReplyStore(journal), [recorded_openai, recorded_anthropic], _SUPPORTED)
            poll = (options.get("batch") or Batch()).poll
            self.waves = Waves(self.recorder, journal, poll, self.run.stopped, self.run.governor)
        self._reserved: dict[tuple[int, int], Cost] = {}  # of the tasks that wait for replies
        for judge in self._judges:
            for member in judge.members:
                self.recorder.model_of(member.model)
                if not self.recorder.is_live:
                    member._endpoint.assume_format()
        for model in self._embeddings:
            self.recorder.records(model)

    def rows(self, samples: Iterable[Any]) -> Generator[Row]:
        """Score samples with batched requests and yield each row when it is finished."""
        try:
            self._ask_canaries()
            with self.waves.claimed():
                for pending in self._finished_samples(samples):
                    yield from self._rows_of(pending)
            self.mixed_measures.warn()
        except BaseException:
            self.run.stop()
            raise
        finally:
            self.score_store.close()

    async def arows(self, samples: Any) -> AsyncGenerator[Row]:
        """Score samples in a worker thread and yield each row when it is finished."""
        rows = self.rows(samples)
        try:
            while row := await asyncio.wrap_future(self.run.threads.submit(partial(next, rows, None))):
                yield row
        except BaseException:
            self.run.stop()
            raise

    def _lead(self) -> int:
        """Return the number of all samples: how many are drawn is decided by wave."""
        return max(1, len(self.source))

    def _finished_samples(self, samples: Iterable[Any]) -> Iterator[PendingSample]:
        is_file = isinstance(self.waves, FileWaves)  # which holds the requests in the order of the samples
        at_once = 1 if is_file else self.run.governor.limiter.limit or 1
        sizes = repeat(sys.maxsize) if is_file else round_sizes(stops=self.sequential is not None)
        source = self.scheduler.tasks_by_sample(samples)
        self.waves.resume()
        while under_way := list(islice(source, next(sizes))):
            while under_way:
                jobs = [partial(self._advance, tasks) for tasks in under_way]
                under_way = []
                for finished, waiting in self.run.threads.stream(jobs, at_once):
                    if finished is not None:
                        yield finished
                    if waiting:
                        under_way.append(waiting)
                if under_way and not self.waves.send():
                    raise RagevalError("samples wait for replies, but no request was recorded; please report this")

    def _advance(self, tasks: list[Task]) -> tuple[PendingSample | None, list[Task]]:
        """Do the tasks of a sample, one after the other, whose replies are known.

        Returns:
            The sample if it is finished, and the tasks that wait for replies. These are done again from the beginning,
            so nothing that they have counted is kept.
        """
        finished, waiting, flights = None, [], SingleFlight()
        for task in tasks:
            recording = Recording(self.recorder, f"{task.pending.sample.id}/{task.number}")
            run = replace(
                self.run, single_flight=flights, meter=UsageMeter(prices=self.run.meter.prices), recording=recording
            )
            task.pending.run = run
            try:
                finished = self._do(task) or finished
            except Unanswered:
                waiting.append(task)
            else:
                self.run.meter.add_all_of(run.meter)
        return finished, waiting

    def _invoke(self, metric: AnyMetric, pending: PendingSample, run: Run) -> dict[str, Score]:
        if not self._untraced:
            _check_answered(metric, pending.sample, run)
        scores = super()._invoke(metric, pending, run)
        failures = [score.failure.error for score in scores.values() if score.failure]
        if JudgeOutputError.__name__ in failures and run.recording is not None:
            run.recording.forget_replies()
        return scores

    def _reserve(self, task: Task) -> Cost | None:
        waiting = self._reserved.get((task.pending.index, task.number))
        return super()._reserve(task) if waiting is None else waiting

    def _settle(self, task: Task, reserved: Cost, cost: Cost) -> None:
        """Keep the reserved cost of a task that waits for replies."""
        if isinstance(sys.exception(), Unanswered):
            self._reserved[task.pending.index, task.number] = reserved
        else:
            super()._settle(task, reserved, cost)

    @property
    def _embeddings(self) -> list[Embeddings]:
        models = [model for metric in self.metrics for model in called_models(metric)]
        return [model for model in models if isinstance(model, Embeddings)]

    def _notes(self) -> Iterator[str]:
        yield from super()._notes()
        yield from self.waves.notes
        labels = [model_label(model) for model in self._embeddings if not self.recorder.records(model)]
        yield from dict.fromkeys(Note("called-live", model=label) for label in labels)

    def _interruption_notes(self) -> Iterable[str]:
        return self.waves.interruption_notes


def _check_answered(metric: AnyMetric, sample: Sample, run: Run) -> None:
    """Raise Unanswered if a reply for a score is missing.

    Nothing is traced or counted; traces then contain each step once, when all replies are known.
    """
    silent = replace(run, meter=UsageMeter(), single_flight=SingleFlight())

    def score() -> None:
        with tracing_context(enabled=False):
            score_sample(metric, sample, silent, ensure_config(None), untraced=True)

    Context().run(score)
