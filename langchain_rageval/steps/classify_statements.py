"""Classify the statements of the answer against those of each reference: TP, FP or FN.

The judge reads the question and the numbered statements of the answer and of one reference. Reads `answer_statements`
and `statements_by_reference` from the state and adds `classifications`: for each reference in order, a list of Finding
with the answer statements, the reference statements, then the agreement rates if there are several votes. Makes no call
for a reference if it or the answer has no statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_rageval.data.schema import Finding, FindingKind, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Classification, TruePositive
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    NumberedTexts,
    State,
    agreement_rates,
    item_numbers,
    majority,
    numbers_by_place,
    request_items,
    slices,
)


@dataclass(frozen=True)
class _Mark:
    """Mark of a statement: whether the other side (answer or reference) also states it, with the reason."""

    shared: bool
    reason: str = ""


@dataclass(frozen=True)
class _Marks:
    """Marks of the answer statements and of the reference statements, by number."""

    answer: dict[int, _Mark] = field(default_factory=dict)
    reference: dict[int, _Mark] = field(default_factory=dict)


class ClassifyStatements(JudgeStep):
    """Step that adds `classifications`, a list with one list of Finding for each reference in order.

    Answer statements are "TP" or "FP", reference statements "TP" or "FN". A reference statement that says more than the
    answer's statements say together is "FN", although an answer statement that is a part of it is "TP". If one side has
    no statements, all statements of the other are "FP" or "FN" without a call. Both sides are sent in slices of the
    judge's `max_statements`; a statement that any slice shares is "TP". A reference statement whose parts are in answer
    statements of different slices is "FN".
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which statements the answer and each reference share.

        One request per reference, pair of slices (at most `max_statements` statements of each side) and
        vote (one repetition by one judge). A reference without statements needs no call.
        """
        sample: Sample = state["sample"]
        answers = dict(enumerate(state["answer_statements"], 1))
        sides = [dict(enumerate(texts, 1)) for texts in state["statements_by_reference"]]
        findings = yield Gather([self._compare(sample.question, answers, references) for references in sides])
        return state | {"classifications": findings}

    def _compare(self, question: str, answers: NumberedTexts, references: NumberedTexts) -> Operation[list[Finding]]:
        voters = voters_of(self.judge) if answers and references else []
        votes: list[_Marks] = yield Gather([self._vote(voter, question, answers, references) for voter in voters])
        if not voters:
            unshared = _Mark(shared=False)
            votes = [_Marks(dict.fromkeys(answers, unshared), dict.fromkeys(references, unshared))]
        return [
            *_majority_findings("statement", answers, [vote.answer for vote in votes], "FP"),
            *_majority_findings("reference_statement", references, [vote.reference for vote in votes], "FN"),
            *agreement_rates(answers, voters, [_labels(vote.answer, "FP") for vote in votes]),
            *agreement_rates(references, voters, [_labels(vote.reference, "FN") for vote in votes]),
        ]

    def _vote(
        self, voter: Voter, question: str, answers: NumberedTexts, references: NumberedTexts
    ) -> Operation[_Marks]:
        size = voter.judge.max_statements
        parts: list[_Marks] = yield Gather(
            [
                self._classify_shared(voter, question, some_answers, some_references)
                for some_answers in slices(answers, size)
                for some_references in slices(references, size)
            ]
        )
        return _Marks(_merge_slices(part.answer for part in parts), _merge_slices(part.reference for part in parts))

    def _classify_shared(
        self, voter: Voter, question: str, answers: NumberedTexts, references: NumberedTexts
    ) -> Operation[_Marks]:
        judge_question = self._judge_question(voter, question, answers, references)
        work = self._classify(voter, judge_question, question, answers, references)
        marks: _Marks = yield shared_question(voter.judge, judge_question, voter.draw, work, [*answers, 0, *references])
        return marks

    def _classify(
        self,
        voter: Voter,
        judge_question: JudgeQuestion[Classification],
        question: str,
        answers: NumberedTexts,
        references: NumberedTexts,
    ) -> Operation[_Marks]:
        """Ask one judge to classify two slices of statements, and repeat the question for statements without a mark."""
        attempts, marks = Attempts(voter.judge.attempts), _Marks()
        pending_answers, pending_references = answers, references
        while True:
            reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
            _record_marks(marks, _with_own_numbers(reply, pending_answers, pending_references), answers, references)
            missing_answers = {n: text for n, text in answers.items() if n not in marks.answer}
            missing_references = {n: text for n, text in references.items() if n not in marks.reference}
            if not missing_answers and not missing_references:
                return marks
            if not attempts.left:
                problem = (
                    f"no single place for the answer statements {[*missing_answers]}, "
                    f"reference statements {[*missing_references]}"
                )
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            pending_answers = missing_answers or answers
            pending_references = references if missing_answers else missing_references
            judge_question = repeat_question(self._judge_question(voter, question, pending_answers, pending_references))

    def _judge_question(
        self, voter: Voter, question: str, answers: NumberedTexts, references: NumberedTexts
    ) -> JudgeQuestion[Classification]:
        inputs = {
            "question": question,
            "answer_statements": request_items("answer", answers),
            "reference_statements": request_items("reference", references),
        }
        own, theirs = item_numbers(len(answers)), item_numbers(len(references))
        limits = AnswerLimits(
            values=(("answer", own), ("references", theirs), ("reference", theirs)),
            lengths=(("TP", len(own)), ("FP", len(own)), ("FN", len(theirs))),
        )
        return self.build_question(inputs, None, language_from=question, judge=voter.judge, limits=limits)


def classify_statements(judge: JudgeLike) -> JudgeStep:
    """Return the step that classifies the statements of `extract_statements` against those of each reference."""
    return ClassifyStatements(prompt="classify_statements", judge=Judge.of(judge), answer=Classification)


def _with_own_numbers(reply: Classification, answers: Iterable[int], references: Iterable[int]) -> Classification:
    """Return a reply with the statements' own numbers in place of those in the request; unknown ones are dropped."""
    answer_numbers, reference_numbers = numbers_by_place(answers), numbers_by_place(references)

    def own_references(hit: TruePositive) -> list[int]:
        return [reference_numbers[place] for place in hit.references if place in reference_numbers]

    return Classification(
        TP=[
            hit.model_copy(update={"answer": answer_numbers[hit.answer], "references": own_references(hit)})
            for hit in reply.TP
            if hit.answer in answer_numbers
        ],
        FP=[
            item.model_copy(update={"answer": answer_numbers[item.answer]})
            for item in reply.FP
            if item.answer in answer_numbers
        ],
        FN=[
            item.model_copy(update={"reference": reference_numbers[item.reference]})
            for item in reply.FN
            if item.reference in reference_numbers
        ],
    )


