"""What `--json` writes: one object on stdout, under keys that stay.

Numbers that are not there are null. Everything else that a command has to say goes to stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.evaluation.planning import Plan, PlannedMetric
    from langchain_rageval.report.comparison import Comparison
    from langchain_rageval.report.report import Report
    from langchain_rageval.report.summary import MetricSummary
    from langchain_rageval.testset.testset import Testset

PIPE = "-"
"""The name that stands for stdin where a file is read, and for stdout where one is written."""

_REPORT_KEYS = (
    "samples: how many",
    "complete: false when the run was broken off",
    "metrics: by name aspect, direction, mean, low, high, scored, unscored, failed, abstained, calls, input_tokens, "
    "output_tokens, embedded, seconds",
    "aspects: by name the mean over its metrics",
    "diagnosis: by cause the number of samples",
    "left_out: index and metric of each score that the budget had no room for",
    "notes: what a reader should know",
)
KEYS: Mapping[str, tuple[str, ...]] = {
    "evaluate": _REPORT_KEYS,
    "report": _REPORT_KEYS,
    "compare": (
        "metrics: by name direction, verdict, baseline, candidate, difference, low, high, p_value, p_unadjusted, "
        "pairs, clusters, better, worse, lost, gained, coverage_fell",
        "margin: of the comparison",
        "notes: what a reader should know",
    ),
    "plan": (
        "samples: how many",
        "rehearsed: how many of them the figures come from",
        "metrics: by name calls, input_tokens, output_tokens, embedded",
        "total: the same of all together",
        "notes: what the figures leave out",
    ),
    "generate": (
        "questions: how many",
        "complete: false when fewer came than were asked for",
        "evolutions: by name the number of questions",
        "attempts: how many candidates there were",
        "rejected: by reason the number of candidates",
        "notes: what a reader should know",
    ),
    "metrics": ("metrics: by name what it measures",),
}
"""The keys of each command's object, as its help lists them."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object on stdout, and no table")


def write_json(told: Mapping[str, Any]) -> None:
    """Write an object to stdout, on one line."""
    stdout().write(json.dumps(told, ensure_ascii=False) + "\n")


def stdout() -> TextIO:
    """Where programs read, in UTF-8 whatever the locale says, as JSON is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


def refuse_both(options: argparse.Namespace) -> None:
    """Raise ConfigError when two things are to be written to stdout."""
    if options.json and options.out == PIPE:
        raise ConfigError("--json and --out - both write to stdout; give --out the name of a file")


def told_of_report(report: Report) -> dict[str, Any]:
    """What `evaluate` and `report` say of a report."""
    summary = report.summary()
    return {
        "samples": len(report),
        "complete": report.complete,
        "metrics": {name: _told_of_metric(metric) for name, metric in summary.items()},
        "aspects": {name: aspect.mean for name, aspect in summary.aspects.items()},
        "diagnosis": dict(report.diagnose().counts),
        "left_out": [{"index": index, "metric": metric} for index, metric in report.left_out],
        "notes": report.notes,
    }


def told_of_comparison(comparison: Comparison) -> dict[str, Any]:
    """What `compare` says."""
    metrics = {}
    for name, metric in comparison.items():
        told = asdict(metric)
        metrics[name] = {"candidate": told.pop("mean"), **{key: told[key] for key in told if key != "metric"}}
    return {"metrics": metrics, "margin": comparison.margin, "notes": comparison.notes}


def told_of_plan(plan: Plan) -> dict[str, Any]:
    """What `plan` says."""
    return {
        "samples": plan.samples,
        "rehearsed": plan.rehearsed,
        "metrics": {name: _told_of_planned(metric) for name, metric in plan.items()},
        "total": _told_of_planned(plan.total),
        "notes": plan.notes,
    }


def told_of_testset(testset: Testset) -> dict[str, Any]:
    """What `generate` says."""
    return {
        "questions": len(testset),
        "complete": testset.complete,
        "evolutions": testset.counts,
        "attempts": testset.yields["attempts"],
        "rejected": dict(testset.yields["rejected"]),
        "notes": testset.notes,
    }


def _told_of_metric(metric: MetricSummary) -> dict[str, Any]:
    told = asdict(metric)
    del told["metric"], told["usage"]
    return told | metric.usage.model_dump()


def _told_of_planned(metric: PlannedMetric) -> dict[str, Any]:
    told = asdict(metric)
    del told["metric"]
    return told
