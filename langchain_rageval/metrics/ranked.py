"""What the metrics of a ranked list share: the grades of the retrieved chunks, measured at a cutoff."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, nextafter
from typing import Any, Literal, get_args

from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.graders.grader import Grader, told
from langchain_rageval.metrics.graders.id_grader import id_grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value, nothing_retrieved
from langchain_rageval.statistics.ranking import Gain, ndcg
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

Basis = Literal["ideal", "relevant", "threshold", "none"]
"""What the reason tells of: the ideal order, all relevant chunks, from which grade on they are, or nothing."""

NONE_KNOWN = "no chunk is known to be relevant"
"""Why a sample whose labels or ids are there and empty is unscored: no retriever could do well."""

BEST, MEAN = "best grade", "mean grade"
"""Texts of the findings that tell of the first k chunks."""


@dataclass(frozen=True)
class Ranked:
    """A ranked list under its grades.

    Attributes:
        grades: of the chunks in their order, as the grader gives them.
        judged: of every chunk that was judged, in any order.
        complete: whether `judged` holds all there are to judge, not only what was retrieved.
        lowest: grade of a chunk that is not relevant at all.
        threshold: grade from which a chunk is relevant.
        k: cutoff.
    """

    grades: Sequence[float]
    judged: Sequence[float]
    complete: bool
    lowest: float
    threshold: float
    k: int

    @property
    def first(self) -> Sequence[float]:
        """The grades that count."""
        return self.grades[: self.k]

    @property
    def relevant(self) -> int:
        """Number of relevant chunks that are known."""
        return sum(grade >= self.threshold for grade in self.judged)

    @property
    def barren(self) -> bool:
        """Whether nothing in the first k is relevant."""
        return all(grade < self.threshold for grade in self.first)


Measure = Callable[[Ranked], float]


def at_cutoff(
    kind: str,
    k: int,
    grader: Grader | None,
    measure: Measure,
    *,
    basis: Basis,
    threshold: float | None = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Metric:
    """A metric of the retrieved list.

    Args:
        kind: what the measure is called, before "@k".
        k: cutoff in chunks.
        grader: None for `id_grader()`.
        measure: from the graded list to the number.
        basis: what the reason tells of.
        threshold: grade from which a chunk is relevant; None for the grader's. Only where `basis` asks for it.
        name: key of the score; by default as in "ndcg@5".
        options: what else could change the number.

    Raises:
        ConfigError: if an option is out of range, or needed and missing.
    """
    check_cutoff(k)
    grader = checked_grader(grader)
    binary = basis in ("relevant", "threshold")
    least = _threshold(kind, grader, threshold) if binary else anything(grader)
    return Metric(
        name or f"{kind}@{k}",
        aspect="ranking",
        reads=grader.reads,
        steps=grader,
        reduce=partial(measured, grader=grader, measure=measure, k=k, threshold=least, basis=basis),
        options={"measure": kind, "k": k, "threshold": least, **(options or {})},
        state_from_findings=partial(restored, grader=grader),
    )


def measured(state: State, *, grader: Grader, measure: Measure, k: int, threshold: float, basis: Basis) -> Value:
    """The measure of the chunks in retrieval order."""
    sample: Sample = state["sample"]
    findings: list[Finding] = state["grades"]
    if grader.known(sample) == []:
        return Value.without(NONE_KNOWN, findings)
    ranked = ranked_list(sample, graded_chunks(findings), grader, k, threshold)
    if not ranked.grades:
        return nothing_retrieved(sample.question)
    return Value(measure(ranked), told_of(ranked, basis, sample.question), [*findings, *best_and_mean(ranked)])


def gained(ranked: Ranked, *, gain: Gain) -> float:
    """NDCG of the first k."""
    over, judged = ([grade - ranked.lowest for grade in grades] for grades in (ranked.grades, ranked.judged))
    return ndcg(over, judged, ranked.k, gain)


def ranked_list(sample: Sample, order: Sequence[Finding], grader: Grader, k: int, threshold: float) -> Ranked:
    """The list that some graded chunks make, beside all that the grader knows to be judged."""
    grades = [float(finding.verdict) for finding in order]
    known = grader.known(sample)
    return Ranked(grades, grades if known is None else known, known is not None, grader.lowest, threshold, k)


def graded_chunks(findings: Sequence[Finding]) -> list[Finding]:
    """Those that hold the grade of a chunk."""
    return [finding for finding in findings if finding.kind == "context"]


def best_and_mean(ranked: Ranked) -> list[Finding]:
    """Findings of the best and the mean grade among the first k; the best of none is the lowest."""
    first = ranked.first or [ranked.lowest]
    numbers = {BEST: max(first), MEAN: sum(first) / len(first)}
    return [
        Finding(kind="criterion", number=number, text=text, verdict=told(grade))
        for number, (text, grade) in enumerate(numbers.items(), 1)
    ]


def restored(sample: Sample, score: Score, *, grader: Grader) -> State | None:
    """The state from the findings of a score, if the grader may have made them."""
    findings = restored_grades(sample, score, grader)
    if findings is None or [f.number for f in graded_chunks(findings)] != list(range(1, _retrieved(sample) + 1)):
        return None
    return {"sample": sample, "grades": findings}


def restored_grades(sample: Sample, score: Score, grader: Grader) -> list[Finding] | None:
    """What the grader found, in the order of the score's findings; None when it did not find it."""
    findings = [finding for finding in score.findings if finding.kind != "criterion"]
    chunks = graded_chunks(findings)
    if any(finding.kind not in ("context", "agreement") for finding in findings) or len(chunks) != _retrieved(sample):
        return None
    return findings if all(_is_grade(chunk.verdict) and grader.gave(chunk) for chunk in chunks) else None


