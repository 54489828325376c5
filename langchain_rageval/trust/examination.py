"""Examination: how the labelled items of each step are asked, and what verdicts the answers hold.

A step that is to be examined as well is its labelled items and a line in `EXAMINATIONS`; a metric that is to be told
about, a line in `STEPS_OF`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.grade_contexts import grade_contexts
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.regenerate_questions import regenerate_questions
from langchain_rageval.steps.select_sentences import select_sentences
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of
from langchain_rageval.trust.items import Item

FACTS, NO_FACTS = "facts", "no facts"
EMBEDDED = "measure_similarity"
"""The step that asks embeddings, not the judge."""

_QUESTIONS = 3


@dataclass(frozen=True)
class Given:
    """A verdict that came, and the sentences cited for it."""

    verdict: str
    cites: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """How one step is examined.

    Attributes:
        build: makes the step from the judge, or from the embeddings.
        given: from what the step added to the state to one verdict for each label of the item.
        extra: what the step reads of the state besides the sample.
        turned: puts what belongs to an item's labels, in their order, into the order of the item in reverse, or back;
            None where there is no order.
        padded: whether there are chunks to put a needless sentence into.
        chance: share of right verdicts that guessing has; by default what the best constant answer has.
    """

    build: Callable[[Any], Stage[State]]
    given: Callable[[State, Item], list[Given]]
    extra: Callable[[Item], State] = lambda _item: {}
    turned: Callable[[Item, Sequence[Any]], Sequence[Any]] | None = None
    padded: bool = False
    chance: float | None = None

    def state(self, item: Item) -> State:
        """What the step is given."""
        sample = Sample(
            question=item.question,
            answer=item.answer,
            contexts=list(item.contexts),
            references=list(item.references),
        )
        return {"sample": sample, **self.extra(item)}


def in_reverse(item: Item, examination: Examination) -> Item:
    """The item with its chunks in reverse order, and its statements where they are compared with one another."""
    if examination.turned is None:
        raise ValueError(f"the items of {item.step} have no order")
    labels = tuple(label.turned(len(item.contexts)) for label in examination.turned(item, item.labels))
    sides = {} if item.contexts else {"statements": item.statements[::-1], "references": item.references[::-1]}
    return item.model_copy(update={"contexts": item.contexts[::-1], "labels": labels, **sides})


def with_padding(item: Item) -> Item:
    """The item with its needless sentence at the end of each chunk."""
    return item.model_copy(update={"contexts": tuple(f"{context}\n{item.padding}" for context in item.contexts)})


def _same_order(_item: Item, given: Sequence[Any]) -> Sequence[Any]:
    return given


def _chunks_turned(_item: Item, given: Sequence[Any]) -> Sequence[Any]:
    return given[::-1]


def _sides_turned(item: Item, given: Sequence[Any]) -> Sequence[Any]:
    here = len(item.statements)
    return [*given[:here][::-1], *given[here:][::-1]]


def _verdicts(findings: Sequence[Finding], kind: str) -> list[Given]:
    return [Given(finding.verdict, tuple(finding.cites)) for finding in findings if finding.kind == kind]


def _facts(state: State, item: Item) -> list[Given]:
    """Whether facts were found; if so, all the numbers of the text and no others, none of them long."""
    statements: list[str] = state["answer_statements"]
    text = item.answer or ""
    if not statements:
        return [Given(NO_FACTS)]
    told = numbers_of(" ".join(statements))
    if told - numbers_of(f"{text} {item.question}"):
        return [Given(f"{FACTS}, numbers made up")]
    if numbers_of(text) - told:
        return [Given(f"{FACTS}, numbers lost")]
    if 2 * len(statements) < len(split_sentences(text)):
        return [Given(f"{FACTS}, not taken apart")]
    return [Given(FACTS)]


def _classified(state: State, _item: Item) -> list[Given]:
    findings = state["classifications"][0]
    return [*_verdicts(findings, "statement"), *_verdicts(findings, "reference_statement")]


def _selected(state: State, item: Item) -> list[Given]:
    verdicts = {finding.cites[0]: finding.verdict for finding in state["context_sentences"] if finding.cites}
    return [Given(verdicts[label.number]) for label in item.labels]


def _evasive(state: State, _item: Item) -> list[Given]:
    return [Given("evasive" if state["evasive"] else "answers")]


def _nearer(state: State, _item: Item) -> list[Given]:
    near, far = state["similarities"]
    return [Given("nearer" if near > far else "as near" if near == far else "farther")]


EXAMINATIONS: Mapping[str, Examination] = {
    "extract_statements": Examination(lambda judge: extract_statements(judge, of="answer"), _facts),
    "verify_statements": Examination(
        lambda judge: verify_statements(judge, of="answer"),
        lambda state, _: _verdicts(state["answer_verdicts"], "statement"),
        lambda item: {"answer_statements": list(item.statements)},
        turned=_same_order,
        padded=True,
    ),
    "classify_statements": Examination(
        classify_statements,
        _classified,
        lambda item: {"answer_statements": list(item.statements), "statements_by_reference": [list(item.references)]},
        turned=_sides_turned,
    ),
    "grade_contexts": Examination(
        lambda judge: grade_contexts(judge, against=lambda sample: "\n".join(sample.references)),
        lambda state, _: _verdicts(state["context_verdicts"], "context"),
        turned=_chunks_turned,
        padded=True,
    ),
    "select_sentences": Examination(select_sentences, _selected, turned=_same_order, padded=True),
    "regenerate_questions": Examination(lambda judge: regenerate_questions(judge, count=_QUESTIONS), _evasive),
    EMBEDDED: Examination(
        lambda embeddings: measure_similarity(embeddings, lambda state: (state["text"], [state["near"], state["far"]])),
        _nearer,
        lambda item: {"text": item.text, "near": item.near, "far": item.far},
        chance=0.5,
    ),
}
"""Step to its examination."""
