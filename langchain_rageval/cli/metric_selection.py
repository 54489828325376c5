"""Selection and construction of metrics from the names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.messages import write_message
from langchain_rageval.cli.own_metrics import build_own_metric, is_own_metric
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
"""Name that stands for all metrics except ranking metrics."""

GRADERS = ("ids", "labels", "llm", "embedding", "spans")
"""Values of --grader."""


def parse_metric_names(text: str) -> list[str]:
    """Parse a comma-separated list of metric names.

    Args:
        text: names from `rageval metrics`. `all` stands for all metrics of the package except ranking metrics, which
            need a grader; `aspect_critique` stands for the built-in aspects. Ranking metrics have a cutoff, as in
            ndcg@5. A metric of the user is "package.module:name".

    Returns:
        The names in order, each once.

    Raises:
        ConfigError: if a name is unknown, or there is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [*(name for name in BUILDERS if name != "aspect_critique"), *ASPECTS]
    groups = {ALL: known, "aspect_critique": list(ASPECTS)}
    for name in names:
        if _is_ranking(name):
            continue
        if (kind := name.partition("@")[0]) in RANKINGS:
            raise ConfigError(f"{name!r} needs a cutoff, a whole number of at least 1, as in {kind}@5")
        if name not in known and name not in groups and not is_own_metric(name):
            ranked = [f"{kind}@K" for kind in RANKINGS]
            valid = ", ".join([*BUILDERS, *ASPECTS, *ranked, ALL])
            raise ConfigError(f"unknown metric {name!r}; use one of {valid}, or MODULE:NAME")
    if not names:
        raise ConfigError(f"--metrics takes comma-separated names, or {ALL}; use one of {', '.join(known)}")
    return list(dict.fromkeys(part for name in names for part in groups.get(name, [name])))


def build_named_metrics(
    names: Sequence[str],
    judge: Judge,
    embeddings: Callable[[], Embeddings],
    *,
    grader: str = "ids",
    gain: str = "exp2",
) -> list[Metric]:
    """Build metrics by name.

    Args:
        names: as returned by `parse_metric_names`.
        judge: judge of all metrics that need one.
        embeddings: function that loads the embeddings; called at most once, when the first metric needs them.
        grader: one of `GRADERS`, for ranking metrics.
        gain: gain of NDCG, "exp2" or "linear".
    """
    from langchain_rageval.metrics.structure import metrics_in

    arguments: Mapping[str, Callable[[], Any]] = {
        "judge": lambda: judge,
        "embeddings": (load := cache(embeddings)),
        "model": load,
        "grader": cache(lambda: _build_grader(grader, judge, load)),
        "gain": lambda: gain,
    }
    return [metric for name in names for metric in metrics_in(_build(name, arguments))]


def score_names(names: Sequence[str]) -> list[str]:
    """Return the names of the scores that the named metrics produce."""
    return [score for name in names for score in _score_names(name)]


def _score_names(name: str) -> Sequence[str]:
    from langchain_rageval.metrics.structure import names_of
    from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
    from langchain_rageval.models.offline_judge import OfflineJudge

    if name in BUILDERS or name in ASPECTS or _is_ranking(name):
        return SCORES.get(name, [name])
    return names_of(build_own_metric(name, {"judge": OfflineJudge, "embeddings": HashingEmbeddings}))


def select_scorable(metrics: Sequence[Metric], samples: Sequence[Sample]) -> list[Metric]:
    """Return the metrics whose fields every sample has; warn on stderr about the others.

    Conversation metrics are omitted without a warning if no sample has a history.

    Raises:
        ConfigError: if there are none.
    """
    from langchain_rageval.metrics.structure import shared_steps_key

    if not any(sample.history for sample in samples):
        metrics = [metric for metric in metrics if "history" not in metric.reads]
    selected = []
    left_out: dict[Any, list[str]] = {}
    for metric in metrics:
        lacking = [field for sample in samples if (field := _missing_field(metric, sample))]
        if not lacking:
            selected.append(metric)
        else:
            reason = f"{len(lacking)} of {len(samples)} samples lack {', '.join(sorted({*lacking}))}"
            left_out.setdefault((shared_steps_key(metric) or metric.name, reason), []).append(metric.name)
    for (_, reason), names in left_out.items():
        _warn_left_out(", ".join(names), reason)
    if not selected:
        raise ConfigError("no metric can score these samples; add answer, contexts or references")
    return selected


