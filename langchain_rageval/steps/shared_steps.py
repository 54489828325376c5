"""SharedSteps: stages that run once for each sample of a run, whatever the number of metrics that use their results."""

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
from langchain_rageval.steps.stage import Stage, State, can_be_rejudged

_Outcome = tuple[State, JudgeOutputError | None]


class SharedSteps(Stage[State]):
    """Sequence of stages that runs once per sample of a run; later metrics reuse the results for the same sample.

    A `JudgeOutputError` is shared too: an unreadable judge is not asked again for the next metric.

    Args:
        stages: stages that read `sample` and the results of earlier stages, nothing else.
        name: name of the step in traces.
        key: distinguishes these stages from others of the same name. Metrics with equal keys share the results.
    """

    stages: tuple[Stage[State], ...]
    key: Hashable

    def __init__(self, stages: Sequence[Stage[State]], *, name: str, key: Hashable) -> None:
        fields: dict[str, Any] = {"stages": tuple(stages), "key": key, "name": name}
        super().__init__(**fields)

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges that the stages ask, in order of the stages."""
        return [judge for stage in self.stages for judge in stage.judges]

    @property
    def models(self) -> Sequence[Any]:
        """Models that the stages call."""
        return [model for stage in self.stages for model in stage.models]

    @property
    def shows_question(self) -> bool:
        """True if one of the stages shows the question to a judge."""
        return any(stage.shows_question for stage in self.stages)

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of the stages that affects their results: the `instrument` of each stage."""
        return {"stages": [stage.description for stage in self.stages]}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy of the steps whose judges start without knowledge of what their endpoint supports."""
        return self.model_copy(update={"stages": tuple(stage.with_fresh_capabilities() for stage in self.stages)})

    @property
    def is_replaceable(self) -> bool:
        """True if the judges of all stages can be replaced."""
        return can_be_rejudged(self.stages)

    def judged_by(self, judge: Judge) -> SharedSteps:
        """Return a copy whose stages ask another judge; it shares results only with copies for the same judge."""
        stages = tuple(stage.judged_by(judge) for stage in self.stages)
        return self.model_copy(update={"stages": stages, "key": (self.key, id(judge))})

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the stages in sequence."""
        sequence: Runnable[State, State] = reduce(or_, self.stages)
        return sequence.get_graph(config)

    def work(self, state: State) -> Operation[State]:
        """Run the `work` of all stages in sequence, without reusing results of other metrics."""
        for stage in self.stages:
            state = yield from stage.work(state)
        return state

    def _do(self, state: State, config: RunnableConfig) -> State:
        def run_stages() -> _Outcome:
            results: State = {"sample": state["sample"]}
            try:
                for stage in self.stages:
                    results = stage.invoke(results, config)
            except JudgeOutputError as error:
                return results, error
            return results, None

        return _merge(state, Run.of(config).single_flight.do(self._share_key(state, config), run_stages))

    async def _ado(self, state: State, config: RunnableConfig) -> State:
        async def run_stages() -> _Outcome:
            results: State = {"sample": state["sample"]}
            try:
                for stage in self.stages:
                    results = await stage.ainvoke(results, config)
            except JudgeOutputError as error:
                return results, error
            return results, None

        return _merge(state, await Run.of(config).single_flight.ado(self._share_key(state, config), run_stages))

    def _share_key(self, state: State, config: RunnableConfig) -> Hashable:
        """Return the key under which the results of the stages for a sample are shared between metrics.

        The id of the sample is safe as a key: the stored result keeps the sample alive, so the id is not reused.
        """
        return "once", self.name, self.key, id(state["sample"]), configurable_choices(config)


def _merge(state: State, outcome: _Outcome) -> State:
    results, error = outcome
    if error:
        raise error
    return state | results
