"""Grade how relevant each chunk is to the question, whatever the order in which the chunks were retrieved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import RelevanceGrade, RelevanceGrades
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement

ByNumber = dict[int, RelevanceGrade]


class GradeRelevance(Step):
    """Adds `grades`, a list of Finding: one for each chunk in retrieval order, then the agreement of votes.

    The judge sees the chunks in the order of a hash of their content, since it flatters what comes first; equal chunks
    it sees once. A blank chunk gets the lowest grade without being asked about. Of several votes the median holds; a
    chunk cut by a window gets the best grade of its parts.
    """

    scale: tuple[int, int]
    pointwise: bool

    @property
    def instrument(self) -> dict[str, Any]:
        """All that could change the grades except the chunks."""
        return {**super().instrument, "scale": self.scale, "pointwise": self.pointwise}

    def work(self, state: State) -> Operation[State]:
        """One call for each window and vote, or for each chunk and vote; none when no chunk holds a word."""
        sample: Sample = state["sample"]
        texts = sample.contexts or []
        distinct = sorted({text for text in texts if text.strip()}, key=_digest)
        blocks = [NumberedContexts.of([text]) for text in distinct]
        worded = [text for text, block in zip(distinct, blocks, strict=True) if block.sentences]
        voters = voters_of(self.judge) if worded else []
        votes: list[dict[str, RelevanceGrade]] = yield Gather([self._vote(b, sample, worded) for b in voters])
        findings = [self._decided(place, text, votes) for place, text in enumerate(texts, 1)]
        numbered = {place: text for place, text in enumerate(texts, 1) if votes and text in votes[0]}
        labels = [{place: str(vote[text].grade) for place, text in numbered.items()} for vote in votes]
        return state | {"grades": [*findings, *agreement(numbered, voters, labels)]}

    def _vote(self, voter: Voter, sample: Sample, texts: Sequence[str]) -> Operation[dict[str, RelevanceGrade]]:
        """Text of each chunk to its grade."""
        groups = [[text] for text in texts] if self.pointwise else [texts]
        blocks = [NumberedContexts.of(group) for group in groups]
        graded: list[ByNumber] = yield Gather([self._graded(voter, sample.question, block) for block in blocks])
        pairs = zip(groups, graded, strict=True)
        return {text: grades[number] for group, grades in pairs for number, text in enumerate(group, 1)}

    def _graded(self, voter: Voter, question: str, contexts: NumberedContexts) -> Operation[ByNumber]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[ByNumber] = yield Gather([self._share(voter, question, window) for window in windows])
        best: ByNumber = {}
        for part in parts:
            for number, grade in part.items():
                if number not in best or grade.grade > best[number].grade:
                    best[number] = grade
        return best

    def _share(self, voter: Voter, question: str, window: NumberedContexts) -> Operation[ByNumber]:
        asked = self._asked(voter, question, window)
        grades: ByNumber = yield shared_question(
            voter.judge, asked, voter.draw, self._grade(voter, asked, question, window)
        )
        return grades

    def _grade(
        self, voter: Voter, asked: JudgeQuestion[RelevanceGrades], question: str, window: NumberedContexts
    ) -> Operation[ByNumber]:
        """Ask until every chunk has one grade on the scale."""
        attempts, graded = Attempts(voter.judge.attempts), ByNumber()
        chunks = list(dict.fromkeys(line.chunk for line in window.lines if line.sentence))
        while True:
            reply = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
            graded = self._agreed(reply.grades, chunks) | graded
            missing = [number for number in chunks if number not in graded]
            if not missing:
                return graded
            if not attempts.left:
                problem = f"no single grade from {self.scale[0]} to {self.scale[1]} for the chunks {missing}"
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            asked = self._asked(voter, question, window.only(missing))

    def _asked(self, voter: Voter, question: str, window: NumberedContexts) -> JudgeQuestion[RelevanceGrades]:
        inputs = {"question": question, "scale": list(self.scale)}
        return self.question(inputs, window, language_from=question, judge=voter.judge)

    def _agreed(self, given: Iterable[RelevanceGrade], chunks: Iterable[int]) -> ByNumber:
        """The grades by number: agreeing doubles collapsed; conflicting ones, and grades off the scale, left out."""
        by_number: dict[int, list[RelevanceGrade]] = {number: [] for number in chunks}
        for grade in given:
            if grade.context in by_number:
                by_number[grade.context].append(grade)
        single = {n: doubles[0] for n, doubles in by_number.items() if len({g.grade for g in doubles}) == 1}
        return {n: grade for n, grade in single.items() if self.scale[0] <= grade.grade <= self.scale[1]}

    def _decided(self, number: int, text: str, votes: Sequence[Mapping[str, RelevanceGrade]]) -> Finding:
        given = [vote[text] for vote in votes if text in vote]
        grade = median_low([vote.grade for vote in given]) if given else self.scale[0]
        reasons = dict.fromkeys(vote.reason for vote in given if vote.grade == grade)
        return Finding(kind="context", number=number, text=text, verdict=str(grade), reason=" ".join(reasons))


def grade_relevance(judge: JudgeLike, *, scale: tuple[int, int], pointwise: bool) -> Step:
    """The step that grades chunks by their relevance.

    Args:
        judge: who is asked.
        scale: the lowest and the highest grade.
        pointwise: ask about one chunk at a time.
    """
    return GradeRelevance(
        prompt="grade_relevance", judge=Judge.of(judge), answer=RelevanceGrades, scale=scale, pointwise=pointwise
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
