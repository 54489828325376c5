"""Putting a question to the judge until its reply can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.judge import Judge, RequestMode
from langchain_rageval.judge.parser import StrictJsonOutputParser
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.retry import is_transient
from langchain_rageval.run.work import Locked, Operation, SendOnce, Shared

T = TypeVar("T", bound=BaseModel)

_LONGEST_QUOTE = 6_000


@dataclass
class Attempts:
    """How many model calls are left for a question, and the way that was answered last."""

    left: int
    way: RequestMode | None = None


@dataclass(frozen=True)
class JudgeQuestion(Generic[T]):
    """A request, and how its answer is read.

    Attributes:
        request: what is asked.
        parser: reads the reply.
        objection: what is wrong with an answer of the right form, None when nothing is.
    """

    request: RequestContent
    parser: StrictJsonOutputParser[T]
    objection: Callable[[T], str | None] = lambda _answer: None


def ask(judge: Judge, question: JudgeQuestion[T], attempts: Attempts, draw: int = 0) -> Operation[T]:
    """Ask, and ask again with the validation message while the reply cannot be read.

    Raises:
        JudgeOutputError: when no attempt is left.
    """
    tail: Sequence[BaseMessage] = ()
    while True:
        attempts.left -= 1
        try:
            return (yield from _try(judge, question, attempts, tail, draw))
        except OutputParserException as problem:
            raw = str(problem.llm_output or "")
            if not attempts.left:
                raise JudgeOutputError(str(problem), question.request.step, raw) from problem
            again = question.request.prompts.common.ask_again.format(problem=problem)
            tail = (AIMessage(_quoted(raw)), HumanMessage(again))


def shared(judge: Judge, question: JudgeQuestion[Any], draw: int, work: Operation[Any]) -> Shared:
    """Do a work for a question once for all who ask the judge the same, and make the same of the answer."""
    makers = (work, question.objection)
    made = (question.parser.pydantic_object, *(getattr(maker, "__qualname__", "") for maker in makers))
    request = question.request
    texts = (request.prompts.fingerprint, request.prompt.fingerprint, request.written_inputs)
    block = request.contexts and request.contexts.block
    return Shared((id(judge.model), judge.told, request.step, *texts, block, draw, *made), work)


def _try(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T]:
    """Ask once. The very first askers wait until one of them has found out which rung the endpoint takes."""
    lost = None
    if not judge.capabilities.probed and len(judge.ways) > 1:
        found = yield Locked(judge.capabilities.gate.own, _probe(judge, question, attempts, tail, draw))
        if isinstance(found, BaseModel):
            return found  # type: ignore[return-value]
        lost = found
    return (yield from _descend(judge, question, attempts, tail, draw, lost=lost))


def _probe(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T | Exception | None]:
    """The answer, if nobody has found a way yet; or what the transport lost, to be tried again while nobody waits."""
    if judge.capabilities.probed:
        return None
    try:
        return (yield from _descend(judge, question, attempts, tail, draw, once=True))
    except Exception as error:
        if is_transient(error):
            return error
        raise
    finally:
        judge.capabilities.probed = True


def _descend(
    judge: Judge,
    question: JudgeQuestion[T],
    attempts: Attempts,
    tail: Sequence[BaseMessage],
    draw: int,
    *,
    once: bool = False,
    lost: Exception | None = None,
) -> Operation[T]:
    """Ask in the best way known, and in lower ones while the endpoint refuses the form of the request."""
    attempts.way = attempts.way or judge.capabilities.way or judge.ways[0]
    while True:
        way = attempts.way
        try:
            call = judge.call(question.request, way, tail, draw)
            if lost is not None:
                call = replace(call, lost=lost)
            reply = yield SendOnce(call) if once else call
        except ValidationError as error:  # a client could not read what came, such as a call with a list of arguments
            raise OutputParserException(ValueError(f"the reply is no {error.title}"), llm_output="") from error
        except Exception as error:
            lower, lost = judge.below(way, error), None
            if lower is None:
                raise
            attempts.way = lower
        else:
            answer = question.parser.read_message(reply)
            judge.remember(way)
            problem = question.objection(answer)
            if problem:
                raise OutputParserException(ValueError(problem), llm_output=answer.model_dump_json())
            return answer


def _quoted(raw: str) -> str:
    """The judge's own output, without what no encoder takes, and not longer than helps; clients refuse an empty one."""
    text = str(without_surrogates(raw))
    if len(text) > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        text = f"{text[:half]} … {text[-half:]}"
    return text.strip() or "…"
