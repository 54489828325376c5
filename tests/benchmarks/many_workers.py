"""Many workers, one ceiling: a run in one process beside Ray workers, with a limit of calls or a budget.

    python tests/benchmarks/many_workers.py --samples 1000 --workers 4
    python tests/benchmarks/many_workers.py --samples 1000 --workers 4 --budget 1500
    python tests/benchmarks/many_workers.py --samples 50000 --workers 4 --per-minute 12000

A loopback server in a separate process answers like OfflineJudge after 0.05 s and has room for 16 calls at a time,
or with `--per-minute` answers so many calls a minute, which it does not state, and refuses the others with 429.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent), str(Path(__file__).parent)]

from helpers.offline import rag_samples  # noqa: E402
from measured import spawned  # noqa: E402
from refusals import Limited  # noqa: E402

from langchain_rageval import Budget, Report, evaluate, faithfulness  # noqa: E402

ROOM = 16


def serve(per_minute: int | None, pipe: Any) -> None:
    """Serve until the counts are requested, then the next run, until there is none."""
    limits = {"room": ROOM} if per_minute is None else {"rate": per_minute / 60}
    with Limited(**limits) as server:
        server.latency = 0.05
        pipe.send(server.url)
        while pipe.recv():
            pipe.send((len(server.times), sum(refused for _, refused in server.times)))
            server.times.clear()


def judged_by(url: str) -> Any:
    """Return the function that builds the metrics."""

    def make_metrics() -> Any:
        from langchain_openai import ChatOpenAI

        return faithfulness(ChatOpenAI(base_url=url + "/v1", api_key="sk-test", model="m", max_retries=0))

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


def main() -> None:
    """Print a line for each way to run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget", type=int, help="calls of all workers")
    parser.add_argument("--per-minute", type=int, help="calls that the server answers in a minute")
    options = parser.parse_args()
    here = spawned(serve, options.per_minute)
    url, rows = here.recv(), rows_of(options.samples)
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
