"""The error of a call that takes too long names the model and the seconds, whoever ends the call."""

import pytest
from helpers.offline import offline, rag_samples
from helpers.servers.chat import Faults
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from langchain_rageval import HashingEmbeddings, RetryPolicy, aevaluate, evaluate, faithfulness
from langchain_rageval.run.usage import model_label


@pytest.mark.parametrize("max_retries", [0, 2])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failed_score_says_which_model_did_not_answer_within_how_many_seconds(endpoint, is_async, max_retries):
    server = endpoint.server(offline, faults=Faults.script(["hang"] * 9))
    metric = faithfulness(endpoint.model(server, max_retries=max_retries))
    options = {"timeout": 0.3, "retry": RetryPolicy(attempts=1), "progress": False}
    if is_async:
        report = await aevaluate(rag_samples(1), metric, **options)
    else:
        report = evaluate(rag_samples(1), metric, **options)
    failure = report.rows[0].scores["faithfulness"].failure
    name = {"openai": "ChatOpenAI m", "gigachat": "GigaChat GigaChat-2"}[endpoint.name]
    assert (failure.error, failure.message) == ("TimeoutError", f"{name} did not answer within 0.3 s")


def test_a_label_names_the_models_behind_wrappers(openai_server, chat_openai):
    server = openai_server(offline)
    model, other = chat_openai(server), chat_openai(server, model="https://key@host/m2")

    def ask(messages):
        return ""

    assert model_label(model.bind(stop=["x"]).with_retry()) == "ChatOpenAI m"
    assert model_label(model.with_fallbacks([other])) == "ChatOpenAI m or ChatOpenAI https://host/m2"
    assert model_label(RunnablePassthrough() | model) == "RunnablePassthrough | ChatOpenAI m"
    assert model_label(RunnableLambda(ask)) == "ask"
    assert model_label(HashingEmbeddings()) == "HashingEmbeddings"
    assert model_label(None) == "the model"
