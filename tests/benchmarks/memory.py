"""Memory and time per sample over the length of a run: rows kept on disk, and rows streamed.

    python tests/benchmarks/memory.py --samples 1000,10000,100000

An iterator makes samples that are all different; `OfflineJudge` judges their faithfulness, two calls a sample, or a
canned judge with constant replies (`--judge canned`). Each run has a separate process, which prints after each tenth of
its samples the time per sample, the memory of the process, and the number of blocks that Python has allocated.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import OfflineJudge, astream_evaluate, evaluate, faithfulness
from langchain_rageval.prompts.layout import read_inputs

DOORS = ("out", "stream")
_PARTS = 10


def canned(messages: Any) -> AIMessage:
    """Return a canned reply with one supported statement, which costs almost no time."""
    asked = read_inputs(messages[1].text)
    if "text" in asked:
        return AIMessage('{"statements": ["So it is."]}')
    return AIMessage('{"verdicts": [{"statement": 1, "reason": "r", "evidence": ["1.1"], "verdict": "supported"}]}')


JUDGES: dict[str, Callable[[], Any]] = {"offline": OfflineJudge, "canned": lambda: RunnableLambda(canned)}


def samples(count: int) -> Iterator[dict[str, Any]]:
    """Yield small samples that are all different."""
    for number in range(count):
        yield {
            "id": f"s-{number}",
            "question": f"When was town {number} founded?",
            "answer": f"Town {number} was founded in {number % 2000}. It has {number * 7} elephants.",
            "contexts": [f"Town {number} was founded in {number % 2000} on a river.", f"River {number} is long."],
        }


def watched(items: Iterator[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """Yield the items, and print the state after each tenth of them."""
    part = max(1, count // _PARTS)
    wall, cpu = time.perf_counter(), time.process_time()
    for number, item in enumerate(items, 1):
        yield item
        if number % part == 0:
            took = (time.perf_counter() - wall) / part * 1000, (time.process_time() - cpu) / part * 1000
            told(f"{100 * number // count:3d} %", f"{took[0]:7.2f} ms a sample, {took[1]:6.2f} ms of CPU")
            wall, cpu = time.perf_counter(), time.process_time()


def told(place: str, what: str) -> None:
    """Print a text with the memory of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    held = int(status["VmRSS"].split()[0]) / 1024
    print(f"  {place}  {what}  {held:7.1f} MB  {sys.getallocatedblocks():9,d} blocks", flush=True)


async def streamed(count: int, judge: Any) -> int:
    """Stream the rows without keeping them."""
    rows = 0
    async for _ in astream_evaluate(watched(samples(count), count), faithfulness(judge)):
        rows += 1
    return rows


def kept(count: int, judge: Any, folder: str) -> int:
    """Keep the rows on disk."""
    report = evaluate(watched(samples(count), count), faithfulness(judge), out=f"{folder}/report.jsonl", progress=False)
    started = time.perf_counter()
    summary = report.summary()["faithfulness"]
    told("read ", f"summary in {time.perf_counter() - started:.1f} s: {summary.scored:,} scored")
    for row in report.rows:
        if row.scores["faithfulness"].value is None:
            print(f"  without a value: {row.sample.id}: {row.scores['faithfulness']}")
    return len(report)


def one(door: str, count: int, judge: str) -> None:
    """Run once in this process."""
    told("begin", "")
    with tempfile.TemporaryDirectory() as folder:
        made = JUDGES[judge]()
        started = time.perf_counter()
        rows = asyncio.run(streamed(count, made)) if door == "stream" else kept(count, made, folder)
        told("end  ", f"{rows:,} rows in {time.perf_counter() - started:.1f} s")
    assert rows == count


def main() -> None:
    """Run each length and each interface in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default="1000,10000,100000")
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--judge", choices=JUDGES, default="offline")
    parser.add_argument("--here", nargs=2, metavar=("DOOR", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        one(options.here[0], int(options.here[1]), options.judge)
        return
    for door in options.doors.split(","):
        for count in options.samples.split(","):
            print(f"{door}, {int(count):,} samples, {options.judge} judge", flush=True)
            subprocess.run([sys.executable, __file__, "--judge", options.judge, "--here", door, count], check=True)


if __name__ == "__main__":
    main()
