"""`plan`: an estimate of what a run will cost, made by a dry run without any model call.

Every request is built exactly as it would be sent, and answered locally by word overlap. Special cases, windows and
shared steps are therefore those of the run. How many statements a real judge finds, and how often it must be asked
again, cannot be known in advance.
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
from langchain_rageval.evaluation.inputs import AnyMetric, Samples, flatten_metrics, prepare_samples
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.html_table import html_table
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.options import check_options
from langchain_rageval.run.prices import Price, PriceList, format_money


@dataclass(frozen=True)
class PlannedMetric:
    """Expected cost of one metric over all samples, without the steps that it shares with metrics before it.

    Attributes:
        metric: name of the metric.
        calls: number of chat model calls.
        input_tokens: tokens read by the models, as characters / 4; most tokenizers count more for Cyrillic.
        output_tokens: tokens written by the models, if their replies are as short as those of the dry run.
        embedded: number of texts to embed.
        money: price of the calls, in the currency of `price`; None without prices, or if a model has no price.
    """

    metric: str
    calls: int
    input_tokens: int
    output_tokens: int
    embedded: int
    money: float | None = None

    @property
    def tokens(self) -> int:
        """Sum of the input and output tokens of this metric."""
        return self.input_tokens + self.output_tokens


class Plan(Mapping[str, PlannedMetric]):
    """Mapping of metric names to expected costs, in the order of the run.

    Attributes:
        samples: number of samples in the run.
        rehearsed: number of samples in the dry run, from which the figures are scaled up.
        notes: costs that the figures do not include.
    """

    def __init__(self, metrics: Iterable[PlannedMetric], samples: int, rehearsed: int, notes: Sequence[str]) -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        self.samples = samples
        self.rehearsed = rehearsed
        self.notes = list(notes)

    def __getitem__(self, name: str) -> PlannedMetric:
        """Return the expected cost of a metric by its name."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the planned metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return the number of metrics."""
        return len(self._metrics)

    @property
    def total(self) -> PlannedMetric:
        """Expected cost of all metrics together."""
        costs = [(m.calls, m.input_tokens, m.output_tokens, m.embedded) for m in self.values()]
        money = [m.money for m in self.values() if m.money is not None]
        total = sum(money) if len(money) == len(self) else None
        calls, read, written, embedded = map(sum, zip(*costs, strict=True)) if costs else (0, 0, 0, 0)
        return PlannedMetric("total", calls, read, written, embedded, total)

    @property
    def calls(self) -> int:
        """Number of chat model calls of all metrics."""
        return self.total.calls

    @property
    def tokens(self) -> int:
        """Sum of input and output tokens of all metrics."""
        return self.total.tokens

    @property
    def embedded(self) -> int:
        """Number of texts to embed for all metrics."""
        return self.total.embedded

    @property
    def money(self) -> float | None:
        """Price of the calls of all metrics; None without prices, or if a model has no price."""
        return self.total.money

    @property
    def title(self) -> str:
        """Heading of the plan: the number of samples in the run and in the dry run."""
        plural = "" if self.samples == 1 else "s"
        source = "" if self.rehearsed == self.samples else f", estimated from {self.rehearsed} of them"
        return f"Plan for {self.samples:,} sample{plural}{source}"

    def __repr__(self) -> str:
        """Return the plan as text: a line for each metric, the total, and the notes."""
        lines = [
            f"{m.metric} {m.calls:,} calls, {m.tokens:,} tokens, {m.embedded:,} texts to embed"
            + ("" if m.money is None else f", {format_money(m.money)} money")
            for m in (*self.values(), self.total)
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the expected costs, for notebooks."""
        headings, cells = plan_table(self)
        return html_table(self.title, headings, cells, self.notes)


def plan_table(plan: Plan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return headings and lines of the table of a plan, the total last; with a column for money if there are prices."""
    metrics = (*plan.values(), plan.total)
    headings = ["metric", "calls", "tokens read", "tokens written", "texts to embed"]
    lines = [
        (m.metric, *(f"{number:,}" for number in (m.calls, m.input_tokens, m.output_tokens, m.embedded)))
        for m in metrics
    ]
    if all(metric.money is None for metric in metrics):
        return headings, lines
    money = (format_money(metric.money) for metric in metrics)
    return [*headings, "money"], [(*line, amount) for line, amount in zip(lines, money, strict=True)]


def plan(
    samples: Samples,
    metrics: AnyMetric | Sequence[AnyMetric],
    *,
    rehearsed: int = 200,
    journal: str | Path | Journal | None = None,
    price: Mapping[str, Price] | Price | None = None,
) -> Plan:
    """Return what `evaluate` is expected to cost, without calling a model.

    The estimate assumes that a judge finds one statement in each sentence and that its first reply is valid. Repeated
    requests, after an invalid reply or a lost call, cost extra.

    Args:
        samples: as for `evaluate`, except for an iterator, which would be consumed.
        metrics: as for `evaluate`.
        rehearsed: maximum number of samples in the dry run; from more samples so many are drawn, always the same ones.
        journal: the journal of the run; scores stored in it cost nothing.
        price: prices of the models, as for `evaluate`.

    Returns:
        Metric name to calls, tokens and texts to embed, over all samples. A step that metrics share is counted for the
        first of them.

    Raises:
        ConfigError: if the value of an argument is invalid.
        SampleError: if a list or DataFrame holds a sample that a metric cannot read.
    """
    if not isinstance(rehearsed, int) or isinstance(rehearsed, bool) or rehearsed < 1:
        raise ConfigError(
            f"rehearsed (samples to estimate from) must be a whole number of at least 1, got {rehearsed!r}"
        )
    check_options({"journal": journal, "price": price})
    flat = flatten_metrics(metrics)
    drawn, count = _draw(_repeatable(samples, flat), rehearsed)
    usages, failed = _measure(drawn, flat, _existing(journal), PriceList.of(price))
    factor = count / max(1, len(drawn))
    planned = [
        PlannedMetric(
            name,
            round(usage.calls * factor),
            round((usage.input_tokens or 0) * factor),
            round((usage.output_tokens or 0) * factor),
            round(usage.embedded * factor),
            None if usage.money is None else usage.money * factor,
        )
        for name, usage in usages.items()
    ]
    return Plan(planned, count, len(drawn), [*_unplannable_notes(flat), *failed])


def _repeatable(samples: Any, metrics: Sequence[AnyMetric]) -> Iterable[Any]:
    """Return the samples as `prepare_samples` does; raise ConfigError for an iterator, which can be read only once."""
    if hasattr(samples, "__next__") or hasattr(samples, "__anext__") or hasattr(samples, "__aiter__"):
        raise ConfigError("plan would consume an iterator; pass a list, a path or a data set")
    prepared: Iterable[Any] = prepare_samples(samples, metrics)
    return prepared


def _draw(samples: Iterable[Any], most: int) -> tuple[list[Any], int]:
    """Return a uniform random draw of at most `most` samples, by reservoir sampling, and the number of all samples."""
    random = Random(0)
    drawn: list[Any] = []
    count = 0
    for sample in samples:
        if count < most:
            drawn.append(sample)
        elif (place := random.randint(0, count)) < most:
            drawn[place] = sample
        count += 1
    return drawn, count


def _existing(journal: str | Path | Journal | None) -> str | Path | Journal | None:
    """Return the journal, or None for the path of a file that does not exist: opening it would create it."""
    return None if isinstance(journal, str | Path) and not Path(journal).exists() else journal


def _measure(
    samples: Sequence[Any],
    metrics: Sequence[AnyMetric],
    journal: str | Path | Journal | None,
    prices: PriceList | None,
) -> tuple[dict[str, Usage], list[str]]:
    """Return the usage of each metric in a dry run over the samples, and notes on dry runs that failed."""
    parts = [plannable_parts(metric) for metric in metrics]
    usages = {name: Usage(money=prices and 0.0) for by_name in parts for name in by_name}
    notes: dict[str, str] = {}
    context, store = dry_run_context(prices=prices), ScoreStore(journal, metrics)
    with closing(store):
        for sample in _readable(samples):
            run = context.for_sample()
            for number, by_name in enumerate(parts):
                if by_name and store.load(number, sample) is None:
                    for name, score in dry_run(by_name, sample, run).items():
                        usages[name] += score.usage
                        if score.failure and score.failure.step != "sample":
                            notes[name] = f"{name} costs more: its dry run ended with {score.comment}."
    unpriced = [f"The money is unknown: {problem}." for problem in context.meter.unpriced]
    return usages, [*notes.values(), *unpriced]


def _readable(samples: Iterable[Any]) -> Iterator[Sample]:
    """Yield the items that can be parsed as samples; in the run, other items become failures without a model call."""
    for item in samples:
        if not isinstance(item, SampleError):
            with suppress(SampleError):
                yield Sample.parse(item)


def _unplannable_notes(metrics: Sequence[AnyMetric]) -> list[str]:
    names = [name for metric in metrics if not plannable_parts(metric) for name in names_of(metric)]
    return [f"{', '.join(names)} cannot be planned: the model calls are unknown."] if names else []
