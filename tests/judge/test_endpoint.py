"""What an endpoint sends for a request, and how it changes the request after errors and replies."""

from dataclasses import replace

import pytest
from helpers.each import each
from helpers.scripted import Refusal, Scripted
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, PromptSet
from langchain_rageval.judge.endpoint import EndpointProbe, RequestMode
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import AnswerLimits, AspectVerdict, Verdicts
from langchain_rageval.prompts.layout import NumberedContexts, RequestContent
from langchain_rageval.run.turns import gates_of

OPENAI = ChatOpenAI(model="m", api_key="sk-test", temperature=0.1)
PROMPTS = PromptSet.default("en")
REQUEST = RequestContent(
    *("verify_statements", PROMPTS, PROMPTS.get("verify_statements"), {"question": "?"}, NumberedContexts.of(["A."])),
    strict_schema(Verdicts),
    limits=AnswerLimits(items=("verdicts", "statement", (1, 2))),
)
BEST = RequestMode("json_schema")


def call(judge, mode=BEST, draw=0):
    return judge._endpoint.call(REQUEST, mode, (), draw)


def is_narrowed(sent):
    return "prefixItems" in str(sent.options["extra_body"])


# Calls


class ChatLlamaCpp(FakeListChatModel):
    """A model that runs in this process, known by the name of its class."""


async def in_a_loop(messages):
    return ""


LOCAL, REMOTE = ChatLlamaCpp(responses=[]), FakeListChatModel(responses=[])


@each(
    ("model", "n_gates", "sync_only"),
    [
        (LOCAL, 1, True),  # a cancelled call would go on
        (REMOTE, 0, False),
        (Scripted(), 0, True),
        (LOCAL.with_fallbacks([REMOTE]), 1, True),
        (LOCAL.with_fallbacks([ChatLlamaCpp(responses=[])]), 2, True),
        (LOCAL.with_fallbacks([RunnableLambda(in_a_loop)]), 1, False),
        (RunnableLambda(in_a_loop), 0, False),
    ],
)
def test_calls_of_a_model_in_this_process_take_turns_unless_the_user_sets_a_number(model, n_gates, sync_only):
    sent = call(Judge(model), RequestMode("prompt"))
    assert (list(sent.gates), len(sent.gates), sent.sync_only) == (gates_of(model), n_gates, sync_only)
    (own,) = call(Judge(model, max_concurrency=2), RequestMode("prompt")).gates
    assert own not in gates_of(model)


@each(
    ("cache", "of_all", "is_separate"),
    [
        *((None, None, True), (False, InMemoryCache(), True), (False, None, True)),
        *((None, InMemoryCache(), False), (True, None, False), (InMemoryCache(), None, False)),
    ],
)
def test_a_rate_limiter_is_acquired_before_the_call_unless_a_cache_may_answer(monkeypatch, cache, of_all, is_separate):
    monkeypatch.setattr("langchain_rageval.judge.endpoint.get_llm_cache", lambda: of_all)
    limiter = InMemoryRateLimiter(requests_per_second=1)
    model = FakeListChatModel(responses=[], rate_limiter=limiter, cache=cache)
    for draw in (0, 1):
        sent = call(Judge(model), RequestMode("prompt"), draw)
        assert (sent.rate_limiter, sent.model.rate_limiter) == ((limiter, None) if is_separate else (None, limiter))
    assert model.rate_limiter is limiter
    assert call(Judge(RunnableLambda(in_a_loop)), RequestMode("prompt")).rate_limiter is None


@each(
    ("model", "option", "is_enforced"),
    [
        (ChatOpenAI(model="m", api_key="sk-test", max_retries=0), "timeout", True),
        (ChatOpenAI(model="m", api_key="sk-test", max_retries=0).with_retry(), "timeout", False),
        (OPENAI, "timeout", False),  # its own retries would last longer
        (REMOTE, None, False),
    ],
)
def test_a_client_limits_a_call_only_if_it_knows_the_option_and_does_not_retry(model, option, is_enforced):
    sent = call(Judge(model), RequestMode("prompt"))
    assert (sent.timeout_option, sent.client_enforces_timeout) == (option, is_enforced)


@each(("rung", "told"), [("json_schema", 0), ("function_calling", 0), ("json_mode", 1), ("prompt", 1)])
def test_the_schema_is_in_the_prompt_if_the_format_does_not_contain_it(rung, told):
    messages = call(Judge(OPENAI), RequestMode(rung)).messages
    assert [message.type for message in messages] == ["system", "human"]
    assert messages[1].text.count('"title": "Verdicts"') == told


