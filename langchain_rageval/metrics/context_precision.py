"""Context precision: how many retrieved chunks are useful, and how early they are ranked.

From 0 to 1, higher is better. Source: the mean average precision of one ranking (Manning, Raghavan, Schütze 2008,
"Introduction to Information Retrieval", section 8.4), over the relevant chunks that were retrieved, as in ragas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import check_choice
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value, nothing_retrieved
from langchain_rageval.statistics.ranking import average_precision
from langchain_rageval.steps.grade_contexts import USEFUL, grade_contexts
from langchain_rageval.steps.stage import State

Weighting = Literal["rank", "plain"]
AgainstText = Literal["reference", "answer", "question"]
Against = Literal["auto", "reference", "answer", "question"]

AGAINST = "against"
"""Text of the finding whose verdict is the kind of text that the chunks were judged against."""


def context_precision(
    judge: JudgeLike, *, weighting: Weighting = "rank", against: Against = "auto", name: str = "context_precision"
) -> Metric:
    """Score the retriever's choice and order of chunks.

    Args:
        judge: called once per sample, for all chunks; not called if they are blank.
        weighting: "rank" is Σ (P@k · v_k) / Σ v_k, where v_k is 1 if chunk k is useful, else 0, and P@k is the share of
            useful chunks among the first k: 1.0 if no useless chunk precedes a useful one. "plain" is the
            share of useful chunks.
        against: text that decides whether a chunk is useful: the "reference" (several are joined), the "answer", or the
            "question" alone, which needs no label; a blank text has the same effect as "question". "auto" takes the
            first of these that the sample has; a finding of the kind "criterion" holds the choice, and a run in which
            it differs between samples warns.
        name: key of the score.

    Returns:
        A metric that reads `question` and `contexts`, and the field that `against` names; 0 if no chunk is useful.
        Findings are the chunks in retrieval order.

    Raises:
        ConfigError: if an option is invalid.
    """
    check_choice("weighting", weighting, get_args(Weighting))
    check_choice("against", against, get_args(Against))
    field = {"reference": "references", "answer": "answer"}.get(against)
    return Metric(
        name,
        aspect="ranking" if weighting == "rank" else "context",
        reads={"question", "contexts"} | ({field} if field else set()),
        steps=grade_contexts(judge, against=partial(text_to_judge_against, against=against)),
        reduce=partial(useful_share, weighting=weighting, against=against),
        options={"weighting": weighting, "against": against},
        state_from_findings=partial(_state_from_findings, against=against),
    )


def useful_share(state: State, *, weighting: Weighting, against: Against) -> Value:
    """Return the mean precision at the ranks of the useful chunks, or the plain share of useful chunks."""
    sample: Sample = state["sample"]
    findings: list[Finding] = state["context_verdicts"]
    useful = [finding.verdict == USEFUL for finding in findings if finding.kind == "context"]
    if not useful:
        return nothing_retrieved(sample.language_text)
    text = resolve_against(sample, against)
    why = "chosen by auto" if against == "auto" else "set by the options"
    choice = Finding(kind="criterion", number=1, text=AGAINST, verdict=text, reason=why)
    number = average_precision(useful) if weighting == "rank" else sum(useful) / len(useful)
    return Value(number, _reason(useful, text, sample.language_text), [*findings, choice])


def _state_from_findings(sample: Sample, score: Score, *, against: Against) -> State | None:
    """Rebuild the state that `_reduce` reads from the findings of a score, without a call.

    Returns None if the chunks were judged against a text other than the one that `against` selects; scores of version
    0.1.0 say so only if it was chosen automatically.
    """
    against_texts = [one.verdict for one in score.findings if one.kind == "criterion" and one.text == AGAINST]
    if against_texts and against_texts != [resolve_against(sample, against)]:
        return None
    findings = [finding for finding in score.findings if finding.kind != "criterion"]
    if any(finding.kind not in ("context", "agreement") for finding in findings):
        return None
    useful = [finding.verdict == USEFUL for finding in findings if finding.kind == "context"]
    if len(useful) != len(sample.contexts or []):
        return None
    return {"sample": sample, "context_verdicts": findings}


def resolve_against(sample: Sample, against: Against) -> AgainstText:
    """Return the kind of text that the chunks of a sample are judged against: "question" if the chosen one is blank."""
    if against in ("auto", "reference") and any(reference.strip() for reference in sample.references):
        return "reference"
    if against in ("auto", "answer") and (sample.answer or "").strip():
        return "answer"
    return "question"


def text_to_judge_against(sample: Sample, *, against: Against) -> str:
    """Return the text that the chunks are judged against; "" for the question alone."""
    texts: Mapping[AgainstText, str] = {"reference": "\n".join(sample.references), "answer": sample.answer or ""}
    return texts.get(resolve_against(sample, against), "")


def _reason(useful: Sequence[bool], against: AgainstText, question: str) -> str:
    numbers = ", ".join(str(rank) for rank, is_useful in enumerate(useful, 1) if is_useful)
    places = f" ({numbers})" if numbers else ""
    return explain(question, Note(f"useful-{against}", useful=sum(useful), count=len(useful), places=places))
