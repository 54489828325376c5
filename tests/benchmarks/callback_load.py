"""Load test: ten thousand chain calls with a callback whose judge is down, slow, faulty or working.

    python tests/benchmarks/callback_load.py --calls 10000

Every call is sampled and each judge runs in a separate process. The report gives whether every answer was the chain's
own, the counts of the callback, the rows in the sink's file after `flush`, and the memory after each tenth.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from langchain_core.runnables import RunnableLambda

from langchain_rageval import OfflineJudge, RagEvalCallback, Report, RetryPolicy, faithfulness
from langchain_rageval.sinks import JsonlSink

CONTEXTS = ["Баню страхуют вместе с домом, отдельный полис на неё не выдают.", "Взнос платят раз в год."]


def down(_: Any) -> Any:
    """Refuse the connection, like an address without a server."""
    raise ConnectionRefusedError("[Errno 111] Connection refused")


def slow(_: Any) -> Any:
    """Return a reply without facts after a second."""
    time.sleep(1)
    return '{"statements": []}'


def raises(_: Any) -> Any:
    """Raise an error, as a judge with a bug does."""
    raise ValueError("no")


JUDGES: dict[str, Callable[[], Any]] = {
    "down": lambda: RunnableLambda(down),
    "slow": lambda: RunnableLambda(slow),
    "raises": lambda: RunnableLambda(raises),
    "offline": OfflineJudge,
}


def answer(question: str) -> dict[str, Any]:
    """Return the answer of the chain."""
    return {"answer": f"{question} Баню страхуют вместе с домом.", "context": CONTEXTS}


def one(judge: str, calls: int) -> None:
    """Run the load with one judge in this process."""
    chain, held = RunnableLambda(answer), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        retry = RetryPolicy(attempts=3, initial=0.1)
        callback = RagEvalCallback(faithfulness(JUDGES[judge]()), 1.0, [JsonlSink(path)], max_pending=100, retry=retry)
        config: Any = {"callbacks": [callback]}
        same, started = 0, time.perf_counter()
        for number in range(calls):
            question = f"Как застраховать баню {number}?"
            same += chain.invoke(question, config) == answer(question)
            if number % (calls // 10) == calls // 10 - 1:
                gc.collect()
                held.append(memory())
        took = time.perf_counter() - started
        flushed = callback.flush(120)
        stats = callback.stats()
        callback.close()
        print(f"judge {judge}: {same:,} of {calls:,} answers the chain's own, {took / calls * 1000:.2f} ms a call")
        print(f"  flushed {flushed}, {len(Report.load(path)):,} rows in the file, {stats}")
        print(f"  MB held {' '.join(f'{megabytes:.1f}' for megabytes in held)}", flush=True)


def memory() -> float:
    """Return the resident memory of this process in MB; reads /proc, so Linux only."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(status["VmRSS"].split()[0]) / 1024


def main() -> None:
    """Run each judge in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--here", choices=JUDGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        one(options.here, options.calls)
        return
    for judge in JUDGES:
        subprocess.run([sys.executable, __file__, "--calls", str(options.calls), "--here", judge], check=True)


if __name__ == "__main__":
    main()
