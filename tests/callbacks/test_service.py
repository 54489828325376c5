"""A service in processes of its own, under load: the chain streams, its model is the judge, scores are in SQLite."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from helpers.offline import offline
from helpers.servers.endpoints import StreamingServer
from helpers.waiting import PATIENCE

pytestmark = pytest.mark.gate
HELPERS = Path(__file__).parents[1] / "helpers"
ANSWER = "Munich was founded in 1158. A million elephants live there."


def reply(request):
    """Judges judges; answers the chain."""
    return offline(request) if request.schema_title else ANSWER


@pytest.fixture
def model_url() -> Iterator[str]:
    with StreamingServer(reply, latency=0.02) as server:
        yield server.url + "/v1"


@contextmanager
def serving(model_url: str, scores: Path):
    """The service, and its address; ended as a process manager ends it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MODEL_URL": model_url, "SCORES": str(scores)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HELPERS), *sys.path])
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    log = scores.with_suffix(".log")
    with log.open("wb") as told:
        process = subprocess.Popen(command, env=environment, stdout=told, stderr=told)
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(url + "/stats", timeout=PATIENCE)
                break
            except httpx.TransportError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        yield process, url
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert "Traceback" not in log.read_text()


async def load(url, count, width=16):
    """Ask so many questions, so many at a time; the answers."""
    gate = asyncio.Semaphore(width)

    async def one(client, number):
        async with gate, client.stream("GET", "/ask", params={"q": f"question {number}"}) as response:
            assert response.status_code == 200
            return "".join([text async for text in response.aiter_text()]).strip()

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


def scores(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT question, value, error FROM scores ORDER BY question").fetchall()


async def test_a_streaming_service_whose_judge_is_its_own_model_under_load(model_url, tmp_path):
    path = tmp_path / "scores.db"
    with serving(model_url, path) as (process, url):
        assert await load(url, 60) == [ANSWER] * 60
        assert httpx.post(url + "/flush", timeout=PATIENCE).json() is True
        stats = httpx.get(url + "/stats").json()
        assert [stats[name] for name in ("seen", "scored", "failed", "pending", "running")] == [60, 60, 0, 0, 0]
        assert scores(path) == sorted((f"question {number}", 0.5, None) for number in range(60))

        assert await load(url, 10) == [ANSWER] * 10
        assert httpx.post(url + "/flush", timeout=PATIENCE).json() is True
        await load(url, 10)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    assert len(scores(path)) >= 70
