"""Prompt and PromptSet: instructions and examples of the steps, as YAML files that users can read and edit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from langchain_rageval._internal.cached import locked_cache
from langchain_rageval._internal.files import leaves_folder, load_yaml
from langchain_rageval._internal.page import bold, paragraph, pluralize, table, text
from langchain_rageval.errors import ConfigError, config_error_of, did_you_mean, list_choices
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.criteria import Criterion, HashableModel

_COMMON = "common.yaml"
_CRITERIA = "criteria.yaml"
_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_Part = TypeVar("_Part", bound="HashableModel")


class _Dumper(yaml.SafeDumper):
    """YAML dumper whose strings are loaded back unchanged."""

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent a string; with double quotes if it has Unicode line breaks, which PyYAML would fold."""
        style = '"' if _UNICODE_LINE_BREAK.search(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.text)


class Example(HashableModel):
    """A solved example of a step: inputs and the correct output.

    The judge reads inputs and output as JSON. In the input `contexts`, each sentence follows its number: a letter for
    the chunk and the place of the sentence ([A.1]). If one of the prompt's examples has an output with the field
    `context`, which holds the number of a chunk, all chunks have numbers instead of letters ([1.1]).
    """

    input: dict[str, Any]
    output: dict[str, Any]


class Prompt(HashableModel):
    """Prompt of one step in one language: an instruction and solved examples.

    Attributes:
        instruction: instruction for the judge.
        examples: solved examples, shown after the instruction.
    """

    instruction: str
    examples: list[Example] = Field(default_factory=list)


class StepPrompts(HashableModel):
    """Prompts of one user's step in several languages.

    Attributes:
        step: name of the step.
        prompts: prompts by language code; the key "" is for one prompt in all languages.
    """

    step: str
    prompts: dict[str, Prompt]

    def select(self, chosen_set: PromptSet, *, chosen: bool, language: str) -> Prompt:
        """Return the prompt of this step that a judge reads.

        This is the prompt for this step in the user's prompt set, if the user chose a set that has one. Otherwise it is
        the prompt in the first of these languages that `prompts` contains: `language`, the language of `chosen_set`,
        English, the first language of `prompts`.

        Args:
            chosen_set: the prompt set of the judge: the user's set. If the user chose none, the packaged set in
                `language`, or the English set if the package has no prompts in `language`.
            chosen: True if `chosen_set` is the user's set, False if it is a packaged set.
            language: ISO 639-1 code, such as "ru".
        """
        if chosen and self.step in chosen_set.prompts:
            return chosen_set.prompts[self.step]
        preferred = (language, chosen_set.common.language, "en", *self.prompts)
        return next(self.prompts[code] for code in preferred if code in self.prompts)


class PromptedStep(Protocol):
    """Interface of a user's step, through which prompt sets read its prompts; implemented by `Step`.

    Attributes:
        name: name of the step, and of its file.
        answer: class of the judge's answer.
        prompts: prompts of the step; None if the step uses a packaged prompt.
    """

    name: str
    answer: type[BaseModel]
    prompts: StepPrompts | None


class Common(HashableModel):
    """Texts of one language that the requests of all judge steps contain.

    Attributes:
        language: ISO 639-1 code of the language, such as "ru".
        system: system message.
        labels: maps each part of a request, such as "contexts", to its heading, such as "## Contexts".
        ask_again: message sent after an unusable reply; `{problem}` is replaced by the problem with the reply.
        aspects: maps names of the built-in aspects to their definitions.
    """

    language: str
    system: str
    labels: dict[str, str]
    ask_again: str
    aspects: dict[str, str] = Field(default_factory=dict)


class _Criteria(HashableModel):
    """Content of a `criteria.yaml` file."""

    criteria: tuple[Criterion, ...]


