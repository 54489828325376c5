"""A run through a batch API that is killed between every two states ends with the scores of one that was not."""

import os
import signal
from collections import Counter

import pytest
from helpers.lives import evaluated_in_batches, exit_code, started
from helpers.offline import RICH, offline
from helpers.reports import comparable
from helpers.servers.batches import BatchServer
from langchain_openai import ChatOpenAI

from langchain_rageval import Batch, Judge, Report, evaluate, faithfulness


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
        server.on_state = killer = KillAtEachState(server)
        code = None
        while code != 0:
            assert len(killer.killed) < 30
            files = tmp_path / "run.db", tmp_path / "out.jsonl"
            killer.process = started(evaluated_in_batches, server.url, *files, RICH)
            code = exit_code(killer.process)
            assert code in (0, -signal.SIGKILL)
    report = Report.load(tmp_path / "out.jsonl")
    assert comparable(report) == comparable(clean)
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
    assert report.usage.calls == calls
