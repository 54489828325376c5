"""Classify the statements of the answer against the statements of each reference: TP, FP, extra or FN.

The judge reads the question and the numbered statements of the answer and of one reference. A statement of the answer
is "TP" if the reference says it in full, "FP" if the reference contradicts it, else "extra": the reference says only a
part of it or nothing about it. A statement of the reference is "TP" if the answer says it in full, else "FN". The step
reads `answer_statements` and `statements_by_reference` from the state. It adds `classifications`, one list of Finding
for each reference in order. The list holds the findings on the answer statements, those on the reference statements
and, if there are several votes, the agreement rate of each statement. Makes no call for a reference if the reference or
the answer has no statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Classification
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.item_step import (
    Item,
    Items,
    ItemStep,
    Part,
    Ruling,
    Rulings,
    numbered_items,
    request_items,
    slices,
)
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

_REPEATED = "repeated"
"""Shown with a question that is repeated: what it still leaves open about a reference statement is not found."""


class ClassifyStatements(ItemStep):
    """Step that adds `classifications`, a list with one list of Finding for each reference in order.

    An answer statement is "TP" if the reference says it in full, "FP" if the reference contradicts it, else "extra":
    the reference says only a part of it, or nothing about it. An "extra" cites the numbers of the reference statements
    that it contains.

    A reference statement is "TP" if the answer statements together say all of it, else "FN". Each side is labelled for
    itself: an answer statement that says only a part of a reference statement is "TP", and the reference statement is
    "FN". If the judge omits a reference statement, the judge is asked once more; if it is omitted again, it is "FN". If
    one side has no statements, all statements of the other are "FP" or "FN" without a call.

    Both sides are sent in slices of the judge's `max_statements`. If slices give a statement different labels, the
    first of this list counts: "TP", "extra" with citations, "FP", "extra" without; for reference statements "TP", "FN".
    A reference statement whose parts are in answer statements of different slices is therefore "FN".
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which statements the answer and each reference share, and add the findings to the state.

        Makes one request per reference, pair of slices (at most `max_statements` statements of each side) and vote (one
        repetition by one judge). A reference without statements needs no request.
        """
        sample: Sample = state["sample"]
        answers = numbered_items(state["answer_statements"], "statement", ("TP", "extra", "FP"))
        sides = [numbered_items(one, "reference_statement", ("TP", "FN")) for one in state["statements_by_reference"]]
        items = [{(item.kind, item.number): item for item in (*answers.values(), *side.values())} for side in sides]
        findings = yield Gather([self.rule_on(sample, both) for both in items])
        return state | {"classifications": findings}

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        pairs = product(*(slices(side, judge.max_statements) for side in _sides(items)))
        return [(answers | references, None) for answers, references in pairs]

    def _again(self, part: Items, shown: Any, pending: Items) -> Part:
        """Return the pending statements of one side with all of the other; all of both if both have some."""
        (answers, references), (pending_answers, pending_references) = _sides(part), _sides(pending)
        if pending_answers and pending_references:
            return part, _REPEATED
        return pending_answers | references if pending_answers else answers | pending_references, _REPEATED

    def _rank(self, ruling: Ruling, item: Item) -> float:
        """Return a rank that is lower for a stronger ruling; an extra that contains nothing is weaker than an FP."""
        return super()._rank(ruling, item) + (1.5 if ruling.label == "extra" and not ruling.cites else 0)

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        answers, references = _sides(items)
        return {
            "question": sample.question,
            "answer_statements": request_items("answer", answers),
            "reference_statements": request_items("reference", references),
        }

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        own, theirs = (tuple(range(1, len(side) + 1)) for side in _sides(items))
        return AnswerLimits(
            values=(("answer", own), ("references", theirs), ("reference", theirs)),
            lengths=(("TP", len(own)), ("FP", len(own)), ("FN", len(theirs))),
        )

    def _read(self, answer: Any, items: Items, shown: Any) -> Rulings:
        """Return the rulings of an answer; unknown numbers are dropped.

        An answer statement in both TP and FP gets no ruling, nor does one in TP that names no existing reference
        statement. A reference statement is found if a TP or an extra names it and FN does not, because a TP may say
        only a part of it.
        """
        answers, references = (dict(enumerate(side, 1)) for side in _sides(items))
        hits = {hit.answer: hit.reason for hit in answer.TP if hit.answer in answers}
        proven = {hit.answer for hit in answer.TP if not references.keys().isdisjoint(hit.references)}
        alarms = {alarm.answer: alarm for alarm in answer.FP if alarm.answer in answers}
        rulings = {answers[place]: Ruling("TP", hits[place]) for place in hits if place in proven - alarms.keys()}
        extras = [alarm for alarm in alarms.values() if alarm.kind == "extra" and alarm.answer not in hits]
        rulings |= {answers[place]: Ruling("FP", alarms[place].reason) for place in alarms if place not in hits}
        for extra in extras:
            contained = tuple(str(references[place][1]) for place in extra.references if place in references)
            rulings[answers[extra.answer]] = Ruling("extra", extra.reason, contained)
        for miss in answer.FN:
            if miss.reference in references:
                rulings.setdefault(references[miss.reference], Ruling("FN", miss.reason))
        for hit in (*(hit for hit in answer.TP if hit.answer in answers and hit.answer not in alarms), *extras):
            for place in hit.references:
                if place in references:
                    rulings.setdefault(references[place], Ruling("TP", hit.reason))
        if shown is _REPEATED:
            rulings = {key: Ruling("FN") for key in references.values()} | rulings
        return rulings

    def _problem(self, missing: Items) -> str:
        answers, references = ([item.number for item in side.values()] for side in _sides(missing))
        return f"no single place for the answer statements {answers}, reference statements {references}"


def classify_statements(judge: JudgeLike) -> JudgeStep:
    """Return the step that compares the answer's statements with the statements of each reference.

    It reads the statements that `extract_statements` added to the state. An answer statement gets the verdict "TP" (the
    reference says it in full), "FP" (the reference contradicts it) or "extra" (neither). A reference statement gets
    "TP" (the answer says it in full) or "FN".
    """
    return ClassifyStatements(prompt="classify_statements", judge=judge, answer=Classification)


def _sides(items: Items) -> tuple[dict[Any, Item], dict[Any, Item]]:
    """Return the statements of the answer and those of the reference."""
    answers = {key: item for key, item in items.items() if item.kind == "statement"}
    return answers, {key: item for key, item in items.items() if key not in answers}
