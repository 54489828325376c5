"""Grader: a stage that grades each retrieved chunk, and knows what its grades mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage, State


class Grader(Stage[State]):
    """Adds `grades`, a list of Finding: for each chunk in retrieval order one of the kind "context".

    Its verdict is the grade, higher for the more relevant; what else was found comes after. For a grader of your own,
    subclass this and give `grade`, a generator that yields what it needs and returns the findings, and `instrument`.
    """

    reads: frozenset[str] = frozenset({"question", "contexts"})
    """Fields of the sample that must be there."""

    lowest: float = 0.0
    """Grade of a chunk that is not relevant at all; it gains nothing."""

    threshold: float | None = 1.0
    """Grade from which a chunk counts as relevant, where a metric knows only relevant and not; None where no grade
    tells."""

    means: str = ""
    """What the grades are, as the findings tell it; "" when the findings give a judge's reasons."""

    @abstractmethod
    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """The findings, without I/O."""

    def known(self, sample: Sample) -> list[float] | None:
        """Grades of every document that was judged, retrieved or not; None when only the retrieved ones are known."""
        return None

    def gave(self, finding: Finding) -> bool:
        """Whether a finding may be this grader's."""
        return not self.means or finding.reason == self.means

    def work(self, state: State) -> Operation[State]:
        """Grade the sample's chunks."""
        grades = yield from self.grade(state["sample"])
        return state | {"grades": list(grades)}


def graded(texts: Sequence[str], grades: Sequence[float], means: str) -> list[Finding]:
    """The findings of chunks in retrieval order."""
    return [
        Finding(kind="context", number=number, text=text, verdict=told(grade), reason=means)
        for number, (text, grade) in enumerate(zip(texts, grades, strict=True), 1)
    ]


def told(grade: float) -> str:
    """A grade as a finding holds it: exactly, and a whole number without a point."""
    return str(int(grade)) if float(grade).is_integer() else repr(float(grade))
