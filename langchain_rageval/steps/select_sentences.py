"""Select the context sentences that are needed to answer the question.

The judge reads the question and numbered contexts. Adds `context_sentences`, a list of Finding: one for each sentence
in order with the verdict "needed" or "not needed", then the agreement rates if there are several votes. Makes no call
if the contexts have no sentences; the list is then empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.asking import JudgeQuestion
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, NeededSentences
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.item_step import Item, Items, ItemStep, Part, Ruling, Rulings, combine
from langchain_rageval.steps.judge_step import JudgeStep, State

NEEDED, NOT_NEEDED = "needed", "not needed"


class SelectSentences(ItemStep):
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
        sentences = {
            number: Item("sentence", place, text, (NEEDED, NOT_NEEDED))
            for place, (number, text) in enumerate(contexts.sentences.items(), 1)
        }
        findings = yield from self.rule_on(sample, sentences, contexts)
        cited = [f.model_copy(update={"cites": [number]}) for number, f in zip(sentences, findings, strict=False)]
        return state | {"context_sentences": cited + findings[len(cited) :]}

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        windows = shown.windows(judge.max_context_tokens) if items else []
        return [({number: items[number] for number in window.sentences}, window) for window in windows]

    def _question(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> JudgeQuestion[Any]:
        return self.build_question(
            {"question": sample.question},
            shown,
            language_from=sample.language_text,
            judge=judge,
            objection=_objection(shown),
            limits=AnswerLimits(values=(("sentences", tuple(shown.sentences)),)),
        )

    def _read(self, answer: Any, items: Items, shown: Any) -> Rulings:
        needed = shown.resolve(answer.sentences)
        return {key: Ruling(NEEDED, answer.reason) if key in needed else Ruling(NOT_NEEDED) for key in items}

    def _finding(self, item: Item, rulings: Sequence[Ruling]) -> Finding:
        """Return the finding with the reasons of all votes that need the sentence, also if they are a minority."""
        return super()._finding(item, rulings).model_copy(update={"reason": combine(rulings).reason})


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
