"""Ranking metrics: measures of the first k retrieved chunks, computed from their relevance grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, nextafter
from typing import Any, Literal, get_args

from langchain_core.runnables import Runnable

from langchain_rageval.data.messages import CONTEXT_NOTES
from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.metrics.grading import Grader, format_grade, id_grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value, nothing_retrieved
from langchain_rageval.run.requests import Operation
from langchain_rageval.statistics.ranking import Gain, average_precision, hit_rate, mrr, ndcg, precision, recall
from langchain_rageval.steps.stage import Stage, State

Basis = Literal["ideal", "relevant", "threshold", "none"]
"""Reference point that the reason states: the ideal order, the relevant chunks, the threshold, or nothing."""

Of = Literal["contexts", "retrieved"]
"""Chunks that are measured: those that the model read, or those that the retrievers returned."""

_RETRIEVED = {"contexts": "retrieved", "context_ids": "retrieved_ids"}  # fields that are read instead

NO_RELEVANT_CHUNKS = "no chunk is known to be relevant"
"""Why a sample whose labels or ids name no relevant chunk is unscored: no retriever could score above 0."""

BEST_GRADE, MEAN_GRADE = "best grade", "mean grade"
"""Texts of the findings that summarize the first k chunks."""


@dataclass(frozen=True)
class RankedList:
    """Grades of a ranked list of chunks.

    Attributes:
        grades: grades of the chunks, in the order of the list.
        firsts: like `grades`, but a chunk that only repeats passages of earlier chunks has the lowest grade.
        judged: grades of all chunks that were judged, in any order.
        complete: True if `judged` includes chunks that were not retrieved.
        lowest: grade of a chunk that is not relevant at all.
        threshold: lowest grade of a relevant chunk.
        k: number of leading chunks that count.
    """

    grades: Sequence[float]
    firsts: Sequence[float]
    judged: Sequence[float]
    complete: bool
    lowest: float
    threshold: float
    k: int

    @property
    def first_grades(self) -> Sequence[float]:
        """Grades of the first k chunks."""
        return self.grades[: self.k]

    @property
    def relevant(self) -> int:
        """Number of relevant chunks among all judged chunks."""
        return sum(grade >= self.threshold for grade in self.judged)


RankingMeasure = Callable[[RankedList], float]


def ranking_metric(
    kind: str,
    k: int,
    grader: Grader | None,
    measure: RankingMeasure,
    *,
    basis: Basis,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
    options: Mapping[str, Any] | None = None,
    range: tuple[float, float] = (0.0, 1.0),
) -> Metric:
    """Return a metric of a ranked list of chunks.

    Args:
        kind: name of the measure, such as "ndcg".
        k: number of leading chunks that count.
        grader: grades the chunks; None for `id_grader()`.
        measure: function from the ranked list of grades to the value.
        basis: what the measure needs besides the first k grades: the "ideal" order, the number of "relevant" chunks,
            the "threshold", or "none" of these. The reason of the score states it.
        threshold: lowest grade of a relevant chunk, None for the grader's threshold. It is used only if `basis` is
            "relevant" or "threshold".
        name: key of the score, by default such as "ndcg@5", or "retrieved_ndcg@5".
        of: list that is measured, "contexts" or "retrieved".
        options: further options that could change the value, such as `{"gain": "exp2"}`; they are added to the
            configuration that identifies the metric.
        range: lowest and highest possible value.

    Raises:
        ConfigError: if an option is out of range, or required and missing.
    """
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ConfigError(f"k must be a whole number of at least 1, the number of leading chunks that count, got {k!r}")
    check_choice("of", of, get_args(Of))
    grader = resolve_grader(grader)
    needs_threshold = basis in ("relevant", "threshold")
    least = _threshold(kind, grader, threshold) if needs_threshold else lowest_gaining_grade(grader)
    reduce = partial(measured, grader=grader, measure=measure, k=k, threshold=least, basis=basis, of=of)
    restore = partial(_state_from_findings, grader=grader, of=of)
    settings = {"measure": kind, "k": k, "threshold": least, **(options or {})}
    reads, name = grader.reads, name or f"{'' if of == 'contexts' else 'retrieved_'}{kind}@{k}"
    steps: Runnable[State, State] = grader
    if of == "retrieved":
        reads = frozenset(_RETRIEVED.get(field, field) for field in grader.reads)
        steps = _Retrieved(name="read_retrieved") | grader
    return Metric(
        name,
        aspect="ranking",
        reads=reads,
        steps=steps,
        reduce=reduce,
        options=settings,
        state_from_findings=restore,
        range=range,
    )


def retrieved_view(sample: Sample) -> Sample:
    """Return a copy whose contexts are the retrievers' chunks; the sample itself if it records no retrieved chunks."""
    if sample.retrieved is None and sample.retrieved_ids is None:
        return sample
    metadata = {name: value for name, value in sample.metadata.items() if name not in CONTEXT_NOTES}
    update = {"contexts": sample.retrieved, "context_ids": sample.retrieved_ids, "metadata": metadata}
    return sample.model_copy(update=update)


