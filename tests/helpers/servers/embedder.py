"""What every embeddings endpoint shares: vectors of HashingEmbeddings, refusals, faults, a log of the texts."""

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
        faults: the plan; each embeddings request takes one entry. "misshapen" is JSON that holds no vectors.
        latency: seconds before an answer.
        refuse: from a text to whether a request that holds it is refused with 400.

    Attributes:
        batches: the texts of each request that came, also of those that met a fault or were refused.
        most: most requests at a time.
        faulted: how many requests met a planned fault, by its name.
        refused: how many requests were refused for one of their texts.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        latency: float = 0.0,
        refuse: Callable[[str], bool] = lambda _text: False,
    ) -> None:
        self.faults = faults or Faults.script([])
        self.latency = latency
        self.refuse = refuse
        self.batches: list[list[str]] = []
        self.most = 0
        self.faulted: Counter[str] = Counter()
        self.refused = 0
        self._flying = 0
        self._lock = threading.Lock()
        self._brain = HashingEmbeddings()

    @property
    def texts(self) -> list[str]:
        """Every text that was sent, as often as it was."""
        return [text for batch in self.batches for text in batch]

    def vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        """The vectors, spoilt where that is planned; None stands for a body that holds none."""
        with self._lock:
            self.batches.append(texts)
            self._flying += 1
            self.most = max(self.most, self._flying)
        try:
            return self._vectors(texts, received, server)
        finally:
            with self._lock:
                self._flying -= 1

    def _vectors(self, texts: list[str], received: Received, server: Loopback) -> Vectors | None:
        fault = self.faults.draw(received.raw)
        if fault:
            server.count(self.faulted, fault)
            _meet(fault, self.faults, received, server)
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
    """Raised for a page of HTML in place of the answer."""


def _meet(fault: str, faults: Faults, received: Received, server: Loopback) -> None:
    """Raise what comes in place of an answer, or wait."""
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
