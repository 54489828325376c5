"""A judged metric with prompts in English and Russian."""

from pydantic import BaseModel

from langchain_rageval import Metric, Prompt, Step, Value


class Politeness(BaseModel):
    reason: str
    polite: bool


PROMPTS = {
    "en": Prompt(instruction="Say whether `answer` is polite."),
    "ru": Prompt(instruction="Определите, вежлив ли ответ `answer`."),
}
rate = Step(Politeness, prompts=PROMPTS, reads=("question", "answer"))


def share(state):
    return Value(float(state["politeness"].polite), state["politeness"].reason)


def politeness(judge):
    """Say whether the answer is polite."""
    return Metric("politeness", aspect="style", reads={"answer"}, steps=rate(judge), reduce=share)
