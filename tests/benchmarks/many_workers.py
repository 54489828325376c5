"""Many workers, one ceiling: a run in one process beside Ray workers, with a limit of calls or a budget.

    python tests/benchmarks/many_workers.py --samples 1000 --workers 4
    python tests/benchmarks/many_workers.py --samples 1000 --workers 4 --budget 1500
    python tests/benchmarks/many_workers.py --samples 50000 --workers 4 --per-minute 12000
    python tests/benchmarks/many_workers.py --samples 20000 --workers 2 --trouble

A loopback server in a separate process answers like OfflineJudge after 0.05 s and has room for 16 calls at a time,
or with `--per-minute` answers so many calls a minute, which it does not state, and refuses the others with 429.
With `--trouble` it has room for all, a worker is killed after some seconds, and every call fails with 500 for a minute
after a third of them; a second run on Ray has a wrong key.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent), str(Path(__file__).parent)]

from helpers.offline import rag_samples  # noqa: E402
from helpers.servers.loopback import Refused  # noqa: E402
from refusals import Limited  # noqa: E402

from langchain_rageval import Budget, OfflineJudge, Report, evaluate, faithfulness  # noqa: E402

ROOM = 16


class Troubled(Limited):
    """Fails for some seconds after some calls, and knows one key."""

    def __init__(self, calls: int | None, outage: float, per_minute: int | None) -> None:
        rate = None if per_minute is None else per_minute / 60
        super().__init__(room=ROOM if calls is None and rate is None else None, rate=rate)
        self.latency = 0.05 if calls is None else 0.01
        self.outage, self.begins, self.ends = outage, calls, None

    def chat(self, received: Any) -> Any:
        if received.headers.get("authorization", "").endswith("wrong"):
            raise Refused(401, "Incorrect API key provided", {})
        now = time.monotonic()
        if self.begins is not None and len(self.times) >= self.begins:
            self.begins, self.ends = None, now + self.outage
        if self.ends is not None and now < self.ends:
            raise Refused(500, "The server is down", {})
        return super().chat(received)


def serve(pipe: Any, calls: int | None, outage: float, per_minute: int | None) -> None:
    """Serve until the counts are requested, then the next run, until there is none."""
    with Troubled(calls, outage, per_minute) as server:
        pipe.send(server.url)
        while pipe.recv():
            refused = sum(refused for _, refused in server.times)
            pipe.send((len(server.times), refused))
            server.times.clear()


def judged_by(url: str, key: str = "sk-test", pids: str | None = None) -> Any:
    """Return the function that builds the metrics; it adds its process to the file `pids`."""

    def make_metrics() -> Any:
        from langchain_openai import ChatOpenAI

        if pids is not None:
            with open(pids, "a") as file:
                file.write(f"{os.getpid()}\n")
        return faithfulness(ChatOpenAI(base_url=url + "/v1", api_key=key, model="m", max_retries=0))

    return make_metrics


def rows_of(count: int) -> list[dict[str, Any]]:
    """Return so many samples, all different."""
    known = [sample.model_dump(include={"question", "answer", "contexts"}) for sample in rag_samples(100)]
    picked = ((n, known[n % len(known)]) for n in range(count))
    return [{**sample, "id": str(n), "question": f"{n}: {sample['question']}"} for n, sample in picked]


def on_ray(rows: list[dict[str, Any]], make_metrics: Any, workers: int, budget: Budget | None) -> Report:
    """Score the rows in workers of Ray on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from langchain_rageval.integrations.ray import evaluate_dataset, report_of

    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "ignore_reinit_error": True}
    ray.init(num_cpus=2, include_dashboard=False, **options)
    numbered = [{**row, "place": place} for place, row in enumerate(rows)]
    dataset = ray.data.from_items(numbered, override_num_blocks=4)
    limits: dict[str, Any] = {"concurrency": workers, "max_concurrency": ROOM, "index": "place", "budget": budget}
    return report_of(evaluate_dataset(dataset, make_metrics, **limits).materialize())


def kill_one(pids: Path, seconds: float) -> None:
    """Kill the first worker that was started, some seconds after its start."""
    while not pids.exists():
        time.sleep(0.1)
    time.sleep(seconds)
    os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
    print("a worker was killed", flush=True)


def in_trouble(url: str, rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print what becomes of runs on Ray with a killed worker and an outage, and with a wrong key."""
    expected = evaluate(rows, faithfulness(OfflineJudge()), progress=False).summary()["faithfulness"].mean
    pids = Path(tempfile.mkdtemp()) / "pids"
    threading.Thread(target=kill_one, args=(pids, options.kill_after), daemon=True).start()
    for name, key in (("a killed worker and an outage", "sk-test"), ("a wrong key", "wrong")):
        started = time.perf_counter()
        report = on_ray(rows, judged_by(url, key, str(pids)), options.workers, None)
        failures = {score.failure.text[:120] for _, score in report.failures()}
        mean = report.summary()["faithfulness"].mean
        print(
            f"{name}: {time.perf_counter() - started:.0f} s, {len(report.rows)} rows, {len(report.failures())} failed"
        )
        print(f"mean {mean}, without Ray {expected}, complete {report.complete}, failures {failures}", flush=True)


def main() -> None:
    """Print a line for each way to run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget", type=int, help="calls of all workers")
    parser.add_argument("--per-minute", type=int, help="calls that the server answers in a minute")
    parser.add_argument("--trouble", action="store_true", help="kill a worker, fail for a while, and use a wrong key")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds (default: %(default)s)")
    parser.add_argument("--kill-after", type=float, default=10.0, help="seconds (default: %(default)s)")
    options = parser.parse_args()
    here, there = multiprocessing.get_context("spawn").Pipe()
    fails_after = options.samples * 2 // 3 if options.trouble else None
    arguments = there, fails_after, options.outage, options.per_minute
    server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
    server.start()
    url, rows = here.recv(), rows_of(options.samples)
    if options.trouble:
        in_trouble(url, rows, options)
        here.send(False)
        return
    make_metrics = judged_by(url)
    budget = None if options.budget is None else Budget(calls=options.budget)
    reports = []
    for name in ("one process", f"{options.workers} workers of Ray"):
        started = time.perf_counter()
        if name == "one process":
            report = evaluate(rows, make_metrics(), progress=False, budget=budget, max_concurrency=ROOM)
        else:
            report = on_ray(rows, make_metrics, options.workers, budget)
        wall = time.perf_counter() - started
        here.send(True)
        calls, refused = here.recv()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{name}: {wall:.1f} s, {calls} calls, {refused} refused, {len(report.rows)} rows,", end=" ")
        print(
            f"{len(report.failures())} failed, mean {report.summary()['faithfulness'].mean:.4f}, {memory} MB",
            flush=True,
        )
        reports.append({row.index: row.scores["faithfulness"].value for row in report.rows})
    both = reports[0].keys() & reports[1].keys()
    print(f"scores equal: {all(reports[0][index] == reports[1][index] for index in both)} ({len(both)} rows of both)")
    here.send(False)


if __name__ == "__main__":
    main()
