"""Context precision: whether the retrieved chunks are useful, and the useful ones come first.

From 0 to 1, higher is better. Source: the mean average precision of one ranking (Manning, Raghavan, Schütze 2008,
"Introduction to Information Retrieval", section 8.4), over the relevant chunks that were retrieved, as in ragas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value, nothing_retrieved
from langchain_rageval.statistics.ranking import average_precision
from langchain_rageval.steps.grade_contexts import USEFUL, grade_contexts
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

Weighting = Literal["rank", "plain"]
Ground = Literal["reference", "answer", "question"]
Against = Literal["auto", "reference", "answer", "question"]

CHOSEN = "against"
"""Text of the finding that tells what "auto" chose."""

_GROUNDS_RU: Mapping[Ground, str] = {"reference": "эталонный ответ", "answer": "ответ", "question": "вопрос"}


def context_precision(
    judge: JudgeLike, *, weighting: Weighting = "rank", against: Against = "auto", name: str = "context_precision"
) -> Metric:
    """Score the retriever's choice and order.

    Args:
        judge: asked once per sample, about all chunks; not at all when they hold no words.
        weighting: "rank" is Σ (P@k · v_k) / Σ v_k, where v_k says whether chunk k is useful and P@k is the share of
            useful ones among the first k: 1.0 when no useless chunk comes before a useful one. "plain" is useful chunks
            / chunks.
        against: what a useful chunk helps to say: the "reference" (several are joined), the "answer", or whatever
            answers the "question", which needs no label; a blank text leaves the question alone. "auto" takes the first
            of these that the sample has; a finding of the kind "criterion" tells which, and a run in which it differs
            between samples warns.
        name: key of the score.

    Returns:
        A metric reading `question` and `contexts`, and what `against` names; 0 when no chunk is useful. Findings are
        the chunks in retrieval order.

    Raises:
        ConfigError: if an option has no such value.
    """
    if weighting not in get_args(Weighting):
        raise ConfigError(f'weighting is "rank" or "plain", got {weighting!r}')
    if against not in get_args(Against):
        raise ConfigError(f"against is one of {', '.join(get_args(Against))}, got {against!r}")
    field = {"reference": "references", "answer": "answer"}.get(against)
    return Metric(
        name,
        aspect="ranking" if weighting == "rank" else "context",
        reads={"question", "contexts"} | ({field} if field else set()),
        steps=grade_contexts(judge, against=partial(text_of_ground, against=against)),
        reduce=partial(useful_share, weighting=weighting, against=against),
        options={"weighting": weighting, "against": against},
        state_from_findings=partial(restored, against=against),
    )


def useful_share(state: State, *, weighting: Weighting, against: Against) -> Value:
    """Precision at the ranks of the useful chunks, averaged; or their plain share."""
    sample: Sample = state["sample"]
    findings: list[Finding] = state["context_verdicts"]
    useful = [finding.verdict == USEFUL for finding in findings if finding.kind == "context"]
    if not useful:
        return nothing_retrieved(sample.question)
    ground = ground_of(sample, against)
    if against == "auto":
        chosen = Finding(kind="criterion", number=1, text=CHOSEN, verdict=ground, reason="chosen by auto")
        findings = [*findings, chosen]
    number = average_precision(useful) if weighting == "rank" else sum(useful) / len(useful)
    return Value(number, _reason(useful, ground, sample.question), findings)


def restored(sample: Sample, score: Score, *, against: Against) -> State | None:
    """The state from the findings of a score, unless its reason tells of another ground."""
    findings = [finding for finding in score.findings if finding.kind != "criterion"]
    if any(finding.kind not in ("context", "agreement") for finding in findings):
        return None
    useful = [finding.verdict == USEFUL for finding in findings if finding.kind == "context"]
    if len(useful) != len(sample.contexts or []):
        return None
    if useful and score.reason != _reason(useful, ground_of(sample, against), sample.question):
        return None
    return {"sample": sample, "context_verdicts": findings}


def ground_of(sample: Sample, against: Against) -> Ground:
    """What the chunks of a sample are judged against; a blank text leaves the question alone."""
    if against in ("auto", "reference") and any(reference.strip() for reference in sample.references):
        return "reference"
    if against in ("auto", "answer") and (sample.answer or "").strip():
        return "answer"
    return "question"


def text_of_ground(sample: Sample, *, against: Against) -> str:
    """The answer that a useful chunk helps to give; "" for the question alone."""
    texts: Mapping[Ground, str] = {"reference": "\n".join(sample.references), "answer": sample.answer or ""}
    return texts.get(ground_of(sample, against), "")


def _reason(useful: Sequence[bool], ground: Ground, question: str) -> str:
    numbers = ", ".join(str(rank) for rank, here in enumerate(useful, 1) if here)
    places = f" ({numbers})" if numbers else ""
    if detect_language(question) == "ru":
        return f"Полезных фрагментов: {sum(useful)} из {len(useful)}{places}; основание — {_GROUNDS_RU[ground]}."
    return f"Useful chunks: {sum(useful)} of {len(useful)}{places}, judged against the {ground}."
