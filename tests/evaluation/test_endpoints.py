"""Runs over HTTP with real clients: faulty servers, and clients that the judge shares with a user's chain.

The servers answer as OfflineJudge does: every score equals that of the clean run, or is a failure with its reason.
Retries wait next to nothing here, except where the wait is what is tested.
"""

import asyncio
import subprocess
import sys
import textwrap
from functools import partial
from types import SimpleNamespace

import pytest
from helpers.doors import report_by
from helpers.each import crossed, each, pairs
from helpers.offline import EMBEDDED, METRICS, RICH, offline, rag_samples, says_the_same
from helpers.servers.chat import EMBEDDING_FAULTS, FAULTS, SPOILERS, Embedder, Faults
from helpers.waiting import PATIENCE, Pauses, until
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from langchain_rageval import Judge, RetryPolicy, Sample, aevaluate, evaluate, faithfulness
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.run.embedding import EmbeddingQueue

# Faulty servers


SOON = RetryPolicy(initial=0.01)

# Faults that neither another try nor another question mends, met twice. GigaChat's client, once it has a token, answers
# a 401 by fetching another one and asking again by itself.
FINAL = {("openai", "unauthorized"): 2, ("gigachat", "unauthorized"): 1}


# What the transport loses is tried again; what the parser mends, or another form of the question, leaves no trace.
LOST = {"429", "500", "reset", "hang"}
MENDED = {*LOST, "prose", "refused_format"}


OTHER_PAIRS = [("openai", "aevaluate"), ("gigachat", "evaluate")]


def each_fault(faults, *, openai, gigachat):
    """Run a method for each of the faults, with pairs of an endpoint and a door: quick, some; in the gate, all.

    In the gate, each fault meets each endpoint and each door once, by the two pairs that the quick ones leave out.
    """
    some = [("openai", "evaluate", openai), ("gigachat", "aevaluate", gigachat)]
    every = [(*pair, faults) for pair in OTHER_PAIRS]
    rows = [*some, *(pytest.param(*row, marks=pytest.mark.gate) for row in every)]
    names = [f"{endpoint}-{door}-{'all' if chosen is faults else 'some'}" for endpoint, door, chosen in some + every]

    def decorate(check):
        @pytest.mark.parametrize(
            ("endpoint", "scores_of", "faults"), rows, indirect=["endpoint", "scores_of"], ids=names
        )
        async def test(self, endpoint, scores_of, faults):
            await each("fault", sorted(faults))(check)(self, endpoint, scores_of)

        return test

    return decorate


QUICK_FAULTS = FAULTS - {"hang"}  # which waits; TestUsage has one


@pytest.fixture(params=["evaluate", "aevaluate"])
def scores_of(request):
    """Both doors in turn: `report = await scores_of(samples, metric, **options)`."""

    return partial(report_by, request.param, retry=SOON)


def without_id(sample):
    """Return the content of a sample; the id of a repeated question gets a number."""
    return sample.model_dump(exclude={"id"})


def check_rows(report, samples):
    """As `check_scores`, of faithfulness alone; gives the failures."""
    failed = [*check_scores(report, samples).values()]
    assert {failure.step for failure in failed} <= {"extract_statements", "verify_statements"}
    return failed


def check_scores(report, samples):
    """No row lost, none out of order, each score the clean run's or a failure; gives the failures by row and metric."""
    assert [(row.index, without_id(row.sample)) for row in report.rows] == list(enumerate(map(without_id, samples)))
    failed = {}
    for row in report.rows:
        assert row.scores.keys() == report.rows[0].scores.keys() != set()
        for name, score in row.scores.items():
            if score.failure:
                assert score.failure.error
                assert score.failure.message
                assert score.failure.step in {*ANSWER_SCHEMAS, "question_parts", "measure_similarity"}
                failed[row.index, name] = score.failure
            else:
                assert says_the_same(score, row.sample)
    return failed


def every_metric(endpoint, server, names=tuple(METRICS), **options):
    """All eight metrics on one model and one object for embeddings."""
    judge, embeddings = Judge(endpoint.model(server), **options), endpoint.embeddings(server)
    return [METRICS[name](judge, embeddings) for name in names]


