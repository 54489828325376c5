"""Diagnosis: the cause of each wrong answer, and which part of the system to check.

The diagnosis uses the statements and verdicts that the metrics stored: verdicts on the answer's statements against the
contexts (faithfulness), verdicts on the references' statements against the contexts (context_recall), and the
statements that answer and reference share (answer_correctness). All three together distinguish every cause, and so does
the suite `claim_metrics`, which gives all these verdicts. Fewer metrics distinguish fewer causes.

A fact counts once, for the earliest step that lost it: the retriever, then the steps between retriever and model (such
as a reranker), then the model. A statement of the answer has the cause "unsupported addition" if no context states it,
unless the references also state it. If the contexts hold none of the references' statements, made-up statements are not
counted: the missing facts are the cause. Contexts are the chunks that the model read. A fact counts as lost between
retriever and model if no context holds it, but a retrieved chunk that the model did not read does. A chunk holds a fact
if it is one of the sample's `reference_contexts` or `reference_context_ids`, or if it contains all words of the fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langchain_rageval._internal.page import pluralize, printable_lines
from langchain_rageval.data.schema import Finding, FindingKind, Row, Sample
from langchain_rageval.metrics.supported import NEITHER_FACTS, NO_FACTS, NO_REFERENCE_FACTS
from langchain_rageval.report.tables import Shown
from langchain_rageval.text.words import common_share, content_words

Cause = Literal[
    "wrongly refused",
    "contradicts the context",
    "reference suspect",
    "lost between retriever and model",
    "retriever missed it",
    "unsupported addition",
    "retrieved but ignored",
    "nothing wrong",
    "cannot tell",
]
"""Causes in order of priority: of causes that explain equally many statements, the first is assigned."""

REMEDIES: Mapping[Cause, str] = {
    "wrongly refused": "The contexts hold the answer: relax the prompt's rules on refusing, or change the model.",
    "contradicts the context": "The answer misreads its contexts: check the model, numbers and negations.",
    "reference suspect": "The contexts contradict the reference: check the reference before changing the system.",
    "lost between retriever and model": "Retrieved, but not in the prompt: check the reranker, filters and formatter.",
    "retriever missed it": "No context holds the fact: check chunking, embeddings, k and the documents.",
    "unsupported addition": "No context states this: restrict the model to its contexts, lower the temperature.",
    "retrieved but ignored": "The contexts hold the fact: retrieve fewer, better chunks, or change the model.",
    "nothing wrong": "",
    "cannot tell": "Score faithfulness, context_recall and answer_correctness together, or claim_metrics.",
}


@dataclass(frozen=True)
class DiagnosedRow:
    """Sample with the cause of the errors in its answer.

    Attributes:
        index: place of the sample in the input.
        id: id of the sample.
        cause: the cause that explains most faulty statements, such as "retriever missed it". Faulty are, for example,
            statements of the answer that no context holds. Without a cause: "nothing wrong" if the metrics exclude
            errors, else "cannot tell".
        findings: the faulty statements, with verdicts, that the cause explains.
    """

    index: int
    id: str
    cause: Cause
    findings: Sequence[Finding] = ()

    def __str__(self) -> str:
        """Return the diagnosed row as one line: id, cause and statements."""
        texts = "; ".join(finding.text for finding in self.findings)
        return printable_lines(f"{self.id}: {self.cause}" + (f" ({texts})" if texts else ""))


class Diagnosis(Shown, Sequence[DiagnosedRow]):
    """Sequence of the samples of a report with the cause of each wrong answer, in the order of the report.

    Attributes:
        counts: mapping of each cause to its number of rows, most frequent first, then "nothing wrong" and "cannot
            tell".
        remedies: mapping of each cause that occurs to the part of the system to check.
    """

    headings = ("samples", "cause", "remedy")

    def __init__(self, rows: Iterable[DiagnosedRow]) -> None:
        self._rows = list(rows)
        counts = Counter(row.cause for row in self._rows)
        causes = sorted(counts, key=lambda cause: (cause in NOT_WRONG, -counts[cause], _RANK[cause]))
        self.counts: dict[Cause, int] = {cause: counts[cause] for cause in causes}
        self.remedies: dict[Cause, str] = {cause: REMEDIES[cause] for cause in causes if REMEDIES[cause]}

    def __getitem__(self, place: Any) -> Any:
        """Return one diagnosed row, or a list of rows for a slice."""
        return self._rows[place]

    def __len__(self) -> int:
        """Return the number of diagnosed rows."""
        return len(self._rows)

    def of(self, cause: Cause) -> list[DiagnosedRow]:
        """Return the rows that have the given cause."""
        return [row for row in self._rows if row.cause == cause]

    def cells(self) -> list[tuple[str, ...]]:
        """Return a table row for each cause of wrong answers: number of samples, name of the cause, remedy (or "").

        The results "nothing wrong" and "cannot tell" have rows, too, if they occur.
        """
        return [(str(count), cause, self.remedies.get(cause, "")) for cause, count in self.counts.items()]

    def lines(self) -> list[str]:
        """Return a line of text for each cause of wrong answers: number of samples, name of the cause, and remedy.

        The results "nothing wrong" and "cannot tell" have lines, too, if they occur.
        """
        return [f"{count} {cause}" + (remedy and f": {remedy}") for count, cause, remedy in self.cells()]

    @property
    def title(self) -> str:
        """Heading of the diagnosis: the number of samples."""
        return f"Diagnosis of {pluralize(len(self), 'sample')}"


def diagnose_rows(rows: Iterable[Row]) -> Diagnosis:
    """Find the cause of each row's wrong answer in the verdicts that the metrics stored; see `Report.diagnose`."""
    return Diagnosis(_diagnose(row) for row in rows)