def test_later_draws_bypass_the_cache_without_changing_the_users_model():
    judge = Judge(Scripted(), draws=3)
    assert call(judge, RequestMode("prompt"), draw=0).model is judge.model
    assert call(judge, RequestMode("prompt"), draw=1).model.cache is False
    assert judge.model.cache is None
    plain = RunnableLambda(lambda messages: "")
    assert call(Judge(plain, draws=3), RequestMode("prompt"), draw=2).model is plain


def test_asking_on_every_rung_changes_nothing_on_the_users_model():
    before = OPENAI.model_dump(), dict(OPENAI.__dict__)
    judge = Judge(OPENAI, draws=3)
    for rung in judge._endpoint.rungs:
        call(judge, RequestMode(rung))
        call(judge, RequestMode(rung), draw=1)
    assert (OPENAI.model_dump(), dict(OPENAI.__dict__)) == before


# What an endpoint refuses and ignores


@each(
    ("errors", "changes"),
    [
        ([("temperature", 400)], [{"default_temperature": True}]),
        ([("temperature", 400)] * 2, [{"default_temperature": True}, {"plain_schema": True}]),
        ([("no system role", 422)], [{"fold_system": True}]),
        ([("no system role", 422)] * 2, [{"fold_system": True}, {"plain_schema": True}]),
        ([("logprobs", 403)], [{"plain_tokens": True}]),
        ([("logprobs", 400)] * 2, [{"plain_tokens": True}, {"plain_schema": True}]),
        (
            [("no", 400)] * 5,
            [{"plain_schema": True}, *({"rung": rung} for rung in ("function_calling", "json_mode", "prompt")), None],
        ),
        *(([("no", status)], [None]) for status in (401, 403, 429, 500)),
        ([("the prompt is too long", 400)], [None]),
    ],
)
def test_what_an_endpoint_refuses_is_changed_and_nothing_else(errors, changes):
    endpoint = Judge(OPENAI, probabilities=True, grammar=True)._endpoint
    mode = BEST
    for error, change in zip(errors, changes, strict=True):
        lower = endpoint.fallback_mode(REQUEST, mode, Refusal(*error))
        assert lower == (change and replace(mode, **change))
        mode = lower
    known = [change for change in changes if change and change.keys() & {"plain_schema", "plain_tokens"}]
    assert endpoint.first_mode == replace(BEST, **{name: True for change in known for name in change})


def test_a_temperature_that_is_not_sent_is_not_omitted():
    endpoint = Judge(ChatOpenAI(model="m", api_key="sk-test"))._endpoint
    assert endpoint.fallback_mode(REQUEST, BEST, Refusal("temperature", 400)) == RequestMode("function_calling")


CALLED = AIMessage("", tool_calls=[{"name": "Verdicts", "args": {}, "id": "1"}])
IN_WORDS = AIMessage("Fine.")


@each(
    ("rung", "reply", "lower"),
    [
        ("json_schema", IN_WORDS, ["function_calling"]),
        ("function_calling", IN_WORDS, ["json_mode"]),
        ("function_calling", CALLED, [None, "json_mode"]),
        ("json_mode", IN_WORDS, [None, "prompt"]),
        ("prompt", IN_WORDS, [None, None, None]),
    ],
)
def test_a_format_is_left_as_soon_as_replies_prove_that_it_is_ignored(rung, reply, lower):
    endpoint, mode = Judge(OPENAI)._endpoint, RequestMode(rung)
    found = [endpoint.lower_if_ignored(mode, reply) for _ in lower]
    assert found == [one and RequestMode(one) for one in lower]
    assert endpoint.capabilities.unusable == ({rung: f"ignores {rung}"} if lower[-1] else {})
    if lower[-1]:  # for a question that was sent before
        assert endpoint.lower_if_ignored(mode, reply) == endpoint.first_mode != mode
    proven = Judge(OPENAI)._endpoint
    proven.record_success(mode, {})
    assert [proven.lower_if_ignored(mode, reply) for _ in range(3)] == [None] * 3


MODES = [RequestMode(rung) for rung in ("json_schema", "function_calling", "json_mode", "prompt")]
DOWN = Refusal("", 500)


def test_after_server_errors_each_format_is_tried_once_more_and_the_last_means_that_none_is_the_cause():
    endpoint, failures = Judge(OPENAI)._endpoint, {}
    assert [endpoint.may_fail_because_of(mode, failures) for mode in MODES] == [True, True, True, False]
    lower = [endpoint.lower_after_server_error(mode, DOWN, failures) for mode in (MODES[0], *MODES)]
    assert lower == [*MODES, None]
    assert failures == {mode: f"answers {mode.rung} with HTTP 500" for mode in MODES}
    assert not any(endpoint.may_fail_because_of(mode, known) for mode in MODES for known in ({}, failures))
    assert endpoint.lower_after_server_error(BEST, DOWN, {}) is None


