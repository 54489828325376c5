"""`need` skips tests of packages that are not installed; `LLAMA_SERVER` is the program of llama.cpp, `KEY` a key."""

import os
import shutil
from importlib.util import find_spec

import pytest

KEY = "sk-of-a-proxy-in-the-tests"
LLAMA_SERVER = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


def need(*modules: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test by the name of the first package that is not installed."""
    missing = next((module for module in modules if find_spec(module) is None), None)
    return pytest.mark.skipif(missing is not None, reason=f"{missing} is not installed")