class _Retrieved(Stage[State]):
    """Stage that puts what the retrievers returned in the place of the contexts."""

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage: the list that is measured."""
        return {"of": "retrieved"}

    def work(self, state: State) -> Operation[State]:
        """Replace the sample in the state."""
        return state | {"sample": retrieved_view(state["sample"])}
        yield  # a generator without requests


def measured(
    state: State, *, grader: Grader, measure: RankingMeasure, k: int, threshold: float, basis: Basis, of: Of
) -> Value:
    """Return the value of a ranking measure, such as NDCG, for the first k chunks in retrieval order.

    `of` selects the chunks: "contexts" for those that the model read, "retrieved" for those that the retrievers
    returned. `threshold` is the lowest grade of a relevant chunk. `basis` selects what `Value.reason` states last: the
    chunks in the "ideal" order, the number of "relevant" chunks, the "threshold", or nothing ("none"). Unscored if the
    grader needs labels, ids or passages and the sample has none; 0 if nothing was retrieved.
    """
    sample = _view(state["sample"], of)  # the state of a conversation has the sample itself again
    findings: list[Finding] = state["grades"]
    if grader.judged_grades(sample) == []:
        return Value.without(NO_RELEVANT_CHUNKS, findings)
    ranked = build_ranked_list(sample, chunk_findings(findings), grader, k, threshold)
    if not ranked.grades:
        return nothing_retrieved(sample.language_text)
    return Value(
        measure(ranked),
        ranking_reason(ranked, basis, sample.language_text),
        [*findings, *best_and_mean_findings(ranked)],
    )


def ndcg_of(ranked: RankedList, *, gain: Gain) -> float:
    """Return the NDCG, from 0 to 1, of the first k chunks (`ranked.k`); 0 if no chunk is relevant.

    The gain of a chunk depends on x, its grade minus the lowest grade: 2^x - 1 for `gain="exp2"`, x for
    `gain="linear"`.
    """
    gains, judged = ([grade - ranked.lowest for grade in grades] for grades in (ranked.firsts, ranked.judged))
    return ndcg(gains, judged, ranked.k, gain)


def build_ranked_list(sample: Sample, order: Sequence[Finding], grader: Grader, k: int, threshold: float) -> RankedList:
    """Return the grades of a sample's chunks as a ranked list, with the grades of all chunks that the grader judged.

    `order` holds the findings of the chunks, best rank first; the verdict of each finding is the grade. `grader` adds
    the grades of chunks that were not retrieved, if the sample has them. `k` is the number of leading chunks that
    count, `threshold` the lowest grade of a relevant chunk.
    """
    grades = [float(finding.verdict) for finding in order]
    firsts, judged = grader.known_grades(sample, order, threshold)
    complete = grader.judged_grades(sample) is not None
    return RankedList(grades, firsts, judged, complete, grader.lowest, threshold, k)


def chunk_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that hold the grade of a chunk."""
    return [finding for finding in findings if finding.kind == "context"]


def best_and_mean_findings(ranked: RankedList) -> list[Finding]:
    """Return two findings: the first holds the best grade of the first k chunks, the second their mean grade.

    If there are no chunks, both hold the grader's lowest grade.
    """
    first = ranked.first_grades or [ranked.lowest]
    numbers = {BEST_GRADE: max(first), MEAN_GRADE: sum(first) / len(first)}
    return [
        Finding(kind="criterion", number=number, text=text, verdict=format_grade(grade))
        for number, (text, grade) in enumerate(numbers.items(), 1)
    ]


