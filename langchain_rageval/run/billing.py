"""Charging of model calls: records usage and time, and reports each outcome to the concurrency limiter."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig

from langchain_rageval.errors import ConfigError
from langchain_rageval.run.adaptive_limiter import Slot
from langchain_rageval.run.requests import Call
from langchain_rageval.run.retry import is_rate_limited
from langchain_rageval.run.run import Run, without_run
from langchain_rageval.run.usage import CACHED, names_of_model, tokens_in

_OPTIONS_IN_PROMPT = ("tools", "functions")  # call options that cost tokens; the others only guide the decoding


class MeteredTry:
    """Context manager around one try of a model call: reserves budget, counts the cost and reports to the limiter.

    A failed try is charged too. Embedding requests are not reported to the limiter: they usually have a separate quota,
    and few batches are sent at a time. Any rejected call waits for the time in the header Retry-After. The other calls
    do not wait unless the limiter has only one slot left: one call rejected by chance must not stop a run whose other
    calls are answered.

    Args:
        run: the run that makes the call.
        slot: slot of the call; None if the reply comes from a batch.
        calls: number of calls to charge.
        in_budget: True if budget is already reserved for the call, as for the requests of a batch.

    Attributes:
        is_charged: False for a reply from a batch that is charged to another score; this score is then charged nothing.
    """

    def __init__(self, run: Run, slot: Slot | None, calls: int = 1, *, in_budget: bool = False) -> None:
        self._run, self._slot, self._in_budget = run, slot, in_budget
        self._cost: dict[str, Any] = {"calls": calls}
        self.is_charged = True

    def __enter__(self) -> Self:
        """Start measuring the duration of the try; raise BudgetExceeded if the budget has no room for it."""
        if not self._in_budget:
            self._run.governor.begin_call()
        self._started = time.perf_counter()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Charge the duration and usage of the try to the meter, and report its outcome to the limiter."""
        if not self.is_charged:
            return
        charge = partial(self._run.meter.add, seconds=time.perf_counter() - self._started, **self._cost)
        charge() if self._in_budget else self._run.governor.end_call(charge)
        if self._slot is not None and error is None:
            self._run.governor.limiter.record_success(self._slot)
        elif self._slot is not None and isinstance(error, Exception) and is_rate_limited(error):
            self._run.governor.record_rejection(self._slot, error, self._run.retry.max_wait)

    def message_of(self, reply: Any, call: Call) -> BaseMessage:
        """Convert a model's reply to a message, and record the tokens that the reply cost.

        Raises:
            ConfigError: if the reply is neither a message nor a text.
        """
        if reply is None or isinstance(reply, str):  # None: some clients return it for a missing tool call
            reply = AIMessage(reply or "")
        if not isinstance(reply, BaseMessage):
            raise ConfigError(
                f"a judge returns a message or a text, this one returned {type(reply).__name__}: pass the model "
                "itself, without a parser or with_structured_output"
            )
        self._add_tokens(reply, call.model, request_texts(call))
        return reply

    def _add_tokens(self, message: BaseMessage, model: Any, asked: Iterable[str]) -> None:
        """Count tokens and price of a reply; of a cached one, take back the call.

        Args:
            message: the reply.
            model: the model, or its name, for the price.
            asked: texts of the request, whose tokens are estimated for a model that reports none.
        """
        tokens = getattr(message, "usage_metadata", None) or {}
        if tokens.get("total_cost") == 0:  # LangChain's mark of a reply from the model's cache
            self._cost["calls"] -= 1
            self._run.meter.count(CACHED)
            return
        for name in ("input_tokens", "output_tokens"):
            if tokens.get(name) is not None:
                self._cost[name] = self._cost.get(name, 0) + tokens[name]
        if not tokens:
            calls = [call for name in ("tool_calls", "invalid_tool_calls") for call in getattr(message, name, [])]
            texts = [message.text, *(json.dumps(call["args"], ensure_ascii=False) for call in calls)]
            self._cost["unreported"] = self._cost.get("unreported", 0) + tokens_in(*asked, *texts)
        if (prices := self._run.meter.prices) is not None:
            names = names_of_model(model, message)
            if (money := prices.cost(names, tokens)) is None:
                self._cost["unpriced"] = [prices.problem(names)]
            else:
                self._cost["money"] = self._cost.get("money", 0.0) + money


class MeteredChain(MeteredTry, BaseCallbackHandler):
    """Context manager around one invocation of a chain. As a callback handler, it counts the chain's model calls."""

    run_inline = True

    def __init__(self, run: Run, slot: Slot | None) -> None:
        super().__init__(run, slot, 0)
        self._lock = threading.Lock()
        self._asked: dict[UUID, tuple[str, Sequence[str]]] = {}  # name of the model, and the texts of the request

    def config_of(self, config: RunnableConfig) -> RunnableConfig:
        """Return a copy of a config for the chain, with this callback handler and without the config's `Run` object."""
        callbacks = config.get("callbacks") or []
        if isinstance(callbacks, BaseCallbackManager):
            callbacks = callbacks.copy()
            callbacks.add_handler(self)
        else:
            callbacks = [*callbacks, self]
        return {**without_run(config), "callbacks": callbacks}

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Count a call to a chat model."""
        self._count(run_id, [message.text for batch in messages for message in batch], kwargs.get("metadata"))

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        """Count a call to a text completion model."""
        self._count(run_id, prompts, kwargs.get("metadata"))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count the tokens of a reply."""
        model, asked = self._asked.get(run_id, ("", ()))
        for generation in (generation for batch in response.generations for generation in batch):
            with self._lock:
                self._add_tokens(getattr(generation, "message", None) or AIMessage(generation.text), model, asked)

    def rehearse(self, replies: Iterable[BaseMessage]) -> None:
        """In a dry run, charge one model call of the chain for each of the estimated replies."""
        for reply in replies:
            self._cost["calls"] += 1
            self._add_tokens(reply, None, ())

    def _count(self, run_id: UUID, texts: Sequence[str], metadata: Any) -> None:
        with self._lock:
            self._cost["calls"] += 1
        self._asked[run_id] = str((metadata or {}).get("ls_model_name") or ""), texts


def request_texts(call: Call) -> Iterator[str]:
    """Yield all texts that a call sends to the model: its messages, then its tools and functions as JSON."""
    yield from (message.text for message in call.messages)
    yield from (json.dumps(call.options[name], default=str) for name in _OPTIONS_IN_PROMPT if name in call.options)
