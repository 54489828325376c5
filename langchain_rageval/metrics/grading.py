"""Graders of retrieved chunks: the grades for ranking metrics come from labels, ids, models or spans of text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Literal, Self, get_args

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval._internal.description import describe
from langchain_rageval.data.messages import SPANS
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.criteria import check_scale
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.grade_contexts import grade_relevance
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.measure_similarity import measure_similarity, rate_texts
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.text.words import common_share


class Grader(Stage[State]):
    """Base class of graders: steps of a metric that grade the retrieved chunks and add `grades` to the state.

    `grades` holds a finding of the kind "context" for each chunk, in retrieval order; the verdict is the grade, higher
    for a more relevant chunk. Findings of other kinds, such as the agreement of votes, follow. To write your own
    grader, subclass this and define `instrument` and `grade`. `instrument` is a property: a mapping of all settings
    that affect the grades, such as `{"scale": 3}`. `grade` is a generator that yields its requests and returns the
    findings. Set the fields too: `lowest` (grade of an irrelevant chunk), `threshold` (lowest grade of a relevant
    chunk), `grade_range` (lowest and highest possible grade) and `meaning` (reason of each finding).
    """

    reads: frozenset[str] = frozenset({"question", "contexts"})
    """Fields that a sample must have."""

    lowest: float = 0.0
    """Grade of a chunk that is not relevant at all; its gain is 0."""

    threshold: float | None = 1.0
    """Lowest grade of a relevant chunk, for metrics of binary relevance; None if the grades do not define one."""

    grade_range: tuple[float, float] = (-inf, inf)
    """Lowest and highest possible grade; infinite if there is none."""

    meaning: str = ""
    """Description of the grades, used as the reason of each finding; "" if the findings hold a judge's reasons."""

    @abstractmethod
    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding with the grade of each chunk; yield a request for each model call that is needed."""

    def judged_grades(self, sample: Sample) -> list[float] | None:
        """Return the grades of all judged documents, retrieved or not; None if only retrieved documents have grades."""
        return None

    def known_grades(
        self, sample: Sample, order: Sequence[Finding], threshold: float
    ) -> tuple[list[float], list[float]]:
        """Return the grades of the retrieved chunks, and the grades of all graded chunks, retrieved or not.

        Args:
            sample: the sample.
            order: findings of the retrieved chunks, in the order of the ranked list.
            threshold: lowest grade of a relevant chunk; not used here, but in `SpanGrader`.

        Returns:
            The grades of the retrieved chunks in the order of `order`; then, in any order, the grades of all chunks
            that `judged_grades` gives, which recall and NDCG need. If it gives None, both lists are the same.
        """
        grades, judged = [float(finding.verdict) for finding in order], self.judged_grades(sample)
        return grades, grades if judged is None else judged

    def could_have_made(self, finding: Finding) -> bool:
        """Return True if this grader may have produced a stored finding: the finding's reason is `meaning`.

        Always True if `meaning` is "". If False, a score with this finding cannot be rescored with this grader.
        """
        return not self.meaning or finding.reason == self.meaning

    def work(self, state: State) -> Operation[State]:
        """Grade the retrieved chunks of the sample and add `grades` to the state."""
        grades = yield from self.grade(state["sample"])
        return state | {"grades": list(grades)}


def _worded_findings(sample: Sample, grades: Iterable[float], meaning: str) -> list[Finding]:
    """Return the findings of the chunks of a sample, given the grades of those that are not blank; these get 0."""
    texts, given = sample.contexts or [], iter(grades)
    return grade_findings(texts, [next(given) if text.strip() else 0.0 for text in texts], meaning)


def grade_findings(texts: Sequence[str], grades: Sequence[float], meaning: str) -> list[Finding]:
    """Return a finding for each chunk in retrieval order, with `meaning` as its reason."""
    return [
        Finding(kind="context", number=number, text=text, verdict=format_grade(grade), reason=meaning)
        for number, (text, grade) in enumerate(zip(texts, grades, strict=True), 1)
    ]


def format_grade(grade: float) -> str:
    """Return a grade as text: unrounded, and without a decimal point if it is whole."""
    return str(int(grade)) if float(grade).is_integer() else repr(float(grade))


class LabelGrader(Grader):
    """Grader that uses the labels in `Sample.relevance`. Build one with `label_grader()`."""

    def judged_grades(self, sample: Sample) -> list[float]:
        """Return all labels of the sample, including the labels of chunks that were not retrieved."""
        return list(self.labels(sample).values())

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """Return a mapping of context ids to grades."""
        return sample.relevance or {}

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: only its name, since labels have no options."""
        return {"step": self.get_name()}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding for each retrieved chunk with its label as the grade; without a label, the grade is 0.

        A repeated id gets 0 from its second occurrence on.

        Raises:
            SampleError: if there are more or fewer contexts than ids.
        """
        ids = sample.context_ids or []
        texts = ids if sample.contexts is None else sample.contexts
        if len(texts) != len(ids):
            raise SampleError(
                f"sample {sample.id!r} has {len(texts)} contexts and {len(ids)} context_ids: give each context its id",
                "context_ids",
            )
        labels = dict(self.labels(sample))
        grades = [labels.pop(name, 0.0) for name in ids]
        return grade_findings(texts, grades, self.meaning)
        yield  # a generator without requests


def label_grader() -> Grader:
    """Grade each chunk by its human label in `Sample.relevance`, a mapping of context id to grade.

    Returns:
        A grader that reads `context_ids` and `relevance`. A chunk without a label gets 0. A repeated id gets 0 from its
        second occurrence on. A negative grade has no gain. Labelled documents that were not retrieved count in the
        ideal order and in the number of relevant documents.
    """
    return LabelGrader(name="read_labels", reads=frozenset({"context_ids", "relevance"}), meaning="label")


class IdGrader(LabelGrader):
    """Grader that uses `Sample.reference_context_ids`. Build one with `id_grader()`."""

    grade_range: tuple[float, float] = (0.0, 1.0)

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """Return a mapping of each reference id to grade 1."""
        return dict.fromkeys(sample.reference_context_ids or [], 1.0)


def id_grader() -> Grader:
    """Grade a chunk 1 if its id is among `Sample.reference_context_ids`, else 0.

    Returns:
        A grader that reads `context_ids` and `reference_context_ids`. It is the default grader of the ranking metrics.
        A repeated id gets 0 from its second occurrence on. If `reference_context_ids` is empty, the metrics are
        unscored.
    """
    return IdGrader(name="compare_ids", reads=frozenset({"context_ids", "reference_context_ids"}), meaning="id")


class SimilarityGrader(Grader):
    """Grader by the similarity to the question, from 0 to 1; a blank chunk gets 0 without a call."""

    stage: Stage[State]
    grade_range: tuple[float, float] = (0.0, 1.0)

    @property
    def models(self) -> Sequence[Any]:
        """Embeddings or cross-encoder that measures the similarity."""
        return self.stage.models

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: the embeddings."""
        return self.stage.description

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding for each chunk; its verdict is the similarity of the chunk to the question, from 0 to 1."""
        state = yield from self.stage.work({"sample": sample})
        return _worded_findings(sample, state["similarities"], self.meaning)


def embedding_grader(embeddings: Embeddings) -> Grader:
    """Grade each chunk by the cosine of its embedding with the question's embedding, from 0 to 1.

    If the retriever searched by the same embeddings, the grades are not independent: the retriever's order is then
    always the best order.

    Args:
        embeddings: embeds the question and the chunks by `embed_documents`. Negative cosines count as 0.

    Returns:
        A grader that reads `question` and `contexts`. The typical cosine of a relevant chunk depends on the model.
        Metrics of binary relevance use a threshold of 0.5 unless they get a `threshold`.

    Raises:
        ConfigError: if `embeddings` is not a LangChain Embeddings object.
    """
    if not isinstance(embeddings, Embeddings):
        raise ConfigError(f"embedding_grader takes LangChain Embeddings, got {type(embeddings).__name__}")
    stage = measure_similarity(embeddings, question_and_chunks)
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, meaning="cosine with the question")


def question_and_chunks(state: State) -> tuple[str, Sequence[str]]:
    """Return the question, and the chunks that are not blank."""
    sample: Sample = state["sample"]
    return sample.question, [text for text in sample.contexts or [] if text.strip()]


CrossEncoderGrades = Literal["rank", "rank_from_0", "sigmoid"]


class RankGrader(Grader):
    """Grader by ranks of cross-encoder scores: the lowest score gets `first`, each higher score one more."""

    cross_encoder: Any
    first: int
    grade_range: tuple[float, float] = (0.0, inf)

    @property
    def models(self) -> Sequence[Any]:
        """Models that the grader calls: the cross-encoder."""
        return [self.cross_encoder]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: the identity of the cross-encoder."""
        return {
            "step": self.get_name(),
            "model": describe(self.cross_encoder),
            "grades": "rank" if self.first else "rank_from_0",
        }

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding for each chunk: the higher its score by the cross-encoder, the higher the grade.

        The lowest score gets `first` and each higher score one more; a blank chunk gets 0.
        """
        question, chunks = question_and_chunks({"sample": sample})
        scores = yield from rate_texts(self.cross_encoder, question, chunks)
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores)), self.first)}
        return _worded_findings(sample, (float(ranks[score]) for score in scores), self.meaning)


def cross_encoder_grader(ce: BaseCrossEncoder, grades: CrossEncoderGrades = "rank") -> Grader:
    """Grade each chunk by a cross-encoder.

    The raw scores of a cross-encoder are logits of an unknown scale and cannot serve as grades.

    Args:
        ce: cross-encoder of (question, chunk) pairs; a score that is not finite is a failure.
        grades: "rank" is 1 for the lowest score and one more for each higher score, up to k for k different scores;
            equal scores get equal grades. "rank_from_0" is one less, from 0 to k - 1, as in articles that use the rank
            itself as relevance. With "rank_from_0", the chunk ranked last has no gain, and a single chunk has an NDCG
            of 0 even if it is relevant: 0 means "not relevant", which a rank cannot show. Therefore "rank" is the
            default. With "rank" or "rank_from_0", metrics of binary relevance need a `threshold`. "sigmoid" maps logits
            to 0..1; a chunk is relevant from 0.5 on, or from the metric's `threshold`.

    Returns:
        A grader that reads `question` and `contexts`; a blank chunk gets 0 without a call.

    Raises:
        ConfigError: if `ce` is not a cross-encoder, or `grades` is invalid.
    """
    if not isinstance(ce, BaseCrossEncoder):
        raise ConfigError(f"cross_encoder_grader takes a LangChain BaseCrossEncoder, got {type(ce).__name__}")
    if grades not in get_args(CrossEncoderGrades):
        raise ConfigError(
            f'grades is "rank", "rank_from_0" or "sigmoid" (raw logits cannot serve as grades), got {grades!r}'
        )
    if grades != "sigmoid":
        first = 1 if grades == "rank" else 0
        meaning = "rank among the cross-encoder's scores" + ("" if first else ", from 0")
        return RankGrader(name="rank_contexts", cross_encoder=ce, first=first, threshold=None, meaning=meaning)
    stage = measure_similarity(ce, question_and_chunks, scale="sigmoid")
    meaning = "sigmoid of the cross-encoder's score"
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, meaning=meaning)


_LEAST_SHARE = 0.001  # a smaller threshold, as that of NDCG, means any gain and does not say who holds a passage

REFERENCE_SPANS = "spans"
"""Name in the metadata of a sample: source and offsets of each reference context in its document."""


class SpanGrader(Grader):
    """Grades each retrieved chunk by its overlap with `Sample.reference_contexts`. Build one with `span_grader()`."""

    grade_range: tuple[float, float] = (0.0, 1.0)

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: only its name, since it has no options."""
        return {"step": self.get_name()}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding for each chunk; its verdict is the largest overlap with a source passage, from 0 to 1."""
        grades = [max(overlaps, default=0.0) for overlaps in _overlaps(sample)]
        return grade_findings(sample.contexts or [], grades, self.meaning)
        yield  # a generator without requests

    def known_grades(
        self, sample: Sample, order: Sequence[Finding], threshold: float
    ) -> tuple[list[float], list[float]]:
        """Return the grades of the retrieved chunks without repeats, and the grades of all passages and other chunks.

        A chunk contains a passage if their overlap is at least `threshold`. If `threshold` is below 0.001, the overlap
        must be at least 0.5 instead. (NDCG has no threshold and passes the smallest float above 0.) Passages that one
        chunk contains together count as one passage.

        Returns:
            Two lists of grades from 0 to 1. First: the grade of each chunk in `order`, but 0 if an earlier chunk
            contains the same passage. Second: one grade for each passage, which is the best grade of the chunks that
            contain it, or 1 if no chunk does; then the grade of each chunk that contains no passage.
        """
        least = threshold if threshold >= _LEAST_SHARE else self.threshold or 0.0
        overlaps = _overlaps(sample)
        groups = _merge({number for number, share in enumerate(shares) if share >= least} for shares in overlaps)
        best = {number: 1.0 for number in range(len(sample.reference_contexts or [])) if number not in groups}
        firsts: list[float] = []
        seen: set[int] = set()
        others: list[float] = []
        for finding in order:
            grade, shares = float(finding.verdict), overlaps[finding.number - 1]
            held = next((groups[number] for number, share in enumerate(shares) if share >= least), None)
            firsts.append(0.0 if held in seen else grade)
            if held is None:
                others.append(grade)
            else:
                seen.add(held)
                best[held] = max(best.get(held, 0.0), grade)
        return firsts, [*best.values(), *others]

    def judged_grades(self, sample: Sample) -> list[float]:
        """Return a grade of 1 for each source passage; an empty list if there is no source passage."""
        return [1.0] * len(sample.reference_contexts or [])


def span_grader() -> Grader:
    """Grade a chunk by its overlap with the source passages of the answer, `Sample.reference_contexts`.

    Ids are not compared, so the grader works with any splitter, chunk size and vector store. Some chunks have a known
    place in their document: `source` and `start_index` in the metadata, as a splitter with `add_start_index=True`
    writes them. These chunks are compared by offsets with the places of the passages, which a test set stores in
    `Sample.metadata["spans"]`. The text of every chunk is also compared with the text of each passage, ignoring white
    space and letter case; the larger overlap counts. Similar texts, such as the data sheets of two products, do not
    overlap.

    Returns:
        A grader that reads `contexts` and `reference_contexts`. A grade, from 0 to 1, is the length of the overlap
        divided by the length of the shorter text, chunk or passage. A chunk is relevant from 0.5 on. In recall, NDCG
        and MAP each passage counts once, however many chunks contain parts of it. If `reference_contexts` is empty, as
        for an unanswerable question, the metrics are unscored.
    """
    reads = frozenset({"contexts", "reference_contexts", "metadata"})
    return SpanGrader(name="compare_spans", reads=reads, threshold=0.5, meaning="overlap with a source passage")


def _overlaps(sample: Sample) -> list[list[float]]:
    """Return the overlap of each chunk with each source passage, from 0 to 1."""
    chunks, passages = sample.contexts or [], sample.reference_contexts or []
    places = _spans(sample, SPANS, len(chunks))
    sources = _spans(sample, REFERENCE_SPANS, len(passages))
    return [
        [
            max(_shared_offsets(place, source), common_share(chunk, passage))
            for passage, source in zip(passages, sources, strict=True)
        ]
        for chunk, place in zip(chunks, places, strict=True)
    ]


def _merge(groups: Iterable[set[int]]) -> dict[int, int]:
    """Return a representative of each number; numbers that occur together in a group share theirs."""
    representatives: dict[int, int] = {}
    for group in groups:
        linked = group | {n for n, own in representatives.items() if own in {representatives.get(m) for m in group}}
        representatives |= dict.fromkeys(linked, min(linked, default=0))
    return representatives


def _spans(sample: Sample, name: str, count: int) -> Sequence[Any]:
    """Return the spans in the metadata of a sample; None for each text if there are none or their number differs."""
    spans = sample.metadata.get(name)
    return spans if isinstance(spans, list) and len(spans) == count else [None] * count


def _shared_offsets(one: Any, other: Any) -> float:
    """Return the share of the shorter of two spans that lies in both; 0 if they are of different documents."""
    try:
        (source, start, end), (other_source, other_start, other_end) = one, other
        shorter = min(end - start, other_end - other_start)
        shared = min(end, other_end) - max(start, other_start)
        return max(0.0, shared / shorter) if source == other_source and shorter > 0 else 0.0
    except (TypeError, ValueError):  # no span
        return 0.0


class LlmGrader(Grader):
    """Grader that asks a judge to grade each retrieved chunk by a whole number on a scale, with a reason.

    Build one with `llm_grader(...)`.

    Attributes:
        step: step that asks the judge for the grades.
        highest: highest grade of the scale.
    """

    step: JudgeStep
    highest: float

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges that grade the chunks."""
        return self.step.judges

    def with_fresh_capabilities(self) -> Self:
        """Return a copy of the grader whose judge detects again which features its endpoint supports."""
        return self.model_copy(update={"step": self.step.with_fresh_capabilities()})

    def judged_by(self, judge: Judge) -> LlmGrader:
        """Return a copy of the grader with another judge."""
        return self.model_copy(update={"step": self.step.judged_by(judge)})

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: judge, prompts, schema, scale and `pointwise`."""
        return self.step.description

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Ask the judge for the grades, and return a finding with the grade of each chunk."""
        state = yield from self.step.work({"sample": sample})
        return list(state["grades"])

    def could_have_made(self, finding: Finding) -> bool:
        """Return True if a stored finding's verdict is a whole number on this grader's scale, else False."""
        return finding.verdict.lstrip("-").isdecimal() and self.lowest <= int(finding.verdict) <= self.highest


