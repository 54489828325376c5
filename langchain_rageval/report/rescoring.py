"""Rescoring: a metric with other options, from what was found before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_rageval.data.instrument import join_digests, split_digests
from langchain_rageval.data.schema import Row, Score, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric


def rescored_rows(rows: Sequence[Row], metric: Metric) -> Iterator[Row]:
    """The rows with a metric replaced or added; see `Report.rescore`."""
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"rescore takes a metric such as faithfulness(judge), got {type(metric).__name__}; of a suite, one by one"
        )
    source = _source(rows, metric)
    for row in rows:
        if source in row.scores:
            score = _rescored(row, metric, row.scores[source])
            row = row.model_copy(update={"scores": {**row.scores, metric.name: score}})
        yield row


def _rescored(row: Row, metric: Metric, old: Score) -> Score:
    added = {} if old.metric == metric.name else {"usage": Usage()}  # paid for under the other name
    if old.failure:
        named = {"metric": metric.name, "aspect": metric.aspect, "direction": metric.direction}
        return old.model_copy(
            update={**named, **added, "instrument": join_digests(old.found_by, split_digests(metric.instrument)[1])}
        )
    new = metric.rescore(metric.read(row.sample), old)
    if new is None:
        raise ConfigError(
            f"{metric.name} cannot be had from what {old.metric} found for sample {row.sample.id!r}: "
            "ask for it with evaluate"
        )
    return new.model_copy(update=added)


def _source(rows: Sequence[Row], metric: Metric) -> str:
    """The score to go by: that of the same name, else the only one whose findings suffice throughout, or all agree."""
    names = dict.fromkeys(name for row in rows for name in row.scores)
    if metric.name in names or not names:
        return metric.name
    suffice = [name for name in names if _suffices(rows, name, metric)]
    if not suffice:
        raise ConfigError(f"{metric.name} cannot be had from what {', '.join(names)} found: ask for it with evaluate")
    if len(suffice) > 1 and not all(_alike(row, suffice, metric) for row in rows):
        found = " and ".join(suffice)
        raise ConfigError(f"{metric.name} could go by what {found} found: name it as the one that it is to replace")
    return suffice[0]


def _suffices(rows: Sequence[Row], name: str, metric: Metric) -> bool:
    given = [(row.sample, row.scores[name]) for row in rows if name in row.scores and not row.scores[name].failure]
    telling = any(score.findings for _, score in given)
    return telling and all(metric.rescore(metric.read(sample), score) is not None for sample, score in given)


def _alike(row: Row, names: Sequence[str], metric: Metric) -> bool:
    """Whether the findings of each of these scores make the same of the metric."""
    scores = [row.scores[name] for name in names if name in row.scores]
    if len(scores) < len(names) or any(score.failure for score in scores):
        return not scores
    made = [metric.rescore(metric.read(row.sample), score) for score in scores]
    return all(one and made[0] and one.findings == made[0].findings and one.value == made[0].value for one in made)