NOT_WRONG = ("nothing wrong", "cannot tell")
_RANK: Mapping[str, int] = {cause: rank for rank, cause in enumerate(get_args(Cause))}


class Dropped:
    """Retrieved chunks of a sample that the model did not read completely: no context contains their whole text.

    Args:
        sample: a sample, whose contexts are the chunks that the model read.

    Attributes:
        texts: texts of these chunks.
        holds_reference: True if a chunk that holds the right answer was retrieved, but is not among the contexts (the
            chunks that the model read). The sample gives the ids of such chunks in `reference_context_ids`, and their
            texts in `reference_contexts`.
    """

    def __init__(self, sample: Sample) -> None:
        contexts, passages = sample.contexts or [], sample.reference_contexts or []
        lost = [text for text in sample.retrieved or [] if not any(text in read for read in contexts)]
        ids = {*(sample.retrieved_ids or [])} - {*(sample.context_ids or [])}
        by_id = not ids.isdisjoint(sample.reference_context_ids or [])
        self.texts = lost
        self.holds_reference = by_id or any(_has(lost, text) and not _has(contexts, text) for text in passages)

    def held(self, statements: Iterable[Finding]) -> list[Finding]:
        """Return the statements that these retrieved, but unread chunks hold.

        A chunk holds a statement if the chunk has all words of the statement, compared by their stems and without
        function words. If `holds_reference`, all statements are returned, because an unread chunk holds the right
        answer. The caller passes only `statements` that no context holds; the method does not check this.
        """
        texts = [content_words(text) for text in self.texts]
        words = [(statement, content_words(statement.text)) for statement in statements]
        return [one for one, own in words if self.holds_reference or (own and any(own <= text for text in texts))]


def _has(texts: Iterable[str], passage: str) -> bool:
    return any(common_share(text, passage) >= _SAME_TEXT for text in texts)


_SAME_TEXT = 0.5  # share of the shorter text


