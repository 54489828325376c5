"""Servers in another process, and measurement of a client's process; uses only the standard library.

The process warms up, prints "ready", waits for a line, runs, and prints the measurements as one line of JSON. Output
of libraries goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def spawned(serve: Callable[..., None], *arguments: Any) -> Any:
    """Start a function in another process, with arguments and an end of a pipe; return the other end."""
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=serve, args=(*arguments, there), daemon=True).start()
    return here


def measured(warm_up: Callable[[], Any], work: Callable[[], dict[str, Any]]) -> None:
    """Run a function and return `wall` and `cpu` in seconds and `peak` in MiB, beside its own results."""
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warm_up()
    print("ready", file=told, flush=True)
    sys.stdin.readline()
    wall, cpu = time.perf_counter(), time.process_time()
    outcome = work()
    cost = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "peak": peak()}
    print(json.dumps({**cost, **outcome}), file=told, flush=True)
    os._exit(0)  # abandoned threads of a client must not hold up the next one


def peak() -> float:
    """Return the peak memory of this process in MiB.

    Reads /proc, so Linux only: `getrusage` includes the memory of the parent before it started this program.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def read_lines(path: str) -> list[Any]:
    """Return the values of a JSON Lines file."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
