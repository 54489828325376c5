"""Steps that judge contexts one by one: useful or not, and how relevant on a scale."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import (
    AnswerLimits,
    ContextVerdict,
    ContextVerdicts,
    RelevanceGrade,
    RelevanceGrades,
)
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    State,
    agreement_rates,
    grade_probabilities,
    majority,
    mean_probabilities,
    numbers_by_place,
)

_VerdictByChunk = dict[int, ContextVerdict]

USEFUL, NOT_USEFUL = "useful", "not useful"


class GradeContexts(JudgeStep):
    """Step that adds `context_verdicts`, a list of Finding: one for each chunk in order, then the agreement rates.

    A blank chunk is not useful, whatever the judge replies. A chunk that is split between windows is useful if any of
    its parts is.
    """

    against: Callable[[Sample], str]

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which chunks are useful.

        One request per window (part of the contexts that fits one request) and vote (one repetition by one judge); no
        call if the contexts have no sentences.
        """
        sample: Sample = state["sample"]
        texts = dict(enumerate(sample.contexts or [], 1))
        contexts = NumberedContexts.of(texts.values())
        inputs = {"question": sample.question, "answer": self.against(sample)}
        voters = voters_of(self.judge) if contexts.sentences else []
        votes: list[_VerdictByChunk] = yield Gather([self._vote(voter, inputs, contexts) for voter in voters])
        blank = {number: ContextVerdict(context=number, reason="", useful=False) for number in texts}
        votes = [blank | vote for vote in votes]
        labels = [{number: USEFUL if v.useful else NOT_USEFUL for number, v in vote.items()} for vote in votes]
        findings = [
            _majority_finding(number, text, [vote[number] for vote in votes or [blank]])
            for number, text in texts.items()
        ]
        return state | {"context_verdicts": [*findings, *agreement_rates(texts, voters, labels)]}

    def _vote(self, voter: Voter, inputs: Mapping[str, str], contexts: NumberedContexts) -> Operation[_VerdictByChunk]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[_VerdictByChunk] = yield Gather([self._grade_shared(voter, inputs, window) for window in windows])
        graded: _VerdictByChunk = {}
        for part in parts:
            for number, verdict in part.items():
                if number not in graded or (verdict.useful and not graded[number].useful):
                    graded[number] = verdict
        return graded

    def _grade_shared(
        self, voter: Voter, inputs: Mapping[str, str], window: NumberedContexts
    ) -> Operation[_VerdictByChunk]:
        judge_question = self._judge_question(voter, inputs, window)
        work = self._grade(voter, judge_question, inputs, window)
        graded: _VerdictByChunk = yield shared_question(voter.judge, judge_question, voter.draw, work, window.chunks)
        return graded

    def _grade(
        self,
        voter: Voter,
        judge_question: JudgeQuestion[ContextVerdicts],
        inputs: Mapping[str, str],
        window: NumberedContexts,
    ) -> Operation[_VerdictByChunk]:
        """Ask one judge about the chunks in a window, and repeat the question for chunks without a clear verdict."""
        attempts, graded = Attempts(voter.judge.attempts), _VerdictByChunk()
        chunks = list(dict.fromkeys(line.chunk for line in window.lines if line.sentence))
        pending = window
        while True:
            reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
            verdicts = _consistent(reply.verdicts, pending.chunks) | graded
            graded = {number: verdicts[number] for number in chunks if number in verdicts}
            missing = [number for number in chunks if number not in graded]
            if not missing:
                return graded
            if not attempts.left:
                problem = f"no single verdict for the chunks {missing}"
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            pending = window.select(missing)
            judge_question = repeat_question(self._judge_question(voter, inputs, pending))

    def _judge_question(
        self, voter: Voter, inputs: Mapping[str, str], window: NumberedContexts
    ) -> JudgeQuestion[ContextVerdicts]:
        contexts = window.numbered_from_one()
        numbers = tuple(dict.fromkeys(line.chunk for line in contexts.lines if line.sentence))
        limits = AnswerLimits(items=("verdicts", "context", numbers))
        return self.build_question(inputs, contexts, language_from=inputs["question"], judge=voter.judge, limits=limits)


