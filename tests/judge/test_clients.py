"""Rungs of the clients that are not installed with the tests, and schemas that name what is possible for a request.

The clients are stand-ins of the same name. The options are those that the real clients pass to their servers; see the
table in `judge/ladder.py`.
"""

import json
from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.offline import METRICS, RICH, offline, rag_samples, says_the_same
from helpers.scripted import Refusal, Scripted
from helpers.servers.endpoints import OpenAIServer
from helpers.stored import assert_stored
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_gigachat import GigaChat
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from langchain_rageval import HashingEmbeddings, Judge, OfflineJudge, faithfulness
from langchain_rageval.judge.ladder import (
    CLIENTS,
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
from langchain_rageval.judge.parser import strict_schema
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS, AnswerLimits, narrow_schema
from langchain_rageval.run.retry import is_transient, status_of

# Rungs of clients


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


def openai(**options):
    return ChatOpenAI(**{"model": "m", "api_key": KEY, **options})


FULL = ["json_schema", "function_calling", "json_mode", "prompt"]
FUNCTION = {"name": "Statements", "description": "Short statements.", "parameters": SCHEMA}
CALL = {"tool_choice": {"type": "function", "function": {"name": "Statements"}}}
OPENAI, OTHER, GIGACHAT = openai(), openai(model="n"), GigaChat(credentials=KEY)
AZURE = AzureChatOpenAI(azure_endpoint="http://127.0.0.1:1", api_key=KEY, api_version="1", azure_deployment="d")
BODIES = [openai(extra_body={"top_k": number}) for number in (1, 2)]
RESPONSES, OLDER = openai(use_responses_api=True), client("BaseChatOpenAI", use_responses_api=True)
OF_RESPONSES = [RESPONSES, OLDER, openai(reasoning={"effort": "low"}), openai(output_version="responses/v1")]
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


# Schemas of requests: which servers get them, and what they say


LLAMA_SERVER = {"build": "b7012-1a2b3c4d"}
VLLM = {"number": lambda number: f"chatcmpl-{number:032x}"}
SGLANG = {"number": lambda number: f"{number:032x}"}
LLAMA_CPP_PYTHON = {"number": lambda number: f"chatcmpl-{number:08x}-0000-4000-8000-000000000000"}
OPENAI_SERVER = {"build": "fp_44709d6fcb", "number": lambda number: f"chatcmpl-Bq{number:027d}"}


def sent_schemas(server):
    """Return the schemas that came in requests for a JSON schema, in order."""
    formats = [request.body.get("response_format") or {} for request in server.requests]
    return [wanted["json_schema"]["schema"] for wanted in formats if wanted.get("type") == "json_schema"]


def is_plain(schema):
    return schema == json.loads(json.dumps(strict_schema(CLASSES[schema["title"]])))


CLASSES = {answer.__name__: answer for answer in ANSWER_SCHEMAS.values()}


@pytest.mark.parametrize(
    ("kind", "options", "plain"),
    [
        *((kind, {}, [True, False, False, False]) for kind in (LLAMA_SERVER, {"build": "b0-unknown"}, VLLM)),
        (LLAMA_SERVER, {"mode": "json_schema"}, [True, False, False, False]),
        *((kind, {}, [True] * 4) for kind in (OPENAI_SERVER, SGLANG, LLAMA_CPP_PYTHON, {})),
        (OPENAI_SERVER, {"grammar": True}, [False] * 4),
        (LLAMA_SERVER, {"grammar": False}, [True] * 4),
    ],
    ids=[
        *("llama.cpp", "without git", "vLLM", "chosen mode", "OpenAI", "SGLang", "python", "unknown"),
        *("the user says yes", "the user says no"),
    ],
)
def test_a_server_gets_the_schemas_of_requests_once_it_is_known_to_build_grammars(
    openai_server, chat_openai, kind, options, plain
):
    server = openai_server(offline, **kind)
    metric = faithfulness(Judge(chat_openai(server), **options))
    for sample in rag_samples(2):
        assert says_the_same(metric.invoke(sample), sample)
    assert [is_plain(schema) for schema in sent_schemas(server)] == plain


def test_local_servers_are_known_to_build_a_grammar_for_each_request():
    assert {name for name, family in CLIENTS.items() if family.grammar} == {"ChatOllama", "ChatLlamaCpp"}


def test_a_server_that_refuses_the_schema_of_a_request_gets_that_of_the_answer_on_the_same_rung(chat_openai, caplog):
    class OldServer(OpenAIServer):
        def _check(self, request):
            super()._check(request)
            if "prefixItems" in json.dumps(request.schema):
                self._refuse("prefixItems", "failed to parse grammar")

    with OldServer(offline, **LLAMA_SERVER) as server:
        metric = faithfulness(Judge(chat_openai(server)))
        for sample in rag_samples(3):
            assert says_the_same(metric.invoke(sample), sample)
        assert server.refused == {"prefixItems": 1}
        assert len(sent_schemas(server)) == 1 + 2 * 3
        assert caplog.records == []


@each(
    "name",
    [
        *("abstention", "answer_correctness", "answer_relevance", "claim_f1", "conciseness", "context_entity_recall"),
        *("context_precision", "context_relevance", "ndcg@5", "rubric"),
    ],
)
def test_the_answers_of_each_metric_are_possible_under_its_schemas(chat_openai, name):
    class Checking(OpenAIServer):
        def _ask(self, request):
            answer = super()._ask(request)
            check(request.schema, answer.value, request.schema.get("$defs", {}))
            return answer

    with Checking(offline, **LLAMA_SERVER) as server:
        metric = METRICS[name](Judge(chat_openai(server), mode="json_schema"), HashingEmbeddings())
        for sample in RICH:
            assert says_the_same(metric.invoke(sample), sample)
        assert not all(map(is_plain, sent_schemas(server)))


def check(schema, value, definitions):
    """Assert that a value fits a schema, as far as this package uses JSON schema."""
    if "$ref" in schema:
        return check(definitions[schema["$ref"].rpartition("/")[2]], value, definitions)
    if "const" in schema or "enum" in schema:
        assert value in schema.get("enum", [schema.get("const")])
    elif schema["type"] == "object":
        assert list(value) == list(schema["properties"])
        for name, field in schema["properties"].items():
            check(field, value[name], definitions)
    elif schema["type"] == "array":
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        items = schema.get("prefixItems") or [schema["items"]] * len(value)
        for item, field in zip(value, items, strict=True):
            check(field, item, definitions)
    elif schema["type"] == "string":
        assert len(value) <= schema.get("maxLength", len(value))
    return None


def test_numbers_are_fixed_item_by_item_and_sentences_are_an_enum():
    limits = AnswerLimits(items=("verdicts", "statement", (1, 2)), values=(("evidence", ("1.1", "2.1")),))
    narrowed = narrow_schema(strict_schema(CLASSES["Verdicts"]), limits)
    assert_stored("narrowed_verdicts.json", json.dumps(narrowed, indent=1) + "\n")


def test_schemas_of_requests_of_one_shape_are_one_object():
    schema = strict_schema(CLASSES["NeededSentences"])
    one, same = (narrow_schema(schema, AnswerLimits(values=(("sentences", ("1.1", "1.2")),))) for _ in range(2))
    assert one is same
    assert one != schema


@each(("tokens", "length"), [(None, 400), (4096, 400), (1200, 400), (600, 200), (300, 100), (10, 100)])
def test_reasons_are_shorter_if_the_reply_would_be_cut_off(tokens, length):
    limits = AnswerLimits(items=("verdicts", "context", (1, 2, 3, 4)))
    narrowed = narrow_schema(strict_schema(CLASSES["ContextVerdicts"]), limits, tokens)
    assert narrowed["$defs"]["reason"] == {"type": "string", "maxLength": length}


def test_the_length_limit_of_the_model_counts(openai_server, chat_openai):
    server = openai_server(offline, **LLAMA_SERVER)
    metric = METRICS["context_precision"](Judge(chat_openai(server, max_tokens=150)), HashingEmbeddings())
    metric.invoke(RICH[0])
    metric.invoke(RICH[1])
    assert sent_schemas(server)[-1]["$defs"]["reason"]["maxLength"] == 100
