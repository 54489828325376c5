"""translate_prompts: translate the prompts into another language with a model of the user.

The result is a draft that the user should edit. People wrote the packaged English, Russian, Chinese, Korean and Italian
prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from langchain_rageval.data.schema import Turn
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.criteria import DEFAULT_LANGUAGE, Criterion, default_criteria
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.prompts.promptset import Common, Prompt, PromptSet, packaged_prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

_CITATION = re.compile(r"[A-Z]\.\d+")
_TOKEN = re.compile(r"`[^`]+`|\{\w*\}|(?<![\w.])[A-Z]\.\d+(?!\w)|\b(?:TP|FP|FN|JSON)\b")
_SHORTEST_TRANSLATED = 20  # characters; a text of this length cannot be the same in two languages


class Translation(BaseModel):
    """One text in the other language."""

    text: int
    content: str


class Translations(BaseModel):
    """One translation for each text."""

    translations: list[Translation]


class _TranslatePrompts(JudgeStep):
    """Step that adds `translations`, a dict from the numbers of the state's `texts` to their translations."""

    def work(self, state: State) -> Operation[State]:
        """Ask once for all texts; again if the translation loses a token that the steps rely on."""
        texts: Mapping[int, str] = state["texts"]

        def objection(answer: Translations) -> str | None:
            numbers = [item.text for item in answer.translations]
            if sorted(numbers) != sorted(texts):
                return f"expected one translation for each of {[*texts]}, got {numbers}"
            for item in answer.translations:
                if problem := _problem(texts[item.text], item.content, state["labels"], state["chunks"]):
                    return f"text {item.text} {problem}"
            return None

        inputs = {
            "language": state["language"],
            "texts": [{"text": number, "content": text} for number, text in texts.items()],
        }
        question = self.build_question(inputs, None, language_from="", objection=objection)
        answer: Translations = yield self.ask(question)
        return state | {"translations": {item.text: item.content for item in answer.translations}}


def translate_prompts(
    judge: JudgeLike, language: str, *, source: str = "en", directory: str | Path | None = None
) -> PromptSet:
    """Return the prompts in another language, drafted by a model.

    The default criteria of `rubric` are translated too; their names stay unchanged. A check compares everything that
    the steps rely on: field names, placeholders, labels, citations, and the number of sentences in the contexts of each
    example. If something is lost, the judge is asked again. The wording is not checked: save the prompts, edit them,
    and use them as `Judge(model, prompts=PromptSet.load(directory))`.

    Args:
        judge: judge that translates; called once for each step, once for the texts that the steps share and once for
            the criteria.
        language: language to translate into, preferably an ISO 639-1 code, such as "de".
        source: language of the packaged prompts to translate from.
        directory: directory to save the prompts in, as one YAML file for each step; None does not save them.

    Raises:
        ConfigError: if `language` is blank, or there are no prompts in `source`.
        JudgeOutputError: if the translation still lacks something after all attempts.
    """
    if not language.strip():
        raise ConfigError('language must be the language to translate into, such as "de"')
    base = PromptSet.default(source)
    if base.common.language != source:
        raise ConfigError(f"there are no prompts in {source!r} to translate from")
    prompt = packaged_prompt("translate_prompts")
    translate = _TranslatePrompts(prompt=prompt, judge=judge, answer=Translations, name="translate_prompts")
    criteria = base.criteria or default_criteria().get(source) or default_criteria()[DEFAULT_LANGUAGE]
    aspects = base.common.aspects.keys()
    parts: dict[str, tuple[Any, Collection[str]]] = {
        "criteria": ([criterion.model_dump(mode="json") for criterion in criteria], [one.name for one in criteria]),
        "common": (base.common.model_dump(exclude={"language"}), aspects),
        **{step: (prompt.model_dump(), aspects) for step, prompt in base.prompts.items()},
    }
    states = translate.batch([_state(language, step, part, names) for step, (part, names) in parts.items()])
    drafts = {step: _translated(part, state) for (step, (part, _)), state in zip(parts.items(), states, strict=True)}
    common = Common(language=language, **drafts.pop("common"))
    drafted = tuple(Criterion(**fields) for fields in drafts.pop("criteria"))
    own = {step: Prompt.model_validate(part) for step, part in drafts.items()}
    prompts = PromptSet(common=common, prompts=own, criteria=drafted)
    if directory is not None:
        prompts.save(directory)
    return prompts


def _state(language: str, step: str, part: Any, names: Collection[str]) -> State:
    """Return the input of the step for a prompt file, given as nested values.

    Its `texts` are numbered from 1. Its `labels`, which must not be translated, are the enum values of the answer's
    schema, the roles of turns, and `names`.
    """
    schema = strict_schema(ANSWER_SCHEMAS[step]) if step in ANSWER_SCHEMAS else {}
    labels = {*_enum_values(schema), *get_args(Turn.model_fields["role"].annotation), *names}
    texts: dict[int, str] = {}
    _map_texts(part, labels, lambda text: texts.setdefault(len(texts) + 1, text))
    examples = part.get("examples", []) if step in ANSWER_SCHEMAS else []
    chunks = {chunk for example in examples for chunk in example["input"].get("contexts", [])}
    return {"language": language, "texts": texts, "labels": labels, "chunks": chunks}


def _translated(part: Any, state: State) -> Any:
    """Return nested values with their texts replaced by the translations in the state after the step."""
    left = iter([state["translations"][number] for number in state["texts"]])
    return _map_texts(part, state["labels"], lambda _text: next(left))


def _map_texts(part: Any, labels: Collection[str], change: Callable[[str], str]) -> Any:
    """Return nested values in which each text to translate is changed, in order."""
    if isinstance(part, Mapping):
        return {key: _map_texts(inner, labels, change) for key, inner in part.items()}
    if isinstance(part, list):
        return [_map_texts(inner, labels, change) for inner in part]
    is_text = isinstance(part, str) and part.strip() and part not in labels and not _CITATION.fullmatch(part)
    return change(part) if is_text else part


def _enum_values(schema: Any) -> Iterator[str]:
    """Yield the strings in the enumerations of a schema."""
    if isinstance(schema, Mapping):
        yield from (word for word in schema.get("enum", []) if isinstance(word, str))
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _enum_values(inner)


def _problem(text: str, translation: str, labels: Collection[str], chunks: Collection[str]) -> str | None:
    forms = (form for label in labels for form in (f'"{label}"', f"- {label}"))
    tokens = {*_TOKEN.findall(text), *(form for form in forms if form in text)}
    missing = sorted(token for token in tokens if token not in translation)
    if missing:
        return f"lacks {', '.join(missing)}"
    same = len(text) >= _SHORTEST_TRANSLATED and translation.strip() == text.strip()
    if same or not translation.strip():
        return "is not translated"
    if text not in chunks:
        return None
    # citations refer to sentence numbers
    expected, actual = (len(NumberedContexts.of([one]).sentences) for one in (text, translation))
    return None if expected == actual else f"has {actual} sentences instead of {expected}"
