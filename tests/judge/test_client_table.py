"""Rungs of the clients that are not installed with the tests, by stand-ins of the same name.

The options are those that the real clients pass to their servers; see the table in `judge/ladder.py`.
"""

from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.scripted import Scripted
from langchain_core.runnables import ConfigurableField
from langchain_gigachat import GigaChat
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, OfflineJudge
from langchain_rageval.judge.ladder import client_family, family_of, is_format_refused
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
        (RESPONSES, FULL, {"text": {"format": {"type": "json_schema", **NAMED}}}),
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


@pytest.mark.parametrize("code", [400, 404, 422])
def test_a_status_in_the_cause_of_an_error_is_a_refusal(code):
    assert status_of(raised_from(code)) == code
    assert is_format_refused(raised_from(code))


def test_a_server_error_in_the_cause_of_an_error_is_transient():
    assert is_transient(raised_from(503))
    assert not is_transient(raised_from(401))


@pytest.mark.parametrize("code", ["insufficient_quota", 0, 7, None])
def test_other_codes_are_no_status(code):
    assert status_of(raised_from(code)) is None


def test_the_status_of_aws_is_in_its_response():
    error = Exception("ValidationException")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": 400}}
    assert status_of(error) == 400


def test_an_unknown_keyword_or_value_is_a_refusal_by_the_client():
    assert is_format_refused(TypeError("create() got an unexpected keyword argument 'output_config'"))
    assert is_format_refused(ValueError("The following model_kwargs are not used by the model: ['response_format']"))
    assert not is_format_refused(ValueError("Requested tokens (5000) exceed context window of 4096"))
