"""`plan`: estimate what a run will cost, by a dry run without model calls or by a pilot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.loading import parse_record
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.data.schema import Row, Sample, Score, Usage
from langchain_rageval.errors import ConfigError, SampleError, check_number
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.audit import Audit
from langchain_rageval.evaluation.batched_evaluation import round_sizes
from langchain_rageval.evaluation.canaries import N_FIRST, judges_to_ask
from langchain_rageval.evaluation.dry_run import dry_run, dry_run_context, plannable_parts, request_depth
from langchain_rageval.evaluation.inputs import AnyMetric, Samples, flatten_metrics, prepare_samples
from langchain_rageval.evaluation.job import check_kinds
from langchain_rageval.evaluation.options import Batch, EvaluateOptions
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.evaluation.until import Decided, SequentialRun, Until
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.tables import html_table
from langchain_rageval.run.budget import PlannedCosts
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.run import check_options
from langchain_rageval.run.usage import Price, PriceList, format_money
from langchain_rageval.statistics.paired import pairs_to_show

_SIMULATIONS = 20
_LONGEST = 3_000  # samples of one simulation


def _expected_samples(
    rows: Sequence[Row], until: Until, metrics: Sequence[AnyMetric], size: int, audited: set[str], share: float | None
) -> float:
    """Return the mean number of samples that a run with a stopping rule is expected to ask about.

    The run is simulated with rows drawn from a pilot, in which the strong judge of an audit scored every sample. Each
    simulation draws new weights for them (Bayesian bootstrap), so that the estimate allows for the uncertainty of the
    pilot's mean.

    Args:
        rows: the rows.
        until: the rule.
        metrics: metrics of the run.
        size: number of samples of the run.
        audited: names of the metrics of the audit.
        share: share of the audit; None without one.
    """
    rng, counts = np.random.default_rng(until.seed), []
    for _ in range(_SIMULATIONS if rows else 0):
        run, asked = SequentialRun(until, [None] * size, metrics, 1, audited, share), 0
        weights = rng.dirichlet(np.ones(len(rows)))
        drawn_rows = rng.choice(len(rows), size=min(size, _LONGEST), p=weights)
        is_audited = rng.random(len(drawn_rows)) < (share or 0.0)
        for drawn, number, strong in zip(run, drawn_rows, is_audited, strict=False):
            asked += 1
            row = rows[number].model_copy(update={"index": drawn.index})
            run.add(row, is_audited=bool(strong and row.audit))
        counts.append(size if asked == _LONGEST else asked)
    return float(np.mean(counts)) if counts else float(size)


_DEPTH_SAMPLES = 20


@dataclass(frozen=True)
class PlannedMetric:
    """Expected cost of one metric over all samples.

    If several metrics need the same step, such as the extraction of statements, only the first of them counts its cost.

    Attributes:
        metric: name of the metric.
        calls: number of chat model calls. A user's chain in which no model can be seen counts as one call per use.
        input_tokens: tokens read by the models, as characters / 4; most tokenizers count more for Cyrillic.
        output_tokens: tokens written by the models, if their replies are as short as those of the dry run. Tokens of a
            user's chain are not included, because a dry run does not invoke the chain.
        embedded: number of texts to embed.
        money: price of the calls, in the currency of `price`; None if there are no prices, or if a model has no price.
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