def _view(sample: Sample, of: Of) -> Sample:
    return retrieved_view(sample) if of == "retrieved" else sample


def _state_from_findings(sample: Sample, score: Score, *, grader: Grader, of: Of) -> State | None:
    """Return the state from the findings of a score, or None if they are not of this grader and retrieval order."""
    sample = _view(sample, of)
    findings = grades_from_findings(sample, score, grader)
    if findings is None or [f.number for f in chunk_findings(findings)] != list(range(1, _retrieved(sample) + 1)):
        return None
    return {"sample": sample, "grades": findings}


def grades_from_findings(sample: Sample, score: Score, grader: Grader) -> list[Finding] | None:
    """Return the findings of a score that a grader made, in their order, or None if they are not by this grader.

    They are not by it if the number of graded chunks differs from the number of retrieved chunks, if a grade or reason
    is not one that the grader gives (`Grader.could_have_made`), or if there are findings of other kinds.
    """
    findings = [finding for finding in score.findings if finding.kind != "criterion"]
    chunks = chunk_findings(findings)
    if any(finding.kind not in ("context", "agreement") for finding in findings) or len(chunks) != _retrieved(sample):
        return None
    return findings if all(_is_grade(chunk.verdict) and grader.could_have_made(chunk) for chunk in chunks) else None


def lowest_gaining_grade(grader: Grader) -> float:
    """Return the next float above the grader's lowest grade; a grade of at least this number has a gain in NDCG."""
    return nextafter(grader.lowest, inf)


def resolve_grader(grader: Grader | None) -> Grader:
    """Return the grader, or `id_grader()` for None.

    Raises:
        ConfigError: if `grader` is not a grader.
    """
    if grader is None:
        return id_grader()
    if not isinstance(grader, Grader):
        raise ConfigError(
            "grader takes llm_grader(judge), cross_encoder_grader(ce), embedding_grader(embeddings), "
            f"label_grader() or id_grader(), got {type(grader).__name__}"
        )
    return grader


def ranking_reason(ranked: RankedList, basis: Basis, question: str) -> str:
    """Return the reason of a score in the language of `question`: the best and the mean grade of the first k chunks.

    `basis` selects what the reason states last. "ideal": whether the ideal order is of all judged chunks, with their
    number, or of the retrieved chunks only. "relevant": the number of relevant chunks, and the lowest grade of a
    relevant chunk. "threshold": this grade alone. "none": nothing. If none of the k chunks is relevant, the reason says
    so, and states nothing else after the two grades, whatever `basis` is.
    """
    first = ranked.first_grades
    none_relevant = all(grade < ranked.threshold for grade in first)
    code, mean, count = "none-relevant" if none_relevant else "grades", sum(first) / len(first), len(ranked.grades)
    notes = [Note(code, best=max(first), mean=mean, first=len(first), count=count)]
    if basis != "none" and not none_relevant:
        code, judged = f"{basis}-of-{'all' if ranked.complete else 'retrieved'}", len(ranked.judged)
        notes.append(Note(code, judged=judged, relevant=ranked.relevant, threshold=ranked.threshold))
    return explain(question, *notes)


def _threshold(kind: str, grader: Grader, threshold: float | None) -> float:
    if threshold is None:
        if grader.threshold is None:
            raise ConfigError(
                f"{kind} needs threshold=..., the lowest grade of a relevant chunk: the grader has none "
                f"({grader.meaning})"
            )
        return float(grader.threshold)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not isfinite(threshold):
        raise ConfigError(f"threshold must be a number, the lowest grade of a relevant chunk, got {threshold!r}")
    if threshold <= grader.lowest:
        raise ConfigError(
            f"threshold {threshold!r} would make every chunk relevant; it must be a grade above {grader.lowest:g}"
        )
    return float(threshold)


def _retrieved(sample: Sample) -> int:
    return len((sample.context_ids if sample.contexts is None else sample.contexts) or [])


def _is_grade(verdict: str) -> bool:
    try:
        return isfinite(float(verdict))
    except ValueError:
        return False


