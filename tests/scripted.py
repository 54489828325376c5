"""Judges for tests: they replay typed replies, or answer by a function, and keep what they were asked."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, PrivateAttr

from langchain_rageval.answers import Verdict, VerdictLabel, Verdicts
from langchain_rageval.prompts.layout import read_inputs

Reply = BaseModel | AIMessage | str | Exception


class Scripted(BaseChatModel):
    """Gives `replies` in order; or what `answer` makes of the messages. Has no structured output of its own."""

    replies: Sequence[Any] = ()
    answer: Callable[[list[BaseMessage]], Any] | None = None
    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def asked(self) -> list[list[BaseMessage]]:
        """The messages of every call so far."""
        return self._asked

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The JSON inputs of every call so far."""
        return [read_inputs(human_of(messages)) for messages in self._asked]

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        with self._lock:
            number = len(self._asked)
            self._asked.append(messages)
        if self.answer is not None:
            reply = self.answer(messages)
        else:
            assert number < len(self.replies), f"no reply left for call {number + 1}: {messages[-1].text[-300:]}"
            reply = self.replies[number]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, BaseModel) and not isinstance(reply, AIMessage):
            reply = reply.model_dump_json()
        message = reply if isinstance(reply, AIMessage) else AIMessage(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])


def scripted(*replies: Reply) -> Scripted:
    """A judge that gives these replies in order."""
    return Scripted(replies=replies)


def answering(answer: Callable[[list[BaseMessage]], Any]) -> Scripted:
    """A judge that answers by a function of the messages."""
    return Scripted(answer=answer)


def human_of(messages: Sequence[BaseMessage]) -> str:
    """The first human message."""
    return next(message.text for message in messages if message.type == "human")


def verdict(number: int, label: VerdictLabel, *evidence: str, reason: str = "because") -> Verdict:
    """One verdict."""
    return Verdict(statement=number, reason=reason, evidence=list(evidence), verdict=label)


def supported(number: int, *evidence: str) -> Verdict:
    """A supported statement, by default by sentence 1.1."""
    return verdict(number, "supported", *(evidence or ("1.1",)))


def contradicted(number: int, *evidence: str) -> Verdict:
    """A contradicted statement, by default by sentence 1.1."""
    return verdict(number, "contradicted", *(evidence or ("1.1",)))


def absent(number: int) -> Verdict:
    """A statement of which the contexts say nothing."""
    return verdict(number, "absent")


def verdicts(*given: Verdict) -> Verdicts:
    """The answer of verify_statements."""
    return Verdicts(verdicts=list(given))
