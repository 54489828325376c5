"""A user's async chain and the judge on one endpoint, through one client object: neither harms the other.

An async HTTP client keeps connections that belong to the loop they were opened on. A library that ran it on a loop of
its own would hand dead connections to the user's chain.
"""

import asyncio
import subprocess
import sys
import textwrap

import pytest
from helpers.offline import offline, rag_samples, says_the_same
from helpers.waiting import PATIENCE
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from langchain_rageval import RetryPolicy, aevaluate, evaluate, faithfulness

ONCE = {"progress": False, "retry": RetryPolicy(attempts=1), "max_concurrency": 8}
SAMPLES = 8


def reply(request):
    """Judges judges; answers the chain."""
    return offline(request) if request.schema_title else f"chain: {request.messages[-1]['content']}"


def chain_of(model):
    return ChatPromptTemplate([("system", "Answer briefly."), ("human", "{question}")]) | model | StrOutputParser()


async def load(chain, rounds=3, width=12):
    """The chain under load: several waves of calls, each wave side by side; raises the first error."""
    for number in range(rounds):
        questions = [f"{number}/{place}" for place in range(width)]
        answers = await asyncio.gather(*(chain.ainvoke({"question": question}) for question in questions))
        assert answers == [f"chain: {question}" for question in questions]


def check(report):
    assert len(report.rows) == SAMPLES
    assert report.failures() == []
    assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)


@pytest.fixture
def model(endpoint):
    """One model on a server that takes a while, for the chain and for the judge."""
    return endpoint.model(endpoint.server(reply, latency=0.01))


@pytest.fixture
def notebook():
    """A loop that lasts, as that of a notebook: `notebook(coroutine)` awaits in one cell."""
    with asyncio.Runner() as runner:
        yield runner.run


async def test_evaluate_in_another_thread_while_the_chain_runs(model):
    judge = asyncio.to_thread(evaluate, rag_samples(SAMPLES), faithfulness(model), **ONCE)
    report, _ = await asyncio.gather(judge, load(chain_of(model)))
    check(report)
    await load(chain_of(model), rounds=1)


async def test_aevaluate_on_the_users_loop_while_the_chain_runs(model):
    report, _ = await asyncio.gather(
        aevaluate(rag_samples(SAMPLES), faithfulness(model), **ONCE), load(chain_of(model))
    )
    check(report)


async def test_every_door_after_every_other(model):
    chain, metric = chain_of(model), faithfulness(model)
    for _ in range(2):
        check(await aevaluate(rag_samples(SAMPLES), metric, **ONCE))
        check(evaluate(rag_samples(SAMPLES), metric, **ONCE))
        await load(chain, rounds=1)
        assert [score.value for score in metric.batch(rag_samples(4))] == [
            score.value for score in await metric.abatch(rag_samples(4))
        ]


NOTEBOOK = """
    import asyncio, gc, json, sys
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from langchain_rageval import RetryPolicy, Sample, aevaluate, answer_relevance, evaluate, faithfulness

    samples = [Sample.model_validate(item) for item in json.load(sys.stdin)]
    options = dict(retry=RetryPolicy(attempts=1), progress=False, max_concurrency=8)

    embeddings = OpenAIEmbeddings(
        base_url={url!r}, api_key="sk-test", model="e", max_retries=0, check_embedding_ctx_length=False
    )

    def model():
        return ChatOpenAI(base_url={url!r}, api_key="sk-test", model="m", max_retries=0)

    def metrics():
        return [faithfulness(model()), answer_relevance(model(), embeddings)]

    async def load():
        chain = model()  # a new object, and still the same HTTP client: langchain-openai keeps one for each address
        await asyncio.gather(*(chain.ainvoke("Hello " + str(number)) for number in range(16)))

    def judge():
        report = evaluate(samples, metrics(), **options)
        print(len(report), "rows,", len(report.failures()), "failures")
"""

ONE_LOOP = """
    with asyncio.Runner() as notebook:
        notebook.run(load())
        notebook.run(embeddings.aembed_documents(["Hello"]))
        judge()
        notebook.run(load())
        judge()
        judge()
        notebook.run(embeddings.aembed_documents(["Hello again"]))
        notebook.run(aevaluate(samples, metrics(), **options))
        notebook.run(load())
"""

# An asyncio.run of its own takes the loop away, and with it the connections of the chain's client: a second one finds
# them dead whether or not anything was judged, unless the client is closed before.
TWO_LOOPS = """
    async def once():
        await load()
        await model().root_async_client.close()
        langchain_openai.chat_models._client_utils._cached_async_httpx_client.cache_clear()

    import langchain_openai.chat_models._client_utils
    asyncio.run(once())
    judge()
    asyncio.run(once())
    judge()
"""


@pytest.mark.gate  # quick, in this process: the tests above and the next one
@pytest.mark.parametrize("story", [ONE_LOOP, TWO_LOOPS], ids=["a notebook's loop", "asyncio.run twice"])
def test_a_notebook_with_the_clients_that_langchain_shares(openai_server, story):
    server = openai_server(reply, latency=0.01)
    script = textwrap.dedent(NOTEBOOK.format(url=server.url + "/v1")) + textwrap.dedent(story)
    samples = "[" + ",".join(sample.model_dump_json() for sample in rag_samples(SAMPLES)) + "]"
    done = subprocess.run(
        [sys.executable, "-c", script], input=samples, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == {f"{SAMPLES} rows, 0 failures"}


def test_the_chain_in_a_notebook_before_and_after_the_judge(openai_server, notebook):
    import openai
    from langchain_openai import ChatOpenAI

    server = openai_server(reply, latency=0.01)
    with openai.DefaultHttpxClient(verify=False) as client:
        aclient = openai.DefaultAsyncHttpxClient(verify=False)
        model = ChatOpenAI(
            base_url=server.url + "/v1",
            api_key="sk-test",
            model="m",
            max_retries=0,
            http_client=client,
            http_async_client=aclient,
        )
        notebook(load(chain_of(model), rounds=2))
        check(evaluate(rag_samples(SAMPLES), faithfulness(model), **ONCE))
        notebook(load(chain_of(model), rounds=2))
        notebook(aclient.aclose())
