"""Diagnosis: what went wrong with each answer, and which part of the system to look at.

Goes by what the metrics at hand have found: how the answer's statements stand to the contexts (faithfulness), how the
references' do (context_recall), and which of them the answer shares with the references (answer_correctness). With all
three every cause can be told; with fewer, those that they show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, get_args

from langchain_rageval.metrics.value import NO_FACTS
from langchain_rageval.schema import Finding, FindingKind, Row

Cause = Literal[
    "wrongly refused",
    "contradicts the context",
    "reference suspect",
    "unsupported addition",
    "retrieved but ignored",
    "retriever missed it",
    "nothing wrong",
    "cannot tell",
]
"""Of causes that explain as many statements, the first holds."""

REMEDIES: Mapping[Cause, str] = {
    "wrongly refused": "The contexts hold the answer: soften what the prompt says about refusing, or change the model.",
    "contradicts the context": "The answer misreads its contexts: look at the model, at numbers and negations in them.",
    "reference suspect": "The contexts contradict the reference: have a person look at it before blaming the system.",
    "unsupported addition": "No context says so: tell the model to keep to the contexts, lower its temperature.",
    "retrieved but ignored": "The fact was there: retrieve fewer, better chunks, the best first, or change the model.",
    "retriever missed it": "No context holds the fact: look at chunking, embeddings and k, and at the documents.",
    "nothing wrong": "",
    "cannot tell": "Score faithfulness, context_recall and answer_correctness together.",
}


@dataclass(frozen=True)
class DiagnosedRow:
    """One sample with its cause.

    Attributes:
        index: place of the sample in the input.
        id: of the sample.
        cause: the one that explains most statements.
        findings: the statements that it explains.
    """

    index: int
    id: str
    cause: Cause
    findings: Sequence[Finding] = ()

    def __str__(self) -> str:
        """One line."""
        texts = "; ".join(finding.text for finding in self.findings)
        return f"{self.id}: {self.cause}" + (f" ({texts})" if texts else "")


class Diagnosis(Sequence[DiagnosedRow]):
    """The rows of a report with their causes, in its order.

    Attributes:
        counts: cause to number of rows, the most frequent first; "nothing wrong" and "cannot tell" last.
        remedies: cause to what to look at, for the causes that occur.
    """

    def __init__(self, rows: Iterable[DiagnosedRow]) -> None:
        self._rows = list(rows)
        counted = Counter(row.cause for row in self._rows)
        causes = sorted(counted, key=lambda cause: (cause in _NO_CAUSES, -counted[cause], _RANK[cause]))
        self.counts: dict[Cause, int] = {cause: counted[cause] for cause in causes}
        self.remedies: dict[Cause, str] = {cause: REMEDIES[cause] for cause in causes if REMEDIES[cause]}

    def __getitem__(self, place: int | slice) -> DiagnosedRow | list[DiagnosedRow]:  # type: ignore[override]
        """One row, or a list of them."""
        return self._rows[place]

    def __iter__(self) -> Iterator[DiagnosedRow]:
        """The rows."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def of(self, cause: Cause) -> list[DiagnosedRow]:
        """The rows with a cause."""
        return [row for row in self._rows if row.cause == cause]

    def __repr__(self) -> str:
        """A line for each cause: how many rows have it, and what to look at."""
        told = {cause: f": {remedy}" for cause, remedy in self.remedies.items()}
        lines = [f"{count} {cause}{told.get(cause, '')}" for cause, count in self.counts.items()]
        return "\n".join([f"Diagnosis of {len(self)} sample{'' if len(self) == 1 else 's'}", *lines])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        cells = [(str(count), cause, self.remedies.get(cause, "")) for cause, count in self.counts.items()]
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        return f"<table><tr><th>samples</th><th>cause</th><th>remedy</th></tr>{rows}</table>"


def diagnose_rows(rows: Iterable[Row]) -> Diagnosis:
    """The cause of each row; see `Report.diagnose`."""
    return Diagnosis(_diagnosed(row) for row in rows)


