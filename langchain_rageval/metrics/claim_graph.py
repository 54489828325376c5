"""Claim graph: the statements of an answer and its references, linked to the chunks that support them.

Twelve numbers are computed from the graph; `FORMULAS` lists them. Source: RAGChecker (Ru et al. 2024, arXiv:2408.08067,
section 3.3). "contradiction", the share of contradicted statements, is an addition: the checker of the paper finds
contradictions, but no metric of the paper uses them. If a graph gives all twelve numbers, the sum of faithfulness,
hallucination and self_knowledge is 1, and noise_relevant + noise_irrelevant + hallucination = 1 - precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction
from langchain_rageval.metrics.supported import MAX_QUOTED, NEITHER_FACTS, NO_FACTS, NO_REFERENCE_FACTS, and_more, quote

NOTHING_RECALLED = "the contexts support nothing of the reference"
UNCITED = "a verdict cites no context sentence"

FindingSection = Literal["answer_verdicts", "reference_verdicts", "classifications"]
"""Key of the findings that a formula reads: verdicts of the contexts on either side, or statements that both share."""


@dataclass(frozen=True)
class Claim:
    """Statement of the answer or of the references, with its verdict and citations.

    Attributes:
        text: the statement.
        verdict: "supported", "contradicted" or "absent" in the contexts; "" if it was not verified.
        cited: numbers of the chunks that the verdict cites, from 1.
        shared: True for a statement of the answer that a reference also states, or the reverse.
    """

    text: str = ""
    verdict: str = ""
    cited: frozenset[int] = frozenset()
    shared: bool = False

    @property
    def supported(self) -> bool:
        """True if the contexts support the statement."""
        return self.verdict == "supported"

    @property
    def supporting_chunks(self) -> frozenset[int]:
        """Numbers of the chunks that support the statement."""
        return self.cited if self.supported else frozenset()


@dataclass(frozen=True)
class ClaimGraph:
    """Statements of the answer and of the references, and the number of retrieved chunks.

    Attributes:
        answer: statements of the answer; a statement that is shared with a reference is right.
        reference: statements of all references without repetitions; the answer contains the shared statements.
        chunks: number of retrieved chunks.
    """

    answer: Sequence[Claim]
    reference: Sequence[Claim]
    chunks: int

    @cached_property
    def relevant_chunks(self) -> frozenset[int]:
        """Numbers of the chunks that support a statement of the references."""
        return frozenset[int]().union(*(claim.supporting_chunks for claim in self.reference))

    @property
    def recalled(self) -> Sequence[Claim]:
        """Statements of the references that the contexts support."""
        return [claim for claim in self.reference if claim.supported]


@dataclass(frozen=True)
class ShareFormula:
    """Formula of a metric: the share of items (statements or chunks) for which the predicate `holds` returns True.

    Attributes:
        over: all items, the denominator of the share: statements of the "answer", statements of the "reference",
            statements of the reference that the contexts support ("recalled"), or "chunks".
        holds: predicate of the graph and one item, which is a claim or the number of a chunk.
        reads: keys of the findings that the formula needs, such as "answer_verdicts".
        direction: whether "higher" or "lower" is better.
        by_chunk: True if the formula needs the chunks that support each statement.
        quotes_counted: True if the reason of the score quotes the items for which `holds` returns True, False if it
            quotes the other items.
    """

    over: Literal["answer", "reference", "recalled", "chunks"]
    holds: Callable[[ClaimGraph, Any], bool]
    reads: Sequence[FindingSection]
    direction: Direction = "higher"
    by_chunk: bool = False
    quotes_counted: bool = False

    def value(self, graph: ClaimGraph) -> float | str:
        """Return the share as a float; if the sample is unscored, return the cause as a str in English.

        A share of the chunks is 0.0 if nothing was retrieved.
        """
        if self.over == "answer" and not graph.answer:
            return NO_FACTS
        if self.over != "answer" and not graph.reference:
            return NO_REFERENCE_FACTS
        if self.over == "recalled" and not graph.recalled:
            return NOTHING_RECALLED
        claims = (*graph.answer, *graph.reference) if self.by_chunk else ()
        if any(claim.verdict in ("supported", "contradicted") and not claim.cited for claim in claims):
            return UNCITED
        truths = [self.holds(graph, item) for item in self._items(graph)]
        return sum(truths) / max(1, len(truths))

    def reasons(self, graph: ClaimGraph, name: str) -> list[Note]:
        """Return the notes (translatable sentences) that form the reason of the score.

        `name` is the key of this formula in `FORMULAS`. It selects the sentences.
        """
        items = self._items(graph)
        truths = [self.holds(graph, item) for item in items]
        summary = Note(f"claim-{name}", right=sum(truths), count=len(items))
        quoted = [item for item, holds in zip(items, truths, strict=True) if holds == self.quotes_counted]
        if not quoted:
            return [summary]
        texts = [quote(item.text) if isinstance(item, Claim) else f"[{item}]" for item in quoted[:MAX_QUOTED]]
        quotes = [*texts, *and_more(len(quoted))]
        if self.quotes_counted:
            return [Note("claim-counted", summary=summary, quotes=quotes)]
        return [summary, Note(f"claim-{name}-others", quotes=quotes)]

    def _items(self, graph: ClaimGraph) -> Sequence[Any]:
        return range(1, graph.chunks + 1) if self.over == "chunks" else getattr(graph, self.over)


@dataclass(frozen=True)
class F1Formula:
    """Formula of claim F1: harmonic mean of the precision (answer statements) and the recall (reference statements)."""

    reads: ClassVar[Sequence[FindingSection]] = ("classifications",)
    direction: ClassVar[Direction] = "higher"

    def value(self, graph: ClaimGraph) -> float | str:
        """Return 2PR / (P + R), 0.0 if no statement is shared; or a str with the cause if there is no value."""
        if not graph.reference:
            return NO_REFERENCE_FACTS if graph.answer else NEITHER_FACTS
        precision, recall = _precision_and_recall(graph)
        return 2 * precision * recall / ((precision + recall) or 1)

    def reasons(self, graph: ClaimGraph, name: str) -> list[Note]:
        """Return a list of one note (translatable sentence), the reason of the score.

        `name` is the key of this formula in `FORMULAS`, "f1". It selects the sentence.
        """
        precision, recall = _precision_and_recall(graph)
        return [Note(f"claim-{name}", precision=precision, recall=recall)]


ClaimFormula = ShareFormula | F1Formula


def _precision_and_recall(graph: ClaimGraph) -> tuple[float, float]:
    """Return the shares of shared statements in the answer and in the references; 0.0 if a side has no statements."""
    sides = (graph.answer, graph.reference)
    precision, recall = (sum(claim.shared for claim in side) / max(1, len(side)) for side in sides)
    return precision, recall


def _noise(graph: ClaimGraph, claim: Claim, *, relevant: bool) -> bool:
    """Return True for a wrong statement that relevant chunks support, or that only other chunks do."""
    chunks = claim.supporting_chunks
    return not claim.shared and bool(chunks) and chunks.isdisjoint(graph.relevant_chunks) != relevant


FORMULAS: Mapping[str, ClaimFormula] = {
    "precision": ShareFormula("answer", lambda _, claim: claim.shared, ["classifications"]),
    "recall": ShareFormula("reference", lambda _, claim: claim.shared, ["classifications"]),
    "f1": F1Formula(),
    "context_recall": ShareFormula("reference", lambda _, claim: claim.supported, ["reference_verdicts"]),
    "context_precision": ShareFormula(
        "chunks", lambda graph, chunk: chunk in graph.relevant_chunks, ["reference_verdicts"], by_chunk=True
    ),
    "context_utilization": ShareFormula(
        "recalled", lambda _, claim: claim.shared, ["reference_verdicts", "classifications"], by_chunk=True
    ),
    **{
        f"noise_{kind}": ShareFormula(
            "answer",
            partial(_noise, relevant=kind == "relevant"),
            get_args(FindingSection),
            quotes_counted=True,
            direction="lower",
            by_chunk=True,
        )
        for kind in ("relevant", "irrelevant")
    },
    "hallucination": ShareFormula(
        "answer",
        lambda _, claim: not claim.shared and not claim.supported,
        ["answer_verdicts", "classifications"],
        quotes_counted=True,
        direction="lower",
    ),
    "self_knowledge": ShareFormula(
        "answer",
        lambda _, claim: claim.shared and not claim.supported,
        ["answer_verdicts", "classifications"],
        quotes_counted=True,
    ),
    "faithfulness": ShareFormula("answer", lambda _, claim: claim.supported, ["answer_verdicts"]),
    "contradiction": ShareFormula(
        "answer",
        lambda _, claim: claim.verdict == "contradicted",
        ["answer_verdicts"],
        quotes_counted=True,
        direction="lower",
    ),
}
"""Formula of each number, by the name of the score without its prefix."""