class Plan(PlannedCosts[PlannedMetric]):
    """Mapping of metric names to expected costs, in the order of the run.

    Attributes:
        samples: number of samples in the run.
        rehearsed: number of samples in the dry run or in the pilot; the figures are scaled up from these samples.
        notes: costs that the figures do not include.
        audit: expected cost of the strong judge of an audit, by metric name; included in the total.
        asked: expected number of samples to be scored; less than `samples` with a stopping rule.
        waves: number of batches that must follow one another through a batch API; None if no batch API is used.
        no_worse: smallest number of samples with which a comparison of the run with a baseline can give the verdict "no
            worse" at the requested margin, if every sample scores as in the baseline; None if no margin was requested.
    """

    def __init__(
        self,
        metrics: Iterable[PlannedMetric],
        samples: int,
        rehearsed: int,
        notes: Sequence[str],
        *,
        audit: Iterable[PlannedMetric] = (),
        asked: int | None = None,
        waves: int | None = None,
        no_worse: int | None = None,
    ) -> None:
        super().__init__({metric.metric: metric for metric in metrics})
        self.samples = samples
        self.rehearsed = rehearsed
        self.notes = list(notes)
        self.audit = {metric.metric: metric for metric in audit}
        self.asked = samples if asked is None else asked
        self.waves = waves
        self.no_worse = no_worse

    @property
    def total(self) -> PlannedMetric:
        """Expected cost of all metrics, and of the audit by a strong judge, if there is one."""
        return self.lines[-1]

    @property
    def lines(self) -> list[PlannedMetric]:
        """Expected costs as lines of a table: each metric, the audit of each metric, and the total."""
        audit = [replace(metric, metric=f"audit of {metric.metric}") for metric in self.audit.values()]
        costs = [*self.values(), *audit]
        numbers = [(m.calls, m.input_tokens, m.output_tokens, m.embedded) for m in costs]
        amounts = [m.money for m in costs if m.money is not None]
        money = sum(amounts) if len(amounts) == len(costs) else None
        calls, read, written, embedded = map(sum, zip(*numbers, strict=True)) if numbers else (0, 0, 0, 0)
        return [*costs, PlannedMetric("total", calls, read, written, embedded, money)]

    @property
    def title(self) -> str:
        """Heading of the plan: the number of samples in the run and in the dry run."""
        source = "" if self.rehearsed == self.samples else f", estimated from {self.rehearsed} of them"
        asked = "" if self.asked == self.samples else f", of which about {self.asked:,} are asked about"
        waves = "" if self.waves is None else f", in {pluralize(self.waves, 'wave')}"
        return f"Plan for {pluralize(self.samples, 'sample')}{asked}{waves}{source}"

    def __repr__(self) -> str:
        """Return the plan as text: a line for each metric, the total, and the notes."""
        lines = [
            f"{m.metric} {pluralize(m.calls, 'call')}, {m.tokens:,} tokens, {pluralize(m.embedded, 'text')} to embed"
            + ("" if m.money is None else f", {format_money(m.money)} money")
            for m in self.lines
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the expected costs, for notebooks."""
        return html_table(self.title, *plan_table(self), self.notes)


def plan_table(plan: Plan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the column headings and the rows of a plan's table, the total last; with prices, money has a column."""
    metrics = plan.lines
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
    until: Until | None = None,
    batch: Batch | None = None,
    audit: Audit | None = None,
    pilot: int | None = None,
    price: Mapping[str, Price] | Price | None = None,
    no_worse: float | None = None,
    anchors: int = 0,
) -> Plan:
    """Return the expected cost of a call of `evaluate`. No model is called, except for a pilot.

    The estimate assumes that a judge finds one statement in each sentence and that its first reply is valid. Repeated
    requests, after an invalid reply or a failed call, cost extra. A pilot (real model calls for some samples) measures
    the number of statements and the cost of repeated requests.

    Args:
        samples: as for `evaluate`, except that an iterator is not allowed, because the plan would consume it.
        metrics: as for `evaluate`.
        rehearsed: maximum number of samples in the dry run. If there are more, this number is drawn at random, always
            the same samples.
        journal: the journal of the run. Scores stored in it cost nothing. A pilot stores its scores in it.
        until: the stopping rule of the run. Only a pilot shows how many samples the run will score.
        batch: the batch option of the run; the plan then counts the batches that must follow one another.
        audit: the audit of the run.
        pilot: number of samples to score with real model calls, such as 20, drawn at random. The strong judge of an
            audit scores all of them. None for no model call.
        price: prices of the models, as for `evaluate`.
        no_worse: margin of a comparison, such as 0.02, for values from 0 to 1. `plan.no_worse` and a note say how many
            samples the verdict "no worse" requires.
        anchors: number of rows of a baseline that `rageval ci --anchors` scores again; included in the figures.

    Returns:
        Calls, tokens and texts to embed for each metric, over all samples. The cost of the audit is in `plan.audit`. A
        step that several metrics share is counted for the first of them.

    Raises:
        ConfigError: if the value of an argument is invalid.
        SampleError: if a list or DataFrame holds a sample that a metric cannot read.
    """
    _check(rehearsed, pilot, no_worse, anchors)
    check_options({"journal": journal, "price": price})
    needed = None if no_worse is None else pairs_to_show(no_worse)
    check_kinds({"until": until, "audit": audit, "batch": batch})
    flat = flatten_metrics(metrics)
    strong = audit.metrics(flat)[0] if audit is not None else []
    names, audited = ([name for metric in part for name in names_of(metric)] for part in (flat, strong))
    if any(hasattr(samples, name) for name in ("__next__", "__anext__", "__aiter__")):
        raise ConfigError("plan would consume an iterator; pass a list, a path or a data set")
    drawn, count = _draw(prepare_samples(samples, flat), rehearsed if pilot is None else pilot)
    unplannable = [name for metric in flat if not plannable_parts(metric) for name in names_of(metric)]
    notes = [f"{', '.join(unplannable)} cannot be planned: the model calls are unknown."] if unplannable else []
    asked, share = float(count), None if audit is None else audit.share_of(count)
    if pilot is None:
        is_new = isinstance(journal, str | Path) and not Path(journal).exists()  # to open it would create it
        stored, prices = None if is_new else journal, PriceList.of(price)
        usages, failed = _measure(drawn, flat, stored, prices)
        of_audit, failed_audits = _measure(drawn, strong, stored, prices)
        notes += dict.fromkeys([*failed, *(note for note in failed_audits if code_of(note) == "money-unknown")])
        if until is not None and count:
            notes.append("The figures are for all samples; how many the stopping rule asks about, pilot=20 estimates.")
    else:
        whole = None if audit is None else replace(audit, share=1.0)
        options: EvaluateOptions = {"audit": whole, "journal": journal, "price": price, "progress": False}
        report = evaluate([*_readable(drawn)], flat, **options)
        notes += [note for note in report.notes if code_of(note) == "money-unknown"]
        usages = _usages(names, [row.scores for row in report.rows])
        of_audit = _usages(audited, [row.audit for row in report.rows])
        if until is not None:
            asked = _expected_samples(report.rows, until, flat, count, set(audited), share)
            notes.append(f"The stopping rule was simulated with the scores of {pluralize(len(report.rows), 'sample')}.")
    factor, again = asked / max(1, len(drawn)), anchors / max(1, len(drawn))
    waves = None if batch is None else _waves(drawn, [*flat, *strong], count, asked, stops=until is not None)
    if isinstance(until, Decided):
        n_canaries = N_FIRST * len(judges_to_ask(flat))
        notes += [Note("canaries-planned", count=n_canaries)] if n_canaries else []
    if batch is not None:
        notes.append("Batch APIs bill about half of these tokens' price, and answer each wave within 24 hours.")
    notes += [Note("no-worse-takes", margin=no_worse, needed=needed, count=count)] if needed else []
    notes += [Note("anchors-planned", count=anchors)] if anchors else []
    return Plan(
        [_planned(name, usage, factor + again) for name, usage in usages.items()],
        count,
        len(drawn),
        notes,
        audit=[_planned(name, usage, factor * (share or 0)) for name, usage in of_audit.items()],
        asked=round(asked),
        waves=waves,
        no_worse=needed,
    )