def timeout_for(fault):
    """Return a timeout that ends a hanging call, but no other one, even if the machine is busy."""
    return 2.5 if fault == "hang" else None


class Ends(BaseCallbackHandler):
    """Appends the result of each metric that ends, with or without a score, to a list."""

    def __init__(self, results):
        self.results = results

    def on_chain_end(self, outputs, *, parent_run_id=None, **_):
        if parent_run_id is None:
            self.results.append(outputs)


class TestOneFault:
    @each_fault(FAULTS, openai=QUICK_FAULTS, gigachat=QUICK_FAULTS)
    async def test_the_score_is_the_clean_runs_or_a_failure(self, endpoint, scores_of, fault):
        server = endpoint.server(offline, faults=Faults.script([fault, None, fault], hang_seconds=30))
        samples = rag_samples(2)
        metric = faithfulness(endpoint.model(server))
        report = await scores_of(samples, metric, max_concurrency=1, timeout=timeout_for(fault))
        assert len(check_rows(report, samples)) == FINAL.get((endpoint.name, fault), 0)
        in_words = (endpoint.name, fault) == ("gigachat", "refused_format")  # by then it asks for no format
        assert server.faulted == {fault: 1 if in_words else 2}

    @crossed("scores_of")
    @each("fault", ["429", "500", "reset"])
    async def test_a_lost_call_is_no_attempt(self, endpoint, scores_of, fault):
        server = endpoint.server(offline, faults=Faults.script([fault, fault, None, fault]))
        samples = rag_samples(1)
        judge = Judge(endpoint.model(server), attempts=1)
        assert check_rows(await scores_of(samples, faithfulness(judge)), samples) == []
        assert server.calls == 5

    @each("fault", sorted(SPOILERS.keys() - {"prose"}))
    async def test_an_unreadable_reply_is_an_attempt(self, openai_server, chat_openai, scores_of, fault):
        server = openai_server(offline, faults=Faults.script([fault] * 3))
        samples = rag_samples(1)
        report = await scores_of(samples, faithfulness(Judge(chat_openai(server), attempts=2)))
        (failure,) = check_rows(report, samples)
        assert (failure.error, failure.step) == ("JudgeOutputError", "extract_statements")
        assert failure.raw_output
        assert server.calls == 2

    @crossed("scores_of")
    async def test_the_page_of_a_proxy_is_called_what_it_is(self, endpoint, scores_of):
        server = endpoint.server(offline, faults=Faults.script(["html"] * 40))
        metric = faithfulness(Judge(endpoint.model(server)))
        (row,) = (await scores_of(rag_samples(1), metric, retry=RetryPolicy(attempts=1))).rows
        message = row.scores["faithfulness"].failure.message
        own = "the reply of the model or its server is not JSON: check the address of the server ("
        assert message.startswith(own) or "got str: '<html>" in message  # langchain-openai shows the page itself

    @crossed("scores_of")
    async def test_a_cut_off_list_of_verdicts_is_never_taken_for_the_whole(self, endpoint, scores_of):
        for fault in ("truncated", "truncated_silent"):
            server = endpoint.server(offline, faults=Faults.script([None, *[fault] * 3]))
            samples = rag_samples(1)
            (failure,) = check_rows(await scores_of(samples, faithfulness(endpoint.model(server))), samples)
            assert (failure.error, failure.step) == ("JudgeOutputError", "verify_statements")

    @crossed("scores_of")
    async def test_retry_after_is_honoured(self, endpoint, scores_of, monkeypatch):
        server, pauses = endpoint.server(offline, faults=Faults.script(["429"], retry_after="0.4")), Pauses(monkeypatch)
        samples = rag_samples(1)
        report = await scores_of(samples, faithfulness(endpoint.model(server)), retry=RetryPolicy(initial=30))
        assert check_rows(report, samples) == []
        assert pauses.seconds == [0.4]

    @crossed("scores_of")
    async def test_tries_end_with_the_policy(self, endpoint, scores_of):
        server = endpoint.server(offline, faults=Faults.rates(seed=1, **{"500": 1.0}))
        samples = rag_samples(1)
        retry = RetryPolicy(attempts=4, initial=0.01)
        judge = Judge(endpoint.model(server), mode="prompt")  # in "auto", the lower rungs would be tried, too
        (failure,) = check_rows(await scores_of(samples, faithfulness(judge), retry=retry), samples)
        assert server.calls == 4
        assert "500" in failure.message

    async def test_a_waiting_retry_holds_no_slot(self, openai_server, chat_openai, scores_of, monkeypatch):
        """The pause before the second try ends when all other samples have a score."""
        server, finished = openai_server(offline, faults=Faults.script([None, None, "429"])), []
        pauses = Pauses(monkeypatch, over=lambda: len(finished) == 3)
        samples, metric = rag_samples(4), faithfulness(Judge(chat_openai(server)))
        report = await scores_of(samples, metric, max_concurrency=1, callbacks=[Ends(finished)])
        assert check_rows(report, samples) == []
        assert (len(pauses.seconds), len(finished)) == (1, 4)

    @crossed("scores_of")
    async def test_others_do_not_wait_until_the_first_call_was_tried_again(self, endpoint, scores_of, monkeypatch):
        server, finished = endpoint.server(offline, faults=Faults.script(["429"])), []
        pauses = Pauses(monkeypatch, over=lambda: len(finished) == 3)
        samples, metric = rag_samples(4), faithfulness(endpoint.model(server))
        report = await scores_of(samples, metric, callbacks=[Ends(finished)])
        assert check_rows(report, samples) == []
        assert (len(pauses.seconds), len(finished)) == (1, 4)
        assert server.calls == report.summary()["faithfulness"].calls


