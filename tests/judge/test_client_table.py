"""Rungs of the clients that are not installed with the tests, by stand-ins of the same name.

The options are those that the real clients pass to their servers; see the table in `judge/ladder.py`.
"""

from types import SimpleNamespace

from helpers.each import each
from helpers.scripted import Refusal, Scripted
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_gigachat import GigaChat
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from langchain_rageval import Judge, OfflineJudge
from langchain_rageval.judge.ladder import (
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
FUNCTION = {"name": "Statements", "description": "Short statements.", "parameters": SCHEMA}
CALL = {"tool_choice": {"type": "function", "function": {"name": "Statements"}}}
OPENAI, GIGACHAT = ChatOpenAI(model="m", api_key=KEY), GigaChat(credentials=KEY)
OTHER = ChatOpenAI(model="n", api_key=KEY)
AZURE = AzureChatOpenAI(azure_endpoint="http://127.0.0.1:1", api_key=KEY, api_version="1", azure_deployment="d")
BODIES = [ChatOpenAI(model="m", api_key=KEY, extra_body={"top_k": number}) for number in (1, 2)]
RESPONSES = ChatOpenAI(model="m", api_key=KEY, use_responses_api=True)
OF_RESPONSES = [
    RESPONSES,
    ChatOpenAI(model="m", api_key=KEY, reasoning={"effort": "low"}),
    ChatOpenAI(model="m", api_key=KEY, output_version="responses/v1"),
    client("BaseChatOpenAI", use_responses_api=True),  # of an older version
]
ANTHROPIC, GOOGLE, LLAMA_CPP = (client(name) for name in ("ChatAnthropic", "ChatGoogleGenerativeAI", "ChatLlamaCpp"))
ALIKE = [client(name) for name in ("ChatMistralAI", "ChatGroq", "ChatLiteLLM", "ChatHuggingFace")]
SECOND = type(ANTHROPIC)(replies=[])
PIPELINE = client("ChatHuggingFace", llm=type("HuggingFacePipeline", (SimpleNamespace,), {})())
FIELDS = OPENAI.configurable_fields(model_name=ConfigurableField(id="name"))
CHOICE = ConfigurableField(id="llm")


@each(
    ("models", "rungs"),
    [
        ([OPENAI, AZURE, *OF_RESPONSES, GOOGLE, LLAMA_CPP, *ALIKE], FULL),
        ([OPENAI.bind(temperature=0.3), OPENAI.with_retry(), OPENAI.with_fallbacks([AZURE])], FULL),
        ([FIELDS, FIELDS.with_config(configurable={"name": "n"})], FULL),
        ([OPENAI.configurable_alternatives(CHOICE, other=OTHER)], FULL),
        ([ANTHROPIC, ANTHROPIC.with_fallbacks([SECOND])], ["json_schema", "function_calling", "prompt"]),
        # the families differ in nothing but the rungs that send a body
        ([ANTHROPIC.with_fallbacks([SECOND.bind(extra_body={"top_k": 1})])], [FULL[0], FULL[1], FULL[3]]),
        ([BODIES[0].with_fallbacks(BODIES[1:])], ["function_calling", "prompt"]),
        ([GIGACHAT, GIGACHAT.bind(profanity_check=False)], ["function_calling", "prompt"]),
        ([OPENAI.with_fallbacks([GIGACHAT]), OPENAI.configurable_alternatives(CHOICE, o=OfflineJudge())], ["prompt"]),
        ([FakeListChatModel(responses=[]), RunnableLambda(lambda messages: ""), OPENAI | str, PIPELINE], ["prompt"]),
    ],
)
def test_each_client_has_its_rungs_from_the_best_on(models, rungs):
    assert [model for model in models if Judge(model)._endpoint.rungs != rungs] == []


@each(
    ("model", "rung", "options"),
    [
        (OPENAI, "json_schema", {"extra_body": {"response_format": {"type": "json_schema", "json_schema": NAMED}}}),
        (OPENAI, "json_mode", {"extra_body": {"response_format": {"type": "json_object"}}}),
        (OPENAI, "function_calling", {"tools": [{"type": "function", "function": FUNCTION}], **CALL}),
        (GIGACHAT, "json_schema", {"response_format": {"type": "json_schema", "schema": SCHEMA, "strict": True}}),
        (GIGACHAT, "function_calling", {"functions": [FUNCTION], "function_call": {"name": "Statements"}}),
        (GIGACHAT, "prompt", {}),
        (ANTHROPIC, "json_schema", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        (GOOGLE, "json_schema", {"response_mime_type": "application/json", "response_json_schema": SCHEMA}),
        (LLAMA_CPP, "json_schema", {"response_format": {"type": "json_object", "schema": SCHEMA}}),
        *(
            (model, "json_schema", {"response_format": {"type": "json_schema", "json_schema": NAMED}})
            for model in ALIKE
        ),
        *((model, "json_schema", {"text": {"format": {"type": "json_schema", **NAMED}}}) for model in OF_RESPONSES),
    ],
)
def test_each_rung_has_its_own_format(model, rung, options):
    assert family_of(model).options(rung, SCHEMA, {}) == options


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


def raised_from(code):
    """Return an error without a status, raised from one with a `code`, as by ChatGoogleGenerativeAI."""
    cause = Exception("INVALID_ARGUMENT")
    cause.code = code
    error = RuntimeError("Error calling model")
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
    assert is_transient(raised_from(503))
    assert is_format_refused(raised_from(code)) == is_status
    assert status_of(by_aws(code)) == (code if is_status else None)


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
