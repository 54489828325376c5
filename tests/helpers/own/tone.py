"""A metric from an LCEL chain."""

from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel

from langchain_rageval import Judge, Metric, Step, Value


class Tone(BaseModel):
    reason: str
    friendly: bool


PROMPT = ChatPromptTemplate.from_messages([("system", "Say whether the answer is friendly."), ("human", "{answer}")])


def friendly(state):
    return Value(float(state["tone"].friendly), state["tone"].reason)


def tone(judge):
    """Say whether the answer is friendly."""
    chain = PROMPT | Judge.of(judge).model.with_structured_output(Tone)
    step = Step.from_chain(chain, reads=("answer",), key="tone")
    return Metric("tone", aspect="style", reads={"answer"}, steps=step, reduce=friendly)
