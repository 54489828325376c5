"""Rerank gain: what a reranker adds to the retriever's order.

NDCG of both orders under the same grades, each from 0 to 1, and their difference, from -1 to 1; higher is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import (
    NONE_KNOWN,
    Ranked,
    anything,
    at_cutoff,
    best_and_mean,
    check_cutoff,
    check_gain,
    checked_grader,
    gained,
    graded_chunks,
    ranked_list,
    restored_grades,
    told_of,
)
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.metrics.value import Value, nothing_retrieved
from langchain_rageval.statistics.ranking import Gain
from langchain_rageval.steps.rerank_contexts import Reranker, rerank_contexts
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

KEPT = "kept"
"""Text of the finding that tells how many chunks the reranker kept."""


def rerank_gain(
    grader: Grader, reranker: Reranker, k: int = 5, *, gain: Gain = "exp2", name: str | None = None
) -> Suite:
    """Score the retriever's order, the reranker's, and what the second gains over the first.

    Each chunk is graded once, and both orders are held against the same ideal: of all judged chunks where there are
    labels or ids, else of all that were retrieved. A chunk that the reranker drops is missing from its order, and stays
    in the ideal: dropping a relevant one costs.

    Args:
        grader: how relevant each chunk is; not by the reranker itself, whose order would be the best one.
        reranker: a cross-encoder, or a document compressor such as a reranking service's.
        k: cutoff in chunks.
        gain: "exp2" is 2^grade - 1; "linear" the grade itself.
        name: put before the three names, as in "mine_gain"; needed for two rerankers in one run.

    Returns:
        A suite from a sample to `{"retriever": Score, "reranker": Score, "gain": Score}`, reading `question`,
        `contexts`, and what the grader reads. Findings are the chunks with their grades, in the reranker's order for
        "reranker" and "gain", what it dropped last, under their numbers in retrieval order.

    Raises:
        ConfigError: if an option is out of range.
    """
    check_cutoff(k)
    check_gain(gain)
    grader, order, prefix = checked_grader(grader), rerank_contexts(reranker), f"{name}_" if name else ""
    retrieved = at_cutoff(
        "ndcg",
        k,
        grader,
        partial(gained, gain=gain),
        basis="ideal",
        name=f"{prefix}retriever",
        options={"gain": gain},
    )

    def of_both(part: str, reduce: Callable[..., Value]) -> Metric:
        return Metric(
            f"{prefix}{part}",
            aspect="ranking",
            reads=grader.reads | {"question", "contexts"},
            steps=grader | order,
            reduce=partial(reduce, grader=grader, k=k, gain=gain),
            options={"k": k, "gain": gain},
            state_from_findings=partial(restored, grader=grader),
        )

    return suite(retrieved, of_both("reranker", ndcg_of_the_reranker), of_both("gain", ndcg_gained))


def ndcg_of_the_reranker(state: State, *, grader: Grader, k: int, gain: Gain) -> Value:
    """NDCG of what the reranker kept, in its order."""
    sample: Sample = state["sample"]
    question, (kept, findings) = sample.question, _reordered(state)
    if grader.known(sample) == []:
        return Value.without(NONE_KNOWN, findings)
    if not graded_chunks(state["grades"]):
        return nothing_retrieved(question)
    if not kept:
        none = "Реранжировщик ничего не оставил." if detect_language(question) == "ru" else "The reranker kept nothing."
        return Value(0.0, none, findings)
    ranked = _against_all(state, kept, grader, k)
    return Value(gained(ranked, gain=gain), told_of(ranked, "ideal", question), findings + best_and_mean(ranked))


def ndcg_gained(state: State, *, grader: Grader, k: int, gain: Gain) -> Value:
    """NDCG of the reranker's order less that of the retriever's."""
    sample: Sample = state["sample"]
    question, chunks = sample.question, graded_chunks(state["grades"])
    kept, findings = _reordered(state)
    if grader.known(sample) == []:
        return Value.without(NONE_KNOWN, findings)
    if not chunks:
        return nothing_retrieved(question)
    orders = [_against_all(state, order, grader, k) for order in (chunks, kept)]
    before, after = (gained(order, gain=gain) for order in orders)
    dropped = len(chunks) - len(kept)
    if detect_language(question) == "ru":
        reason = f"NDCG@{k}: {before:.3f} у поиска, {after:.3f} после реранжирования"
        reason += f"; отброшено фрагментов: {dropped}" if dropped else ""
    else:
        reason = f"NDCG@{k} is {before:.3f} as retrieved, {after:.3f} as reranked"
        reason += f"; {dropped} of {len(chunks)} chunks were dropped" if dropped else ""
    return Value(after - before, f"{reason}.", findings + best_and_mean(orders[0]))


def restored(sample: Sample, score: Score, *, grader: Grader) -> State | None:
    """The state from the findings of a score that tells how many chunks were kept."""
    findings = restored_grades(sample, score, grader)
    told = [int(finding.verdict) for finding in score.findings if finding.text == KEPT and finding.kind == "criterion"]
    if findings is None or (findings and not told):
        return None
    chunks = graded_chunks(findings)
    others = [finding for finding in findings if finding.kind != "context"]
    kept = [chunk.number for chunk in chunks[: told[0] if told else 0]]
    in_order = sorted(chunks, key=lambda chunk: chunk.number)
    return {"sample": sample, "grades": [*in_order, *others], "reranked": kept}


def _reordered(state: State) -> tuple[list[Finding], list[Finding]]:
    """The chunks that were kept, best first; and the findings: these, those dropped, and how many were kept."""
    by_number = {chunk.number: chunk for chunk in graded_chunks(state["grades"])}
    kept = [by_number.pop(number) for number in state["reranked"]]
    others = [finding for finding in state["grades"] if finding.kind != "context"]
    count = Finding(kind="criterion", number=3, text=KEPT, verdict=str(len(kept)))
    return kept, [*kept, *by_number.values(), *others, count]


def _against_all(state: State, order: list[Finding], grader: Grader, k: int) -> Ranked:
    """An order of chunks, held against everything that was judged."""
    everything = ranked_list(state["sample"], graded_chunks(state["grades"]), grader, k, anything(grader))
    return replace(everything, grades=[float(chunk.verdict) for chunk in order])
