"""What an endpoint sends for a request, what its errors and replies teach, and a mode of the user's own."""

import asyncio
import logging
from dataclasses import replace

import pytest
from helpers.doors import report_by
from helpers.each import each, error_of
from helpers.offline import offline, rag_samples, says_the_same
from helpers.samples import SAMPLE
from helpers.scripted import Refusal, Scripted, supported
from helpers.servers.chat import Faults
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from langchain_rageval import ConfigError, Judge, PromptSet, RetryPolicy, evaluate, faithfulness, jury
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.endpoint import EndpointProbe, RequestMode
from langchain_rageval.judge.ladder import RUNGS, client_family, with_own_rung
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import AnswerLimits, AspectVerdict, Statements, Verdicts
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


# Over HTTP: llama-cpp-python's server fails on a JSON schema, `transformers serve` ignores each format


CALM = RetryPolicy(initial=0, max_wait=0)
PROSE = "I think that the answer is fine."


def in_words(request):
    """Answer as a model does whose server ignores each format: in prose, unless the prompt shows the schema."""
    return offline(request) if request.schema_title else PROSE


def scores(report):
    return [row.scores["faithfulness"] for row in report.rows]


DOORS = pytest.mark.parametrize("door", ["evaluate", "aevaluate"])


def other_shape(request):
    return offline(request) if request.rung != "prompt" or request.schema_title else {"facts": ["A.", "B."]}


FORMATS = {"json_schema", "function_calling", "json_mode"}
FAILS = "answers {} with HTTP 500"
CASES = {  # options of the server, faults in order, number of samples, number of calls, and what the note says
    "it fails on a JSON schema": ({"failing": {"json_schema"}}, [], 8, 18, "function_calling", [FAILS]),
    "it fails on each format": ({"failing": FORMATS}, [], 2, 8, "prompt", [FAILS] * 3),
    "it fails on one rung and refuses another": (
        *({"failing": {"json_schema"}, "rungs": {"json_schema", "json_mode", "prompt"}}, [], 2, 7),
        *("json_mode", [FAILS]),
    ),
    "a passing server error": ({}, ["500"], 2, 5, "json_schema", []),
    "an outage on all rungs": ({}, ["500"] * 8, 4, None, "json_schema", []),
    "server errors after a valid reply": ({}, [None, "500", "500", "500"], 2, 7, "json_schema", []),
    "a server error after a rate limit": ({"failing": {"json_schema"}}, ["429"], 2, 9, "function_calling", [FAILS]),
    "it ignores each format": (
        *({"reply": in_words, "ignored": FORMATS}, [], 8, 18),
        *("json_mode", ["ignores {}", "ignores {}"]),
    ),
    "valid JSON of another shape": (
        *({"reply": other_shape, "ignored": {"json_schema"}}, [], 3, 7),
        *("function_calling", ["ignores {}"]),
    ),
    "a broken reply": ({}, ["malformed"], 1, 3, "json_schema", []),
    "a called function with wrong arguments": (
        *({"rungs": {"function_calling", "prompt"}}, [None, "wrong_type"], 1, 4),
        *("function_calling", []),
    ),
    "a broken reply after a valid one": ({}, [None, "malformed"], 1, 3, "json_schema", []),
}


@DOORS
@each("name", CASES)
async def test_an_endpoint_is_asked_in_the_best_way_that_it_follows(openai_server, chat_openai, door, name):
    options, faults, count, calls, rung, reasons = CASES[name]
    server = openai_server(**{"reply": offline, **options}, faults=Faults.script(faults, retry_after="0"))
    judge, samples = Judge(chat_openai(server)), rag_samples(count)
    report = await report_by(door, samples, faithfulness(judge), retry=CALM, max_concurrency=1)
    assert all(map(says_the_same, scores(report), samples))
    left = ", ".join(reason.format(one) for reason, one in zip(reasons, RUNGS, strict=False))
    assert report.notes == [f"{judge.identity} was called in {rung} mode{f': it {left}' if left else ''}."]
    assert server.calls == calls or calls is None


def test_a_rung_that_the_user_chose_is_retried(openai_server, chat_openai):
    server = openai_server(offline, faults=Faults.script(["500", "500", "500"]))
    samples = rag_samples(1)
    report = evaluate(samples, faithfulness(Judge(chat_openai(server), mode="json_schema")), progress=False, retry=CALM)
    assert all(map(says_the_same, scores(report), samples))


