"""Pytest sessions in a separate process, as a user of the package runs them."""

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
    """Output of a pytest session.

    Attributes:
        output: standard output and standard error.
    """

    output: str

    @property
    def failed(self) -> set[str]:
        """The ids of the failed tests."""
        return set(re.findall(r"^FAILED (\S+)", self.output, re.MULTILINE))

    @property
    def header(self) -> str:
        """The output above the results."""
        return self.output.partition("collected")[0]


@pytest.fixture
def pytester_session(tmp_path: Path) -> Callable[[str], Session]:
    """Return a function that runs a test module without this repository's pytest settings."""

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
