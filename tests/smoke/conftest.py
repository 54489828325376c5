"""Fixtures of the smoke suite: programs in a temporary folder, without the settings of the user.

The suite needs the installed package and pytest, no other plugin and no file of this repository outside this folder.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

SETTINGS = ("LANGSMITH_", "LANGCHAIN_", "OPENAI_", "GIGACHAT_")
PATIENCE = 120.0  # seconds until a program counts as hanging, also on a busy machine

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the settings of the user; programs write UTF-8 and wide tables."""
    for name in os.environ:
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONUTF8", "1")


@pytest.fixture
def execute(tmp_path: Path) -> Program:
    """Run a program in the temporary folder and return its exit code, stdout and stderr."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
        )

    return run


@pytest.fixture
def rageval(execute: Program) -> Program:
    """Run the installed command `rageval`."""
    program = shutil.which("rageval", path=sysconfig.get_path("scripts"))
    assert program, "the installation has no command rageval"
    return lambda *words: execute(program, *words)


@pytest.fixture
def script(execute: Program, tmp_path: Path) -> Program:
    """Run the source of a script in a Python process of its own."""

    def run(source: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        return execute(sys.executable, path)

    return run
