"""leaderboard: the models of a report, best first, and which of them the samples do not tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.comparison import compare_rows
from langchain_rageval.report.html_table import html_table
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import summarise
from langchain_rageval.statistics import holm
from langchain_rageval.trust.answer_sheets import MODEL, question_id

if TYPE_CHECKING:
    import pandas

ALPHA = 0.05

Rows = list[Row]


@dataclass(frozen=True)
class Standing:
    """One model of a leaderboard.

    Attributes:
        model: its name.
        place: from 1; models that are not told apart have places of their own all the same, by their means.
        mean: of the metric over its scored samples; None when there are none.
        low: lower end of the 95% interval of the mean; None as in `Report.summary`.
        high: its upper end.
        scored: samples with a value.
        unscored: samples to which no value applies.
        failed: samples whose score could not be had.
        grades: criterion to its mean raw grade, for a rubric.
        difference: mean of its values minus those of the model above, over the questions for which both have one; None
            for the first, and where there is no such question.
        difference_low: lower end of the 95% interval of the difference.
        difference_high: its upper end.
        pairs: the questions that it comes from.
        p_value: of "the two are equal", by the paired test of `Report.compare`, Holm-adjusted over the leaderboard;
            None where there are too few pairs.
        tied: whether the samples do not tell it apart from the model above.
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
        """One line: place, name, mean with interval, how many answers count, and how it stands to the model above."""
        place, model, mean, interval, answers, difference, p = cells(self)
        apart = f"; to the one above {difference}, p {p}" if self.pairs else ""
        return f"{place}. {model} {mean} {interval} ({answers} answers){apart}"


