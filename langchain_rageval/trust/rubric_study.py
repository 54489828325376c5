"""rubric_study: compares judges and rubrics (scale, criteria, graded examples) by agreement with labels and by cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Unpack

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError, list_choices
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.inputs import Samples
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, EvaluateOptions
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.rubric import rubric
from langchain_rageval.prompts.criteria import DEFAULT_SCALE, Scale
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import MetricSummary
from langchain_rageval.report.tables import Shown, number_text
from langchain_rageval.run.run import fill_defaults
from langchain_rageval.run.usage import PriceList, is_amount
from langchain_rageval.statistics.agreement import statistic
from langchain_rageval.trust.leaderboard import MODEL_KEY, parse_samples, raw_grades

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class GradeMatch:
    """Agreement of a judge's grades with human grades.

    Attributes:
        pairs: number of grades that both the judge and a human gave.
        exact: share of the pairs that are equal, from 0 to 1; None without pairs.
        within_one: share of the pairs that differ by at most 1, from 0 to 1; None without pairs.
        kappa: Cohen's kappa with quadratic weights; None if all grades of judge and human are the same grade.
    """

    pairs: int
    exact: float | None = None
    within_one: float | None = None
    kappa: float | None = None

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> GradeMatch:
        """Compute the number of pairs, the shares of equal and nearly equal grades, and kappa.

        Each pair holds a judge's grade and a human grade.
        """
        if not pairs:
            return cls(0)
        differences = [abs(grade - label) for grade, label in pairs]
        exact, within_one = (sum(gap <= most for gap in differences) / len(pairs) for most in (0, 1))
        return cls(len(pairs), exact, within_one, statistic("weighted_kappa", *zip(*pairs, strict=True)))


@dataclass(frozen=True)
class StudyRow:
    """Results of one judge with one rubric over all sheets, the samples of the study.

    Attributes:
        judge: name of the judge.
        rubric: name of the rubric.
        scale: lowest and highest grade; None for a metric that is not a rubric.
        mean: mean of the values, from 0 to 1; None if nothing was scored.
        low: lower end of the 95% interval of the mean.
        high: upper end of the 95% interval of the mean.
        spread: standard deviation of the values; None for fewer than two.
        scored: number of sheets with a value.
        failed: number of sheets whose score failed.
        match: agreement of all grades with the labels; it has no pairs if the labels have another scale.
        by_criterion: mapping from each criterion to the agreement of its grades with the labels.
        spearman: rank correlation of the values with the labels, over the sheets that have both; None for fewer than
            two sheets, and if either side is constant.
        models: mapping from each model to the mean of its values, the model with the best mean first; empty if no sheet
            names its model.
        stability: mean rank correlation (Kendall's tau-b) between the models' means in this row and in each other row;
            None for a single row or model, and if the means are all equal.
        summary: counts, calls, tokens and seconds, as in `Report.summary`.
        cost: cost in the currency of the price; None without a price, or if the model reports no tokens.
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
    match: GradeMatch
    by_criterion: Mapping[str, GradeMatch]
    spearman: float | None
    models: Mapping[str, float]
    stability: float | None
    summary: MetricSummary
    cost: float | None

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the models, the model with the best mean score first."""
        return tuple(self.models)

    @property
    def calls(self) -> int:
        """Number of model calls that this row of the study cost."""
        return self.summary.calls

    @property
    def tokens(self) -> int | None:
        """Number of input and output tokens together; None if the model does not report usage."""
        return self.summary.usage.tokens


RubricOptions = Mapping[str, Any] | Callable[[Judge], Metric]
SheetLabel = Mapping[str, int] | float


class RubricStudy(Shown, Sequence[StudyRow]):
    """Sequence of rows, one for each judge and rubric, grouped by judge.

    Attributes:
        rows: the rows as a list.
        report: `evaluate` report on the sheets (the graded answers). Each judge with each rubric is one metric of the
            report, named "<judge> | <rubric>".
        notes: caveats for the reader, such as whether all rows rank the answering models in the same order.
    """

    headings = (
        *("judge", "rubric", "mean", "spread", "exact", "within 1", "kappa", "Spearman", "stability"),
        *("failed", "calls", "tokens", "cost"),
    )

    def __init__(self, rows: Sequence[StudyRow], report: Report, notes: Sequence[str]) -> None:
        self.rows, self.report, self.notes = list(rows), report, list(notes)

    def __getitem__(self, place: Any) -> Any:
        """Return a row of the study by its index, or by the names of judge and rubric: `study["gpt", "0-3"]`."""
        if isinstance(place, tuple):
            rows = [row for row in self.rows if (row.judge, row.rubric) == place]
            if not rows:
                raise KeyError(place)
            return rows[0]
        return self.rows[place]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def title(self) -> str:
        """Heading of the study: the numbers of judges, rubrics and answers."""
        counts = {name: len({getattr(row, name) for row in self}) for name in ("judge", "rubric")}
        parts = (pluralize(count, name) for name, count in counts.items())
        return f"Study of {' × '.join(parts)} over {pluralize(len(self.report), 'answer')}"

    def cells(self) -> list[tuple[str, ...]]:
        """Return a table row for each judge and rubric: mean, agreement with labels, stability, failures and cost."""
        text = number_text
        return [
            (
                *(row.judge, row.rubric, text(row.mean), text(row.spread), text(row.match.exact, ".0%")),
                *(text(row.match.within_one, ".0%"), text(row.match.kappa, ".2f"), text(row.spearman, ".2f")),
                *(text(row.stability, ".2f"), str(row.failed), str(row.calls)),
                *(text(row.tokens, ","), text(row.cost, ".4f")),
            )
            for row in self.rows
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with a row for each judge and rubric: names, statistics, calls, tokens and cost.

        A column "<criterion>.exact" holds the share of the grades of a criterion that equal the human label.
        """
        import pandas

        usage = ("calls", "input_tokens", "output_tokens", "seconds")
        records = [
            {**vars(row), "order": row.order, **vars(row.match)}
            | {f"{name}.exact": match.exact for name, match in row.by_criterion.items()}
            | {name: getattr(row.summary, name) for name in usage}
            for row in self
        ]
        return pandas.DataFrame(records).drop(columns=["match", "by_criterion", "models", "summary"])


def rubric_study(
    judges: Mapping[str, JudgeLike],
    rubrics: Mapping[str, RubricOptions],
    sheets: Samples,
    labels: Mapping[str, SheetLabel] | None = None,
    *,
    label_scale: tuple[int, int] = DEFAULT_SCALE,
    **options: Unpack[EvaluateOptions],
) -> RubricStudy:
    """Grade the same answers by every judge with every rubric, and measure agreement with labels and cost.

    Args:
        judges: mapping from a name to a judge.
        rubrics: mapping from a name to the options of `rubric`, such as {"scale": (0, 3), "examples": "none"}; or to a
            function from a judge to a metric, such as `partial(rubric, criteria=mine)`.
        sheets: answers of several models, as returned by `answer_sheets`, or other samples; a sheet without an answer
            is a failure in every row.
        labels: mapping from the id of a sheet to its human label: a mapping from criterion to grade on `label_scale`,
            or one number for the whole answer. A mapping is also averaged, with the rubric's weights, to a label of the
            whole answer.
        label_scale: lowest and highest grade of the labels. Grades are compared only for rubrics with the same scale,
            ranks for all.
        **options: options of `evaluate`; with a `journal`, a repetition of the same study does not pay for the scores
            again. `price` maps names of judges, not of models, to prices of a million input tokens and a million output
            tokens.

    Returns:
        A row of statistics and costs for each judge and rubric, and the report with every grade.

    Raises:
        ConfigError: if judges, rubrics, labels or prices are invalid.
        SampleError: if a sheet cannot be read.
    """
    for option, value in (("judges", judges), ("rubrics", rubrics)):
        if not isinstance(value, Mapping) or not value:
            raise ConfigError(f"{option} must be a mapping of names, got {type(value).__name__ if value else 'none'}")
    metrics = {
        (judge_name, rubric_name): _build_metric(f"{judge_name} | {rubric_name}", Judge.of(judge), choice)
        for judge_name, judge in judges.items()
        for rubric_name, choice in rubrics.items()
    }
    prices = _prices_of(options.pop("price", None) or {}, judges)
    samples = list(parse_samples(sheets))
    known_labels = _select_labels(labels or {}, {sheet.id for sheet in samples}, label_scale)
    chosen = fill_defaults(rubric_study, options, EVALUATE_DEFAULTS)
    report = evaluate(iter(samples), list(metrics.values()), **chosen)
    means = {names: _model_means(report, metric.name) for names, metric in metrics.items()}
    rows = [_row(names, metric, report, known_labels, label_scale, prices, means) for names, metric in metrics.items()]
    return RubricStudy(rows, report, [*report.notes, *_order_notes(rows)])


def _build_metric(name: str, judge: Judge, options: RubricOptions) -> Metric:
    if isinstance(options, Mapping):
        try:
            return rubric(judge, **{**options, "name": name})
        except TypeError as error:
            raise ConfigError(f"{name}: invalid options of rubric: {error}") from None
    metric = options(judge) if callable(options) else options
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"{name}: rubrics must be a mapping of options, or a function from a judge to a metric, got "
            f"{type(metric).__name__}"
        )
    return metric.model_copy(update={"name": name})