def _record_marks(marks: _Marks, reply: Classification, answers: NumberedTexts, references: NumberedTexts) -> None:
    """Add the marks (TP, FP, FN) of a reply; unknown numbers are dropped.

    An answer statement in both TP and FP gets no mark, nor does one in TP that names no existing reference statement. A
    reference statement is found if a TP names it and FN does not, because a TP may say only a part of it.
    """
    hits = {item.answer: item.reason for item in reply.TP}
    proven = {item.answer for item in reply.TP if not references.keys().isdisjoint(item.references)}
    false_alarms = {item.answer: item.reason for item in reply.FP}
    for number in answers.keys() - marks.answer.keys():
        if (number in hits) != (number in false_alarms) and (number in proven or number in false_alarms):
            reason = hits.get(number, "") or false_alarms.get(number, "")
            marks.answer[number] = _Mark(number in hits, reason)
    for miss in reply.FN:
        if miss.reference in references:
            marks.reference.setdefault(miss.reference, _Mark(shared=False, reason=miss.reason))
    for hit in reply.TP:
        if hit.answer in answers and hit.answer not in false_alarms:
            for number in hit.references:
                if number in references:
                    marks.reference.setdefault(number, _Mark(shared=True, reason=hit.reason))


def _merge_slices(parts: Iterable[Mapping[int, _Mark]]) -> dict[int, _Mark]:
    """Merge the marks of several slices (parts of the statements): a statement that any slice shares is shared."""
    merged: dict[int, _Mark] = {}
    for part in parts:
        for number, mark in part.items():
            if number not in merged or (mark.shared and not merged[number].shared):
                merged[number] = mark
    return merged


def _majority_findings(
    kind: FindingKind, items: NumberedTexts, votes: Sequence[Mapping[int, _Mark]], otherwise: str
) -> Iterator[Finding]:
    for number, text in items.items():
        marks = [vote[number] for vote in votes]
        is_shared = majority([mark.shared for mark in marks], tie=False)
        reasons = dict.fromkeys(mark.reason for mark in marks if mark.shared == is_shared)
        verdict = "TP" if is_shared else otherwise
        yield Finding(kind=kind, number=number, text=text, verdict=verdict, reason=" ".join(reasons))


def _labels(marks: Mapping[int, _Mark], otherwise: str) -> dict[int, str]:
    return {number: "TP" if mark.shared else otherwise for number, mark in marks.items()}
