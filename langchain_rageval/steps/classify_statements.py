"""Classify the statements of the answer and of each reference against each other: TP, FP, FN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_rageval.data.schema import Finding, FindingKind, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import Classification
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step, slices
from langchain_rageval.steps.votes import agreement, majority

Numbered = Mapping[int, str]


@dataclass(frozen=True)
class Mark:
    """Whether the other side says a statement as well, and why."""

    shared: bool
    reason: str = ""


@dataclass(frozen=True)
class Marks:
    """The marks of answer statements and of reference statements, by number."""

    answer: dict[int, Mark] = field(default_factory=dict)
    reference: dict[int, Mark] = field(default_factory=dict)


class ClassifyStatements(Step):
    """Adds `classifications`, a list of Finding for each reference in order.

    Answer statements are "TP" or "FP", reference statements "TP" or "FN"; a reference statement both in FN and cited by
    a TP is "FN". Without statements on one side all of the other are "FP" or "FN", and nobody is asked. Both sides go
    out in slices of the judge's `max_statements`; what any slice shares is shared.
    """

    def work(self, state: State) -> Operation[State]:
        """One call for each reference, slice and vote."""
        sample: Sample = state["sample"]
        answers = dict(enumerate(state["answer_statements"], 1))
        sides = [dict(enumerate(texts, 1)) for texts in state["statements_by_reference"]]
        found = yield Gather([self._compare(sample.question, answers, references) for references in sides])
        return state | {"classifications": found}

    def _compare(self, question: str, answers: Numbered, references: Numbered) -> Operation[list[Finding]]:
        voters = voters_of(self.judge) if answers and references else []
        votes: list[Marks] = yield Gather([self._vote(voter, question, answers, references) for voter in voters])
        if not voters:
            nothing = Mark(shared=False)
            votes = [Marks(dict.fromkeys(answers, nothing), dict.fromkeys(references, nothing))]
        decided = [
            *_decided("statement", answers, [vote.answer for vote in votes], "FP"),
            *_decided("reference_statement", references, [vote.reference for vote in votes], "FN"),
        ]
        return [
            *decided,
            *agreement(answers, voters, [_labels(vote.answer, "FP") for vote in votes]),
            *agreement(references, voters, [_labels(vote.reference, "FN") for vote in votes]),
        ]

    def _vote(self, voter: Voter, question: str, answers: Numbered, references: Numbered) -> Operation[Marks]:
        size = voter.judge.max_statements
        parts: list[Marks] = yield Gather(
            [
                self._share(voter, question, some_answers, some_references)
                for some_answers in slices(answers, size)
                for some_references in slices(references, size)
            ]
        )
        return Marks(_united(part.answer for part in parts), _united(part.reference for part in parts))

    def _share(self, voter: Voter, question: str, answers: Numbered, references: Numbered) -> Operation[Marks]:
        asked = self._asked(voter, question, answers, references)
        work = self._classify(voter, asked, question, answers, references)
        marks: Marks = yield shared_question(voter.judge, asked, voter.draw, work)
        return marks

    def _classify(
        self,
        voter: Voter,
        asked: JudgeQuestion[Classification],
        question: str,
        answers: Numbered,
        references: Numbered,
    ) -> Operation[Marks]:
        """Ask until every statement has its mark."""
        attempts, marks = Attempts(voter.judge.attempts), Marks()
        while True:
            reply = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
            _settle(marks, reply, answers, references)
            missing = {number: text for number, text in answers.items() if number not in marks.answer}
            lost = {number: text for number, text in references.items() if number not in marks.reference}
            if not missing and not lost:
                return marks
            if not attempts.left:
                problem = f"no single place for the answer statements {[*missing]}, reference statements {[*lost]}"
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            asked = self._asked(voter, question, missing or answers, references if missing else lost)

    def _asked(
        self, voter: Voter, question: str, answers: Numbered, references: Numbered
    ) -> JudgeQuestion[Classification]:
        inputs = {
            "question": question,
            "answer_statements": [{"answer": number, "text": text} for number, text in answers.items()],
            "reference_statements": [{"reference": number, "text": text} for number, text in references.items()],
        }
        return self.question(inputs, None, language_from=question, judge=voter.judge)


def classify_statements(judge: JudgeLike) -> Step:
    """The step that compares the answer's statements with those of each reference."""
    return ClassifyStatements(prompt="classify_statements", judge=Judge.of(judge), answer=Classification)


def _settle(marks: Marks, reply: Classification, answers: Numbered, references: Numbered) -> None:
    """Note what a reply settles: unknown numbers are dropped, an answer statement in both lists stays open."""
    shared_ones = {item.answer: item.reason for item in reply.TP}
    wrong_ones = {item.answer: item.reason for item in reply.FP}
    for number in answers.keys() - marks.answer.keys():
        if (number in shared_ones) != (number in wrong_ones):
            reason = shared_ones.get(number, "") or wrong_ones.get(number, "")
            marks.answer[number] = Mark(number in shared_ones, reason)
    for miss in reply.FN:
        if miss.reference in references:
            marks.reference.setdefault(miss.reference, Mark(shared=False, reason=miss.reason))
    for hit in reply.TP:
        if hit.answer in answers and hit.answer not in wrong_ones:
            for number in hit.references:
                if number in references:
                    marks.reference.setdefault(number, Mark(shared=True, reason=hit.reason))


def _united(parts: Iterable[Mapping[int, Mark]]) -> dict[int, Mark]:
    """What is shared in any slice is shared."""
    united: dict[int, Mark] = {}
    for part in parts:
        for number, mark in part.items():
            if number not in united or (mark.shared and not united[number].shared):
                united[number] = mark
    return united


def _decided(
    kind: FindingKind, items: Numbered, votes: Sequence[Mapping[int, Mark]], otherwise: str
) -> Iterator[Finding]:
    for number, text in items.items():
        given = [vote[number] for vote in votes]
        shared_one = majority([mark.shared for mark in given], tie=False)
        reasons = dict.fromkeys(mark.reason for mark in given if mark.shared == shared_one)
        verdict = "TP" if shared_one else otherwise
        yield Finding(kind=kind, number=number, text=text, verdict=verdict, reason=" ".join(reasons))


def _labels(marks: Mapping[int, Mark], otherwise: str) -> dict[int, str]:
    return {number: "TP" if mark.shared else otherwise for number, mark in marks.items()}
