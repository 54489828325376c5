"""Prompt and PromptSet: what a step tells the judge, as text in YAML that a person can read and edit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_rageval._internal.cached import cached_property, locked_cache
from langchain_rageval._internal.html import bold, paragraph, pluralize, table, text
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.answer_schemas import ANSWERS

_COMMON = "common.yaml"
_RARE_BREAK = re.compile("[\x85\u2028\u2029]")
Part = TypeVar("Part", bound="Frozen")
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Writes every text so that it is read back as it was."""

    def text(self, text: str) -> yaml.ScalarNode:
        """In double quotes what PyYAML would otherwise fold away as a line break."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _RARE_BREAK.search(text) else None)


_Dumper.add_representer(str, _Dumper.text)


class Frozen(BaseModel):
    """Frozen, strict about names, and known by its texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of every text in it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        """Of the fingerprint: pydantic's own fails on lists and dicts."""
        return hash(self.fingerprint)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, whose fingerprint is its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("fingerprint", None)
        return copied


class Example(Frozen):
    """One solved input of a step; `contexts` in it are shown as a block lettered [A.1], the rest as JSON."""

    input: dict[str, Any]
    output: dict[str, Any]


class Prompt(Frozen):
    """What one step tells the judge in one language.

    Attributes:
        instruction: what to do with the inputs.
        examples: solved inputs, shown after it.
    """

    instruction: str
    examples: list[Example] = []

    @property
    def reads_contexts(self) -> bool:
        """Whether the step shows the judge a block of contexts."""
        return any("contexts" in example.input for example in self.examples)


class Common(Frozen):
    """What all steps of a language share.

    Attributes:
        language: ISO 639-1 code.
        system: the system message.
        labels: headings of the parts of a request.
        ask_again: what follows a reply that could not be used; `{problem}` says why.
        aspects: name of each built-in aspect to its definition.
    """

    language: str
    system: str
    labels: dict[str, str]
    ask_again: str
    aspects: dict[str, str] = {}


