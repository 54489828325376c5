"""Endpoint of a judge: how requests are sent to its model, and which features the model's server supports."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from langchain_rageval._internal.cached import PerProcess, cached_property
from langchain_rageval._internal.redaction import is_private_name, redact_secrets
from langchain_rageval._version import __version__
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.ladder import (
    ClientFamily,
    Mode,
    OwnRung,
    bound_options,
    client_family,
    inner_models,
    is_format_refused,
    is_from_grammar_server,
    is_log_probability_refused,
    is_sync_only,
    is_system_message_refused,
    is_temperature_refused,
    ladder,
    may_retry,
    output_limit,
    own_tries,
    with_own_rung,
    without_temperature,
)
from langchain_rageval.judge.probabilities import assign_probabilities
from langchain_rageval.judge.reply import reply_texts
from langchain_rageval.prompts.answer_schemas import narrow_schema
from langchain_rageval.prompts.layout import Layout, RequestContent, lay_out
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.requests import Call
from langchain_rageval.run.retry import status_of
from langchain_rageval.run.turns import gates_of

_SETTINGS = (
    *("model", "model_name", "deployment_name", "base_url", "openai_api_base", "azure_endpoint"),
    *("temperature", "top_p", "top_k", "seed", "max_tokens", "num_predict", "repetition_penalty", "frequency_penalty"),
    *("presence_penalty", "reasoning_effort", "profanity_check", "dimensions", "size"),
)
_NAMES = ("model", "model_name", "deployment_name")


def model_identity(model: Any) -> str:
    """Return the class, name and settings of a model as text, without secrets; for a wrapper, of each inner model."""
    options = {name: value for name, value in _public(bound_options(model)).items() if value is not None}
    models = "+".join(_describe(inner) for inner in inner_models(model))
    return f"{models} {redact_secrets(str(options), model)}" if options else models


def _describe(model: Any) -> str:
    settings = {name: value for name in _SETTINGS if isinstance(value := getattr(model, name, None), str | int | float)}
    if (function := getattr(model, "func", None) or getattr(model, "afunc", None)) is not None:
        settings["function"] = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    if settings.get("model") == settings.get("model_name"):
        settings.pop("model_name", None)
    texts = {name: repr(value) for name, value in settings.items()}
    told = {name for name, value in settings.items() if isinstance(value, str) and name not in _NAMES}
    texts |= {name: redact_secrets(texts[name], model) for name in told}
    return f"{type(model).__qualname__}({', '.join(f'{name}={text}' for name, text in texts.items())})"


def _public(value: Any) -> Any:
    """Return options without secrets, headers, URL queries and names of users, at any depth."""
    if not isinstance(value, Mapping):
        return value
    return {name: _public(inner) for name, inner in value.items() if not is_private_name(str(name))}


log = logging.getLogger("langchain_rageval")

_RUNGS_WITHOUT_SCHEMA_IN_PROMPT = ("json_schema", "function_calling")  # the others may not guarantee the schema


@dataclass(frozen=True, slots=True)
class RequestMode:
    """Form of a request to a judge: how structured output is requested, and where the system message goes.

    Attributes:
        rung: output mode: "json_schema", "function_calling", "json_mode", "prompt", or the name of the user's function.
        fold_system: True if the system message is put into the human message, for endpoints that reject a system role.
        default_temperature: True to send no temperature, for reasoning models that reject any temperature.
        plain_schema: True to send the general schema of the answer class, for endpoints that reject a schema made for
            one request.
        plain_tokens: True to request no token log-probabilities, for endpoints that reject this option.
    """

    rung: str
    fold_system: bool = False
    default_temperature: bool = False
    plain_schema: bool = False
    plain_tokens: bool = False


@dataclass
class EndpointCapabilities:
    """Known capabilities of an endpoint, shared by all judges that use the endpoint.

    An output mode is a way to request JSON, such as "json_schema". A request mode (`RequestMode`) is an output mode
    with further choices, such as where the system message goes.

    Attributes:
        mode: request mode of the last valid reply; None before the first valid reply.
        probed: True once the endpoint has answered or rejected a first request.
        warned: request modes about which a warning was logged.
        grammar: True if replies show that the server builds a grammar for each request at little cost.
        refuses_own_schemas: True if the endpoint rejected a schema that lists the possible answers of one request.
        unusable: output modes that were abandoned although the endpoint did not reject them, each with the reason as a
            phrase.
        unfit: mapping from output modes to the number of replies, before the first valid reply, that did not fit the
            schema.
        fails_anyway: True if requests failed with server errors (HTTP 5xx) in every output mode.
        refuses_log_probabilities: True if the endpoint rejected a request for token log-probabilities.
        replies_with_tokens: number of replies with token log-probabilities.
        replies_without_tokens: number of replies without the log-probabilities that were requested.
        gate: lock that lets only one caller at a time probe the endpoint.
    """

    mode: RequestMode | None = None
    probed: bool = False
    warned: set[RequestMode] = field(default_factory=set)
    grammar: bool = False
    refuses_own_schemas: bool = False
    unusable: dict[str, str] = field(default_factory=dict)
    unfit: Counter[str] = field(default_factory=Counter)
    fails_anyway: bool = False
    refuses_log_probabilities: bool = False
    replies_with_tokens: int = 0
    replies_without_tokens: int = 0
    gate: PerProcess[AdaptiveLimiter] = field(default_factory=lambda: PerProcess(partial(AdaptiveLimiter, 1)))


@dataclass(eq=False, repr=False)
class Endpoint:
    """A judge's model, with the way in which requests are sent to it. The model is never changed.

    Args:
        model: the judge's model.
        mode: option `mode` of the judge: the name of an output mode, "auto", or a function that takes the JSON schema
            of the answer and returns call options.
        chosen_layout: option `layout` of the judge: the order of the parts of a request, or "auto".
        capabilities: known capabilities of the endpoint; by default nothing is known yet.
        max_concurrency: maximum number of calls to the model at a time. None means one call for a model in this
            process, and no limit for other models.
        probabilities: True to request the log-probabilities of the tokens.
        grammar: True if the server builds a grammar for each request at little cost; None to find out from the replies.
    """

    model: Runnable[Any, Any]
    mode: Mode | OwnRung
    chosen_layout: Layout | Literal["auto"]
    capabilities: EndpointCapabilities = field(default_factory=EndpointCapabilities)
    max_concurrency: int | None = None
    probabilities: bool = False
    grammar: bool | None = None

    def __post_init__(self) -> None:
        """Create the limiter of the calls to the model."""
        self._own_gate = PerProcess(partial(AdaptiveLimiter, self.max_concurrency))

    @cached_property
    def rungs(self) -> list[str]:
        """Output modes to try, in order of preference."""
        return ladder(self._family, self.mode)

    @property
    def first_mode(self) -> RequestMode:
        """Request mode of the last valid reply; before any valid reply, the best mode not known to be unusable."""
        usable = (rung for rung in self.rungs if rung not in self.capabilities.unusable)
        mode = self.capabilities.mode or RequestMode(next(usable, self.rungs[-1]))
        if self.capabilities.refuses_log_probabilities:
            mode = replace(mode, plain_tokens=True)
        return replace(mode, plain_schema=True) if self.capabilities.refuses_own_schemas else mode

    def is_unproven(self, mode: RequestMode) -> bool:
        """Return True if the failure of a request sent in `mode` may be due to its output mode (way to request JSON).

        This is so if the endpoint has given no valid reply yet and there is a further output mode to try.
        """
        return self.capabilities.mode is None and self._lower(mode) is not None

    def may_fail_because_of(self, mode: RequestMode, failures: Mapping[RequestMode, str]) -> bool:
        """Return True if the output format of a request may be the cause of a server error (HTTP 5xx).

        The result is False in three cases: the endpoint has given a valid reply to any question; it has failed in every
        output mode; or the failed request is the first of its question and used the last output mode, so that no other
        one is left to try.

        Args:
            mode: mode of the failed request (its output mode and its other settings).
            failures: earlier server errors of the same question, by mode of the request.
        """
        unknown = self.capabilities.mode is None and not self.capabilities.fails_anyway
        return unknown and (bool(failures) or self._lower(mode) is not None)

    @property
    def layout(self) -> Layout:
        """Order of the parts of a request, as the user chose it; for "auto", "contexts_first"."""
        return "contexts_first" if self.chosen_layout == "auto" else self.chosen_layout

    def call(self, request: RequestContent, mode: RequestMode, tail: Sequence[BaseMessage], draw: int) -> Call:
        """Build the model call of a request.

        Args:
            request: the content of the request.
            mode: the form in which the request is sent.
            tail: messages of earlier tries, appended to the messages of the request.
            draw: number of the draw (repetition of the same request), from 0; later draws bypass the model's cache.
        """
        with_schema = mode.rung not in _RUNGS_WITHOUT_SCHEMA_IN_PROMPT
        messages = lay_out(request, self.layout, with_schema=with_schema, fold_system=mode.fold_system)
        schema = request.schema
        if request.limits is not None and self._narrows(request, mode):
            limit = output_limit(self.model)
            schema = narrow_schema(schema, request.limits, limit and limit[1])
        bound = bound_options(self.model) if mode.rung in self._family.rungs else {}
        options = self._family.options(mode.rung, schema, bound)
        if self.probabilities and not mode.plain_tokens:
            options = {**self._family.probabilities, **options}
        model = self._models[draw > 0]
        if mode.default_temperature:
            model = without_temperature(model)
        return Call(
            model,
            [*messages, *tail],
            {**self._family.always, **options},
            timeout_option=self._family.timeout,
            client_enforces_timeout=self._family.timeout is not None and not may_retry(self.model),
            sync_only=self._sync_only,
            rate_limiter=self._rate_limiter,
            schema=request.schema,
            gates=self.gates,
            own_tries=self._own_tries,
            draw=draw,
            endpoint=self.capabilities,
            offline=request.offline,
        )

    @property
    def gates(self) -> Sequence[AdaptiveLimiter]:
        """Limiters of concurrent calls that a call to the model must pass; empty if the number of calls is not limited.

        If `max_concurrency` is set, this is one limiter of that many calls. Otherwise, for a model in this process, it
        is a limiter of one call at a time for each engine of the model (such as llama.cpp).
        """
        if self.max_concurrency is not None:
            return (self._own_gate.value,)
        return gates_of(self.model) if self._runs_in_process else ()

    def fallback_mode(self, request: RequestContent, mode: RequestMode, error: Exception) -> RequestMode | None:
        """Return the request mode to try after an error of a request that was sent in `mode`; None if there is none.

        The returned mode changes what the endpoint rejected: the temperature, the system message, the request for
        log-probabilities, the schema made for one request, or the output mode. None if the error has another cause, or
        if the endpoint rejected the last output mode.
        """
        sends_temperature = without_temperature(self.model) is not self.model
        if not mode.default_temperature and is_temperature_refused(error) and sends_temperature:
            return replace(mode, default_temperature=True)
        if not mode.fold_system and is_system_message_refused(error):
            return replace(mode, fold_system=True)
        if self.probabilities and not mode.plain_tokens and is_log_probability_refused(error):
            self.capabilities.refuses_log_probabilities = True
            return replace(mode, plain_tokens=True)
        if not is_format_refused(error):
            return None
        if not self._narrows(request, mode):
            return self._lower(mode)
        self.capabilities.refuses_own_schemas = True
        return replace(mode, plain_schema=True)

    def lower_after_server_error(
        self, mode: RequestMode, error: Exception, failures: dict[RequestMode, str]
    ) -> RequestMode | None:
        """Return the mode to try after a server error (HTTP 5xx) before the first valid reply; None to retry as usual.

        A server may fail because it does not know the output format. After the first error of a question, `mode` itself
        is returned, because the error may be temporary. After each later error, the next output mode is returned. If
        all modes have failed, the format is not the cause, and None is returned.

        Args:
            mode: the mode of the request that failed.
            error: the error.
            failures: failures of this question so far: a phrase for each mode. This method adds the new failure.
        """
        if mode.rung in self.capabilities.unusable:  # another question has found out
            return self.first_mode
        if not self.may_fail_because_of(mode, failures):
            return None
        is_first = not failures
        failures[mode] = f"answers {mode.rung} with HTTP {status_of(error)}"
        lower = mode if is_first else self._lower(mode)
        self.capabilities.fails_anyway = lower is None
        return lower

    def lower_if_ignored(self, mode: RequestMode, message: BaseMessage) -> RequestMode | None:
        """Return the mode to try after a complete reply that does not fit the schema; None to ask in the same mode.

        Before the first valid reply, such a reply may show that the server ignores the requested output format. In the
        mode "json_schema", one reply proves this. In "function_calling", one reply without a function call proves it.
        In all other cases two replies are needed. An output mode that is ignored is not tried again.
        """
        if mode.rung in self.capabilities.unusable:  # another question has found out
            return self.first_mode
        if not self.is_unproven(mode):
            return None
        is_called = mode.rung == "function_calling" and any(reply.tool for reply in reply_texts(message))
        self.capabilities.unfit[mode.rung] += 1
        if (is_called or mode.rung not in _RUNGS_WITHOUT_SCHEMA_IN_PROMPT) and self.capabilities.unfit[mode.rung] < 2:
            return None
        self.capabilities.unusable[mode.rung] = f"ignores {mode.rung}"
        return self._lower(mode)

    def record_reply(self, message: BaseMessage) -> None:
        """Record whether a reply, valid or not, shows that the server builds a grammar for each request."""
        if not self.capabilities.grammar and self._family.name == "BaseChatOpenAI":
            self.capabilities.grammar = is_from_grammar_server(message)

    def record_answer(self, answer: BaseModel, message: BaseMessage) -> None:
        """Set the probabilities of the verdicts in an answer, and count replies with and without log-probabilities.

        Nothing is done if no probabilities were requested.
        """
        if self.probabilities:
            if assign_probabilities(answer, message):
                self.capabilities.replies_with_tokens += 1
            else:
                self.capabilities.replies_without_tokens += 1

    def record_success(self, mode: RequestMode, failures: Mapping[RequestMode, str]) -> None:
        """Keep the mode of a valid reply for further requests, and log the mode once if it is not the best mode.

        `failures` are the server errors (HTTP 5xx) of the same question; the output modes in which they occurred become
        unusable.
        """
        for failed, phrase in failures.items():
            if failed.rung != mode.rung:
                self.capabilities.unusable.setdefault(failed.rung, phrase)
        if self.capabilities.mode != mode:
            self.capabilities.mode = mode
            best = self.rungs[0]
            is_best = replace(mode, plain_schema=False, plain_tokens=False) == RequestMode(best)
            if not is_best and mode not in self.capabilities.warned:
                self.capabilities.warned.add(mode)
                left = self._left_rungs(mode)
                refused = [best] * (mode.rung != best and not left)
                refused += ["a system message"] * mode.fold_system
                refused += ["its temperature, which is not sent"] * mode.default_temperature
                problems = [*left, *([f"refuses {' and '.join(refused)}"] if refused else [])]
                folded = ", with the system message folded into the human one" if mode.fold_system else ""
                name = model_identity(self.model)
                log.warning("%s %s; asked by %s%s", name, ", ".join(problems), mode.rung, folded)

    def assume_format(self) -> None:
        """Assume, without a test request, that the endpoint accepts the best request mode and follows its format.

        The best mode is `first_mode`. A batch evaluation without live requests calls this method, because it cannot
        find the request mode by trial.
        """
        self.capabilities.probed = True
        self.capabilities.mode = self.first_mode

    @property
    def note(self) -> Note | None:
        """Note for the report about the request mode that was used; None before the first valid reply."""
        mode = self.capabilities.mode
        if mode is None or (mode.rung == "prompt" and len(self.rungs) == 1):
            return None
        left = self._left_rungs(mode)
        code = "request-mode-lowered" if left else "request-mode"
        return Note(code, judge=model_identity(self.model), mode=mode.rung, reasons=left)

    @property
    def probabilities_note(self) -> Note | None:
        """Note that replies lack the requested token log-probabilities; None if no reply lacks them."""
        if not self.probabilities or not self.capabilities.replies_without_tokens:
            return None
        code = "some-probabilities" if self.capabilities.replies_with_tokens else "no-probabilities"
        return Note(code, judge=model_identity(self.model))

    def _left_rungs(self, mode: RequestMode) -> list[str]:
        """Return why rungs above a mode were left that the endpoint did not refuse, as phrases."""
        above = self.rungs[: self.rungs.index(mode.rung)]
        return [self.capabilities.unusable[rung] for rung in above if rung in self.capabilities.unusable]

    def _lower(self, mode: RequestMode) -> RequestMode | None:
        """Return the mode with the next output mode of the fallback order; None if there is none."""
        lower = self.rungs[self.rungs.index(mode.rung) + 1 :] if mode.rung in self.rungs else []
        return replace(mode, rung=lower[0]) if lower else None

    def _narrows(self, request: RequestContent, mode: RequestMode) -> bool:
        """Return True if a request in a mode is sent with its narrowed schema, not with that of its answer class."""
        if mode.rung != "json_schema" or mode.plain_schema or request.limits is None:
            return False
        known = self._family.grammar or self.capabilities.grammar
        return isinstance(self.mode, str) and (known if self.grammar is None else self.grammar)

    @cached_property
    def _family(self) -> ClientFamily:
        family = client_family(self.model)
        return family if isinstance(self.mode, str) else with_own_rung(family, self.mode)

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
    def _own_tries(self) -> int:
        return own_tries(self.model)

    @cached_property
    def _rate_limiter(self) -> BaseRateLimiter | None:
        """The model's rate limiter. A model with a cache acquires it itself, for replies that are not cached."""
        if not isinstance(self.model, BaseChatModel):
            return None
        cached = get_llm_cache() is not None if self.model.cache is None else self.model.cache
        return None if cached else self.model.rate_limiter

    @cached_property
    def _models(self) -> tuple[Runnable[Any, Any], Runnable[Any, Any]]:
        """The model for the first draw and for later draws.

        Both are without the rate limiter, which is acquired before the time of a call starts to run. The second is also
        without the cache, from which later draws would get the reply of the first one.
        """
        if not isinstance(self.model, BaseChatModel):
            return self.model, self.model
        first = self.model.model_copy(update={"rate_limiter": None}) if self._rate_limiter else self.model
        return first, first.model_copy(update={"cache": False})


