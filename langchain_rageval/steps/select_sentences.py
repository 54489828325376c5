"""Select the context sentences that are needed to answer the question.

The judge reads the question and numbered contexts. Adds `context_sentences`, a list of Finding: one for each sentence
in order with the verdict "needed" or "not needed", then the agreement rates if there are several votes. Makes no call
if the contexts have no sentences; the list is then empty.
"""

from __future__ import annotations

from collections.abc import Callable

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, NeededSentences
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, agreement_rates, majority

NEEDED, NOT_NEEDED = "needed", "not needed"


class SelectSentences(JudgeStep):
    """Step that adds `context_sentences`, a list of Finding: one for each sentence in order, then the agreement rates.

    A reply with an unknown sentence number or a range is asked for again.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which sentences are needed to answer the question.

        One request per window (part of the contexts that fits one request) and vote (one repetition by one judge); no
        call if the contexts have no sentences.
        """
        sample: Sample = state["sample"]
        contexts = NumberedContexts.of(sample.contexts or [])
        sentences = contexts.sentences
        voters = voters_of(self.judge) if sentences else []
        votes: list[dict[str, str]] = yield Gather([self._vote(voter, sample, contexts) for voter in voters])
        findings = [
            Finding(
                kind="sentence",
                number=place,
                text=text,
                verdict=NEEDED if majority([number in vote for vote in votes], tie=False) else NOT_NEEDED,
                reason=" ".join(dict.fromkeys(vote[number] for vote in votes if number in vote)),
                cites=[number],
            )
            for place, (number, text) in enumerate(sentences.items(), 1)
        ]
        labels = [
            {place: NEEDED if number in vote else NOT_NEEDED for place, number in enumerate(sentences, 1)}
            for vote in votes
        ]
        agreement = agreement_rates(dict(enumerate(sentences.values(), 1)), voters, labels)
        return state | {"context_sentences": [*findings, *agreement]}

    def _vote(self, voter: Voter, sample: Sample, contexts: NumberedContexts) -> Operation[dict[str, str]]:
        """Return the needed sentences of one vote: sentence number to the judge's reason."""
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts = yield Gather([self._select(voter, sample, window) for window in windows])
        return {number: reason for part in parts for number, reason in part.items()}

    def _select(self, voter: Voter, sample: Sample, window: NumberedContexts) -> Operation[dict[str, str]]:
        question = self.build_question(
            {"question": sample.question},
            window,
            language_from=sample.question,
            judge=voter.judge,
            objection=_objection(window),
            limits=AnswerLimits(values=(("sentences", tuple(window.sentences)),)),
        )
        answer: NeededSentences = yield self.ask(question, voter)
        return dict.fromkeys(window.resolve(answer.sentences), answer.reason)


def select_sentences(judge: JudgeLike) -> JudgeStep:
    """Return the step that selects the sentences that an answer needs."""
    return SelectSentences(prompt="select_sentences", judge=Judge.of(judge), answer=NeededSentences)


def _objection(window: NumberedContexts) -> Callable[[NeededSentences], str | None]:
    def objection(answer: NeededSentences) -> str | None:
        unknown = [citation for citation in answer.sentences if not window.is_citation(citation)]
        if not unknown:
            return None
        return (
            f"no sentences of the contexts: {unknown[:5]}; give single numbers such as {next(iter(window.sentences))!r}"
        )

    return objection
