"""A run through a batch API that is killed between every two states ends with the scores of one that was not."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from helpers.offline import RICH, offline
from helpers.servers.batches import BatchServer
from helpers.waiting import PATIENCE
from langchain_openai import ChatOpenAI

from langchain_rageval import Batch, Judge, Report, evaluate, faithfulness

TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from helpers.offline import RICH
from langchain_openai import ChatOpenAI
from langchain_rageval import Batch, Judge, evaluate, faithfulness
model = ChatOpenAI(model="m", base_url=sys.argv[2], api_key="sk-test", max_retries=0)
metrics = [faithfulness(Judge(model))]
evaluate(RICH, metrics, journal=sys.argv[3], batch=Batch(poll=0.01), progress=False).to_jsonl(sys.argv[4])
"""


class KillAtEachState:
    """Kills the current process the first time that a wave of the server reaches a state."""

    def __init__(self, server):
        self.server = server
        self.process = None
        self.killed = []

    def __call__(self, state):
        reached = f"{state} {len(self.server.batches)}"
        if state != "live" and reached not in self.killed:
            self.killed.append(reached)
            os.kill(self.process.pid, signal.SIGKILL)


@pytest.mark.gate
def test_a_run_that_is_killed_between_every_two_states_pays_for_nothing_twice(tmp_path):
    with BatchServer(offline, polls=2) as server:
        model = ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0)
        clean = evaluate(RICH, [faithfulness(Judge(model))], batch=Batch(poll=0.01), progress=False)
        calls, batches = server.calls, len(server.batches)
    with BatchServer(offline, polls=2) as server:
        words = [sys.executable, "-c", SCRIPT, str(TESTS), f"{server.url}/v1", str(tmp_path / "run.db")]
        server.on_state = killer = KillAtEachState(server)
        code = None
        while code != 0:
            assert len(killer.killed) < 30
            killer.process = subprocess.Popen([*words, str(tmp_path / "out.jsonl")], cwd=TESTS.parent)
            code = killer.process.wait(PATIENCE)
            assert code in (0, -signal.SIGKILL)
    report = Report.load(tmp_path / "out.jsonl")
    assert values(report) == values(clean)
    assert server.calls == calls
    assert len(server.batches) == batches
    assert set(server.answered.values()) == {1}
    assert Counter(state.partition(" ")[0] for state in killer.killed) == {
        "uploaded": batches,
        "created": batches,
        "in_progress": batches,
        "completed": batches,
        "downloaded": batches,
    }
    assert sum(score.usage.calls for row in report.rows for score in row.scores.values()) == calls


def values(report):
    return [row.scores["faithfulness"].model_dump(exclude={"usage", "instrument"}) for row in report.rows]
