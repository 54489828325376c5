"""Changes to the scores of a report: recompute a metric from stored verdicts, or add the scores of a later run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from langchain_rageval.data.instrument import join_digests, split_digests
from langchain_rageval.data.schema import Row, Score, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.report.files import ReportData

Run = TypeVar("Run", bound=ReportData)


def rescore_rows(rows: Sequence[Row], metric: Metric) -> Iterator[Row]:
    """Yield the rows with a metric's scores computed again from stored verdicts, without model calls.

    Scores of a metric with the same name are replaced; otherwise the metric is added. See `Report.rescore`.
    """
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"rescore takes a metric such as faithfulness(judge), got {type(metric).__name__}; "
            "rescore the metrics of a suite one by one"
        )
    source = _source(rows, metric)
    for row in rows:
        if source in row.scores:
            score = _rescore(row, metric, row.scores[source])
            audit = {name: one for name, one in row.audit.items() if name != metric.name}
            if source in row.audit:
                audit[metric.name] = _rescore(row, metric, row.audit[source])
            row = row.model_copy(update={"scores": {**row.scores, metric.name: score}, "audit": audit})
        yield row


def _rescore(row: Row, metric: Metric, old: Score) -> Score:
    usage = {} if old.metric == metric.name else {"usage": Usage()}  # the usage belongs to the other metric
    if old.failure:
        identity = {"metric": metric.name, "aspect": metric.aspect, "direction": metric.direction}
        instrument = join_digests(old.found_by, split_digests(metric.instrument)[1])
        return old.model_copy(update={**identity, **usage, "instrument": instrument})
    new = metric.rescore(metric.read(row.sample), old)
    if new is None:
        raise ConfigError(
            f"{metric.name} cannot be computed from the findings of {old.metric} for sample {row.sample.id!r}: "
            "score it with evaluate"
        )
    return new.model_copy(update=usage)


def _source(rows: Sequence[Row], metric: Metric) -> str:
    """Return the name of the score to use: the metric's own, else the one with sufficient findings in every row.

    Raises:
        ConfigError: if no findings suffice, or several do and give different values.
    """
    names = dict.fromkeys(name for row in rows for name in row.scores)
    if metric.name in names or not names:
        return metric.name
    suffice = [name for name in names if _suffices(rows, name, metric)]
    if not suffice:
        raise ConfigError(
            f"{metric.name} cannot be computed from the findings of {', '.join(names)}: score it with evaluate"
        )
    if len(suffice) > 1 and not all(_agree(row, suffice, metric) for row in rows):
        raise ConfigError(
            f"{metric.name} could be computed from the findings of {' and '.join(suffice)}, with different values: "
            "build the metric with the name= of one of these metrics; it then replaces the scores of that metric"
        )
    return suffice[0]


def _suffices(rows: Sequence[Row], name: str, metric: Metric) -> bool:
    """Return True if the findings of the score called `name` suffice to compute a metric in every row."""
    pairs = [(row.sample, row.scores[name]) for row in rows if name in row.scores and not row.scores[name].failure]
    has_facts = any(score.findings or score.answers for _, score in pairs)
    return has_facts and all(metric.rescore(metric.read(sample), score) is not None for sample, score in pairs)


def _agree(row: Row, names: Sequence[str], metric: Metric) -> bool:
    """Return True if the findings of each of these scores give the metric the same value and findings."""
    scores = [row.scores[name] for name in names if name in row.scores]
    if len(scores) < len(names) or any(score.failure for score in scores):
        return not scores
    new = [metric.rescore(metric.read(row.sample), score) for score in scores]
    return all(one and new[0] and one.findings == new[0].findings and one.value == new[0].value for one in new)


def join_reports(earlier: Run, later: Run) -> Run:
    """Return a report with the rows of an earlier report, to which the scores of a later run are added.

    Notes, left out scores and configurations of both runs are joined. `complete` is True if both runs are complete. All
    other facts about the run are from `later`.

    Args:
        earlier: the report whose samples were scored again.
        later: the later run. The index of a row is the position of the sample in `earlier.rows`, from 0. A later score
            replaces an earlier score of the same metric.
    """
    added = {row.index: (row.scores, row.audit, row.asked) for row in later.rows}
    rows = []
    for number, row in enumerate(earlier.rows):
        scores, audits, asked = added.get(number, ({}, {}, ()))
        kept = {name: score for name, score in row.audit.items() if name not in scores}  # of replaced scores, none
        anew = [*(name for name in row.asked if name not in scores), *asked]
        update = {"scores": {**row.scores, **scores}, "audit": {**kept, **audits}, "asked": anew}
        rows.append(row.model_copy(update=update))
    places = [row.index for row in earlier.rows]
    left_out = {*earlier.left_out, *((places[number], metric) for number, metric in later.left_out)}
    scored = {(row.index, metric) for row in rows for metric in row.scores}
    return replace(
        later,
        rows=rows,
        notes=[*dict.fromkeys([*earlier.notes, *later.notes])],
        complete=earlier.complete and later.complete,
        left_out=sorted(left_out - scored),
        provenance=earlier.provenance | later.provenance,
    )
