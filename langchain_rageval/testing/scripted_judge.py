"""ScriptedJudge: a chat model for tests that returns prepared answers; a metric parses them like those of any model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, PrivateAttr

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, STEPS_WITH_HISTORY
from langchain_rageval.prompts.layout import read_inputs, read_title
from langchain_rageval.prompts.promptset import PromptSet, languages

Reply = BaseModel | str | Exception

_TURN = threading.Lock()  # one lock for all judges, so that a judge can be copied and pickled


@dataclass(frozen=True)
class ScriptedRequest:
    """A request that a `ScriptedJudge` received.

    Attributes:
        messages: system and human message; in a request repeated after an invalid reply, also this reply and its error.
    """

    messages: Sequence[BaseMessage]

    @property
    def human(self) -> str:
        """The text of the first human message: contexts, task and inputs; "" if there is none."""
        return next((message.text for message in self.messages if message.type == "human"), "")

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Return the inputs of the judge step from the JSON block of the request.

        Raises:
            ValueError: if the request does not come from a judge step.
        """
        return read_inputs(self.human)

    @property
    def schema(self) -> str | None:
        """The title of the requested answer's schema, such as "Verdicts"; None if the request has no schema."""
        return read_title(self.human)

    @property
    def step(self) -> str:
        """The name of the step, such as "verify_statements"; for a custom step the title of its schema."""
        if self.schema is None:
            return "a request without a schema"
        steps = [step for step, answer in ANSWER_SCHEMAS.items() if answer.__name__ == self.schema]
        if len(steps) > 1 and "history" not in self.inputs:
            steps = [step for step in steps if step not in STEPS_WITH_HISTORY]
        if len(steps) > 1:
            sets = [PromptSet.default(language) for language in sorted(languages())]
            matching = [s for s in steps if any(prompts.get(s).instruction in self.human for prompts in sets)]
            steps = matching or steps
        return " or ".join(steps) or self.schema


class ScriptedJudge(BaseChatModel):
    """Chat model that returns scripted replies and records the requests; deterministic and offline.

    A step (a question of a metric to the judge) receives the first unused reply that fits: a reply of the requested
    answer class, or a reply without a class. Replies of one class are used in order; the order between classes does not
    matter. Concurrent steps that request the same class receive replies in the order in which the steps run. For such
    steps, pass one reply and `repeat=True`.

    Args:
        replies: answers from `langchain_rageval.steps`, or of your own answer classes. A str or an AIMessage is
            returned verbatim, for example malformed JSON. An exception is raised.
        repeat: start again with the first reply when the replies are used up, for metrics that are called often.

    Raises:
        ConfigError: if a reply has another type.
        AssertionError: raised by a call if no unused reply fits; the message names the step.
    """

    replies: tuple[Any, ...] = ()
    repeat: bool = False
    _left: list[Any] = PrivateAttr(default_factory=list)
    _requests: list[ScriptedRequest] = PrivateAttr(default_factory=list)

    def __init__(self, *replies: Reply, repeat: bool = False, **options: Any) -> None:
        replies = replies or tuple(options.pop("replies", ()))  # pydantic passes a field by its name
        for reply in replies:
            if not isinstance(reply, BaseModel | str | Exception):
                raise ConfigError(
                    "a reply is an answer such as langchain_rageval.steps.Statements(...), a str, an AIMessage or an "
                    f"exception, got {reply!r}"
                )
        super().__init__(replies=replies, repeat=repeat, **options)
        self._left.extend(replies)

    @property
    def _llm_type(self) -> str:
        return "rageval-scripted"

    @property
    def requests(self) -> list[ScriptedRequest]:
        """Requests that the judge has received so far, in order."""
        return list(self._requests)

    @property
    def left(self) -> list[Any]:
        """Replies that have not been used yet."""
        return list(self._left)

    def _reply(self, request: ScriptedRequest) -> Any:
        """Return the next reply that fits, and mark it as used."""
        with _TURN:
            if self.repeat and not any(_fits(reply, request.schema) for reply in self._left):
                self._left.extend(reply for reply in self.replies if _fits(reply, request.schema))
            at = next((n for n, reply in enumerate(self._left) if _fits(reply, request.schema)), None)
            if at is None:
                fitting = sum(_fits(reply, request.schema) for reply in self.replies)
                left = ", ".join(type(reply).__name__ for reply in self._left) or "none"
                answer = request.schema or "a reply"
                raise AssertionError(
                    f"{request.step} requests {answer}, but no unused reply fits: {fitting} of the scripted replies "
                    f"fit, unused are {left}. Add {answer}(...) or pass repeat=True"
                )
            return self._left.pop(at)

    def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        request = ScriptedRequest(messages)
        self._requests.append(request)
        reply = self._reply(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, BaseModel) and not isinstance(reply, BaseMessage):
            reply = reply.model_dump_json()
        message = reply if isinstance(reply, BaseMessage) else AIMessage(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages, **kwargs)


def _fits(reply: Any, schema: str | None) -> bool:
    """Return True if the reply is of the requested answer class, or has no class."""
    typed = isinstance(reply, BaseModel) and not isinstance(reply, BaseMessage)
    return not typed or schema is None or type(reply).__name__ == schema
