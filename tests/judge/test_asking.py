"""Questions to a judge: attempts, what is asked again and how, and what a step makes of the reply."""

import json
import logging
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from helpers.each import each, error_of
from helpers.scripted import Refusal, Scripted, grades, human_of, needed, scripted
from helpers.waiting import PATIENCE, holds_in_a_fork, needs_fork, until
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, PrivateAttr

from langchain_rageval import (
    ConfigError,
    Judge,
    JudgeOutputError,
    Prompt,
    PromptSet,
    RetryPolicy,
    Sample,
    StrictJsonOutputParser,
)
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, _copied_example, ask_judge
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.judge.reply import CutOffReply
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.run import Run
from langchain_rageval.steps import Statements
from langchain_rageval.steps.grade_contexts import grade_contexts, select_sentences
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.step import Step

GOOD = Statements(statements=["A."])
STATE = {"question": "What?", "text": "A."}
RUNGS = ["json_schema", "function_calling", "json_mode", "prompt"]


class BaseChatOpenAI(Scripted):
    """A client of OpenAI's family, told by its class name, whose endpoint takes only some rungs."""

    takes: tuple[str, ...] = ()
    refusal: Exception = Refusal()
    before: Callable[[list[BaseMessage]], object] = len  # called with the messages of each request
    _rungs: list[str] = PrivateAttr(default_factory=list)

    @property
    def rungs(self):
        """The rung of every call so far."""
        return self._rungs

    def _generate(self, messages, stop=None, run_manager=None, **options):
        self.before(messages)
        form = options.get("extra_body", {}).get("response_format", {}).get("type")
        named = {"json_schema": "json_schema", "json_object": "json_mode"}
        rung = "function_calling" if "tools" in options else named.get(form, "prompt")
        self._rungs.append(rung)
        if rung not in self.takes:
            raise self.refusal
        if rung == "function_calling":
            calls = [{"name": "Statements", "args": GOOD.model_dump(), "id": "1"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])
        return super()._generate(messages, stop, run_manager, **options)


def endpoint(*takes, replies=(GOOD,) * 9, **options):
    return BaseChatOpenAI(takes=takes, replies=replies, **options)


def asked(judge, state=STATE, run=None):
    step = JudgeStep("extract_statements", judge, Statements)
    return step.invoke(state, (run or Run()).into({}))["extract_statements"]


# Asking again


WRONG = "This reply could not be used: "
RUSSIAN = {"question": "Как застраховать баню?", "text": "А."}


@each(
    ("reply", "state", "quoted", "problem"),
    [
        ("нет", RUSSIAN, "нет", "Этот ответ не удалось использовать: "),
        ('{"statements": {"{0}": 1}}', STATE, '{"statements": {"{0}": 1}}', "statements"),
        *((bad, STATE, bad, WRONG) for bad in ("no JSON", '{"statements": "A."}', '{"statements": ["A.", "B', "[]")),
        ("", STATE, "…", WRONG),  # clients refuse an empty message
        (" \n", STATE, "…", WRONG),
        ("half \ud83d", STATE, "half \ufffd", WRONG),
        ("start" + "x" * 100_000 + "end", STATE, None, WRONG),
    ],
)
def test_an_unreadable_reply_is_sent_back_as_clients_accept_it_with_what_was_wrong(reply, state, quoted, problem):
    judge = scripted(reply, GOOD)
    assert asked(judge, state) == GOOD
    first, second = judge.asked
    assert second[:2] == first
    assert [message.type for message in second] == ["system", "human", "ai", "human"]
    sent, message = (message.text for message in second[2:])
    assert sent == quoted or (quoted is None and len(sent) < 7_000 and (sent[:5], sent[-3:]) == ("start", "end"))
    assert problem in message


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_the_judge_is_asked_as_often_as_it_may_be_and_then_fails_with_its_last_reply(attempts):
    judge = scripted(*(f"no {number}" for number in range(1, 9)))
    caught = error_of(JudgeOutputError, asked, Judge(judge, attempts=attempts))
    assert [len(messages) for messages in judge.asked] == [2, *[4] * (attempts - 1)]  # only the last reply is shown
    assert [messages[2].text for messages in judge.asked[1:]] == [f"no {number}" for number in range(1, attempts)]
    assert (caught.step, caught.raw_output, caught.is_cut_off) == ("extract_statements", f"no {attempts}", False)