def grade_contexts(judge: JudgeLike, *, against: Callable[[Sample], str]) -> JudgeStep:
    """Return the step that grades the usefulness of chunks.

    Args:
        judge: judge to ask.
        against: function from a sample to the answer that a useful chunk helps to give; "" for the question alone.
    """
    return GradeContexts(prompt="grade_contexts", judge=Judge.of(judge), answer=ContextVerdicts, against=against)


def _consistent(verdicts: Iterable[ContextVerdict], chunks: Iterable[int]) -> _VerdictByChunk:
    """Return the verdicts by the chunks' own numbers; unknown chunks are dropped, conflicting duplicates omitted."""
    numbers = numbers_by_place(chunks)
    by_number: dict[int, list[ContextVerdict]] = {number: [] for number in numbers.values()}
    for verdict in verdicts:
        if number := numbers.get(verdict.context):
            by_number[number].append(verdict.model_copy(update={"context": number}))
    return {n: doubles[0] for n, doubles in by_number.items() if len({v.useful for v in doubles}) == 1}


def _majority_finding(number: int, text: str, votes: list[ContextVerdict]) -> Finding:
    useful = majority([vote.useful for vote in votes], tie=False)
    reasons = dict.fromkeys(vote.reason for vote in votes if vote.useful == useful)
    verdict = USEFUL if useful else NOT_USEFUL
    return Finding(
        kind="context",
        number=number,
        text=text,
        verdict=verdict,
        reason=" ".join(reasons),
        probabilities=mean_probabilities(votes, "useful", {"true": USEFUL, "false": NOT_USEFUL}),
    )


_GradeByChunk = dict[int, RelevanceGrade]


