"""Step: a Runnable that asks the judge one question and adds the typed answer to the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, InstanceOf, ValidationError

from langchain_rageval._internal.cached import locked_cache
from langchain_rageval.errors import config_error_of
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.jury import with_fresh_endpoint
from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.judge.voting import Voter
from langchain_rageval.prompts.layout import RequestContent
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.prompts.promptset import Prompt, packaged_fingerprint
from langchain_rageval.run.requests import Operation, Shared
from langchain_rageval.steps.stage import Stage, State

__all__ = ["Stage", "State", "Step", "slices"]


class Step(Stage[State]):
    """Asks one question and adds its typed answer to the state.

    As it is, a step sends its whole input: `contexts` as the numbered block, the rest as the JSON object, and adds the
    answer under its own name. The metrics' steps are subclasses that choose what they send in `work`, a generator
    without I/O that both `invoke` and `ainvoke` run.

    Args:
        prompt: name of a step with a prompt in the package, or a prompt of your own.
        judge: who is asked.
        answer: pydantic class of the answer; its name is the schema's title.
        name: of the step in traces and errors; by default the prompt's, or the answer's class name.

    Raises:
        ConfigError: if there is no prompt of that name, or `answer` is no pydantic class.
    """

    prompt: str | Prompt
    judge: InstanceOf[Judge]
    answer: type[BaseModel]

    def __init__(
        self, prompt: str | Prompt, judge: JudgeLike, answer: type[BaseModel], *, name: str | None = None, **more: Any
    ) -> None:
        name = name or (prompt if isinstance(prompt, str) else getattr(answer, "__name__", "step"))
        judge = Judge.of(judge)
        if isinstance(prompt, str):
            for member in judge.members:
                member.prompt_set("").get(prompt)
        given: dict[str, Any] = {"prompt": prompt, "judge": judge, "answer": answer, "name": name}
        try:
            super().__init__(**given, **more)
        except ValidationError as error:
            raise config_error_of(f"step {name!r}", error) from None

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked."""
        return self.judge.members

    def with_fresh_capabilities(self) -> Self:
        """The same step with a forgetful judge."""
        return self.model_copy(update={"judge": with_fresh_endpoint(self.judge)})

    def work(self, state: State) -> Operation[State]:
        """What the step does, without I/O."""
        inputs = {name: value for name, value in state.items() if name != "contexts"}
        contexts = NumberedContexts.of(state["contexts"]) if "contexts" in state else None
        question = self.question(inputs, contexts, language_from=str(state.get("question", "")))
        answer = yield self.asked(question)
        return state | {self.get_name(): answer}

    def question(
        self,
        inputs: Mapping[str, Any],
        contexts: NumberedContexts | None,
        *,
        language_from: str,
        judge: Judge | None = None,
        objection: Callable[[Any], str | None] = lambda _answer: None,
    ) -> JudgeQuestion[Any]:
        """The question about some inputs.

        Args:
            inputs: what the JSON object holds.
            contexts: the numbered block, if there is one.
            language_from: text in whose language the prompt is.
            judge: who will be asked; by default the one who is asked for all but verdicts.
            objection: what is wrong with an answer of the right form, if something is; it is then asked again.
        """
        prompts = (judge or self.judge.members[0]).prompt_set(language_from)
        prompt = prompts.get(self.prompt) if isinstance(self.prompt, str) else self.prompt
        parser, schema = _reader(self.answer)
        return JudgeQuestion(
            RequestContent(self.get_name(), prompts, prompt, inputs, contexts, schema), parser, objection
        )

    def asked(self, question: JudgeQuestion[Any], voter: Voter | None = None) -> Shared:
        """The need whose reply is the answer, asked for once by all who share a run."""
        judge, draw = (voter.judge, voter.draw) if voter else (self.judge.members[0], 0)
        return shared_question(judge, question, draw, ask_judge(judge, question, Attempts(judge.attempts), draw))

    @property
    def instrument(self) -> dict[str, Any]:
        """All that could change the answer except what is asked about."""
        own = self.prompt if isinstance(self.prompt, Prompt) else None
        packaged = packaged_fingerprint(None if own else str(self.prompt))
        prompts = [judge.prompts.fingerprint if judge.prompts else packaged for judge in self.judges]
        return {
            "step": self.get_name(),
            "judge": self.judge.instrument,
            "prompts": prompts,
            "own_prompt": own and own.model_dump(),
            "schema": _reader(self.answer)[1],
        }


def slices(items: Mapping[int, str], size: int) -> list[dict[int, str]]:
    """Numbered items in parts of at most `size`, in order."""
    numbers = list(items)
    return [{number: items[number] for number in numbers[at : at + size]} for at in range(0, len(numbers), size)]


@locked_cache
def _reader(answer: type[BaseModel]) -> tuple[StrictJsonOutputParser[Any], Mapping[str, Any]]:
    """Parser and schema of an answer; pydantic takes a millisecond to describe a class."""
    return StrictJsonOutputParser(answer), strict_schema(answer)
