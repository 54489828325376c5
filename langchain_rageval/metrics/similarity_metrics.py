"""Metrics of similarity in meaning, by embeddings or a cross-encoder: answer similarity and answer relevance.

Both are from 0 to 1, higher is better. Values of different models are not comparable.

Answer similarity compares the answer and the reference. Source: Risch et al. 2021, "Semantic Answer Similarity for
Evaluating Question Answering Models", arXiv:2108.06130, for the cross-encoder; ragas for the cosine of embeddings.

Answer relevance compares the user's question with questions that the judge writes from the answer. Source: Es et al.
2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation", arXiv:2309.15217, section 3. The paper generates
the questions in separate calls. Here one call requests all questions; the judge's `draws` repeat the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import (
    Value,
    answer_and_references,
    blank_value,
    similarities_from_findings,
    similarity_findings,
)
from langchain_rageval.steps.measure_similarity import SimilarityScale, measure_similarity
from langchain_rageval.steps.questions import regenerate_questions
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.votes import AGREEMENT


def answer_similarity(
    model: Embeddings | BaseCrossEncoder,
    *,
    threshold: float | None = None,
    scale: SimilarityScale | None = None,
    name: str = "answer_similarity",
) -> Metric:
    """Score the similarity of the answer to the most similar reference.

    Args:
        model: embeddings, whose cosine is clipped to 0..1; or a cross-encoder of (answer, reference) pairs.
        threshold: from 0 to 1. If given, the score is 1 if the similarity is at least the threshold, else 0.
        scale: "sigmoid" for a cross-encoder that gives logits; None if its scores are from 0 to 1.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; a blank answer is 0, without a call. Findings of the kind
        "criterion" hold the similarity with each reference.

    Raises:
        ConfigError: if an option is out of range; when scoring, if `scale` is None and a cross-encoder's score is not
            from 0 to 1.
        ModelOutputError: when scoring, for a zero vector or numbers that are not finite.
    """
    if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise ConfigError(f"threshold must be a number from 0 to 1, or None, got {threshold!r}")
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=measure_similarity(model, answer_and_references, scale=scale),
        reduce=partial(greatest_similarity, threshold=threshold),
        options={"threshold": threshold},
        state_from_findings=_state_of_similarity,
    )


def greatest_similarity(state: State, *, threshold: float | None) -> Value:
    """Return the similarity with the most similar reference; with a threshold, 1 if it is reached, else 0."""
    sample: Sample = state["sample"]
    similarities: Sequence[float] = state["similarities"]
    if (blank := blank_value(sample)) is not None:
        return blank
    number = nearest = max(similarities)
    notes = [Note("nearest-similarity", value=nearest)]
    if threshold is not None:
        number = float(nearest >= threshold)
        notes.append(Note("threshold-is", value=threshold))
    return Value(number, explain(sample.language_text, *notes), similarity_findings(sample, similarities))


def _state_of_similarity(sample: Sample, score: Score) -> State | None:
    """Return the state from the findings of a score, or None if they hold no similarities."""
    similarities = similarities_from_findings(sample, score.findings)
    return None if similarities is None else {"sample": sample, "similarities": similarities}


def answer_relevance(
    judge: JudgeLike, embeddings: Embeddings | BaseCrossEncoder, *, questions: int = 3, name: str = "answer_relevance"
) -> Metric:
    """Score how well the answer fits the question, whether the answer is true or not.

    Args:
        judge: called once per sample, to write up to `questions` questions; not called if the answer is blank.
        embeddings: embeddings or a cross-encoder that compares questions; each text of a run is embedded once, in
            batches.
        questions: number of questions to request, at least 1; a reply with fewer questions, but at least one, is
            accepted.
        name: key of the score.

    Returns:
        A metric that reads `question` and `answer`. The value is the mean similarity of the written questions to the
        user's question: the cosine, clipped to 0..1, or the cross-encoder's score. An evasive or blank answer is 0, and
        nothing is embedded. Findings are the written questions with their similarities.

    Raises:
        ConfigError: if `questions` is not a whole number of at least 1, or `embeddings` is neither embeddings nor a
            cross-encoder; when scoring, if a cross-encoder's score is not from 0 to 1.
    """
    if not isinstance(questions, int) or isinstance(questions, bool) or questions < 1:
        raise ConfigError(f"questions must be a whole number of at least 1, got {questions!r}")
    judge = Judge.of(judge)
    steps = regenerate_questions(judge, count=questions) | measure_similarity(embeddings, question_and_regenerated)
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer"},
        steps=steps,
        reduce=mean_similarity,
        options={"questions": questions},
        state_from_findings=partial(_state_of_relevance, max_questions=questions * judge.members[0].draws),
    )


def question_and_regenerated(state: State) -> tuple[str, Sequence[str]]:
    """Return the user's question, and the list of questions written from the answer (empty if it is evasive)."""
    return state["sample"].question, [] if state["evasive"] else state["regenerated_questions"]


def mean_similarity(state: State) -> Value:
    """Return the mean similarity of the user's question to the questions that the judge wrote from the answer.

    From 0 to 1; 0 if the answer is blank, or if the judge decided that the answer is evasive.
    """
    sample: Sample = state["sample"]
    if state["evasive"]:
        return Value(0.0, explain(sample.language_text, Note("evasive")))
    similarities: list[float] = state["similarities"]
    findings = [
        Finding(kind="question", number=number, text=text, verdict=repr(similarity))
        for number, (text, similarity) in enumerate(zip(state["regenerated_questions"], similarities, strict=True), 1)
    ]
    questions = [f"«{f.text}» ({s:.2f})" for f, s in zip(findings, similarities, strict=True)]
    reason = explain(sample.language_text, Note("would-answer", questions=questions))
    return Value(fmean(similarities), reason, findings)


def _state_of_relevance(sample: Sample, score: Score, *, max_questions: int) -> State | None:
    """Return the state from the findings of a score, or None if it compared more questions than this metric would.

    A score without questions is of an evasive answer.
    """
    questions = [finding for finding in score.findings if finding.kind == "question"]
    agreement = [finding for finding in score.findings if finding.kind == "agreement"]
    if len(questions) > max_questions or len(questions) + len(agreement) < len(score.findings):
        return None
    return {
        "sample": sample,
        "evasive": not questions,
        "regenerated_questions": [finding.text for finding in questions],
        "similarities": [float(finding.verdict) for finding in questions],
        AGREEMENT: agreement,
    }
