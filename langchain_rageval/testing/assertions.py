"""assert_scores: thresholds for one sample, with a failure that shows at a glance what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.sample_scores import acollect_scores, collect_scores
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.threshold import reaches

Thresholds = Mapping[Metric, float] | Mapping[Suite, float] | Mapping[Metric | Suite, float]
Missing = Literal["fail", "pass"]

_WORST_FIRST = ("contradicted", "FP", "no", "absent", "FN", "not found", "not useful", "not needed")
_LONGEST = 100


def assert_scores(
    sample: Any, thresholds: Thresholds, *, missing: Missing = "fail", findings: int = 3
) -> dict[str, Score]:
    """Assert that a sample's scores reach their thresholds; steps that metrics share are asked once.

    Args:
        sample: anything that `Sample.parse` reads.
        thresholds: metric to the least value, or the greatest when lower is better; that of a suite holds for each of
            its metrics. Reaching it passes.
        missing: whether a score without a value, unscored or failed, fails or passes.
        findings: how many of the worst findings are shown for each metric that fails.

    Returns:
        The scores by name.

    Raises:
        AssertionError: with one line for each metric: name, value, threshold, reason, and the worst findings.
        SampleError: before any call, if the sample lacks what a metric reads.
        ConfigError: if there is no threshold, or one is no number.
    """
    __tracebackhide__ = True
    limits = _limits(thresholds, missing)
    scores = collect_scores(suite(*thresholds), Sample.parse(sample))
    _assert_all(Sample.parse(sample), scores, limits, missing, findings)
    return scores


async def aassert_scores(
    sample: Any, thresholds: Thresholds, *, missing: Missing = "fail", findings: int = 3
) -> dict[str, Score]:
    """As `assert_scores`, on the caller's loop."""
    __tracebackhide__ = True
    limits = _limits(thresholds, missing)
    scores = await acollect_scores(suite(*thresholds), Sample.parse(sample))
    _assert_all(Sample.parse(sample), scores, limits, missing, findings)
    return scores


def _limits(thresholds: Thresholds, missing: str) -> dict[str, float]:
    """Name of each metric to its threshold."""
    if missing not in ("fail", "pass"):
        raise ConfigError(f"missing is 'fail' or 'pass', got {missing!r}")
    if not isinstance(thresholds, Mapping) or not thresholds:
        raise ConfigError(f"thresholds maps metrics to numbers, {{faithfulness(judge): 0.8}}, got {thresholds!r}")
    for metric, limit in thresholds.items():
        if not isinstance(metric, Metric | Suite):
            raise ConfigError(f"thresholds has metrics for keys, such as faithfulness(judge), got {metric!r}")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ConfigError(f"the threshold of {metric!r} takes a number, got {limit!r}")
    return {name: limit for metric, limit in thresholds.items() for name in metric.feedback_keys}


def _assert_all(
    sample: Sample, scores: Mapping[str, Score], limits: Mapping[str, float], missing: Missing, findings: int
) -> None:
    __tracebackhide__ = True
    passed = {name: _passes(score, limits[name], missing) for name, score in scores.items()}
    if all(passed.values()):
        return
    failed = len(passed) - sum(passed.values())
    head = f"{failed} of {len(passed)} scores of sample {sample.id!r} ({_short(sample.question)}) will not do"
    shown = (_line(score, limits[name], passed[name], findings) for name, score in scores.items())
    raise AssertionError("\n".join([head, *shown]))


def _passes(score: Score, limit: float, missing: Missing) -> bool:
    return missing == "pass" if score.value is None else reaches(score.value, limit, score.direction)


def _line(score: Score, limit: float, passed: bool, findings: int) -> str:
    value = "no value" if score.value is None else f"{score.value:.3f}"
    asked = f"at {'least' if score.direction == 'higher' else 'most'} {limit:g}"
    line = f"  {'passed' if passed else 'FAILED'} {score.metric} {value}, {asked}: {score.comment}"
    return line if passed else " | ".join([line, *map(_told, _worst(score, findings))])


def _worst(score: Score, most: int) -> list[Finding]:
    """The findings that cost most, of those whose verdict says so."""
    bad = [finding for finding in score.findings if finding.verdict in _WORST_FIRST]
    return sorted(bad, key=lambda finding: _WORST_FIRST.index(finding.verdict))[:most]


def _told(finding: Finding) -> str:
    cited = f" [{', '.join(finding.cites)}]" if finding.cites else ""
    reason = f" ({_short(finding.reason)})" if finding.reason else ""
    return f"{finding.verdict}{cited}: {_short(finding.text)}{reason}"


def _short(text: str) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text.split())
    return f"«{line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}»"
