"""Refusals and hangs: wall time, calls and refusals of a run whose endpoint rejects calls, beside the clean run.

    python tests/benchmarks/refusals.py                       # about three minutes
    python tests/benchmarks/refusals.py clean both --seed 2

A loopback server in a separate process answers like OfflineJudge after 0.1 s. `429`: 5% of the calls at random;
`hangs`: six calls take 20 s; `both`; `ceiling`: 8 calls at a time, 32 slots; `rate`: 600 calls a minute, which only
Retry-After and the rejections show; `stated`: the same, named in the headers of each rejection.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from helpers.offline import offline, rag_samples, six_metrics  # noqa: E402
from helpers.servers.chat import Faults  # noqa: E402
from helpers.servers.endpoints import OpenAIServer  # noqa: E402
from helpers.servers.loopback import Refused  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from measured import spawned  # noqa: E402

from langchain_rageval import evaluate  # noqa: E402

LATENCY, HANG = 0.1, 20.0


class Limited(OpenAIServer):
    """Has room for `room` calls at a time, and for `rate` calls a second."""

    def __init__(self, room: int | None = None, rate: float | None = None, stated: bool = False, **options: Any):
        super().__init__(offline, latency=LATENCY, **options)
        self.room, self.rate, self.stated = room, rate, stated
        self.inside, self.saved, self.last = 0, 10.0, time.monotonic()
        self.times: list[tuple[float, bool]] = []

    def chat(self, received: Any) -> Any:
        with self._lock:
            now = time.monotonic()
            if self.rate is not None:
                self.saved, self.last = min(10.0, self.saved + (now - self.last) * self.rate), now
            refused = (self.room is not None and self.inside >= self.room) or (self.rate is not None and self.saved < 1)
            self.times.append((now, refused))
            if refused:
                headers = {"x-ratelimit-limit-requests": str(round(60 * (self.rate or 0)))} if self.stated else {}
                raise Refused(429, "Too many calls", {"Retry-After": "1", **headers})
            self.saved, self.inside = self.saved - 1, self.inside + 1
        try:
            return super().chat(received)
        finally:
            with self._lock:
                self.inside -= 1


def faults_of(name: str, seed: int, calls: int) -> Faults:
    """Return the faults of a scenario."""
    rng = random.Random(seed)
    hangs = set(rng.sample(range(calls // 2), 6)) if name in ("hangs", "both") else set()
    rate = 0.05 if name in ("429", "both") else 0.0

    def pick(position: int, _raw: bytes, _repeats: int) -> str | None:
        return "hang" if position in hangs else "429" if rng.random() < rate else None

    return Faults(pick, retry_after="1", hang_seconds=HANG)


def serve(name: str, seed: int, calls: int, pipe: Any) -> None:
    """Serve until the counts are requested."""
    limits: dict[str, Any] = {"ceiling": {"room": 8}, "rate": {"rate": 10.0}, "stated": {"rate": 10.0, "stated": True}}
    with Limited(faults=faults_of(name, seed, calls), **limits.get(name, {})) as server:
        pipe.send(server.url)
        pipe.recv()
        first = server.times[0][0] if server.times else 0.0
        late = [refused for at, refused in server.times if at > first + 10]
        refused = server.faulted["429"] + sum(refused for _, refused in server.times)
        pipe.send((len(server.times), refused, sum(late) / max(1, len(late))))


def measure(name: str, seed: int, samples: int) -> tuple[float, int, int, float, int]:
    """Return the seconds, calls, refusals, share of refusals after ten seconds, and failed scores of a scenario."""
    here = spawned(serve, name, seed, 8 * samples)
    model = ChatOpenAI(base_url=here.recv() + "/v1", api_key="sk-test", model="m", max_retries=0, temperature=0)
    started = time.perf_counter()
    slots = 32 if name == "ceiling" else 16
    limits: dict[str, Any] = {"max_concurrency": slots, "timeout": 120.0}
    report = evaluate(rag_samples(samples), six_metrics(model), progress=False, **limits)
    wall = time.perf_counter() - started
    here.send("counts")
    calls, refused, late = here.recv()
    return wall, calls, refused, late, len(report.failures())


def main() -> None:
    """Print a line for each scenario."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["clean", "429", "hangs", "both", "ceiling", "rate", "stated"]
    parser.add_argument("scenarios", nargs="*", default=names)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    clean = None
    for name in options.scenarios:
        wall, calls, refused, late, failed = measure(name, options.seed, options.samples)
        clean = wall if name == "clean" else clean
        ratio = "" if clean is None else f" ({wall / clean:.2f} of the clean run)"
        print(f"{name}: {wall:.1f} s{ratio}, {calls} calls, {refused} refused ({refused / calls:.1%}),", end=" ")
        print(f"{late:.1%} after ten seconds, {failed} failed scores, {threading.active_count()} threads", flush=True)


if __name__ == "__main__":
    main()
