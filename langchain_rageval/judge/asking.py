"""Asking: sends a question to a judge, and repeats it until the reply is valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from langchain_rageval._internal.redaction import cut_middle
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.endpoint import RequestMode
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.ladder import output_limit
from langchain_rageval.judge.parser import StrictJsonOutputParser
from langchain_rageval.judge.stop_reason import CutOffReply
from langchain_rageval.prompts.control_tokens import escape_control_tokens
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.requests import Locked, Operation, SendOnce, Shared
from langchain_rageval.run.retry import is_transient

T = TypeVar("T", bound=BaseModel)

_MAX_QUOTE = 6_000  # characters
_SHORTEST_COPY = 40  # characters


@dataclass
class Attempts:
    """Remaining model calls for one question.

    Attributes:
        left: number of calls that may still be made.
        mode: request mode of the last call; None before the first one.
    """

    left: int
    mode: RequestMode | None = None


@dataclass(frozen=True)
class JudgeQuestion(Generic[T]):
    """A request to a judge, and how the reply is read.

    Attributes:
        request: content of the request.
        parser: parses the reply.
        objection: returns what is wrong with an answer that fits the schema, or None.
        is_divisible: returns True if the caller can ask in parts; called after an invalid reply. `ask_judge` then
            raises `CutOffReply` for a reply that was cut off at a length limit, because a judge that repeats it in
            fewer words leaves items out; likewise if the last attempt ends within its JSON.
    """

    request: RequestContent
    parser: StrictJsonOutputParser[T]
    objection: Callable[[T], str | None] = lambda _answer: None
    is_divisible: Callable[[], bool] = lambda: False


def ask_judge(judge: Judge, question: JudgeQuestion[T], attempts: Attempts, draw: int = 0) -> Operation[T]:
    """Ask a judge; repeat the question with the validation message while the reply is invalid.

    Raises:
        JudgeOutputError: if the reply is invalid and no attempt is left.
        CutOffReply: if the reply was cut off and the question can be divided.
    """
    tail: Sequence[BaseMessage] = ()
    while True:
        attempts.left -= 1
        try:
            return (yield from _ask_once(judge, question, attempts, tail, draw))
        except OutputParserException as problem:
            raw = str(problem.llm_output or "")
            if question.is_divisible():
                if isinstance(problem, CutOffReply) and not problem.only_thoughts:
                    raise
                if not attempts.left and _is_unfinished(raw):
                    raise CutOffReply(raw, only_thoughts=False, output_tokens=None) from problem
            if not attempts.left:
                if isinstance(problem, CutOffReply):
                    advice = _length_limit_advice(problem, judge)
                    raise JudgeOutputError(advice, question.request.step, raw, is_cut_off=True) from problem
                raise JudgeOutputError(str(problem), question.request.step, raw) from problem
            again = question.request.prompts.common.ask_again.format(problem=problem)
            tail = (AIMessage(_quote(raw)), HumanMessage(escape_control_tokens(again)))


def repeat_question(question: JudgeQuestion[T]) -> JudgeQuestion[T]:
    """Return a question about items that had no usable reply, marked as the repetition of an earlier one."""
    return replace(question, request=replace(question.request, repeated=True))


def shared_question(
    judge: Judge, question: JudgeQuestion[Any], draw: int, operation: Operation[Any], numbers: Iterable[int] = ()
) -> Shared:
    """Return a request that asks a question once per run and shares the result with all steps that ask the same.

    Two questions are the same if judge, step, prompts, inputs, contexts, draw, parser, objection and `numbers` are.

    Args:
        judge: judge to ask.
        question: the question.
        draw: number of the draw (repetition of the same request).
        operation: asks the question and returns the result to share.
        numbers: own numbers of the items that the request numbers from 1, if the result contains them.
    """
    names = [getattr(function, "__qualname__", "") for function in (operation, question.objection)]
    request = question.request
    texts = (request.prompts.fingerprint, request.prompt.fingerprint, request.written_inputs)
    block = request.contexts and request.contexts.block
    kind = question.parser.pydantic_object
    key = (id(judge.model), judge._fingerprint_text, request.step, *texts, block, draw, kind, *names, *numbers)
    return Shared(key, operation)


def _ask_once(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T]:
    """Ask the judge once. While the endpoint's capabilities are unknown, all callers but the first wait."""
    first_error = None
    endpoint = judge._endpoint
    if not endpoint.capabilities.probed and len(endpoint.modes) > 1:
        result = yield Locked(endpoint.capabilities.gate.value, _probe(judge, question, attempts, tail, draw))
        if isinstance(result, BaseModel):
            return result  # type: ignore[return-value]
        first_error = result
    return (yield from _ask_in_modes(judge, question, attempts, tail, draw, first_error=first_error))


