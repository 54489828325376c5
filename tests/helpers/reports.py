"""Builders of scores, rows and reports without a run."""

from collections.abc import Sequence
from typing import Any

from langchain_rageval import Finding, Report, Row, Sample, Score
from langchain_rageval.data.schema import Failure, Usage

FACTLESS = "the answer states no facts"
INSTRUMENT = "0123456789abcdef.fedcba9876543210"
LOST = Failure(error="APIConnectionError", message="Connection error.", step="verify_statements")
STATEMENT = Finding(kind="statement", number=1, text="Munich is old.", verdict="supported", cites=["1.1"])


def scored(value: float, metric: str = "faithfulness", **more: Any) -> Score:
    """Return a score with a value and, unless given, the same known instrument for all."""
    return Score(**{"metric": metric, "aspect": "grounding", "value": value, "instrument": INSTRUMENT, **more})


def unscored(why: str = FACTLESS, metric: str = "faithfulness", **more: Any) -> Score:
    """Return an unscored score."""
    return Score(**{"metric": metric, "aspect": "grounding", "unscored": why, **more})


def failed(metric: str = "faithfulness", **more: Any) -> Score:
    """Return a failed score."""
    return Score(**{"metric": metric, "aspect": "grounding", "failure": LOST, **more})


def row(index: int, *scores: Score, **sample: Any) -> Row:
    """Return a row with these scores; keyword arguments are fields of the sample."""
    given = {"id": f"q-{index}", "question": "When was Munich founded?", "answer": "In 1158.", **sample}
    return Row(index=index, sample=Sample(**given), scores={score.metric: score for score in scores})


def report_of(*scores: Score | Sequence[Score], notes: Sequence[str] = ()) -> Report:
    """Return a report with a row for each score, or for each list of scores."""
    given = [[part] if isinstance(part, Score) else part for part in scores]
    return Report([row(index, *part) for index, part in enumerate(given)], list(notes))


def paid(calls: int, read: int | None, written: int | None, seconds: float) -> Usage:
    """Return the usage of a score."""
    return Usage(calls=calls, input_tokens=read, output_tokens=written, seconds=seconds)
