"""Embedding of texts for many samples together: each text is embedded once, in batches of limited size.

The first text is sent at once. Texts that are requested while a batch is under way are sent together after its reply,
so batches grow with the load. A caller that has waited long starts another worker, so that one slow request does not
block the other texts.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_rageval.errors import ModelOutputError
from langchain_rageval.run.retry import is_transient, status_of

Vector = NDArray[np.float64]

BATCH_SIZE = 64
MAX_WAIT = 1.0  # seconds until a caller whose texts are still unsent starts a further worker
_LEAST_ALIKE = 3
_MAX_CACHED = 1024  # texts; a vector of 1,536 numbers takes 12 kB
_STATUS_OF_ONE_TEXT = (None, 400, 413, 422)  # refusals that the content of a single text may have caused


@dataclass(frozen=True, slots=True)
class EmbedBatch:
    """Embed texts with one request; the reply is a list of vectors."""

    embeddings: Embeddings
    texts: Sequence[str]


class EmbeddingQueue:
    """Queue of the texts that one embeddings object has to embed in a run. Usable from threads and event loops.

    A caller calls `add` and gets a future for each text. A second later, a caller that still waits calls
    `add_worker_if_late`. If the bool that either method returns is True, the caller must start a worker: a thread or
    task that runs `send_batches`. A caller that has its vectors or stops waiting calls `leave`.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings
        self._lock = threading.Lock()
        self._unsent: dict[str, Future[Vector]] = {}
        self._sent: OrderedDict[str, Future[Vector]] = OrderedDict()  # the most recently used last
        self._workers = 0
        self._first: Vector | None = None
        self.alike = 0
        """Number of different texts embedded so far, while all had one vector; -1 as soon as two vectors differ."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._callers = 0

    def add(self, texts: Sequence[str], charge: Callable[[int], None]) -> tuple[list[Future[Vector]], bool]:
        """Add texts to the queue and return futures of their vectors.

        Args:
            texts: the texts.
            charge: function that takes the number of texts that no caller requested before, and charges them. If it
                raises, no text is added.

        Returns:
            A list with one future for each text, and True if the caller must start a worker.
        """
        with self._lock:
            new = {text: _uncancellable_future() for text in texts if not self._has(text)}
            charge(len(new))
            self._callers += 1
            self._unsent |= new
            futures = [self._unsent.get(text) or self._sent[text] for text in texts]
            needs_worker = bool(new) and (not self._workers or len(self._unsent) >= BATCH_SIZE)
            self._workers += needs_worker
        return futures, needs_worker

    def add_worker_if_late(self, texts: Sequence[str]) -> bool:
        """Return True if one of `texts` is still in no batch; the caller must then start another worker.

        A caller that has waited for a second calls this method. A worker is a thread or task that runs `send_batches`.
        """
        with self._lock:
            is_late = any(text in self._unsent for text in texts)
            self._workers += is_late
        return is_late

    def keep_task(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a worker's task until the task is done; an event loop keeps only weak references."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self) -> bool:
        """Record that a caller no longer waits for vectors. After the last caller, cancel the running worker tasks.

        Returns:
            True if workers were cancelled; the queue must not be used again then.
        """
        with self._lock:
            self._callers -= 1
            abandoned = [] if self._callers else [task for task in list(self._tasks) if not task.done()]
        for task in abandoned:
            task.get_loop().call_soon_threadsafe(task.cancel)
        return bool(abandoned)

    def send_batches(self) -> Generator[EmbedBatch, Any, None]:
        """Yield requests to embed batches, until every text is sent.

        The driver of this generator sends each request and returns the vectors, or raises the error inside the
        generator. The vectors or the error are then set on the futures that `add` returned for the texts of the batch.
        """
        while batch := self._next_batch():
            try:
                yield from self._send(batch)
            except BaseException as error:
                cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
                cause = CancelledError("embedding was cancelled") if cancelled else error
                self._fail(batch | self._stop_worker(), cause)
                raise

    def _send(self, batch: dict[str, Future[Vector]], is_repeat: bool = False) -> Generator[EmbedBatch, Any, None]:
        """Send a batch of texts, and set their vectors, or the error if the batch fails."""
        try:
            yield from self._send_or_raise(batch, is_repeat)
        except Exception as error:
            self._fail(batch, error)

    def _send_or_raise(self, batch: dict[str, Future[Vector]], is_repeat: bool) -> Generator[EmbedBatch, Any, None]:
        """Send a batch of texts. A rejected batch is halved until the rejected text is alone.

        A text without a usable vector is sent once more, alone, unless the server refused it. Otherwise it would depend
        on the texts in the same request whether this text fails. `is_repeat` is True for this second request.
        """
        texts = list(batch)
        try:
            vectors = yield EmbedBatch(self.embeddings, texts)
            if len(vectors) != len(texts):
                raise ModelOutputError(f"the embeddings returned {len(vectors)} vectors for {len(texts)} texts")
        except Exception as error:
            is_alone = len(texts) == 1
            if not may_concern_one_text(error) or (is_alone and (is_repeat or status_of(error) is not None)):
                raise
            for half in filter(None, (texts[: len(texts) // 2], texts[len(texts) // 2 :])):
                yield from self._send({text: batch[text] for text in half}, is_repeat=is_alone)
            return
        for text, vector in zip(texts, vectors, strict=True):
            try:
                result = np.array(vector, dtype=np.float64)
                if self.alike >= 0:
                    self._first = result if self._first is None else self._first
                    self.alike = self.alike + 1 if np.array_equal(result, self._first) else -1
                batch[text].set_result(result)
            except (TypeError, ValueError):
                if is_repeat:
                    raise ModelOutputError(f"the embeddings returned no vector for {text[:100]!r}") from None
                yield from self._send({text: batch[text]}, is_repeat=True)

    def _has(self, text: str) -> bool:
        if text in self._sent:
            self._sent.move_to_end(text)
            return True
        return text in self._unsent

    def _next_batch(self) -> dict[str, Future[Vector]]:
        """Remove the next texts from the queue and return them; an empty batch ends the worker."""
        with self._lock:
            batch = {text: self._unsent.pop(text) for text in list(islice(self._unsent, BATCH_SIZE))}
            self._sent |= batch
            while len(self._sent) > _MAX_CACHED:
                self._sent.popitem(last=False)
            self._workers -= not batch
            return batch

    def _stop_worker(self) -> dict[str, Future[Vector]]:
        """Record the end of a worker; return the unsent texts if no other worker is left to send them."""
        with self._lock:
            self._workers -= 1
            orphans, self._unsent = ({}, self._unsent) if self._workers else (self._unsent, {})
            return orphans

    def _fail(self, batch: dict[str, Future[Vector]], error: BaseException) -> None:
        """Pass an error to the futures; failed texts are not cached."""
        with self._lock:
            for text in batch:
                self._sent.pop(text, None)
        for future in batch.values():
            if not future.done():
                future.set_exception(error)


class EmbeddingQueues:
    """The embedding queues of a run: one queue for each embeddings object."""

    def __init__(self) -> None:
        self._queues: dict[int, EmbeddingQueue] = {}  # by id; a queue keeps its object alive, so an id is not reused
        self._lock = threading.Lock()

    def queue_for(self, embeddings: Embeddings) -> EmbeddingQueue:
        """Return the queue of an embeddings object; the queue is created on first use."""
        with self._lock:
            return self._queues.setdefault(id(embeddings), EmbeddingQueue(embeddings))

    def alike(self) -> list[tuple[Embeddings, int]]:
        """Return each embeddings object that gave all its texts the same vector, with the number of texts.

        An object that has embedded fewer than three different texts is left out.
        """
        with self._lock:
            return [(one.embeddings, one.alike) for one in self._queues.values() if one.alike >= _LEAST_ALIKE]

    def leave(self, queue: EmbeddingQueue) -> None:
        """Record that a caller no longer waits for a queue; if no caller is left, cancel its running worker tasks.

        If a worker was cancelled, the queue is removed, and `queue_for` then creates a new one. Otherwise it is kept.
        """
        if queue.leave():
            with self._lock:
                if self._queues.get(id(queue.embeddings)) is queue:
                    del self._queues[id(queue.embeddings)]


def may_concern_one_text(error: Exception) -> bool:
    """Return True if a single text may have caused the error of a batch.

    The other texts of the batch can then be embedded alone.
    """
    return not is_transient(error) and status_of(error) in _STATUS_OF_ONE_TEXT


def _uncancellable_future() -> Future[Vector]:
    """Return a future that a waiting caller cannot cancel for the other callers."""
    future: Future[Vector] = Future()
    future.set_running_or_notify_cancel()
    return future
