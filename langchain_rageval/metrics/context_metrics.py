"""Metrics of the retrieved contexts by a judge: precision, recall, relevance and entity recall, each from 0 to 1.

Context precision is the average precision of one ranking (Manning, Raghavan, Schütze 2008, "Introduction to Information
Retrieval", section 8.4). As in ragas, the mean is over the relevant chunks that were retrieved.

Context recall is the measure of ragas ("context recall", since 0.1), with statements in place of sentences. The
denominator is the number of statements sent to the judge, not of verdicts returned. The statements of several
references are united.

Context relevance: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation", arXiv:2309.15217,
section 3. The judge returns the numbers of sentences, so numerator and denominator count the same sentences.

Context entity recall is the measure of the same name in ragas (since 0.1). Ragas compares two lists of strings; here a
judge looks for each entity in the contexts, so that inflected names match.
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
from langchain_rageval.metrics.supported import (
    NO_REFERENCE_ENTITIES,
    NO_REFERENCE_FACTS,
    Value,
    nothing_retrieved,
    quote,
    share_of_supported,
    verdicts_from_findings,
)
from langchain_rageval.statistics.ranking import average_precision
from langchain_rageval.steps.entities import FOUND, NOT_FOUND, extract_entities, find_entities
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.grade_contexts import NEEDED, NOT_NEEDED, USEFUL, grade_contexts, select_sentences
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.verify_statements import Verifier, verify_statements

Weighting = Literal["rank", "plain"]
AgainstText = Literal["reference", "answer", "question"]
Against = Literal["auto", "reference", "answer", "question"]

AGAINST = "against"
"""Text of the finding whose verdict is the kind of text that the chunks were judged against."""


def context_precision(
    judge: JudgeLike, *, weighting: Weighting = "rank", against: Against = "auto", name: str = "context_precision"
) -> Metric:
    """Score the share of useful chunks among the retrieved chunks, by default weighted by rank.

    Args:
        judge: called once per sample, for all chunks; not called if all chunks are blank.
        weighting: "rank" is Σ (P@k · v_k) / Σ v_k, where v_k is 1 if chunk k is useful, else 0, and P@k is the share of
            useful chunks among the first k. It is 1.0 if no useless chunk precedes a useful one. "plain" is the share
            of useful chunks.
        against: text that decides whether a chunk is useful: the "reference" (several are joined), the "answer", or the
            "question" alone, which needs no label. If the text is blank, the question decides. "auto" takes the first
            of these that the sample has. A finding of the kind "criterion" holds the choice; a run warns if the choice
            differs between samples.
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
    """Return the mean precision at the ranks of the useful chunks, or the plain share of useful chunks.

    `weighting` selects one of the two: "rank" or "plain". Both are 0 if no chunk is useful. `against` is the text that
    decided which chunks are useful: "reference", "answer", "question" or "auto" (the first that is not blank). The
    reason names the text.
    """
    sample: Sample = state["sample"]
    findings: list[Finding] = state["context_verdicts"]
    useful = [finding.verdict == USEFUL for finding in findings if finding.kind == "context"]
    if not useful:
        return nothing_retrieved(sample.language_text)
    text = resolve_against(sample, against)
    why = "chosen by auto" if against == "auto" else "set by the options"
    choice = Finding(kind="criterion", number=1, text=AGAINST, verdict=text, reason=why)
    number = average_precision(useful) if weighting == "rank" else sum(useful) / len(useful)
    ranks = ", ".join(str(rank) for rank, is_useful in enumerate(useful, 1) if is_useful)
    note = Note(f"useful-{text}", useful=sum(useful), count=len(useful), places=f" ({ranks})" if ranks else "")
    return Value(number, explain(sample.language_text, note), [*findings, choice])


def _state_from_findings(sample: Sample, score: Score, *, against: Against) -> State | None:
    """Rebuild the state of `context_precision` from the findings of a score, without a call.

    Returns None if the chunks were judged against a text other than the one that `against` selects; scores of version
    0.1.0 say so only if it was chosen automatically.
    """
    against_texts = [one.verdict for one in score.findings if one.kind == "criterion" and one.text == AGAINST]
    if against_texts and against_texts != [resolve_against(sample, against)]:
        return None
    findings = [finding for finding in score.findings if finding.kind != "criterion"]
    kinds = [finding.kind for finding in findings]
    if not {*kinds} <= {"context", "agreement"} or kinds.count("context") != len(sample.contexts or []):
        return None
    return {"sample": sample, "context_verdicts": findings}


def resolve_against(sample: Sample, against: Against) -> AgainstText:
    """Return the name of the text that decides whether a chunk is useful.

    This is the text that `against` names, or "question" if that text is blank. With "auto" it is "reference", else
    "answer", else "question": the first of these that is not blank.
    """
    if against in ("auto", "reference") and any(reference.strip() for reference in sample.references):
        return "reference"
    if against in ("auto", "answer") and (sample.answer or "").strip():
        return "answer"
    return "question"


