"""Asking: send a question to a judge, and repeat the question until the reply is valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from langchain_rageval._internal.redaction import cut_middle
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import JudgeOutputError, JudgeUnavailable
from langchain_rageval.judge.endpoint import Endpoint, RequestMode
from langchain_rageval.judge.judge import Judge, voters_of
from langchain_rageval.judge.ladder import output_limit, without_fallbacks
from langchain_rageval.judge.panels import Cascade, CascadeEvent
from langchain_rageval.judge.parser import StrictJsonOutputParser, UnfitReply
from langchain_rageval.judge.probabilities import has_verdicts, least_probability, verdict_key
from langchain_rageval.judge.reply import CutOffReply
from langchain_rageval.prompts.criteria import criterion_key
from langchain_rageval.prompts.layout import RequestContent, escape_control_tokens
from langchain_rageval.run.requests import Count, Gather, Locked, Operation, SendOnce, Shared, ValidReply
from langchain_rageval.run.retry import is_server_error, is_transient

T = TypeVar("T", bound=BaseModel)

_MAX_QUOTE = 6_000  # characters
_SHORTEST_COPY = 40  # characters


@dataclass
class Attempts:
    """Remaining model calls for one question to a judge.

    Attributes:
        left: number of calls that may still be made.
        mode: request mode of the next call; None before the first call.
        server_errors: mapping from a request mode to a phrase about its server error (HTTP 5xx). Errors after the
            endpoint's first valid reply are not added.
        format_ignored: True if the last reply showed that the endpoint ignores the requested output format.
    """

    left: int
    mode: RequestMode | None = None
    server_errors: dict[RequestMode, str] = field(default_factory=dict)
    format_ignored: bool = False


@dataclass(frozen=True)
class JudgeQuestion(Generic[T]):
    """A question to a judge, and how the reply is parsed and checked.

    Attributes:
        request: content of the request.
        parser: parses the reply.
        objection: function that returns what is wrong with an answer that fits the schema; None if nothing is wrong.
        is_divisible: function that returns True if the caller can ask the question in parts. It is called after an
            invalid reply. If it returns True, `ask_judge` raises `CutOffReply` in two cases: the answer was cut off at
            a length limit, or no attempt is left and the reply lacks closing brackets. The question is not repeated
            after a cut-off reply, because the judge might then leave items out.
    """

    request: RequestContent
    parser: StrictJsonOutputParser[T]
    objection: Callable[[T], str | None] = lambda _answer: None
    is_divisible: Callable[[], bool] = lambda: False


def ask_judge(judge: Judge, question: JudgeQuestion[T], attempts: Attempts, draw: int = 0) -> Operation[T]:
    """Ask a judge a question and return the answer; while the reply is invalid, ask again with the error message.

    `draw` is the number of the repetition of the same request, from 0. A cascade asks its cheap judge first. It asks
    the strong judge if the cheap judge gives no valid reply or omits an item, if the votes of the cheap judge differ,
    or if a verdict has a low probability.

    Raises:
        JudgeOutputError: if the reply is invalid and no attempt is left.
        CutOffReply: if the reply was cut off and the question can be divided.
    """
    if isinstance(judge, Cascade):
        return (yield from _ask_cascade(judge, question, attempts, draw))
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
                is_cut_off = isinstance(problem, CutOffReply)
                advice = _length_limit_advice(problem, judge) if isinstance(problem, CutOffReply) else str(problem)
                raise JudgeOutputError(advice, question.request.step, raw, is_cut_off=is_cut_off) from problem
            tail = _tail_after(problem, question.request)


def _ask_cascade(judge: Cascade, question: JudgeQuestion[T], attempts: Attempts, draw: int) -> Operation[T]:
    """Ask the cheap judge of a cascade once for each of its votes, and the strong one if the votes leave it unsure."""
    voters = voters_of(judge.cheap)
    if not has_verdicts(question.parser.pydantic_object):
        voters = voters[:1]
    others = [Attempts(voter.judge.attempts) for voter in voters[1:]]
    operations = [
        _ask_or_reason(voter.judge, question, its_attempts, voter.draw + draw * len(voters))
        for voter, its_attempts in zip(voters, [attempts, *others], strict=True)
    ]
    votes: list[T | str] = yield Gather(operations)
    reason = _doubt(judge, question, votes)
    yield Count(CascadeEvent(judge.cheap.identity, judge.strong.identity, reason))
    if not reason and not isinstance(votes[0], str):
        return votes[0]
    return (yield from ask_judge(judge.strong, question, Attempts(judge.strong.attempts), draw))


def _ask_or_reason(judge: Judge, question: JudgeQuestion[T], attempts: Attempts, draw: int) -> Operation[T | str]:
    """Return the answer of a judge, or why it has no valid one: its reply is unreadable, or its endpoint fails."""
    try:
        return (yield from ask_judge(judge, question, attempts, draw))
    except JudgeOutputError:
        return "unreadable"
    except Exception as error:
        if isinstance(error, JudgeUnavailable) or is_transient(error):
            return "unanswered"
        raise


def _doubt(judge: Cascade, question: JudgeQuestion[T], votes: Sequence[T | str]) -> str:
    """Return why the votes of the cheap judge do not suffice; "" if they do."""
    answers = [vote for vote in votes if not isinstance(vote, str)]
    if len(answers) < len(votes):
        return next(vote for vote in votes if isinstance(vote, str))
    if not all(_is_complete(answer, question.request) for answer in answers):
        return "incomplete"
    if len({repr(verdict_key(answer)) for answer in answers}) > 1:
        return "with split votes"
    known = [found for answer in answers if (found := least_probability(answer)) is not None]
    return "with a low probability" if known and min(known) < judge.least_probability else ""


def _is_complete(answer: BaseModel, request: RequestContent) -> bool:
    """Return True unless an answer lacks an item of the request, or has one twice."""
    if request.limits is None or request.limits.items is None:
        return True
    items, key, numbers = request.limits.items
    given = [getattr(item, key, None) for item in getattr(answer, items, ())]
    return Counter(criterion_key(str(name)) for name in given) == Counter(criterion_key(str(name)) for name in numbers)


def shared_question(
    judge: Judge, question: JudgeQuestion[Any], draw: int, operation: Operation[Any], numbers: Iterable[int] = ()
) -> Shared:
    """Return a request that asks a question once per run; all callers with the same question share the result.

    Two questions are the same if all of these are equal: judge, step (name of the question, such as
    `verify_statements`), prompts, inputs, contexts, draw, parser, objection (function that checks the answer) and
    `numbers`.

    Args:
        judge: judge to ask.
        question: the question.
        draw: number of the draw (repetition of the same request).
        operation: operation that asks the question and returns the result to share.
        numbers: numbers by which the caller knows the items, if the result uses these numbers; else empty. Every
            request numbers its items from 1. Two callers can therefore send equal requests about items to which they
            gave different numbers. They do not share a result, because its numbers would be wrong for one of them.
    """
    names = [getattr(function, "__qualname__", "") for function in (operation, question.objection)]
    request = question.request
    texts = (request.prompts.fingerprint, request.prompt.fingerprint, request.written_inputs)
    block = request.contexts and request.contexts.block
    kind = question.parser.pydantic_object
    key = (id(judge.model), judge._fingerprint_text, request.step, *texts, block, draw, kind, *names, *numbers)
    return Shared(key, operation)


def _tail_after(problem: OutputParserException, request: RequestContent) -> Sequence[BaseMessage]:
    """Return the messages that follow the request after an invalid reply: the reply, and what is wrong with it."""
    again = request.prompts.common.ask_again.format(problem=problem)
    raw = escape_control_tokens(str(without_surrogates(str(problem.llm_output or ""))))
    quote = cut_middle(raw, _MAX_QUOTE).strip() or "…"  # clients refuse an empty message
    return AIMessage(quote), HumanMessage(escape_control_tokens(again))


def _ask_once(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T]:
    """Ask the judge once. While the endpoint's capabilities are unknown, all callers but the first wait."""
    first_error = None
    endpoint = judge._endpoint
    if not endpoint.capabilities.probed and len(endpoint.rungs) > 1:
        result = yield Locked(endpoint.capabilities.gate.value, _probe(judge, question, attempts, tail, draw))
        if isinstance(result, BaseModel):
            return result  # type: ignore[return-value]
        first_error = result
    return (yield from _ask_in_modes(judge, question, attempts, tail, draw, first_error=first_error))


