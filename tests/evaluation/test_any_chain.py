"""Question, answer, contexts, sources and errors of chains of any shape: asked, and watched in production."""

from dataclasses import dataclass
from typing import TypedDict

import pytest
from helpers.chains import CHAINS, FOUND, SEARCH, Agent, State
from helpers.each import each
from helpers.samples import ANSWER, CONTEXTS, QUESTION, Search, Words, rag, watching, with_callback
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, create_model

from langchain_rageval import OfflineJudge, Sample, SampleError, answered_by, evaluate, faithfulness
from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow

TESTSET = Testset([TestsetRow(id="q1", question=QUESTION, contexts=["x"], reference="1158", evolution="simple")])


class Scripted(Words):
    """Model that replies with its messages in order; it may call several tools at once."""

    disable_streaming: bool = True

    def _generate(self, messages, *args, **options):
        return super(Words, self)._generate(messages, *args, **options)


ASKED = {"evolution": "simple", "answerable": True}
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
SOURCES = ["munich-1.md", "munich-2.md"]


def ask(chain):
    (sample,) = TESTSET.run(chain, progress=False)
    return sample


STATED = {name for name in CHAINS if name.startswith("a graph")} | {"a method"}
STATED |= {"a function of a mapping", "a function that returns a pair"}
WITHOUT_PROMPT = {"a graph of messages with a memory", "an LCEL chain with a fallback"}
WITHOUT_PROMPT |= {"a function of the question", "an async function", "an async method"}


QUICK = {"RetrievalQA", "a graph of messages with a memory", "a function that returns a pair", "an async method"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.gate) for one in CHAINS])
async def test_question_answer_contexts_ids_and_sources_come_out(name):
    origin = "retriever" if name in WITHOUT_PROMPT else "output" if name in STATED else "prompt"
    sample = ask(CHAINS[name])
    asked = {"id": "q1", "question": QUESTION, "references": ["1158"], "reference_contexts": ["x"]}
    found = {"answer": ANSWER, "contexts": CONTEXTS, "context_ids": ["m1", "m2"]}
    metadata = {**ASKED, "context_sources": SOURCES, "contexts_from": origin}
    assert sample == Sample(**asked, **found, reference_context_ids=[], metadata=metadata)
    assert await answered_by(CHAINS[name], progress=False).ainvoke(TESTSET) == [sample]
    assert answered_by(CHAINS[name], progress=False).invoke(TESTSET) == [sample]


async def test_a_bare_retriever_and_a_function_that_only_searches_give_contexts_and_no_answer_and_no_error():
    mappings = [{"page_content": part.page_content, "id": part.id, "metadata": part.metadata} for part in FOUND]
    found = (FOUND, mappings, {"documents": [part.model_dump() for part in FOUND]})
    samples = [ask(SEARCH), *(ask(lambda question, one=one: one) for one in found)]
    for sample in (*samples, *await answered_by(SEARCH, progress=False).ainvoke(TESTSET)):
        assert (sample.answer, sample.contexts, sample.context_ids) == (None, CONTEXTS, ["m1", "m2"])
        assert sample.metadata == {**ASKED, "context_sources": SOURCES, "contexts_from": "output"}
    assert ask(lambda question: CONTEXTS).contexts == CONTEXTS
    empty = ask(Search(documents=[]))
    assert (empty.answer, empty.contexts, empty.metadata) == (None, [], {**ASKED, "contexts_from": "output"})


def test_a_bare_model_gives_an_answer_and_no_contexts():
    sample = ask(Words())
    assert (sample.answer, sample.contexts) == (ANSWER, None)
    assert sample.metadata == {**ASKED, "no_contexts": "no retriever ran: return the documents"}


def test_contexts_that_the_chain_returns_replace_those_that_it_retrieved_and_have_their_ids():
    chain = {"context": SEARCH | (lambda found: found[1:]), "question": RunnablePassthrough()}
    reranked = ask(chain | RunnablePassthrough.assign(answer=lambda _: ANSWER))
    assert (reranked.contexts, reranked.context_ids) == (CONTEXTS[1:], ["m2"])
    assert reranked.metadata["context_sources"] == SOURCES[1:]
    texts = ask(RunnableLambda(lambda _: {"answer": ANSWER, "contexts": CONTEXTS[::-1], "x": SEARCH.invoke("?")}))
    assert (texts.contexts, texts.context_ids) == (CONTEXTS[::-1], ["m2", "m1"])


