"""Rungs of the clients that are not installed with the tests, by stand-ins of the same name.

The options are those that the real clients pass to their servers; see the table in `judge/ladder.py`.
"""

from types import SimpleNamespace

from helpers.each import each
from helpers.scripted import Refusal, Scripted
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_gigachat import GigaChat
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, OfflineJudge
from langchain_rageval.judge.ladder import (
    client_family,
    family_of,
    is_format_refused,
    is_log_probability_refused,
    is_sync_only,
    is_temperature_refused,
    may_retry,
    output_limit,
    own_tries,
    without_fallbacks,
    without_temperature,
)
from langchain_rageval.run.retry import is_transient, status_of

SCHEMA = {"title": "Statements", "description": "Short statements.", "type": "object", "properties": {}}
NAMED = {"name": "Statements", "schema": SCHEMA, "strict": True}
KEY = "sk-test"


class WithTools(Scripted):
    """A client that supports tools."""

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        return self.bind(tools=tools, tool_choice=tool_choice)


def client(name, **attributes):
    """Return a model of a class of this name."""
    return type(name, (WithTools,), {"__annotations__": dict.fromkeys(attributes, object), **attributes})(replies=[])


FULL = ["json_schema", "function_calling", "json_mode", "prompt"]
RESPONSES = ChatOpenAI(model="m", api_key=KEY, use_responses_api=True)


FUNCTION = {"name": "Statements", "description": "Short statements.", "parameters": SCHEMA}
OPENAI, GIGACHAT = ChatOpenAI(model="m", api_key=KEY), GigaChat(credentials=KEY)
CALL = {"tool_choice": {"type": "function", "function": {"name": "Statements"}}}


@each(
    ("model", "rung", "options"),
    [
        (OPENAI, "json_schema", {"extra_body": {"response_format": {"type": "json_schema", "json_schema": NAMED}}}),
        (OPENAI, "json_mode", {"extra_body": {"response_format": {"type": "json_object"}}}),
        (OPENAI, "function_calling", {"tools": [{"type": "function", "function": FUNCTION}], **CALL}),
        (GIGACHAT, "json_schema", {"response_format": {"type": "json_schema", "schema": SCHEMA, "strict": True}}),
        (GIGACHAT, "function_calling", {"functions": [FUNCTION], "function_call": {"name": "Statements"}}),
        (GIGACHAT, "prompt", {}),
    ],
)
def test_each_rung_has_its_own_format(model, rung, options):
    assert family_of(model).options(rung, SCHEMA, {}) == options


