"""leaderboard: ranks models by their answers to the same questions, and marks differences that are not significant."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.page import pluralize
from langchain_rageval.chains.chain_input import conversation_keys, input_builder, turn_messages
from langchain_rageval.chains.events import ChainCollector
from langchain_rageval.data.loading import parse_record
from langchain_rageval.data.messages import CONTEXT_NOTES
from langchain_rageval.data.notes import code_of
from langchain_rageval.data.schema import Direction, Row, Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.inputs import Samples, prepare_samples
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.report.comparison import compare_paired
from langchain_rageval.report.files import ReportData, metric_or_only
from langchain_rageval.report.metric_comparison import MetricComparison
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import summarise
from langchain_rageval.report.tables import Analysis, interval_text, number_text, p_text
from langchain_rageval.run.threads import shared_threads
from langchain_rageval.statistics import holm
from langchain_rageval.text.language import detect_language

if TYPE_CHECKING:
    import pandas


log = logging.getLogger("langchain_rageval")

MODEL_KEY = "model"
"""Key of a sheet's metadata that holds the name of its model."""


def answer_sheets(
    models: Mapping[str, Runnable[Any, Any]], samples: Samples, *, max_concurrency: int = 8
) -> list[Sample]:
    """Collect the answers of several chains or models to the same questions.

    Each model is called by `invoke` in worker threads; use its `with_retry` to retry transport errors.

    Args:
        models: mapping from a name to a chain or a chat model; a chat model may be followed by a parser. A chain
            receives a mapping with the question as `question` and `input`, and the sample's contexts as `contexts`, a
            list of texts, and as `context`, one text with blank lines in between; or only the question, if its input is
            a str. It returns a text, a message, or a mapping in any vocabulary that `Sample.parse` reads; contexts that
            it returns replace the sample's. A chat model is instructed to answer from the contexts alone.
        samples: as for `evaluate`; their answers are ignored.
        max_concurrency: maximum number of questions at a time.

    Returns:
        A sheet (a sample with the model's answer) for each model and sample, grouped by model, as input for `evaluate`
        and `leaderboard`. The id of a sheet is the sample's id, "@" and the model's name. The name is also in
        `metadata["model"]`. If a model failed, `answer` is None, `metadata["error"]` holds the error, and a warning is
        logged. `evaluate` counts such a sheet as a failure with that error, unless all sheets lack an answer.

    Raises:
        ConfigError: if `models` is not a mapping from names to Runnables, or `max_concurrency` is not a whole number
            of at least 1.
        SampleError: if a sample cannot be read.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError('models must be a mapping of names to chains, such as {"new": chain}')
    for name, model in models.items():
        if not isinstance(name, str) or not name.strip() or not isinstance(model, Runnable):
            raise ConfigError(f"models must map names to chains or chat models, got {name!r}: {type(model).__name__}")
    if not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency must be a whole number of at least 1, got {max_concurrency!r}")
    unanswered = [
        sample.model_copy(
            update={"id": f"{sample.id}@{name}", "answer": None, "metadata": {**sample.metadata, MODEL_KEY: name}}
        )
        for sample in parse_samples(samples)
        for name in models
    ]
    jobs = [partial(_answer, models[sheet.metadata[MODEL_KEY]], sheet) for sheet in unanswered]
    sheets = [*shared_threads().stream(jobs, max_concurrency)]
    if failed := [sheet for sheet in sheets if sheet.answer is None]:
        error = failed[0].metadata.get("error", "the chain returned no answer")
        log.warning("%d of %d answers failed; the first, %s: %s", len(failed), len(sheets), failed[0].id, error)
    return [sheet for name in models for sheet in sheets if sheet.metadata[MODEL_KEY] == name]


def parse_samples(samples: Samples) -> Iterator[Sample]:
    """Yield samples from any input that `evaluate` accepts, except an async iterator.

    Raises:
        SampleError: if a sample cannot be read.
    """
    for item in prepare_samples(samples, []):
        if isinstance(item, SampleError):  # a line of a file
            raise item
        yield parse_record(item)


def _answer(model: Runnable[Any, Any], unanswered: Sample) -> Sample:
    collector = ChainCollector()
    try:
        output = model.invoke(_input(model, unanswered), collector.config(None, conversation_keys(model)))
    except Exception as error:
        output = error
    answer = collector.answer(unanswered.question, output, model)
    sheet = answer.into(unanswered)
    if answer.contexts not in (None, unanswered.contexts):
        return sheet
    metadata = {name: value for name, value in sheet.metadata.items() if name not in CONTEXT_NOTES}
    own = {"contexts": unanswered.contexts, "context_ids": unanswered.context_ids, "metadata": metadata}
    return sheet.model_copy(update=own)


def _input(model: Runnable[Any, Any], sheet: Sample) -> Any:
    first = model.first if isinstance(model, RunnableSequence) else model
    if not all(isinstance(inner, BaseChatModel) for inner in inner_models(first)):
        value = input_builder(model, ("contexts", "context"))(sheet.question, sheet.history)
        contexts = sheet.contexts or []
        return {**value, "contexts": contexts, "context": "\n\n".join(contexts)} if isinstance(value, dict) else value
    texts = _prompt_texts().get(detect_language(sheet.question)) or _prompt_texts()["en"]
    question = f"{texts['question']} {sheet.question}"
    if sheet.contexts is None:
        return [SystemMessage(texts["without_contexts"]), *turn_messages(sheet.history), HumanMessage(question)]
    block = "\n\n".join(f"[{number}] {context}" for number, context in enumerate(sheet.contexts, 1))
    asked = HumanMessage(f"{texts['contexts']}\n{block}\n\n{question}")
    return [SystemMessage(texts["with_contexts"]), *turn_messages(sheet.history), asked]


@lru_cache
def _prompt_texts() -> Mapping[str, Mapping[str, str]]:
    source = files("langchain_rageval.prompts").joinpath("answer_sheets.yaml").read_text(encoding="utf-8")
    texts: Mapping[str, Mapping[str, str]] = load_yaml(source)
    return texts


ALPHA = 0.05


@dataclass(frozen=True)
class Standing:
    """Place and statistics of one model on a leaderboard.

    Attributes:
        model: name of the model.
        place: rank by the mean, from 1; tied models have different places.
        mean: mean of the metric over the scored samples; None if there are none.
        low: lower end of the 95% interval of the mean; None without a mean, or if the metric has no finite range.
        high: upper end of the 95% interval of the mean; None if `low` is None.
        scored: number of samples with a value.
        unscored: number of samples to which the metric does not apply.
        failed: number of samples whose score failed.
        grades: mapping from each criterion to its mean raw grade; empty unless the metric is a rubric.
        difference: mean difference (value of this model minus value of the model one place above) over the questions
            for which both models have a value; None for the first model, and if there is no such question.
        difference_low: lower end of the 95% interval of the difference.
        difference_high: upper end of the 95% interval of the difference.
        pairs: number of questions that the difference is based on.
        p_value: p-value of the difference, by the paired test of `Report.compare`, Holm-adjusted over the leaderboard;
            None if there are too few pairs.
        tied: True if the difference to the model one place above is not significant at 5%, or cannot be tested; False
            for the first model.
    """

    model: str
    place: int
    mean: float | None
    low: float | None
    high: float | None
    scored: int
    unscored: int
    failed: int
    grades: Mapping[str, float]
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    pairs: int = 0
    p_value: float | None = None
    tied: bool = False

    def __str__(self) -> str:
        """Return the standing as a line: place, name, mean with interval, number of answers, and difference."""
        place, model, mean, interval, answers, difference, p = standing_cells(self)
        comparison = f"; to the one above {difference}, p {p}" if self.pairs else ""
        return f"{place}. {model} {mean} {interval} ({answers} answers){comparison}"


class Leaderboard(Analysis[Standing]):
    """Mapping from the name of a model to its standing, the model with the best mean score first.

    Attributes:
        metric: name of the metric that ranks the models.
        direction: "higher" or "lower": which values are better.
        notes: caveats for the reader: the report's notes, samples that name no model, answers without a value.
    """

    def __init__(self, metric: str, direction: Direction, standings: Iterable[Standing], notes: Sequence[str]) -> None:
        super().__init__({standing.model: standing for standing in standings}, notes)
        self.metric, self.direction = metric, direction

    @property
    def headings(self) -> Sequence[str]:
        """Headings of the columns: place, model, mean, interval, answers, difference, p-value, then each criterion."""
        return (*HEADINGS, *self.criteria)

    def cells(self) -> list[tuple[str, ...]]:
        """Return a table row for each model, the model with the best mean score first.

        The row has a cell for each of `headings`, such as place, mean and difference to the model above.
        """
        criteria = self.criteria
        return [
            (*standing_cells(one), *(number_text(one.grades.get(name), ".2f") for name in criteria))
            for one in self.values()
        ]

    @property
    def rows(self) -> list[Standing]:
        """Standings (place and statistics) of all models, the model with the best mean score first."""
        return list(self.values())

    @property
    def criteria(self) -> list[str]:
        """Names of the rubric criteria that at least one model has a mean grade for."""
        return list(dict.fromkeys(name for standing in self.values() for name in standing.grades))

    @property
    def title(self) -> str:
        """Heading of the leaderboard: the number of models and the metric."""
        better = "" if self.direction == "higher" else ", lower is better"
        return f"{pluralize(len(self), 'model')} by {self.metric}{better}, 95% intervals"

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with a row for each model and a column "grade.<criterion>" for each criterion."""
        import pandas

        fields = [
            {**vars(one), **{f"grade.{name}": grade for name, grade in one.grades.items()}} for one in self.values()
        ]
        return pandas.DataFrame(fields).drop(columns="grades")


