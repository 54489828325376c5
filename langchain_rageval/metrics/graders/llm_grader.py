"""LLM grader: a judge grades each chunk by how far it answers the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.grade_relevance import grade_relevance
from langchain_rageval.steps.step import Step


class LlmGrader(Grader):
    """Whole grades on a scale, with the judge's reasons. Make one with `llm_grader(...)`."""

    step: Step
    highest: float

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked."""
        return self.step.judges

    def with_fresh_capabilities(self) -> Self:
        """The same grader with a forgetful judge."""
        return self.model_copy(update={"step": self.step.with_fresh_capabilities()})

    @property
    def instrument(self) -> Mapping[str, Any]:
        """That of the step that asks."""
        return self.step.instrument

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Ask the judge."""
        state = yield from self.step.work({"sample": sample})
        grades: list[Finding] = state["grades"]
        return grades

    def gave(self, finding: Finding) -> bool:
        """Whether it is a whole number on the scale."""
        return finding.verdict.lstrip("-").isdecimal() and self.lowest <= int(finding.verdict) <= self.highest


def llm_grader(judge: JudgeLike, scale: tuple[int, int] = (0, 4), pointwise: bool = False) -> Grader:
    """Have a judge grade each chunk; no labels are needed.

    The judge sees the chunks in an order that has nothing to do with the retriever's (that of a hash of their content),
    and grades each by itself, so that several may get the same grade.

    Args:
        judge: asked once per sample, about all chunks; not at all when they hold no words. With `draws`, or as a jury,
            the median of the grades holds.
        scale: the lowest and the highest grade, whole numbers. The lowest gains nothing, whatever its number; a chunk
            counts as relevant from the one above it on.
        pointwise: ask about one chunk at a time: a call for each, and no chunk's grade depends on another's.

    Returns:
        A grader reading `question` and `contexts`. It knows of no chunk that was not retrieved.

    Raises:
        ConfigError: if `scale` is none.
    """
    if not (isinstance(scale, Sequence) and len(scale) == 2 and all(type(grade) is int for grade in scale)):
        raise ConfigError(
            f"scale takes the lowest and the highest grade, two whole numbers such as (0, 4), got {scale!r}"
        )
    lowest, highest = scale
    if lowest >= highest:
        raise ConfigError(f"scale takes the lowest grade before the highest, such as (0, 4), got {scale!r}")
    if not isinstance(pointwise, bool):
        raise ConfigError(f"pointwise is True or False, got {pointwise!r}")
    step = grade_relevance(judge, scale=(lowest, highest), pointwise=pointwise)
    return LlmGrader(
        name=step.get_name(), step=step, lowest=float(lowest), threshold=lowest + 1.0, highest=float(highest)
    )
