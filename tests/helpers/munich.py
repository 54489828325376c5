"""A sample about Munich whose answer is half right, as a mapping, as documents and as a chain, and judges for it."""

from typing import Any

from helpers.scripted import Scripted, answering
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval import OfflineJudge

QUESTION = "When was Munich founded?"
ANSWER = "Munich was founded in 1158. A million elephants live there."
CONTEXTS = ["Munich was founded in 1158 by Henry the Lion.", "It lies on the Isar."]
DOCUMENTS = [Document(text) for text in CONTEXTS]
SAMPLE: dict[str, Any] = {"question": QUESTION, "answer": ANSWER, "contexts": CONTEXTS}
TRUE_SAMPLE = {**SAMPLE, "answer": "Munich was founded in 1158."}
REFUSAL = {**SAMPLE, "answer": "I do not know."}


def rag_chain() -> Runnable[str, dict[str, Any]]:
    """Return a chain with the output of LangChain's retrieval chains: input, context and answer."""
    return RunnableLambda(lambda question: {"input": question, "context": DOCUMENTS, "answer": ANSWER})


def offline_reply(messages: list[BaseMessage]) -> BaseMessage:
    """Return the reply of OfflineJudge, for judges with additional behaviour."""
    return OfflineJudge()._generate(messages).generations[0].message  # without a run that callbacks would see


def recording_judge() -> Scripted:
    """Return a judge that replies like OfflineJudge and records its requests."""
    return answering(offline_reply)


def broken_judge(reply: Any = "I would rather not.") -> Scripted:
    """Return a judge with a constant reply or exception; by default prose that cannot be parsed."""
    return answering(lambda _: reply)
