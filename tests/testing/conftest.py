"""Pytest sessions of somebody else's, in a process of their own."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Session:
    """What a session printed.

    Attributes:
        output: all of it.
    """

    output: str

    @property
    def failed(self) -> set[str]:
        """Ids of the tests that failed."""
        return set(re.findall(r"^FAILED (\S+)", self.output, re.MULTILINE))

    @property
    def header(self) -> str:
        """What stands above the results."""
        return self.output.partition("collected")[0]


@pytest.fixture
def pytester_session(tmp_path: Path) -> Callable[[str], Session]:
    """Run a test module as a user would, without this repository's settings."""

    def run(source: str) -> Session:
        (tmp_path / "test_outside.py").write_text(source, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", "test_outside.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Session(done.stdout + done.stderr)

    return run