class PromptSet(HashableModel):
    """Prompts of all steps in one language.

    Attributes:
        common: texts that the steps share.
        prompts: maps names of steps to prompts.
        criteria: default criteria of `rubric` in this language; empty to use the packaged ones, which are Russian for
            "ru" and English for every other language.
    """

    common: Common
    prompts: dict[str, Prompt]
    criteria: tuple[Criterion, ...] = ()

    @classmethod
    def default(cls, language: str, steps: Sequence[PromptedStep] = ()) -> PromptSet:
        """Return the packaged prompts of a language, or the English prompts if the package does not have the language.

        English and Russian have prompts for all steps. Chinese, Korean and Italian have prompts for the steps of all
        metrics; no native speaker has read them yet. In these three languages, the steps that write and filter test
        sets use the English prompts, with the labels and the system message of the language. Texts are still written in
        the language of the passages.

        Args:
            language: ISO 639-1 code, such as "ru".
            steps: steps of the user, whose prompts are added, for example to `save` them.

        Raises:
            ConfigError: if two of the steps have the same name.
        """
        packaged = _packaged_set(language if language in languages() else "en")
        if not steps:
            return packaged
        names = [step.name for step in {id(step): step for step in steps}.values()]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"two steps have the name {twice!r}: give each its own name=")
        own = {
            step.name: step.prompts.select(packaged, chosen=False, language=language) for step in steps if step.prompts
        }
        return packaged.model_copy(update={"prompts": {**packaged.prompts, **own}}) if own else packaged

    @classmethod
    def load(cls, directory: str | Path, steps: Sequence[PromptedStep] = ()) -> Self:
        """Load a prompt set from `<step>.yaml` files and the optional files `common.yaml` and `criteria.yaml`.

        A step without a file keeps the packaged prompt, in the language of `common.yaml`, or else of the directory's
        name.

        Args:
            directory: the directory.
            steps: steps of the user that may have a file in the directory.

        Raises:
            ConfigError: if a file cannot be read, is a link out of the directory, belongs to no step, or has an example
                that does not fit the step's schema.
        """
        folder = Path(directory)
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a directory; PromptSet.load takes a directory of <step>.yaml files")
        for path in sorted(folder.glob("*.yaml")):
            if leaves_folder(path, folder):
                raise ConfigError(f"{path.name} is a link out of {folder}; copy the file into the directory")
        common = _parse(Common, folder / _COMMON) if (folder / _COMMON).exists() else None
        base = PromptSet.default(common.language if common else folder.name, steps)
        answers = {**ANSWER_SCHEMAS, **{step.name: step.answer for step in steps}}
        if common:
            common = common.model_copy(update={"aspects": base.common.aspects | common.aspects})
            _check_common(common, base.common)
        criteria = _parse(_Criteria, folder / _CRITERIA).criteria if (folder / _CRITERIA).exists() else ()
        shared = (_COMMON, _CRITERIA)
        own = {path.stem: _parse(Prompt, path) for path in sorted(folder.glob("*.yaml")) if path.name not in shared}
        for step, prompt in own.items():
            if step not in answers:
                remedy = "or pass a step of your own as PromptSet.load(directory, steps=[step])"
                known, hint = ", ".join(sorted(answers)), did_you_mean(step, answers)
                raise ConfigError(f"there is no step {step!r}; there are {known}, {remedy}{hint}")
            check_examples(step, prompt, answers[step])
        return cls(common=common or base.common, prompts={**base.prompts, **own}, criteria=criteria)

    def save(self, directory: str | Path) -> None:
        """Save `common.yaml` and one `<step>.yaml` per step to a directory, for editing.

        Creates the directory. If the set has criteria, they are saved as `criteria.yaml`.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        parts: dict[str, HashableModel] = {"common": self.common, **self.prompts}
        if self.criteria:
            parts["criteria"] = _Criteria(criteria=self.criteria)
        for name, part in parts.items():
            fields = part.model_dump(mode="json")
            text = yaml.dump(fields, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def replace(
        self, step: str, *, instruction: str | None = None, examples: Sequence[Mapping[str, Any]] | None = None
    ) -> Self:
        """Return a copy with a new instruction or new examples for one step.

        Args:
            step: name of the step, such as `verify_statements`.
            instruction: new instruction; None keeps the old instruction.
            examples: new examples, as mappings of `input` and `output`; None keeps the old examples.

        Raises:
            ConfigError: if there is no such step, or an example's output does not fit the step's schema.
        """
        old = self.get(step)
        try:
            new = Prompt(
                instruction=old.instruction if instruction is None else instruction,
                examples=old.examples if examples is None else [Example(**example) for example in examples],
            )
        except (ValidationError, TypeError) as error:
            raise ConfigError(f"examples of {step}: expected mappings of input and output: {error}") from None
        if step in ANSWER_SCHEMAS:
            check_examples(step, new, ANSWER_SCHEMAS[step])
        return self.model_copy(update={"prompts": {**self.prompts, step: new}})

    def _repr_html_(self) -> str:
        """Return an HTML table of the steps with the first line of each instruction, for notebooks."""
        title = f"Prompts in {self.common.language}: {pluralize(len(self.prompts), 'step')}"
        lines = [
            (bold(step), text(prompt.instruction.strip().split("\n")[0]), str(len(prompt.examples)))
            for step, prompt in self.prompts.items()
        ]
        return paragraph(text(title)) + table(("step", "instruction", "examples"), lines)

    def get(self, step: str) -> Prompt:
        """Return the prompt of a step.

        Raises:
            ConfigError: if the set has no prompt for the step.
        """
        if step not in self.prompts:
            raise ConfigError(f"no prompt for the step {step!r}; there are {list_choices(step, sorted(self.prompts))}")
        return self.prompts[step]


@lru_cache
def languages() -> frozenset[str]:
    """Return the codes of the languages in which the package has prompts."""
    return frozenset(entry.name for entry in _packaged().iterdir() if entry.joinpath(_COMMON).is_file())


def packaged_prompt(name: str) -> Prompt:
    """Return a packaged prompt that exists once for all languages, such as the prompt of `translate_prompts`."""
    return _parse(Prompt, _packaged().joinpath(f"{name}.yaml"))


@locked_cache
def packaged_fingerprint(step: str | None) -> str:
    """Return the hash of a step's packaged files in all languages, including common.yaml, without parsing the files.

    Args:
        step: name of the step; None for a step with the user's prompt, which uses only common.yaml.
    """
    digest = hashlib.sha256()
    for language in sorted(languages()):
        for name in (_COMMON, f"{step}.yaml") if step else (_COMMON,):
            file = _packaged().joinpath(language, name)
            digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:16]


def _packaged() -> Traversable:
    return files("langchain_rageval.prompts")


@locked_cache
def _packaged_set(language: str) -> PromptSet:
    folder = _packaged().joinpath(language)
    texts = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    common = _parse(Common, texts.pop(_COMMON))
    own = {name.removesuffix(".yaml"): _parse(Prompt, entry) for name, entry in texts.items()}
    english = {} if language == "en" or own.keys() == ANSWER_SCHEMAS.keys() else _packaged_set("en").prompts
    return PromptSet(common=common, prompts=dict(sorted({**english, **own}.items())))


def _parse(kind: type[_Part], file: Traversable | Path) -> _Part:
    try:
        return kind.model_validate(load_yaml(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise config_error_of(f"{file.name} is not a valid {kind.__name__.lower()} file", error) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} is not a valid {kind.__name__.lower()} file: {error}") from None


def _check_common(common: Common, packaged: Common) -> None:
    missing = sorted(packaged.labels.keys() - common.labels.keys())
    if missing:
        raise ConfigError(f"{_COMMON} lacks the labels {missing}; copy and translate those of another language")
    for name, label in [*common.labels.items(), ("ask_again", common.ask_again)]:
        field = "problem" if name == "ask_again" else "step"
        try:
            label.format(**{field: ""})
        except (KeyError, IndexError, ValueError):
            raise ConfigError(f"{_COMMON}: {name} may contain {{{field}}} and no other braces, got {label!r}") from None


def check_examples(step: str, prompt: Prompt, answer: type[BaseModel]) -> None:
    """Raise ConfigError if the output of an example of a prompt does not fit the class of the step's answer."""
    for number, example in enumerate(prompt.examples, 1):
        try:
            given = answer.model_validate(example.output).model_fields_set
        except ValidationError as error:
            problem = error.errors()[0]
            location = ".".join(map(str, problem["loc"]))
            raise ConfigError(f"{step}, output of example {number}: {location}: {problem['msg']}") from None
        if answer in ANSWER_SCHEMAS.values() and (lacking := sorted(answer.model_fields.keys() - given)):
            raise ConfigError(f"{step}, output of example {number}: {lacking[0]}: Field required")
