"""Embedding texts for many samples at once: each text once, in batches of bounded size.

The first text goes out at once; what others ask for meanwhile goes out together when the answer is there, so that
batches grow with the load. Who has waited for long sends what waits: one slow request holds up no other for good.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
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
PATIENCE = 1.0  # seconds
_KEPT = 1024  # texts; a vector of 1,536 numbers takes 12 kB
_PERHAPS_ONE_TEXT = (None, 400, 413, 422)  # refusals that the content of a single text may have caused


@dataclass(frozen=True, slots=True)
class Batch:
    """Some texts to embed with one request; the reply is a list of vectors."""

    embeddings: Embeddings
    texts: Sequence[str]


class Batches:
    """The texts that the samples of a run want embedded by one object.

    Usable from threads and from a loop: `enlist` gives futures, and whoever is told to starts `work`; whoever enlisted
    leaves in the end.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[Vector]] = {}
        self._known: OrderedDict[str, Future[Vector]] = OrderedDict()  # sent or answered, the latest last
        self._workers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters = 0

    def enlist(self, texts: Sequence[str]) -> tuple[list[Future[Vector]], int, bool]:
        """Ask for vectors.

        Returns:
            A future for each text; how many texts nobody had asked for; whether the caller must start `work`.
        """
        with self._lock:
            self._waiters += 1
            fresh = {text: _uncancellable() for text in texts if not self._has(text)}
            self._waiting |= fresh
            futures = [self._waiting.get(text) or self._known[text] for text in texts]
            start = bool(fresh) and (not self._workers or len(self._waiting) >= BATCH_SIZE)
            self._workers += start
        return futures, len(fresh), start

    def late(self, texts: Sequence[str]) -> bool:
        """Whether one of these texts still waits to be sent, so that the caller must start `work` once more."""
        with self._lock:
            late = any(text in self._waiting for text in texts)
            self._workers += late
        return late

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold on to a worker on a loop until it is done; the loop itself holds it weakly."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self) -> bool:
        """Wait no more.

        Returns:
            Whether nobody else does while workers on a loop are still under way. They are called back, and these
            batches are of no use to anybody.
        """
        with self._lock:
            self._waiters -= 1
            forsaken = [] if self._waiters else [task for task in list(self._tasks) if not task.done()]
        for task in forsaken:
            task.get_loop().call_soon_threadsafe(task.cancel)
        return bool(forsaken)

    def work(self) -> Generator[Batch, Any, None]:
        """Send batches until no text waits; what fails is handed to those who asked."""
        while batch := self._taken():
            try:
                yield from self._sent(batch)
            except Exception as error:
                self._failed(batch, error)
            except BaseException:
                self._failed(batch | self._orphans(), CancelledError("the embeddings were broken off"))
                raise

    def _sent(self, batch: dict[str, Future[Vector]]) -> Generator[Batch, Any, None]:
        """Send a batch; one that is refused is halved until the text at fault stands alone."""
        texts = list(batch)
        try:
            vectors = yield Batch(self.embeddings, texts)
            if len(vectors) != len(texts):
                raise ModelOutputError(f"the embeddings gave {len(vectors)} vectors for {len(texts)} texts")
        except Exception as error:
            if len(texts) == 1 or not of_one_text(error):
                raise
            for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
                part = {text: batch[text] for text in half}
                try:
                    yield from self._sent(part)
                except Exception as error_of_half:
                    self._failed(part, error_of_half)
            return
        for text, vector in zip(texts, vectors, strict=True):
            try:
                batch[text].set_result(np.array(vector, dtype=np.float64))
            except (TypeError, ValueError):
                self._failed({text: batch[text]}, ModelOutputError(f"the embeddings gave no vector for {text[:100]!r}"))

    def _has(self, text: str) -> bool:
        if text in self._known:
            self._known.move_to_end(text)
            return True
        return text in self._waiting

    def _taken(self) -> dict[str, Future[Vector]]:
        with self._lock:
            batch = {text: self._waiting.pop(text) for text in list(islice(self._waiting, BATCH_SIZE))}
            self._known |= batch
            while len(self._known) > max(_KEPT, len(batch)):
                self._known.popitem(last=False)
            self._workers -= not batch
            return batch

    def _orphans(self) -> dict[str, Future[Vector]]:
        """End a worker; gives the texts that nobody is left to send."""
        with self._lock:
            self._workers -= 1
            orphans, self._waiting = ({}, self._waiting) if self._workers else (self._waiting, {})
            return orphans

    def _failed(self, batch: dict[str, Future[Vector]], error: Exception) -> None:
        """Hand over the error; what failed is not kept."""
        with self._lock:
            for text in batch:
                self._known.pop(text, None)
        for future in batch.values():
            if not future.done():
                future.set_exception(error)


def of_one_text(error: Exception) -> bool:
    """Whether a single one of the texts may have caused an error, so that the others can be embedded without it."""
    return not is_transient(error) and status_of(error) in _PERHAPS_ONE_TEXT


def _uncancellable() -> Future[Vector]:
    """A future that one of those who wait for it cannot cancel for the others."""
    future: Future[Vector] = Future()
    future.set_running_or_notify_cancel()
    return future
