"""Endpoint of a judge: how its model takes structured output, and what the run has learnt about that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.judge.ladder import (
    ClientFamily,
    Mode,
    OwnRung,
    bound_options,
    client_family,
    inner_models,
    is_format_refused,
    is_sync_only,
    is_system_message_refused,
    is_temperature_refused,
    ladder,
    may_retry,
    sends_temperature,
    with_own_rung,
    without_temperature,
)
from langchain_rageval.prompts.layout import Layout, RequestContent, lay_out
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.requests import Call
from langchain_rageval.run.turns import gates_of

log = logging.getLogger("langchain_rageval")

_RUNGS_WITHOUT_SCHEMA_IN_PROMPT = ("json_schema", "function_calling")  # the others may not guarantee the schema


@dataclass(frozen=True, slots=True)
class RequestMode:
    """Form of a request to a judge: how structured output is requested, and where the system message is.

    Attributes:
        rung: the way of requesting structured output: "json_schema", "function_calling", "json_mode", "prompt", or
            the name of the user's function.
        fold_system: True if the system message is part of the human message, for endpoints that refuse a system role.
        default_temperature: True if the model's temperature is not sent, for reasoning models that refuse any.
    """

    rung: str
    fold_system: bool = False
    default_temperature: bool = False


def _new_gate() -> AdaptiveLimiter:
    return AdaptiveLimiter(1)


@dataclass
class EndpointCapabilities:
    """Knowledge about an endpoint, shared by all judges that use it.

    Attributes:
        mode: the mode of the last valid reply; None before the first one.
        valid_replies: number of valid replies so far.
        probed: True once a first request was answered or refused.
        warned: modes about which a warning was logged.
        gate: lets one caller at a time probe the endpoint.
    """

    mode: RequestMode | None = None
    valid_replies: int = 0
    probed: bool = False
    warned: set[RequestMode] = field(default_factory=set)
    gate: PerProcess[AdaptiveLimiter] = field(default_factory=lambda: PerProcess(_new_gate))


class Endpoint:
    """A judge's model as requests are sent to it. The model is never changed.

    Args:
        model: the judge's model.
        mode: the way of requesting structured output (rung) that the user chose or wrote, or "auto".
        layout: the layout that the user chose, or "auto".
        capabilities: of the same endpoint, if known; otherwise nothing is known yet.
        max_concurrency: most calls to the model at a time; None for one to a model in this process, else no limit.
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        mode: Mode | OwnRung,
        layout: Layout | Literal["auto"],
        capabilities: EndpointCapabilities | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        self.model = model
        self.capabilities = capabilities or EndpointCapabilities()
        self._mode = mode
        self._layout = layout
        self._max_concurrency = max_concurrency
        self._own_gate = PerProcess(partial(AdaptiveLimiter, max_concurrency))

    @cached_property
    def modes(self) -> list[RequestMode]:
        """The request modes to try, best first."""
        return [RequestMode(rung) for rung in ladder(self._family, self._mode)]

    @property
    def layout(self) -> Layout:
        """Order of the parts of a request: the layout that the user chose; "auto" is "contexts_first"."""
        return "contexts_first" if self._layout == "auto" else self._layout

    def call(self, request: RequestContent, mode: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """Build the model call of a request.

        Args:
            request: the content of the request.
            mode: the form in which it is sent.
            tail: messages of earlier tries, appended to the request's own.
            draw: number of the draw (repetition of the same request), from 0; later draws bypass the model's cache.
        """
        with_schema = mode.rung not in _RUNGS_WITHOUT_SCHEMA_IN_PROMPT
        messages = lay_out(request, self.layout, with_schema=with_schema, fold_system=mode.fold_system)
        options = self._family.rungs[mode.rung](request.schema, self._bound_options) if mode.rung != "prompt" else {}
        model = self._uncached if draw else self._unlimited
        if mode.default_temperature:
            model = without_temperature(model)
        return Call(
            model,
            [*messages, *tail],
            {**self._family.always, **options},
            timeout_option=self._family.timeout,
            client_enforces_timeout=self._client_enforces_timeout,
            sync_only=self._sync_only,
            rate_limiter=self._rate_limiter,
            schema=request.schema,
            gates=self.gates,
            offline=request.offline,
        )

    @property
    def gates(self) -> Sequence[AdaptiveLimiter]:
        """Limits of calls to the model: that of the user, or one at a time to each engine in this process."""
        if self._max_concurrency is not None:
            return (self._own_gate.value,)
        return gates_of(self.model) if self._runs_in_process else ()

    @property
    def called_models(self) -> list[Runnable[Any, Any]]:
        """The model in the forms in which it is called."""
        return [self._unlimited, self._uncached]

    def fallback_mode(self, mode: RequestMode, error: Exception) -> RequestMode | None:
        """Return the mode to try after an error; None if the error does not come from the form of the request."""
        if not mode.default_temperature and is_temperature_refused(error) and sends_temperature(self.model):
            return replace(mode, default_temperature=True)
        if not mode.fold_system and is_system_message_refused(error):
            return replace(mode, fold_system=True)
        rungs = [mode.rung for mode in self.modes]
        if not is_format_refused(error) or mode.rung == rungs[-1]:
            return None
        return replace(mode, rung=rungs[rungs.index(mode.rung) + 1])

    def record_success(self, mode: RequestMode) -> None:
        """Count a valid reply and use its mode from now on; a mode that is not the best one is logged once."""
        self.capabilities.valid_replies += 1  # without a lock: only a count above 0 matters
        if self.capabilities.mode != mode:
            self.capabilities.mode = mode
            best = self.modes[0]
            if mode != best and mode not in self.capabilities.warned:
                self.capabilities.warned.add(mode)
                refused = [best.rung] * (mode.rung != best.rung) + ["a system message"] * mode.fold_system
                refused += ["its temperature, which is not sent"] * mode.default_temperature
                folded = ", with the system message folded into the human one" if mode.fold_system else ""
                name = model_identity(self.model)
                log.warning("%s refuses %s; asked by %s%s", name, " and ".join(refused), mode.rung, folded)

    @cached_property
    def _family(self) -> ClientFamily:
        family = client_family(self.model)
        return family if isinstance(self._mode, str) else with_own_rung(family, self._mode)

    @cached_property
    def _client_enforces_timeout(self) -> bool:
        return self._family.timeout is not None and not may_retry(self.model)

    @cached_property
    def _runs_in_process(self) -> bool:
        return bool(gates_of(self.model))

    @cached_property
    def _sync_only(self) -> bool:
        """True also for a model in this process: a cancelled async call would still run, in an executor's thread."""
        return is_sync_only(self.model) or (
            self._runs_in_process and all(isinstance(inner, BaseLanguageModel) for inner in inner_models(self.model))
        )

    @cached_property
    def _bound_options(self) -> dict[str, Any]:
        return bound_options(self.model)

    @cached_property
    def _rate_limiter(self) -> BaseRateLimiter | None:
        """The model's rate limiter. A model with a cache acquires it itself, for replies that are not cached."""
        if not isinstance(self.model, BaseChatModel):
            return None
        cached = get_llm_cache() is not None if self.model.cache is None else self.model.cache
        return None if cached else self.model.rate_limiter

    @cached_property
    def _unlimited(self) -> Runnable[Any, Any]:
        """The model without its rate limiter, which is acquired before the time of a call starts to run."""
        if self._rate_limiter and isinstance(self.model, BaseChatModel):
            return self.model.model_copy(update={"rate_limiter": None})
        return self.model

    @cached_property
    def _uncached(self) -> Runnable[Any, Any]:
        """The model without its cache, from which later draws would get the reply of the first one."""
        if isinstance(self._unlimited, BaseChatModel):
            return self._unlimited.model_copy(update={"cache": False})
        return self._unlimited
