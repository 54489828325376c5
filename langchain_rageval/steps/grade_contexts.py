"""Grade each chunk: useful for the question, and the answer if there is one to judge it against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import ContextVerdict, ContextVerdicts
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement, majority

ByNumber = dict[int, ContextVerdict]

USEFUL, USELESS = "useful", "not useful"


class GradeContexts(Step):
    """Adds `context_verdicts`, a list of Finding: one for each chunk in retrieval order, then the agreement of votes.

    A blank chunk is not useful, whatever the judge says. A chunk cut by a window is useful if any part of it is.
    """

    against: Callable[[Sample], str]

    def work(self, state: State) -> Operation[State]:
        """One call for each window and vote; none when no chunk holds a word."""
        sample: Sample = state["sample"]
        texts = dict(enumerate(sample.contexts or [], 1))
        contexts = NumberedContexts.of(texts.values())
        inputs = {"question": sample.question, "answer": self.against(sample)}
        voters = voters_of(self.judge) if contexts.sentences else []
        votes: list[ByNumber] = yield Gather([self._vote(voter, inputs, contexts) for voter in voters])
        blank = {number: ContextVerdict(context=number, reason="", useful=False) for number in texts}
        votes = [blank | vote for vote in votes]
        labels = [{number: USEFUL if v.useful else USELESS for number, v in vote.items()} for vote in votes]
        findings = [
            _decided(number, text, [vote[number] for vote in votes or [blank]]) for number, text in texts.items()
        ]
        return state | {"context_verdicts": [*findings, *agreement(texts, voters, labels)]}

    def _vote(self, voter: Voter, inputs: Mapping[str, str], contexts: NumberedContexts) -> Operation[ByNumber]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[ByNumber] = yield Gather([self._share(voter, inputs, window) for window in windows])
        graded: ByNumber = {}
        for part in parts:
            for number, verdict in part.items():
                if number not in graded or (verdict.useful and not graded[number].useful):
                    graded[number] = verdict
        return graded

    def _share(self, voter: Voter, inputs: Mapping[str, str], window: NumberedContexts) -> Operation[ByNumber]:
        asked = self._asked(voter, inputs, window)
        graded: ByNumber = yield shared_question(
            voter.judge, asked, voter.draw, self._grade(voter, asked, inputs, window)
        )
        return graded

    def _grade(
        self, voter: Voter, asked: JudgeQuestion[ContextVerdicts], inputs: Mapping[str, str], window: NumberedContexts
    ) -> Operation[ByNumber]:
        """Ask until every chunk has one verdict."""
        attempts, graded = Attempts(voter.judge.attempts), ByNumber()
        chunks = list(dict.fromkeys(line.chunk for line in window.lines if line.sentence))
        while True:
            reply = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
            graded = _agreed(reply.verdicts, chunks) | graded
            missing = [number for number in chunks if number not in graded]
            if not missing:
                return graded
            if not attempts.left:
                problem = f"no single verdict for the chunks {missing}"
                raise JudgeOutputError(problem, self.get_name(), reply.model_dump_json())
            asked = self._asked(voter, inputs, window.only(missing))

    def _asked(
        self, voter: Voter, inputs: Mapping[str, str], window: NumberedContexts
    ) -> JudgeQuestion[ContextVerdicts]:
        return self.question(inputs, window, language_from=inputs["question"], judge=voter.judge)


def grade_contexts(judge: JudgeLike, *, against: Callable[[Sample], str]) -> Step:
    """The step that grades chunks.

    Args:
        judge: who is asked.
        against: from a sample to the answer that a useful chunk helps to give; "" for the question alone.
    """
    return GradeContexts(prompt="grade_contexts", judge=Judge.of(judge), answer=ContextVerdicts, against=against)


def _agreed(given: Iterable[ContextVerdict], chunks: Iterable[int]) -> ByNumber:
    """The verdicts by number: unknown numbers dropped, agreeing doubles collapsed, conflicting ones left out."""
    by_number: dict[int, list[ContextVerdict]] = {number: [] for number in chunks}
    for verdict in given:
        if verdict.context in by_number:
            by_number[verdict.context].append(verdict)
    return {n: doubles[0] for n, doubles in by_number.items() if len({v.useful for v in doubles}) == 1}


def _decided(number: int, text: str, votes: list[ContextVerdict]) -> Finding:
    useful = majority([vote.useful for vote in votes], tie=False)
    reasons = dict.fromkeys(vote.reason for vote in votes if vote.useful == useful)
    verdict = USEFUL if useful else USELESS
    return Finding(kind="context", number=number, text=text, verdict=verdict, reason=" ".join(reasons))
