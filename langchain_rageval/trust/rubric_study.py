"""rubric_study: which judge, with which scale, with or without graded examples, grades well enough for its price.

Source: Databricks' study of judges for RAG (Leng et al. 2023, "Best Practices for LLM Evaluation of RAG Applications"),
which did this once for GPT-4 and GPT-3.5 over one company's documents; here for your judges, over your own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.inputs import Samples
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.rubric import rubric
from langchain_rageval.prompts.criteria import DEFAULT_SCALE, Scale
from langchain_rageval.report.html_table import html_table
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import MetricSummary
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.journal import Journal
from langchain_rageval.statistics.agreement import cohen_kappa, kendall, spearman
from langchain_rageval.trust.answer_sheets import MODEL, read
from langchain_rageval.trust.leaderboard import raw_grades

if TYPE_CHECKING:
    import pandas

RubricOptions = Mapping[str, Any] | Callable[[Judge], Metric]
Label = Mapping[str, int] | float
Price = tuple[float, float]

_PER = 1_000_000


@dataclass(frozen=True)
class Match:
    """How far grades agree with people's.

    Attributes:
        pairs: grades that both gave.
        exact: share of them that are equal; None without pairs.
        within_one: share that differ by one step at most.
        kappa: Cohen's kappa with quadratic weights; None when all grades of both are one and the same.
    """

    pairs: int
    exact: float | None = None
    within_one: float | None = None
    kappa: float | None = None


@dataclass(frozen=True)
class StudyRow:
    """One judge with one rubric over all sheets.

    Attributes:
        judge: its name.
        rubric: its name.
        scale: lowest and highest grade; None for a metric that is no rubric.
        mean: of the values, from 0 to 1; None when nothing was scored.
        low: lower end of the 95% interval of the mean.
        high: its upper end.
        spread: standard deviation of the values; None below two.
        scored: sheets with a value.
        failed: sheets whose score could not be had.
        match: agreement of all grades with the labels; without pairs when the labels are on another scale.
        by_criterion: criterion to the same for its grades.
        spearman: rank correlation of the values with those of the labels, over the sheets that have both; None below
            two, and when one side does not vary.
        models: model to the mean of its values, best first; empty when no sheet names its model.
        stability: mean rank correlation (Kendall's tau-b) of the models' means with those of every other row; None for
            a single row, or model, and where means do not differ.
        summary: counts, calls, tokens and seconds, as in `Report.summary`.
        cost: in the currency of the price; None without one, or when the model reports no tokens.
    """

    judge: str
    rubric: str
    scale: Scale | None
    mean: float | None
    low: float | None
    high: float | None
    spread: float | None
    scored: int
    failed: int
    match: Match
    by_criterion: Mapping[str, Match]
    spearman: float | None
    models: Mapping[str, float]
    stability: float | None
    summary: MetricSummary
    cost: float | None

    @property
    def order(self) -> tuple[str, ...]:
        """The models, best first."""
        return tuple(self.models)

    @property
    def calls(self) -> int:
        """Model calls paid for."""
        return self.summary.calls

    @property
    def tokens(self) -> int | None:
        """Read and written; None when the model reports none."""
        known = [count for count in (self.summary.input_tokens, self.summary.output_tokens) if count is not None]
        return sum(known) if known else None


class RubricStudy(Sequence[StudyRow]):
    """A row for each judge and rubric, judge by judge.

    Attributes:
        rows: as a list.
        report: all scores; a metric for each row, named "judge | rubric".
        notes: what a reader should know, such as whether all rows rank the models alike.
    """

    def __init__(self, rows: Sequence[StudyRow], report: Report, notes: Sequence[str]) -> None:
        self.rows = list(rows)
        self.report = report
        self.notes = list(notes)

    def __getitem__(self, place: Any) -> Any:
        """One row by its place, or by the names of judge and rubric: `study["gpt", "0-3"]`."""
        if isinstance(place, tuple):
            found = [row for row in self.rows if (row.judge, row.rubric) == place]
            if not found:
                raise KeyError(place)
            return found[0]
        return self.rows[place]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __iter__(self) -> Iterator[StudyRow]:
        """The rows."""
        return iter(self.rows)

    @property
    def title(self) -> str:
        """How many of what were compared."""
        counts = {name: len({getattr(row, name) for row in self}) for name in ("judge", "rubric")}
        told = (f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
        return f"Study of {' × '.join(told)} over {len(self.report)} answers"

    def __repr__(self) -> str:
        """A table as text, and the notes."""
        table = [HEADINGS, *map(cells, self)]
        widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
        return "\n".join([self.title, *(line.rstrip() for line in lines), *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(self.title, HEADINGS, map(cells, self), self.notes)

    def to_pandas(self) -> pandas.DataFrame:
        """One line for each row; agreement by criterion in columns of their own."""
        import pandas

        return pandas.DataFrame([_record(row) for row in self])


HEADINGS = (
    *("judge", "rubric", "mean", "spread", "exact", "within 1", "kappa", "Spearman", "stability"),
    *("failed", "calls", "tokens", "cost"),
)


def cells(row: StudyRow) -> tuple[str, ...]:
    """One row as the cells of a table under `HEADINGS`."""

    def told(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    match = row.match
    return (
        *(row.judge, row.rubric, told(row.mean, ".3f"), told(row.spread, ".3f"), told(match.exact, ".0%")),
        *(told(match.within_one, ".0%"), told(match.kappa, ".2f"), told(row.spearman, ".2f")),
        *(told(row.stability, ".2f"), str(row.failed), str(row.calls), told(row.tokens, ","), told(row.cost, ".4f")),
    )


def rubric_study(
    judges: Mapping[str, JudgeLike],
    rubrics: Mapping[str, RubricOptions],
    sheets: Samples,
    labels: Mapping[str, Label] | None = None,
    price: Mapping[str, Price] | None = None,
    *,
    label_scale: tuple[int, int] = DEFAULT_SCALE,
    max_concurrency: int = 16,
    journal: str | Path | Journal | None = None,
    budget: Budget | None = None,
    progress: bool = True,
) -> RubricStudy:
    """Grade the same answers by every judge with every rubric, and say what each of them is worth and costs.

    Args:
        judges: name to judge.
        rubrics: name to the options of `rubric`, such as {"scale": (0, 3), "examples": "none"}; or to a function from a
            judge to a metric, such as `partial(rubric, criteria=mine)`.
        sheets: answers of several models, as `answer_sheets` makes them, or other samples; a sheet without an answer is
            a failure in every row.
        labels: id of a sheet to what people say of it: criterion to grade on `label_scale`, or one number for the whole
            answer. Where criteria are labelled, their mean with the rubric's weights stands for the whole.
        price: name of a judge to what a million tokens cost, read and written, in any currency.
        label_scale: lowest and highest grade of the labels. Grades are compared only with rubrics of the same scale,
            ranks with all.
        max_concurrency: as for `evaluate`.
        journal: likewise: what a study has paid for, the same study does not pay for again.
        budget: likewise.
        progress: likewise.

    Returns:
        What each judge with each rubric is worth and costs, and the report with every grade.

    Raises:
        ConfigError: if judges, rubrics, labels or prices cannot be used.
        SampleError: if a sheet cannot be read.
    """
    metrics = _metrics(judges, rubrics)
    prices = _checked_prices(price or {}, judges)
    given = list(read(sheets))
    known = _checked_labels(labels or {}, {sheet.id for sheet in given}, label_scale)
    report = evaluate(
        iter(given),
        list(metrics.values()),
        max_concurrency=max_concurrency,
        journal=journal,
        budget=budget,
        progress=progress,
    )
    means = {names: _means_of_models(report, metric.name) for names, metric in metrics.items()}
    rows = [
        _row(names, metric, report, known, label_scale, prices.get(names[0]), means)
        for names, metric in metrics.items()
    ]
    return RubricStudy(rows, report, [*report.notes, *_told_of_orders(rows)])


def _metrics(judges: Mapping[str, JudgeLike], rubrics: Mapping[str, RubricOptions]) -> dict[tuple[str, str], Metric]:
    for what, given in (("judges", judges), ("rubrics", rubrics)):
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(f"{what} takes a mapping of names, got {type(given).__name__ if given else 'none'}")
    return {
        (who, how): _built(f"{who} | {how}", Judge.of(judge), options)
        for who, judge in judges.items()
        for how, options in rubrics.items()
    }


def _built(name: str, judge: Judge, options: RubricOptions) -> Metric:
    if isinstance(options, Mapping):
        try:
            return rubric(judge, **{**options, "name": name})
        except TypeError as error:
            raise ConfigError(f"{name}: these are no options of rubric: {error}") from None
    metric = options(judge) if callable(options) else options
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"{name}: a rubric is given as its options, or as a function from a judge to a metric, got "
            f"{type(metric).__name__}"
        )
    return metric.model_copy(update={"name": name})


def _checked_prices(price: Mapping[str, Price], judges: Mapping[str, JudgeLike]) -> Mapping[str, Price]:
    for name, both in price.items():
        if name not in judges:
            raise ConfigError(f"price names {name!r}, the judges are {', '.join(judges)}")
        if not isinstance(both, Sequence) or len(both) != 2 or not all(isinstance(one, int | float) for one in both):
            raise ConfigError(f"price takes (a million tokens read, a million written), got {name}: {both!r}")
    return price


def _checked_labels(labels: Mapping[str, Label], ids: set[str], scale: tuple[int, int]) -> Mapping[str, Label]:
    known = {sheet: label for sheet, label in labels.items() if sheet in ids}
    if labels and not known:
        shown = ", ".join(sorted(ids)[:3])
        raise ConfigError(f"no label is of these sheets: labels go by the sheets' ids, such as {shown}")
    for sheet, label in known.items():
        for name, grade in label.items() if isinstance(label, Mapping) else ():
            if not isinstance(grade, int) or not scale[0] <= grade <= scale[1]:
                raise ConfigError(
                    f"the label of {sheet!r} for {name} is {grade!r}, no grade from {scale[0]} to {scale[1]}; mend it, "
                    "or say label_scale=(lowest, highest)"
                )
    return known


def _row(
    names: tuple[str, str],
    metric: Metric,
    report: Report,
    labels: Mapping[str, Label],
    label_scale: tuple[int, int],
    price: Price | None,
    means: Mapping[tuple[str, str], Mapping[str, float]],
) -> StudyRow:
    key = metric.name
    scale = metric.options.get("scale")
    scored = [row for row in report.rows if key in row.scores and row.scores[key].value is not None]
    values = [float(row.scores[key]) for row in scored]
    summary = report.summary()[key]
    pairs = _pairs(scored, key, labels) if scale and tuple(scale) == tuple(label_scale) else []
    own, sign = means[names], 1 if metric.direction == "higher" else -1
    whole = [_of_whole(labels.get(row.sample.id), metric, label_scale) for row in scored]
    both = [(value, label) for value, label in zip(values, whole, strict=True) if label is not None]
    return StudyRow(
        judge=names[0],
        rubric=names[1],
        scale=None if scale is None else (scale[0], scale[1]),
        mean=summary.mean,
        low=summary.low,
        high=summary.high,
        spread=stdev(values) if len(values) > 1 else None,
        scored=summary.scored,
        failed=summary.failed,
        match=_match([grades for _, grades in pairs], label_scale),
        by_criterion={
            name: _match([grades for other, grades in pairs if other == name], label_scale)
            for name in dict.fromkeys(name for name, _ in pairs)
        },
        spearman=spearman(*zip(*both, strict=True)) if both else None,
        models={model: own[model] for model in sorted(own, key=lambda model: -sign * own[model])},
        stability=_stability(own, [other for place, other in means.items() if place != names]),
        summary=summary,
        cost=_cost(summary, price),
    )


def _pairs(rows: Sequence[Row], metric: str, labels: Mapping[str, Label]) -> list[tuple[str, tuple[int, int]]]:
    """Each criterion with the judge's grade and the label's, for every grade that both gave."""
    found = []
    for row in rows:
        label = labels.get(row.sample.id)
        grades = raw_grades(row, metric)
        if isinstance(label, Mapping):
            found += [(name, (grades[name], label[name])) for name in grades if name in label]
    return found


def _of_whole(label: Label | None, metric: Metric, scale: tuple[int, int]) -> float | None:
    """A label as one number."""
    if not isinstance(label, Mapping):
        return label
    weights: Mapping[str, float] = metric.options.get("weights", {})
    parts = [(weights.get(name, 1.0 if not weights else 0.0), grade) for name, grade in label.items()]
    total = sum(weight for weight, _ in parts)
    return sum(weight * grade for weight, grade in parts) / total if total else None


def _match(pairs: Sequence[tuple[int, int]], scale: tuple[int, int]) -> Match:
    if not pairs:
        return Match(0)
    apart = [abs(own - label) for own, label in pairs]
    exact, near = (sum(gap <= most for gap in apart) / len(pairs) for most in (0, 1))
    return Match(len(pairs), exact, near, cohen_kappa(*zip(*pairs, strict=True), quadratic=True))


def _stability(own: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> float | None:
    taus = [tau for other in others if (tau := _kendall(own, other)) is not None]
    return fmean(taus) if taus else None


def _kendall(one: Mapping[str, float], other: Mapping[str, float]) -> float | None:
    """Of the order of the models that both rank."""
    models = [model for model in one if model in other]
    return kendall([one[model] for model in models], [other[model] for model in models])


def _means_of_models(report: Report, metric: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in report.rows:
        model, score = row.sample.metadata.get(MODEL), row.scores.get(metric)
        if model is not None and score is not None and score.value is not None:
            values.setdefault(str(model), []).append(score.value)
    return {model: fmean(own) for model, own in values.items()}


def _cost(summary: MetricSummary, price: Price | None) -> float | None:
    if price is None or summary.input_tokens is None:
        return None
    return (summary.input_tokens * price[0] + (summary.output_tokens or 0) * price[1]) / _PER


def _told_of_orders(rows: Sequence[StudyRow]) -> list[str]:
    if any(len(row.models) < 2 for row in rows) or len(rows) < 2:
        return []
    orders = Counter(" > ".join(row.order) for row in rows)
    if not any(_contradict(one.models, other.models) for one, other in combinations(rows, 2)):
        return [f"No row ranks the models otherwise: {next(iter(orders))}."]
    told = "; ".join(f"{order} ({count} of {len(rows)} rows)" for order, count in orders.most_common())
    return [f"Who ranks the models decides their order: {told}. Do not go by one row."]


def _contradict(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two models stand one way round here and the other way round there."""
    shared = [model for model in one if model in other]
    return any((one[a] - one[b]) * (other[a] - other[b]) < 0 for a, b in combinations(shared, 2))


def _record(row: StudyRow) -> dict[str, Any]:
    apart = ("match", "by_criterion", "models", "summary")
    told = {name: value for name, value in vars(row).items() if name not in apart} | {"order": row.order}
    told |= {name: getattr(row.match, name) for name in ("pairs", "exact", "within_one", "kappa")}
    told |= {f"{name}.exact": match.exact for name, match in row.by_criterion.items()}
    usage = {name: getattr(row.summary, name) for name in ("calls", "input_tokens", "output_tokens", "seconds")}
    return told | usage
