"""Kill test: kill a run at random moments, resume it with its journal, and count the calls that were paid twice.

    python tests/benchmarks/kills.py --kills 50

The model is a loopback server; each process of the run is killed by SIGKILL after a random number of calls. Prints the
number of calls beyond those of an undisturbed run, and whether the scores are equal.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from helpers.offline import offline  # noqa: E402
from helpers.servers.endpoints import OpenAIServer  # noqa: E402

from langchain_rageval import Report  # noqa: E402

SLOTS = 8
RUN = """
import sys
sys.path[:0] = sys.argv[1:3]
from langchain_openai import ChatOpenAI
from langchain_rageval import evaluate
from helpers.offline import rag_samples, six_metrics
metrics = six_metrics(ChatOpenAI(base_url=sys.argv[3], api_key="x", model="m", max_retries=0))
samples = rag_samples(int(sys.argv[6]))
report = evaluate(samples, metrics, journal=sys.argv[4], progress=False, max_concurrency=int(sys.argv[7]))
report.to_jsonl(sys.argv[5])
"""


def life(server: OpenAIServer, folder: Path, samples: int) -> subprocess.Popen[bytes]:
    """Start or resume the run."""
    words = [TESTS, TESTS.parent, f"{server.url}/v1", folder / "run.db", folder / "out.jsonl", samples, SLOTS]
    return subprocess.Popen([sys.executable, "-c", RUN, *map(str, words)])


def scores(folder: Path) -> list[Any]:
    """Return the scores of a report without usage and server address."""
    rows = Report.load(folder / "out.jsonl").rows
    return [[s.model_dump(exclude={"usage", "instrument"}) for s in row.scores.values()] for row in rows]


def main(given: Iterable[str] | None = None) -> None:
    """Run without kills, then with kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given if given is None else list(given))
    chance = random.Random(options.seed)

    def slowly(request: Any) -> dict[str, Any]:
        time.sleep(options.latency)
        return offline(request)

    with tempfile.TemporaryDirectory() as place:
        clean, killed = Path(place, "clean"), Path(place, "killed")
        clean.mkdir()
        killed.mkdir()
        with OpenAIServer(slowly) as server:
            life(server, clean, options.samples).wait()
            calls = server.calls
        kills = 0
        with OpenAIServer(slowly) as server:
            while kills < options.kills:
                process = life(server, killed, options.samples)
                before = server.calls
                moment = chance.randint(0, 2 * calls // options.kills)
                while process.poll() is None and server.calls - before < moment:
                    time.sleep(0.001)
                time.sleep(chance.uniform(0, options.latency))
                if process.poll() is not None:
                    break
                process.kill()
                process.wait()
                kills += 1
            life(server, killed, options.samples).wait()
            spent = server.calls
        equal = scores(clean) == scores(killed)
    print(f"{kills} kills over {options.samples} samples, {SLOTS} slots")
    twice = spent - calls
    print(f"calls: {calls} undisturbed, {spent} with kills: {twice} paid twice, {twice / max(kills, 1):.1f} a kill")
    print(f"scores equal: {equal}")


if __name__ == "__main__":
    main()
