"""Depth of metrics: the number of model requests that must follow one another, found in a dry run of one sample.

Requests that do not depend on each other count as sent at the same time, as in the waves of a batch API.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from langchain_rageval.data.schema import Sample
from langchain_rageval.evaluation.dry_run import Parts, local_reply
from langchain_rageval.metrics.structure import sequential_steps
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.run.requests import Call, Embed, Gather, Invoke, Locked, Operation, Rate, SendOnce, Shared
from langchain_rageval.steps.stage import Stage, State

_EMBEDDINGS = HashingEmbeddings()


def request_depth(parts: Iterable[Parts], sample: Sample) -> int:
    """Return the number of waves that the requests of some metrics about a sample need.

    Args:
        parts: for each metric what `plannable_parts` returns.
        sample: a sample that the metrics can read; a metric that cannot read it is left out.
    """
    clock = _Clock()
    return max((clock.finish_of(part, sample) for by_name in parts for part in by_name.values()), default=0)


class _Clock:
    """Driver of operations that answers each request locally, and counts waves in place of time."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, tuple[Any, int]] = {}

    def finish_of(self, metric: Any, sample: Sample) -> int:
        """Return the wave after which a metric is finished, from 0."""
        state: State = {"sample": sample}
        wave = 0
        try:
            metric.read(sample)
            for step in sequential_steps(metric):
                if isinstance(step, Stage):
                    state, wave = self._drive(step.work(state), wave)
        except Exception:  # a step that cannot use invented answers; the run itself is planned without it
            return wave
        return wave

    def _drive(self, operation: Operation[Any], wave: int) -> tuple[Any, int]:
        """Run an operation that starts after a wave; return its result and the wave after which it ends."""
        reply: Any = None
        try:
            while True:
                reply, wave = self._answer(operation.send(reply), wave)
        except StopIteration as end:
            return end.value, wave

    def _answer(self, request: Any, wave: int) -> tuple[Any, int]:
        match request:
            case Gather(operations=operations):
                results = [self._drive(operation, wave) for operation in operations]
                return [result for result, _ in results], max((end for _, end in results), default=wave)
            case Shared(key=key, operation=operation):
                if key not in self._shared:
                    self._shared[key] = self._drive(operation, wave)
                else:
                    operation.close()
                result, end = self._shared[key]
                return result, max(wave, end)
            case Locked(operation=operation):
                return self._drive(operation, wave)
            case SendOnce(request=inner):
                return self._answer(inner, wave)
            case Embed(texts=texts):
                return [np.asarray(vector) for vector in _EMBEDDINGS.embed_documents(list(texts))], wave + 1
            case Call() | Invoke():
                return local_reply(request), wave + 1
            case Rate():
                return local_reply(request), wave
        return None, wave
