"""Grader: a stage that grades each retrieved chunk by relevance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.stage import Stage, State


class Grader(Stage[State]):
    """Base class of graders: adds `grades` to the state, a finding of the kind "context" for each retrieved chunk.

    Findings are in retrieval order; the verdict is the grade, higher for a more relevant chunk. Other findings, such as
    the agreement of votes, follow. For your own grader, subclass this and define `instrument` and `grade`, a generator
    that yields its requests and returns the findings.
    """

    reads: frozenset[str] = frozenset({"question", "contexts"})
    """Fields that a sample must have."""

    lowest: float = 0.0
    """Grade of a chunk that is not relevant at all; its gain is 0."""

    threshold: float | None = 1.0
    """Lowest grade of a relevant chunk, for metrics of binary relevance; None if the grades do not define one."""

    grade_range: tuple[float, float] = (-inf, inf)
    """Lowest and highest possible grade; infinite if there is none."""

    meaning: str = ""
    """Description of the grades, used as the reason of each finding; "" if the findings hold a judge's reasons."""

    @abstractmethod
    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Return a finding with the grade of each chunk; yield a request for each model call that is needed."""

    def judged_grades(self, sample: Sample) -> list[float] | None:
        """Return the grades of all judged documents, retrieved or not; None if those not retrieved are unknown."""
        return None

    def known_grades(
        self, sample: Sample, order: Sequence[Finding], threshold: float
    ) -> tuple[list[float], list[float]]:
        """Return two lists of grades, for measures that compare the chunks with all relevant ones.

        Args:
            sample: the sample.
            order: findings of the chunks, in the order of the list.
            threshold: lowest grade of a relevant chunk.

        Returns:
            The grades of the chunks in that order, and those of all judged chunks, in any order.
        """
        grades, judged = [float(finding.verdict) for finding in order], self.judged_grades(sample)
        return grades, grades if judged is None else judged

    def could_have_made(self, finding: Finding) -> bool:
        """Return True if a stored finding may be the result of this grader."""
        return not self.meaning or finding.reason == self.meaning

    def work(self, state: State) -> Operation[State]:
        """Grade the retrieved chunks of the sample and add `grades` to the state."""
        grades = yield from self.grade(state["sample"])
        return state | {"grades": list(grades)}


def grade_findings(texts: Sequence[str], grades: Sequence[float], meaning: str) -> list[Finding]:
    """Return the findings of chunks in retrieval order; `meaning` is their reason."""
    return [
        Finding(kind="context", number=number, text=text, verdict=format_grade(grade), reason=meaning)
        for number, (text, grade) in enumerate(zip(texts, grades, strict=True), 1)
    ]


def format_grade(grade: float) -> str:
    """Return a grade as text: unrounded, and without a decimal point if it is whole."""
    return str(int(grade)) if float(grade).is_integer() else repr(float(grade))
