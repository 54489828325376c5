"""Context relevance: the share of the retrieved sentences that are needed to answer the question.

From 0 to 1, higher is better. Source: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 3. The judge returns the numbers of sentences, so numerator and denominator count the same
units.
"""

from __future__ import annotations

from functools import partial

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value, nothing_retrieved, verdicts_from_findings
from langchain_rageval.steps.grade_contexts import NEEDED, NOT_NEEDED, select_sentences
from langchain_rageval.steps.stage import State

_MAX_LISTED = 10


def context_relevance(judge: JudgeLike, *, name: str = "context_relevance") -> Metric:
    """Score the share of retrieved sentences that the question needs.

    Args:
        judge: called once per sample; not called if the contexts are blank.
        name: key of the score.

    Returns:
        A metric that reads `question` and `contexts`; 0 if no sentence is needed or nothing was retrieved. Findings are
        the sentences in order, as `split_sentences` returns them.
    """
    return Metric(
        name,
        aspect="context",
        reads={"question", "contexts"},
        steps=select_sentences(judge),
        reduce=needed_share,
        state_from_findings=partial(
            verdicts_from_findings, kind="sentence", under="context_sentences", labels=(NEEDED, NOT_NEEDED)
        ),
    )


def needed_share(state: State) -> Value:
    """Return the share of the context sentences that are needed."""
    findings: list[Finding] = state["context_sentences"]
    sentences = [finding for finding in findings if finding.kind == "sentence"]
    question = state["sample"].language_text
    if not sentences:
        return nothing_retrieved(question)
    needed = [finding.cites[0] for finding in sentences if finding.verdict == NEEDED]
    return Value(len(needed) / len(sentences), _reason(needed, len(sentences), question), findings)


def _reason(needed: list[str], count: int, question: str) -> str:
    more = ", …" if len(needed) > _MAX_LISTED else ""
    places = f" ({', '.join(needed[:_MAX_LISTED])}{more})" if needed else ""
    return explain(question, Note("needed-sentences", needed=len(needed), count=count, places=places))
