"""Which metrics a command scores by, from the names that the user typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.metrics import ASPECTS, BUILDERS, RANKINGS, SCORES

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langchain_rageval.data.schema import Sample
    from langchain_rageval.judge.judge import Judge
    from langchain_rageval.metrics.graders.grader import Grader
    from langchain_rageval.metrics.metric import Metric
    from langchain_rageval.metrics.suite import Suite

ALL = "all"
GRADERS = ("ids", "labels", "llm", "embedding")


def names_in(given: str) -> list[str]:
    """The names in a comma-separated list, each once; `aspect_critique` stands for the built-in aspects.

    Those of ranked lists come with their cutoff, as in ndcg@5, and are not among all: they need a grader.

    Raises:
        ConfigError: if one is unknown, or there is none.
    """
    asked = [name.strip() for name in given.split(",") if name.strip()]
    known = [*(name for name in BUILDERS if name != "aspect_critique"), *ASPECTS]
    groups = {ALL: known, "aspect_critique": list(ASPECTS)}
    for name in asked:
        if _is_ranking(name):
            continue
        if (kind := name.partition("@")[0]) in RANKINGS:
            raise ConfigError(f"{name!r} takes a cutoff, a whole number from 1 on, as in {kind}@5")
        if name not in known and name not in groups:
            ranked = [f"{kind}@K" for kind in RANKINGS]
            raise ConfigError(
                f"there is no metric {name!r}; there are {', '.join([*BUILDERS, *ASPECTS, *ranked, ALL])}"
            )
    if not asked:
        raise ConfigError(f"--metrics takes names, comma-separated, or {ALL}; there are {', '.join(known)}")
    return list(dict.fromkeys(part for name in asked for part in groups.get(name, [name])))


def build(
    names: Sequence[str],
    judge: Judge,
    embeddings: Callable[[], Embeddings],
    *,
    grader: str = "ids",
    gain: str = "exp2",
) -> list[Metric]:
    """The metrics of these names.

    Args:
        names: as `names_in` gives them.
        judge: who is asked.
        embeddings: called, once, when one of them takes some.
        grader: one of GRADERS, for those of ranked lists.
        gain: of NDCG.
    """
    given: Mapping[str, Callable[[], Any]] = {
        "judge": lambda: judge,
        "embeddings": (loaded := cache(embeddings)),
        "model": loaded,
        "grader": cache(lambda: _grader(grader, judge, loaded)),
        "gain": lambda: gain,
    }
    return [metric for name in names for metric in _built(name, given).parts]


def scores_of(names: Sequence[str]) -> list[str]:
    """Names of the scores that the metrics of these names give."""
    return [score for name in names for score in SCORES.get(name, [name])]


def scorable(metrics: Sequence[Metric], samples: Sequence[Sample]) -> list[Metric]:
    """The metrics for which every sample has what they read; says on stderr which are left out.

    Raises:
        ConfigError: if there are none.
    """
    chosen = []
    left_out: dict[Any, list[str]] = {}
    for metric in metrics:
        lacking = [field for sample in samples if (field := _lacking(metric, sample))]
        if not lacking:
            chosen.append(metric)
        else:
            reason = f"{len(lacking)} of {len(samples)} samples lack {', '.join(sorted({*lacking}))}"
            left_out.setdefault((metric.kin or metric.name, reason), []).append(metric.name)
    for (_, reason), names in left_out.items():
        leave_out(", ".join(names), reason)
    if not chosen:
        raise ConfigError("no metric can score these samples; fill in answer, contexts or references")
    return chosen


def refuse_lacking(metrics: Sequence[Metric], samples: Sequence[Sample], grader: str) -> None:
    """Raise SampleError, with the mend that the command line has, when a ranked list cannot be graded."""
    for metric in metrics:
        if _is_ranking(metric.name):
            for sample in samples:
                try:
                    metric.read(sample)
                except SampleError as error:
                    others = " or ".join(f"--grader {other}" for other in GRADERS if other != grader)
                    raise SampleError(f"{error}; or say {others}", error.field) from None


def without_embeddings(names: Sequence[str]) -> list[str]:
    """The metrics that need none; says on stderr which are left out."""
    taking = [name for name in names if name in BUILDERS and _takes(name) & {"embeddings", "model"}]
    for name in taking:
        leave_out(name, "it compares by embeddings; name some with --embeddings")
    return [name for name in names if name not in taking]


def with_their_packages(names: Sequence[str]) -> list[str]:
    """The metrics whose packages are installed; says on stderr which are left out."""
    there = []
    for name in names:
        try:
            if name in BUILDERS and not _takes(name) & {"judge", "model"}:
                _builder(name)()
            there.append(name)
        except ConfigError as error:
            leave_out(name, str(error))
    return there


def leave_out(name: str, reason: str) -> None:
    """Say on stderr that a metric of all is left out."""
    sys.stderr.write(f"rageval: {name} left out: {reason}\n")


def _built(name: str, given: Mapping[str, Callable[[], Any]]) -> Metric | Suite:
    if name in ASPECTS:
        return _builder("aspect_critique")(given["judge"](), name)
    if _is_ranking(name):
        kind, _, cutoff = name.partition("@")
        builder = getattr(import_module(RANKINGS[kind]), f"{kind}_at")
        options = {"grader", "gain"} & {*signature(builder).parameters}
        metric: Metric = builder(int(cutoff), name=name, **{option: given[option]() for option in options})
        return metric
    return _builder(name)(**{option: given[option]() for option in given.keys() & _takes(name)})


def _is_ranking(name: str) -> bool:
    kind, _, cutoff = name.partition("@")
    return kind in RANKINGS and cutoff.isascii() and cutoff.isdigit() and int(cutoff) > 0


def _grader(name: str, judge: Judge, embeddings: Callable[[], Embeddings]) -> Grader:
    from langchain_rageval.metrics.graders.embedding_grader import embedding_grader
    from langchain_rageval.metrics.graders.id_grader import id_grader
    from langchain_rageval.metrics.graders.label_grader import label_grader
    from langchain_rageval.metrics.graders.llm_grader import llm_grader

    match name:
        case "llm":
            return llm_grader(judge)
        case "embedding":
            return embedding_grader(embeddings())
        case "labels":
            return label_grader()
    return id_grader()


def _takes(name: str) -> set[str]:
    return {*signature(_builder(name)).parameters}


def _builder(name: str) -> Callable[..., Metric | Suite]:
    builder: Callable[..., Metric | Suite] = getattr(import_module(BUILDERS[name]), name)
    return builder


def _lacking(metric: Metric, sample: Sample) -> str | None:
    try:
        metric.read(sample)
    except SampleError as error:
        return error.field
    return None
