"""The steps of a test set: Runnables from candidate to candidate, each of which asks the writer or the critic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel

from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage
from langchain_rageval.steps.step import Step
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.passage import Passage

Inputs = Mapping[str, Any]
Answer = TypeVar("Answer", bound=BaseModel)


class CandidateStep(Stage[Candidate]):
    """Does something to a candidate; one that was rejected passes through untouched.

    Attributes:
        asks: what is put to the writer or critic, if something is.
    """

    asks: Step | None = None

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked."""
        return self.asks.judges if self.asks else ()

    @property
    def instrument(self) -> Mapping[str, Any]:
        """All that could change what it makes of a candidate."""
        options = {name: getattr(self, name) for name in type(self).model_fields if name in self._options()}
        return {"step": self.get_name(), "asks": self.asks and self.asks.instrument, **options}

    def with_fresh_capabilities(self) -> Self:
        """The same step, asking a forgetful judge."""
        return self.model_copy(update={"asks": self.asks and self.asks.with_fresh_capabilities()})

    def _options(self) -> Sequence[str]:
        """Fields that change what it makes of a candidate."""
        return ()

    def _ask(
        self, inputs: Inputs, about: str, objection: Callable[[Any], str | None] = lambda _answer: None
    ) -> Operation[Any]:
        """Ask in the language of a text."""
        return ask(self.asks, inputs, about, objection)

    def _do(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else super()._do(state, config)

    async def _ado(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else await super()._ado(state, config)


def ask(
    step: Step | None, inputs: Inputs, about: str, objection: Callable[[Any], str | None] = lambda _answer: None
) -> Operation[Any]:
    """Put a question to a writer or critic, in the language of the text that it is about."""
    if step is None:
        raise TypeError("there is nobody to ask")
    answer = yield step.ask(step.build_question(inputs, None, language_from=about, objection=objection))
    return answer


def asking(prompt: str, judge: JudgeLike, own: Prompt | None = None) -> Step:
    """What is put to a writer or critic: a step of the package, or one of its kind with a prompt of the user's own."""
    return Step(own or prompt, judge, ANSWER_SCHEMAS[prompt], name=prompt)


def numbered(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Passages as the prompts show them."""
    return [{"passage": number, "text": passage.text} for number, passage in enumerate(passages, 1)]


def text_of(candidate: Candidate) -> str:
    """What the language of a candidate is told by."""
    return candidate.passages[0].text


def blank_question(answer: Any) -> str | None:
    """What is wrong with a written question, if something is."""
    return None if answer.question.strip() else "the question is blank"