def llm_grader(judge: JudgeLike, scale: tuple[int, int] = (0, 4), pointwise: bool = False) -> Grader:
    """Grade each chunk by a judge; no labels are needed.

    The judge reads the chunks in the order of a hash of their content, which does not depend on the retriever's order.
    It grades each chunk on an absolute scale, so several chunks may get the same grade.

    Args:
        judge: called once per sample and vote, for all chunks; not called if all chunks are blank. If there are several
            votes (`Judge(model, draws=3)`, or a `jury` of several judges), the median grade counts.
        scale: lowest and highest grade, whole numbers. The lowest grade has no gain, whatever its number; a chunk is
            relevant from the next grade on.
        pointwise: True to grade each chunk in a separate call, so that its grade does not depend on the other chunks.

    Returns:
        A grader that reads `question` and `contexts`. It does not grade chunks that were not retrieved.

    Raises:
        ConfigError: if `scale` or `pointwise` is invalid.
    """
    lowest, highest = check_scale(scale)
    if not isinstance(pointwise, bool):
        raise ConfigError(f"pointwise is True or False, got {pointwise!r}")
    step = grade_relevance(judge, scale=(lowest, highest), pointwise=pointwise)
    return LlmGrader(
        name=step.get_name(),
        step=step,
        lowest=float(lowest),
        threshold=lowest + 1.0,
        highest=float(highest),
        grade_range=(lowest, highest),
    )