class TestIgnoredFormats:
    def test_with_one_attempt_the_next_sample_starts_on_the_next_rung(self, openai_server, chat_openai):
        server = openai_server(in_words, ignored={"json_schema", "function_calling"})
        metric = faithfulness(Judge(chat_openai(server), attempts=1))
        samples = rag_samples(3)
        for sample in samples[:2]:
            with pytest.raises(JudgeOutputError):
                metric.invoke(sample)
        assert says_the_same(metric.invoke(samples[2]), samples[2])


class TestFallbacks:
    @DOORS
    async def test_do_not_hide_that_the_first_model_refuses_a_format(self, openai_server, chat_openai, door):
        first = openai_server(offline, rungs={"function_calling", "prompt"})
        second = openai_server(offline)
        model = chat_openai(first, model="cheap").with_fallbacks([chat_openai(second, model="dear")])
        judge, samples = Judge(model), rag_samples(4)
        report = await report_by(door, samples, faithfulness(judge), retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert (first.calls, second.calls) == (1 + 2 * len(samples), 0)
        assert report.notes == [f"{judge.identity} was called in function_calling mode."]

    @DOORS
    async def test_answer_if_the_first_model_fails_otherwise(self, openai_server, chat_openai, door):
        first = openai_server(offline, faults=Faults.rates(seed=1, unauthorized=1.0))
        second = openai_server(offline)
        judge = Judge(chat_openai(first).with_fallbacks([chat_openai(second)]).bind(seed=1))
        samples = rag_samples(3)
        report = await report_by(door, samples, faithfulness(judge), retry=CALM)
        assert all(map(says_the_same, scores(report), samples))
        assert report.notes == [f"{judge.identity} was called in json_schema mode."]
        assert second.calls == 2 * len(samples)


# A mode of the user's own: a function from the answer's schema to options of the call


def guided_json(schema):
    """Ask vLLM for a grammar."""
    return {"extra_body": {"guided_json": schema}}


def other_grammar(schema):
    """Ask for it in another way."""
    return {"grammar": schema["title"]}


class Recording(Scripted):
    """Records the options of each call."""

    options: list = []  # noqa: RUF012

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        self.options.append(kwargs)
        return super()._generate(messages, stop, run_manager, **kwargs)


def judge(mode, **options):
    """Return a judge in a mode, and its model."""
    model = Recording(Statements(statements=["Munich is old."]), Verdicts(verdicts=[supported(1)]))
    model.options = []
    return Judge(model, mode=mode, **options), model


@pytest.mark.parametrize("method", ["invoke", "ainvoke"])
def test_its_options_are_sent_with_each_call_and_the_schema_stays_in_the_prompt(method):
    asked, model = judge(guided_json)
    metric = faithfulness(asked)
    score = metric.invoke(SAMPLE) if method == "invoke" else asyncio.run(metric.ainvoke(SAMPLE))
    assert score.value == 1.0
    titles = [options["extra_body"]["guided_json"]["title"] for options in model.options]
    assert titles == ["Statements", "Verdicts"]
    assert [request.schema for request in model.requests] == titles


@pytest.mark.parametrize(("given", "kind"), [(None, "NoneType"), ("grammar", "str")])
def test_a_mode_that_returns_no_options_is_an_error_that_names_it(given, kind):
    def grammar(_schema):
        return given

    raised = error_of(ConfigError, faithfulness(judge(grammar)[0]).invoke, SAMPLE)
    assert str(raised) == f"the function grammar of mode= must return a mapping of call options, got {kind}"


def test_a_bound_extra_body_is_kept():
    family = with_own_rung(client_family(ChatOpenAI(model="m", api_key="x")), guided_json)
    options = family.options("guided_json", {"title": "A"}, {"extra_body": {"top_k": 1}})
    assert options == {"extra_body": {"top_k": 1, "guided_json": {"title": "A"}}}


def test_the_report_and_the_repr_name_the_function(caplog):
    asked, _ = judge(guided_json)
    with caplog.at_level(logging.WARNING):
        report = evaluate([SAMPLE], faithfulness(asked), progress=False)
    assert f"{asked.identity} was called in guided_json mode." in report.notes
    assert "mode='guided_json'" in repr(asked)
    assert caplog.records == []


def test_its_code_is_part_of_the_instrument():
    same = [faithfulness(judge(guided_json)[0]).instrument for _ in range(2)]
    other = faithfulness(judge(other_grammar)[0]).instrument
    assert same[0] == same[1] != other
    assert "unknown" not in "".join([*same, other])
    assert faithfulness(jury([judge(guided_json)[0]] * 3)).instrument != same[0]