def check_gradable(metrics: Sequence[Metric], samples: Sequence[Sample], grader: str) -> None:
    """Check that the grader of the ranking metrics can grade every sample.

    Raises:
        SampleError: if a sample lacks a field; the message names the other graders.
    """
    for metric in metrics:
        if _is_ranking(metric.name):
            for sample in samples:
                try:
                    metric.read(sample)
                except SampleError as error:
                    others = " or ".join(f"--grader {other}" for other in GRADERS if other != grader)
                    raise SampleError(f"{error}; or use {others}", error.field) from None


def drop_embedding_metrics(names: Sequence[str]) -> list[str]:
    """Return the metrics that need no embeddings; warn on stderr about the others."""
    dropped = [name for name in names if name in BUILDERS and _parameters(name) & {"embeddings", "model"}]
    for name in dropped:
        _warn_left_out(name, "it needs embeddings; add --embeddings")
    return [name for name in names if name not in dropped]


def drop_missing_packages(names: Sequence[str]) -> list[str]:
    """Return the metrics whose packages are installed; warn on stderr about the others."""
    available = []
    for name in names:
        try:
            if name in BUILDERS and not _parameters(name) & {"judge", "model"}:
                _builder(name)()
            available.append(name)
        except ConfigError as error:
            _warn_left_out(name, str(error))
    return available


def _warn_left_out(name: str, reason: str) -> None:
    write_message(f"{name} left out: {reason}")


def _build(name: str, arguments: Mapping[str, Callable[[], Any]]) -> Metric | Suite:
    if name in ASPECTS:
        return _builder("aspect_critique")(arguments["judge"](), name)
    if _is_ranking(name):
        kind, _, cutoff = name.partition("@")
        builder = getattr(import_module(RANKINGS[kind]), f"{kind}_at")
        options = {"grader", "gain"} & {*signature(builder).parameters}
        metric: Metric = builder(int(cutoff), name=name, **{option: arguments[option]() for option in options})
        return metric
    if name not in BUILDERS:
        own: Metric | Suite = build_own_metric(name, {option: arguments[option] for option in ("judge", "embeddings")})
        return own
    return _builder(name)(**{option: arguments[option]() for option in arguments.keys() & _parameters(name)})


def _is_ranking(name: str) -> bool:
    kind, _, cutoff = name.partition("@")
    return kind in RANKINGS and cutoff.isascii() and cutoff.isdigit() and int(cutoff) > 0


def _build_grader(name: str, judge: Judge, embeddings: Callable[[], Embeddings]) -> Grader:
    from langchain_rageval.metrics.graders.embedding_grader import embedding_grader
    from langchain_rageval.metrics.graders.id_grader import id_grader
    from langchain_rageval.metrics.graders.label_grader import label_grader
    from langchain_rageval.metrics.graders.llm_grader import llm_grader
    from langchain_rageval.metrics.graders.span_grader import span_grader

    match name:
        case "llm":
            return llm_grader(judge)
        case "embedding":
            return embedding_grader(embeddings())
        case "spans":
            return span_grader()
        case "labels":
            return label_grader()
    return id_grader()


def _parameters(name: str) -> set[str]:
    return {*signature(_builder(name)).parameters}


def _builder(name: str) -> Callable[..., Metric | Suite]:
    builder: Callable[..., Metric | Suite] = getattr(import_module(BUILDERS[name]), name)
    return builder


def _missing_field(metric: Metric, sample: Sample) -> str | None:
    try:
        metric.read(sample)
    except SampleError as error:
        return error.field
    return None