class TestEveryMetric:
    """All eight metrics in one run, while every fourth request meets a fault."""

    @each_fault(FAULTS, openai={"malformed"}, gigachat={"500"})
    async def test_a_fault_of_the_judge_leaves_the_clean_score_or_a_failure(self, endpoint, scores_of, fault):
        server = endpoint.server(offline, faults=Faults.script([None, None, None, fault] * 9, hang_seconds=30))
        report = await scores_of(RICH, every_metric(endpoint, server), timeout=timeout_for(fault))
        failed = check_scores(report, RICH)
        assert server.faulted[fault] >= (1 if fault == "refused_format" else 3)
        if fault in MENDED:
            assert failed == {}
        assert not any(name == "answer_similarity" for _, name in failed)

    @each_fault(EMBEDDING_FAULTS, openai={"500", "fewer", "nan"}, gigachat={"429", "misshapen"})
    async def test_a_fault_of_the_embeddings_leaves_the_clean_score_or_a_failure(self, endpoint, scores_of, fault):
        embedder = Embedder(faults=Faults.script([fault, None, fault], hang_seconds=30))
        server = endpoint.server(offline, embedder=embedder)
        samples = [*RICH, *rag_samples(4)]
        metrics = every_metric(endpoint, server, EMBEDDED)
        report = await scores_of(samples, metrics, timeout=timeout_for(fault), max_concurrency=4)
        failed = check_scores(report, samples)
        assert embedder.faulted[fault] >= 2
        assert {failure.step for failure in failed.values()} <= {"measure_similarity"}
        if fault in LOST:
            assert failed == {}
        if fault in ("zero", "nan"):
            assert {failure.error for failure in failed.values()} == {"ModelOutputError"}
        assert len(failed) < len(EMBEDDED) * len(samples)

    @each_fault(EMBEDDING_FAULTS - {"429", "hang"}, openai={"zero"}, gigachat={"500"})
    async def test_embeddings_that_never_work_take_no_other_metric_along(self, endpoint, scores_of, fault):
        embedder = Embedder(faults=Faults.rates(seed=1, **{fault: 1.0}))
        server = endpoint.server(offline, embedder=embedder)
        retry = RetryPolicy(attempts=2, initial=0.01)
        report = await scores_of(RICH, every_metric(endpoint, server, ["faithfulness", *EMBEDDED]), retry=retry)
        failed = check_scores(report, RICH)
        assert failed.keys() == {(row, name) for row in range(len(RICH)) for name in EMBEDDED}

    @crossed("scores_of")
    async def test_a_text_that_is_refused_fails_its_own_sample_alone(self, endpoint, scores_of, monkeypatch):
        add, asked = EmbeddingQueue.add, []

        def counted(queue, texts, charge):
            added = add(queue, texts, charge)
            asked.extend(texts)
            return added

        class First(Embedder):
            """Answers its first request once all texts are waiting."""

            def vectors(self, texts, received, server):
                until(lambda: len(asked) == 2 * 64)
                return super().vectors(texts, received, server)

        monkeypatch.setattr(EmbeddingQueue, "add", counted)
        embedder = First(refuse=lambda text: "§" in text or len(text) > 3000)
        server = endpoint.server(offline, embedder=embedder)
        samples = [
            Sample(question="?", answer=f"В строке {n} стоит слово.", references=[f"Слово {n}."]) for n in range(64)
        ]
        samples[11] = samples[11].model_copy(update={"answer": "В строке § стоит слово."})
        samples[40] = samples[40].model_copy(update={"references": ["Слово. " * 600]})
        metrics = every_metric(endpoint, server, ["answer_similarity"])
        failed = check_scores(await scores_of(samples, metrics, max_concurrency=64), samples)
        assert failed.keys() == {(11, "answer_similarity"), (40, "answer_similarity")}
        assert all("cannot be embedded" in failure.message for failure in failed.values())
        refused = [batch for batch in embedder.batches if any(map(embedder.refuse, batch))]
        assert min(map(len, refused)) == 1
        assert max(map(len, refused)) > 2  # they were sent along with texts of other samples


