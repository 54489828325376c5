"""Grade each chunk as useful or not for the question, or for a given answer to it.

The judge reads the question, the answer to judge against (or "") and numbered contexts. Adds `context_verdicts`, a list
of Finding: one for each chunk in retrieval order with the verdict "useful" or "not useful", then the agreement rates if
there are several votes. Makes no call if the contexts have no sentences; no chunk is then useful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import ContextVerdict, ContextVerdicts
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, numbers_by_place
from langchain_rageval.steps.votes import agreement_rates, majority, mean_probabilities

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
