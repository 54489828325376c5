"""Diagnosis: what went wrong with each answer, and which part of the system to look at.

Goes by what the metrics at hand have found: how the answer's statements stand to the contexts (faithfulness), how the
references' do (context_recall), and which of them the answer shares with the references (answer_correctness). With all
three, or with claim_metrics, every cause can be told; with fewer, those that they show. A fact counts once, where it
went wrong first: what the references say as well is no addition of the answer's, and what is made up where nothing
needed was found is the retriever's doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from langchain_rageval.data.schema import Finding, FindingKind, Row
from langchain_rageval.metrics.value import NEITHER_FACTS, NO_FACTS, NO_REFERENCE_FACTS
from langchain_rageval.report.notebook import html_table

Cause = Literal[
    "wrongly refused",
    "contradicts the context",
    "reference suspect",
    "retriever missed it",
    "unsupported addition",
    "retrieved but ignored",
    "nothing wrong",
    "cannot tell",
]
"""Of causes that explain as many statements, the first holds."""

REMEDIES: Mapping[Cause, str] = {
    "wrongly refused": "The contexts hold the answer: soften what the prompt says about refusing, or change the model.",
    "contradicts the context": "The answer misreads its contexts: look at the model, at numbers and negations in them.",
    "reference suspect": "The contexts contradict the reference: have a person look at it before blaming the system.",
    "retriever missed it": "No context holds the fact: look at chunking, embeddings and k, and at the documents.",
    "unsupported addition": "No context says so: tell the model to keep to the contexts, lower its temperature.",
    "retrieved but ignored": "The fact was there: retrieve fewer, better chunks, the best first, or change the model.",
    "nothing wrong": "",
    "cannot tell": "Score faithfulness, context_recall and answer_correctness together, or claim_metrics.",
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
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        rows = [(str(count), cause, self.remedies.get(cause, "")) for cause, count in self.counts.items()]
        return html_table(self._title(), ("samples", "cause", "remedy"), rows)

    def _title(self) -> str:
        return f"Diagnosis of {len(self)} sample{'' if len(self) == 1 else 's'}"


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
        reference: the references' statements likewise; where answer_correctness names the best of several references,
            those of that one.
        shared: texts of the answer's statements that this reference says as well; empty also when nobody looked.
        missing: its statements that the answer lacks; None when nobody looked.
        declined: whether the answer states no facts.
        unanswerable: whether the references state none.
        nothing_retrieved: whether the contexts hold no words.
    """

    answer: Sequence[Finding] | None
    reference: Sequence[Finding] | None
    shared: frozenset[str]
    missing: Sequence[Finding] | None
    declined: bool
    unanswerable: bool
    nothing_retrieved: bool

    @classmethod
    def of(cls, row: Row) -> Facts:
        """Gather them, from whichever score has them first."""
        scores = [score for score in row.scores.values() if score.failure is None]
        unscored = {score.unscored for score in scores}
        found = [score.findings for score in scores]
        answer = _first(found, "supported", "contradicted", "absent", kind="statement")
        reference = _first(found, "supported", "contradicted", "absent", kind="reference_statement")
        best_first = sorted(scores, key=lambda score: score.aspect == "grounding")  # claim metrics unite all references
        classified = _first([score.findings for score in best_first], "TP", "FP", "FN")
        told = [f for f in classified or () if f.kind == "statement"]
        best = [f for f in classified or () if f.kind == "reference_statement"]
        if reference is not None:
            texts = {f.text for f in best}
            reference = [f for f in reference if f.text in texts] or reference
        contexts = row.sample.contexts
        return cls(
            answer=answer,
            reference=reference,
            shared=frozenset(f.text for f in told if f.verdict == "TP"),
            missing=None if classified is None else _with(best, "FN"),
            declined=answer is None and (bool(unscored & {NO_FACTS, NEITHER_FACTS}) or (bool(best) and not told)),
            unanswerable=bool(unscored & {NO_REFERENCE_FACTS, NEITHER_FACTS}) or (bool(told) and not best),
            nothing_retrieved=contexts is not None and not any(text.strip() for text in contexts),
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


def _diagnosed(row: Row) -> DiagnosedRow:
    facts = Facts.of(row)
    explained = _explained(facts)
    if explained:
        cause = min(explained, key=lambda cause: (-len(explained[cause]), _RANK[cause]))
        return DiagnosedRow(row.index, row.sample.id, cause, explained[cause])
    if facts.unanswerable:
        fine = facts.declined
    else:
        fine = facts.answer is not None and facts.missing is not None and not facts.missing
    return DiagnosedRow(row.index, row.sample.id, "nothing wrong" if fine else "cannot tell")


def _explained(facts: Facts) -> dict[Cause, Sequence[Finding]]:
    """Each cause with the statements that it explains; "retriever missed it" may explain none when it found nothing."""
    answer, reference, missing = facts.answer or (), facts.reference or (), facts.missing
    shared = [f for f in answer if f.text in facts.shared]
    own = [f for f in answer if f.text not in facts.shared]
    if facts.nothing_retrieved and not facts.unanswerable:
        return {"retriever missed it": missing or _with(answer, "absent")}
    lacking = reference if missing is None else [f for f in reference if f.text in {lost.text for lost in missing}]
    sought = reference if facts.answer is None else lacking  # what the answer says as well, its own statement shows
    missed = [*_with(sought, "absent"), *_with(shared, "absent")]
    found: dict[Cause, Sequence[Finding]] = {
        "contradicts the context": _with(own, "contradicted"),
        "reference suspect": _with(reference, "contradicted") or _with(shared, "contradicted"),
        "retriever missed it": missed,
    }
    if facts.declined:
        found["wrongly refused"] = _with(reference, "supported")
    elif missing is not None:
        found["retrieved but ignored"] = _with(lacking, "supported")
    gap = missed and reference and all(f.verdict == "absent" for f in reference)
    if not gap:
        found["unsupported addition"] = _with(own, "absent")
    return {cause: findings for cause, findings in found.items() if findings}


def _with(findings: Iterable[Finding], verdict: str) -> list[Finding]:
    return [finding for finding in findings if finding.verdict == verdict]
