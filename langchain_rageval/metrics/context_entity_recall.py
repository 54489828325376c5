"""Context entity recall: the share of the entities in the references that the contexts name.

From 0 to 1, higher is better. Source: the measure of the same name in ragas (since 0.1), with a judge that looks for
each entity in the contexts in place of a comparison of two lists of strings: an inflected name is the same name.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import NO_REFERENCE_ENTITIES, Value, quoted
from langchain_rageval.steps.extract_entities import extract_entities
from langchain_rageval.steps.find_entities import FOUND, find_entities
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

_MOST_NAMED = 5


def context_entity_recall(judge: JudgeLike, *, name: str = "context_entity_recall") -> Metric:
    """Score how many of the entities that the references name were retrieved.

    Entities are names, places, organisations, dates, amounts and terms with a meaning of their own; those of several
    references count together, each once.

    Args:
        judge: asked once for each reference, to extract entities, and once to find them all in the contexts; the latter
            not when the contexts hold no words.
        name: key of the score.

    Returns:
        A metric reading `question`, `references` and `contexts`; 0 when the references name entities and nothing was
        retrieved, unscored when they name none. Findings of the kind "entity" are "found", with the sentences that name
        the entity, or "not found".
    """
    return Metric(
        name,
        aspect="context",
        reads={"question", "references", "contexts"},
        steps=extract_entities(judge) | find_entities(judge),
        reduce=found_share,
        state_from_findings=restored,
    )


def found_share(state: State) -> Value:
    """Entities found / entities."""
    findings: Sequence[Finding] = state["entity_verdicts"]
    entities = [finding for finding in findings if finding.kind == "entity"]
    if not entities:
        return Value.without(NO_REFERENCE_ENTITIES)
    lost = [finding.text for finding in entities if finding.verdict != FOUND]
    return Value((len(entities) - len(lost)) / len(entities), _reason(len(entities), lost, state["sample"]), findings)


def restored(sample: Sample, score: Score) -> State | None:
    """The state from the findings of a score."""
    if any(finding.kind not in ("entity", "agreement") for finding in score.findings):
        return None
    return {"sample": sample, "entity_verdicts": score.findings}


def _reason(count: int, lost: Sequence[str], sample: Sample) -> str:
    found, named = count - len(lost), ", ".join(map(quoted, lost[:_MOST_NAMED]))
    more = len(lost) - _MOST_NAMED
    if detect_language(sample.question) == "ru":
        told = f"В контекстах названо {found} из {count} сущностей эталона"
        rest, missing = f" и ещё {more}", "не найдено"
    else:
        told = f"The contexts name {found} of {count} {'entity' if count == 1 else 'entities'} of the reference"
        rest, missing = f" and {more} more", "not found"
    return f"{told}; {missing}: {named}{rest if more > 0 else ''}." if lost else f"{told}."