def _probe(
    judge: Judge, question: JudgeQuestion[T], attempts: Attempts, tail: Sequence[BaseMessage], draw: int
) -> Operation[T | Exception | None]:
    """Ask as the first caller of an endpoint, which finds out the request mode that the endpoint accepts and follows.

    Returns:
        The answer; None if another caller has probed meanwhile; or a transport error, which the caller retries outside
        the gate.
    """
    capabilities = judge._endpoint.capabilities
    if capabilities.probed:
        return None
    try:
        while True:
            try:
                return (yield from _ask_in_modes(judge, question, attempts, tail, draw, once=True))
            except OutputParserException as problem:
                if not attempts.format_ignored or not attempts.left:
                    raise
                attempts.left -= 1
                tail = _tail_after(problem, question.request)
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
    """Ask in the best known request mode, and in the next modes while the endpoint refuses the form of the request.

    Before the endpoint's first valid reply, a server error or a reply that ignores the format leads to the next mode,
    too, and a model with fallbacks is asked without them, since they would hide that it refuses a format.
    """
    endpoint = judge._endpoint
    attempts.mode = attempts.mode or endpoint.first_mode
    alone = without_fallbacks(judge.model) is not judge.model and first_error is None
    while True:
        mode = attempts.mode
        alone = alone and endpoint.is_unproven(mode)
        asks_why = endpoint.may_fail_because_of(mode, attempts.server_errors)
        try:
            call = endpoint.call(question.request, mode, tail, draw)
            model = without_fallbacks(call.model) if alone else call.model
            tries: dict[str, Any] = {"first_error": first_error, "retries_server_errors": not asks_why}
            call = replace(call, model=model, **tries) if alone or asks_why or first_error is not None else call
            reply = yield SendOnce(call) if once or alone or (asks_why and attempts.server_errors) else call
        except ValidationError as error:  # a client could not parse the reply, such as a call with a list of arguments
            raise OutputParserException(ValueError(f"the reply is no {error.title}"), llm_output="") from error
        except Exception as error:
            lower, first_error = endpoint.fallback_mode(question.request, mode, error), None
            if lower is None and alone:
                lower, alone = mode, False
            elif lower is None and asks_why and is_server_error(error):
                lower = endpoint.lower_after_server_error(mode, error, attempts.server_errors)
            elif lower is None and not attempts.server_errors:
                raise
            attempts.mode = lower or next(iter(attempts.server_errors), mode)
            if lower is None:  # the format is not the cause
                attempts.server_errors.clear()
                first_error = error
                if once:
                    raise
        else:
            return (yield from _read_reply(endpoint, question, attempts, mode, reply))


