"""Chains about Munich in the shapes that people have, each with the same answer and the same documents."""

from typing import Annotated, Any

from helpers.samples import ANSWER, CONTEXTS, Search, Words, joined, rag, remembering, sequence
from langchain.agents import create_agent
from langchain_classic.chains import (
    ConversationalRetrievalChain,
    RetrievalQA,
    create_history_aware_retriever,
    create_retrieval_chain,
)
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

FOUND = [
    Document(text, id=f"m{number}", metadata={"source": f"munich-{number}.md"})
    for number, text in enumerate(CONTEXTS, 1)
]
SEARCH = Search(documents=FOUND)


class Agent(Words):
    """Scripted model of an agent: it searches for the last message, then answers."""

    disable_streaming: bool = True

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        if messages[-1].type == "tool":
            return super()._generate(messages, *args, **options)
        call = {"name": "search", "args": {"query": messages[-1].text}, "id": "1"}
        self.messages = iter([AIMessage("", tool_calls=[call])])
        return super(Words, self)._generate(messages, *args, **options)


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Search a store, not through a retriever."""
    return joined(FOUND), FOUND


@tool(response_format="content_and_artifact")
async def asearch(query: str) -> tuple[str, list[Document]]:
    """Search a store that has async methods only."""
    return joined(FOUND), FOUND


search.name = asearch.name = "search"
TEXT_TOOL = create_retriever_tool(SEARCH, "search", "Search.")


class State(TypedDict, total=False):
    question: str
    context: list[Document]
    answer: str


class Generation(TypedDict, total=False):
    question: str
    documents: list[Document]
    generation: str


class Joined(TypedDict, total=False):
    question: str
    context: str
    answer: str


class Conversation(TypedDict):
    dialogue: Annotated[list[AnyMessage], add_messages]
    context: list[Document]


def graph(state: Any, asked: str, found: str, answer: str, as_found: Any = list) -> Any:
    """Return a graph of two nodes, retrieve and answer, with the given names in its state."""
    retrieve = lambda values: {found: as_found(SEARCH.invoke(values[asked]))}  # noqa: E731
    return sequence(state, {"retrieve": retrieve, "generate": lambda _: {answer: ANSWER}})


def async_graph() -> Any:
    async def answer(values: Any) -> dict[str, Any]:
        return {"context": await SEARCH.ainvoke(values["question"]), "answer": ANSWER}

    return sequence(State, {"answer": answer})


def message_graph() -> Any:
    def answer(values: Any) -> dict[str, Any]:
        return {"messages": [SEARCH.invoke(values["messages"][-1].text) and ("ai", ANSWER)]}

    return sequence(MessagesState, {"answer": answer}, InMemorySaver())


def dialogue_graph() -> Any:
    def answer(values: Any) -> dict[str, Any]:
        return {"dialogue": [AIMessage(ANSWER)], "context": SEARCH.invoke(values["dialogue"][-1].text)}

    return sequence(Conversation, {"answer": answer}) | RunnableLambda(
        lambda values: {**values, "messages": values["dialogue"]}
    )


STUFF = ChatPromptTemplate([("system", "{context}"), ("placeholder", "{chat_history}"), ("human", "{input}")])
REPHRASE = ChatPromptTemplate([("placeholder", "{chat_history}"), ("human", "{input}")])


class Reply(BaseModel):
    answer: str
    documents: list[Document]


class Service:
    """A service with methods, as in an application without LCEL."""

    def ask(self, question: str) -> Reply:
        return Reply(answer=ANSWER, documents=FOUND)

    async def aask(self, question):
        return {"reply": ANSWER, "found": await SEARCH.ainvoke(question)}


def by_text(question):
    return joined(SEARCH.invoke(question)) and ANSWER


def by_name(inputs):
    return {"query": inputs["question"], "result": ANSWER, "source_documents": FOUND}


def as_pair(question: str):
    return ANSWER, FOUND


async def by_text_async(question):
    await SEARCH.ainvoke(question)
    return AIMessage(ANSWER)


def prompted() -> Any:
    prompt = ChatPromptTemplate([("human", "{context} {question}")])
    found = {"context": lambda text: joined(FOUND) and FOUND, "question": RunnablePassthrough()}
    return found | prompt | Words() | (lambda message: message.text)


CHAINS: dict[str, Any] = {
    "an LCEL chain that ends in a text": rag(SEARCH),
    "an LCEL chain with a fallback": RunnableLambda(by_text).with_fallbacks([rag(SEARCH)]),
    "an LCEL chain whose search is a function": prompted(),
    "an agent with a retriever tool": create_agent(Agent(), [TEXT_TOOL]),
    "an agent whose tool searches by itself": create_agent(Agent(), [search]),
    "an agent whose tool is async": create_agent(Agent(), [asearch]),
    "the last text of an agent": create_agent(Agent(), [TEXT_TOOL]) | (lambda state: state["messages"][-1].text),
    "a graph": graph(State, "question", "context", "answer"),
    "a graph with names of its own": graph(Generation, "question", "documents", "generation"),
    "a graph that joins the documents": graph(Joined, "question", "context", "answer", joined),
    "a graph of async nodes": async_graph(),
    "a graph of messages with a memory": message_graph(),
    "a graph whose messages have another name": dialogue_graph(),
    "RetrievalQA": RetrievalQA.from_chain_type(Words(), retriever=SEARCH, return_source_documents=True),
    "RetrievalQA without its sources": RetrievalQA.from_chain_type(Words(), retriever=SEARCH),
    "history-aware retrieval": create_retrieval_chain(
        create_history_aware_retriever(Words(), SEARCH, REPHRASE), create_stuff_documents_chain(Words(), STUFF)
    ),
    "a conversational chain": ConversationalRetrievalChain.from_llm(Words(), retriever=SEARCH),
    "a chain with a message history": remembering(
        create_retrieval_chain(SEARCH, create_stuff_documents_chain(Words(), STUFF)), "input", "chat_history", "answer"
    ),
    "a function of the question": by_text,
    "an async function": by_text_async,
    "a function of a mapping": by_name,
    "a function that returns a pair": as_pair,
    "a method": Service().ask,
    "an async method": Service().aask,
}
"""Chains by description; all but a bare retriever answer `ANSWER` from `FOUND`."""
