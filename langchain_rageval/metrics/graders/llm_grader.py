"""LLM grader: a judge's grade of how far each chunk answers the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.grade_relevance import grade_relevance
from langchain_rageval.steps.judge_step import JudgeStep


class LlmGrader(Grader):
    """Grader by a judge, with whole grades on a scale and reasons. Build one with `llm_grader(...)`."""

    step: JudgeStep
    highest: float

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges that grade the chunks."""
        return self.step.judges

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judge does not share endpoint capabilities with the judge of this grader."""
        return self.model_copy(update={"step": self.step.with_fresh_capabilities()})

    @property
    def is_replaceable(self) -> bool:
        """True: another judge can be asked."""
        return True

    def judged_by(self, judge: Judge) -> LlmGrader:
        """Return a copy of the grader with another judge."""
        return self.model_copy(update={"step": self.step.judged_by(judge)})

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: judge, prompts, schema, scale and `pointwise`."""
        return self.step.description

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Ask the judge for the relevance grades of the chunks."""
        state = yield from self.step.work({"sample": sample})
        grades: list[Finding] = state["grades"]
        return grades

    def could_have_made(self, finding: Finding) -> bool:
        """Return True if the verdict of a finding is a whole number on the scale."""
        return finding.verdict.lstrip("-").isdecimal() and self.lowest <= int(finding.verdict) <= self.highest


def llm_grader(judge: JudgeLike, scale: tuple[int, int] = (0, 4), pointwise: bool = False) -> Grader:
    """Grade each chunk by a judge; no labels are needed.

    The judge reads the chunks in the order of a hash of their content, independent of the retriever's order, and grades
    each on an absolute scale, so that several may get the same grade.

    Args:
        judge: called once per sample, for all chunks; not called if they are blank. With `draws`, or as a jury, the
            median grade counts.
        scale: lowest and highest grade, whole numbers. The lowest has no gain, whatever its number; a chunk is relevant
            from the next grade on.
        pointwise: True to grade each chunk in a separate call, so that its grade does not depend on the others.

    Returns:
        A grader that reads `question` and `contexts`. Chunks that were not retrieved are unknown to it.

    Raises:
        ConfigError: if `scale` or `pointwise` is invalid.
    """
    if not (isinstance(scale, Sequence) and len(scale) == 2 and all(type(grade) is int for grade in scale)):
        raise ConfigError(
            f"scale must be the lowest and the highest grade, two whole numbers such as (0, 4), got {scale!r}"
        )
    lowest, highest = scale
    if lowest >= highest:
        raise ConfigError(f"scale must give the lowest grade before the highest, such as (0, 4), got {scale!r}")
    if not isinstance(pointwise, bool):
        raise ConfigError(f"pointwise is True or False, got {pointwise!r}")
    step = grade_relevance(judge, scale=(lowest, highest), pointwise=pointwise)
    return LlmGrader(
        name=step.get_name(),
        step=step,
        lowest=float(lowest),
        threshold=lowest + 1.0,
        highest=float(highest),
        grade_range=(lowest, highest),
    )
