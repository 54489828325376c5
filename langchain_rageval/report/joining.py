"""join_reports: scores of two runs over the same samples in one report."""

from __future__ import annotations

from dataclasses import replace

from langchain_rageval.data.instrument import Provenance
from langchain_rageval.report.report import Report


def join_reports(earlier: Report, later: Report) -> Report:
    """Return the rows of a report with the scores of a later run over its samples added.

    Args:
        earlier: the report whose samples were scored again.
        later: the later run; its rows have the indexes of the samples in `earlier.rows`. Its score replaces an earlier
            one of the same metric.
    """
    added = {row.index: row.scores for row in later.rows}
    audits = {row.index: row.audit for row in later.rows}
    asked = {row.index: row.asked for row in later.rows}
    rows = []
    for number, row in enumerate(earlier.rows):
        scores = added.get(number, {})
        kept = {name: score for name, score in row.audit.items() if name not in scores}  # of replaced scores, none
        audit = {**kept, **audits.get(number, {})}
        anew = [*(name for name in row.asked if name not in scores), *asked.get(number, [])]
        rows.append(row.model_copy(update={"scores": {**row.scores, **scores}, "audit": audit, "asked": anew}))
    places = [row.index for row in earlier.rows]
    left_out = {*earlier.left_out, *((places[number], metric) for number, metric in later.left_out)}
    scored = {(row.index, metric) for row in rows for metric in row.scores}
    return replace(
        later,
        rows=rows,
        notes=[*dict.fromkeys([*earlier.notes, *later.notes])],
        complete=earlier.complete and later.complete,
        left_out=sorted(left_out - scored),
        provenance=Provenance(
            earlier.provenance.parts | later.provenance.parts, earlier.provenance.unknown | later.provenance.unknown
        ),
    )