@each(
    ("model", "rungs", "options"),
    [
        (
            *(client("ChatAnthropic"), ["json_schema", "function_calling", "prompt"]),
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        ),
        (
            *(client("ChatGoogleGenerativeAI"), FULL),
            {"response_mime_type": "application/json", "response_json_schema": SCHEMA},
        ),
        *(
            (client(name), FULL, {"response_format": {"type": "json_schema", "json_schema": NAMED}})
            for name in ("ChatMistralAI", "ChatGroq", "ChatLiteLLM", "ChatHuggingFace")
        ),
        (client("ChatLlamaCpp"), FULL, {"response_format": {"type": "json_object", "schema": SCHEMA}}),
        *(
            (model, FULL, {"text": {"format": {"type": "json_schema", **NAMED}}})
            for model in (
                RESPONSES,
                ChatOpenAI(model="m", api_key=KEY, reasoning={"effort": "low"}),
                client("BaseChatOpenAI", use_responses_api=True),  # of an older version
            )
        ),
        (
            *(ChatOpenAI(model="m", api_key=KEY, output_version="responses/v1"), FULL),
            {"text": {"format": {**NAMED, "type": "json_schema"}}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_client_with_json_schemas_is_asked_for_one_first(model, rungs, options):
    assert Judge(model)._endpoint.rungs == rungs
    assert family_of(model).options("json_schema", SCHEMA, {}) == options


@each(("described", "told"), [({"description": "Short."}, "Short."), ({}, "A")])
def test_a_tool_has_a_description_which_some_servers_demand(described, told):
    schema = {"title": "A", "type": "object", "properties": {}, **described}
    options = family_of(client("ChatAnthropic")).options("function_calling", schema, {})
    assert options == {"tools": [{**schema, "description": told}], "tool_choice": "A"}


def test_bound_options_of_the_same_name_are_kept():
    effort, verbosity = {"output_config": {"effort": "low"}}, {"text": {"verbosity": "low"}}
    assert family_of(client("ChatAnthropic")).options("json_schema", SCHEMA, effort) == {
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    }
    assert family_of(RESPONSES).options("json_mode", SCHEMA, verbosity) == {
        "text": {"verbosity": "low", "format": {"type": "json_object"}}
    }


def test_a_pipeline_of_hugging_face_is_asked_in_words():
    pipeline = client("ChatHuggingFace", llm=type("HuggingFacePipeline", (SimpleNamespace,), {})())
    assert Judge(pipeline)._endpoint.rungs == ["prompt"]


def test_models_of_one_class_behind_a_wrapper_keep_their_rungs():
    model = client("ChatAnthropic")
    both = model.with_fallbacks([type(model)(replies=[])])
    assert Judge(both)._endpoint.rungs == ["json_schema", "function_calling", "prompt"]


def test_of_models_with_different_bodies_only_the_rungs_that_send_a_body_are_left_out():
    openai = [ChatOpenAI(model="m", api_key=KEY, extra_body={"top_k": number}) for number in (1, 2)]
    assert Judge(openai[0].with_fallbacks(openai[1:]))._endpoint.rungs == ["function_calling", "prompt"]
    anthropic = client("ChatAnthropic")
    other = type(anthropic)(replies=[]).bind(extra_body={"top_k": 1})
    assert Judge(anthropic.with_fallbacks([other]))._endpoint.rungs == ["json_schema", "function_calling", "prompt"]


def test_configurable_models_have_the_rungs_of_their_default_model():
    openai = ChatOpenAI(model="m", api_key=KEY)
    fields = openai.configurable_fields(model_name=ConfigurableField(id="name"))
    alike = openai.configurable_alternatives(ConfigurableField(id="llm"), other=ChatOpenAI(model="n", api_key=KEY))
    mixed = openai.configurable_alternatives(ConfigurableField(id="llm"), other=OfflineJudge())
    for model in (fields, alike, fields.with_config(configurable={"name": "n"})):
        assert Judge(model)._endpoint.rungs == FULL
    assert client_family(mixed).start == "prompt"


class Reasoned(Exception):
    """An error without a status, raised from one with a `code`, as by ChatGoogleGenerativeAI."""


def raised_from(code):
    cause = Exception("INVALID_ARGUMENT")
    cause.code = code
    error = Reasoned("Error calling model")
    error.__cause__ = cause
    return error


def by_aws(code):
    error = Exception("ValidationException")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": code}}
    return error


@each("code", [400, 404, 422, "insufficient_quota", 0, 7, None])
def test_a_status_is_read_from_the_cause_of_an_error_and_from_the_response_of_aws(code):
    is_status = isinstance(code, int) and code >= 400
    assert status_of(raised_from(code)) == (code if is_status else None)
    assert is_format_refused(raised_from(code)) == is_status
    assert status_of(by_aws(code)) == (code if is_status else None)


def test_a_server_error_in_the_cause_of_an_error_is_transient():
    assert is_transient(raised_from(503))
    assert not is_transient(raised_from(401))


def test_an_unknown_keyword_or_value_is_a_refusal_by_the_client():
    assert is_format_refused(TypeError("create() got an unexpected keyword argument 'output_config'"))
    assert is_format_refused(ValueError("The following model_kwargs are not used by the model: ['response_format']"))
    assert not is_format_refused(ValueError("Requested tokens (5000) exceed context window of 4096"))


class Limited(Scripted):
    """A client with a limit of its replies, a temperature and retries of its own."""

    max_tokens: object = None
    model_kwargs: object = None
    extra_body: object = None
    temperature: float | None = None
    max_retries: int | None = None


@each(
    ("model", "limit"),
    [
        *((Limited(max_tokens=value), None) for value in (None, 0, -1, True, "9")),
        (Limited(max_tokens=1), ("max_tokens", 1)),
        (Limited(max_tokens=9).bind(max_tokens=5), ("max_tokens", 5)),
        (Limited(max_tokens=9).bind(max_completion_tokens=5), ("max_completion_tokens", 5)),
        (Limited(max_tokens=9, model_kwargs={"max_length": 7}), ("max_length", 7)),
        (Limited(max_tokens=9, extra_body={"n_predict": 6}), ("n_predict", 6)),
        (Limited(max_tokens=9).with_fallbacks([Limited(max_tokens=3)]), ("max_tokens", 9)),
    ],
)
def test_the_limit_of_a_reply_is_the_first_positive_number_of_the_options_and_settings(model, limit):
    assert output_limit(model) == limit


def openai(**options):
    return ChatOpenAI(model="m", api_key=KEY, **options)


@each(
    ("model", "tries", "retries"),
    [
        (openai(), 3, True),  # the client's own default is two retries
        (openai(max_retries=0), 1, False),
        (openai(max_retries=5), 6, True),
        (openai(max_retries=0).with_retry(), 1, True),
        (openai(max_retries=4).with_fallbacks([openai(max_retries=1)]), 5, True),
        (openai(max_retries=1).with_fallbacks([openai(max_retries=4)]), 5, True),
        (Limited(), 1, True),  # another client's default is unknown
        (Limited(max_retries=0), 1, False),
        (Scripted(), 1, True),
        (RunnableLambda(lambda messages: ""), 1, True),
    ],
)
def test_the_retries_of_a_client_are_known_from_its_settings(model, tries, retries):
    assert (own_tries(model), may_retry(model)) == (tries, retries)


async def in_a_loop(messages):
    return ""


FUNCTION_OF_BOTH = RunnableLambda(lambda messages: "", afunc=in_a_loop)


@each(
    ("model", "sync_only"),
    [
        (FakeListChatModel(responses=[]), False),
        (Scripted(), True),
        (RunnableLambda(lambda messages: ""), True),
        (RunnableLambda(in_a_loop), False),
        (FUNCTION_OF_BOTH, False),
        (Scripted().with_fallbacks([RunnableLambda(lambda messages: "")]), True),
        (Scripted().with_fallbacks([FakeListChatModel(responses=[])]), False),
        (FakeListChatModel(responses=[]).with_fallbacks([Scripted()]), False),
        (Scripted() | (lambda message: message), False),
    ],
)
def test_a_model_is_sync_only_if_all_that_it_may_call_are(model, sync_only):
    assert is_sync_only(model) == sync_only


@each("is_bound", [False, True])
@each(("own", "bound"), [(None, None), (0.5, None), (None, 0.0), (0.5, 0.7)])
def test_only_a_temperature_that_is_set_is_removed(own, bound, is_bound):
    model = Limited(temperature=own)
    wrapped = model.bind(stop=["x"], temperature=bound).bind(seed=1) if is_bound else model
    changed = without_temperature(wrapped)
    if own is None and (bound is None or not is_bound):
        assert changed is wrapped
    else:
        inner = changed.bound if is_bound else changed
        assert (inner.temperature, model.temperature) == (None, own)
        assert not is_bound or changed.kwargs == {"stop": ["x"], "seed": 1}
    runnable = RunnableLambda(lambda messages: "")
    assert without_temperature(runnable) is runnable


def test_only_fallbacks_are_removed():
    model, other = Scripted(), Scripted()
    for plain in (model, model.bind(seed=1), model.bind(seed=1).bind(stop=["x"]), model.with_retry()):
        assert without_fallbacks(plain) is plain
    assert without_fallbacks(model.with_fallbacks([other]).with_fallbacks([other])) is model
    bound = without_fallbacks(model.with_fallbacks([other]).bind(seed=1))
    assert (bound.bound, bound.kwargs) == (model, {"seed": 1})


@each(
    ("error", "log_probabilities", "temperature"),
    [
        *((Refusal("no logprobs", status), True, False) for status in (400, 403, 422)),
        *((Refusal("Log probabilities, temperature", status), False, False) for status in (401, 429, 500, None)),
        (Refusal("no log-probs at this temperature", 400), True, True),
        (Refusal("Temperature", 422), False, True),
        (Refusal("no", 400), False, False),
        *((kind("logprobs, temperature"), True, False) for kind in (TypeError, ValueError)),
        *((kind("logprobs, temperature"), False, False) for kind in (RuntimeError, KeyError)),
        (ValueError("temperature"), False, False),
    ],
)
def test_what_a_server_refused_is_known_from_its_status_and_message(error, log_probabilities, temperature):
    assert is_log_probability_refused(error) == log_probabilities
    assert is_temperature_refused(error) == temperature
