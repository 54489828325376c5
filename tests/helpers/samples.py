"""Samples about Munich as mappings, documents, chains, and as the rows that sinks receive."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core._api import LangChainDeprecationWarning
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.graph import START, StateGraph

from langchain_rageval import OfflineJudge, RagEvalCallback, Row, Sample, Score, faithfulness
from langchain_rageval.data.schema import Failure, Usage

QUESTION = "When was Munich founded?"
ANSWER = "Munich was founded in 1158. A million elephants live there."
CONTEXTS = ["Munich was founded in 1158 by Henry the Lion.", "It lies on the Isar."]
DOCUMENTS = [Document(text) for text in CONTEXTS]
SAMPLE: dict[str, Any] = {"question": QUESTION, "answer": ANSWER, "contexts": CONTEXTS}
TRUE_SAMPLE = {**SAMPLE, "answer": "Munich was founded in 1158."}
REFUSAL = {**SAMPLE, "answer": "I do not know."}


def town(number: int, **more: Any) -> dict[str, Any]:
    """Return a sample that costs as much as the others of its kind and shares no text with them."""
    name = f"town {number:04}"
    return {
        "id": f"q-{number}",
        "question": f"When was {name} founded?",
        "answer": f"{name.capitalize()} was founded in 1158.",
        "contexts": [f"{name.capitalize()} was founded in 1158 by Henry.", f"The river of {name} is the Isar."],
        "references": [f"Henry founded {name} in 1158."],
        **more,
    }


def rag_chain() -> Runnable[str, dict[str, Any]]:
    """Return a chain with the output of LangChain's retrieval chains: input, context and answer."""
    return RunnableLambda(lambda question: {"input": question, "context": DOCUMENTS, "answer": ANSWER})


class Search(BaseRetriever):
    """Retriever that returns the documents about Munich, or other ones."""

    documents: Sequence[Document] = DOCUMENTS

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return list(self.documents)


class Words(GenericFakeChatModel):
    """Chat model with a constant answer, streamed word by word."""

    messages: Any = ()

    def _generate(self, *args: Any, **options: Any) -> Any:
        self.messages = iter([AIMessage(ANSWER)])
        return super()._generate(*args, **options)

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


def joined(documents: Sequence[Document]) -> str:
    return "\n".join(document.page_content for document in documents)


def rag(search: Any = None) -> Runnable[str, str]:
    """Return a typical chain from question to answer: retriever, prompt, model, parser."""
    prompt = ChatPromptTemplate([("system", "Answer from this: {context}"), ("human", "{question}")])
    found = {"context": (search or Search()) | RunnableLambda(joined), "question": RunnablePassthrough()}
    return found | prompt | Words() | StrOutputParser()


def sequence(state: Any, nodes: Mapping[str, Any], checkpointer: Any = None, **schemas: Any) -> Any:
    """Return a graph of LangGraph whose nodes run in order."""
    flow = StateGraph(state, **schemas).add_sequence([*nodes.items()])
    return flow.add_edge(START, next(iter(nodes))).compile(checkpointer=checkpointer)


def remembering(chain: Any, *names: str) -> Any:
    """Return a chain with a history per session; deprecated, but in use.

    Args:
        chain: the chain.
        names: names of its input and of its history, and of its output if that is a mapping.
    """
    stored: dict[str, InMemoryChatMessageHistory] = {}
    keys = ("input_messages_key", "history_messages_key", "output_messages_key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        return RunnableWithMessageHistory(
            chain,
            lambda session_id: stored.setdefault(session_id, InMemoryChatMessageHistory()),
            **dict(zip(keys, names, strict=False)),
        )


def watching(*metrics: Any, **options: Any) -> tuple[RagEvalCallback, list[Row]]:
    """Return a callback that samples every run, and the list of its rows in order of completion."""
    rows: list[Row] = []
    given = list(metrics) or [faithfulness(OfflineJudge())]
    return RagEvalCallback(given, **{"sample_rate": 1.0, "sinks": [rows.append], "max_concurrency": 1, **options}), rows


def watched(chain: Any, given: Any = QUESTION, *metrics: Any, **options: Any) -> tuple[RagEvalCallback, list[Row]]:
    """Return a closed callback that has watched one call of a chain, and its rows."""
    callback, rows = watching(*metrics, **options)
    with callback:
        chain.invoke(given, with_callback(callback))
    return callback, rows


def with_callback(callback: RagEvalCallback, **config: Any) -> Any:
    return {"callbacks": [callback], **config}


def row(value: float | None = 0.5, index: int = 0, run_id: str | None = None, **sample: Any) -> Row:
    """Return a row as a sink receives it; without a value, one score is failed and one unscored."""
    run_id = run_id or str(uuid4())
    usage = Usage(calls=2, input_tokens=100, output_tokens=10, seconds=0.5)
    if value is not None:
        scores = [Score(metric="faithfulness", aspect="grounding", value=value, reason="because", usage=usage)]
    else:
        failure = Failure(error="RateLimitError", message="too many", step="verify_statements")
        scores = [
            Score(metric="faithfulness", aspect="grounding", failure=failure, usage=usage),
            Score(metric="answer_relevance", aspect="answer", unscored="the answer states no facts"),
        ]
    content = {"question": QUESTION, "answer": ANSWER, "contexts": CONTEXTS, **sample}
    content["metadata"] = {"run_id": run_id, **content.get("metadata", {})}
    return Row(index=index, sample=Sample(id=run_id, **content), scores={score.metric: score for score in scores})
