"""Report data: the rows of a run and what is known about the run, without the methods of `Report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.decision import Decision


@dataclass(frozen=True, repr=False)
class ReportData:
    """Scored samples in the order of the input.

    Attributes:
        rows: one for each sample; a list, or a sequence that reads them from a file.
        notes: what a reader of the numbers should know, such as that an offline baseline judged.
        complete: False if the run was interrupted.
        left_out: index of the sample and name of the metric of each score that did not fit the budget, or that a run
            with `until=` did not need.
        provenance: readable parts of the instruments; `Report.instruments` lists them by metric.
        decisions: what a run with `until=` decided about each metric.
    """

    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    left_out: list[tuple[int, str]] = field(default_factory=list)
    provenance: Provenance = field(default_factory=Provenance, compare=False)
    decisions: Mapping[str, Decision] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


def head_of(data: ReportData) -> Mapping[str, Any]:
    """Return what the first line of a report's file says about the run."""
    run = {"notes": data.notes, "complete": data.complete, "left_out": data.left_out}
    decisions = {name: decision.to_dict() for name, decision in data.decisions.items()}
    return {**run, "instruments": data.provenance.as_json(), **({"decisions": decisions} if decisions else {})}


def instruments_of(data: ReportData) -> dict[str, list[Instrument]]:
    """Return the instruments that gave the scores of each metric, in order of appearance."""
    digests: dict[str, dict[str, None]] = {}
    for row in data.rows:
        for name, score in row.scores.items():
            digests.setdefault(name, {})[score.instrument] = None
    return {name: [data.provenance.instrument(name, one) for one in found] for name, found in digests.items()}


def metric_names(data: ReportData) -> list[str]:
    """Return the names of the metrics, in the order in which the rows have them."""
    return list(dict.fromkeys(name for row in data.rows for name in row.scores))


def check_metric(data: ReportData, metric: str) -> None:
    """Raise ConfigError if the report has no such metric."""
    names = metric_names(data)
    if metric not in names:
        raise ConfigError(f"the report has no metric {metric!r}; it has {', '.join(names) or 'none'}")


def metric_or_only(data: ReportData, metric: str | None) -> str:
    """Return the metric; if it is None, the only one of the report.

    Raises:
        ConfigError: if the report has no such metric, or `metric` is None and it has several or none.
    """
    if metric is not None:
        check_metric(data, metric)
        return metric
    names = metric_names(data)
    if len(names) != 1:
        raise ConfigError(f"name the metric; the report has {', '.join(names) or 'none'}")
    return names[0]