class PromptSet(Frozen):
    """The prompts of all steps in one language.

    Attributes:
        common: what the steps share.
        prompts: name of the step to its prompt.
    """

    common: Common
    prompts: dict[str, Prompt]

    @classmethod
    def default(cls, language: str) -> PromptSet:
        """The prompts that come with the package.

        A language that has none is asked in English. Chinese, Korean and Italian have prompts for the steps of
        faithfulness, answer_relevance, context_precision, context_recall, context_relevance, answer_correctness and
        aspect_critique; all others, such as those that write test sets, take the English ones there, with the labels
        and the system message of the language. What they write is in the language of the passages all the same.
        """
        return _default(language if language in languages() else "en")

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read `<step>.yaml` files, and `common.yaml` if there is one; steps without a file keep the default prompt.

        Raises:
            ConfigError: if a file cannot be read, belongs to no step, or has an example that the step's schema refuses.
        """
        folder = Path(directory)
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no directory; PromptSet.load takes one that holds <step>.yaml files")
        common = _parsed(Common, folder / _COMMON) if (folder / _COMMON).exists() else None
        base = PromptSet.default(common.language if common else folder.name)
        if common:
            common = common.model_copy(update={"aspects": base.common.aspects | common.aspects})
            _check_common(common, base.common)
        given = {path.stem: _parsed(Prompt, path) for path in sorted(folder.glob("*.yaml")) if path.name != _COMMON}
        for step, prompt in given.items():
            _check(step, prompt)
        return cls(common=common or base.common, prompts={**base.prompts, **given})

    def save(self, directory: str | Path) -> None:
        """Write one `<step>.yaml` per step and `common.yaml`, for a person to edit."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        parts: dict[str, Frozen] = {"common": self.common, **self.prompts}
        for name, part in parts.items():
            text = yaml.dump(part.model_dump(), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def replace(
        self, step: str, *, instruction: str | None = None, examples: Sequence[Mapping[str, Any]] | None = None
    ) -> Self:
        """The same set with another instruction or other examples for one step.

        Args:
            step: name of the step, such as `verify_statements`.
            instruction: the new one; None keeps the old one.
            examples: mappings of `input` and `output`; None keeps the old ones.

        Raises:
            ConfigError: if there is no such step, or an example's output does not fit its schema.
        """
        old = self.get(step)
        try:
            new = Prompt(
                instruction=old.instruction if instruction is None else instruction,
                examples=old.examples if examples is None else [Example(**example) for example in examples],
            )
        except (ValidationError, TypeError) as error:
            raise ConfigError(f"examples of {step}: expected mappings of input and output: {error}") from None
        _check(step, new)
        return type(self)(common=self.common, prompts={**self.prompts, step: new})

    def _repr_html_(self) -> str:
        """Each step with the first line of its instruction, for notebooks."""
        title = f"Prompts in {self.common.language}: {pluralize(len(self.prompts), 'step')}"
        lines = [
            (bold(step), text(prompt.instruction.strip().split("\n")[0]), str(len(prompt.examples)))
            for step, prompt in self.prompts.items()
        ]
        return paragraph(text(title)) + table(("step", "instruction", "examples"), lines)

    def get(self, step: str) -> Prompt:
        """The prompt of a step.

        Raises:
            ConfigError: if there is no such step.
        """
        if step not in self.prompts:
            raise ConfigError(f"no prompt for the step {step!r}; there are {', '.join(sorted(self.prompts))}")
        return self.prompts[step]


@lru_cache
def languages() -> frozenset[str]:
    """Languages for which prompts come with the package."""
    return frozenset(entry.name for entry in _packaged().iterdir() if entry.joinpath(_COMMON).is_file())


def packaged_prompt(name: str) -> Prompt:
    """A prompt that is no metric's and has no language of its own."""
    return _parsed(Prompt, _packaged().joinpath(f"{name}.yaml"))


@locked_cache
def packaged_fingerprint(step: str | None) -> str:
    """Hash of what the package says in any language for a step and for all steps, without parsing it.

    Args:
        step: None for a step with a prompt of the user's own.
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
def _default(language: str) -> PromptSet:
    folder = _packaged().joinpath(language)
    texts = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    common = _parsed(Common, texts.pop(_COMMON))
    own = {name.removesuffix(".yaml"): _parsed(Prompt, entry) for name, entry in texts.items()}
    lacking = {} if language == "en" or own.keys() == ANSWERS.keys() else _default("en").prompts
    return PromptSet(common=common, prompts=dict(sorted({**lacking, **own}.items())))


def _parsed(kind: type[Part], file: Traversable | Path) -> Part:
    try:
        return kind.model_validate(_Loader(file.read_text(encoding="utf-8")).get_single_data())
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} is no {kind.__name__.lower()} file: {error}") from None


def _check_common(common: Common, like: Common) -> None:
    lacking = sorted(like.labels.keys() - common.labels.keys())
    if lacking:
        raise ConfigError(f"{_COMMON} lacks the labels {lacking}; copy them from another language")
    for name, label in [*common.labels.items(), ("ask_again", common.ask_again)]:
        gap = "problem" if name == "ask_again" else "step"
        try:
            label.format(**{gap: ""})
        except (KeyError, IndexError, ValueError):
            raise ConfigError(f"{_COMMON}: {name} may hold {{{gap}}} and no other braces, got {label!r}") from None


def _check(step: str, prompt: Prompt) -> None:
    if step not in ANSWERS:
        raise ConfigError(f"there is no step {step!r}; there are {', '.join(sorted(ANSWERS))}")
    for number, example in enumerate(prompt.examples, 1):
        try:
            ANSWERS[step].model_validate(example.output)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise ConfigError(f"{step}, output of example {number}: {where}: {problem['msg']}") from None
