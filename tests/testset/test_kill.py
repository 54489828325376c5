"""A generator that is killed goes on with its journal, and makes the set of an undisturbed run."""

import math
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers.servers.endpoints import OpenAIServer
from helpers.waiting import PATIENCE, until

from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.testset import Testset

TESTS = Path(__file__).parents[1]
RUN = """
import sys
sys.path[:0] = sys.argv[1:3]
from helpers.texts import corpus
from langchain_openai import ChatOpenAI
from langchain_rageval import HashingEmbeddings, TestsetGenerator
model = ChatOpenAI(base_url=sys.argv[3], api_key="x", model="m", max_retries=0)
generator = TestsetGenerator(
    model, embeddings=HashingEmbeddings(), journal=sys.argv[4], progress=False, max_concurrency=4
)
generator.generate(corpus("ru_wiki")[:4], size=8, seed=3).to_jsonl(sys.argv[5])
"""


def answer(request):
    return answer_offline(request.schema_title, request.messages[-1]["content"])


def life(server, journal, out):
    words = [TESTS, TESTS.parent, f"{server.url}/v1", journal, out]
    return subprocess.Popen([sys.executable, "-c", RUN, *map(str, words)])


@pytest.mark.gate
@pytest.mark.parametrize("kills", [4])
def test_killed_again_and_again_it_makes_the_same_set_and_pays_for_what_was_under_way(tmp_path, kills):
    with OpenAIServer(answer) as server:
        assert life(server, tmp_path / "clean.db", tmp_path / "clean.jsonl").wait() == 0
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
            process = life(server, tmp_path / "run.db", tmp_path / "out.jsonl")
            until(reached.is_set)
            process.kill()
            process.wait()
            killed.set()
        limit = math.inf
        assert life(server, tmp_path / "run.db", tmp_path / "out.jsonl").wait() == 0
        spent = server.calls
    clean, again = Testset.load(tmp_path / "clean.jsonl"), Testset.load(tmp_path / "out.jsonl")
    assert (again.rows, again.yields) == (clean.rows, clean.yields)
    assert calls < spent <= calls + kills * 12  # four slots, and branches whose steps are kept as one
