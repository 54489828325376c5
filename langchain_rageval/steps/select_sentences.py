"""Select the context sentences that are needed to answer the question."""

from __future__ import annotations

from collections.abc import Callable

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import NeededSentences
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement, majority

NEEDED, NEEDLESS = "needed", "not needed"


class SelectSentences(Step):
    """Adds `context_sentences`, a list of Finding: one for each sentence in order, then the agreement of votes.

    A reply that names a sentence there is not, or a range, is asked again.
    """

    def work(self, state: State) -> Operation[State]:
        """One call for each window and vote; none when there is no sentence."""
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
                verdict=NEEDED if majority([number in vote for vote in votes], tie=False) else NEEDLESS,
                reason=" ".join(dict.fromkeys(vote[number] for vote in votes if number in vote)),
                cites=[number],
            )
            for place, (number, text) in enumerate(sentences.items(), 1)
        ]
        labels = [
            {place: NEEDED if number in vote else NEEDLESS for place, number in enumerate(sentences, 1)}
            for vote in votes
        ]
        agreements = agreement(dict(enumerate(sentences.values(), 1)), voters, labels)
        return state | {"context_sentences": [*findings, *agreements]}

    def _vote(self, voter: Voter, sample: Sample, contexts: NumberedContexts) -> Operation[dict[str, str]]:
        """Number of each needed sentence to the judge's reason."""
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts = yield Gather([self._selected(voter, sample, window) for window in windows])
        return {number: reason for part in parts for number, reason in part.items()}

    def _selected(self, voter: Voter, sample: Sample, window: NumberedContexts) -> Operation[dict[str, str]]:
        question = self.question(
            {"question": sample.question},
            window,
            language_from=sample.question,
            judge=voter.judge,
            objection=_objection(window),
        )
        answer: NeededSentences = yield self.asked(question, voter)
        return dict.fromkeys(window.cited(answer.sentences), answer.reason)


def select_sentences(judge: JudgeLike) -> Step:
    """The step that finds which sentences of the contexts an answer needs."""
    return SelectSentences(prompt="select_sentences", judge=Judge.of(judge), answer=NeededSentences)


def _objection(window: NumberedContexts) -> Callable[[NeededSentences], str | None]:
    def objection(answer: NeededSentences) -> str | None:
        unknown = [given for given in answer.sentences if not window.holds(given)]
        if not unknown:
            return None
        return (
            f"no sentences of the contexts: {unknown[:5]}; give single numbers such as {next(iter(window.sentences))!r}"
        )

    return objection
