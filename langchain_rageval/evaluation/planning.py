"""plan: what a run is going to cost, before anything is spent.

The metrics are rehearsed: every request is made just as it would be sent, and answered on the spot by word overlap. So
edges, windows and shared steps are those of the run. How many statements a real judge finds, and how often it has to be
asked again, nobody knows before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from langchain_rageval.data.schema import Sample, Usage
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.dry_run import dry_run, dry_run_context, plannable_parts
from langchain_rageval.evaluation.inputs import AnyMetric, Samples, checked, flattened
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.notebook import html_table
from langchain_rageval.run.journal import Journal


@dataclass(frozen=True)
class PlannedMetric:
    """What one metric is expected to cost over all samples, apart from what the metrics before it already ask.

    Attributes:
        metric: its name.
        calls: of chat models.
        input_tokens: that they read, as characters / 4; with Cyrillic most tokenizers count more.
        output_tokens: that they write, if their answers are as short as the rehearsal's.
        embedded: texts sent to be embedded.
    """

    metric: str
    calls: int
    input_tokens: int
    output_tokens: int
    embedded: int

    @property
    def tokens(self) -> int:
        """Read and written together."""
        return self.input_tokens + self.output_tokens


class Plan(Mapping[str, PlannedMetric]):
    """Metric name to what it is expected to cost, in the order of the run.

    Attributes:
        samples: how many there are.
        rehearsed: how many of them the figures come from.
        notes: what the figures leave out.
    """

    def __init__(self, metrics: Iterable[PlannedMetric], samples: int, rehearsed: int, notes: Sequence[str]) -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        self.samples = samples
        self.rehearsed = rehearsed
        self.notes = list(notes)

    def __getitem__(self, name: str) -> PlannedMetric:
        """One metric."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Number of metrics."""
        return len(self._metrics)

    @property
    def total(self) -> PlannedMetric:
        """All metrics together."""
        of_all = [(m.calls, m.input_tokens, m.output_tokens, m.embedded) for m in self.values()]
        calls, read, written, embedded = map(sum, zip(*of_all, strict=True)) if of_all else (0, 0, 0, 0)
        return PlannedMetric("total", calls, read, written, embedded)

    @property
    def calls(self) -> int:
        """Of chat models, by all metrics."""
        return self.total.calls

    @property
    def tokens(self) -> int:
        """Read and written, by all metrics."""
        return self.total.tokens

    @property
    def embedded(self) -> int:
        """Texts sent to be embedded, by all metrics."""
        return self.total.embedded

    @property
    def title(self) -> str:
        """How many samples the figures are for, and come from."""
        plural = "" if self.samples == 1 else "s"
        source = "" if self.rehearsed == self.samples else f", estimated from {self.rehearsed} of them"
        return f"Plan for {self.samples:,} sample{plural}{source}"

    def __repr__(self) -> str:
        """A line for each metric, the total, and the notes."""
        lines = [
            f"{m.metric} {m.calls:,} calls, {m.tokens:,} tokens, {m.embedded:,} texts to embed"
            for m in (*self.values(), self.total)
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(self.title, HEADINGS, map(cells, (*self.values(), self.total)), self.notes)


HEADINGS = ("metric", "calls", "tokens read", "tokens written", "texts to embed")


def cells(metric: PlannedMetric) -> tuple[str, ...]:
    """One metric as the cells of a table under `HEADINGS`."""
    numbers = (metric.calls, metric.input_tokens, metric.output_tokens, metric.embedded)
    return (metric.metric, *(f"{number:,}" for number in numbers))


def plan(
    samples: Samples,
    metrics: AnyMetric | Sequence[AnyMetric],
    *,
    rehearsed: int = 200,
    journal: str | Path | Journal | None = None,
) -> Plan:
    """Say what `evaluate` would cost, without a call.

    A judge is taken to find one statement in each sentence and to answer at once; what it has to be asked again, and
    what gets lost and is sent again, comes on top.

    Args:
        samples: as for `evaluate`, but no iterator: it would be used up.
        metrics: as for `evaluate`.
        rehearsed: most samples to rehearse with; of more, so many are drawn, always the same ones.
        journal: of the run; what it holds costs nothing.

    Returns:
        Metric to its calls, tokens and texts to embed, for all samples. A step that metrics share is counted with the
        first of them.

    Raises:
        ConfigError: if an argument cannot be used.
        SampleError: if a list or DataFrame holds a sample that a metric cannot read.
    """
    if not isinstance(rehearsed, int) or isinstance(rehearsed, bool) or rehearsed < 1:
        raise ConfigError(f"rehearsed takes a whole number from 1 on, got {rehearsed!r}")
    if not isinstance(journal, str | Path | Journal | None):
        raise ConfigError(f"journal takes the path of a file, got {type(journal).__name__}")
    flat = flattened(metrics)
    drawn, count = _drawn(_listable(samples, flat), rehearsed)
    usages, failed = _rehearsed(drawn, flat, _existing(journal))
    share = count / max(1, len(drawn))
    planned = [
        PlannedMetric(
            name,
            round(usage.calls * share),
            round((usage.input_tokens or 0) * share),
            round((usage.output_tokens or 0) * share),
            round(usage.embedded * share),
        )
        for name, usage in usages.items()
    ]
    return Plan(planned, count, len(drawn), [*_unplanned(flat), *failed])


def _listable(samples: Any, metrics: Sequence[AnyMetric]) -> Iterable[Any]:
    if hasattr(samples, "__next__") or hasattr(samples, "__anext__") or hasattr(samples, "__aiter__"):
        raise ConfigError("plan would use up an iterator; hand it a list, a path or a data set")
    given: Iterable[Any] = checked(samples, metrics)
    return given


def _drawn(samples: Iterable[Any], most: int) -> tuple[list[Any], int]:
    """At most so many of the samples, each as likely as any other; and how many there are."""
    chance = Random(0)
    drawn: list[Any] = []
    count = 0
    for sample in samples:
        if count < most:
            drawn.append(sample)
        elif (place := chance.randint(0, count)) < most:
            drawn[place] = sample
        count += 1
    return drawn, count


def _existing(journal: str | Path | Journal | None) -> str | Path | Journal | None:
    """The journal, unless it is yet to be made."""
    return None if isinstance(journal, str | Path) and not Path(journal).exists() else journal


def _rehearsed(
    samples: Sequence[Any], metrics: Sequence[AnyMetric], journal: str | Path | Journal | None
) -> tuple[dict[str, Usage], list[str]]:
    """What each metric would pay for these samples, and where it could not be found out."""
    parts = [plannable_parts(metric) for metric in metrics]
    usages = {name: Usage() for by_name in parts for name in by_name}
    failed: dict[str, str] = {}
    whole, finished = dry_run_context(), ScoreStore(journal, metrics)
    with closing(finished):
        for sample in _readable(samples):
            run = whole.for_sample()
            for number, by_name in enumerate(parts):
                if by_name and finished.score(number, sample) is None:
                    for name, score in dry_run(by_name, sample, run).items():
                        usages[name] += score.usage
                        if score.failure and score.failure.step != "sample":
                            failed[name] = f"{name} costs more: its rehearsal ended with {score.comment}."
    return usages, list(failed.values())


def _readable(samples: Iterable[Any]) -> Iterator[Sample]:
    """Those that are samples; what is none, of a file or a data set, fails without a call."""
    for item in samples:
        if not isinstance(item, SampleError):
            with suppress(SampleError):
                yield Sample.parse(item)


def _unplanned(metrics: Sequence[AnyMetric]) -> list[str]:
    names = [name for metric in metrics if not plannable_parts(metric) for name in names_of(metric)]
    return [f"{', '.join(names)} cannot be planned: nothing tells what it asks for."] if names else []
