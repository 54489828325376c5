"""Steps that judge each retrieved chunk or sentence: whether it is useful or needed, and how relevant it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, ContextVerdicts, NeededSentences, RelevanceGrades
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.item_step import GradeStep, Item, Items, ItemStep, Part, Ruling, Rulings, numbered_items
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

USEFUL, NOT_USEFUL = "useful", "not useful"


class _ChunkStep(ItemStep):
    """Step whose items are the chunks of contexts; those with sentences are asked about, by window."""

    items_name = "chunks"
    number_field = "context"

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        windows = shown.windows(judge.max_context_tokens) if shown.sentences else []
        return [({number: items[number] for number in _worded(window)}, window) for window in windows]

    def _again(self, part: Items, shown: Any, pending: Items) -> Part:
        return pending, shown.select(pending)

    def _key(self, verdict: Any, items: Items, shown: Any) -> Any:
        return dict(enumerate(shown.chunks, 1)).get(verdict.context)

    def _block(self, shown: Any) -> NumberedContexts:
        return shown.numbered_from_one()  # type: ignore[no-any-return]

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        return AnswerLimits((self.list_field, "context", _worded(self._block(shown))))


class GradeContexts(_ChunkStep):
    """Step that adds the list `context_verdicts`: a Finding per chunk in order, then the agreement rates of the votes.

    The verdict is "useful" if the chunk helps to give the answer that `against` returns for the sample, such as the
    reference; else "not useful". If `against` returns "", the question alone decides. A blank chunk is not useful,
    whatever the judge replies. A long chunk may be split between requests; it is useful if any of its parts is useful.
    """

    label_field = "useful"
    label_names: ClassVar[Mapping[str, str]] = {"true": USEFUL, "false": NOT_USEFUL}

    against: Callable[[Sample], str]

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which chunks are useful, and add the findings to the state.

        Makes one request per window (part of the contexts that fits one request) and vote (one repetition by one
        judge); none if the contexts have no sentences.
        """
        sample: Sample = state["sample"]
        texts = sample.contexts or []
        chunks = numbered_items(texts, "context", (USEFUL, NOT_USEFUL))
        findings = yield from self.rule_on(sample, chunks, NumberedContexts.of(texts))
        return state | {"context_verdicts": findings}

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question, "answer": self.against(sample)}


def grade_contexts(judge: JudgeLike, *, against: Callable[[Sample], str]) -> JudgeStep:
    """Return the step that decides whether each chunk is useful.

    Args:
        judge: judge to ask.
        against: function that returns, for a sample, the answer that a useful chunk helps to give, such as the
            reference; "" to decide by the question alone.
    """
    return GradeContexts(prompt="grade_contexts", judge=judge, answer=ContextVerdicts, against=against)


class GradeRelevance(_ChunkStep, GradeStep):
    """Step that adds the list `grades`: a Finding per chunk in retrieval order, then the agreement rates of the votes.

    The judge sees the chunks in the order of a hash of their content, because judges favour early chunks. Equal chunks
    are sent once. Blank chunks are not sent and get the lowest grade. If there are several votes, the lower median
    decides. A chunk that is split between requests gets the best grade of its parts.
    """

    pointwise: bool

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its grades: judge, prompts, schema, scale and `pointwise`."""
        return {**super().instrument, "scale": self.scale, "pointwise": self.pointwise}

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for the relevance grades of the chunks, and add the findings to the state.

        Makes one request per window (part of the contexts that fits one request) and vote (one repetition by one
        judge). If `pointwise` is set, each chunk is a window. Makes no request if no chunk has a sentence.
        """
        sample: Sample = state["sample"]
        texts = sample.contexts or []
        by_digest = sorted({*texts}, key=lambda text: hashlib.sha256(text.encode()).digest())
        worded = [text for text in by_digest if NumberedContexts.of([text]).sentences]
        groups = [[text] for text in worded] if self.pointwise else [worded]
        items = [numbered_items(group, "context", self.labels) for group in groups]
        shown = [NumberedContexts.of(group) for group in groups]
        works = [self.rule_on(sample, *part) for part in zip(items, shown, strict=True)]
        parts: list[list[Finding]] = yield Gather(works)
        graded: dict[str, Finding] = {}
        rates: dict[str, Finding] = {}
        for group, part in zip(groups, parts, strict=True):
            graded |= zip(group, part, strict=False)
            rates |= zip(group, part[len(group) :], strict=False)
        places = list(enumerate(texts, 1))
        blank = Finding(kind="context", number=1, text="", verdict=str(self.scale[0]))
        findings = [graded.get(text, blank).model_copy(update={"number": n, "text": text}) for n, text in places]
        findings += [rates[text].model_copy(update={"number": n}) for n, text in places if text in rates]
        return state | {"grades": findings}

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question, "scale": list(self.scale)}

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        return replace(super()._limits(items, shown), values=(("grade", self.grades),))


def grade_relevance(judge: JudgeLike, *, scale: tuple[int, int], pointwise: bool) -> JudgeStep:
    """Return the step that grades the relevance of chunks.

    Args:
        judge: judge to ask.
        scale: the lowest and the highest grade.
        pointwise: send one chunk at a time.
    """
    return GradeRelevance(
        prompt="grade_relevance", judge=judge, answer=RelevanceGrades, scale=scale, pointwise=pointwise
    )


def _worded(contexts: NumberedContexts) -> tuple[int, ...]:
    """Return the numbers of the chunks that have sentences."""
    return tuple(dict.fromkeys(line.chunk for line in contexts.lines if line.sentence))


NEEDED, NOT_NEEDED = "needed", "not needed"


class SelectSentences(ItemStep):
    """Step that adds the list `context_sentences`: a Finding per sentence in order, then the votes' agreement rates.

    A sentence of the contexts is "needed" if the judge names it as necessary to answer the question, else "not needed".
    If a reply contains an unknown sentence number or a range, the judge is asked again.
    """

    joins_reasons = True

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which sentences are needed to answer the question, and add the findings to the state.

        Makes one request per window (part of the contexts that fits one request) and vote (one repetition by one
        judge); none if the contexts have no sentences.
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

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"question": sample.question}

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        return AnswerLimits(values=(("sentences", tuple(shown.sentences)),))

    def _objection(self, answer: Any, items: Items, shown: Any) -> str | None:
        unknown = [citation for citation in answer.sentences if not shown.is_citation(citation)]
        if not unknown:
            return None
        return f"no sentences of the contexts: {unknown[:5]}; give single numbers such as {next(iter(items))!r}"

    def _read(self, answer: Any, items: Items, shown: Any) -> Rulings:
        needed = shown.resolve(answer.sentences)
        return {key: Ruling(NEEDED, answer.reason) if key in needed else Ruling(NOT_NEEDED) for key in items}

    def _finding(self, item: Item, rulings: Sequence[Ruling]) -> Finding:
        """Return the finding with the reasons of all votes that need the sentence, also if they are a minority."""
        return super()._finding(item, rulings).model_copy(update={"reason": self._joined(rulings).reason})


def select_sentences(judge: JudgeLike) -> JudgeStep:
    """Return the step that selects the sentences of the contexts that are needed to answer the question."""
    return SelectSentences(prompt="select_sentences", judge=judge, answer=NeededSentences)
