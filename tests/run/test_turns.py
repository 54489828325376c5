"""Models that run in this process get one call at a time; a fake engine counts the calls inside it."""

import asyncio
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from helpers.each import each
from helpers.offline import rag_samples, says_the_same
from helpers.waiting import PATIENCE, auntil, until
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    aevaluate,
    answered_by,
    context_precision,
    evaluate,
    faithfulness,
)
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.requests import Call, EmbedBatch, Invoke, Rate
from langchain_rageval.run.run import Run
from langchain_rageval.run.threads import DaemonThreads
from langchain_rageval.run.turns import engines_of, gates_of

OFFLINE = OfflineJudge()


class Engine:
    """Answers as OfflineJudge does; `most` is the largest number of calls inside at one time."""

    def __init__(self, meeting=0):
        self.inside = self.most = self.calls = 0
        self.lock = threading.Lock()
        self.meeting = threading.Barrier(meeting) if meeting else None

    @contextmanager
    def use(self):
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            if self.meeting:
                self.meeting.wait(PATIENCE)
            threading.Event().wait(0.002)  # lets others enter, if they may
            yield
        finally:
            with self.lock:
                self.inside -= 1

    def create_chat_completion(self, messages):
        with self.use():
            return str(OFFLINE.invoke(messages).content)

    __call__ = create_chat_completion


Engine.__module__ = "llama_cpp.llama"


class Chat(BaseChatModel):
    """A class of the user around an engine."""

    client: object

    def _generate(self, messages, stop=None, run_manager=None, **options):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.client.create_chat_completion(messages)))])

    @property
    def _llm_type(self):
        return "fake"


class AsyncChat(Chat):
    """Its async method continues in a thread after it was cancelled, as those of LangChain do."""

    async def _agenerate(self, messages, stop=None, run_manager=None, **options):
        return await asyncio.get_running_loop().run_in_executor(None, self._generate, messages)


class ChatLlamaCpp(Chat):
    """Has the name of LangChain's class; its engine is hidden."""

    client: object = None
    _hidden: list = PrivateAttr(default_factory=list)

    def _generate(self, messages, stop=None, run_manager=None, **options):
        return Chat(client=self._hidden[0])._generate(messages)


class HuggingFacePipeline(BaseLLM):
    pipeline: object

    def _generate(self, prompts, stop=None, run_manager=None, **options):
        raise NotImplementedError

    @property
    def _llm_type(self):
        return "fake"


class ChatHuggingFace(Chat):
    client: object = None
    llm: HuggingFacePipeline


class EngineEmbeddings(Embeddings):
    def __init__(self, client):
        self.client = client

    def embed_documents(self, texts):
        with self.client.use():
            return HashingEmbeddings().embed_documents(texts)

    def embed_query(self, text):
        return self.embed_documents([text])[0]


class EngineEncoder(BaseCrossEncoder):
    def __init__(self, client):
        self.client = client

    def score(self, text_pairs):
        with self.client.use():
            return [0.5] * len(text_pairs)


def hidden(engine):
    model = ChatLlamaCpp()
    model._hidden.append(engine)
    return model


class Slots:
    """A class of the user that keeps its engine in a slot."""

    __slots__ = ("engine",)

    def __init__(self, engine):
        self.engine = engine

    def ask(self, messages):
        return self.engine.create_chat_completion(messages)


def default(engine):
    def ask(messages, model=engine):
        return model.create_chat_completion(messages)

    return RunnableLambda(ask)


MODELS = {
    "an engine in a field": lambda engine: Chat(client=engine),
    "async methods": lambda engine: AsyncChat(client=engine),
    "a hidden engine": hidden,
    "a pipeline": lambda engine: HuggingFacePipeline(pipeline=engine),
    "a pipeline in a chat model": lambda engine: ChatHuggingFace(llm=HuggingFacePipeline(pipeline=engine)),
    "a binding": lambda engine: Chat(client=engine).bind(stop=["x"]),
    "a retry": lambda engine: Chat(client=engine).with_retry(),
    "a fallback": lambda engine: Chat(client=engine).with_fallbacks([Chat(client=engine)]),
    "a sequence": lambda engine: Chat(client=engine) | RunnableLambda(lambda message: message),
    "a function": lambda engine: RunnableLambda(lambda messages: engine.create_chat_completion(messages)),
    "a default of a function": default,
    "a slot": lambda engine: RunnableLambda(Slots(engine).ask),
}


@each("name", MODELS)
def test_the_engine_of_a_model_is_found_wherever_it_is(name):
    engine = Engine()
    model = MODELS[name](engine)
    assert engines_of(model) == [model if name == "a hidden engine" else engine]


@each("name", ["an engine in a field", "async methods", "a hidden engine", "a function"])
async def test_a_judge_in_this_process_gets_one_call_at_a_time(name):
    engine, samples = Engine(), rag_samples(3)
    model = MODELS[name](engine)
    report = evaluate(samples, [faithfulness(model), context_precision(model)], progress=False)
    assert engine.calls == sum(s.usage.calls for row in report.rows for s in row.scores.values())
    for rows in (report.rows, (await aevaluate(samples, faithfulness(model), progress=False)).rows):
        assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in rows)
    assert engine.most == 1


def test_two_judges_draws_and_runs_with_one_engine_take_turns():
    engine, samples = Engine(), rag_samples(3)
    judges = [Judge(Chat(client=engine), draws=3) for _ in range(2)]
    DaemonThreads().gather([partial(evaluate, samples, faithfulness(judge), progress=False) for judge in judges])
    assert engine.most == 1


