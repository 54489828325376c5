"""Chains that ask their models several times, agents, and formatters; conversations, through whatever memory."""

import json
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

from helpers.reading_chains import (
    ALL,
    ANSWER,
    EXAMPLE,
    FOUND,
    GOLD,
    PROMPT,
    QUESTION,
    SEARCH,
    ZOO,
    Agent,
    Answered,
    Half,
    Model,
    graph,
    joined,
    keep,
    numbered,
    rag,
)
from helpers.samples import Search, remembering, sequence
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, before_model
from langchain.agents.structured_output import ToolStrategy
from langchain_classic.chains import RetrievalQA, create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send
from pydantic import BaseModel
from typing_extensions import TypedDict

EXAMPLES = Search(documents=[EXAMPLE])
WEB = Document("Encyclopedia: in 1158 the emperor names Munich in a document for the first time.", id="web")


def say(prompt: Any, reply: str = ANSWER) -> str:
    return Model(replies={"": reply}).invoke(prompt).text


def asking(*ids: str, after: Any = None, rerank: Any = None) -> Any:
    """Return a function that searches, answers from some chunks, and asks a model between and after it."""

    def run(question: str) -> str:
        documents = keep(*ids)((rerank or list)(SEARCH.invoke(question)))
        answer = say(f"{joined(documents)}\n{question}")
        return after(answer, documents) if after else answer

    return RunnableLambda(run)


def best_of_each() -> Any:
    model = Model(replies={"salt road": f"{ANSWER}\nScore: 100", "": "I do not know that.\nScore: 0"})

    def run(question: str) -> str:
        replies = model.batch([f"{document.page_content} {question}" for document in SEARCH.invoke(question)])
        return max((one.text for one in replies), key=lambda text: int(text.split(": ")[-1])).split("\nScore")[0]

    return RunnableLambda(run)


class Reply(BaseModel):
    answer: str
    quotes: list[str] = []


class Calls(Model):
    """Model that calls a tool for each of its queries, one after the other or at once, then answers."""

    queries: Any = ("the bridge", "the zoo")
    at_once: bool = False
    replies_by_tool: bool = False
    disable_streaming: bool = True

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        done = sum(message.type == "tool" for message in messages)
        following = self.queries[done:] if self.at_once else self.queries[done : done + 1]
        calls = [{"name": "search", "args": {"query": query}, "id": query} for query in following]
        if not calls and self.replies_by_tool:
            calls = [{"name": "Reply", "args": {"answer": ANSWER, "quotes": ["Henry"]}, "id": "reply"}]
        if calls:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])
        return super()._generate(messages, *args, **options)


def tool_of(search: Any) -> Any:
    return create_retriever_tool(search, "search", "Search.")


def best_only() -> Any:
    @tool
    def search(query: str) -> str:
        """Return the best chunk."""
        return Half().invoke(query)[0].page_content

    return create_agent(Calls(), [search])