def _prices_of(price: Any, judges: Mapping[str, JudgeLike]) -> PriceList:
    """Return the prices of judges, of two numbers each: a summary does not say how many input tokens were cached."""
    expected = "price must map names of judges to (per million input tokens, per million output tokens)"
    if not isinstance(price, Mapping):
        raise ConfigError(f"{expected}, got {price!r}")
    for name, one in price.items():
        if name not in judges:
            raise ConfigError(f"price names {name!r}, but the judges are {list_choices(name, judges)}")
        if not isinstance(one, list | tuple) or len(one) != 2 or not all(map(is_amount, one)):
            raise ConfigError(f"{expected}, got {name}: {one!r}")
    return PriceList(price)


def _select_labels(labels: Mapping[str, SheetLabel], ids: set[str], scale: tuple[int, int]) -> Mapping[str, SheetLabel]:
    known = {sheet: label for sheet, label in labels.items() if sheet in ids}
    if labels and not known:
        examples = ", ".join(sorted(ids)[:3])
        raise ConfigError(f"no label belongs to these sheets: the keys of labels are ids of sheets, such as {examples}")
    for sheet, label in known.items():
        for name, grade in label.items() if isinstance(label, Mapping) else ():
            if not isinstance(grade, int) or not scale[0] <= grade <= scale[1]:
                raise ConfigError(
                    f"the label of {sheet!r} for {name} is {grade!r}, not a grade from {scale[0]} to {scale[1]}: "
                    "correct it or pass label_scale=(lowest, highest)"
                )
    return known


