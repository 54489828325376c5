"""What a model call costs: our own CPU and the use of the slots, beside a bare ChatOpenAI that sends the same requests.

    python tests/benchmarks/calls.py --rows 200 --slots 16 --latency 0.3

A loopback server in a process of its own answers after a fixed latency. First `evaluate` (or `aevaluate`) runs, then
the bare client sends the very requests that the server got, through the same door and as many slots; they take turns,
and ratios are medians over the rounds.
"""

import argparse
import asyncio
import gzip
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_openai import ChatOpenAI

from langchain_rageval import aevaluate, evaluate, faithfulness

LOOP = asyncio.Runner()  # a single loop: ChatOpenAI objects share one async client for each address
ROWS = Path(__file__).parents[1] / "data" / "rag_answers" / "rows.jsonl.gz"


@dataclass
class Cost:
    wall: float
    cpu: float
    calls: int


def serve(latency: float, pipe: Any) -> None:
    """Answer as the offline judge would, each request computed once; hand over what was asked."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from servers.openai_server import OpenAIServer

    from langchain_rageval.offline import answer_offline

    known: dict[str, dict[str, Any]] = {}

    def brain(request: Any) -> dict[str, Any]:
        human = request.messages[-1]["content"]
        if human not in known:
            known[human] = answer_offline(request.schema_title, human)
        return known[human]

    with OpenAIServer(brain, latency=latency) as server:
        pipe.send(server.url)
        while pipe.recv() == "requests":
            pipe.send([received.body for received in server.requests])
            server.requests.clear()


def measured(work: Callable[[], int]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    calls = work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, calls)


def ours(samples: list[Any], model: ChatOpenAI, slots: int, door: str) -> int:
    options = {"max_concurrency": slots, "progress": False, "timeout": 60.0}
    if door == "async":
        report = LOOP.run(aevaluate(samples, faithfulness(model), **options))
    else:
        report = evaluate(samples, faithfulness(model), **options)
    assert not report.failures()
    return report.summary()["faithfulness"].calls


def bare(requests: list[dict[str, Any]], model: ChatOpenAI, slots: int, door: str) -> int:
    """The same messages and the same options, nothing else."""
    calls = [
        (
            [(message["role"], message["content"]) for message in body["messages"]],
            {"extra_body": {"response_format": body["response_format"]}, "stream": False, "timeout": 60.0},
        )
        for body in requests
    ]
    if door == "async":
        LOOP.run(_bare_async(calls, model, slots))
    else:
        with ThreadPoolExecutor(slots) as pool:
            list(pool.map(lambda call: model.invoke(call[0], **call[1]), calls))
    return len(calls)


async def _bare_async(calls: list[Any], model: ChatOpenAI, slots: int) -> None:
    waiting = iter(calls)

    async def work() -> None:
        for messages, options in waiting:
            await model.ainvoke(messages, **options)

    await asyncio.gather(*(work() for _ in range(slots)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--door", choices=("sync", "async"), default="sync")
    options = parser.parse_args()
    samples = [json.loads(line) for line in gzip.decompress(ROWS.read_bytes()).splitlines()]
    samples = (samples * (1 + options.rows // len(samples)))[-options.rows :]
    for number, sample in enumerate(samples):
        sample["id"] = f"{sample['id']}-{number}"
        sample["question"] += f" ({number})"  # equal samples in flight together would share their calls
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(options.latency, there), daemon=True)
    server.start()
    url = here.recv()

    def model() -> ChatOpenAI:
        return ChatOpenAI(base_url=url + "/v1", api_key="sk-test", model="m", max_retries=0, temperature=0)

    ours(samples, model(), options.slots, options.door)  # warm-up: imports, the server's answers
    here.send("requests")
    requests = here.recv()
    bare(requests[: options.slots], model(), options.slots, options.door)
    pairs = []
    for _ in range(options.rounds):
        one = measured(lambda: ours(samples, model(), options.slots, options.door))
        other = measured(lambda: bare(requests, model(), options.slots, options.door))
        assert one.calls == other.calls == len(requests)
        pairs.append((one, other))
    here.send("stop")
    show(pairs, options)


def show(pairs: list[tuple[Cost, Cost]], options: argparse.Namespace) -> None:
    calls = pairs[0][0].calls
    ideal = calls * options.latency / options.slots
    median = statistics.median
    cpu_ours, cpu_bare = (median(pair[side].cpu / calls * 1000 for pair in pairs) for side in (0, 1))
    print(f"{options.door} door, {options.rows} samples: {calls} calls of {options.latency} s, {options.slots} slots")
    print(f"CPU per call: ours {cpu_ours:.2f} ms, bare {cpu_bare:.2f} ms, on top {cpu_ours - cpu_bare:.2f} ms")
    print(f"wall: ours / bare {median(one.wall / other.wall for one, other in pairs):.3f}")
    if ideal:
        print(f"use of the slots (ideal / wall): ours {median(ideal / one.wall for one, _ in pairs):.3f}", end=", ")
        print(f"bare {median(ideal / other.wall for _, other in pairs):.3f}")


if __name__ == "__main__":
    main()
