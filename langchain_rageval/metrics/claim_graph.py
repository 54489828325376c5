"""Claim graph: how the statements of an answer, of its references and the retrieved chunks stand to each other.

Twelve numbers come from it, all of them pure functions here. Source: RAGChecker (Ru et al. 2024, arXiv:2408.08067,
section 3.3); contradiction, which its checker asks for and never counts, is added. Where every value applies,
faithfulness + hallucination + self-knowledge = 1, and noise (both kinds) + hallucination = 1 - precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Direction
from langchain_rageval.metrics.value import NEITHER_FACTS, NO_FACTS, NO_REFERENCE_FACTS, quoted

NOTHING_RECALLED = "the contexts support nothing of the reference"
UNCITED = "a verdict cites no context sentence"

ClaimSource = Literal["answer_verdicts", "reference_verdicts", "classifications"]
"""What a number has to know: how the contexts stand to either side, and what both sides share."""

_MOST_NAMED = 3


@dataclass(frozen=True)
class Claim:
    """One statement of the answer or of the references.

    Attributes:
        text: the statement.
        verdict: "supported", "contradicted" or "absent" in the contexts; "" when nobody looked.
        cited: numbers of the chunks that the verdict cites, from 1.
        shared: whether the other side says it as well.
    """

    text: str = ""
    verdict: str = ""
    cited: frozenset[int] = frozenset()
    shared: bool = False

    @property
    def supported(self) -> bool:
        """Whether the contexts support it."""
        return self.verdict == "supported"

    @property
    def sources(self) -> frozenset[int]:
        """Numbers of the chunks that support it."""
        return self.cited if self.supported else frozenset()


@dataclass(frozen=True)
class ClaimGraph:
    """The statements of both sides, and the chunks between them.

    Attributes:
        answer: its statements; a shared one is right.
        reference: those of all references, each once; a shared one is covered by the answer.
        chunks: how many were retrieved.
    """

    answer: Sequence[Claim]
    reference: Sequence[Claim]
    chunks: int

    @cached_property
    def relevant(self) -> frozenset[int]:
        """Numbers of the chunks that support a statement of the references."""
        return frozenset[int]().union(*(claim.sources for claim in self.reference))

    @cached_property
    def uncited(self) -> bool:
        """Whether a verdict that needs a citation has none, so that its chunks are not known."""
        return any(claim.verdict in ("supported", "contradicted") and not claim.cited for claim in self.claims)

    @property
    def claims(self) -> Sequence[Claim]:
        """Those of both sides."""
        return [*self.answer, *self.reference]

    @property
    def recalled(self) -> Sequence[Claim]:
        """The statements of the references that the contexts support."""
        return [claim for claim in self.reference if claim.supported]


@dataclass(frozen=True)
class Words:
    """How a reason tells of a share: what was counted, and what those are that it names."""

    counted: str
    named: str = ""


@dataclass(frozen=True)
class Share:
    """The share of what is counted for which something holds.

    Attributes:
        over: what is counted.
        holds: of a claim, or of the number of a chunk.
        needs: what has to be known.
        en: words of the reason. With `named` it names what does not hold, else what does.
        ru: the same in Russian.
        direction: which is better.
        by_chunk: whether it has to be known which chunks support a statement.
    """

    over: Literal["answer", "reference", "recalled", "chunks"]
    holds: Callable[[ClaimGraph, Any], bool]
    needs: Sequence[ClaimSource]
    en: Words
    ru: Words
    direction: Direction = "higher"
    by_chunk: bool = False

    def value(self, graph: ClaimGraph) -> float | str:
        """The share, 0.0 when no chunk was retrieved; or why there is none, in English."""
        lack = self._lack(graph)
        if lack:
            return lack
        truths = [self.holds(graph, item) for item in self._items(graph)]
        return sum(truths) / max(1, len(truths))

    def told(self, graph: ClaimGraph, russian: bool) -> str:
        """The value in words, without the full stop."""
        words, items = (self.ru if russian else self.en), self._items(graph)
        holding = [item for item in items if self.holds(graph, item)]
        told = f"{words.counted}: {len(holding)} {'из' if russian else 'of'} {len(items)}"
        named = [item for item in items if self.holds(graph, item) != bool(words.named)]
        if not named:
            return told
        quotes = [quoted(item.text) if isinstance(item, Claim) else f"[{item}]" for item in named[:_MOST_NAMED]]
        more = f", {'и ещё' if russian else 'and'} {len(named) - _MOST_NAMED}" if len(named) > _MOST_NAMED else ""
        more += " more" if more and not russian else ""
        return f"{told}{f'; {words.named}: ' if words.named else ': '}{', '.join(quotes)}{more}"

    def _items(self, graph: ClaimGraph) -> Sequence[Any]:
        return range(1, graph.chunks + 1) if self.over == "chunks" else getattr(graph, self.over)

    def _lack(self, graph: ClaimGraph) -> str | None:
        if self.over == "answer" and not graph.answer:
            return NO_FACTS
        if self.over != "answer" and not graph.reference:
            return NO_REFERENCE_FACTS
        if self.over == "recalled" and not graph.recalled:
            return NOTHING_RECALLED
        return UNCITED if self.by_chunk and graph.uncited else None


@dataclass(frozen=True)
class F1:
    """Harmonic mean of precision and recall, each over the statements of its own side."""

    needs: ClassVar[Sequence[ClaimSource]] = ("classifications",)
    direction: ClassVar[Direction] = "higher"

    def value(self, graph: ClaimGraph) -> float | str:
        """2PR / (P + R), 0.0 when nothing is shared; or why there is none, in English."""
        if not graph.reference:
            return NO_REFERENCE_FACTS if graph.answer else NEITHER_FACTS
        precision, recall = _precision_and_recall(graph)
        return 2 * precision * recall / ((precision + recall) or 1)

    def told(self, graph: ClaimGraph, russian: bool) -> str:
        """The value in words, without the full stop."""
        precision, recall = _precision_and_recall(graph)
        one, other = ("Точность", "полнота") if russian else ("Precision", "recall")
        return f"{one} {precision:.2f}, {other} {recall:.2f}"


Formula = Share | F1


def _precision_and_recall(graph: ClaimGraph) -> tuple[float, float]:
    """Share of right statements in the answer, and of covered ones in the references; 0.0 where there are none."""
    sides = (graph.answer, graph.reference)
    precision, recall = (sum(claim.shared for claim in side) / max(1, len(side)) for side in sides)
    return precision, recall


def _shared(_: ClaimGraph, claim: Claim) -> bool:
    return claim.shared


def _supported(_: ClaimGraph, claim: Claim) -> bool:
    return claim.supported


def _contradicted(_: ClaimGraph, claim: Claim) -> bool:
    return claim.verdict == "contradicted"


def _relevant(graph: ClaimGraph, chunk: int) -> bool:
    return chunk in graph.relevant


def _misled_by_relevant(graph: ClaimGraph, claim: Claim) -> bool:
    return not claim.shared and not claim.sources.isdisjoint(graph.relevant)


def _misled_by_irrelevant(graph: ClaimGraph, claim: Claim) -> bool:
    return not claim.shared and bool(claim.sources) and claim.sources.isdisjoint(graph.relevant)


def _made_up(_: ClaimGraph, claim: Claim) -> bool:
    return not claim.shared and not claim.supported


def _known_by_heart(_: ClaimGraph, claim: Claim) -> bool:
    return claim.shared and not claim.supported


FORMULAS: Mapping[str, Formula] = {
    "precision": Share(
        "answer",
        _shared,
        ["classifications"],
        Words("Right statements of the answer", "not in the reference"),
        Words("Верных утверждений ответа", "нет в эталоне"),
    ),
    "recall": Share(
        "reference",
        _shared,
        ["classifications"],
        Words("Statements of the reference that the answer says", "not in the answer"),
        Words("Утверждений эталона в ответе", "нет в ответе"),
    ),
    "f1": F1(),
    "context_recall": Share(
        "reference",
        _supported,
        ["reference_verdicts"],
        Words("Statements of the reference that the contexts support", "not supported"),
        Words("Утверждений эталона, подтверждённых контекстами", "не подтверждено"),
    ),
    "context_precision": Share(
        "chunks",
        _relevant,
        ["reference_verdicts"],
        Words("Chunks that support the reference", "of no use"),
        Words("Фрагментов, подтверждающих эталон", "лишние"),
        by_chunk=True,
    ),
    "context_utilization": Share(
        "recalled",
        _shared,
        ["reference_verdicts", "classifications"],
        Words("Retrieved statements of the reference that the answer says", "not in the answer"),
        Words("Найденных утверждений эталона в ответе", "нет в ответе"),
        by_chunk=True,
    ),
    "noise_relevant": Share(
        "answer",
        _misled_by_relevant,
        ["answer_verdicts", "reference_verdicts", "classifications"],
        Words("Wrong statements from relevant chunks"),
        Words("Ошибочных утверждений из полезных фрагментов"),
        direction="lower",
        by_chunk=True,
    ),
    "noise_irrelevant": Share(
        "answer",
        _misled_by_irrelevant,
        ["answer_verdicts", "reference_verdicts", "classifications"],
        Words("Wrong statements from irrelevant chunks"),
        Words("Ошибочных утверждений из посторонних фрагментов"),
        direction="lower",
        by_chunk=True,
    ),
    "hallucination": Share(
        "answer",
        _made_up,
        ["answer_verdicts", "classifications"],
        Words("Wrong statements that no context supports"),
        Words("Ошибочных утверждений без опоры в контекстах"),
        direction="lower",
    ),
    "self_knowledge": Share(
        "answer",
        _known_by_heart,
        ["answer_verdicts", "classifications"],
        Words("Right statements that no context supports"),
        Words("Верных утверждений без опоры в контекстах"),
    ),
    "faithfulness": Share(
        "answer",
        _supported,
        ["answer_verdicts"],
        Words("Statements of the answer that the contexts support", "not supported"),
        Words("Утверждений ответа, подтверждённых контекстами", "не подтверждено"),
    ),
    "contradiction": Share(
        "answer",
        _contradicted,
        ["answer_verdicts"],
        Words("Statements of the answer that the contexts contradict"),
        Words("Утверждений ответа, которым противоречат контексты"),
        direction="lower",
    ),
}
"""Name of each number, without the prefix of the scores, to how it is had."""