def test_prompts_of_the_users_own_are_used_also_when_asking_again():
    prompts = PromptSet.default("en").replace("extract_statements", instruction="List them.", examples=[])
    common = prompts.common.model_copy(update={"ask_again": "Wrong: {problem}"})
    judge = scripted("no", GOOD)
    asked(Judge(judge, prompts=PromptSet(common=common, prompts=prompts.prompts)))
    assert "List them." in human_of(judge.asked[0])
    assert judge.asked[1][3].text.startswith("Wrong: ")


# The ladder


def test_a_refusal_costs_no_attempt():
    for refusal in (Refusal(), NotImplementedError()):
        model = endpoint("prompt", refusal=refusal)
        assert asked(Judge(model, attempts=1)) == GOOD
        assert len(model.rungs) == 4


@each(
    "refusal",
    [
        *(Refusal(status_code=status) for status in (401, 403, 429)),
        *map(Refusal, ("maximum context length is 8192 tokens", "prompt is too long", "too many tokens")),
        Refusal("The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        *map(Refusal, ("the request exceeds the available context size, try increasing it", "context window")),
    ],
)
def test_other_errors_and_a_context_that_is_too_long_do_not_lower_the_rung(refusal):
    model = endpoint("prompt", refusal=refusal)
    with pytest.raises(Refusal):
        asked(Judge(model))
    assert model.rungs == ["json_schema"]


def test_a_lower_rung_is_remembered_only_after_a_valid_answer():
    refusing = endpoint()
    judge = Judge(refusing)
    with pytest.raises(Refusal):
        asked(judge)
    assert (refusing.rungs, judge._endpoint.capabilities.mode) == (RUNGS, None)
    model = endpoint("json_mode", replies=["no", "no", GOOD, GOOD])
    judge = Judge(model, attempts=2)
    with pytest.raises(JudgeOutputError):
        asked(judge)
    assert judge._endpoint.capabilities.mode is None
    assert model.rungs == ["json_schema", "function_calling", "json_mode", "json_mode"]
    asked(judge)
    assert judge._endpoint.capabilities.mode.rung == "json_mode"


@each(
    ("reply", "is_unfinished"),
    [
        *(('{"statements": ["A."', True), ('["A.", "B"', True), ('{"statements": 1', True), ('{"a": [1}', True)),
        *(("no", False), ('{"statements": 1}', False), ('{"a": [1]}', False), ("[]", False), ("see ]", False)),
    ],
)
def test_a_reply_that_does_not_follow_the_format_lowers_the_rung_unless_it_is_unfinished(reply, is_unfinished):
    model = endpoint(*RUNGS, replies=[reply, GOOD])
    assert asked(Judge(model, attempts=2)) == GOOD
    assert model.rungs == ["json_schema", "json_schema" if is_unfinished else "function_calling"]
    model = endpoint(*RUNGS, replies=[reply] * 9)
    with pytest.raises(JudgeOutputError):
        asked(Judge(model, attempts=1))
    assert model.rungs == ["json_schema"]


@pytest.mark.parametrize("mode", ["auto", "json_schema"])
def test_once_the_rung_is_known_calls_run_concurrently(mode):
    meeting, is_known = threading.Barrier(4), threading.Event()

    judge = Judge(endpoint("json_schema", before=lambda _: is_known.is_set() and meeting.wait(PATIENCE)), mode=mode)
    if mode == "auto":
        asked(judge)
    is_known.set()
    run = Run()
    texts = [{**STATE, "text": f"A{number}."} for number in range(4)]
    assert run.threads.gather([lambda text=text: asked(judge, text, run) for text in texts]) == [GOOD] * 4


def test_the_second_caller_waits_for_what_the_first_one_finds_also_between_two_rungs():
    class TwoRungs(Scripted):
        def bind_tools(self, tools, *, tool_choice=None, **kwargs):
            return self.bind(tools=tools)

        def _generate(self, messages, stop=None, run_manager=None, **options):
            rungs.append("function_calling" if "tools" in options else "prompt")
            if "tools" in options:
                until(lambda: judge._endpoint.capabilities.gate.value._waiting)
                raise Refusal
            return super()._generate(messages, stop, run_manager, **options)

    rungs, run = [], Run()
    judge = Judge(TwoRungs(replies=[GOOD] * 2))
    assert judge._endpoint.rungs == ["function_calling", "prompt"]
    texts = [{**STATE, "text": f"A{number}."} for number in range(2)]
    assert run.threads.gather([lambda text=text: asked(judge, text, run) for text in texts]) == [GOOD] * 2
    assert rungs == ["function_calling", "prompt", "prompt"]


def test_an_unproven_model_that_is_down_is_asked_once_without_its_fallbacks():
    first = endpoint(*RUNGS, replies=['{"statements": ["A.', *[ConnectionResetError()] * 9])
    second = endpoint(*RUNGS)
    judge = Judge(first.with_fallbacks([second]), attempts=1)
    with pytest.raises(JudgeOutputError):
        asked(judge)
    assert asked(judge, run=Run(retry=RetryPolicy(initial=0, max_wait=0))) == GOOD
    assert (len(first.rungs), len(second.rungs)) == (3, 1)


def test_a_first_caller_that_fails_lets_the_others_ask():
    started, go_on = threading.Event(), threading.Event()

    def stumble(_messages):
        if not started.is_set():
            started.set()
            go_on.wait(PATIENCE)
            raise ConnectionResetError

    judge, run = Judge(endpoint("json_schema", before=stumble)), Run()
    first = run.threads.submit(lambda: asked(judge, run=Run()))
    started.wait(PATIENCE)
    second = run.threads.submit(lambda: asked(judge, {**STATE, "text": "B."}, Run()))
    until(lambda: judge._endpoint.capabilities.gate.value._waiting)
    go_on.set()
    assert second.result(PATIENCE) == GOOD
    with pytest.raises(ConnectionResetError):
        first.result(PATIENCE)


@needs_fork
def test_a_process_forked_during_a_probe_probes_for_itself():
    started, go_on, parent = threading.Event(), threading.Event(), os.getpid()

    def wait(_messages):
        if os.getpid() == parent:
            started.set()
            go_on.wait(PATIENCE)

    judge = Judge(endpoint("json_schema", before=wait))
    first = Run().threads.submit(lambda: asked(judge, run=Run()))
    assert started.wait(PATIENCE)
    assert holds_in_a_fork(lambda: asked(judge, {**STATE, "text": "B."}, Run()) == GOOD)
    go_on.set()
    assert first.result(PATIENCE) == GOOD


def refuse_system(messages):
    if messages[0].type == "system":
        raise Refusal("System role not supported")


FOLDED = "with the system message folded into the human one"


@pytest.mark.parametrize(
    ("takes", "before", "told"),
    [
        ("json_schema", len, []),
        ("json_mode", len, ["refuses json_schema; asked by json_mode"]),
        ("json_schema", refuse_system, [f"refuses a system message; asked by json_schema, {FOLDED}"]),
        ("json_mode", refuse_system, [f"refuses json_schema and a system message; asked by json_mode, {FOLDED}"]),
    ],
)
def test_what_an_endpoint_refuses_is_logged_once(caplog, takes, before, told):
    judge = Judge(endpoint(takes, before=before))
    with caplog.at_level(logging.WARNING, logger="langchain_rageval"):
        assert asked(judge) == asked(judge) == GOOD
    assert [message.removeprefix(f"{judge.identity} ") for message in caplog.messages] == told


class NoTemperature(Scripted):
    """A client whose endpoint refuses any temperature, as those of reasoning models do."""

    temperature: float | None = 0.1

    def _generate(self, messages, stop=None, run_manager=None, **options):
        if self.temperature is not None or options.get("temperature") is not None:
            raise Refusal("Unsupported value: 'temperature' does not support 0.1 with this model.")
        return super()._generate(messages, stop, run_manager, **options)


@pytest.mark.parametrize(
    "bind",
    [
        lambda model: model,
        lambda model: model.bind(temperature=0.5),
        pytest.param(lambda model: model.with_retry(), marks=pytest.mark.gate),  # it waits for seconds
    ],
)
def test_a_refused_temperature_is_not_sent_and_the_model_is_not_changed(caplog, bind):
    model = NoTemperature(replies=[GOOD, GOOD])
    judge = Judge(bind(model), attempts=1)
    assert asked(judge) == asked(judge) == GOOD
    assert model.temperature == 0.1
    assert judge._endpoint.capabilities.mode.default_temperature
    (message,) = caplog.messages
    assert message.endswith("refuses its temperature, which is not sent; asked by prompt")


# Length limits


def cut(text="", **message):
    return AIMessage(text, response_metadata={"finish_reason": "length"}, **message)


class Limited(Scripted):
    max_tokens: int | None = 200


CUT = [cut('{"statements": ["A."')] * 2


@each(
    ("model", "limit", "name"),
    [
        (Limited(replies=CUT), ": max_tokens is 200", "max_tokens"),
        (
            Scripted(replies=CUT).bind(max_completion_tokens=64),
            *(": max_completion_tokens is 64", "max_completion_tokens"),
        ),
        (Scripted(replies=CUT), "", "max_tokens"),
    ],
)
def test_the_user_reads_which_limit_to_raise_and_the_judge_a_message_of_its_own(model, limit, name):
    caught = error_of(JudgeOutputError, asked, Judge(model, attempts=2))
    reason = f"the reply was cut off at its length limit{limit}; raise {name} of the judge's model"
    assert str(caught) == f"extract_statements: {reason}"
    assert caught.is_cut_off
    scripted_model = getattr(model, "bound", model)
    told = scripted_model.asked[1][3].text
    assert "give the complete answer again, with shorter reasons and without leaving out any item" in told
    assert "max_" not in told


@each("reply", [cut("<think>Is it A"), cut(additional_kwargs={"reasoning_content": "Is it A"})])
def test_reasoning_that_reaches_the_limit_is_distinguished_from_a_long_answer(reply):
    model = Limited(replies=[reply] * 2)
    assert str(error_of(JudgeOutputError, asked, Judge(model, attempts=2))) == (
        "extract_statements: the model's reasoning used up the length limit before the answer: max_tokens is 200; "
        "raise max_tokens of the judge's model, or lower its reasoning effort"
    )
    assert "think briefly, then give the complete answer" in model.asked[1][3].text


OPEN, SOME, MUSED = '{"statements": ["A."', cut('{"statements": ["A."'), cut("<think>Is it A")


@each(
    ("replies", "is_divisible", "outcome", "calls"),
    [
        ([SOME, GOOD], True, CutOffReply, 1),  # the judge might leave items out to be shorter
        ([SOME, GOOD], False, None, 2),
        ([MUSED, GOOD], True, None, 2),
        ([MUSED, MUSED], True, JudgeOutputError, 2),
        ([OPEN, GOOD], True, None, 2),
        ([OPEN, OPEN], True, CutOffReply, 2),
        *(([bad, bad], False, JudgeOutputError, 2) for bad in (SOME, OPEN)),
        *((["no", reply], True, outcome, 2) for reply, outcome in ((GOOD, None), ("no", JudgeOutputError))),
    ],
)
def test_a_divisible_question_is_not_repeated_after_a_reply_that_is_cut_off(replies, is_divisible, outcome, calls):
    prompts, model = PromptSet.default("en"), scripted(*replies)
    prompt, schema = prompts.get("extract_statements"), strict_schema(Statements)
    request = RequestContent("extract_statements", prompts, prompt, STATE, None, schema)
    question = JudgeQuestion(request, StrictJsonOutputParser(Statements), is_divisible=lambda: is_divisible)
    operation = ask_judge(Judge(model), question, Attempts(2))
    if outcome is None:
        assert drive(operation, Run(), {}) == GOOD
    else:
        caught = error_of(outcome, drive, operation, Run(), {})
        assert type(caught) is outcome
        assert not getattr(caught, "only_thoughts", False)
    assert len(model.asked) == calls


# Any Runnable


@each(
    "judge",
    [
        lambda messages: GOOD.model_dump_json(),
        RunnableLambda(lambda messages: AIMessage(GOOD.model_dump_json())),
        scripted(GOOD).bind(stop=["x"]),
        scripted(GOOD).with_retry(),
        scripted(RuntimeError("down")).with_fallbacks([scripted(GOOD)]),
        scripted(GOOD) | (lambda message: message.text),
    ],
    ids=["function", "lambda", "bind", "retry", "fallbacks", "sequence"],
)
def test_any_runnable_from_messages_to_a_message_or_a_text_is_a_judge(judge):
    assert asked(judge) == GOOD


@pytest.mark.parametrize("gave", [AIMessage(""), "", None])
def test_a_judge_that_gives_nothing_is_asked_again_and_then_fails(gave):
    replies = [gave, GOOD.model_dump_json()]
    assert asked(lambda messages: replies.pop(0)) == GOOD
    with pytest.raises(JudgeOutputError, match="the reply is empty"):
        asked(lambda messages: gave)


@pytest.mark.parametrize("gave", [{"statements": ["A."]}, GOOD, 7])
async def test_a_judge_that_gives_neither_message_nor_text_is_named_as_what_it_is(gave):
    step = JudgeStep("extract_statements", RunnableLambda(lambda messages: gave), Statements)
    sync = error_of(ConfigError, step.invoke, STATE)
    with pytest.raises(ConfigError) as on_loop:
        await step.ainvoke(STATE)
    assert str(sync) == str(on_loop.value)
    assert str(sync) == (
        f"a judge returns a message or a text, this one returned {type(gave).__name__}: pass the model itself, "
        "without a parser or with_structured_output"
    )


# A reply that equals an example of the prompt, although the inputs differ, is asked for again


SAMPLE = Sample(question="What is the price of a bus ticket?", answer="2 euros.", contexts=["A.", "B.", "C.", "D."])


def example(step, number=0):
    return PromptSet.default("en").get(step).examples[number]


def test_a_copied_example_is_asked_for_again():
    copied = json.dumps(example("grade_contexts").output)
    judge = scripted(copied, grades({1: True, 2: True, 3: True, 4: True}))
    state = grade_contexts(judge, against=lambda sample: sample.answer).invoke({"sample": SAMPLE})
    assert {finding.verdict for finding in state["context_verdicts"]} == {"useful"}
    assert "this is the reply of an example: reply to the input" in judge.asked[1][-1].text


def test_the_reply_to_the_inputs_of_an_example_may_be_that_of_the_example():
    shown = example("grade_contexts")
    sample = Sample(**{name: shown.input[name] for name in ("question", "answer", "contexts")})
    judge = scripted(json.dumps(shown.output))
    state = grade_contexts(judge, against=lambda sample: sample.answer).invoke({"sample": sample})
    assert [finding.verdict for finding in state["context_verdicts"]][:2] == ["useful", "not useful"]


def test_an_empty_answer_with_a_short_reason_is_no_copy():
    judge = scripted(needed(reason="Nothing."))
    assert select_sentences(judge).invoke({"sample": SAMPLE})


class Topic(BaseModel):
    """The topic of an answer."""

    topic: str


def test_the_labels_of_a_users_own_step_may_be_those_of_its_examples():
    label = "Insurance and other financial services for private clients"
    prompt = Prompt(instruction="Name the topic.", examples=[{"input": {"answer": "A."}, "output": {"topic": label}}])
    step = Step(Topic, prompts=prompt, reads={"answer"})(scripted(AIMessage(json.dumps({"topic": label}))))
    assert step.invoke({"sample": Sample(question="Q?", answer="B.")})["topic"].topic == label


@pytest.mark.parametrize(("length", "copied"), [(39, False), (40, True), (41, True)])
def test_an_answer_of_forty_characters_is_long_enough_to_be_a_copy(length, copied):
    output = {"topic": "x" * length}
    prompt = SimpleNamespace(examples=[SimpleNamespace(input={"answer": "A.", "contexts": ["C."]}, output=output)])
    request = SimpleNamespace(prompts=SimpleNamespace(prompts={"s": prompt}), step="s", prompt=prompt)
    for inputs, differ in (({"answer": "B."}, True), ({"answer": "A."}, False)):
        request.inputs = inputs
        assert (_copied_example(request, Topic(**output)) is not None) == (copied and differ)