def test_formats_that_fail_are_left_for_all_questions_and_noted_once_one_succeeds(caplog):
    endpoint, failures = Judge(OPENAI)._endpoint, {}
    for mode in (MODES[0], *MODES[:2]):
        endpoint.lower_after_server_error(mode, DOWN, failures)
    assert all(endpoint.may_fail_because_of(mode, failures) for mode in MODES)
    assert endpoint.note is None
    for mode in (MODES[2], MODES[3], MODES[2]):
        endpoint.record_success(mode, failures)
    assert endpoint.capabilities.unusable == {mode.rung: f"answers {mode.rung} with HTTP 500" for mode in MODES[:2]}
    assert [endpoint.lower_after_server_error(mode, DOWN, {}) for mode in MODES[:2]] == [MODES[2]] * 2
    assert not any(endpoint.may_fail_because_of(mode, {}) for mode in MODES)
    assert (endpoint.note.code, endpoint.first_mode) == ("request-mode-lowered", MODES[2])
    reasons = "answers json_schema with HTTP 500, answers function_calling with HTTP 500; asked by"
    told = [message.partition(") ")[2] for message in caplog.messages]
    assert told == [f"{reasons} json_mode", f"{reasons} prompt"]  # each mode once


def test_a_report_notes_the_mode_of_requests_if_there_was_a_choice():
    for model, mode, code in (
        (OPENAI, BEST, "request-mode"),
        (OPENAI, MODES[3], "request-mode"),
        (REMOTE, MODES[3], None),
    ):
        endpoint = Judge(model)._endpoint
        endpoint.record_success(mode, {})
        assert (endpoint.note and endpoint.note.code) == code


def test_without_live_requests_the_best_mode_is_assumed():
    endpoint = Judge(OPENAI)._endpoint
    endpoint.assume_format()
    assert (endpoint.capabilities.probed, endpoint.capabilities.mode) == (True, BEST)


def test_replies_with_and_without_probabilities_are_counted_and_noted():
    verdict = {"token": '{"verdict": true}', "logprob": -0.1, "top_logprobs": []}
    whole = AIMessage('{"verdict": true}', response_metadata={"logprobs": {"content": [verdict]}})
    endpoint, silent = (Judge(OPENAI, probabilities=wanted)._endpoint for wanted in (True, False))
    assert endpoint.probabilities_note is None
    for reply, counts, code in (
        (AIMessage(""), (0, 1), "no-probabilities"),
        (AIMessage(""), (0, 2), "no-probabilities"),
        (whole, (1, 2), "some-probabilities"),
    ):
        for one in (endpoint, silent):
            one.record_answer(AspectVerdict(verdict=True), reply)
        known = endpoint.capabilities
        assert (known.replies_with_tokens, known.replies_without_tokens) == counts
        assert endpoint.probabilities_note.code == code
    assert (silent.capabilities.replies_without_tokens, silent.probabilities_note) == (0, None)


# What a probe has found


@pytest.mark.parametrize("log_probabilities", [False, True])
@pytest.mark.parametrize(("narrowed", "grammar"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_judge_with_a_probe_sends_what_the_endpoint_accepts(log_probabilities, narrowed, grammar):
    found = {"log_probabilities": log_probabilities, "narrowed": narrowed, "grammar": grammar}
    judge = Judge(OPENAI, probe=EndpointProbe(judge="m", mode="json_schema", **found), probabilities=True)
    sent = call(judge, judge._endpoint.first_mode)
    assert ("logprobs" in sent.options, is_narrowed(sent)) == (log_probabilities, narrowed and grammar)
    assert judge._endpoint.capabilities.probed


@each(
    ("model", "mode", "probed", "rung"),
    [
        *((OPENAI, "auto", rung, rung) for rung in ("json_schema", "function_calling", "json_mode", "prompt")),
        (OPENAI, "json_mode", "json_mode", "json_mode"),
        (OPENAI, "prompt", "json_schema", "prompt"),
        (REMOTE, "auto", "json_schema", "prompt"),
    ],
)
def test_the_mode_of_a_probe_counts_unless_the_judge_or_its_client_has_another(model, mode, probed, rung):
    judge = Judge(model, mode=mode, probe=EndpointProbe(judge="m", mode=probed))
    assert judge._endpoint.first_mode.rung == rung


@each(("window", "limit"), [(None, None), (4096, 2048), (32_768, 16_384), (32_769, None), (4097, 2048)])
def test_a_small_context_window_is_used_by_half(window, limit):
    options = EndpointProbe(judge="m", mode="prompt", context_window=window).options
    assert options == {"mode": "prompt", "grammar": False, **({"max_context_tokens": limit} if limit else {})}
