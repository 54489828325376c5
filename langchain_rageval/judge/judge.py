"""Judge: a model, and everything that belongs to asking it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.endpoint import Endpoint
from langchain_rageval.judge.identity import identity
from langchain_rageval.judge.ladder import Mode
from langchain_rageval.prompts.layout import Layout
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.text.language import detect_language


@dataclass(frozen=True, repr=False, eq=False)
class Judge:
    """A model that states facts about texts, and how it is asked. The model itself is never changed.

    Args:
        model: a chat model, or any Runnable from messages to a message or a text.
        language: of the prompts, such as "ru"; "auto" takes that of each sample's question, English where there are no
            prompts in it.
        prompts: to use instead of the package's own.
        mode: rung of the ladder of structured output, "json_schema", "function_calling", "json_mode" or "prompt" (the
            schema in the prompt). "auto" starts at the best rung known for the model's class and takes a lower one when
            the endpoint refuses it.
        attempts: most model calls for one question, the first included; a reply that cannot be read is asked again.
        draws: how often verdicts are asked for, an odd number; the majority holds.
        layout: order of the parts of a request, "contexts_first", "instruction_first" or "handbook". "auto" is
            "handbook" for an OpenAI-compatible server of your own (plain http), since vLLM and its like keep the heads
            of prompts and so read the rules once a run and the contexts once a sample; else "contexts_first", whose
            requests are shorter.
        max_statements: most statements in one request; more are cut into slices.
        max_context_tokens: most tokens (characters / 4) of contexts in one request; more are cut into windows between
            sentences, and a statement whose support spans two windows is then missed.

    Raises:
        ConfigError: if an option is out of range.
    """

    model: Runnable[Any, Any]
    language: str = field(default="auto", kw_only=True)
    prompts: PromptSet | None = field(default=None, kw_only=True)
    mode: Mode = field(default="auto", kw_only=True)
    attempts: int = field(default=3, kw_only=True)
    draws: int = field(default=1, kw_only=True)
    layout: Layout | Literal["auto"] = field(default="auto", kw_only=True)
    max_statements: int = field(default=10, kw_only=True)
    max_context_tokens: int | None = field(default=None, kw_only=True)
    _endpoint: Endpoint = field(init=False)

    def __post_init__(self) -> None:
        """Validate the options."""
        if not isinstance(self.model, Runnable):
            by_name = f"; load_judge({self.model!r}) makes one of a name" if isinstance(self.model, str) else ""
            raise ConfigError(f"a judge is a chat model or another Runnable, got {type(self.model).__name__}{by_name}")
        if not isinstance(self.prompts, PromptSet | None):
            came = type(self.prompts).__name__
            raise ConfigError(f"prompts takes a PromptSet, such as PromptSet.load(directory), got {came}")
        if self.prompts is None and self.language not in ("auto", *languages()):
            known = ", ".join(["auto", *sorted(languages())])
            raise ConfigError(f"language is one of {known}, got {self.language!r}; for another, bring prompts=...")
        _one_of("mode", self.mode, get_args(Mode))
        _one_of("layout", self.layout, ("auto", *get_args(Layout)))
        _at_least_one("attempts", self.attempts)
        _at_least_one("max_statements", self.max_statements)
        _at_least_one("draws", self.draws)
        if self.max_context_tokens is not None:
            _at_least_one("max_context_tokens", self.max_context_tokens)
        if self.draws % 2 == 0:
            raise ConfigError(f"draws takes an odd number, so that there is a majority, got {self.draws}")
        object.__setattr__(self, "_endpoint", Endpoint(self.model, self.mode, self.layout))

    @classmethod
    def of(cls, judge: JudgeLike) -> Judge:
        """Take a Judge as it is; wrap a model, a Runnable or a function from messages to a text.

        All who wrap one object get one Judge, so that what it finds out about the endpoint serves them all.
        """
        if isinstance(judge, Judge):
            return judge
        wrapped = _WRAPPED.get(id(judge))
        if wrapped is None:
            own = callable(judge) and not isinstance(judge, Runnable)
            wrapped = _WRAPPED[id(judge)] = cls(RunnableLambda(judge) if own else judge)  # type: ignore[arg-type]
        return wrapped

    def __repr__(self) -> str:
        """Model and options, without secrets."""
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in _OPTIONS)
        return f"Judge({self.identity}, {options})"

    @cached_property
    def identity(self) -> str:
        """Which model this is, without secrets."""
        return identity(self.model)

    @cached_property
    def instrument(self) -> dict[str, Any]:
        """All that could change an answer: the model, and how it is asked."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {"model": self.identity, **options, "layout": self._endpoint.layout}

    @property
    def members(self) -> tuple[Judge, ...]:
        """The judges that give verdicts; the first one answers everything else. A single judge is its only member."""
        return (self,)

    def prompt_set(self, text: str) -> PromptSet:
        """The prompts for a text, by its language unless the user chose them."""
        if self.prompts is not None:
            return self.prompts
        return PromptSet.default(detect_language(text) if self.language == "auto" else self.language)

    @cached_property
    def _fingerprint_text(self) -> str:
        """The instrument as text, equal for judges with equal settings."""
        return repr(self.instrument)


JudgeLike = Judge | Runnable[Any, Any] | Callable[[list[BaseMessage]], Any]

# By identity; each Judge keeps its model alive, so an id is not given out again while it stands here.
_WRAPPED: WeakValueDictionary[int, Judge] = WeakValueDictionary()

_OPTIONS = ("language", "mode", "attempts", "draws", "layout", "max_statements", "max_context_tokens")


def in_language(judge: Judge, language: str) -> Judge:
    """Return a judge with prompts in a language, sharing its endpoint; unchanged if it has prompts chosen by the user."""
    if judge.prompts is not None or judge.language == language:
        return judge
    changed = replace(judge, language=language)
    object.__setattr__(changed, "_endpoint", judge._endpoint)
    return changed


def _one_of(option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{option} is one of {', '.join(choices)}, got {value!r}")


def _at_least_one(option: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{option} takes a whole number from 1 on, got {value!r}")
