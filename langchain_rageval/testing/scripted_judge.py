"""ScriptedJudge: a judge that replays typed replies, through the very steps and parser of a real model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, PrivateAttr

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.errors import ConfigError
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import read_inputs, read_title
from langchain_rageval.prompts.promptset import PromptSet, languages

Reply = BaseModel | str | Exception

_TURN = threading.Lock()  # of all judges, so that a judge can be copied and pickled


@dataclass(frozen=True)
class ScriptedRequest:
    """What a judge was asked.

    Attributes:
        messages: as they came: system, human, and when it is asked again its own output and what was wrong with it.
    """

    messages: Sequence[BaseMessage]

    @property
    def human(self) -> str:
        """Text of the first human message: contexts, task and inputs."""
        return next((message.text for message in self.messages if message.type == "human"), "")

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the step.

        Raises:
            ValueError: if the request is not one of a judge step.
        """
        return read_inputs(self.human)

    @property
    def schema(self) -> str | None:
        """Title of the schema of the answer that is asked for, such as "Verdicts"."""
        return read_title(self.human)

    @property
    def step(self) -> str:
        """Name of the step that asks, such as "verify_statements"; the schema's title for a step of your own."""
        if self.schema is None:
            return "a request without a schema"
        steps = [step for step, answer in ANSWER_SCHEMAS.items() if answer.__name__ == self.schema]
        if len(steps) > 1:
            sets = [PromptSet.default(language) for language in sorted(languages())]
            told = [step for step in steps if any(prompts.get(step).instruction in self.human for prompts in sets)]
            steps = told or steps
        return " or ".join(steps) or self.schema


class ScriptedJudge(BaseChatModel):
    """A chat model that gives the replies it was given: no network, no chance, and a record of what was asked.

    A step gets the first reply left that fits it: one of the class it asks for, or one without a class. So replies of
    one class keep their order, and those of different classes may be given in any. Steps that run side by side and ask
    for one class take the replies as they come; give them one reply with `repeat`.

    Args:
        replies: answers of `langchain_rageval.steps`, or of your own steps' classes; a str, or an AIMessage, is the
            reply as the model would write it, such as malformed JSON; an exception is raised.
        repeat: begin anew when the replies are used up, for metrics that are called many times.

    Raises:
        ConfigError: if a reply is none of these.
        AssertionError: from the call, naming the step, when no reply fits.
    """

    replies: tuple[Any, ...] = ()
    repeat: bool = False
    _left: list[Any] = PrivateAttr(default_factory=list)
    _requests: list[ScriptedRequest] = PrivateAttr(default_factory=list)

    def __init__(self, *replies: Reply, repeat: bool = False, **options: Any) -> None:
        replies = replies or tuple(options.pop("replies", ()))  # pydantic's own way of giving a field
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
        """What was asked so far, in order."""
        return list(self._requests)

    @property
    def left(self) -> list[Any]:
        """The replies that nobody has asked for yet."""
        return list(self._left)

    def _reply(self, request: ScriptedRequest) -> Any:
        """The next reply that fits."""
        with _TURN:
            if self.repeat and not any(_fits(reply, request.schema) for reply in self._left):
                self._left.extend(reply for reply in self.replies if _fits(reply, request.schema))
            at = next((n for n, reply in enumerate(self._left) if _fits(reply, request.schema)), None)
            if at is None:
                raise AssertionError(self._objection(request))
            return self._left.pop(at)

    def _objection(self, request: ScriptedRequest) -> str:
        given = sum(_fits(reply, request.schema) for reply in self.replies)
        left = ", ".join(type(reply).__name__ for reply in self._left) or "nothing"
        wanted = request.schema or "a reply"
        return (
            f"{request.step} asks for {wanted} and no such reply is left: ScriptedJudge was given {given} that fit, "
            f"left is {left}. Add {wanted}(...), or pass repeat=True"
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = ScriptedRequest(messages)
        self._requests.append(request)
        reply = self._reply(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, BaseModel) and not isinstance(reply, BaseMessage):
            reply = reply.model_dump_json()
        message = reply if isinstance(reply, BaseMessage) else AIMessage(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, **kwargs)


def _fits(reply: Any, schema: str | None) -> bool:
    """Whether a reply may be given to a request: its class is the one asked for, or it has none."""
    typed = isinstance(reply, BaseModel) and not isinstance(reply, BaseMessage)
    return not typed or schema is None or type(reply).__name__ == schema