def _probe(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T | Exception | None]:
    """Ask as the first caller of an endpoint, which finds out the request mode that the endpoint accepts.

    Returns:
        The answer; None if another caller has probed meanwhile; or a transport error, which the caller retries outside
        the gate.
    """
    capabilities = judge._endpoint.capabilities
    if capabilities.probed:
        return None
    try:
        return (yield from _ask_in_modes(judge, question, attempts, tail, draw, once=True))
    except Exception as error:
        if is_transient(error):
            return error
        raise
    finally:
        capabilities.probed = True


def _ask_in_modes(
    judge: Judge,
    question: JudgeQuestion[T],
    attempts: Attempts,
    tail: Sequence[BaseMessage],
    draw: int,
    *,
    once: bool = False,
    first_error: Exception | None = None,
) -> Operation[T]:
    """Ask in the best known request mode, and in the next modes while the endpoint refuses the form of the request."""
    endpoint = judge._endpoint
    attempts.mode = attempts.mode or endpoint.capabilities.mode or endpoint.modes[0]
    while True:
        mode = attempts.mode
        try:
            call = endpoint.call(question.request, mode, tail, draw)
            if first_error is not None:
                call = replace(call, first_error=first_error)
            reply = yield SendOnce(call) if once else call
        except ValidationError as error:  # a client could not parse the reply, such as a call with a list of arguments
            raise OutputParserException(ValueError(f"the reply is no {error.title}"), llm_output="") from error
        except Exception as error:
            lower, first_error = endpoint.fallback_mode(mode, error), None
            if lower is None:
                raise
            attempts.mode = lower
        else:
            answer = question.parser.read_message(reply)
            endpoint.record_success(mode)
            problem = question.objection(answer) or _copied_example(question.request, answer)
            if problem:
                raise OutputParserException(ValueError(problem), llm_output=answer.model_dump_json())
            return answer


def _length_limit_advice(problem: CutOffReply, judge: Judge) -> str:
    """Return what the user should change so that the judge's replies are not cut off."""
    if limit := output_limit(judge.model):
        name, tokens = limit
        is_limit, setting = f": {name} is {tokens}", name
    else:
        tokens_made = f" of {problem.output_tokens} tokens" if problem.output_tokens else ""
        is_limit, setting = tokens_made, "max_tokens"
    if problem.only_thoughts:
        return (
            f"the model's reasoning used up the length limit before the answer{is_limit}; "
            f"raise {setting} of the judge's model, or lower its reasoning effort"
        )
    return f"the reply was cut off at its length limit{is_limit}; raise {setting} of the judge's model"


def _copied_example(request: RequestContent, answer: BaseModel) -> str | None:
    """Return an error message if an answer is that of an example of the prompt, which has other inputs; else None.

    Answers with little text, such as an empty list, may be right although they are equal, and so may answers to a
    prompt outside the prompt set, as of a user's own step, which may consist of fixed labels.
    """
    if request.prompts.prompts.get(request.step) is not request.prompt:
        return None
    output = answer.model_dump(mode="json")
    for example in request.prompt.examples:
        inputs = {name: value for name, value in example.input.items() if name != "contexts"}
        if output == example.output and inputs != request.inputs and _text_length(output) >= _SHORTEST_COPY:
            return "this is the reply of an example: reply to the input"
    return None


def _text_length(value: Any) -> int:
    """Return the number of characters of all texts in a nested value, without keys."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_text_length, inner))


def _is_unfinished(raw: str) -> bool:
    """Return True if an invalid reply ends within JSON: it opens more brackets than it closes."""
    return raw.count("{") > raw.count("}") or raw.count("[") > raw.count("]")


def _quote(raw: str) -> str:
    """Return the judge's reply for the next request: encodable, without control tokens, cut, and never empty."""
    text = escape_control_tokens(str(without_surrogates(raw)))
    return cut_middle(text, _MAX_QUOTE).strip() or "…"  # clients refuse an empty message