HEADINGS = ("place", "model", "mean", "95% interval", "answers", "to the one above", "p")


def standing_cells(standing: Standing) -> tuple[str, ...]:
    """Return the table row of a model: place, name, mean, interval, answers, difference to the model above, p-value."""
    s, count = standing, standing.scored + standing.unscored + standing.failed
    interval = interval_text(s.low, s.high) or "–"
    answers = str(count) if s.scored == count else f"{s.scored} of {count}"
    difference = f"{number_text(s.difference, '+.3f')} {interval_text(s.difference_low, s.difference_high, '+.3f')}"
    p = "too few pairs" if s.pairs else "–"
    if s.p_value is not None:
        p = f"{p_text(s.p_value)}, tied" if s.tied else p_text(s.p_value)
    return (str(s.place), s.model, number_text(s.mean), interval, answers, difference.rstrip(), p)


def leaderboard(report: Report | Sequence[Row], metric: str | None = None) -> Leaderboard:
    """Rank the models whose answers a report has scored; see `answer_sheets`.

    Each model is compared with the one above it, question by question, by the paired test of `Report.compare`.

    Args:
        report: a report or its rows. Each sample names its model in `metadata["model"]`; the ids of samples with the
            same question differ only in "@" and the name of the model.
        metric: name of the metric to rank by; by default "rubric", or the only metric of the report.

    Returns:
        The standings by model, the best mean score first, each with the difference to the model above.

    Raises:
        ConfigError: if no sample names its model, or the metric is missing or ambiguous.
    """
    rows = report.rows if isinstance(report, Report) else report
    by_model: dict[str, list[Row]] = {}
    nameless = 0
    names: dict[str, Direction] = {}
    for row in rows:
        names |= {name: score.direction for name, score in row.scores.items()}
        model = row.sample.metadata.get(MODEL_KEY)
        nameless += model is None
        if model is not None:
            paired = row.sample.model_copy(update={"id": row.sample.id.removesuffix(f"@{model}")})
            by_model.setdefault(str(model), []).append(row.model_copy(update={"sample": paired}))
    if not by_model:
        raise ConfigError('no sample names its model in metadata["model"]; answer_sheets makes samples that do')
    metric = metric_or_only(ReportData(rows), "rubric" if metric is None and "rubric" in names else metric)
    standings, comparison_notes = _standings(by_model, metric, names[metric])
    notes = list(report.notes) if isinstance(report, Report) else []
    notes += [f"Left out: {pluralize(nameless, 'sample')} without the name of a model."] if nameless else []
    notes += [
        f"{one.model}: {missing} of {missing + one.scored} answers have no value; the mean is of the rest."
        for one in standings
        if (missing := one.unscored + one.failed)
    ]
    return Leaderboard(metric, names[metric], standings, [*notes, *comparison_notes])