class TestUsage:
    """What counts: every chat request that was sent, also those that failed or were refused, and every token told."""

    @crossed("scores_of")
    async def test_calls_and_tokens_are_those_that_the_server_counted(self, endpoint, scores_of):
        # wrong_type: GigaChat's client raises on arguments that are a list, and what that reply cost is lost with it
        faults = sorted(FAULTS - {"hang", "unauthorized", "wrong_type"})
        server = endpoint.server(offline, faults=Faults.script([None, None, *faults, *faults]))
        report = await scores_of(rag_samples(20), faithfulness(Judge(endpoint.model(server), attempts=20)))
        summary = report.summary()["faithfulness"]
        assert server.faulted.keys() == set(faults)
        assert summary.calls == server.calls > 40
        assert summary.input_tokens == server.tokens["prompt_tokens"]
        assert summary.output_tokens == server.tokens["completion_tokens"]

    @pytest.mark.gate
    @pairs("scores_of", ("openai", "evaluate"))
    async def test_a_call_that_timed_out_counts_without_tokens(self, endpoint, scores_of):
        server = endpoint.server(offline, faults=Faults.script([None, "hang"], hang_seconds=30))
        metric = faithfulness(Judge(endpoint.model(server), attempts=1))
        report = await scores_of(rag_samples(1), metric, timeout=timeout_for("hang"))
        summary = report.summary()["faithfulness"]
        assert summary.scored == 1  # and is no attempt either
        assert summary.calls == server.calls == 3
        assert summary.input_tokens == server.tokens["prompt_tokens"]

    async def test_a_refused_rung_counts_as_a_call_without_tokens(self, openai_server, chat_openai, scores_of):
        server = openai_server(offline, rungs={"prompt"})
        summary = (await scores_of(rag_samples(6), faithfulness(chat_openai(server)))).summary()["faithfulness"]
        assert (summary.calls, server.refused.total()) == (3 + 2 * 6, 3)
        assert summary.input_tokens == server.tokens["prompt_tokens"]

    async def test_equal_samples_in_flight_pay_once(self, openai_server, chat_openai, scores_of):
        server = openai_server(offline, latency=0.2)
        (sample,) = rag_samples(1)
        report = await scores_of([sample] * 5, faithfulness(Judge(chat_openai(server), mode="json_schema")))
        assert check_rows(report, [sample] * 5) == []
        assert report.summary()["faithfulness"].calls == server.calls == 2