def ndcg_at(
    k: int, grader: Grader | None = None, *, gain: Gain = "exp2", name: str | None = None, of: Of = "contexts"
) -> Metric:
    """Score the order of the first k chunks by NDCG.

    NDCG compares with the best possible order. With `label_grader`, `id_grader` and `span_grader`, this is the order of
    all chunks or passages with a known grade, retrieved or not. The other graders of this package grade only the
    retrieved chunks, so this is the best order of these. `Score.reason` says which case applies, unless none of the
    first k is relevant. NDCG measures the order alone: it is 1.0 for a single chunk of low relevance. Read it together
    with `mean_grade_at`; the reason and the findings of the score hold the best and the mean grade.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        gain: "exp2" for a gain of 2^grade - 1; "linear" for the grade itself, as in trec_eval.
        name: key of the score; "ndcg@k", or "retrieved_ndcg@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader. The value is 0 if none of the first k chunks is relevant. It is
        also 0 if nothing was retrieved; no model is then called. Findings are the chunks in retrieval order with their
        grades, then the best and the mean grade of the first k. Unscored if the grader uses labels, reference ids or
        source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    check_choice("gain", gain, get_args(Gain))
    measure = partial(ndcg_of, gain=gain)
    return ranking_metric("ndcg", k, grader, measure, basis="ideal", name=name, of=of, options={"gain": gain})


def mrr_at(
    k: int,
    grader: Grader | None = None,
    *,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
) -> Metric:
    """Score 1 divided by the rank of the first relevant chunk; 0 if none of the first k chunks is relevant.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk. By default 1 for `label_grader` and `id_grader`, the lowest grade
            plus 1 for `llm_grader`, and 0.5 for `span_grader`, `embedding_grader` and `cross_encoder_grader` with
            "sigmoid". Required for `cross_encoder_grader` with "rank" or "rank_from_0".
        name: key of the score; "mrr@k", or "retrieved_mrr@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if the grader
        uses labels, reference ids or source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("mrr", k, grader, mrr_of, basis="threshold", threshold=threshold, name=name, of=of)


def mrr_of(ranked: RankedList) -> float:
    """Return the reciprocal rank of the first relevant chunk; 0 if none of the first k is relevant."""
    return mrr(ranked.grades, ranked.k, ranked.threshold)


def map_at(
    k: int,
    grader: Grader | None = None,
    *,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
) -> Metric:
    """Score average precision: the sum of the precisions at the ranks of relevant chunks / number of relevant chunks.

    The sum ends at rank k; the number of relevant chunks also counts those beyond rank k. With `label_grader`,
    `id_grader` and `span_grader`, all relevant chunks count, retrieved or not. The other graders of this package grade
    only the retrieved chunks, so only the retrieved relevant chunks count. `Score.reason` says which chunks count,
    unless none of the first k is relevant. The score is 0 if no chunk is relevant.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk. By default 1 for `label_grader` and `id_grader`, the lowest grade
            plus 1 for `llm_grader`, and 0.5 for `span_grader`, `embedding_grader` and `cross_encoder_grader` with
            `grades="sigmoid"`. Required for `cross_encoder_grader` with `grades="rank"` or `grades="rank_from_0"`.
        name: key of the score; "map@k", or "retrieved_map@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if the grader
        uses labels, reference ids or source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("map", k, grader, map_of, basis="relevant", threshold=threshold, name=name, of=of)


def map_of(ranked: RankedList) -> float:
    """Return the average precision of the first k chunks; the divisor is the number of all relevant chunks.

    0 if no chunk is relevant.
    """
    return average_precision(ranked.firsts, ranked.relevant, ranked.k, ranked.threshold)


def recall_at(
    k: int,
    grader: Grader | None = None,
    *,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
) -> Metric:
    """Score the share of the relevant chunks that are among the first k.

    With `label_grader`, `id_grader` and `span_grader`, all relevant chunks count, retrieved or not. The other graders
    of this package grade only the retrieved chunks, so only the retrieved relevant chunks count. `Score.reason` says
    which chunks count, unless none of the first k is relevant. The score is 0 if no chunk is relevant.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk. By default 1 for `label_grader` and `id_grader`, the lowest grade
            plus 1 for `llm_grader`, and 0.5 for `span_grader`, `embedding_grader` and `cross_encoder_grader` with
            `grades="sigmoid"`. Required for `cross_encoder_grader` with `grades="rank"` or `grades="rank_from_0"`.
        name: key of the score; "recall@k", or "retrieved_recall@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if the grader
        uses labels, reference ids or source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("recall", k, grader, recall_of, basis="relevant", threshold=threshold, name=name, of=of)