def _check(rehearsed: Any, pilot: Any, no_worse: Any, anchors: Any) -> None:
    for what, number in (("rehearsed (samples to estimate from)", rehearsed), ("pilot (samples to score)", pilot)):
        if number is not None:
            check_number(f"{what} must be a whole number of at least 1", number, lambda value: value >= 1, whole=True)
    check_number("anchors must be a whole number of at least 0", anchors, lambda value: value >= 0, whole=True)
    if no_worse is not None:
        expected = "no_worse (margin of a comparison) must be a number between 0 and 1"
        check_number(expected, no_worse, lambda margin: 0 < margin < 1)


def _usages(names: Iterable[str], scores: Sequence[Mapping[str, Score]]) -> dict[str, Usage]:
    """Return the sum of the usage of each metric over the scores of rows."""
    return {name: sum((part[name].usage for part in scores if name in part), Usage()) for name in names}


def _planned(name: str, usage: Usage, factor: float) -> PlannedMetric:
    """Return the cost of `factor` times as many samples."""
    counts = (usage.calls, usage.input_tokens or 0, usage.output_tokens or 0, usage.embedded)
    calls, read, written, embedded = (round(count * factor) for count in counts)
    return PlannedMetric(name, calls, read, written, embedded, None if usage.money is None else usage.money * factor)


def _waves(samples: Sequence[Any], metrics: Sequence[AnyMetric], count: int, asked: float, *, stops: bool) -> int:
    """Return the number of waves of a run through a batch API: those of the deepest sample, for each round."""
    parts = [plannable_parts(metric) for metric in metrics]
    depth = max((request_depth(parts, sample) for sample in islice(_readable(samples), _DEPTH_SAMPLES)), default=0)
    left, rounds, sizes = min(asked, count) if stops else count, 0, round_sizes(stops=stops)
    while left > 0:
        left, rounds = left - next(sizes), rounds + 1
    return depth * rounds


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


def _measure(
    samples: Sequence[Any], metrics: Sequence[AnyMetric], journal: str | Path | Journal | None, prices: PriceList | None
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
    unpriced = [Note("money-unknown", reason=problem) for problem in context.meter.unpriced]
    return usages, [*notes.values(), *unpriced]


def _readable(samples: Iterable[Any]) -> Iterator[Sample]:
    """Yield the items that can be parsed as samples; in the run, other items become failures without a model call."""
    for item in samples:
        if not isinstance(item, SampleError):
            with suppress(SampleError):
                yield parse_record(item)