class Leaderboard(Mapping[str, Standing]):
    """Model to its standing, best first.

    Attributes:
        metric: by which they are ranked.
        direction: whether "higher" or "lower" values are better.
        notes: what a reader should know: those of the report, and such as that some samples name no model.
    """

    def __init__(self, metric: str, direction: Direction, standings: Iterable[Standing], notes: Sequence[str]) -> None:
        self._standings = {standing.model: standing for standing in standings}
        self.metric = metric
        self.direction = direction
        self.notes = list(notes)

    def __getitem__(self, model: str) -> Standing:
        """One model."""
        return self._standings[model]

    def __iter__(self) -> Iterator[str]:
        """The models, best first."""
        return iter(self._standings)

    def __len__(self) -> int:
        """Number of models."""
        return len(self._standings)

    def __repr__(self) -> str:
        """A line for each model, and the notes."""
        return "\n".join([self.title, *map(str, self.values()), *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        criteria = self.criteria
        rows = ((*cells(s), *(_number(s.grades.get(name), ".2f") for name in criteria)) for s in self.values())
        return html_table(self.title, (*HEADINGS, *criteria), rows, self.notes)

    @property
    def rows(self) -> list[Standing]:
        """The standings, best first."""
        return list(self.values())

    @property
    def criteria(self) -> list[str]:
        """The criteria whose mean grades are known."""
        return list(dict.fromkeys(name for standing in self.values() for name in standing.grades))

    @property
    def title(self) -> str:
        """What is ranked by what."""
        better = "" if self.direction == "higher" else ", lower is better"
        return f"{len(self)} model{'' if len(self) == 1 else 's'} by {self.metric}{better}, 95% intervals"

    def to_pandas(self) -> pandas.DataFrame:
        """One line for each model; each criterion's mean grade in a column of its own."""
        import pandas

        return pandas.DataFrame([_record(standing) for standing in self.values()])


HEADINGS = ("place", "model", "mean", "95% interval", "answers", "to the one above", "p")


def cells(standing: Standing) -> tuple[str, ...]:
    """One model as the cells of a table under `HEADINGS`."""
    s, count = standing, standing.scored + standing.unscored + standing.failed
    interval = "–" if s.low is None else f"[{s.low:.3f}, {s.high:.3f}]"
    answers = str(count) if s.scored == count else f"{s.scored} of {count}"
    difference = "–"
    if s.difference is not None:
        difference = f"{s.difference:+.3f} [{s.difference_low:+.3f}, {s.difference_high:+.3f}]"
    return (str(s.place), s.model, _number(s.mean, ".3f"), interval, answers, difference, _p(s))


def leaderboard(report: Report | Sequence[Row], metric: str | None = None) -> Leaderboard:
    """Rank the models whose answers a report has scored; see `answer_sheets`.

    Neighbours are compared question by question, by the paired test of `Report.compare`.

    Args:
        report: its samples name their model in `metadata["model"]`; those of one question have one id, but for "@" and
            the name of the model.
        metric: by which to rank; by default "rubric", or the only metric there is.

    Returns:
        The models, the best first, each with how it stands to the one above.

    Raises:
        ConfigError: if no sample names its model, or the metric is not there or not clear.
    """
    rows = report.rows if isinstance(report, Report) else report
    by_model: dict[str, Rows] = {}
    nameless = 0
    names: dict[str, Direction] = {}
    for row in rows:
        names |= {name: score.direction for name, score in row.scores.items()}
        model = row.sample.metadata.get(MODEL)
        nameless += model is None
        if model is not None:
            paired = row.sample.model_copy(update={"id": question_id(row.sample)})
            by_model.setdefault(str(model), []).append(row.model_copy(update={"sample": paired}))
    if not by_model:
        raise ConfigError('no sample names its model in metadata["model"]; answer_sheets makes samples that do')
    metric = _known(metric, list(names))
    sign = 1 if names[metric] == "higher" else -1
    standings = [_standing(model, own, metric) for model, own in by_model.items()]
    standings.sort(key=lambda s: (s.mean is None, -sign * (s.mean or 0.0)))
    notes = list(report.notes) if isinstance(report, Report) else []
    notes += [f"{nameless} samples name no model and are left out."] if nameless else []
    notes += [_of_coverage(standing) for standing in standings if standing.unscored or standing.failed]
    placed, told = _against_neighbours(standings, by_model, metric)
    return Leaderboard(metric, names[metric], placed, [*notes, *told])


def _known(metric: str | None, names: Sequence[str]) -> str:
    there = ", ".join(names) or "none"
    if metric is None:
        metric = "rubric" if "rubric" in names else names[0] if len(names) == 1 else None
        if metric is None:
            raise ConfigError(f"leaderboard ranks by one metric; say metric=..., there are {there}")
    if metric not in names:
        raise ConfigError(f"the report has no metric {metric!r}; it has {there}")
    return metric


def _standing(model: str, rows: Rows, metric: str) -> Standing:
    """A model by itself."""
    summary = summarise(rows).get(metric)
    if summary is None:
        return Standing(model, 0, None, None, None, 0, 0, 0, {})
    counts = (summary.scored, summary.unscored, summary.failed)
    return Standing(model, 0, summary.mean, summary.low, summary.high, *counts, mean_grades(rows, metric))


def mean_grades(rows: Iterable[Row], metric: str) -> dict[str, float]:
    """Criterion to its mean raw grade over the rows that a rubric has scored; nothing for another metric."""
    grades: dict[str, list[int]] = {}
    for row in rows:
        for name, grade in raw_grades(row, metric).items():
            grades.setdefault(name, []).append(grade)
    return {name: fmean(given) for name, given in grades.items()}


def raw_grades(row: Row, metric: str) -> dict[str, int]:
    """Criterion to the grade that a rubric found for a row; nothing for another metric."""
    score = row.scores.get(metric)
    found = [finding for finding in score.findings if finding.kind == "criterion"] if score else []
    return {f.text: int(f.verdict) for f in found if f.verdict.removeprefix("-").isdecimal()}


def _against_neighbours(
    standings: Sequence[Standing], by_model: Mapping[str, Rows], metric: str
) -> tuple[list[Standing], list[str]]:
    """The standings in their order with place and the difference to the one above, and notes on the comparisons."""
    compared, notes = [replace(standings[0], place=1)], list[str]()
    for place, (above, own) in enumerate(pairwise(standings), 2):
        pair = compare_rows(by_model[own.model], by_model[above.model], 0.0, None, True)
        told = pair.get(metric)
        notes += [note for note in pair.notes if note.startswith(("Different", "No sample"))]
        if told is None or not told.pairs:
            compared.append(replace(own, place=place, tied=True))
            continue
        enough = told.verdict != "too few pairs"
        compared.append(
            replace(
                own,
                place=place,
                difference=told.difference,
                difference_low=told.low,
                difference_high=told.high,
                pairs=told.pairs,
                p_value=told.p_unadjusted if enough else None,
                tied=True,
            )
        )
    tested = [standing for standing in compared if standing.p_value is not None]
    adjusted = dict(zip([s.model for s in tested], holm([s.p_value or 0.0 for s in tested]), strict=True))
    placed = [
        replace(s, p_value=adjusted[s.model], tied=adjusted[s.model] >= ALPHA) if s.model in adjusted else s
        for s in compared
    ]
    return placed, list(dict.fromkeys(notes))


def _p(standing: Standing) -> str:
    if standing.p_value is None:
        return "too few pairs" if standing.pairs else "–"
    p = "< 0.001" if standing.p_value < 0.001 else f"{standing.p_value:.3f}"
    return f"{p}, tied" if standing.tied else p


def _of_coverage(standing: Standing) -> str:
    without = standing.unscored + standing.failed
    return f"{standing.model}: {without} of {without + standing.scored} answers have no value; the mean is of the rest."


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _record(standing: Standing) -> dict[str, Any]:
    told = {name: value for name, value in vars(standing).items() if name != "grades"}
    return told | {f"grade.{name}": grade for name, grade in standing.grades.items()}
