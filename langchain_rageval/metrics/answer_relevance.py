"""Answer relevance: how near the questions that the answer would answer are to the one that was asked.

From 0 to 1, higher is better; the scale depends on the embeddings. Source: Es et al. 2023, "RAGAS: Automated Evaluation
of Retrieval Augmented Generation", arXiv:2309.15217, section 3. Unlike the paper, which draws the questions one by one,
one call asks for all of them; the judge's `draws` give independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.regenerate_questions import regenerate_questions
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language


def answer_relevance(
    judge: JudgeLike,
    embeddings: Embeddings | BaseCrossEncoder,
    *,
    questions: int = 3,
    name: str = "answer_relevance",
) -> Metric:
    """Score how well the answer fits the question, whether it is true or not.

    Args:
        judge: asked once per sample, for up to `questions` questions; not at all when the answer is blank.
        embeddings: compare questions; each text of a run is embedded once, in batches.
        questions: how many are asked for, from 1 on; 1 to that many are accepted.
        name: key of the score.

    Returns:
        A metric reading `question` and `answer`: the mean of the cosines, each clipped to 0..1. An evasive or blank
        answer is 0, and nothing is embedded. Findings are the questions with their cosines.

    Raises:
        ConfigError: if `questions` is no whole number from 1 on, or `embeddings` are none.
    """
    if not isinstance(questions, int) or isinstance(questions, bool) or questions < 1:
        raise ConfigError(f"questions takes a whole number from 1 on, got {questions!r}")
    judge = Judge.of(judge)
    steps = regenerate_questions(judge, count=questions) | measure_similarity(embeddings, asked_and_regenerated)
    most = questions * judge.members[0].draws
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer"},
        steps=steps,
        reduce=mean_similarity,
        options={"questions": questions},
        state_from_findings=partial(restored, most=most),
    )


def asked_and_regenerated(state: State) -> tuple[str, Sequence[str]]:
    """The question that was asked, and those it is compared with: none when the answer is evasive."""
    return state["sample"].question, [] if state["evasive"] else state["regenerated_questions"]


def mean_similarity(state: State) -> Value:
    """Mean of the similarities; 0 for an evasive answer."""
    sample: Sample = state["sample"]
    russian = detect_language(sample.question) == "ru"
    if state["evasive"]:
        return Value(0.0, "Ответ пуст или уклончив." if russian else "The answer is blank or evasive.")
    similarities: list[float] = state["similarities"]
    findings = [
        Finding(kind="question", number=number, text=text, verdict=repr(similarity))
        for number, (text, similarity) in enumerate(zip(state["regenerated_questions"], similarities, strict=True), 1)
    ]
    told = "Ответ отвечал бы на вопросы" if russian else "The answer would answer"
    asked = "; ".join(f"«{f.text}» ({s:.2f})" for f, s in zip(findings, similarities, strict=True))
    return Value(fmean(similarities), f"{told}: {asked}.", findings)


def restored(sample: Sample, score: Score, *, most: int) -> State | None:
    """The state from the findings of a score, unless more was asked for there; an evasive answer has none."""
    if len(score.findings) > most or any(finding.kind != "question" for finding in score.findings):
        return None
    return {
        "sample": sample,
        "evasive": not score.findings,
        "regenerated_questions": [finding.text for finding in score.findings],
        "similarities": [float(finding.verdict) for finding in score.findings],
    }
