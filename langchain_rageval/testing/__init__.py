"""Testing tools: `ScriptedJudge` replays replies, `assert_scores` checks thresholds, two test suites test a metric.

`MetricTests` tests a metric with a judge that works, `HostileJudgeTests` with judges that misbehave. This package is
not a pytest plugin; importing it does not affect a test session. Only the two test suites need pytest.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.testing.assertions import aassert_scores, assert_scores
from langchain_rageval.testing.scripted_judge import ScriptedJudge, ScriptedRequest

if TYPE_CHECKING:
    from langchain_rageval.testing.hostile_judge_tests import HostileJudgeTests
    from langchain_rageval.testing.metric_tests import MetricTests

__all__ = ["HostileJudgeTests", "MetricTests", "ScriptedJudge", "ScriptedRequest", "aassert_scores", "assert_scores"]

_TEST_SUITES = {"HostileJudgeTests": "hostile_judge_tests", "MetricTests": "metric_tests"}


def __getattr__(name: str) -> Any:
    """Import a test suite on first use, with pytest's assertion rewriting."""
    if name not in _TEST_SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pytest
    except ImportError:
        raise ConfigError(f"{name} needs pytest: pip install pytest") from None
    module = f"{__name__}.{_TEST_SUITES[name]}"
    if module not in sys.modules:  # pytest warns if the module is already imported
        pytest.register_assert_rewrite(module)
    return getattr(importlib.import_module(module), name)
