"""For tests of your own: a judge that replays replies, assertions on scores, a battery that every metric passes.

Nothing here is a pytest plugin; importing it changes no session. Only `MetricTests` needs pytest.
"""

import sys
from typing import TYPE_CHECKING, Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.testing.assertions import aassert_scores, assert_scores
from langchain_rageval.testing.scripted_judge import ScriptedJudge, ScriptedRequest

if TYPE_CHECKING:
    from langchain_rageval.testing.metric_tests import MetricTests

__all__ = ["MetricTests", "ScriptedJudge", "ScriptedRequest", "aassert_scores", "assert_scores"]


def __getattr__(name: str) -> Any:
    """Load the battery when it is used: it needs pytest, which also explains its failed asserts."""
    if name != "MetricTests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pytest
    except ImportError:
        raise ConfigError("MetricTests is run by pytest: pip install pytest") from None
    if f"{__name__}.battery" not in sys.modules:  # or pytest warns that it comes too late
        pytest.register_assert_rewrite(f"{__name__}.battery")
    from langchain_rageval.testing.metric_tests import MetricTests

    return MetricTests
