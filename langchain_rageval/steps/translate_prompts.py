"""Translate the prompts into another language with the user's own model, for a person to edit.

What the package says in English, Russian, Chinese, Korean and Italian was written by hand; a translation is a draft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import ANSWERS
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.prompts.promptset import Common, Prompt, PromptSet, packaged_prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.step import State, Step

_CITATION = re.compile(r"[A-Z]\.\d+")
_KEPT = re.compile(r"`[^`]+`|\{\w*\}|(?<![\w.])[A-Z]\.\d+(?!\w)|\b(?:TP|FP|FN|JSON)\b")
_LONG = 20  # characters from which a text cannot be the same in two languages


class Translation(BaseModel):
    """One text in the other language."""

    text: int
    content: str


class Translations(BaseModel):
    """One translation for each text."""

    translations: list[Translation]


class Translate(Step):
    """Adds `translations`: number of each of the state's `texts` to its translation. A lost form is asked again."""

    def work(self, state: State) -> Operation[State]:
        """One call."""
        texts: Mapping[int, str] = state["texts"]
        inputs = {
            "language": state["language"],
            "texts": [{"text": number, "content": text} for number, text in texts.items()],
        }
        objection = _objection(texts, state["labels"], state["chunks"])
        question = self.question(inputs, None, language_from="", objection=objection)
        answer: Translations = yield self.asked(question)
        return state | {"translations": {item.text: item.content for item in answer.translations}}


def translate_prompts(
    judge: JudgeLike, language: str, *, source: str = "en", directory: str | Path | None = None
) -> PromptSet:
    """The prompts in another language, drafted by a model.

    What the steps rely on is checked, and asked again when it is lost: field names, gaps, labels, citations, and the
    number of sentences in each example's contexts. Whether the wording is good is for a person to say: save, edit, and
    use as `Judge(model, prompts=PromptSet.load(directory))`.

    Args:
        judge: who translates; asked once for each step and once for what the steps share.
        language: what to translate into, best as an ISO 639-1 code, such as "de".
        source: language of the packaged prompts to start from.
        directory: where to save them as YAML, one file for each step.

    Raises:
        ConfigError: if a language is blank, or there are no prompts in `source`.
        JudgeOutputError: if the model's translation loses something after all attempts.
    """
    if not language.strip():
        raise ConfigError('language takes what to translate into, such as "de"')
    base = PromptSet.default(source)
    if base.common.language != source:
        raise ConfigError(f"there are no prompts in {source!r} to translate from")
    prompt = packaged_prompt("translate_prompts")
    translate = Translate(prompt=prompt, judge=Judge.of(judge), answer=Translations, name="translate_prompts")
    jobs = [
        _Job("common", base.common.model_dump(exclude={"language"}), base.common.aspects.keys()),
        *(_Job(step, prompt.model_dump(), base.common.aspects.keys()) for step, prompt in base.prompts.items()),
    ]
    states = translate.batch([job.state(language) for job in jobs])
    done = {job.step: job.filled(state["translations"]) for job, state in zip(jobs, states, strict=True)}
    common = Common(language=language, **done.pop("common"))
    prompts = PromptSet(common=common, prompts={step: Prompt.model_validate(part) for step, part in done.items()})
    if directory is not None:
        prompts.save(directory)
    return prompts


@dataclass(frozen=True)
class _Job:
    """One file of prompts, as nested values; `names` are words that are no language."""

    step: str
    part: Any
    names: Collection[str]

    @cached_property
    def labels(self) -> set[str]:
        """Values of the answer's enumerations, and names."""
        schema = strict_schema(ANSWERS[self.step]) if self.step in ANSWERS else {}
        return {*_enumerated(schema), *self.names}

    @cached_property
    def texts(self) -> dict[int, str]:
        """What there is to translate, numbered from 1."""
        return dict(enumerate(self._texts(self.part), 1))

    def state(self, language: str) -> State:
        """What the step is asked with."""
        examples = self.part.get("examples", [])
        chunks = {chunk for example in examples for chunk in example["input"].get("contexts", [])}
        return {"language": language, "texts": self.texts, "labels": self.labels, "chunks": chunks}

    def filled(self, translations: Mapping[int, str]) -> Any:
        """The same nested values with their texts replaced."""
        return self._filled(self.part, iter(translations[number] for number in self.texts))

    def _is_text(self, value: Any) -> bool:
        worded = isinstance(value, str) and bool(value.strip())
        return worded and value not in self.labels and not _CITATION.fullmatch(value)

    def _texts(self, part: Any) -> Iterator[str]:
        for inner in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
            yield from self._texts(inner)
        if self._is_text(part):
            yield part

    def _filled(self, part: Any, translations: Iterator[str]) -> Any:
        if isinstance(part, Mapping):
            return {key: self._filled(inner, translations) for key, inner in part.items()}
        if isinstance(part, list):
            return [self._filled(inner, translations) for inner in part]
        return next(translations) if self._is_text(part) else part


def _enumerated(schema: Any) -> Iterator[str]:
    """The texts that a schema enumerates."""
    if isinstance(schema, Mapping):
        yield from (word for word in schema.get("enum", []) if isinstance(word, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _enumerated(inner)


def _objection(
    texts: Mapping[int, str], labels: Collection[str], chunks: Collection[str]
) -> Callable[[Translations], str | None]:
    def objection(answer: Translations) -> str | None:
        given = [item.text for item in answer.translations]
        if sorted(given) != sorted(texts):
            return f"expected one translation for each of {[*texts]}, got {given}"
        for item in answer.translations:
            text = texts[item.text]
            problem = _lost(text, item.content, labels) or (text in chunks and _split_otherwise(text, item.content))
            if problem:
                return f"text {item.text} {problem}"
        return None

    return objection


def _lost(text: str, translation: str, labels: Collection[str]) -> str | None:
    kept = {*_KEPT.findall(text), *(f'"{label}"' for label in labels if f'"{label}"' in text)}
    lost = sorted(token for token in kept if token not in translation)
    if lost:
        return f"lacks {', '.join(lost)}"
    same = len(text) >= _LONG and translation.strip() == text.strip()
    return "is not translated" if same or not translation.strip() else None


def _split_otherwise(text: str, translation: str) -> str | None:
    """Citations count the sentences of a chunk."""
    expected, found = (len(NumberedContexts.of([one]).sentences) for one in (text, translation))
    return None if expected == found else f"has {found} sentences instead of {expected}"