class Edit(AgentMiddleware):
    """Middleware that changes the messages that a model reads."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=self.change(request.messages)))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(messages=self.change(request.messages)))


def trimming() -> Any:
    def trim(messages: Any) -> Any:
        return [one.model_copy(update={"content": ZOO.page_content}) if one.type == "tool" else one for one in messages]

    return create_agent(Agent(), [tool_of(SEARCH)], middleware=[Edit(trim)])


def adding() -> Any:
    @before_model
    def add(state: Any, runtime: Any) -> Any:
        return {"messages": [SystemMessage(joined(keep("gold", "river")(SEARCH.invoke(state["messages"][-1].text))))]}

    return create_agent(Model(), [], middleware=[add])


class Notes(TypedDict, total=False):
    question: str
    name: str
    found: Annotated[list, operator.add]
    few_shots: list[Document]
    answer: str


def writer(state: Any) -> Any:
    return {"answer": say(f"{joined(state.get('few_shots', []))}\n{joined(state['found'])}\n{state['question']}")}


def flow(*names: str) -> StateGraph:
    """Return a graph that finds one chunk in each of several branches, then answers."""
    built = StateGraph(Notes, output_schema=Answered)
    built.add_node("find", lambda state: {"found": keep(state["name"])(SEARCH.invoke(state["question"]))})
    built.add_node("write", writer)
    sends = [Send("find", {"question": QUESTION, "name": name}) for name in names]
    built.add_conditional_edges(START, lambda state: sends, ["find"])
    built.add_edge("find", "write")
    return built


def functional() -> Any:
    @task
    def find(question: str) -> list[Document]:
        return keep("gold")(SEARCH.invoke(question))

    @entrypoint()
    def app(question: str) -> str:
        return say(f"{joined(find(question).result())} {question}")

    return app


def subgraph() -> Any:
    inner = sequence(Notes, {"find": lambda state: {"found": keep("gold")(SEARCH.invoke(state["question"]))}})
    return sequence(Notes, {"inner": inner, "write": writer}, output_schema=Answered)


def few_shot() -> Any:
    prompt = ChatPromptTemplate([("system", "As in {examples}\nfrom {context}"), ("human", "{question}")])
    question = operator.itemgetter("question")
    inputs = {"question": RunnablePassthrough(), "examples": EXAMPLES | joined}
    found = RunnablePassthrough.assign(context=question | SEARCH | keep("gold") | joined)  # after the examples
    return inputs | found | prompt | Model() | StrOutputParser()


def streaming() -> Any:
    def run(question: str) -> Any:
        for part in Model().stream(f"{joined(keep('gold')(SEARCH.invoke(question)))} {question}"):
            yield part.text

    async def arun(question: str) -> Any:
        async for part in Model().astream(f"{joined(keep('gold')(await SEARCH.ainvoke(question)))} {question}"):
            yield part.text

    return RunnableLambda(run, arun)


def with_texts(form: str, search: Any, rerank: Any = list) -> Any:
    """Return a function whose prompt holds what a second retriever found, in front of the chunks."""
    return RunnableLambda(
        lambda question: say(form.format(joined(search.invoke(question)), joined(rerank(SEARCH.invoke(question)))))
    )


def emptied_agent() -> Any:
    @tool
    def search(query: str) -> str:
        """Search, and keep nothing."""
        return joined(keep()(SEARCH.invoke(query)))

    return create_agent(Agent(), [search])


def by_tool_call() -> Any:
    model = Calls(queries=(), replies_by_tool=True) | (lambda message: Reply(**message.tool_calls[0]["args"]))
    return {"context": SEARCH | keep("gold") | joined, "question": RunnablePassthrough()} | PROMPT | model


VERSIONS = [
    Document(
        f"Terms, version {number}: a ticket costs {price} euros, due within thirty days of the invoice.",
        id=f"v{number}",
    )
    for number, price in ((1, 10), (2, 12), (3, 15))
]
PAIR = Document("Question: Who pays the postage of returns?\nAnswer: The customer, but not for faulty goods.", id="qa")
STYLE = Document("It opened in 1844, says the gazette of the town, which is a short reply.", id="style")
TEXTS = {document.page_content: document.id for document in [*FOUND, EXAMPLE, WEB, PAIR, STYLE, *VERSIONS]}
"""Ids of all chunks, by their texts."""

RANKING = json.dumps({"id": 3, "reason": "The town of Munich was founded by Henry the Lion"})
MORE: dict[str, tuple[Any, Any, Any, str]] = {
    "pairs before the chunks": (with_texts("{}\n{}", Search(documents=[PAIR])), ALL, ["qa", *ALL], ANSWER),
    "pairs among prose": (rag(search=Search(documents=[PAIR, GOLD])), ["qa", "gold"], None, ANSWER),
    "pairs that are contexts": (
        with_texts("FAQ:\n{}\nManual:\n{}", Search(documents=[PAIR])),
        ["qa", *ALL],
        None,
        ANSWER,
    ),
    "examples under a heading": (
        with_texts("Write as in these examples:\n{}\nFrom:\n{}", Search(documents=[STYLE])),
        ALL,
        ["style", *ALL],
        ANSWER,
    ),
    "a retriever of examples": (
        with_texts("{}\n{}", Search(documents=[STYLE]).with_config(run_name="few_shot")),
        ALL,
        ["style", *ALL],
        ANSWER,
    ),
    "a function that drops all": (rag(keep()), [], ALL, ANSWER),
    "a function that searches and drops all": (
        rag(search=RunnableLambda(lambda question: keep()(SEARCH.invoke(question)))),
        [],
        ALL,
        ANSWER,
    ),
    "a graph that drops all": (graph(keep()), [], ALL, ANSWER),
    "a tool that drops all": (emptied_agent(), [], ALL, ANSWER),
    "a web search after all were dropped": (graph(lambda found: keep()(found) or [WEB]), ["web"], ALL, ANSWER),
    "a summary as the context": (
        rag(form=lambda found: say(joined(found), "A duke founded a town; the rest is about a river.")),
        ALL,
        None,
        ANSWER,
    ),
    "a ranking that quotes": (
        asking("gold", rerank=lambda found: say(f"Rank: {numbered(found)}", RANKING) and found),
        ["gold"],
        ALL,
        ANSWER,
    ),
    "a check afterwards": (
        asking("gold", after=lambda answer, found: say(f"Safe? {answer} {ZOO.page_content}", "yes") and answer),
        ["gold"],
        ALL,
        ANSWER,
    ),
    "the best of an answer for each chunk": (best_of_each(), ["gold"], ALL, ANSWER),
    "a short answer": (rag(keep("gold"), model=Model(replies={"": "1158"})), ["gold"], ALL, "1158"),
    "an answer by a tool call": (by_tool_call(), ["gold"], ALL, ANSWER),
    "a branch": (
        RunnableBranch((lambda text: "zoo" in text, rag(keep("zoo"))), rag(keep("gold"))),
        ["gold"],
        ALL,
        ANSWER,
    ),
    "a graph in a graph": (subgraph(), ["gold"], ALL, ANSWER),
    "a generator": (streaming(), ["gold"], ALL, ANSWER),
    "a chain of classic chains": (RetrievalQA.from_chain_type(Model(), retriever=SEARCH), ALL, None, ANSWER),
    "branches of a graph": (flow("gold", "river").compile(), ["gold", "river"], [*ALL, *ALL], ANSWER),
    "examples in the prompt": (few_shot(), ["gold"], ["ex", *ALL], ANSWER),
    "functions of LangGraph": (functional(), ["gold"], ALL, ANSWER),
    "two searches": (
        create_agent(Calls(), [tool_of(Half())]),
        ["gold", "river", "zoo"],
        ["gold", "river", "zoo", "gold"],
        ANSWER,
    ),
    "a tool that keeps the best": (best_only(), ["gold", "zoo"], ["gold", "river", "zoo", "gold"], ANSWER),
    "a format of the reply": (
        create_agent(
            Calls(queries=["all"], replies_by_tool=True), [tool_of(SEARCH)], response_format=ToolStrategy(Reply)
        ),
        ALL,
        None,
        ANSWER,
    ),
    "middleware that replaces": (trimming(), ["zoo"], ALL, ANSWER),
    "middleware that adds": (adding(), ["gold", "river"], ALL, ANSWER),
    "versions of one text": (rag(keep("v2"), search=Search(documents=VERSIONS)), ["v2"], ["v1", "v2", "v3"], ANSWER),
}


# Conversations

TURNS = ["Who founded Munich?", "When was that?", "And the zoo?"]
WITH_HISTORY = ChatPromptTemplate([("system", "{context}"), MessagesPlaceholder("history"), ("human", "{question}")])


class Echo(Model):
    """Model that repeats the last line of the user."""

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        last = [message for message in messages if message.type == "human"][-1].text.split("\n")[-1]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"Reply to: {last}"))])


def gold(question: Any) -> str:
    return joined(keep("gold")(SEARCH.invoke(str(question))))


def with_gold(messages: Any) -> Any:
    return [SystemMessage(gold("?")), *messages]


def chat() -> Any:
    write = lambda state: {"messages": [Echo().invoke(with_gold(state["messages"]))]}  # noqa: E731
    return sequence(MessagesState, {"write": write}, InMemorySaver())


@dataclass
class Record:
    messages: Annotated[list, add_messages] = field(default_factory=list)
    found: list[Document] = field(default_factory=list)


class Form(BaseModel):
    messages: Annotated[list, add_messages] = []
    found: list[Document] = []


def chat_of(state_class: Any) -> Any:
    nodes = {
        "find": lambda state: {"found": keep("gold")(SEARCH.invoke("?"))},
        "write": lambda state: {"messages": [Echo().invoke([SystemMessage(joined(state.found)), *state.messages])]},
    }
    return sequence(state_class, nodes, InMemorySaver())


def previous_turns(form: Any) -> Any:
    """Return an entrypoint of LangGraph that saves its messages for the next turn, in some form."""

    @entrypoint(checkpointer=InMemorySaver())
    def app(question: str, *, previous: Any = None) -> Any:
        before = (previous["messages"] if isinstance(previous, dict) else previous) or []
        messages = [*before, {"role": "user", "content": question}]
        answer = Echo().invoke([SystemMessage(gold(question)), *messages]).text
        return entrypoint.final(value=answer, save=form([*messages, {"role": "assistant", "content": answer}]))

    return app


def own_history() -> Any:
    class State(TypedDict, total=False):
        question: str
        chat_history: Annotated[list, operator.add]
        answer: str

    def write(state: Any) -> Any:
        answer = say(f"{gold('?')}\n{state['question']}", f"Reply to: {state['question']}")
        turn = [{"role": "user", "content": state["question"]}, {"role": "assistant", "content": answer}]
        return {"answer": answer, "chat_history": turn}

    return sequence(State, {"write": write}, InMemorySaver())


def aware_of_history() -> Any:
    rephrase = ChatPromptTemplate([MessagesPlaceholder("chat_history"), ("human", "Rephrase {input}")])
    search = create_history_aware_retriever(
        Model(replies={"": "Who founded the town?"}), SEARCH | keep("gold"), rephrase
    )
    prompt = ChatPromptTemplate([("system", "{context}"), MessagesPlaceholder("chat_history"), ("human", "{input}")])
    return create_retrieval_chain(search, create_stuff_documents_chain(Echo(), prompt))


def lines(chain: Any) -> Any:
    return (
        RunnablePassthrough.assign(context=lambda given: gold(given["question"])) | chain | Echo() | StrOutputParser()
    )


def sent(*forms: Any) -> Any:
    """Return a function that adds the turns before the question, each as one of two forms, to the input of a chain."""
    earlier: list[Any] = []

    def given(question: str) -> Any:
        value = {"question": question, "history": [*earlier]}
        earlier.extend(form(text) for form, text in zip(forms, (question, f"Reply to: {question}"), strict=True))
        return value

    return given


def asked(question: str) -> Any:
    return {"question": question}


def messages_of(question: str) -> Any:
    return {"messages": [("human", question)]}


CHATS: dict[str, tuple[Any, Any, str]] = {
    "a history of messages": (
        lambda: remembering(lines(WITH_HISTORY), "question", "history"),
        lambda: asked,
        "session_id",
    ),
    "a history of which two messages are read": (
        lambda: remembering(
            RunnablePassthrough.assign(history=lambda given: given["history"][-2:]) | lines(WITH_HISTORY),
            "question",
            "history",
        ),
        lambda: asked,
        "session_id",
    ),
    "a history around a function": (
        lambda: remembering(
            RunnableLambda(
                lambda given: Echo().invoke([*given["history"], HumanMessage(f"{gold('?')}\n{given['question']}")])
            ),
            "question",
            "history",
        ),
        lambda: asked,
        "session_id",
    ),
    "a retriever that reads the history": (
        lambda: remembering(aware_of_history(), "input", "chat_history", "answer"),
        lambda: lambda question: {"input": question},
        "session_id",
    ),
    "an agent with a memory": (
        lambda: create_agent(Echo(), [], middleware=[Edit(with_gold)], checkpointer=InMemorySaver()),
        lambda: messages_of,
        "thread_id",
    ),
    "a graph with messages": (chat, lambda: messages_of, "thread_id"),
    "a graph with a state of pydantic": (lambda: chat_of(Form), lambda: messages_of, "thread_id"),
    "a graph whose state is a dataclass": (lambda: chat_of(Record), lambda: messages_of, "thread_id"),
    "a graph with a history of its own": (own_history, lambda: asked, "thread_id"),
    "an entrypoint that saves messages": (lambda: previous_turns(convert_to_messages), lambda: str, "thread_id"),
    "an entrypoint that saves a mapping": (
        lambda: previous_turns(lambda messages: {"messages": messages}),
        lambda: str,
        "thread_id",
    ),
    "messages of the caller": (lambda: lines(WITH_HISTORY), lambda: sent(HumanMessage, AIMessage), "thread_id"),
    "pairs of the caller": (
        lambda: lines(WITH_HISTORY),
        lambda: sent(lambda text: ("human", text), lambda text: ("ai", text)),
        "thread_id",
    ),
}