def _standings(
    by_model: Mapping[str, list[Row]], metric: str, direction: Direction
) -> tuple[list[Standing], list[str]]:
    """Return the standings of the models in order, each compared with the one above, and notes on the comparisons."""
    summaries = {model: summarise(rows).get(metric) for model, rows in by_model.items()}
    means = {model: summary.mean if summary else None for model, summary in summaries.items()}
    sign, none = 1 if direction == "higher" else -1, MetricComparison(metric, direction)
    models = sorted(by_model, key=lambda model: (means[model] is None, -sign * (means[model] or 0.0)))
    runs = pairwise(ReportData(by_model[model]) for model in models)
    pairs = [compare_paired(own, above, allow_different_instruments=True) for above, own in runs]
    compared = dict(zip(models, [none, *(pair.get(metric, none) for pair in pairs)], strict=True))
    testable = {model: one.p_unadjusted for model, one in compared.items() if one.verdict != "too few pairs"}
    p_values = {model: p_value for model, p_value in testable.items() if p_value is not None}
    adjusted = dict(zip(p_values, holm([*p_values.values()]), strict=True))
    standings = []
    for place, (model, one) in enumerate(compared.items(), 1):
        s, grades = summaries[model], _mean_grades(by_model[model], metric)
        counts = (s.low, s.high, s.scored, s.unscored, s.failed) if s else (None, None, 0, 0, 0)
        difference, p_value = (one.difference, one.low, one.high, one.pairs), adjusted.get(model)
        tied = place > 1 and (p_value is None or p_value >= ALPHA)
        standings.append(Standing(model, place, means[model], *counts, grades, *difference, p_value, tied))
    notes = [note for pair in pairs for note in pair.notes]
    told = [note for note in notes if code_of(note) in ("different-instruments", "no-common-sample")]
    return standings, list(dict.fromkeys(told))


def _mean_grades(rows: Iterable[Row], metric: str) -> dict[str, float]:
    """Return the mean raw grade of each criterion over the rows; empty if the metric is not a rubric."""
    grades: dict[str, list[int]] = {}
    for row in rows:
        for name, grade in raw_grades(row, metric).items():
            grades.setdefault(name, []).append(grade)
    return {name: fmean(values) for name, values in grades.items()}


def raw_grades(row: Row, metric: str) -> dict[str, int]:
    """Return the grade of each criterion that a rubric gave to a row; empty if the metric is not a rubric."""
    score = row.scores.get(metric)
    findings = [finding for finding in score.findings if finding.kind == "criterion"] if score else []
    return {f.text: int(f.verdict) for f in findings if f.verdict.removeprefix("-").isdecimal()}
