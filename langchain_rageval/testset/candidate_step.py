"""Base class of the steps that generate a test set: Runnables from candidate (question in progress) to candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from langchain_core.runnables import RunnableConfig

from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage
from langchain_rageval.steps.step import Step
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.passage import Passage

_Inputs = Mapping[str, Any]
_Objection = Callable[[Any], str | None]


def _no_objection(_answer: Any) -> None:
    return None


class CandidateStep(Stage[Candidate]):
    """Step that changes or rejects a candidate (question in progress); rejected candidates pass through unchanged.

    Attributes:
        model_step: request to the writer or critic; None if the step calls models through other steps.
    """

    model_step: Step | None = None

    @property
    def InputType(self) -> type[Candidate]:
        """Type of the input, for schemas."""
        return Candidate

    @property
    def OutputType(self) -> type[Candidate]:
        """Type of the output, for schemas."""
        return Candidate

    @property
    def judges(self) -> Sequence[Judge]:
        """Writer or critic that the step calls."""
        return self.model_step.judges if self.model_step else ()

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this step that affects the returned candidates; journals identify the step by it."""
        options = {name: getattr(self, name) for name in type(self).model_fields if name in self._option_names()}
        return {"step": self.get_name(), "asks": self.model_step and self.model_step.description, **options}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judges do not share endpoint capabilities with the judges of this step."""
        return self.model_copy(update={"model_step": self.model_step and self.model_step.with_fresh_capabilities()})

    def _option_names(self) -> Sequence[str]:
        """Return the names of the fields that affect the returned candidates."""
        return ()

    def _ask(self, inputs: _Inputs, language_from: str, objection: _Objection = _no_objection) -> Operation[Any]:
        """Send the request of `model_step`; see `ask_step`."""
        return ask_step(self.model_step, inputs, language_from, objection)

    def _do(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else super()._do(state, config)

    async def _ado(self, state: Candidate, config: RunnableConfig) -> Candidate:
        return state if state.rejected else await super()._ado(state, config)


def ask_step(
    step: Step | None, inputs: _Inputs, language_from: str, objection: _Objection = _no_objection
) -> Operation[Any]:
    """Send a request to a writer or critic and return its typed answer.

    Args:
        step: prompt, model and answer schema.
        inputs: content of the JSON block.
        language_from: text whose language selects the prompt.
        objection: returns the problem with a valid answer, or None; an answer with a problem is requested again.

    Raises:
        TypeError: if `step` is None.
    """
    if step is None:
        raise TypeError("a candidate step without a model cannot ask a question")
    answer = yield step.ask(step.build_question(inputs, None, language_from=language_from, objection=objection))
    return answer


def prompt_step(prompt: str, judge: JudgeLike, own_prompt: Prompt | None = None) -> Step:
    """Build the step for a packaged prompt.

    Args:
        prompt: name of the packaged prompt; also names the step and selects the answer schema.
        judge: writer or critic to call.
        own_prompt: prompt of the user that replaces the text of the packaged one.
    """
    return Step(own_prompt or prompt, judge, ANSWER_SCHEMAS[prompt], name=prompt)


def numbered_passages(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Return passages in the form that prompts show them: a mapping of number (from 1) and text for each."""
    return [{"passage": number, "text": passage.text} for number, passage in enumerate(passages, 1)]


def drawn_text(candidate: Candidate) -> str:
    """Return the text of the drawn passage, whose language selects the prompts."""
    return candidate.passages[0].text


def question_objection(answer: Any) -> str | None:
    """Return the problem with a question that the model wrote, or None if there is none."""
    return None if answer.question.strip() else "the question is blank"
