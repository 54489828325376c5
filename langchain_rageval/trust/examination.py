"""Examination: how one judge step is tested on labelled items (requests whose right verdicts are known).

To examine another step, add labelled items and an entry in `EXAMINATIONS`; to include another metric in the
qualification, add an entry in `fitness.STEPS_OF`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge
from langchain_rageval.prompts.criteria import DEFAULT_SCALE, default_criteria
from langchain_rageval.prompts.promptset import PromptSet
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.critique_aspect import critique_aspect
from langchain_rageval.steps.detect_abstention import detect_abstention
from langchain_rageval.steps.detect_answerable import detect_answerable
from langchain_rageval.steps.extract_entities import extract_entities
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.find_entities import find_entities
from langchain_rageval.steps.grade_contexts import grade_contexts
from langchain_rageval.steps.grade_relevance import grade_relevance
from langchain_rageval.steps.grade_rubric import grade_rubric
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.regenerate_questions import regenerate_questions
from langchain_rageval.steps.select_sentences import select_sentences
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stems_of
from langchain_rageval.trust.labelled_item import LabelledItem

FACTS, NO_FACTS = "facts", "no facts"
EMBEDDING_STEP = "measure_similarity"
"""Name of the step that uses embeddings instead of the judge."""

_QUESTIONS = 3
_RELEVANCE_SCALE = (0, 4)
"""Scale of `llm_grader`."""


@dataclass(frozen=True)
class CitedVerdict:
    """A verdict and the numbers of the sentences that the judge cited for it, such as "2.3"."""

    verdict: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """Procedure that tests one judge step: builds the step, runs it on a labelled item, and reads its verdicts.

    Attributes:
        build: returns the step for a judge, or for embeddings, and a labelled item.
        read_verdicts: returns one verdict for each label of the item from the state after the step.
        extra_state: returns what the step reads from the state besides the sample.
        reverse: maps a sequence in the order of the item's labels to the order of the reversed item's labels, and back;
            None if the step has no order.
        padded: True if the items have chunks, to which an irrelevant sentence can be added.
        chance: share of right verdicts by guessing; None stands for that of the best constant answer.
    """

    build: Callable[[Any, LabelledItem], Stage[State]]
    read_verdicts: Callable[[State, LabelledItem], list[CitedVerdict]]
    extra_state: Callable[[LabelledItem], State] = lambda _item: {}
    reverse: Callable[[LabelledItem, Sequence[Any]], Sequence[Any]] | None = None
    padded: bool = False
    chance: float | None = None

    def initial_state(self, item: LabelledItem) -> State:
        """Return the input of the step for a labelled item: the sample and `extra_state`."""
        sample = Sample(
            question=item.question,
            answer=item.answer,
            contexts=list(item.contexts),
            references=list(item.references),
        )
        return {"sample": sample, **self.extra_state(item)}


def reverse_item(item: LabelledItem, examination: Examination) -> LabelledItem:
    """Return a labelled item with its chunks in reverse order; without chunks, its statements and references."""
    if examination.reverse is None:
        raise ValueError(f"the items of {item.step} have no order")
    labels = tuple(label.reversed(len(item.contexts)) for label in examination.reverse(item, item.labels))
    sides = {} if item.contexts else {"statements": item.statements[::-1], "references": item.references[::-1]}
    return item.model_copy(update={"contexts": item.contexts[::-1], "labels": labels, **sides})


def pad_item(item: LabelledItem) -> LabelledItem:
    """Return a labelled item with its irrelevant sentence (`padding`) at the end of each chunk."""
    return item.model_copy(update={"contexts": tuple(f"{context}\n{item.padding}" for context in item.contexts)})


def _keep_order(_item: LabelledItem, values: Sequence[Any]) -> Sequence[Any]:
    return values


def _reverse_chunks(_item: LabelledItem, values: Sequence[Any]) -> Sequence[Any]:
    return values[::-1]


def _reverse_sides(item: LabelledItem, values: Sequence[Any]) -> Sequence[Any]:
    count = len(item.statements)
    return [*values[:count][::-1], *values[count:][::-1]]


def _finding_verdicts(findings: Sequence[Finding], kind: str) -> list[CitedVerdict]:
    return [CitedVerdict(finding.verdict, tuple(finding.cites)) for finding in findings if finding.kind == kind]


def _extraction_verdict(state: State, item: LabelledItem) -> list[CitedVerdict]:
    """Return one verdict on extracted statements: whether they are short and have exactly the numbers of the text."""
    statements: list[str] = state["answer_statements"]
    text = item.answer or ""
    if not statements:
        return [CitedVerdict(NO_FACTS)]
    numbers = numbers_of(" ".join(statements))
    if numbers - numbers_of(f"{text} {item.question}"):
        return [CitedVerdict(f"{FACTS}, numbers made up")]
    if numbers_of(text) - numbers:
        return [CitedVerdict(f"{FACTS}, numbers lost")]
    if 2 * len(statements) < len(split_sentences(text)):
        return [CitedVerdict(f"{FACTS}, not taken apart")]
    return [CitedVerdict(FACTS)]


def _classification_verdicts(state: State, _item: LabelledItem) -> list[CitedVerdict]:
    findings = state["classifications"][0]
    return [*_finding_verdicts(findings, "statement"), *_finding_verdicts(findings, "reference_statement")]


def _sentence_verdicts(state: State, item: LabelledItem) -> list[CitedVerdict]:
    verdicts = {finding.cites[0]: finding.verdict for finding in state["context_sentences"] if finding.cites}
    return [CitedVerdict(verdicts[label.number]) for label in item.labels]


def _evasion_verdict(state: State, _item: LabelledItem) -> list[CitedVerdict]:
    return [CitedVerdict("evasive" if state["evasive"] else "answers")]


def _similarity_verdict(state: State, _item: LabelledItem) -> list[CitedVerdict]:
    near, far = state["similarities"]
    return [CitedVerdict("nearer" if near > far else "as near" if near == far else "farther")]


def _named_verdicts(state: State, item: LabelledItem) -> list[CitedVerdict]:
    """Return for each term of an item whether an extracted entity consists of it, with as many other words at most."""
    entities = [stems_of(entity) for entity in state["reference_entities"]]
    terms = [stems_of(term) for term in item.terms]
    named = [any(term <= entity and len(entity) <= 2 * len(term) for entity in entities) for term in terms]
    return [CitedVerdict("named" if is_named else "not named") for is_named in named]


def _critique_aspect(judge: Judge, item: LabelledItem) -> Stage[State]:
    """Return the step for the aspect of an item, by the package's definition if the judge's prompts have none."""
    own = [member.prompts.common.aspects for member in judge.members if member.prompts]
    known = all(item.aspect in aspects for aspects in own)
    definitions = PromptSet.default(detect_language(item.question)).common.aspects
    return critique_aspect(judge, item.aspect, definition=None if known else definitions[item.aspect], tie=False)


EXAMINATIONS: Mapping[str, Examination] = {
    "extract_statements": Examination(lambda judge, _: extract_statements(judge, of="answer"), _extraction_verdict),
    "verify_statements": Examination(
        lambda judge, _: verify_statements(judge, of="answer"),
        lambda state, _: _finding_verdicts(state["answer_verdicts"], "statement"),
        lambda item: {"answer_statements": list(item.statements)},
        reverse=_keep_order,
        padded=True,
    ),
    "classify_statements": Examination(
        lambda judge, _: classify_statements(judge),
        _classification_verdicts,
        lambda item: {"answer_statements": list(item.statements), "statements_by_reference": [list(item.references)]},
        reverse=_reverse_sides,
    ),
    "grade_contexts": Examination(
        lambda judge, _: grade_contexts(judge, against=lambda sample: "\n".join(sample.references)),
        lambda state, _: _finding_verdicts(state["context_verdicts"], "context"),
        reverse=_reverse_chunks,
        padded=True,
    ),
    "select_sentences": Examination(
        lambda judge, _: select_sentences(judge), _sentence_verdicts, reverse=_keep_order, padded=True
    ),
    "regenerate_questions": Examination(
        lambda judge, _: regenerate_questions(judge, count=_QUESTIONS), _evasion_verdict
    ),
    "critique_aspect": Examination(
        _critique_aspect, lambda state, _: _finding_verdicts(state["aspect_verdict"], "aspect")
    ),
    "detect_abstention": Examination(
        lambda judge, _: detect_abstention(judge, of="answer"),
        lambda state, _: _finding_verdicts(state["answer_abstention"], "criterion"),
    ),
    "detect_answerable": Examination(
        lambda judge, _: detect_answerable(judge),
        lambda state, _: _finding_verdicts(state["answerable"], "criterion"),
    ),
    "extract_entities": Examination(lambda judge, _: extract_entities(judge), _named_verdicts),
    "find_entities": Examination(
        lambda judge, _: find_entities(judge),
        lambda state, _: _finding_verdicts(state["entity_verdicts"], "entity"),
        lambda item: {"reference_entities": list(item.terms)},
    ),
    "grade_relevance": Examination(
        lambda judge, _: grade_relevance(judge, scale=_RELEVANCE_SCALE, pointwise=False),
        lambda state, _: _finding_verdicts(state["grades"], "context"),
    ),
    "grade_rubric": Examination(
        lambda judge, _: grade_rubric(judge, default_criteria(), DEFAULT_SCALE, with_examples=True, replaceable=True),
        lambda state, _: _finding_verdicts(state["rubric_grades"], "criterion"),
    ),
    EMBEDDING_STEP: Examination(
        lambda embeddings, _: measure_similarity(
            embeddings, lambda state: (state["text"], [state["near"], state["far"]])
        ),
        _similarity_verdict,
        lambda item: {"text": item.text, "near": item.near, "far": item.far},
        chance=0.5,
    ),
}
"""Name of a step to its examination."""