def text_to_judge_against(sample: Sample, *, against: Against) -> str:
    """Return the text that decides whether a chunk is useful; "" if the question alone decides.

    `against` selects the text: the "reference" (several are joined by line breaks), the "answer", or the "question"
    alone. "auto" takes the first of these that is not blank. If the selected text is blank, the question alone decides.
    """
    texts: Mapping[AgainstText, str] = {"reference": "\n".join(sample.references), "answer": sample.answer or ""}
    return texts.get(resolve_against(sample, against), "")


def context_recall(judge: JudgeLike, *, verifier: Verifier | None = None, name: str = "context_recall") -> Metric:
    """Score the share of the references' statements that the contexts support.

    Args:
        judge: called once for each reference, to extract statements, and once to verify all of them; not called if the
            contexts are blank.
        verifier: a cross-encoder for natural language inference, or `NliVerifier(...)`, that verifies the statements in
            place of the judge.
        name: key of the score.

    Returns:
        A metric that reads `question`, `references` and `contexts`; 0 if nothing was retrieved, unscored if the
        references state no facts. Findings are the references' statements with their verdicts and the context sentences
        cited as evidence.
    """
    steps = extract_statements(judge, of="reference", for_contexts=True) | verify_statements(
        judge, of="reference", verifier=verifier
    )
    return Metric(
        name,
        aspect="context",
        reads={"question", "references", "contexts"},
        steps=steps,
        reduce=recalled_share,
        state_from_findings=partial(verdicts_from_findings, kind="reference_statement", under="reference_verdicts"),
    )


def recalled_share(state: State) -> Value:
    """Return the share of the reference statements that the contexts support."""
    sample = state["sample"]
    if not any(text.strip() for text in sample.contexts):
        return nothing_retrieved(sample.language_text)
    return share_of_supported(state["reference_verdicts"], sample.language_text, without=NO_REFERENCE_FACTS)


_MAX_LISTED = 10


def context_relevance(judge: JudgeLike, *, name: str = "context_relevance") -> Metric:
    """Score the share of the retrieved sentences that are needed to answer the question.

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
    """Return the share of the context sentences that the question needs."""
    findings: list[Finding] = state["context_sentences"]
    sentences = [finding for finding in findings if finding.kind == "sentence"]
    question = state["sample"].language_text
    if not sentences:
        return nothing_retrieved(question)
    needed = [finding.cites[0] for finding in sentences if finding.verdict == NEEDED]
    listed = ", ".join([*needed[:_MAX_LISTED], *["…"] * (len(needed) > _MAX_LISTED)])
    note = Note("needed-sentences", needed=len(needed), count=len(sentences), places=f" ({listed})" if needed else "")
    return Value(len(needed) / len(sentences), explain(question, note), findings)


_MAX_QUOTED_ENTITIES = 5


def context_entity_recall(judge: JudgeLike, *, name: str = "context_entity_recall") -> Metric:
    """Score the share of the references' entities that the contexts name.

    Entities are names, places, organisations, dates, amounts and technical terms. The entities of all references count
    together, each once.

    Args:
        judge: called once for each reference, to extract entities, and once to find all entities in the contexts. The
            last call is omitted if the contexts are blank.
        name: key of the score.

    Returns:
        A metric that reads `question`, `references` and `contexts`; 0 if the references name entities and nothing was
        retrieved, unscored if they name no entity. Findings of the kind "entity" have the verdict "found", with the
        sentences that name the entity, or "not found".
    """
    return Metric(
        name,
        aspect="context",
        reads={"question", "references", "contexts"},
        steps=extract_entities(judge) | find_entities(judge),
        reduce=found_share,
        state_from_findings=partial(
            verdicts_from_findings, kind="entity", under="entity_verdicts", labels=(FOUND, NOT_FOUND)
        ),
    )


def found_share(state: State) -> Value:
    """Return the share of the references' entities (such as names and dates) that were found in the contexts.

    Unscored if the references name no entity.
    """
    findings: Sequence[Finding] = state["entity_verdicts"]
    entities = [finding for finding in findings if finding.kind == "entity"]
    if not entities:
        return Value.without(NO_REFERENCE_ENTITIES)
    missing = [finding.text for finding in entities if finding.verdict != FOUND]
    count, found, more = len(entities), len(entities) - len(missing), len(missing) - _MAX_QUOTED_ENTITIES
    notes = [Note("entities-found", found=found, count=count)]
    if missing:
        code = "entities-missing-and-more" if more > 0 else "entities-missing"
        notes.append(Note(code, quotes=[*map(quote, missing[:_MAX_QUOTED_ENTITIES])], more=more))
    if dropped := state.get("dropped_entities"):
        notes.append(Note("entities-dropped", count=dropped))
    return Value(found / count, explain(state["sample"].language_text, *notes), findings)
