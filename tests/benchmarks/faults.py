"""Fault test: six metrics with a faulty server; counts lost, different and failed scores.

    python tests/benchmarks/faults.py --samples 2000

A loopback server in a separate process answers like OfflineJudge, but answers 5% of the requests with 429 and a
Retry-After, 2% with 500, 5% with broken JSON, and lets 0.5% hang for 120 s, longer than the timeout of a call. The
client is the real ChatOpenAI without its own retries. Every score is compared with that of a run without a network.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from helpers.offline import SIX, offline, rag_samples, six_metrics  # noqa: E402
from helpers.servers.chat import Faults  # noqa: E402
from helpers.servers.endpoints import OpenAIServer  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from measured import spawned  # noqa: E402

from langchain_rageval import OfflineJudge, Report, Sample, Score, evaluate  # noqa: E402

MIX = {"429": 0.05, "500": 0.02, "malformed": 0.05, "hang": 0.005}
HANG = 120.0


def serve(options: argparse.Namespace, pipe: Any) -> None:
    """Serve until the counts of the faults are requested."""
    faults = Faults.rates(seed=options.seed, retry_after=options.retry_after, hang_seconds=HANG, **MIX)
    with OpenAIServer(offline, faults=faults) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send((server.calls, dict(server.faulted)))


def asked(count: int) -> list[Sample]:
    """Return real questions with answers; if more are requested than exist, they are repeated in other words."""
    known = rag_samples(count)
    return [
        sample.model_copy(update={"id": f"{sample.id}-{turn}", "question": sample.question + f" ({turn})" * bool(turn)})
        for turn in range(1 + count // len(known))
        for sample in known
    ][:count]


def says(score: Score) -> str:
    """Return a score as a dictionary, without usage and instrument."""
    return json.dumps(score.model_dump(exclude={"usage", "instrument"}), sort_keys=True)


def show(report: Report, clean: Report) -> None:
    """Compare each score with that of the clean run."""
    lost = len(clean) - len({row.index for row in report.rows})
    found: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    theirs = {row.index: row.scores for row in clean.rows}
    for row in report.rows:
        for name, score in row.scores.items():
            other = theirs[row.index][name]
            if score.failure:
                reasons[f"{score.failure.error} in {score.failure.step}: {score.failure.message[:100]}"] += 1
            elif says(score) == says(other):
                found["equal"] += 1
            else:
                found["different"] += 1
                found["silent zeros"] += score.value == 0 and other.value != 0
            found["NaN"] += score.value is not None and math.isnan(score.value)
    expected = len(clean) * len(SIX)
    missing = expected - found["equal"] - found["different"] - sum(reasons.values())
    print(f"rows lost {lost}, scores lost {missing} of {expected}")
    print(f"equal to the clean run's {found['equal']}, different {found['different']}, ", end="")
    print(f"silent zeros {found['silent zeros']}, NaN {found['NaN']}, failures {sum(reasons.values())}")
    for reason, count in reasons.most_common():
        print(f"  {count} {reason}")


def main() -> None:
    """Run with faults, then without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for a call (default: %(default)s)")
    parser.add_argument("--retry-after", default="1", help="seconds, the header of a 429 (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    samples = asked(options.samples)
    here = spawned(serve, options)
    judge = ChatOpenAI(base_url=here.recv() + "/v1", api_key="sk-test", model="m", max_retries=0, temperature=0)
    started, cpu = time.perf_counter(), time.process_time()
    limits = {"max_concurrency": options.slots, "timeout": options.timeout}
    report = evaluate(samples, six_metrics(judge), progress=False, **limits)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    here.send("what was met?")
    calls, met = here.recv()
    clean = evaluate(samples, six_metrics(OfflineJudge()), progress=False)

    print(f"{options.samples} samples, six metrics, {options.slots} slots, timeout {options.timeout:g} s")
    print(f"faults met: {', '.join(f'{name} {count}' for name, count in sorted(met.items()))}")
    show(report, clean)
    undisturbed = sum(metric.calls for metric in clean.summary().values())
    counted = sum(metric.calls for metric in report.summary().values())
    print(f"requests {calls}, calls counted {counted}, of a clean run {undisturbed}")
    print(f"wall {wall:.0f} s, our CPU {cpu:.0f} s")
    for note in report.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    main()
