"""Stage: a Runnable from a state to a state of the same kind, whose work is a generator without I/O."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict

from langchain_rageval.errors import record_step
from langchain_rageval.judge.judge import Judge
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced

State = dict[str, Any]
"""What the stages of a metric pass on: `sample`, and the answers so far by name."""


S = TypeVar("S")


class Stage(Traced[S, S]):
    """Adds something to the state; `invoke` and `ainvoke` run the same work."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def __repr__(self) -> str:
        """Name and judges, without secrets."""
        return f"{self.get_name()}({', '.join(map(repr, self.judges))})"

    __str__ = __repr__

    @abstractmethod
    def work(self, state: S) -> Operation[S]:
        """What the stage does, without I/O."""

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked."""
        return ()

    @property
    def models(self) -> Sequence[Any]:
        """The models behind it: of the judges, embeddings, a cross-encoder."""
        return [judge.model for judge in self.judges]

    def with_fresh_capabilities(self) -> Self:
        """The same stage, asking judges that have found out nothing and tell nobody what they find out."""
        return self

    @property
    @abstractmethod
    def instrument(self) -> Mapping[str, Any]:
        """All that could change what it adds, except the state."""

    def _do(self, state: S, config: RunnableConfig) -> S:
        try:
            return drive(self.work(state), Run.of(config), config)
        except Exception as error:
            record_step(error, self.get_name())
            raise

    async def _ado(self, state: S, config: RunnableConfig) -> S:
        try:
            return await adrive(self.work(state), Run.of(config), config)
        except Exception as error:
            record_step(error, self.get_name())
            raise
