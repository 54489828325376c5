"""Judge one aspect of the answer, such as its coherence.

The judge reads the question, the answer, the name and the definition of the aspect, and numbered contexts if there are
any. Adds `aspect_verdict`, a list of Finding: one with the verdict "yes" or "no", then the agreement rate if there are
several votes. Always makes calls, one for each vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.asking import JudgeQuestion
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, AspectVerdict
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.item_step import Item, Items, ItemStep, Part, background_of, with_cut
from langchain_rageval.steps.judge_step import JudgeStep, State


class CritiqueAspect(ItemStep):
    """Step that adds `aspect_verdict`, a list of Finding: "yes" or "no", then the agreement rate.

    Contexts are background: if they exceed the judge's `max_context_tokens`, only their first window is sent.
    """

    list_field = ""
    label_names: ClassVar[Mapping[str, str]] = {"true": "yes", "false": "no"}

    aspect: str
    definition: str | None

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the aspect applies: one request per vote (one repetition by one judge)."""
        sample: Sample = state["sample"]
        item, contexts = Item("aspect", 1, self.aspect, ("yes", "no")), NumberedContexts.of(sample.contexts or [])
        findings = yield from self.rule_on(sample, {1: item}, contexts)
        return self.with_findings(with_cut(state, contexts, self.judge), "aspect_verdict", findings)

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        return [(items, background_of(shown, judge))]

    def _question(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> JudgeQuestion[Any]:
        inputs = {
            "question": sample.question,
            "answer": sample.answer,
            "aspect": self.aspect,
            "definition": self.definition or judge.prompt_set(sample.language_text).common.aspects[self.aspect],
        }
        return self.build_question(
            inputs, shown, language_from=sample.language_text, judge=judge, limits=AnswerLimits()
        )


def critique_aspect(judge: JudgeLike, aspect: str, *, definition: str | None) -> JudgeStep:
    """Return the step that decides whether an aspect applies to the answer.

    Args:
        judge: judge to ask.
        aspect: name of the aspect.
        definition: definition of the aspect; None for the one in the prompts.

    Raises:
        ConfigError: if `definition` is None and the judge's own prompts do not define the aspect.
    """
    judge = Judge.of(judge)
    for prompts in (member.prompts for member in judge.members if definition is None):
        if prompts and aspect not in prompts.common.aspects:
            raise ConfigError(f"the judge's prompts do not define {aspect!r} under `aspects`; pass definition=...")
    return CritiqueAspect(
        prompt="critique_aspect", judge=judge, answer=AspectVerdict, aspect=aspect, definition=definition
    )
