"""Judge: a model, and everything that belongs to asking it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.identity import identity
from langchain_rageval.judge.ladder import (
    Client,
    Mode,
    Rung,
    client_of,
    keeps_prefixes,
    ladder,
    own_options,
    refuses,
    refuses_system,
    retries_itself,
    sync_only,
)
from langchain_rageval.prompts.layout import Layout, RequestContent, lay_out
from langchain_rageval.prompts.promptset import PromptSet, languages
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.work import Call
from langchain_rageval.text.language import detect_language

log = logging.getLogger("langchain_rageval")


@dataclass(frozen=True, slots=True)
class RequestMode:
    """One way of asking: a rung of the ladder, with the system message in its own role or folded into the human one."""

    rung: Rung
    fold_system: bool = False


def _one_at_a_time() -> AdaptiveLimiter:
    return AdaptiveLimiter(1)


@dataclass
class EndpointCapabilities:
    """What a judge has found out about its endpoint; the gate lets one asker at a time find out."""

    way: RequestMode | None = None
    probed: bool = False
    told: set[RequestMode] = field(default_factory=set)
    gate: PerProcess[AdaptiveLimiter] = field(default_factory=lambda: PerProcess(_one_at_a_time))


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
    capabilities: EndpointCapabilities = field(default_factory=EndpointCapabilities, init=False)

    def __post_init__(self) -> None:
        """Refuse options that cannot be meant."""
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
        return {"model": self.identity, **options, "layout": self.resolved_layout}

    @cached_property
    def told(self) -> str:
        """The instrument in words: the same for judges that answer alike."""
        return repr(self.instrument)

    @cached_property
    def resolved_layout(self) -> Layout:
        """The order of the parts of a request, "auto" decided."""
        if self.layout != "auto":
            return self.layout
        return "handbook" if keeps_prefixes(self.model) else "contexts_first"

    @property
    def members(self) -> tuple[Judge, ...]:
        """Who is asked for verdicts; the first of them for everything else."""
        return (self,)

    @property
    def voters(self) -> list[Voter]:
        """The votes that make one verdict, an odd number of them."""
        return [Voter(member, draw) for member in self.members for draw in range(member.draws)]

    @cached_property
    def ways(self) -> list[RequestMode]:
        """The ways of asking this model, best first."""
        return [RequestMode(rung) for rung in ladder(self._client, self.mode)]

    def with_language(self, language: str) -> Judge:
        """The same judge, with all that it knows, and prompts in a language, unless the user chose its prompts."""
        if self.prompts is not None or self.language == language:
            return self
        made = replace(self, language=language)
        object.__setattr__(made, "capabilities", self.capabilities)
        return made

    def with_fresh_capabilities(self) -> Judge:
        """The same judge, having found out nothing about its endpoint, and whose findings are its own."""
        return replace(self)

    def map_members(self, change: Callable[[Judge], Judge]) -> Judge:
        """The judge with each of its members changed."""
        return change(self)

    def prompt_set(self, text: str) -> PromptSet:
        """The prompts for a text, by its language unless the user chose them."""
        if self.prompts is not None:
            return self.prompts
        return PromptSet.default(detect_language(text) if self.language == "auto" else self.language)

    def call(self, request: RequestContent, way: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """The model call that puts a `request` in one `way`, `tail` being what came of it before; `draw` from 0 on."""
        messages = lay_out(
            request, self.resolved_layout, with_schema=way.rung in _TOLD_IN_WORDS, fold_system=way.fold_system
        )
        options = self._client.rungs[way.rung](request.schema, self._own_options) if way.rung != "prompt" else {}
        model = self._uncached if draw else self._unlimited
        return Call(
            model,
            [*messages, *tail],
            {**self._client.always, **options},
            timeout_option=self._client.timeout,
            keeps_time=self._keeps_time,
            sync_only=self._sync_only,
            rate_limiter=self._limiter,
            schema=str(request.schema["title"]),
        )

    def below(self, way: RequestMode, error: Exception) -> RequestMode | None:
        """The next way to try after the endpoint's error; None when another way is no use."""
        if not way.fold_system and refuses_system(error):
            return RequestMode(way.rung, fold_system=True)
        rungs = [way.rung for way in self.ways]
        if not refuses(error) or way.rung == rungs[-1]:
            return None
        return RequestMode(rungs[rungs.index(way.rung) + 1], way.fold_system)

    def remember(self, way: RequestMode) -> None:
        """Use from now on the way that was answered validly, and say so once if it is not the best one."""
        if self.capabilities.way != way:
            self.capabilities.way = way
            if way != self.ways[0] and way not in self.capabilities.told:
                self.capabilities.told.add(way)
                lower = way.rung != self.ways[0].rung
                refused = [self.ways[0].rung] * lower + ["a system message"] * way.fold_system
                folded = ", with the system message folded into the human one" if way.fold_system else ""
                log.warning("%s refuses %s; asked by %s%s", self.identity, " and ".join(refused), way.rung, folded)

    @cached_property
    def _client(self) -> Client:
        return client_of(self.model)

    @cached_property
    def _keeps_time(self) -> bool:
        return self._client.timeout is not None and not retries_itself(self.model)

    @cached_property
    def _sync_only(self) -> bool:
        return sync_only(self.model)

    @cached_property
    def _own_options(self) -> dict[str, Any]:
        return own_options(self.model)

    @cached_property
    def _limiter(self) -> BaseRateLimiter | None:
        """The model's rate limiter. With a cache, the model itself asks it, for what the cache does not hold."""
        if not isinstance(self.model, BaseChatModel):
            return None
        cached = get_llm_cache() is not None if self.model.cache is None else self.model.cache
        return None if cached else self.model.rate_limiter

    @cached_property
    def _unlimited(self) -> Runnable[Any, Any]:
        """The model without the rate limiter that is asked before a call's time begins to run."""
        if self._limiter and isinstance(self.model, BaseChatModel):
            return self.model.model_copy(update={"rate_limiter": None})
        return self.model

    @cached_property
    def _uncached(self) -> Runnable[Any, Any]:
        """Later draws must not get the first one's reply from the model's cache."""
        if isinstance(self._unlimited, BaseChatModel):
            return self._unlimited.model_copy(update={"cache": False})
        return self._unlimited


@dataclass(frozen=True)
class Voter:
    """One vote on a verdict: who casts it, and in which draw."""

    judge: Judge
    draw: int


JudgeLike = Judge | Runnable[Any, Any] | Callable[[list[BaseMessage]], Any]

# JSON mode promises JSON, of whatever shape.
_TOLD_IN_WORDS = ("json_mode", "prompt")

# By identity; each Judge keeps its model alive, so an id is not given out again while it stands here.
_WRAPPED: WeakValueDictionary[int, Judge] = WeakValueDictionary()

_OPTIONS = ("language", "mode", "attempts", "draws", "layout", "max_statements", "max_context_tokens")


def _one_of(option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{option} is one of {', '.join(choices)}, got {value!r}")


def _at_least_one(option: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{option} takes a whole number from 1 on, got {value!r}")
