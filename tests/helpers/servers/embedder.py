"""Base of the embeddings endpoints: vectors of HashingEmbeddings, refusals, faults, and a log of the texts."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from helpers.servers.faults import Faults
from helpers.servers.loopback import Loopback, Received, Refused, ResetConnection

from langchain_rageval import HashingEmbeddings

Vectors = list[Any]


def fewer(vectors: Vectors) -> Vectors:
    return vectors[:-1]


def zero(vectors: Vectors) -> Vectors:
    return [[0.0] * len(vector) for vector in vectors]


def nan(vectors: Vectors) -> Vectors:
    return [[float("nan"), *vector[1:]] for vector in vectors]


VECTOR_SPOILERS: dict[str, Callable[[Vectors], Vectors]] = {spoil.__name__: spoil for spoil in (fewer, zero, nan)}


class Embedder:
    """Embeds the texts of a request as HashingEmbeddings does.

    Args:
        faults: the fault plan; each embeddings request takes one entry. "misshapen" is JSON without vectors.
        latency: seconds before an answer.
        refuse: returns True for a text whose requests are refused with 400.

    Attributes:
        batches: the texts of each request, including failed and refused ones.
        most: maximum number of concurrent requests.
        faulted: number of requests with a planned fault, by name of the fault.
        refused: number of requests that were refused because of one of their texts.
    """

    def __init__(
        self, *, faults: Faults | None = None, latency: float = 0.0, refuse: Callable[[str], bool] = lambda _text: False
    ) -> None:
        self.faults = faults or Faults.script([])
        self.latency = latency
        self.refuse = refuse
        self.batches: list[list[str]] = []
        self.most = 0
        self.faulted: Counter[str] = Counter()
        self.refused = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._brain = HashingEmbeddings()

    @property
    def texts(self) -> list[str]:
        """All texts that were received, with repetitions."""
        return [text for batch in self.batches for text in batch]

    def vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        """Return the vectors, altered if the plan says so; None for a body without vectors."""
        with self._lock:
            self.batches.append(texts)
            self._in_flight += 1
            self.most = max(self.most, self._in_flight)
        try:
            return self._vectors(texts, received, server)
        finally:
            with self._lock:
                self._in_flight -= 1

    def _vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        fault = self.faults.draw(received.raw)
        if fault:
            server.count(self.faulted, fault)
            _apply_fault(fault, self.faults, received, server)
        if any(map(self.refuse, texts)):
            with self._lock:
                self.refused += 1
            raise Refused(400, "This input cannot be embedded")
        server.pause(self.latency)
        if fault == "misshapen":
            return None
        vectors = self._brain.embed_documents(texts)
        return VECTOR_SPOILERS[fault](vectors) if fault in VECTOR_SPOILERS else vectors


class ProxyPage(Exception):
    """Raised to answer with a page of HTML."""


def _apply_fault(fault: str, faults: Faults, received: Received, server: Loopback) -> None:
    """Raise the fault that replaces the answer, or wait."""
    match fault:
        case "429":
            raise Refused(429, "Rate limit reached", {"Retry-After": faults.retry_after})
        case "500":
            raise Refused(500, "The server had an error while processing your request")
        case "unauthorized":
            raise Refused(401, f"Incorrect credentials provided: {received.headers.get('authorization')}")
        case "reset":
            raise ResetConnection
        case "html":
            raise ProxyPage
        case "hang":
            server.pause(faults.hang_seconds)
