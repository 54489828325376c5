"""Steps that ask for one verdict: whether an answer abstains, a question is answerable, or an aspect applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import Abstention, Answerable, AspectVerdict
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.item_step import Item, Items, ItemStep, Part, Ruling, background_windows, with_windows
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

ABSTAINS, ANSWERS = "abstains", "answers"


class DetectAbstention(ItemStep):
    """Step that adds the list `<of>_abstention`: for each text a Finding, then the agreement rate of its votes.

    `of` is "answer" or "reference" (all references). The verdict is "abstains" if a text leaves the question
    unanswered, else "answers". The answer has number 1. References have numbers from 2; blank references are omitted. A
    blank answer abstains.
    """

    list_field = ""
    label_field = "abstains"
    label_names: ClassVar[Mapping[str, str]] = {"true": ABSTAINS, "false": ANSWERS}

    of: Side

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether each text leaves the question unanswered, and add the findings to the state.

        The texts are the sample's answer if `of` is "answer", and its references if `of` is "reference". Makes one
        request per text and vote (one repetition by one judge); none for a blank text.
        """
        sample: Sample = state["sample"]
        if self.of == "answer":
            texts = {1: sample.answer or ""}
        else:
            texts = {number: text for number, text in enumerate(sample.references, 2) if text.strip()}
        items = [{text: Item("criterion", n, f"the {self.of}", (ANSWERS, ABSTAINS))} for n, text in texts.items()]
        parts: list[list[Finding]] = yield Gather([self.rule_on(sample, item) for item in items])
        return self.with_findings(state, f"{self.of}_abstention", [finding for part in parts for finding in part])

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        return [(items, None) for text in items if text.strip()]

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question, "answer": next(iter(items))}


def detect_abstention(judge: JudgeLike, *, of: Side) -> JudgeStep:
    """Return the step that decides whether the "answer", or each "reference", leaves the question unanswered."""
    return DetectAbstention(prompt="detect_abstention", judge=judge, answer=Abstention, of=of)


ANSWERABLE, UNANSWERABLE = "answer", "do not answer"


class DetectAnswerable(ItemStep):
    """Step that decides whether the contexts answer the question, and adds the list `answerable` to the state.

    The list holds a Finding with the verdict, then, if there are several votes, a Finding with their agreement rate.

    Contexts are sent in windows (parts) of at most the judge's `max_context_tokens`. If one window answers the
    question, the verdict is "answer". Otherwise, and without contexts, it is "do not answer". An answer that must be
    combined from two windows is not recognized.
    """

    list_field = ""
    label_field = "answerable"
    label_names: ClassVar[Mapping[str, str]] = {"true": ANSWERABLE, "false": UNANSWERABLE}
    joins_reasons = True

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the contexts answer the question, and add the finding to the state.

        Makes one request per window (part of the contexts that fits one request) and vote (one repetition by one
        judge); none if the contexts have no sentences.
        """
        sample: Sample = state["sample"]
        item = Item("criterion", 2, "the contexts", (ANSWERABLE, UNANSWERABLE))
        findings = yield from self.rule_on(sample, {2: item}, NumberedContexts.of(sample.contexts or []))
        return self.with_findings(state, "answerable", findings)

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question}

    def _ruling(self, verdict: Any, item: Item, shown: Any) -> Ruling:
        """Return the ruling of a window without probabilities, which those of other windows would change."""
        return replace(super()._ruling(verdict, item, shown), probabilities={})


def detect_answerable(judge: JudgeLike) -> JudgeStep:
    """Return the step that decides whether the contexts answer the question."""
    return DetectAnswerable(prompt="detect_answerable", judge=judge, answer=Answerable)


class CritiqueAspect(ItemStep):
    """Step that decides whether an aspect (a quality such as "conciseness") applies to the sample's answer.

    It adds the list `aspect_verdict`: a Finding with the verdict "yes" (the aspect applies) or "no", then, if there are
    several votes, their agreement rate. Contexts are background, sent in windows (parts) of at most the judge's
    `max_context_tokens`. A "yes" for one window is enough. If there are several windows, a finding says how many.

    Attributes:
        aspect: name of the aspect.
        definition: description of the aspect for the judge; None for the description in the judge's prompts.
    """

    list_field = ""
    label_names: ClassVar[Mapping[str, str]] = {"true": "yes", "false": "no"}

    aspect: str
    definition: str | None

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the aspect applies, and add the finding to the state.

        Makes one request per window (part of the contexts) and vote (one repetition by one judge).
        """
        sample: Sample = state["sample"]
        item, contexts = Item("aspect", 1, self.aspect, ("yes", "no")), NumberedContexts.of(sample.contexts or [])
        findings = yield from self.rule_on(sample, {1: item}, contexts)
        return self.with_findings(with_windows(state, contexts, self.judge), "aspect_verdict", findings)

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its verdicts: judge, prompts, schema and `"contexts": "windows"`.

        The last entry says that contexts which are too long for one request are split into windows.
        """
        return {**super().instrument, "contexts": "windows"}

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        return [(items, window) for window in background_windows(shown, judge)]

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {
            "question": sample.question,
            "answer": sample.answer,
            "aspect": self.aspect,
            "definition": self.definition or judge.prompt_set(sample.language_text).common.aspects[self.aspect],
        }


def critique_aspect(judge: JudgeLike, aspect: str, *, definition: str | None) -> JudgeStep:
    """Return the step that decides whether an aspect applies to the answer.

    Args:
        judge: judge to ask.
        aspect: name of the aspect.
        definition: definition of the aspect; None for the definition in the prompts.

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
