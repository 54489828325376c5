"""A generator that is killed goes on with its journal, and makes the set of an undisturbed run."""

import math
import threading

import pytest
from helpers.lives import exit_code, generated, started
from helpers.servers.endpoints import OpenAIServer
from helpers.waiting import PATIENCE, until

from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.testset import Testset


def answer(request):
    return answer_offline(request.schema_title, request.messages[-1]["content"])


@pytest.mark.gate
@pytest.mark.parametrize("kills", [4])
def test_killed_again_and_again_it_makes_the_same_set_and_pays_for_what_was_under_way(tmp_path, kills):
    with OpenAIServer(answer) as server:
        assert exit_code(started(generated, server.url, tmp_path / "clean.db", tmp_path / "clean.jsonl")) == 0
        calls = server.calls
    reached, killed = threading.Event(), threading.Event()

    def answer_until_limit(request):
        if server.calls >= limit:  # none is answered until the process is dead, however late that is
            reached.set()
            killed.wait(PATIENCE)
        return answer(request)

    with OpenAIServer(answer_until_limit) as server:
        for number in range(kills):
            reached.clear()
            killed.clear()
            limit = server.calls + calls // (kills + 1) + number
            process = started(generated, server.url, tmp_path / "run.db", tmp_path / "out.jsonl")
            until(reached.is_set)
            process.kill()
            process.join()
            killed.set()
        limit = math.inf
        assert exit_code(started(generated, server.url, tmp_path / "run.db", tmp_path / "out.jsonl")) == 0
        spent = server.calls
    clean, again = Testset.load(tmp_path / "clean.jsonl"), Testset.load(tmp_path / "out.jsonl")
    assert (again.rows, again.yields) == (clean.rows, clean.yields)
    assert calls < spent <= calls + kills * 12  # four slots, and branches whose steps are kept as one