def recall_of(ranked: RankedList) -> float:
    """Return the share of the relevant chunks that are among the first k (`ranked.k`); 0 if no chunk is relevant."""
    return recall(ranked.firsts, ranked.relevant, ranked.k, ranked.threshold)


def precision_at(
    k: int,
    grader: Grader | None = None,
    *,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
) -> Metric:
    """Score the number of relevant chunks among the first k, divided by k, even if fewer than k were retrieved.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk. By default 1 for `label_grader` and `id_grader`, the lowest grade
            plus 1 for `llm_grader`, and 0.5 for `span_grader`, `embedding_grader` and `cross_encoder_grader` with
            `grades="sigmoid"`. Required for `cross_encoder_grader` with `grades="rank"` or `grades="rank_from_0"`.
        name: key of the score; "precision@k", or "retrieved_precision@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if the grader
        uses labels, reference ids or source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric(
        "precision", k, grader, precision_of, basis="threshold", threshold=threshold, name=name, of=of
    )


def precision_of(ranked: RankedList) -> float:
    """Return the number of relevant chunks among the first k (`ranked.k`), divided by k."""
    return precision(ranked.grades, ranked.k, ranked.threshold)


def hit_rate_at(
    k: int,
    grader: Grader | None = None,
    *,
    threshold: float | None = None,
    name: str | None = None,
    of: Of = "contexts",
) -> Metric:
    """Score 1 if at least one of the first k chunks is relevant, else 0.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk. By default 1 for `label_grader` and `id_grader`, the lowest grade
            plus 1 for `llm_grader`, and 0.5 for `span_grader`, `embedding_grader` and `cross_encoder_grader` with
            `grades="sigmoid"`. Required for `cross_encoder_grader` with `grades="rank"` or `grades="rank_from_0"`.
        name: key of the score; "hit_rate@k", or "retrieved_hit_rate@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if the grader
        uses labels, reference ids or source passages and the sample's mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("hit_rate", k, grader, hit_rate_of, basis="threshold", threshold=threshold, name=name, of=of)


def hit_rate_of(ranked: RankedList) -> float:
    """Return 1 if one of the first k chunks (`ranked.k`) is relevant, else 0."""
    return hit_rate(ranked.grades, ranked.k, ranked.threshold)


def mean_grade_at(k: int, grader: Grader | None = None, *, name: str | None = None, of: Of = "contexts") -> Metric:
    """Score the first k chunks by their mean grade.

    The mean grade complements NDCG, which is 1.0 for a single chunk of low relevance.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        name: key of the score; "mean_grade@k", or "retrieved_mean_grade@k", by default.
        of: "contexts" for the chunks that the model read; "retrieved" for the chunks that the retrievers returned,
            before reranking or filtering. If `Sample.retrieved` is None, both are the same.

    Returns:
        A metric that reads the fields of the grader. Its value is on the grader's scale; it is 0 without a call if
        nothing was retrieved. Findings are the chunks in retrieval order with their grades, then the best and the mean
        grade of the first k. Unscored if the grader uses labels, reference ids or source passages and the sample's
        mapping or list of them is empty.

    Raises:
        ConfigError: if an option is out of range.
    """
    grader = resolve_grader(grader)
    lowest, highest = grader.grade_range
    grades = min(lowest, 0.0), max(highest, 0.0)  # 0 if nothing was retrieved
    return ranking_metric("mean_grade", k, grader, mean_grade_of, basis="none", name=name, of=of, range=grades)


def mean_grade_of(ranked: RankedList) -> float:
    """Return the mean of the first k grades (`ranked.k`); if there are fewer than k grades, the mean of all.

    There must be at least one grade: `measured`, the caller, returns 0 itself if nothing was retrieved.
    """
    return sum(ranked.first_grades) / len(ranked.first_grades)
