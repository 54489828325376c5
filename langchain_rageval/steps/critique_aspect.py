"""Judge one aspect of the answer, such as its coherence.

The judge reads the question, the answer, the name and the definition of the aspect, and numbered contexts if there are
any. Adds `aspect_verdict`, a list of Finding: one with the verdict "yes" or "no", then the agreement rate if there are
several votes. Always makes calls, one for each vote.
"""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, AspectVerdict
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, agreement_rates, majority, mean_probabilities


class CritiqueAspect(JudgeStep):
    """Step that adds `aspect_verdict`, a list of Finding: "yes" or "no", then the agreement rate.

    Contexts are background: if they exceed the judge's `max_context_tokens`, only their first window is sent.
    """

    aspect: str
    definition: str | None
    tie: bool

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the aspect applies: one request per vote (one repetition by one judge)."""
        sample: Sample = state["sample"]
        voters = voters_of(self.judge)
        answers: list[AspectVerdict] = yield Gather([self._vote(voter, sample) for voter in voters])
        applies = majority([answer.verdict for answer in answers], tie=self.tie)
        reasons = dict.fromkeys(answer.reason for answer in answers if answer.verdict == applies)
        finding = Finding(
            kind="aspect",
            number=1,
            text=self.aspect,
            verdict=_label(applies),
            reason=" ".join(reasons),
            probabilities=mean_probabilities(answers, "verdict", {"true": "yes", "false": "no"}),
        )
        labels = [{1: _label(answer.verdict)} for answer in answers]
        return state | {"aspect_verdict": [finding, *agreement_rates({1: self.aspect}, voters, labels)]}

    def _vote(self, voter: Voter, sample: Sample) -> Operation[AspectVerdict]:
        definition = self.definition or voter.judge.prompt_set(sample.question).common.aspects[self.aspect]
        inputs = {
            "question": sample.question,
            "answer": sample.answer,
            "aspect": self.aspect,
            "definition": definition,
        }
        windows = NumberedContexts.of(sample.contexts or []).windows(voter.judge.max_context_tokens)
        background = windows[0] if windows and windows[0].sentences else None
        question = self.build_question(
            inputs, background, language_from=sample.question, judge=voter.judge, limits=AnswerLimits()
        )
        answer: AspectVerdict = yield self.ask(question, voter)
        return answer


def critique_aspect(judge: JudgeLike, aspect: str, *, definition: str | None, tie: bool) -> JudgeStep:
    """Return the step that decides whether an aspect applies to the answer.

    Args:
        judge: judge to ask.
        aspect: name of the aspect.
        definition: definition of the aspect; None for the one in the prompts.
        tie: verdict if the votes are equal.

    Raises:
        ConfigError: if `definition` is None and the judge's own prompts do not define the aspect.
    """
    judge = Judge.of(judge)
    for prompts in (member.prompts for member in judge.members if definition is None):
        if prompts and aspect not in prompts.common.aspects:
            raise ConfigError(f"the judge's prompts do not define {aspect!r} under `aspects`; pass definition=...")
    return CritiqueAspect(
        prompt="critique_aspect",
        judge=judge,
        answer=AspectVerdict,
        aspect=aspect,
        definition=definition,
        tie=tie,
    )


def _label(applies: bool) -> str:
    return "yes" if applies else "no"
