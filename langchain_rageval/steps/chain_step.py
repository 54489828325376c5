"""ChainStep: a Runnable that invokes a chain of the user and adds its output to the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable

from langchain_rageval._internal.description import describe
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.models.offline_judge import OfflineJudge, invention_note
from langchain_rageval.run.requests import Invoke, Operation, Shared
from langchain_rageval.steps.stage import Stage, State


class ChainStep(Stage[State]):
    """Stage that invokes a chain of the user. Built by `Step.from_chain`.

    Metrics of one sample that use the same step invoke its chain once.
    """

    chain: Runnable[Any, Any]
    inputs: Callable[[Sample], Any]
    result_name: str

    def work(self, state: State) -> Operation[State]:
        """Invoke the chain once."""
        sample: Sample = state["sample"]
        key = ("chain", id(self.chain), id(self.inputs), id(sample))
        _, output = yield Shared(key, self._invoke(sample))
        return state | {self.result_name: output}

    def _invoke(self, sample: Sample) -> Operation[tuple[Sample, Any]]:
        """Return the output, with the sample, so that the sample's id is not reused while the result is shared."""
        try:
            output = yield Invoke(self.chain, self.inputs(sample))
        except OutputParserException as error:
            raise JudgeOutputError(str(error), self.get_name(), str(error.llm_output or "")) from error
        return sample, output

    @property
    def models(self) -> Sequence[Any]:
        """Models in the chain, as far as its graph shows them."""
        return list(models_in(self.chain))

    @property
    def report_notes(self) -> Sequence[str]:
        """A note if an OfflineJudge invents the output of the chain."""
        invented = any(isinstance(model, OfflineJudge) for model in self.models)
        return [invention_note(self.get_name())] if invented else []

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration that affects the output: the chain with its prompts, models and parsers, and the inputs."""
        return {"step": self.get_name(), "chain": describe(self.chain), "inputs": describe(self.inputs)}


def models_in(runnable: Runnable[Any, Any]) -> Iterator[BaseLanguageModel[Any]]:
    """Yield the language models in a Runnable, as far as its graph shows them."""
    for inner in inner_models(runnable):
        if isinstance(inner, BaseLanguageModel):
            yield inner
            continue
        try:
            parts = [node.data for node in inner.get_graph().nodes.values()]
        except Exception:  # of a schema that cannot be generated
            continue
        for part in parts:
            if isinstance(part, Runnable) and part is not inner:
                yield from models_in(part)
