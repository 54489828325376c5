"""Context entity recall: the share of the entities in the references that the contexts name.

From 0 to 1, higher is better. Source: the measure of the same name in ragas (since 0.1). Ragas compares two lists of
strings; here a judge looks for each entity in the contexts, so that inflected names match.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import NO_REFERENCE_ENTITIES, Value, quote, verdicts_from_findings
from langchain_rageval.steps.entities import FOUND, NOT_FOUND, extract_entities, find_entities
from langchain_rageval.steps.stage import State

_MAX_QUOTED = 5


def context_entity_recall(judge: JudgeLike, *, name: str = "context_entity_recall") -> Metric:
    """Score the share of the references' entities that were retrieved.

    Entities are names, places, organisations, dates, amounts and technical terms; those of several references count
    together, each once.

    Args:
        judge: called once for each reference, to extract entities, and once to find all of them in the contexts; not
            called for the latter if the contexts are blank.
        name: key of the score.

    Returns:
        A metric that reads `question`, `references` and `contexts`; 0 if the references name entities and nothing was
        retrieved, unscored if they name none. Findings of the kind "entity" have the verdict "found", with the
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
    """Return the share of the entities that were found in the contexts."""
    findings: Sequence[Finding] = state["entity_verdicts"]
    entities = [finding for finding in findings if finding.kind == "entity"]
    if not entities:
        return Value.without(NO_REFERENCE_ENTITIES)
    missing = [finding.text for finding in entities if finding.verdict != FOUND]
    reason = _reason(len(entities), missing, state["sample"], state.get("dropped_entities", 0))
    return Value((len(entities) - len(missing)) / len(entities), reason, findings)


def _reason(count: int, missing: Sequence[str], sample: Sample, dropped: int) -> str:
    notes, more = [Note("entities-found", found=count - len(missing), count=count)], len(missing) - _MAX_QUOTED
    if missing:
        code = "entities-missing-and-more" if more > 0 else "entities-missing"
        notes.append(Note(code, quotes=[*map(quote, missing[:_MAX_QUOTED])], more=more))
    if dropped:
        notes.append(Note("entities-dropped", count=dropped))
    return explain(sample.language_text, *notes)
