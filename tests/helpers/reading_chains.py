"""Chains whose model reads other chunks than the retriever returned, in the shapes that people write."""

import html
import warnings
from typing import Any

from helpers.samples import Search, joined, sequence
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_classic.chains import ConversationalRetrievalChain, RefineDocumentsChain, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.chains.llm import LLMChain
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    MergerRetriever,
    MultiQueryRetriever,
    ParentDocumentRetriever,
)
from langchain_classic.retrievers.document_compressors import LLMChainExtractor
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.stores import InMemoryStore
from langchain_core.tools import create_retriever_tool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter
from typing_extensions import TypedDict

from langchain_rageval import HashingEmbeddings

QUESTION = "When was Munich founded?"
ANSWER = "Munich was founded in 1158, says the chronicle of the monastery."
RUSSIAN = "Мюнхен основан в 1158 году, говорит летопись монастыря, которая хранится там до сих пор."
GOLD = Document(
    'The town of Munich was founded by Henry the Lion in 1158, when he moved the bridge of the "salt road" south.\n'
    "Its name means «by the monks»: Мюнхен стоит на реке Изар с двенадцатого века.",
    id="gold",
    metadata={"source": "munich.md"},
)
RIVER = Document(
    "The river Isar rises in the Karwendel range and flows through four lakes before it joins the Danube & the sea.",
    id="river",
    metadata={"source": "isar.md"},
)
ZOO = Document(
    "Berlin has had a zoo since 1844, which is the oldest one in Germany and keeps more species than any other.",
    id="zoo",
    metadata={"source": "berlin.md"},
)
EXAMPLE = Document(
    "Question: What is the due date of an invoice? Topic: billing, since it asks about payment.", id="ex"
)
FOUND = [RIVER, ZOO, GOLD]
SEARCH = Search(documents=FOUND)
PROMPT = ChatPromptTemplate([("system", "Answer from this:\n{context}"), ("human", "{question}")])


class Model(GenericFakeChatModel):
    """Chat model whose reply depends on its prompt: that of the first text in `replies` that the prompt holds."""

    messages: Any = ()
    replies: Any = None

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        prompt = "\n".join(message.text for message in messages)
        replies = self.replies or {}
        self.messages = iter([AIMessage(next((replies[key] for key in replies if key in prompt), ANSWER))])
        return super()._generate(messages, *args, **options)

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


class Agent(Model):
    """Model of an agent: it searches once, then answers."""

    disable_streaming: bool = True

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        if messages[-1].type == "tool":
            return super()._generate(messages, *args, **options)
        self.messages = iter([AIMessage("", tool_calls=[{"name": "search", "args": {"query": "Munich"}, "id": "1"}])])
        return super(Model, self)._generate(messages, *args, **options)


def rag(*steps: Any, search: Any = SEARCH, model: Any = None, form: Any = joined) -> Runnable[Any, Any]:
    """Return retriever, steps between it and the prompt, prompt, model and parser."""
    found: Any = search
    for step in (*steps, form):
        found = found | RunnableLambda(step)
    return {"context": found, "question": RunnablePassthrough()} | PROMPT | (model or Model()) | StrOutputParser()


def keep(*ids: str) -> Any:
    return lambda documents: [document for name in ids for document in documents if document.id == name]


def numbered(documents: Any) -> str:
    return "\n".join(f"[{number}] ({d.metadata['source']}) {d.page_content}" for number, d in enumerate(documents, 1))


def as_xml(documents: Any) -> str:
    return "".join(f"<doc id='{d.id}'>{html.escape(d.page_content)}</doc>" for d in documents)


def cut(documents: Any) -> str:
    return "\n---\n".join(d.page_content[:75] for d in documents)


def fused(lists: Any) -> Any:
    """Return the fused lists of RAG-Fusion, each document once, with its score."""
    scores: dict[str, float] = {}
    for documents in lists:
        for rank, document in enumerate(documents):
            scores[document.id] = scores.get(document.id, 0.0) + 1 / (60 + rank)
    by_id = {document.id: document for documents in lists for document in documents}
    return [(by_id[name], scores[name]) for name in sorted(scores, key=lambda name: -scores[name])]


def reordered(documents: Any) -> Any:
    """Return documents as LongContextReorder orders them: the best at both ends."""
    order: list[Document] = []
    for place, document in enumerate(reversed(documents)):
        order.insert(len(order) if place % 2 else 0, document)
    return order