class Facts:
    """Statements of answer and reference of one row with their verdicts, collected from the scores that did not fail.

    There are three kinds: the answer's statements with verdicts against the contexts, the references' statements with
    verdicts against the contexts, and the comparison of both (TP, FP, FN). Each kind is taken from the first score, in
    the order of `row.scores`, that has it. A comparison from a metric with the aspect "grounding", which joins all
    references, is taken only if no other metric has one.

    Args:
        row: the row with its scores.

    Attributes:
        answer: the answer's statements with verdicts against the contexts; None if no metric has them.
        reference: the references' statements with verdicts against the contexts; None if no metric has them. If
            answer_correctness chose the best of several references, only the statements of this reference.
        shared: texts of the answer's statements that the reference also states; empty if no metric compared them.
        missing: the reference's statements that the answer lacks; None if no metric compared them.
        declined: True if the answer states no facts.
        unanswerable: True if the references state no facts.
        nothing_retrieved: True if the contexts contain no text.
        dropped: chunks that the retrievers returned and the model did not read.
    """

    def __init__(self, row: Row) -> None:
        scores = [score for score in row.scores.values() if score.failure is None]
        unscored = {score.unscored for score in scores}
        findings = [score.findings for score in scores]
        self.answer = _first(findings, "supported", "contradicted", "absent", kind="statement")
        reference = _first(findings, "supported", "contradicted", "absent", kind="reference_statement")
        best_first = sorted(scores, key=lambda score: score.aspect == "grounding")  # claim metrics merge all references
        classified = _first([score.findings for score in best_first], "TP", "FP", "FN")
        stated = [f for f in classified or () if f.kind == "statement"]
        best = [f for f in classified or () if f.kind == "reference_statement"]
        if reference is not None:
            texts = {f.text for f in best}
            reference = [f for f in reference if f.text in texts] or reference
        self.reference = reference
        self.shared = {f.text for f in stated if f.verdict == "TP"}
        self.missing: Sequence[Finding] | None = None if classified is None else _with(best, "FN")
        states_none = bool(unscored & {NO_FACTS, NEITHER_FACTS}) or (bool(best) and not stated)
        self.declined = self.answer is None and states_none
        self.unanswerable = bool(unscored & {NO_REFERENCE_FACTS, NEITHER_FACTS}) or (bool(stated) and not best)
        contexts = row.sample.contexts
        self.nothing_retrieved = contexts is not None and not any(text.strip() for text in contexts)
        self.dropped = Dropped(row.sample)


def _first(
    scores: Iterable[Sequence[Finding]], *verdicts: str, kind: FindingKind | None = None
) -> Sequence[Finding] | None:
    """Return the findings with these verdicts of the first score that has any, or None."""
    found = ([f for f in findings if f.verdict in verdicts and kind in (None, f.kind)] for findings in scores)
    return next(filter(None, found), None)


def _diagnose(row: Row) -> DiagnosedRow:
    facts = Facts(row)
    if explained := _explained_by_cause(facts):
        cause = min(explained, key=lambda cause: (-len(explained[cause]), _RANK[cause]))
        return DiagnosedRow(row.index, row.sample.id, cause, explained[cause])
    lacks_nothing = facts.answer is not None and facts.missing is not None and not facts.missing
    correct = facts.declined if facts.unanswerable else lacks_nothing
    return DiagnosedRow(row.index, row.sample.id, "nothing wrong" if correct else "cannot tell")


def _explained_by_cause(facts: Facts) -> dict[Cause, Sequence[Finding]]:
    """Return the causes of errors, each with the statements that it explains.

    The list of statements may be empty if nothing was retrieved.
    """
    answer, reference, missing = facts.answer or (), facts.reference or (), facts.missing
    shared = [f for f in answer if f.text in facts.shared]
    own = [f for f in answer if f.text not in facts.shared]
    if facts.nothing_retrieved and not facts.unanswerable:
        sought = missing or _with(answer, "absent")
        is_lost = facts.dropped.holds_reference or facts.dropped.held(sought)
        return {"lost between retriever and model" if is_lost else "retriever missed it": sought}
    lacking = reference if missing is None else [f for f in reference if f.text in {other.text for other in missing}]
    sought = reference if facts.answer is None else lacking  # the answer's statements cover the shared ones
    missed = [*_with(sought, "absent"), *_with(shared, "absent")]
    lost = facts.dropped.held(missed)
    explained: dict[Cause, Sequence[Finding]] = {
        "contradicts the context": _with(own, "contradicted"),
        "reference suspect": _with(reference, "contradicted") or _with(shared, "contradicted"),
        "lost between retriever and model": lost,
        "retriever missed it": [statement for statement in missed if statement not in lost],
    }
    if facts.declined:
        explained["wrongly refused"] = _with(reference, "supported")
    elif missing is not None:
        explained["retrieved but ignored"] = _with(lacking, "supported")
    if not (missed and reference and all(f.verdict == "absent" for f in reference)):  # else the cause is that gap
        explained["unsupported addition"] = _with(own, "absent")
    return {cause: findings for cause, findings in explained.items() if findings}


def _with(findings: Iterable[Finding], verdict: str) -> list[Finding]:
    return [finding for finding in findings if finding.verdict == verdict]