class GradeRelevance(JudgeStep):
    """Step that adds `grades`, a list of Finding: one for each chunk in retrieval order, then the agreement rates.

    The judge sees the chunks in the order of a hash of their content, because judges favour early chunks; equal chunks
    are sent once. Blank chunks are not sent and get the lowest grade. Of several votes the lower median decides; a
    chunk that is split between windows gets the best grade of its parts.
    """

    scale: tuple[int, int]
    pointwise: bool

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its grades: judge, prompts, schema, scale and `pointwise`."""
        return {**super().instrument, "scale": self.scale, "pointwise": self.pointwise}

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for the relevance grades of the chunks.

        One request per window (part of the contexts that fits one request), or per chunk if `pointwise` is set, and
        vote (one repetition by one judge); no call if no chunk has a sentence.
        """
        sample: Sample = state["sample"]
        texts = sample.contexts or []
        distinct = sorted({text for text in texts if text.strip()}, key=_digest)
        blocks = [NumberedContexts.of([text]) for text in distinct]
        worded = [text for text, block in zip(distinct, blocks, strict=True) if block.sentences]
        voters = voters_of(self.judge) if worded else []
        votes: list[dict[str, RelevanceGrade]] = yield Gather([self._vote(voter, sample, worded) for voter in voters])
        findings = [self._median_finding(place, text, votes) for place, text in enumerate(texts, 1)]
        numbered = {place: text for place, text in enumerate(texts, 1) if votes and text in votes[0]}
        labels = [{place: str(vote[text].grade) for place, text in numbered.items()} for vote in votes]
        return state | {"grades": [*findings, *agreement_rates(numbered, voters, labels)]}

    def _vote(self, voter: Voter, sample: Sample, texts: Sequence[str]) -> Operation[dict[str, RelevanceGrade]]:
        """Return the grades of one vote, keyed by the texts of the chunks."""
        groups = [[text] for text in texts] if self.pointwise else [texts]
        blocks = [NumberedContexts.of(group) for group in groups]
        graded: list[_GradeByChunk] = yield Gather(
            [self._grade_windows(voter, sample.question, block) for block in blocks]
        )
        pairs = zip(groups, graded, strict=True)
        return {text: grades[number] for group, grades in pairs for number, text in enumerate(group, 1)}

    def _grade_windows(self, voter: Voter, question: str, contexts: NumberedContexts) -> Operation[_GradeByChunk]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[_GradeByChunk] = yield Gather([self._grade_shared(voter, question, window) for window in windows])
        best: _GradeByChunk = {}
        for part in parts:
            for number, grade in part.items():
                if number not in best or grade.grade > best[number].grade:
                    best[number] = grade
        return best

    def _grade_shared(self, voter: Voter, question: str, window: NumberedContexts) -> Operation[_GradeByChunk]:
        judge_question = self._judge_question(voter, question, window)
        work = self._grade(voter, judge_question, question, window)
        grades: _GradeByChunk = yield shared_question(voter.judge, judge_question, voter.draw, work, window.chunks)
        return grades

    def _grade(
        self, voter: Voter, judge_question: JudgeQuestion[RelevanceGrades], question: str, window: NumberedContexts
    ) -> Operation[_GradeByChunk]:
        """Ask one judge to grade the chunks in a window, and repeat the question for chunks without a valid grade."""
        attempts, graded = Attempts(voter.judge.attempts), _GradeByChunk()
        chunks = list(dict.fromkeys(line.chunk for line in window.lines if line.sentence))
        pending = window
        while True:
            reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
            graded = self._valid_grades(reply.grades, pending.chunks) | graded
            missing = [number for number in chunks if number not in graded]
            if not missing:
                return graded
            if not attempts.left:
                problem = f"no single grade from {self.scale[0]} to {self.scale[1]} for the chunks {missing}"
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            pending = window.select(missing)
            judge_question = repeat_question(self._judge_question(voter, question, pending))

    def _judge_question(self, voter: Voter, question: str, window: NumberedContexts) -> JudgeQuestion[RelevanceGrades]:
        inputs = {"question": question, "scale": list(self.scale)}
        contexts = window.numbered_from_one()
        numbers = tuple(dict.fromkeys(line.chunk for line in contexts.lines if line.sentence))
        grades = tuple(range(self.scale[0], self.scale[1] + 1))
        limits = AnswerLimits(items=("grades", "context", numbers), values=(("grade", grades),))
        return self.build_question(inputs, contexts, language_from=question, judge=voter.judge, limits=limits)

    def _valid_grades(self, grades: Iterable[RelevanceGrade], chunks: Iterable[int]) -> _GradeByChunk:
        """Return the grades by the chunks' own numbers.

        Unknown chunks, conflicting duplicates and grades off the scale are omitted.
        """
        numbers = numbers_by_place(chunks)
        by_number: dict[int, list[RelevanceGrade]] = {number: [] for number in numbers.values()}
        for grade in grades:
            if number := numbers.get(grade.context):
                by_number[number].append(grade.model_copy(update={"context": number}))
        single = {n: doubles[0] for n, doubles in by_number.items() if len({g.grade for g in doubles}) == 1}
        return {n: grade for n, grade in single.items() if self.scale[0] <= grade.grade <= self.scale[1]}

    def _median_finding(self, number: int, text: str, votes: Sequence[Mapping[str, RelevanceGrade]]) -> Finding:
        grades = [vote[text] for vote in votes if text in vote]
        median = median_low([grade.grade for grade in grades]) if grades else self.scale[0]
        reasons = dict.fromkeys(grade.reason for grade in grades if grade.grade == median)
        return Finding(
            kind="context",
            number=number,
            text=text,
            verdict=str(median),
            reason=" ".join(reasons),
            probabilities=grade_probabilities(grades, self.scale),
        )


def grade_relevance(judge: JudgeLike, *, scale: tuple[int, int], pointwise: bool) -> JudgeStep:
    """Return the step that grades the relevance of chunks.

    Args:
        judge: judge to ask.
        scale: the lowest and the highest grade.
        pointwise: send one chunk at a time.
    """
    return GradeRelevance(
        prompt="grade_relevance", judge=Judge.of(judge), answer=RelevanceGrades, scale=scale, pointwise=pointwise
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
