"""Once: stages that are gone through once for each sample of a run, however many metrics need what they add."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Self

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.graph import Graph

from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.run.drivers import configurable_choices
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.run import Run
from langchain_rageval.steps.stage import Stage, State

Outcome = tuple[State, JudgeOutputError | None]


class SharedSteps(Stage[State]):
    """Adds what its stages add, one after the other. Whoever comes later to the same sample takes it over as it is.

    A judge that could not be understood is not asked again for the next metric: its error is taken over as well.

    Args:
        stages: Runnables that read `sample` and what the stages before them add, nothing else.
        name: of the step in traces, and what they add.
        key: what sets these stages apart from others of that name in the run. Metrics of one key are kin.
    """

    stages: tuple[Stage[State], ...]
    key: Hashable

    def __init__(self, stages: Sequence[Stage[State]], *, name: str, key: Hashable) -> None:
        given: dict[str, Any] = {"stages": tuple(stages), "key": key, "name": name}
        super().__init__(**given)

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked, stage by stage."""
        return [judge for stage in self.stages for judge in stage.judges]

    @property
    def models(self) -> Sequence[Any]:
        """The models behind the stages."""
        return [model for stage in self.stages for model in stage.models]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """That of each stage."""
        return {"stages": [stage.instrument for stage in self.stages]}

    def with_fresh_capabilities(self) -> Self:
        """The same stages with forgetful judges."""
        return self.model_copy(update={"stages": tuple(stage.with_fresh_capabilities() for stage in self.stages)})

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The stages one after the other."""
        sequence: Runnable[State, State] = reduce(or_, self.stages)
        return sequence.get_graph(config)

    def work(self, state: State) -> Operation[State]:
        """The work of all stages."""
        for stage in self.stages:
            state = yield from stage.work(state)
        return state

    def _do(self, state: State, config: RunnableConfig) -> State:
        def gone_through() -> Outcome:
            given: State = {"sample": state["sample"]}
            try:
                for stage in self.stages:
                    given = stage.invoke(given, config)
            except JudgeOutputError as error:
                return given, error
            return given, None

        return _joined(state, Run.of(config).single_flight.do(self._place(state, config), gone_through))

    async def _ado(self, state: State, config: RunnableConfig) -> State:
        async def gone_through() -> Outcome:
            given: State = {"sample": state["sample"]}
            try:
                for stage in self.stages:
                    given = await stage.ainvoke(given, config)
            except JudgeOutputError as error:
                return given, error
            return given, None

        return _joined(state, await Run.of(config).single_flight.ado(self._place(state, config), gone_through))

    def _place(self, state: State, config: RunnableConfig) -> Hashable:
        """Of these stages for this sample. The outcome holds the sample, so its id is not given out again."""
        return "once", self.name, self.key, id(state["sample"]), configurable_choices(config)


def _joined(state: State, outcome: Outcome) -> State:
    added, error = outcome
    if error:
        raise error
    return state | added
