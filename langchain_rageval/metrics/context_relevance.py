"""Context relevance: the share of the retrieved sentences that are needed to answer the question.

From 0 to 1, higher is better. Source: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 3. The judge names sentences by number, so both counts are of the same sentences.
"""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value, nothing_retrieved
from langchain_rageval.steps.select_sentences import NEEDED, select_sentences
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

_MOST_NAMED = 10


def context_relevance(judge: JudgeLike, *, name: str = "context_relevance") -> Metric:
    """Score how little of what was retrieved is beside the point.

    Args:
        judge: asked once per sample; not at all when the contexts hold no words.
        name: key of the score.

    Returns:
        A metric reading `question` and `contexts`; 0 when nothing is needed or nothing was retrieved. Findings are the
        sentences in order, as `split_sentences` finds them.
    """
    return Metric(
        name,
        aspect="context",
        reads={"question", "contexts"},
        steps=select_sentences(judge),
        reduce=needed_share,
        state_from_findings=restored,
    )


def needed_share(state: State) -> Value:
    """Needed sentences / sentences."""
    findings: list[Finding] = state["context_sentences"]
    sentences = [finding for finding in findings if finding.kind == "sentence"]
    question = state["sample"].question
    if not sentences:
        return nothing_retrieved(question)
    needed = [finding.cites[0] for finding in sentences if finding.verdict == NEEDED]
    return Value(len(needed) / len(sentences), _reason(needed, len(sentences), question), findings)


def restored(sample: Sample, score: Score) -> State | None:
    """The state from the findings of a score."""
    if any(finding.kind not in ("sentence", "agreement") for finding in score.findings):
        return None
    return {"sample": sample, "context_sentences": score.findings}


def _reason(needed: list[str], count: int, question: str) -> str:
    more = ", …" if len(needed) > _MOST_NAMED else ""
    places = f" ({', '.join(needed[:_MOST_NAMED])}{more})" if needed else ""
    if detect_language(question) == "ru":
        return f"Нужных предложений: {len(needed)} из {count}{places}."
    return f"Needed sentences: {len(needed)} of {count}{places}."