def _read_reply(
    endpoint: Endpoint, question: JudgeQuestion[T], attempts: Attempts, mode: RequestMode, reply: BaseMessage
) -> Operation[T]:
    """Parse a reply and record what it shows about the endpoint; choose the mode of the next attempt if it is invalid.

    Raises:
        OutputParserException: if the reply is invalid.
    """
    endpoint.record_reply(reply)
    try:
        answer = question.parser.read_message(reply)
    except UnfitReply as problem:
        lower = None if _is_unfinished(str(problem.llm_output or "")) else endpoint.lower_if_ignored(mode, reply)
        attempts.mode, attempts.format_ignored = lower or mode, lower is not None
        raise
    endpoint.record_success(mode, attempts.server_errors)
    yield ValidReply(endpoint.capabilities)
    request = question.request
    objection = question.objection(answer) or _copied_example(request, answer) or _other_numbers(request, answer)
    if objection:
        raise OutputParserException(ValueError(objection), llm_output=answer.model_dump_json())
    endpoint.record_answer(answer, reply)
    return answer


def _length_limit_advice(problem: CutOffReply, judge: Judge) -> str:
    """Return what the user should change so that the judge's replies are not cut off."""
    if limit := output_limit(judge.model):
        setting, is_limit = limit[0], f": {limit[0]} is {limit[1]}"
    else:
        setting, is_limit = "max_tokens", f" of {problem.output_tokens} tokens" if problem.output_tokens else ""
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
    for example in (one for one in request.prompt.examples if one.output == output):
        inputs = {name: value for name, value in example.input.items() if name != "contexts"}
        if inputs != request.inputs and _text_length(output) >= _SHORTEST_COPY:
            return "this is the reply of an example: reply to the input"
    return None


def _other_numbers(request: RequestContent, answer: BaseModel) -> str | None:
    """Return an error message if an answer numbers the items of the request from 0, else None.

    Each of its verdicts would otherwise be that of the item before.
    """
    if request.limits is None or not request.limits.numbers_from_zero(answer.model_dump(mode="json")):
        return None
    return "there is no item 0: use the numbers of the input, which count from 1"


def _text_length(value: Any) -> int:
    """Return the number of characters of all texts in a nested value, without keys."""
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_text_length, inner))


def _is_unfinished(raw: str) -> bool:
    """Return True if an invalid reply ends within JSON: it opens more brackets than it closes."""
    return raw.count("{") > raw.count("}") or raw.count("[") > raw.count("]")
