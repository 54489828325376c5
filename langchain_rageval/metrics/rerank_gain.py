"""Rerank gain: the NDCG of a reranker's order minus the NDCG of the retriever's order.

Both NDCG values use the same grades and are from 0 to 1. Their difference is from -1 to 1; higher is better. Source of
NDCG: Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.metrics.grading import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import (
    NO_RELEVANT_CHUNKS,
    RankedList,
    best_and_mean_findings,
    build_ranked_list,
    chunk_findings,
    grades_from_findings,
    lowest_gaining_grade,
    ndcg_at,
    ndcg_of,
    ranking_reason,
    resolve_grader,
)
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.supported import Value, nothing_retrieved
from langchain_rageval.statistics.ranking import Gain
from langchain_rageval.steps.measure_similarity import Reranker, rerank_contexts
from langchain_rageval.steps.stage import State

KEPT_COUNT = "kept"
"""Text of the finding whose verdict is the number of chunks that the reranker kept."""


def rerank_gain(
    grader: Grader, reranker: Reranker, k: int = 5, *, gain: Gain = "exp2", name: str | None = None
) -> Suite:
    """Score the retriever's order and the reranker's order by NDCG, and the difference of the two scores.

    Each chunk is graded once. Both orders are normalized by the same ideal order: of all judged chunks if there are
    labels or ids, else of all retrieved chunks. A chunk that the reranker drops stays in the ideal order, so dropping a
    relevant chunk lowers the score.

    Args:
        grader: grades each chunk by relevance. Do not grade with the reranker itself: its order would always be the
            best.
        reranker: a cross-encoder, or a document compressor, for example of a reranking service.
        k: number of leading chunks that count.
        gain: "exp2" for a gain of 2^grade - 1; "linear" for the grade itself.
        name: prefix of the names of the three scores, as in "mine_gain"; required for two rerankers in one run.

    Returns:
        A suite with the scores `{"retriever": Score, "reranker": Score, "gain": Score}` that reads `question`,
        `contexts` and the fields of the grader. Findings are the chunks with their grades and their numbers in
        retrieval order. The findings of "reranker" and "gain" are in the reranker's order, dropped chunks last.

    Raises:
        ConfigError: if an option is out of range.
    """
    grader, order, prefix = resolve_grader(grader), rerank_contexts(reranker), f"{name}_" if name else ""
    retrieved = ndcg_at(k, grader, gain=gain, name=f"{prefix}retriever")

    def of_both(part: str, reduce: Callable[..., Value], lowest: float) -> Metric:
        return Metric(
            f"{prefix}{part}",
            aspect="ranking",
            reads=grader.reads | {"question", "contexts"},
            steps=grader | order,
            reduce=partial(reduce, grader=grader, k=k, gain=gain),
            options={"k": k, "gain": gain},
            state_from_findings=partial(_state_from_findings, grader=grader),
            range=(lowest, 1.0),
        )

    return suite(retrieved, of_both("reranker", ndcg_of_the_reranker, 0.0), of_both("gain", ndcg_gained, -1.0))


def ndcg_of_the_reranker(state: State, *, grader: Grader, k: int, gain: Gain) -> Value:
    """Return the NDCG of the chunks that the reranker kept, in the reranker's order."""
    sample: Sample = state["sample"]
    question, (kept, findings) = sample.language_text, _reordered(state)
    if grader.judged_grades(sample) == []:
        return Value.without(NO_RELEVANT_CHUNKS, findings)
    if not chunk_findings(state["grades"]):
        return nothing_retrieved(question)
    if not kept:
        return Value(0.0, explain(question, Note("reranker-kept-nothing")), findings)
    ranked = _with_all_grades(state, kept, grader, k)
    return Value(
        ndcg_of(ranked, gain=gain), ranking_reason(ranked, "ideal", question), findings + best_and_mean_findings(ranked)
    )


def ndcg_gained(state: State, *, grader: Grader, k: int, gain: Gain) -> Value:
    """Return the NDCG of the reranker's order minus the NDCG of the retriever's order."""
    sample: Sample = state["sample"]
    question, chunks = sample.language_text, chunk_findings(state["grades"])
    kept, findings = _reordered(state)
    if grader.judged_grades(sample) == []:
        return Value.without(NO_RELEVANT_CHUNKS, findings)
    if not chunks:
        return nothing_retrieved(question)
    orders = [_with_all_grades(state, order, grader, k) for order in (chunks, kept)]
    before, after = (ndcg_of(order, gain=gain) for order in orders)
    notes = [Note("ndcg-gained", k=k, before=before, after=after)]
    if dropped := len(chunks) - len(kept):
        notes.append(Note("chunks-dropped", dropped=dropped, count=len(chunks)))
    return Value(after - before, explain(question, *notes), findings + best_and_mean_findings(orders[0]))


def _state_from_findings(sample: Sample, score: Score, *, grader: Grader) -> State | None:
    """Return the state from the findings of a score, or None if they do not hold the number of kept chunks."""
    findings = grades_from_findings(sample, score, grader)
    counts = [int(one.verdict) for one in score.findings if (one.kind, one.text) == ("criterion", KEPT_COUNT)]
    if findings is None or (findings and not counts):
        return None
    chunks = chunk_findings(findings)
    others = [finding for finding in findings if finding.kind != "context"]
    kept = [chunk.number for chunk in chunks[: counts[0] if counts else 0]]
    in_order = sorted(chunks, key=lambda chunk: chunk.number)
    return {"sample": sample, "grades": [*in_order, *others], "reranked": kept}


def _reordered(state: State) -> tuple[list[Finding], list[Finding]]:
    """Return the kept chunks, best first, and the findings: kept chunks, dropped chunks, agreement, number kept."""
    by_number = {chunk.number: chunk for chunk in chunk_findings(state["grades"])}
    kept = [by_number.pop(number) for number in state["reranked"]]
    others = [finding for finding in state["grades"] if finding.kind != "context"]
    count = Finding(kind="criterion", number=3, text=KEPT_COUNT, verdict=str(len(kept)))
    return kept, [*kept, *by_number.values(), *others, count]


def _with_all_grades(state: State, order: list[Finding], grader: Grader, k: int) -> RankedList:
    """Return the graded list of chunks in an order; its ideal is over all judged chunks."""
    sample, least = state["sample"], lowest_gaining_grade(grader)
    retrieved = build_ranked_list(sample, chunk_findings(state["grades"]), grader, k, least)
    grades = [float(chunk.verdict) for chunk in order]
    return replace(retrieved, grades=grades, firsts=grader.known_grades(sample, order, least)[0])