def _row(
    names: tuple[str, str],
    metric: Metric,
    report: Report,
    labels: Mapping[str, SheetLabel],
    label_scale: tuple[int, int],
    prices: PriceList,
    means: Mapping[tuple[str, str], Mapping[str, float]],
) -> StudyRow:
    key = metric.name
    scale = metric.options.get("scale")
    scored = [row for row in report.rows if key in row.scores and row.scores[key].value is not None]
    values = [float(row.scores[key]) for row in scored]
    summary = report.summary()[key]
    grades = _grade_pairs(scored, key, labels) if scale and tuple(scale) == tuple(label_scale) else {}
    own_means, sign = means[names], 1 if metric.direction == "higher" else -1
    label_values = [_label_value(labels.get(row.sample.id), metric) for row in scored]
    labelled = [(value, label) for value, label in zip(values, label_values, strict=True) if label is not None]
    counts = {"input_tokens": summary.input_tokens, "output_tokens": summary.output_tokens}
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
        match=GradeMatch.of([pair for pairs in grades.values() for pair in pairs]),
        by_criterion={name: GradeMatch.of(pairs) for name, pairs in grades.items()},
        spearman=statistic("spearman", *zip(*labelled, strict=True)) if labelled else None,
        models=dict(sorted(own_means.items(), key=lambda item: -sign * item[1])),
        stability=_stability(own_means, [other for key, other in means.items() if key != names]),
        summary=summary,
        cost=prices.cost([names[0]], {} if summary.input_tokens is None else counts),
    )


def _grade_pairs(
    rows: Sequence[Row], metric: str, labels: Mapping[str, SheetLabel]
) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Return for each criterion a pair (judge's grade, human grade) of each sheet that judge and human graded."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        label = labels.get(row.sample.id)
        own: Mapping[str, int] = label if isinstance(label, Mapping) else {}
        for name, grade in raw_grades(row, metric).items():
            if name in own:
                pairs.setdefault(name, []).append((grade, own[name]))
    return pairs


def _label_value(label: SheetLabel | None, metric: Metric) -> float | None:
    """Return a label as one number: the mean of its grades, weighted as in the rubric."""
    if not isinstance(label, Mapping):
        return label
    weights: Mapping[str, float] = metric.options.get("weights", {})
    parts = [(weights.get(name, 1.0 if not weights else 0.0), grade) for name, grade in label.items()]
    total = sum(weight for weight, _ in parts)
    return sum(weight * grade for weight, grade in parts) / total if total else None


def _stability(means: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> float | None:
    """Return the mean rank correlation (Kendall's tau-b) of one row's ranking of the models with each other row's."""
    taus = []
    for other in others:
        models = [model for model in means if model in other]
        taus.append(statistic("kendall", [means[model] for model in models], [other[model] for model in models]))
    defined = [tau for tau in taus if tau is not None]
    return fmean(defined) if defined else None


def _model_means(report: Report, metric: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in report.rows:
        model, score = row.sample.metadata.get(MODEL_KEY), row.scores.get(metric)
        if model is not None and score is not None and score.value is not None:
            values.setdefault(str(model), []).append(score.value)
    return {model: fmean(model_values) for model, model_values in values.items()}


def _order_notes(rows: Sequence[StudyRow]) -> list[str]:
    if any(len(row.models) < 2 for row in rows) or len(rows) < 2:
        return []
    orders = Counter(" > ".join(row.order) for row in rows)
    if not any(_contradict(one.models, other.models) for one, other in combinations(rows, 2)):
        return [f"No two rows disagree on the order of the models: {next(iter(orders))}."]
    counts = "; ".join(f"{order} ({count} of {len(rows)} rows)" for order, count in orders.most_common())
    return [f"The order of the models depends on judge and rubric: {counts}. Do not rely on a single row."]


def _contradict(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return True if any two models are in opposite order in two rankings."""
    shared = [model for model in one if model in other]
    return any((one[a] - one[b]) * (other[a] - other[b]) < 0 for a, b in combinations(shared, 2))