_KEY = "rageval_probe"
_SMALL_WINDOW = 32_768  # tokens; larger windows rarely need a limit


@dataclass(frozen=True, kw_only=True)
class EndpointProbe:
    """Capabilities of an endpoint, found by small test requests.

    `rageval probe` writes the probe to a file, and `Judge(probe=...)` reads it.

    Attributes:
        judge: class, name and settings of the model.
        mode: output mode that gave a valid reply.
        narrowed: True if the endpoint accepts schemas that allow only the possible answers of one request.
        grammar: True if a new schema with each request costs no time.
        context_window: number of tokens that the model accepts, as the server or the model's profile states; None if
            neither states it.
        prefix_cache: True if the server reused the beginning of the previous request; None if the server does not
            report this.
        log_probabilities: True if replies contain token log-probabilities.
        requests_per_minute: limit of requests per minute in the headers of a reply; None if there is none.
        tokens_per_minute: limit of tokens per minute in these headers; None if there is none.
        requests: number of requests that the probe sent.
    """

    judge: str
    mode: str
    narrowed: bool = False
    grammar: bool = False
    context_window: int | None = None
    prefix_cache: bool | None = None
    log_probabilities: bool = False
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    requests: int = 0

    @classmethod
    def load(cls, path: str | Path) -> EndpointProbe:
        """Read a probe from a file.

        Raises:
            ConfigError: if the file cannot be read, or does not hold a probe.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            known = {field.name for field in fields(cls)}
            return cls(**{name: value for name, value in content[_KEY].items() if name in known})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is not a probe ({error}): write one with `rageval probe --out FILE`") from None

    def to_json(self, path: str | Path) -> None:
        """Write the probe to a file."""
        content = {_KEY: asdict(self), "version": __version__}
        Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @property
    def options(self) -> dict[str, Any]:
        """Recommended options of `Judge` for this endpoint, apart from `probe`.

        The keys are "mode", "grammar" and, for a context window of at most 32,768 tokens, "max_context_tokens" (half of
        the window).
        """
        window = self.context_window
        limit = {"max_context_tokens": window // 2} if window is not None and window <= _SMALL_WINDOW else {}
        return {"mode": self.mode, "grammar": self.grammar, **limit}
