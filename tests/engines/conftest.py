"""A random tiny Llama, and servers of real engines as subprocesses."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest
from helpers.engines import KEY, build_tokenizer, random_weights, write_gguf, write_transformers
from helpers.waiting import PATIENCE

START_PATIENCE = 3 * PATIENCE  # torch alone takes a minute to be imported on a busy machine
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.fixture(scope="session")
def gguf_file(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_gguf(path, tokenizer, random_weights(tokenizer.get_vocab()))


@pytest.fixture(scope="session")
def transformers_folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_transformers(tmp_path_factory.mktemp("transformers"), tokenizer, random_weights(tokenizer.get_vocab()))


@pytest.fixture
def engine_server() -> Iterator[Callable[..., str]]:
    """Start servers, `engine_server(command)` with `{port}` in the command, and return the address."""
    with ExitStack() as servers:
        yield lambda *command, ready="/v1/models": servers.enter_context(_serve(command, ready))


@contextmanager
def _serve(command: tuple[str, ...], ready: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.format(port=port, python=sys.executable) for word in command]
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        environment = {**os.environ, **OFFLINE, "LITELLM_MASTER_KEY": KEY}
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_ready(process, url + ready, log)
            yield url
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: IO[str]) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise AssertionError(log.read()[-3000:])
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as refusal:
            if refusal.code < 500:  # it answers
                return
        except OSError:
            pass
        else:
            return
        time.sleep(0.2)
    raise AssertionError(f"no server at {url}")
