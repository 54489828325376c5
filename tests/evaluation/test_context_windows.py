"""The warning about requests that exceed the known context window of their model, before the first call."""

import json
import re

import pytest
from helpers.each import each
from helpers.scripted import PairScores, scripted
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from langchain_rageval import Judge, OfflineJudge, aevaluate, evaluate, exact_match, faithfulness
from langchain_rageval.evaluation.dry_run import context_window, estimated_tokens, local_reply
from langchain_rageval.run.requests import Call, Invoke, Rate

SHORT = {"id": "short", "question": "What?", "answer": "It is 5.", "contexts": ["It is 5."], "references": ["5"]}
LONG = {**SHORT, "id": "long", "contexts": ["It is 5 and fine. " * 1_000]}


class Windowed(OfflineJudge):
    """An offline judge with a known context window."""

    window: int

    def __init__(self, window):
        super().__init__(window=window, profile={"max_input_tokens": window})


def test_a_request_that_does_not_fit_is_reported_before_the_first_call():
    model = scripted()  # without replies: a call would fail
    model.profile = {"max_input_tokens": 4096}
    with pytest.warns(UserWarning, match="context window") as caught:
        report = evaluate([SHORT, LONG], [exact_match(), faithfulness(model)], progress=False)
    (warning,) = caught
    assert str(warning.message) == (
        "faithfulness: a request about sample 'long' has about 6,794 tokens, more than the context window of "
        f"4,096 tokens of {Judge(model).identity}: use Judge(model, max_context_tokens=...), "
        'layout="contexts_first" or a model with a larger window'
    )
    assert len(report.failures()) > 0


async def test_requests_that_fit_or_whose_window_is_unknown_and_other_sources_than_lists_are_not_reported():
    for judge in (Windowed(100_000), OfflineJudge(), Judge(Windowed(4_096), max_context_tokens=500)):
        assert evaluate([SHORT, LONG], faithfulness(judge), progress=False).failures() == []
    assert len(evaluate(iter([LONG]), faithfulness(Windowed(4_096)), progress=False).rows) == 1
    with pytest.warns(UserWarning, match="more than the context window of 4,096 tokens"):
        await aevaluate([LONG], faithfulness(Windowed(4_096)), progress=False)


def test_the_window_is_that_of_the_profile_or_of_num_ctx_and_the_smallest_of_several():
    openai = ChatOpenAI(api_key="x", model="m", profile={"max_input_tokens": 8_192})
    assert context_window(openai) == context_window(openai.bind(top_p=0.5).with_retry()) == 8_192
    assert context_window(openai.bind(num_ctx=4_096)) == 4_096
    assert context_window(Windowed(2_048).with_fallbacks([openai])) == 2_048
    assert context_window(RunnableLambda(str)) is None
    assert context_window(scripted()) is None


def test_russian_text_is_estimated_at_more_tokens_than_english():
    assert estimated_tokens("abcd" * 100) == 100
    assert estimated_tokens("абвг" * 100, "abcd") == 161


def test_a_request_as_long_as_the_window_fits_and_a_longer_one_does_not():
    given = [{**LONG, "contexts": ["It is 5."]}]
    with pytest.warns(UserWarning, match="context window") as caught:
        evaluate(given, faithfulness(Windowed(100)), progress=False)
    assert caught[0].filename == __file__
    tokens = int(re.search(r"about ([\d,]+) tokens", str(caught[0].message))[1].replace(",", ""))
    evaluate(given, faithfulness(Windowed(tokens)), progress=False)
    with pytest.warns(UserWarning, match=f"about {tokens:,} tokens, more than the context window of {tokens - 1:,}"):
        evaluate(given, faithfulness(Windowed(tokens - 1)), progress=False)


@each(("window", "expected"), [(1, 1), (0, None), (-1, None), (8192, 8192)])
def test_a_window_is_a_whole_number_of_at_least_one(window, expected):
    assert context_window(OfflineJudge().bind(num_ctx=window)) == expected
    assert context_window(OfflineJudge(profile={"max_input_tokens": window})) == expected


def test_a_dry_run_replies_with_the_tokens_that_were_read_and_written():
    prompt = ChatPromptTemplate([("human", "{question}")])
    one, two = prompt | OfflineJudge(), prompt | OfflineJudge().with_fallbacks([OfflineJudge()])
    for chain, count in ((one, 1), (two, 2), (RunnableLambda(str), 1)):
        given = {"question": "a" * 393}  # with "Human: ", 400 characters
        replies = local_reply(Invoke(chain, given))
        read = len(str(given)) // 4 if count == 1 and chain is not one else 100
        usage = {"input_tokens": read, "output_tokens": 0, "total_tokens": read}
        assert [(reply.text, reply.usage_metadata) for reply in replies] == [("", usage)] * count
    given = HumanMessage(json.dumps({"q": "a" * 31}))
    reply = local_reply(Call(OfflineJudge(), [given], offline=lambda _: {"b": "ц" * 31}))
    assert reply.text == '{"b": "' + "ц" * 31 + '"}'
    assert reply.usage_metadata == {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    assert local_reply(Rate(PairScores(lambda *_: 1.0), [("a", "b")] * 3)) == [0.5] * 3
