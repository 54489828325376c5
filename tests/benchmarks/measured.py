"""How a client's process is measured; needs the standard library only, for peers live in environments of their own.

The process warms up, says "ready", waits for a line, works, and tells in one line of JSON what that cost. Whatever
libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def measured(warm_up: Callable[[], Any], work: Callable[[], dict[str, Any]]) -> None:
    """Measure one work: `wall` and `cpu` in seconds, `peak` in MiB; beside it what the work itself tells."""
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
    """The most memory that this process has held, in MiB.

    From /proc, thus on Linux only: `getrusage` counts what the parent held before it started this program.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def read_lines(path: str) -> list[Any]:
    """The values of a file with one JSON value a line."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