async def test_an_address_without_a_scheme_and_a_wrong_path_are_not_tried_again(openai_server, chat_openai, scores_of):
    wrong = f"{openai_server(offline).url}/v2"
    for url, problem in (("localhost:8000", "protocol"), (wrong, "No route /v2/v1/chat/completions")):
        samples, judge = rag_samples(3), Judge(chat_openai(SimpleNamespace(url=url)), mode="prompt")
        report = await scores_of(samples, faithfulness(judge), retry=RetryPolicy(initial=30))
        failed = check_rows(report, samples)
        assert all(problem in failure.message for failure in failed)
        assert (len(failed), report.summary()["faithfulness"].calls) == (3, 3)


class TestMix:
    """Contract, section 11: a random mix of faults over many samples."""

    @pytest.mark.gate
    @pytest.mark.parametrize(("endpoint", "scores_of"), OTHER_PAIRS, indirect=True)
    async def test_every_score_is_the_clean_runs_or_a_failure(self, endpoint, scores_of):
        slow = {"hang_seconds": 30, "hang": 0.005, "500": 0.02}
        faults = Faults.rates(seed=9, malformed=0.05, **slow, **{"429": 0.05})
        embedding_faults = Faults.rates(seed=8, in_a_row=1, misshapen=0.15, **slow, **{"429": 0.15})
        embedder = Embedder(faults=embedding_faults)
        server = endpoint.server(offline, faults=faults, embedder=embedder)
        samples = [*RICH, *rag_samples(40)]
        report = await scores_of(samples, every_metric(endpoint, server), timeout=timeout_for("hang"))
        failed = check_scores(report, samples)
        assert server.faulted.keys() >= {"429", "500", "malformed", "hang"}
        assert embedder.faulted.total() > 2
        assert embedder.faulted["misshapen"] > 0
        assert len(failed) <= 0.01 * len(METRICS) * len(samples)
        assert "measure_similarity" not in {failure.step for failure in failed.values()}
        assert report.summary()["faithfulness"].calls > 0


# A user's chain and the judge through one client object, whose connections belong to the loop they were opened on


ONCE = {"progress": False, "retry": RetryPolicy(attempts=1), "max_concurrency": 8}
COUNT = 8


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
    assert len(report.rows) == COUNT
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
    judge = asyncio.to_thread(evaluate, rag_samples(COUNT), faithfulness(model), **ONCE)
    report, _ = await asyncio.gather(judge, load(chain_of(model)))
    check(report)
    await load(chain_of(model), rounds=1)


async def test_aevaluate_on_the_users_loop_while_the_chain_runs(model):
    report, _ = await asyncio.gather(aevaluate(rag_samples(COUNT), faithfulness(model), **ONCE), load(chain_of(model)))
    check(report)


async def test_every_door_after_every_other(model):
    chain, metric = chain_of(model), faithfulness(model)
    for _ in range(2):
        check(await aevaluate(rag_samples(COUNT), metric, **ONCE))
        check(evaluate(rag_samples(COUNT), metric, **ONCE))
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
    given = "[" + ",".join(sample.model_dump_json() for sample in rag_samples(COUNT)) + "]"
    done = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == {f"{COUNT} rows, 0 failures"}


def test_the_chain_in_a_notebook_before_and_after_the_judge(openai_server, notebook):
    import openai
    from langchain_openai import ChatOpenAI

    server = openai_server(reply, latency=0.01)
    with openai.DefaultHttpxClient(verify=False) as client:
        aclient = openai.DefaultAsyncHttpxClient(verify=False)
        clients = {"http_client": client, "http_async_client": aclient}
        model = ChatOpenAI(base_url=f"{server.url}/v1", api_key="sk-test", model="m", max_retries=0, **clients)
        notebook(load(chain_of(model), rounds=2))
        check(evaluate(rag_samples(COUNT), faithfulness(model), **ONCE))
        notebook(load(chain_of(model), rounds=2))
        notebook(aclient.aclose())
