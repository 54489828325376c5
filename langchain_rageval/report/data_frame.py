"""Rows of a report as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from langchain_rageval.data.schema import Row

if TYPE_CHECKING:
    import pandas


def to_data_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    """Return a pandas DataFrame with one line for each row of a report; see `Report.to_pandas`."""
    import pandas

    return pandas.DataFrame([_record(row) for row in rows])


def _record(row: Row) -> dict[str, Any]:
    sample = row.sample
    record: dict[str, Any] = {"id": sample.id, "question": sample.question, "answer": sample.answer}
    record |= {"contexts": sample.contexts, "references": sample.references}
    record |= {f"metadata.{name}": value for name, value in sample.metadata.items()}
    for name, score in row.scores.items():
        record |= {name: score.value, f"{name}.reason": score.reason, f"{name}.without": score.comment}
        if score.value is not None:
            record[f"{name}.without"] = None
    return record