class Half(Search):
    """Retriever that returns two documents, others for a second question."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [GOLD, RIVER] if "bridge" in query else [ZOO, GOLD]


def fusion() -> Any:
    queries = ChatPromptTemplate([("human", "Write two searches for: {question}")])
    model = Model(replies={"Write two": "When was the bridge moved\nWhen was the town built"})
    found = queries | model | StrOutputParser() | (lambda text: text.split("\n")) | Half().map() | fused
    context = found | (lambda pairs: joined([document for document, _ in pairs]))
    return {"context": context, "question": RunnablePassthrough()} | PROMPT | Model() | StrOutputParser()


def multi_query() -> Any:
    model = Model(replies={"AI language model assistant": "When was the bridge moved\nWhen was the town built"})
    return rag(search=MultiQueryRetriever.from_llm(Half(), model))


def parents() -> Any:
    store = InMemoryVectorStore(HashingEmbeddings())
    search = ParentDocumentRetriever(
        vectorstore=store,
        docstore=InMemoryStore(),
        child_splitter=RecursiveCharacterTextSplitter(chunk_size=40, chunk_overlap=0),
        search_kwargs={"k": 1},
    )
    search.add_documents([GOLD, ZOO], ids=["gold", "zoo"])
    return rag(search=search)


def merged() -> Any:
    return rag(keep("gold", "river"), search=MergerRetriever(retrievers=[SEARCH, Half()]))


def compression() -> Any:
    first = GOLD.page_content.split("\n")[0]
    model = Model(replies={"Munich was founded by": first, "Karwendel": "NO_OUTPUT", "Berlin": "NO_OUTPUT"})
    return rag(
        search=ContextualCompressionRetriever(base_compressor=LLMChainExtractor.from_llm(model), base_retriever=SEARCH)
    )


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


class Asked(TypedDict):
    question: str


class Answered(TypedDict):
    answer: str


def graph(rerank: Any) -> Any:
    """Return a graph that hides its documents from its output, and whose grader drops some."""
    chain = PROMPT | Model() | StrOutputParser()

    def write(state: Any) -> Any:
        return {"answer": chain.invoke({"context": joined(state["documents"]), "question": state["question"]})}

    nodes = {
        "retrieve": lambda state: {"documents": SEARCH.invoke(state["question"])},
        "grade": lambda state: {"documents": rerank(state["documents"])},
        "write": write,
    }
    return sequence(State, nodes, input_schema=Asked, output_schema=Answered)


def agent() -> Any:
    return create_agent(Agent(), [create_retriever_tool(SEARCH, "search", "Search.")])


def reranking_agent() -> Any:
    @tool
    def search(query: str) -> str:
        """Search and keep the best chunk."""
        return joined(keep("gold")(SEARCH.invoke(query)))

    inner = create_agent(Agent(), [search])
    return RunnableLambda(lambda question: inner.invoke({"messages": [("human", question)]})["messages"][-1].text)


def with_prompt_of_middleware() -> Any:
    @dynamic_prompt
    def search_first(request: Any) -> str:
        found = SEARCH.invoke(request.state["messages"][-1].text)
        return "Answer from this:\n" + joined(keep("gold")(found))

    return create_agent(Model(), [], middleware=[search_first])


def classic_refine() -> Any:
    model = Model(replies={"Refine": ANSWER, "river Isar": "The chunk says nothing about the year of the town."})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        chain = RefineDocumentsChain(
            initial_llm_chain=LLMChain(llm=model, prompt=PromptTemplate.from_template("Answer from {context}")),
            refine_llm_chain=LLMChain(llm=model, prompt=PromptTemplate.from_template("Refine {answer} by {context}")),
            document_variable_name="context",
            initial_response_name="answer",
        )
    found = SEARCH | RunnableLambda(keep("river", "gold"))
    return {"input_documents": found} | chain | (lambda output: output["output_text"])


def translating() -> Any:
    translator = ChatPromptTemplate([("human", "Translate into Russian: {text}")]) | Model(replies={"Trans": RUSSIAN})
    return rag(keep("gold")) | (lambda text: {"text": text}) | translator | StrOutputParser()


def routed() -> Any:
    """Return a chain with a router that reads examples."""
    examples = Search(documents=[EXAMPLE])
    router = ChatPromptTemplate([("human", "{examples} Topic of {question}?")]) | Model(replies={"Topic": "history"})
    inputs = {"examples": examples | joined, "question": RunnablePassthrough()}
    return {"topic": inputs | router, "question": RunnablePassthrough()} | RunnableLambda(
        lambda given: rag(keep("gold")).invoke(given["question"])
    )


def rewriting() -> Any:
    """Return a chain that writes the search by examples, and pastes it into the prompt."""
    search = "In which year was the town of Munich in Bavaria founded"
    rewrite = ChatPromptTemplate([("human", "{examples} Rewrite {question}")]) | Model(replies={"Rewrite": search})
    inputs = {"examples": Search(documents=[EXAMPLE]) | joined, "question": RunnablePassthrough()}
    return inputs | rewrite | StrOutputParser() | rag(keep("gold"))


def stating(kept: Any, stated: Any) -> Any:
    """Return a chain that returns other contexts than its prompt holds."""

    def run(question: str) -> Any:
        found = SEARCH.invoke(question)
        answer = (PROMPT | Model()).invoke({"context": joined(kept(found)), "question": question}).text
        return {"answer": answer, "context": stated(found)}

    return RunnableLambda(run)


def searched_by_function() -> Any:
    store = InMemoryVectorStore(HashingEmbeddings())
    store.add_documents(FOUND)
    search = RunnableLambda(lambda question: store.similarity_search(question, k=3))
    return rag(keep("gold"), search=search)


def summed_up(documents: Any) -> Any:
    return [Document("\n\n".join(d.page_content for d in documents))]


def stuffed(rerank: Any) -> Any:
    prompt = ChatPromptTemplate([("system", "{context}"), ("human", "{input}")])
    return create_retrieval_chain(SEARCH | RunnableLambda(rerank), create_stuff_documents_chain(Model(), prompt))


ALL = ["river", "zoo", "gold"]
HALVES = ["gold", "river", "zoo", "gold"]
COMPRESSED = GOLD.page_content.split("\n")[0]
CUT_GOLD = "The town of Munich was founded by Henry the Lion in 1158, when he moved the"
CUT_ZOO = "Berlin has had a zoo since 1844, which is the oldest one in Germany and"

# name: chain, ids or texts of the contexts, ids of what was retrieved (None: the same), answer
TABLE: dict[str, tuple[Any, Any, Any, str]] = {
    "no reranker": (rag(), ALL, None, ANSWER),
    "a reranker keeps gold": (rag(keep("gold")), ["gold"], ALL, ANSWER),
    "parent documents": (parents(), ["gold"], None, ANSWER),
    "a prompt of middleware": (with_prompt_of_middleware(), ["gold"], ALL, ANSWER),
    "a reranker returns copies": (
        rag(lambda found: [Document(d.page_content, metadata=d.metadata) for d in found[2:]]),
        ["gold"],
        ALL,
        ANSWER,
    ),
    "a search in a function": (searched_by_function(), ["gold"], None, ANSWER),
    "RAG-Fusion": (fusion(), ["gold", "zoo", "river"], HALVES, ANSWER),
    "LongContextReorder": (rag(reordered), ["river", "gold", "zoo"], ALL, ANSWER),
    "merged retrievers": (merged(), ["gold", "river"], ["river", "zoo", "zoo", "gold", "gold"], ANSWER),
    "compression": (compression(), [COMPRESSED], None, ANSWER),
    "several queries": (multi_query(), ["gold", "river", "zoo"], None, ANSWER),
    "a graph that hides its state": (graph(keep("gold")), ["gold"], ALL, ANSWER),
    "an agent": (agent(), ALL, None, ANSWER),
    "an agent whose tool reranks": (reranking_agent(), ["gold"], ALL, ANSWER),
    "refine of classic chains": (classic_refine(), ["river", "gold"], ALL, ANSWER),
    "translate": (translating(), ["gold"], ALL, RUSSIAN),
    "a router": (routed(), ["gold"], ["ex", *ALL], ANSWER),
    "examples for the search": (rewriting(), ["gold"], ["ex", *ALL], ANSWER),
    "escaped as HTML": (rag(keep("river", "gold"), form=as_xml), ["river", "gold"], ALL, ANSWER),
    "cut": (rag(keep("gold", "zoo"), form=cut), [CUT_GOLD, CUT_ZOO], ALL, ANSWER),
    "joined to one document": (rag(keep("gold", "zoo"), summed_up), ["gold", "zoo"], ALL, ANSWER),
    "a model of texts": (rag(keep("gold"), model=FakeListLLM(responses=[ANSWER])), ["gold"], ALL, ANSWER),
    "the prompt wins over the output": (stating(keep("gold"), list), ["gold"], ALL, ANSWER),
    "an output that joins": (stating(keep("gold", "zoo"), joined), ["gold", "zoo"], ALL, ANSWER),
    "a retrieval chain": (stuffed(keep("zoo")), ["zoo"], ALL, ANSWER),
    "a conversational chain": (ConversationalRetrievalChain.from_llm(Model(), retriever=SEARCH), ALL, None, ANSWER),
}
