"""Testing tools: `ScriptedJudge` replays replies, `assert_scores` checks thresholds, `MetricTests` tests a metric.

This package is not a pytest plugin; importing it does not affect a test session. Only `MetricTests` needs pytest.
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
    """Import `MetricTests` on first use, with pytest's assertion rewriting."""
    if name != "MetricTests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pytest
    except ImportError:
        raise ConfigError("MetricTests needs pytest: pip install pytest") from None
    if f"{__name__}.metric_tests" not in sys.modules:  # pytest warns if the module is already imported
        pytest.register_assert_rewrite(f"{__name__}.metric_tests")
    from langchain_rageval.testing.metric_tests import MetricTests

    return MetricTests