_NO_CAUSES = ("nothing wrong", "cannot tell")
_RANK: Mapping[str, int] = {cause: rank for rank, cause in enumerate(get_args(Cause))}


@dataclass(frozen=True)
class Facts:
    """What the scores of a row have found.

    Attributes:
        answer: the answer's statements by their verdict against the contexts; None when nobody looked.
        reference: the references' statements likewise.
        shared: texts of the answer's statements that a reference shares; None when nobody looked.
        missing: texts of the references' statements that the answer lacks; likewise.
        refused: whether the answer states no facts.
    """

    answer: Sequence[Finding] | None
    reference: Sequence[Finding] | None
    shared: frozenset[str] | None
    missing: frozenset[str] | None
    refused: bool

    @classmethod
    def of(cls, row: Row) -> Facts:
        """Gather them, from whichever score has them first."""
        scores = [score for score in row.scores.values() if score.failure is None]
        refused = any((score.unscored or "").startswith(NO_FACTS) for score in scores)
        classified = _first(scores_findings := [score.findings for score in scores], "TP", "FP", "FN")
        if classified is not None and not any(finding.kind == "statement" for finding in classified):
            refused = True
        return cls(
            answer=_first(scores_findings, "supported", "contradicted", "absent", kind="statement"),
            reference=_first(scores_findings, "supported", "contradicted", "absent", kind="reference_statement"),
            shared=None if classified is None else _texts(classified, "statement", "TP"),
            missing=None if classified is None else _texts(classified, "reference_statement", "FN"),
            refused=refused,
        )


def _first(
    scores: Iterable[Sequence[Finding]], *verdicts: str, kind: FindingKind | None = None
) -> list[Finding] | None:
    """The findings of the first score that has some with these verdicts."""
    for findings in scores:
        found = [f for f in findings if f.verdict in verdicts and kind in (None, f.kind)]
        if found:
            return found
    return None


def _texts(findings: Iterable[Finding], kind: FindingKind, verdict: str) -> frozenset[str]:
    return frozenset(f.text for f in findings if f.kind == kind and f.verdict == verdict)


def _diagnosed(row: Row) -> DiagnosedRow:
    facts = Facts.of(row)
    explained = _explained(facts, nothing_retrieved=row.sample.contexts == [])
    if explained:
        cause = min(explained, key=lambda cause: (cause != "wrongly refused", -len(explained[cause]), _RANK[cause]))
        return DiagnosedRow(row.index, row.sample.id, cause, explained[cause])
    told = facts.answer is not None and (facts.reference is not None or facts.missing is not None)
    fine = told and not facts.missing
    return DiagnosedRow(row.index, row.sample.id, "nothing wrong" if fine else "cannot tell")


def _explained(facts: Facts, *, nothing_retrieved: bool) -> dict[Cause, list[Finding]]:
    """Each cause with the statements that it explains."""
    answer, reference = facts.answer or [], facts.reference or []
    lacking = [f for f in reference if facts.missing is None or f.text in facts.missing]
    found: dict[Cause, list[Finding]] = {
        "contradicts the context": _with(answer, "contradicted"),
        "reference suspect": _with(reference, "contradicted"),
        "unsupported addition": [f for f in _with(answer, "absent") if f.text not in (facts.shared or ())],
        "retrieved but ignored": _with(lacking, "supported") if facts.missing is not None else [],
        "retriever missed it": _with(lacking, "absent"),
    }
    if facts.refused:
        found["wrongly refused"] = _with(reference, "supported")
        found["retrieved but ignored"] = []
    explained = {cause: findings for cause, findings in found.items() if findings}
    if not explained and nothing_retrieved:
        explained["retriever missed it"] = []
    return explained


def _with(findings: Iterable[Finding], verdict: str) -> list[Finding]:
    return [finding for finding in findings if finding.verdict == verdict]
