"""Model server of the benchmarks, in a separate process: latency, slots, faults, a prefix cache and records."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from helpers.servers.chat import Answer, ChatRequest, Faults  # noqa: E402
from helpers.servers.endpoints import OpenAIServer  # noqa: E402
from helpers.servers.prefix_cache import PrefixCache, chat_prompt  # noqa: E402
from ragas_answers import answer_ragas  # noqa: E402

from langchain_rageval.models.offline_judge import answer_offline  # noqa: E402

FAULTS = {"429": 0.05, "500": 0.02, "malformed": 0.05, "hang": 0.005}
SPREAD = 0.5  # of the logarithm of a lognormal latency
BLOCKS = 16_384  # 262,144 tokens: the keys and values of an 8B Llama in 32 GiB


@dataclass(frozen=True)
class Conditions:
    """Conditions under which a client is served.

    Attributes:
        latency: seconds of a call, the mean of them when they are lognormal.
        lognormal: whether they are; a prompt has the same latency for every client.
        slots: most calls that the server works on at a time, others wait; None for no limit.
        blocks: most blocks in its prefix cache.
        hang: seconds that a hanging call takes; None for a server without faults.
    """

    latency: float = 0.0
    lognormal: bool = False
    slots: int | None = None
    blocks: int = BLOCKS
    hang: float | None = None


@dataclass
class Books:
    """Records of the server: chat calls with seconds and prompt tokens, embedding requests, and CPU time."""

    calls: int = 0
    embeddings: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    unserved_tokens: int = 0
    server_cpu: float = 0.0


class ModelServer(OpenAIServer):
    """Server that answers our steps like the offline judge and ragas in its schemas; answers are cached by prompt."""

    def __init__(self) -> None:
        super().__init__(self._answer, latency=self._admit)
        self._known: dict[str, dict[str, Any] | str] = {}
        self.open(Conditions())

    def open(self, conditions: Conditions) -> None:
        """Clear the records and the prefix cache."""
        self.conditions = conditions
        self.books = Books()
        self.cache = PrefixCache(conditions.blocks)
        self._cpu = time.process_time()
        self.requests.clear()
        self.embedder.batches.clear()
        self._free = threading.BoundedSemaphore(conditions.slots) if conditions.slots else nullcontext()
        self.faults = Faults.script([])
        if conditions.hang is not None:
            self.faults = Faults.rates(seed=1, hang_seconds=conditions.hang, **FAULTS)

    def bodies(self) -> list[Any]:
        """Return the request bodies in order of arrival."""
        return [received.body for received in self.requests]

    def told(self) -> Books:
        """Return the current records."""
        self.books.embeddings = len(self.embedder.batches)
        self.books.server_cpu = time.process_time() - self._cpu
        return self.books

    def pause(self, seconds: float) -> None:
        if seconds > 0:  # embeddings come at once
            with self._free:
                super().pause(seconds)

    def completion(self, request: ChatRequest, answer: Answer, number: int) -> dict[str, Any]:
        reply = super().completion(request, answer, number)
        (choice,) = reply["choices"]
        return {**reply, "choices": [{**choice, "index": index} for index in range(request.body.get("n") or 1)]}

    def _answer(self, request: ChatRequest) -> dict[str, Any] | str:
        asked = next(message["content"] for message in request.messages if message["role"] == "user")
        if asked not in self._known:
            title = request.schema_title or ""
            self._known[asked] = answer_ragas(asked) if request.rung == "prompt" else answer_offline(title, asked)
        return self._known[asked]

    def _admit(self, request: ChatRequest) -> float:
        """Record a call and return its latency in seconds."""
        prompt = chat_prompt(request.messages)
        seconds = self._seconds(prompt)
        with self._lock:
            reading = self.cache.read(prompt)
            self.books.calls += 1
            self.books.seconds += seconds
            self.books.prompt_tokens += reading.prompt
            self.books.unserved_tokens += reading.unserved
        return seconds

    def _seconds(self, prompt: str) -> float:
        mean = self.conditions.latency
        if not mean or not self.conditions.lognormal:
            return mean
        chance = random.Random(blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        return chance.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD)


def serve(pipe: Any) -> None:
    """Execute commands from the pipe, a method's name with its arguments, until "stop"."""
    with ModelServer() as server:
        pipe.send(server.url)
        while (order := pipe.recv()) != "stop":
            name, arguments = order
            method: Callable[..., Any] = getattr(server, name)
            pipe.send(method(*arguments))


class ServerProcess:
    """Context manager that runs a `ModelServer` in another process."""

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        self.url = self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("stop")
        self._process.join(10)

    def open(self, conditions: Conditions) -> None:
        self._ask("open", conditions)

    def bodies(self) -> list[Any]:
        return list(self._ask("bodies"))

    def books(self) -> dict[str, float]:
        return asdict(self._ask("told"))

    def _ask(self, name: str, *arguments: object) -> Any:
        self._pipe.send((name, arguments))
        return self._pipe.recv()