def test_the_user_may_set_another_number_of_calls_for_a_judge():
    engine = Engine(meeting=2)  # every call waits for a second one
    judge = Judge(Chat(client=engine), max_concurrency=2)
    calls = [Call(judge.model, [HumanMessage("?")], gates=judge._endpoint.gates) for _ in range(4)]
    engine.create_chat_completion = lambda _messages: _entered(engine)
    run = Run()
    DaemonThreads().gather([partial(drive, _one(call), run, {}) for call in calls])
    assert (engine.most, engine.calls) == (2, 4)
    assert Judge(OFFLINE, max_concurrency=3).instrument == Judge(OFFLINE).instrument


@each(
    "request_of",
    [
        lambda engine: EmbedBatch(EngineEmbeddings(engine), ["a"]),
        lambda engine: Rate(EngineEncoder(engine), [("a", "b")]),
        lambda engine: Invoke(RunnableLambda(lambda text: [HumanMessage(text)]) | closure_of_text(engine), "?"),
    ],
    ids=["embeddings", "a cross-encoder", "a chain"],
)
@each("is_async", [False, True])
async def test_embeddings_cross_encoders_and_chains_take_turns_with_their_engine(request_of, is_async):
    engine, run = Engine(), Run()
    requests = [request_of(engine) for _ in range(4)]
    if is_async:
        await asyncio.gather(*(adrive(_one(request), run, {}) for request in requests))
    else:
        DaemonThreads().gather([partial(drive, _one(request), run, {}) for request in requests])
    assert (engine.most, engine.calls) == (1, 4)


@pytest.mark.parametrize(("is_async", "is_chain"), [(False, False), (True, False), (False, True)])
async def test_the_next_call_waits_for_the_end_of_an_abandoned_one(is_async, is_chain):
    engine, leave = Engine(), threading.Event()
    engine.create_chat_completion = lambda _messages: _entered(engine, leave)
    model = Chat(client=engine)
    call = Call(model, [HumanMessage("?")], gates=gates_of(model), sync_only=True)
    call = Invoke(model, [HumanMessage("?")]) if is_chain else call
    run = Run(timeout=0.05)
    asked = adrive(_one(call), run, {}) if is_async else asyncio.to_thread(drive, _one(call), run, {})
    with pytest.raises(TimeoutError, match=r"^Chat did not answer within 0\.05 s$"):
        await asked
    following = threading.Thread(target=drive, args=(_one(call), Run(), {}))
    following.start()
    (gate,) = gates_of(model)
    until(lambda: gate._waiting)
    assert engine.calls == 1
    leave.set()
    following.join(PATIENCE)
    assert (engine.most, engine.calls) == (1, 2)


async def test_a_caller_that_is_cancelled_while_it_waits_leaves_the_turn_to_the_next():
    engine = Engine()
    engine.create_chat_completion = lambda _messages: _entered(engine)
    model = Chat(client=engine)
    (gate,) = gates_of(model)
    call = Call(model, [HumanMessage("?")], gates=[gate], sync_only=True)
    with gate.slot():
        task = asyncio.create_task(adrive(_one(call), Run(), {}))
        await auntil(lambda: gate._waiting)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert drive(_one(call), Run(), {}).text == "?"


def test_models_on_a_server_take_no_turns(openai_server, chat_openai):
    class BertTokenizer:
        def encode(self, text):
            return [1]

    BertTokenizer.__module__ = "transformers.models.bert"
    server = openai_server(lambda _request: "?")
    model = chat_openai(server, custom_get_token_ids=BertTokenizer().encode)
    assert engines_of(model) == engines_of(model | RunnableLambda(str)) == engines_of(HashingEmbeddings()) == []


def closure_of_text(engine):
    return RunnableLambda(lambda messages: AIMessage(_entered(engine)))


def _entered(engine, leave=None):
    with engine.use():
        if leave:
            leave.wait(PATIENCE)
        return "?"


def _one(request):
    return (yield request)


async def test_a_chain_is_asked_one_question_at_a_time_and_a_metric_in_it_does_not_wait_for_it():
    engine = Engine()
    rag = RunnableLambda(lambda question: [HumanMessage(question)]) | Chat(client=engine)
    assert len(answered_by(rag, progress=False).invoke([{"question": f"Что такое {n}?"} for n in range(4)])) == 4
    assert (engine.calls, engine.most) == (4, 1)
    chat = Chat(client=engine)
    check = faithfulness(Judge(chat))

    async def checked(message):
        score = await check.ainvoke({"question": "?", "answer": message.content, "contexts": [message.content]})
        return {"answer": message.content, "score": score.metric}

    rag = RunnableLambda(lambda question: [HumanMessage(question)]) | chat | RunnableLambda(checked)
    asked = answered_by(rag, progress=False)
    assert len(await asked.ainvoke([{"question": f"{number}?"} for number in range(3)])) == 3
    assert engine.most == 1


def test_a_model_of_a_known_class_is_its_own_engine_if_none_is_seen():
    class Derived(ChatLlamaCpp):
        """A class of the user."""

    engine = Engine()
    for kind in (ChatLlamaCpp, Derived):
        model = kind()
        assert engines_of(model) == [model]
        assert engines_of([model, model.bind(stop=["x"]), kind(client=engine), kind(client=engine)]) == [engine, model]
    assert engines_of(Chat(client=object())) == []
