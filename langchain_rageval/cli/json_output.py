"""JSON output of the commands: one object on stdout with stable keys.

Missing numbers are null. All other output goes to stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, cast

from langchain_rageval._internal.page import printable_json
from langchain_rageval.cli.terminal import PIPE
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.data.schema import Usage
    from langchain_rageval.evaluation.planning import Plan, PlannedMetric
    from langchain_rageval.report.comparison import Comparison
    from langchain_rageval.report.gates import Gate
    from langchain_rageval.report.report import Report
    from langchain_rageval.report.summary import MetricSummary, Summary
    from langchain_rageval.report.trend_page import Trend
    from langchain_rageval.testset.rehearsal import GenerationPlan
    from langchain_rageval.testset.testset import Testset


def write_json(content: Mapping[str, Any]) -> None:
    """Write a JSON object to stdout on one line."""
    json_stdout().write(json.dumps(content, ensure_ascii=False) + "\n")


def json_stdout() -> TextIO:
    """Return stdout for JSON lines, in UTF-8 regardless of the locale; control characters become JSON escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return cast("TextIO", _JsonStdout())


class _JsonStdout(io.TextIOBase):
    def write(self, text: str) -> int:
        return sys.stdout.write(printable_json(text))

    def flush(self) -> None:
        sys.stdout.flush()


def check_single_stdout(options: argparse.Namespace) -> None:
    """Check that not both `--json` and `--out -` are given.

    Raises:
        ConfigError: if they are.
    """
    if options.json and options.out == PIPE:
        raise ConfigError("--json and --out - both write to stdout; use --out with a file name")


def report_object(report: Report, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """Return the JSON object of `rageval evaluate` and `rageval report`."""
    summary = report.summary()
    return {
        "samples": len(report),
        "complete": report.complete,
        "metrics": {name: _metric_object(metric) for name, metric in summary.items()},
        "aspects": {name: aspect.mean for name, aspect in summary.aspects.items()},
        "diagnosis": dict(report.diagnose().counts),
        "left_out": [{"index": index, "metric": metric} for index, metric in report.left_out],
        "decisions": {name: decision.to_dict() for name, decision in report.decisions.items()},
        "audit": {name: audit.to_dict() for name, audit in report.audit.items()},
        "notes": report.notes,
        "gates": [gate.to_dict() for gate in gates],
    }


def comparison_object(comparison: Comparison, gates: Sequence[Gate]) -> dict[str, Any]:
    """Return the JSON object of `rageval compare`."""
    metrics = {}
    for name, metric in comparison.items():
        fields = asdict(metric)
        metrics[name] = {"candidate": fields.pop("mean"), **{key: fields[key] for key in fields if key != "metric"}}
    answers = [gate.to_dict() for gate in gates]
    return {"metrics": metrics, "margin": comparison.margin, "notes": comparison.notes, "gates": answers}


def trend_object(trend: Trend) -> dict[str, Any]:
    """Return the JSON object of `rageval trend`."""

    def means(summary: Summary) -> dict[str, Any]:
        keys = ("mean", "low", "high", "scored", "unscored", "failed", "units")
        return {name: {key: getattr(metric, key) for key in keys} for name, metric in summary.items()}

    alarms = {
        name: {**asdict(alarm), "raised": alarm.raised.isoformat(), "since": alarm.since.isoformat()}
        for name, alarm in trend.alarms.items()
    }
    for alarm in alarms.values():
        del alarm["metric"]
    return {
        "periods": {name: means(summary) for name, summary in trend.items()},
        "baseline": None if trend.baseline is None else means(trend.baseline),
        "alarms": alarms,
        "changes": {
            name: [{"since": one.since.isoformat(), "before": one.before, "after": one.after} for one in changes]
            for name, changes in trend.changes.items()
        },
        "notes": list(trend.notes),
    }


def plan_object(plan: Plan) -> dict[str, Any]:
    """Return the JSON object of `rageval plan`."""
    return {
        "samples": plan.samples,
        "rehearsed": plan.rehearsed,
        "metrics": {name: _planned_metric_object(metric) for name, metric in plan.items()},
        "audit": {name: _planned_metric_object(metric) for name, metric in plan.audit.items()},
        "total": _planned_metric_object(plan.total),
        "asked": plan.asked,
        "waves": plan.waves,
        "no_worse": plan.no_worse,
        "notes": plan.notes,
    }


def generation_plan_object(plan: GenerationPlan) -> dict[str, Any]:
    """Return the JSON object of `rageval plan --generate`."""
    steps = {step.step: asdict(step) for step in (*plan.values(), plan.total)}
    costs = {name: {key: cost for key, cost in fields.items() if key != "step"} for name, fields in steps.items()}
    total = costs.pop("total")
    return {"questions": plan.size, "rehearsed": plan.rehearsed, "steps": costs, "total": total, "notes": plan.notes}


def testset_object(testset: Testset) -> dict[str, Any]:
    """Return the JSON object of `rageval generate`."""
    return {
        "questions": len(testset),
        "complete": testset.complete,
        "evolutions": testset.counts,
        "attempts": testset.yields["attempts"],
        "rejected": dict(testset.yields["rejected"]),
        "usage": _usage_object(testset.usage),
        "steps": {name: _usage_object(usage) for name, usage in testset.usage_by_step.items()},
        "calls_per_row": testset.calls_per_row,
        "notes": testset.notes,
    }


def _usage_object(usage: Usage) -> dict[str, Any]:
    return usage.model_dump(exclude={"seconds"})


def _metric_object(metric: MetricSummary) -> dict[str, Any]:
    fields = asdict(metric)
    del fields["metric"], fields["usage"]
    return fields | metric.usage.model_dump() | {"money": metric.money}


def _planned_metric_object(metric: PlannedMetric) -> dict[str, Any]:
    fields = asdict(metric)
    del fields["metric"]
    return fields