def anything(grader: Grader) -> float:
    """The threshold that every grade reaches which gains anything."""
    return nextafter(grader.lowest, inf)


def check_cutoff(k: int) -> None:
    """Raise ConfigError if k is none."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ConfigError(f"k takes a whole number from 1 on, the cutoff in chunks, got {k!r}")


def check_gain(gain: Gain) -> None:
    """Raise ConfigError if the gain is neither."""
    if gain not in get_args(Gain):
        raise ConfigError(f'gain is "exp2" or "linear", got {gain!r}')


def checked_grader(grader: Grader | None) -> Grader:
    """The grader; `id_grader()` when none is given.

    Raises:
        ConfigError: if it is none.
    """
    if grader is None:
        return id_grader()
    if not isinstance(grader, Grader):
        raise ConfigError(
            "grader is one of llm_grader(judge), cross_encoder_grader(ce), embedding_grader(embeddings), "
            f"label_grader() and id_grader(), got {type(grader).__name__}"
        )
    return grader


def told_of(ranked: Ranked, basis: Basis, question: str) -> str:
    """The reason: best and mean grade, and what the number is relative to."""
    russian = detect_language(question) == "ru"
    mean = sum(ranked.first) / len(ranked.first)
    grades = f"{max(ranked.first):.3g}", f"{mean:.3g}", len(ranked.first), len(ranked.grades)
    if ranked.barren:
        if russian:
            return "Ничего подходящего не найдено: лучшая оценка {}, средняя {} (первые {} из {}).".format(*grades)
        return "Nothing relevant was retrieved: best grade {}, mean {} (first {} of {}).".format(*grades)
    if russian:
        best = "Лучшая оценка {}, средняя {}; в счёт идут первые {} из {}".format(*grades)
    else:
        best = "Best grade {}, mean {}; the first {} of {} chunks count".format(*grades)
    relative = _basis_ru(ranked, basis) if russian else _basis(ranked, basis)
    return f"{best}; {relative}." if relative else f"{best}."


def _basis(ranked: Ranked, basis: Basis) -> str:
    match basis:
        case "ideal" if ranked.complete:
            return f"the ideal is over all {len(ranked.judged)} judged chunks"
        case "ideal":
            return "the ideal is over the retrieved chunks only"
        case "relevant" if ranked.complete:
            return f"{ranked.relevant} relevant chunks are known, from grade {ranked.threshold:g} on"
        case "relevant":
            return f"of {ranked.relevant} relevant chunks that were retrieved, from grade {ranked.threshold:g} on"
        case "threshold":
            return f"relevant from grade {ranked.threshold:g} on"
    return ""


def _basis_ru(ranked: Ranked, basis: Basis) -> str:
    match basis:
        case "ideal" if ranked.complete:
            return f"идеал — по всем оценённым фрагментам ({len(ranked.judged)})"
        case "ideal":
            return "идеал — только по найденным фрагментам"
        case "relevant" if ranked.complete:
            return f"известно подходящих фрагментов: {ranked.relevant}, с оценки {ranked.threshold:g}"
        case "relevant":
            return f"относительно подходящих среди найденных ({ranked.relevant}), с оценки {ranked.threshold:g}"
        case "threshold":
            return f"подходящие — с оценки {ranked.threshold:g}"
    return ""


def _threshold(kind: str, grader: Grader, threshold: float | None) -> float:
    if threshold is None and grader.threshold is None:
        raise ConfigError(
            f"{kind} needs threshold=..., the grade from which a chunk is relevant: {grader.means} does not tell"
        )
    if threshold is None:
        return float(grader.threshold or 0)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not isfinite(threshold):
        raise ConfigError(f"threshold takes the grade from which a chunk is relevant, a number, got {threshold!r}")
    if threshold <= grader.lowest:
        raise ConfigError(f"threshold {threshold!r} would make every chunk relevant: take one above {grader.lowest:g}")
    return float(threshold)


def _retrieved(sample: Sample) -> int:
    return len((sample.context_ids if sample.contexts is None else sample.contexts) or [])


def _is_grade(verdict: str) -> bool:
    try:
        return isfinite(float(verdict))
    except ValueError:
        return False
