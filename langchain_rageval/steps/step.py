"""Step: a Runnable that asks the judge one question and adds the typed answer to the state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, InstanceOf

from langchain_rageval.contexts import NumberedContexts
from langchain_rageval.errors import blame
from langchain_rageval.judge.asking import Attempts, Question, ask, shared
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.prompts.layout import Request
from langchain_rageval.prompts.promptset import Prompt, packaged_fingerprint
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced
from langchain_rageval.run.work import Work, adrive, drive

State = dict[str, Any]
"""What the steps of a metric pass on: `sample`, and the answers so far by name."""


class Step(Traced[State, State]):
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
        ConfigError: if there is no prompt of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    prompt: str | Prompt
    judge: InstanceOf[Judge]
    answer: type[BaseModel]

    def __init__(
        self, prompt: str | Prompt, judge: JudgeLike, answer: type[BaseModel], *, name: str | None = None, **more: Any
    ) -> None:
        name = name or (prompt if isinstance(prompt, str) else answer.__name__)
        judge = Judge.of(judge)
        if isinstance(prompt, str):
            judge.prompt_set("").get(prompt)
        super().__init__(prompt=prompt, judge=judge, answer=answer, name=name, **more)

    def __repr__(self) -> str:
        """Name and judge, without secrets."""
        return f"{self.get_name()}({self.judge!r})"

    __str__ = __repr__

    def work(self, state: State) -> Work[State]:
        """What the step does, without I/O."""
        inputs = {name: value for name, value in state.items() if name != "contexts"}
        contexts = NumberedContexts.of(state["contexts"]) if "contexts" in state else None
        question = self.question(inputs, contexts, language_from=str(state.get("question", "")))
        answer = yield shared(self.judge, question, 0, ask(self.judge, question, Attempts(self.judge.attempts)))
        return state | {self.get_name(): answer}

    def question(
        self, inputs: Mapping[str, Any], contexts: NumberedContexts | None, *, language_from: str
    ) -> Question[Any]:
        """The question about some inputs, with the prompt in the language of a text."""
        prompts = self.judge.prompt_set(language_from)
        prompt = prompts.get(self.prompt) if isinstance(self.prompt, str) else self.prompt
        parser, schema = _reader(self.answer)
        return Question(Request(self.get_name(), prompts, prompt, inputs, contexts, schema), parser)

    @property
    def instrument(self) -> dict[str, Any]:
        """All that could change the answer except what is asked about."""
        own = self.prompt if isinstance(self.prompt, Prompt) else None
        packaged = packaged_fingerprint(None if own else str(self.prompt))
        return {
            "step": self.get_name(),
            "judge": self.judge.instrument,
            "prompts": self.judge.prompts.fingerprint if self.judge.prompts else packaged,
            "own_prompt": own and own.model_dump(),
            "schema": strict_schema(self.answer),
        }

    def _do(self, state: State, config: RunnableConfig) -> State:
        try:
            return drive(self.work(state), Run.of(config), config)
        except Exception as error:
            blame(error, self.get_name())
            raise

    async def _ado(self, state: State, config: RunnableConfig) -> State:
        try:
            return await adrive(self.work(state), Run.of(config), config)
        except Exception as error:
            blame(error, self.get_name())
            raise


@lru_cache(maxsize=256)
def _reader(answer: type[BaseModel]) -> tuple[StrictJsonOutputParser[Any], Mapping[str, Any]]:
    """Parser and schema of an answer; pydantic takes a millisecond to describe a class."""
    return StrictJsonOutputParser(answer), strict_schema(answer)