def test_an_agent_that_searches_twice_has_each_document_not_the_text_that_joins_them():
    class TwoSearches(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return FOUND if query == "both" else FOUND[1:]

    def call(name, query):
        return {"name": name, "args": {"query": query}, "id": query}

    @tool
    def add(query: str) -> str:
        """Add numbers."""
        return "42"

    calls = [call("search", "both"), call("search", "second"), call("add", "6 and 36")]
    model = Scripted(messages=iter([AIMessage("", tool_calls=calls), AIMessage(ANSWER)]))
    sample = ask(create_agent(model, [create_retriever_tool(TwoSearches(), "search", "Search."), add]))
    assert sample.contexts == [*CONTEXTS, "42"]
    assert sorted(sample.retrieved) == sorted([*CONTEXTS, CONTEXTS[1]])  # the tools run side by side
    assert sample.metadata["context_sources"] == [*SOURCES, "add 6 and 36"]


def test_a_context_that_quotes_one_of_two_documents_stays_as_the_chain_states_it():
    quote = f"As it says: {CONTEXTS[0]}"
    chain = RunnableLambda(lambda question: SEARCH.invoke(question) and {"answer": ANSWER, "contexts": [quote]})
    assert ask(chain).contexts == [quote]


def test_documents_with_scores_and_chunks_as_mappings_are_contexts_with_ids_and_sources():
    scored = [(document, 0.5) for document in FOUND]

    @tool
    def plain(query: str) -> list[Document]:
        """Search a store and return Documents, which the agent gets as text."""
        return FOUND

    @tool(response_format="content_and_artifact")
    def artifact(query: str):
        """Search a store with scores."""
        return "found", scored

    def agent(search):
        search.name = "search"
        return create_agent(Agent(), [search])

    chains = (
        lambda question: {"answer": ANSWER, "documents": scored},
        lambda question: {"reply": ANSWER, "hits": scored},
        lambda question: (ANSWER, scored),
        RunnableLambda(lambda question: {"hits": scored}) | RunnableLambda(lambda _: ANSWER),
        agent(artifact),
        agent(plain),
    )
    for chain in chains:
        sample = ask(chain)
        assert (sample.answer, sample.contexts) == (ANSWER, CONTEXTS)
        assert (sample.context_ids, sample.metadata["context_sources"]) == (["m1", "m2"], SOURCES)
    chunks = [{"text": text, "score": 0.5, "id": number} for number, text in enumerate(CONTEXTS, 1)]
    sample = ask(lambda question: {"answer": ANSWER, "contexts": chunks})
    assert (sample.contexts, sample.context_ids) == (CONTEXTS, ["1", "2"])


@pytest.mark.parametrize("fields", [{"answer": (str, ...)}, {"reply": (str, ...), "pages": (list[int], [1])}])
def test_the_structured_response_of_an_agent_is_its_answer_and_no_context(fields):
    reply = create_model("Reply", **fields)
    values = dict.fromkeys(["answer" if "answer" in fields else "reply"], ANSWER)
    calls = [[{"name": "search", "args": {"query": "?"}, "id": "1"}], [{"name": "Reply", "args": values, "id": "2"}]]
    model = Scripted(messages=iter([AIMessage("", tool_calls=call) for call in calls]))
    tools = [create_retriever_tool(SEARCH, "search", "Search.")]
    sample = ask(create_agent(model, tools, response_format=ToolStrategy(reply)))
    assert (sample.answer, sample.contexts, sample.context_ids) == (ANSWER, CONTEXTS, ["m1", "m2"])


def test_a_structured_response_without_an_answer_is_its_json():
    state = {"messages": [HumanMessage("?")], "structured_response": {"floor": 2, "rooms": ["а", "б"]}}
    assert ask(lambda question: state).answer == '{"floor": 2, "rooms": ["а", "б"]}'


def test_documents_without_ids_and_sources_have_none():
    sample = ask(rag(Search(documents=[*FOUND, Document("Berlin.")])))
    assert (sample.contexts, sample.context_ids) == ([*CONTEXTS, "Berlin."], None)
    assert sample.metadata["context_sources"] == [*SOURCES, None]
    assert ask(rag(Search(documents=[Document("Berlin.")]))).metadata == {**ASKED, "contexts_from": "prompt"}


def test_answer_and_contexts_of_an_earlier_chain_are_removed():
    earlier = Sample(question=QUESTION, answer="old", contexts=["old"], context_ids=["o"], metadata={"error": "old"})
    (sample,) = answered_by(lambda question: "new", progress=False).invoke([earlier])
    note = {"no_contexts": "no retriever ran: return the documents"}
    assert sample == Sample(question=QUESTION, answer="new", metadata=note)
    (lost,) = answered_by(lambda question: 1 / 0, progress=False).invoke([earlier])
    assert lost == Sample(question=QUESTION, metadata={"error": "ZeroDivisionError: division by zero"})


# What the chain is given


def given_to(make_chain, **options):
    """Return the input that a chain receives."""
    given = []
    chain = make_chain(RunnableLambda(lambda value: given.append(value) or "yes"))
    (sample,) = TESTSET.run(chain, progress=False, **options)
    assert sample.answer == "yes"
    return given[0]


def test_a_chain_gets_what_its_input_schema_asks_for():
    class Query(BaseModel):
        query: str

    class Theme(BaseModel):
        theme: str
        language: str = "en"

    class Chat(BaseModel):
        messages: list[HumanMessage]

    class Turn(BaseModel):
        input: str
        chat_history: list[HumanMessage]

    both = {"question": QUESTION, "input": QUESTION}
    typed = {
        kind: given_to(lambda chain, kind=kind: chain.with_types(input_type=kind)) for kind in (Query, Theme, Turn)
    }
    asked = {Query: {"query": QUESTION}, Theme: {"theme": QUESTION}, Turn: {"chat_history": []}}
    assert typed == {kind: {**both, **more} for kind, more in asked.items()}
    (message,) = given_to(lambda chain: chain.with_types(input_type=Chat))["messages"]
    assert message == HumanMessage(QUESTION)
    assert given_to(lambda chain: chain.with_types(input_type=list[HumanMessage])) == [HumanMessage(QUESTION)]
    assert given_to(lambda chain: chain.with_types(input_type=str)) == QUESTION
    assert given_to(lambda chain: chain) == both


class Request(BaseModel):
    """What a service takes."""

    query: str
    k: int = 3


@dataclass
class Asked:
    """What another service takes."""

    question: str


class Topic(TypedDict):
    """A state of `typing`, which pydantic cannot describe in Python 3.11."""

    topic: str


def test_a_function_gets_a_text_a_mapping_or_the_type_that_it_names():
    given = []

    def answer(value):
        given.append(value)
        return "yes"

    def untyped(question):
        return answer(question)

    def typed(value: str):
        return answer(value)

    def mapping(inputs):
        return answer(inputs)

    def key(question):
        return answer(question["question"])

    def optional_key(query):
        return answer(query.get("input"))

    def request(value: Request):
        return answer(value)

    def asked(value: Asked):
        return answer(value)

    def topic(value: Topic):
        return answer(value["topic"])

    functions = (untyped, typed, mapping, key, optional_key, request, asked, topic)
    assert [ask(function).answer for function in functions] == ["yes"] * len(functions)
    both = {"question": QUESTION, "input": QUESTION}
    assert given == [QUESTION, QUESTION, both, QUESTION, QUESTION, Request(query=QUESTION), Asked(QUESTION), QUESTION]


def test_a_chain_that_begins_with_a_retriever_gets_the_text_under_any_name():
    chain = RunnableParallel(вопрос=RunnablePassthrough(), найдено=SEARCH) | (lambda values: values["вопрос"])
    assert ask(chain).answer == QUESTION


async def test_each_question_has_a_conversation_of_its_own_unless_the_config_of_the_call_names_one():
    def thread(_, config):
        return config["configurable"]["thread_id"]

    samples = [Sample(question="1?"), Sample(question="2?")]
    first, second = answered_by(thread, progress=False).invoke(samples)
    assert first.answer != second.answer
    config, asking = {"configurable": {"thread_id": "mine"}}, answered_by(thread, progress=False)
    for named in (asking.invoke(samples, config), await asking.ainvoke(samples, config)):
        assert [sample.answer for sample in named] == ["mine", "mine"]


# Failures


def test_the_cause_of_a_failed_call_stands_in_the_sample_and_in_the_failed_score():
    def broken(question):
        SEARCH.invoke(question)
        raise RuntimeError("vector store is down")

    lost = ask(broken)
    assert (lost.answer, lost.contexts) == (None, CONTEXTS)
    found = {"context_sources": SOURCES, "contexts_from": "retriever"}
    assert lost.metadata == {**ASKED, **found, "error": "RuntimeError: vector store is down"}
    whole = ask(rag(SEARCH))
    report = evaluate([whole, lost], faithfulness(OfflineJudge()), progress=False)
    (failed,) = [score.failure for _, score in report.failures()]
    assert failed.message.startswith(f"RuntimeError: vector store is down; row 2 (index 1), question {QUESTION!r}: ")
    with pytest.raises(SampleError, match=r"^RuntimeError: vector store is down; row 1 \(index 0\), question "):
        evaluate([lost], faithfulness(OfflineJudge()), progress=False)


@each(
    ("output", "error"),
    [
        (None, "TypeError: the chain returned None: "),
        (3, "TypeError: the chain returned int: "),
        ({"foo": 1, "bar": []}, "SampleError: the chain returned no answer in ['bar', 'foo']: "),
        ({"answer": object()}, "SampleError: answer: Input should be a valid string, got object: "),
        (AIMessage(""), None),
    ],
)
def test_an_output_without_an_answer_is_an_error_that_says_what_to_return(output, error):
    sample = ask(RunnableLambda(lambda _: output))
    remedy = "return a text, a message, Documents, or a mapping with an answer"
    assert sample.metadata.get("error") == (error and error + remedy)
    assert sample.answer == (None if error else "")


def test_a_graph_that_waits_for_a_person_is_an_error():
    flow = StateGraph(State)
    flow.add_node("search", lambda values: {"context": SEARCH.invoke(values["question"])})
    flow.add_node("answer", lambda _: {"answer": interrupt("May I?")})
    flow.add_edge(START, "search")
    flow.add_edge("search", "answer")
    sample = ask(flow.compile(checkpointer=InMemorySaver()))
    assert (sample.answer, sample.contexts) == (None, CONTEXTS)
    problem = "SampleError: the graph waits for a person: pass a graph that answers without an interrupt"
    assert sample.metadata["error"] == problem


def test_the_only_new_text_in_a_mapping_is_the_answer_and_two_are_none():
    (one, two) = (ask(RunnableLambda(lambda _, keys=keys: dict.fromkeys(keys, "yes"))) for keys in (["a"], ["a", "b"]))
    assert (one.answer, two.answer) == ("yes", None)
    assert ask(RunnableLambda(lambda given: {"rewritten": given["question"], "reply": "yes"})).answer == "yes"
    assert ask(RunnableLambda(lambda _: {"rewritten": "Munich, founded?", "generation": "yes"})).answer == "yes"


def test_a_secret_of_the_chain_is_not_in_the_error():
    class Store(BaseRetriever):
        api_key: str = "sk-0123456789abcdef"

        def _get_relevant_documents(self, query, *, run_manager):
            raise PermissionError(f"wrong key {self.api_key}")

    assert ask(rag(Store())).metadata["error"] == "PermissionError: wrong key ***"


async def test_functions_that_yield_their_answer_give_all_of_it():
    def words(question):
        yield from ("Munich ", "is old.")

    async def awords(question):
        for word in words(question):
            yield word

    def parts(question):
        yield {"documents": SEARCH.invoke(question)}
        yield from ({"answer": word} for word in words(question))

    async def aparts(question):
        for part in parts(question):
            yield part

    for chain in (parts, aparts):
        assert ask(chain).contexts == CONTEXTS
    for chain in (words, awords, parts, aparts):
        assert ask(chain).answer == "Munich is old."
        assert [part.answer for part in await answered_by(chain, progress=False).ainvoke(TESTSET)] == ["Munich is old."]


# The production callback collects the same


async def test_the_callback_watches_a_retriever_that_is_called_by_itself():
    from langchain_rageval import context_relevance

    callback, rows = watching(context_relevance(OfflineJudge()))
    with callback:
        SEARCH.invoke(QUESTION, with_callback(callback, metadata={"team": "a"}))
        await SEARCH.ainvoke(QUESTION, with_callback(callback))
        broken = Search(documents=FOUND).with_config(callbacks=[callback])
        RunnableLambda(lambda question: broken.invoke(question) and "yes").invoke(QUESTION, with_callback(callback))
    assert [row.sample.answer for row in rows] == [None, None, "yes"]
    assert [(row.sample.question, row.sample.contexts) for row in rows] == [(QUESTION, CONTEXTS)] * 3
    assert rows[0].sample.metadata["team"] == "a"
    assert (callback.stats()["seen"], callback.stats()["running"]) == (3, 0)


def test_the_callback_leaves_out_the_documents_that_a_conversation_keeps_from_earlier_turns():
    earlier = [Document("Berlin lies on the Spree.", id="b")]
    chain = RunnableLambda(lambda question: {"documents": [*earlier, *SEARCH.invoke(question)], "answer": ANSWER})
    callback, rows = watching()
    with callback:
        chain.invoke(QUESTION, with_callback(callback))
    assert rows[0].sample.contexts == CONTEXTS
    assert ask(chain).contexts == ["Berlin lies on the Spree.", *CONTEXTS]
