"""A question about Munich whose answer is half made up, in the shapes in which a user has it."""

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
    """A chain as LangChain's retrieval chains are: from a question to input, context and answer."""
    return RunnableLambda(lambda question: {"input": question, "context": DOCUMENTS, "answer": ANSWER})


def offline_reply(messages: list[BaseMessage]) -> BaseMessage:
    """What OfflineJudge says, for judges that do something besides."""
    return OfflineJudge()._generate(messages).generations[0].message  # no run of its own for callbacks to see


def recording_judge() -> Scripted:
    """Answers as OfflineJudge does and keeps what it was asked."""
    return answering(offline_reply)


def broken_judge(reply: Any = "I would rather not.") -> Scripted:
    """Always gives the same reply, or raises it: by default prose that no parser reads."""
    return answering(lambda _: reply)
