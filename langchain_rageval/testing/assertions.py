"""assert_scores: asserts thresholds for the scores of a sample; the failure message shows the worst findings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from langchain_rageval._internal.page import shortened
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.adapters import reaches
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import acollect_scores, collect_scores
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.report.gates import value_of

Thresholds = Mapping[Metric, float] | Mapping[Suite, float] | Mapping[Metric | Suite, float]
Missing = Literal["fail", "pass"]

_WORST_FIRST = (
    *("contradicted", "ignored", "asked again", "unmet", "FP", "extra", "no", "absent", "FN", "not found"),
    *("not useful", "not needed"),
)


def assert_scores(
    sample: Any, thresholds: Thresholds, *, missing: Missing = "fail", findings: int = 3
) -> dict[str, Score]:
    """Assert that the scores of a sample reach their thresholds; steps that metrics share run once.

    Args:
        sample: a sample in any form that `Sample.parse` reads.
        thresholds: mapping of a metric to its lowest passing value, or to its highest passing value if lower is
            better. The threshold of a suite applies to each metric of the suite.
        missing: "fail" or "pass": the result for a metric that does not apply to the sample (unscored). A metric that
            failed has no value and never passes. A blank answer has the worst value.
        findings: maximum number of findings (judged items, such as statements) to show for each failed metric, worst
            first.

    Returns:
        The scores by name.

    Raises:
        AssertionError: if a score misses its threshold. The message has a line for each metric with name, value,
            threshold, reason and the worst findings.
        SampleError: if the sample lacks a field that a metric reads; raised before any call.
        ConfigError: if there are no thresholds, or a threshold is not a number.
    """
    __tracebackhide__ = True
    limits = _limits(thresholds, missing)
    scores = collect_scores(suite(*thresholds), Sample.parse(sample))
    _assert_all(Sample.parse(sample), scores, limits, missing, findings)
    return scores


async def aassert_scores(
    sample: Any, thresholds: Thresholds, *, missing: Missing = "fail", findings: int = 3
) -> dict[str, Score]:
    """Assert on the caller's event loop that the scores of a sample reach their thresholds.

    The arguments, the result (scores by name) and the errors are those of `assert_scores`.
    """
    __tracebackhide__ = True
    limits = _limits(thresholds, missing)
    scores = await acollect_scores(suite(*thresholds), Sample.parse(sample))
    _assert_all(Sample.parse(sample), scores, limits, missing, findings)
    return scores


def _limits(thresholds: Thresholds, missing: str) -> dict[str, float]:
    """Return the threshold of each metric by name."""
    if missing not in ("fail", "pass"):
        raise ConfigError(f"missing must be 'fail' or 'pass', got {missing!r}")
    if not isinstance(thresholds, Mapping) or not thresholds:
        raise ConfigError(
            f"thresholds must map metrics to numbers, such as {{faithfulness(judge): 0.8}}, got {thresholds!r}"
        )
    for metric, limit in thresholds.items():
        if not isinstance(metric, Metric | Suite):
            raise ConfigError(f"the keys of thresholds are metrics, such as faithfulness(judge), got {metric!r}")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ConfigError(f"the threshold of {metric!r} must be a finite number, got {limit!r}")
    return {name: limit for metric, limit in thresholds.items() for name in metric.feedback_keys}


def _assert_all(
    sample: Sample, scores: Mapping[str, Score], limits: Mapping[str, float], missing: Missing, findings: int
) -> None:
    __tracebackhide__ = True
    passed = {}
    for name, score in scores.items():
        if (value := value_of(sample, score)) is None:
            passed[name] = missing == "pass" and score.failure is None
        else:
            passed[name] = reaches(value, limits[name], score.direction)
    if all(passed.values()):
        return
    failed = len(passed) - sum(passed.values())
    shown = f"sample {sample.id!r} ({_shorten(sample.question)})"
    head = f"{failed} of {len(passed)} scores of {shown} miss their threshold"
    lines = (_format_score(score, limits[name], passed[name], findings) for name, score in scores.items())
    raise AssertionError("\n".join([head, *lines]))


def _format_score(score: Score, limit: float, passed: bool, findings: int) -> str:
    value = "no value" if score.value is None else f"{score.value:.3f}"
    threshold = f"at {'least' if score.direction == 'higher' else 'most'} {limit:g}"
    line = f"  {'passed' if passed else 'FAILED'} {score.metric} {value}, {threshold}: {score.comment}"
    bad = [finding for finding in score.findings if finding.verdict in _WORST_FIRST]
    worst = sorted(bad, key=lambda finding: _WORST_FIRST.index(finding.verdict))[:findings]
    return line if passed else " | ".join([line, *map(_format_finding, worst)])


def _format_finding(finding: Finding) -> str:
    cited = f" [{', '.join(finding.cites)}]" if finding.cites else ""
    reason = f" ({_shorten(finding.reason)})" if finding.reason else ""
    return f"{finding.verdict}{cited}: {_shorten(finding.text)}{reason}"


def _shorten(text: str) -> str:
    """Return a text in quotation marks, on one line, cut to 100 characters."""
    return f"«{shortened(' '.join(text.split()), 100)}»"
