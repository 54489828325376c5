"""Report: the rows of a run, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import isclose, isnan, sqrt
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any, TextIO, overload

from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.data.schema import Row, Score
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.metrics.threshold import reaches
from langchain_rageval.report.comparison import Comparison, compare_rows, values_of_pairs
from langchain_rageval.report.diagnosis import Diagnosis, diagnose_rows
from langchain_rageval.report.figure import draw_report
from langchain_rageval.report.files import read_report, write_report
from langchain_rageval.report.labelling import LabelSheet, rows_to_label
from langchain_rageval.report.mlflow import write_run
from langchain_rageval.report.notebook import html_table
from langchain_rageval.report.page import PageLanguage, write_page
from langchain_rageval.report.rescoring import rescored_rows
from langchain_rageval.report.slices import By
from langchain_rageval.report.summary import MetricSummary, Summary, summarise, summarise_slices, summary_line
from langchain_rageval.statistics import detectable_difference

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from langchain_rageval.metrics.metric import Metric


@dataclass(frozen=True, repr=False)
class Report:
    """Scored samples in the order of the input.

    Attributes:
        rows: one for each sample; a list, or, of a run with `out=`, a sequence that reads them from its file.
        notes: what a reader of the numbers should know, such as that an offline baseline judged.
        complete: whether the run came to its end; else rows and scores are those that were finished.
        left_out: place of the sample and name of the metric of every score that the budget had no room for.
        provenance: readable parts of the instruments; `instruments` lists them by metric.
    """

    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    left_out: list[tuple[int, str]] = field(default_factory=list)
    provenance: Provenance = field(default_factory=Provenance, compare=False)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __repr__(self) -> str:
        """The summary, a line for each metric, and the notes."""
        lines = [self._title(), *map(summary_line, self.summary().values())]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """The summary as a table, for notebooks."""
        head = ("metric", "mean", "95% interval", "scored", "unscored", "failed", "abstained", "calls", "tokens")
        return html_table(self._title(), head, map(_cells, self.summary().values()), self.notes)

    @overload
    def summary(self, by: None = None, *, cluster: By | None = None) -> Summary: ...

    @overload
    def summary(self, by: By, *, cluster: By | None = None) -> dict[str, Summary]: ...

    def summary(self, by: By | None = None, *, cluster: By | None = None) -> Summary | dict[str, Summary]:
        """Per metric: mean, 95% interval, counts of scored, unscored, failed and abstained samples, and cost.

        Args:
            by: what slices the report: "metadata.split", "evolution", "language", any dotted path of the sample, or a
                function of it. "metadata." may be left out; a language that no metadata tells is detected from the
                question.
            cluster: what ties samples together, such as "metadata.document" for questions about one document; a
                path or a function like `by`. Intervals then allow for as little information as the clusters hold.

        Returns:
            The summary; with `by` one for each slice, under its value as text in the order of the rows. Samples without
            a value are the last slice, "(none)", and each alone in a cluster.

        Raises:
            ConfigError: if no sample has what `by` or `cluster` names.
        """
        return summarise(self.rows, cluster) if by is None else summarise_slices(self.rows, by, cluster)

    def failures(self) -> list[tuple[Row, Score]]:
        """Every score that could not be had, with its row; `score.failure` says why."""
        return [(row, score) for row in self.rows for score in row.scores.values() if score.failure]

    def worst(self, metric: str, n: int = 5) -> list[Row]:
        """The `n` rows with the worst values of a metric, the worst first.

        Raises:
            ConfigError: if the report has no such metric.
        """
        self._known(metric)
        scored = (row for row in self.rows if metric in row.scores and row.scores[metric].value is not None)
        return nsmallest(n, scored, key=lambda row: _badness(row.scores[metric]))

    def scores(self, metric: str | None = None) -> dict[str, Score]:
        """The scores of a metric by sample id, the first of several with one id.

        Args:
            metric: may be left out when the report has only one.

        Raises:
            ConfigError: if the report has no such metric.
        """
        metric = self._one(metric)
        found: dict[str, Score] = {}
        for row in self.rows:
            if metric in row.scores:
                found.setdefault(row.sample.id, row.scores[metric])
        return found

    def instruments(self) -> dict[str, list[Instrument]]:
        """Return the instruments that gave the scores of each metric, in order of appearance; usually one.

        Each has the digests that the scores carry, and as readable data what found the facts (models with their
        settings, prompts, options of the steps) and what counted them (reducer, options), or why a part is unknown. A
        report that version 0.1.0 or an interrupted process wrote has only digests.
        """
        digests: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for name, score in row.scores.items():
                digests.setdefault(name, {})[score.instrument] = None
        return {name: [self.provenance.instrument(name, one) for one in found] for name, found in digests.items()}

    def to_label(self, n: int, metric: str | None = None, *, seed: int = 0) -> LabelSheet:
        """Draw rows for people to label, so that few labels tell much about the scores of all.

        Every row with a score has the same chance, and the rows are spread evenly over the scores: of the draws that
        `agreement` and `calibrate` may take for a random part, the one that tells most. Rows of which the judge is
        least sure would tell more of the judge's errors, and mislead about how many there are.

        Args:
            n: how many; `calibrate` takes 100 at least.
            metric: whose scores are to be compared with the labels; may be left out when the report has only one.
            seed: of the draw.

        Returns:
            The rows, with `to_csv`; `load_labels` reads what comes back.

        Raises:
            ConfigError: if there is no such metric, nothing is scored, or `n` is below 1.
        """
        return rows_to_label(self.rows, n, self._one(metric), seed)

    def compare(
        self,
        baseline: Report,
        margin: float = 0.0,
        cluster: By | None = None,
        allow_different_instruments: bool = False,
    ) -> Comparison:
        """Say for each metric whether this run, the candidate, is better than a baseline.

        Samples are paired by id, several of one id in their order, and count where both reports have a value. The
        p-value is that of a paired sign-flip permutation test, exact for 0/1 values (McNemar) and up to 15 pairs that
        differ, Holm-adjusted over the metrics; the interval is a bootstrap's.

        Args:
            baseline: the run to compare with.
            margin: by how much a metric may be worse and still be "no worse", in its own units; also when so small a
                loss is significant.
            cluster: what ties samples together, such as "metadata.document"; see `summary`.
            allow_different_instruments: compare also what different judges, prompts, options or versions have scored.

        Returns:
            Metric to its comparison, for the metrics that both have; notes name the others. Never "better" or "no
            worse" where, of the samples that both hold, significantly fewer are scored than in the baseline.

        Raises:
            ConfigError: if instruments differ, `margin` is no number from 0 on, no sample has what `cluster` names, or
                the baseline is no report.
        """
        if not isinstance(baseline, Report):
            raise ConfigError(f"compare takes a report, got {type(baseline).__name__}; Report.load reads one")
        return compare_rows(
            self.rows,
            baseline.rows,
            margin,
            cluster,
            allow_different_instruments,
            (self.provenance, baseline.provenance),
        )

    def minimum_detectable_difference(
        self,
        metric: str,
        power: float = 0.8,
        alpha: float = 0.05,
        correlation: float = 0.5,
        *,
        baseline: Report | None = None,
    ) -> float:
        """The smallest true difference of a metric that `compare` would see with as many samples as are scored here.

        Args:
            metric: of this report.
            power: share of comparisons that would see it.
            alpha: level of the two-sided test; divide it by their number for several metrics.
            correlation: between the values of this run and of the one to come, from -1 to below 1.
            baseline: a run over the same samples, whose real pairs take the place of `correlation`.

        Returns:
            In the metric's units. Where values, or differences, are all equal, their spread is taken with one more at
            each end of the scale.

        Raises:
            ConfigError: if there is no such metric, an option is out of range, or fewer than two samples are scored.
        """
        self._known(metric)
        if not (0 < power < 1 and 0 < alpha < 1 and -1 <= correlation < 1):
            raise ConfigError(
                "power and alpha lie between 0 and 1, correlation from -1 to below 1; "
                f"got {power!r}, {alpha!r}, {correlation!r}"
            )
        if baseline is None:
            values = [row.scores[metric].value for row in self.rows if metric in row.scores]
            known, ends, factor = (
                [value for value in values if value is not None],
                (0.0, 1.0),
                sqrt(2 - 2 * correlation),
            )
        else:
            baseline._known(metric)
            pairs = values_of_pairs(metric, self.rows, baseline.rows)
            known, ends, factor = [own - other for own, other in pairs], (-1.0, 1.0), 1.0
        if len(known) < 2:
            raise ConfigError(f"{metric}: a spread needs at least two scored samples, got {len(known)}")
        spread = stdev(known) or stdev([*known, *ends])
        return detectable_difference(factor * spread, len(known), power, alpha)

    def diagnose(self) -> Diagnosis:
        """Give each row one cause of what is wrong with its answer, as far as the metrics at hand show it.

        With faithfulness, context_recall and answer_correctness, or with claim_metrics, every cause can be told apart.
        A row in which nothing wrong was found is "nothing wrong"; one whose metrics do not show whether there is,
        "cannot tell".

        Returns:
            The rows in order, with counts of the causes and what to look at for each.
        """
        return diagnose_rows(self.rows)

    def rescore(self, metric: Metric) -> Report:
        """This report with a metric replaced or added, from what was found before; nothing is asked.

        For options that only the arithmetic reads: weights, beta and formula of answer_correctness (with one
        reference), the threshold of answer_similarity, the weighting of context_precision, the weights of a
        rubric's criteria. What the judge was asked must be the same; a report does not tell.

        Args:
            metric: found under its name; else, when the report has no such metric, from the only one whose findings
                suffice.

        Returns:
            A new report, its rows in memory. Failures stay failures; a score that is replaced keeps what it cost, one
            that is added costs nothing.

        Raises:
            ConfigError: if the findings do not suffice, or those of several metrics do.
            SampleError: if a sample lacks what the metric reads.
        """
        rows = list(rescored_rows(self.rows, metric))
        return replace(self, rows=rows, provenance=self.provenance.with_counting(metric.name, metric.provenance))

    def check(self, thresholds: Mapping[str, float], max_failed: float = 0.05) -> None:
        """Raise unless the means reach their thresholds.

        Args:
            thresholds: metric to the least mean, or the greatest when lower is better; reaching it passes.
            max_failed: greatest share of failed samples for each of these metrics.

        Raises:
            BelowThreshold: naming every metric that is worse, has nothing scored, or failed too often.
            ConfigError: if the report has no such metric, or a number is none that can be meant.
        """
        _refuse_limits(thresholds, max_failed)
        summary = self.summary()
        wholly_left_out = {name for _, name in self.left_out} - summary.keys()
        for metric in thresholds:
            if metric not in wholly_left_out:
                self._known(metric)
        problems = [
            f"{name} has nothing scored, all of it was left out" for name in thresholds if name in wholly_left_out
        ]
        known = ((summary[name], limit) for name, limit in thresholds.items() if name in summary)
        problems += [problem for metric, limit in known for problem in _problems(metric, limit, max_failed)]
        if problems:
            raise BelowThreshold("; ".join(problems), threshold=next(iter(thresholds.values())))

    def to_pandas(self) -> pandas.DataFrame:
        """One line for each sample: its fields, and for each metric the value, the reason, and why there is none.

        None becomes NaN in a column of values, which is pandas' own way.
        """
        import pandas

        return pandas.DataFrame([_record(row) for row in self.rows])

    def to_jsonl(self, path: str | Path | TextIO) -> None:
        """Write the report as JSON lines; `Report.load` gives an equal one.

        Args:
            path: of the file; or a file that is open for text, such as `sys.stdout`.

        Raises:
            ConfigError: if the place cannot be written to.
        """
        head = {"notes": self.notes, "complete": self.complete, "left_out": self.left_out}
        write_report(path, self.rows, {**head, "instruments": self.provenance.as_json()})

    def to_html(
        self,
        path: str | Path,
        *,
        baseline: Report | None = None,
        margin: float = 0.0,
        allow_different_instruments: bool = False,
        language: PageLanguage = "auto",
    ) -> None:
        """Write the report as one HTML page that needs no network: the summary, and every sample with its evidence.

        Args:
            path: of the file.
            baseline: a run over the same samples to compare with; the samples that moved are shown.
            margin: of the comparison; see `compare`.
            allow_different_instruments: of the comparison.
            language: of the page itself, "en" or "ru"; by default that of most questions.

        Raises:
            ConfigError: if jinja2 is not there, or the reports cannot be compared.
        """
        comparison = None
        if baseline is not None:
            comparison = self.compare(baseline, margin, allow_different_instruments=allow_different_instruments)
        write_page(self, path, baseline=baseline, comparison=comparison, language=language)

    def to_mlflow(
        self,
        run_name: str | None = None,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        *,
        prefix: str = "",
        table: bool = True,
        page: bool = True,
    ) -> str:
        """Log the report to MLflow: into the run that is active, else into a new one, which is ended.

        Metrics are `faithfulness/mean`, `/low`, `/high`, `/scored`, `/unscored`, `/failed`, and what it cost; "ndcg@5"
        is `ndcg_at_5`. Params are the package's version, the notes and each metric's instrument. Artifacts, in
        `rageval/`, are the rows as a table, the HTML page, and the file that `Report.load` reads.

        Args:
            run_name: of a new run.
            experiment: by name, of a new run; made if it is not there. By default the one that is set in MLflow.
            tracking_uri: where a new run is kept, such as "sqlite:///mlflow.db"; MLflow's own setting stays as it is.
            prefix: stands before every name, so that one run can hold several reports, such as "before/".
            table: whether to log the rows as a table.
            page: whether to log the HTML page.

        Returns:
            The run's id.

        Raises:
            ConfigError: if mlflow is not there, a run is active and options are given for a new one, two metrics would
                have one name, or the active run already holds another report under this prefix.
        """
        return write_run(
            self,
            run_name=run_name,
            experiment=experiment,
            tracking_uri=tracking_uri,
            prefix=prefix,
            table=table,
            page=page,
        )

    def plot(
        self,
        *,
        baseline: Report | None = None,
        margin: float = 0.0,
        allow_different_instruments: bool = False,
    ) -> Figure:
        """Draw each metric's mean with its interval, beside how its values are spread.

        Args:
            baseline: a run over the same samples to compare with: its means, and the differences with their verdicts.
            margin: of the comparison; see `compare`.
            allow_different_instruments: of the comparison.

        Returns:
            A matplotlib Figure that notebooks show and `savefig` writes; no window opens, pyplot is left alone.

        Raises:
            ConfigError: if matplotlib is not there, nothing was scored, or the reports cannot be compared.
        """
        comparison = None
        if baseline is not None:
            comparison = self.compare(baseline, margin, allow_different_instruments=allow_different_instruments)
        return draw_report(self, baseline, comparison)

    @classmethod
    def load(cls, path: str | Path, *, lazy: bool = False) -> Report:
        """Read a report that `to_jsonl` or `evaluate(out=...)` wrote, also the `.part` of a run that was killed.

        Args:
            path: of the file.
            lazy: leave the rows on disk, each to be read when it is asked for.

        Raises:
            ConfigError: if the file is not there, or is no report; also later from the rows, if they are left on disk.
        """
        rows, head = read_report(path)
        return cls(rows if lazy else list(rows), head["notes"], head["complete"], head["left_out"], head["instruments"])

    def _title(self) -> str:
        return f"Report of {len(self.rows)} sample{'' if len(self.rows) == 1 else 's'}"

    def _one(self, metric: str | None) -> str:
        """The metric, or the only one there is."""
        if metric is not None:
            self._known(metric)
            return metric
        names = list(dict.fromkeys(name for row in self.rows for name in row.scores))
        if len(names) != 1:
            raise ConfigError(f"say which metric is meant; the report has {', '.join(names) or 'none'}")
        return names[0]

    def _known(self, metric: str) -> None:
        names = dict.fromkeys(name for row in self.rows for name in row.scores)
        if metric not in names:
            raise ConfigError(f"the report has no metric {metric!r}; it has {', '.join(names) or 'none'}")


def _badness(score: Score) -> float:
    """Least for the worst."""
    value = float(score)
    return value if score.direction == "higher" else -value


def _refuse_limits(thresholds: Any, max_failed: Any) -> None:
    if not isinstance(thresholds, Mapping):
        raise ConfigError(f'check takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {thresholds!r}')
    for name, limit in thresholds.items():
        if not isinstance(limit, int | float) or isnan(limit):
            raise ConfigError(f"the threshold of {name} takes a number, got {limit!r}")
    if not isinstance(max_failed, int | float) or not 0 <= max_failed <= 1:
        raise ConfigError(f"max_failed takes a share from 0 to 1, got {max_failed!r}")


def _problems(metric: MetricSummary, limit: float, max_failed: float) -> list[str]:
    problems = []
    asked = f"at {'least' if metric.direction == 'higher' else 'most'} {limit:g} is asked"
    if metric.mean is None:
        problems.append(f"{metric.metric} has nothing scored, {asked}")
    elif not reaches(metric.mean, limit, metric.direction) and not isclose(metric.mean, limit, abs_tol=1e-9):
        problems.append(f"{metric.metric} is {metric.mean:.3f} {metric.interval}, {asked}")
    count = metric.scored + metric.unscored + metric.failed
    if metric.failed > max_failed * count:
        problems.append(f"{metric.metric} failed on {metric.failed} of {count} samples, at most {max_failed:.0%} may")
    return problems


def _cells(metric: MetricSummary) -> tuple[str, ...]:
    tokens = (metric.input_tokens, metric.output_tokens)
    return (
        metric.metric,
        "–" if metric.mean is None else f"{metric.mean:.3f}",
        metric.interval or "–",
        str(metric.scored),
        str(metric.unscored),
        str(metric.failed),
        "–" if metric.abstained is None else str(metric.abstained),
        str(metric.calls),
        "–" if tokens == (None, None) else str(sum(count or 0 for count in tokens)),
    )


def _record(row: Row) -> dict[str, Any]:
    sample = row.sample
    record: dict[str, Any] = {"id": sample.id, "question": sample.question, "answer": sample.answer}
    record |= {"contexts": sample.contexts, "references": sample.references}
    record |= {f"metadata.{name}": value for name, value in sample.metadata.items()}
    for name, score in row.scores.items():
        record |= {name: score.value, f"{name}.reason": score.reason, f"{name}.without": score.comment}
        if score.value is not None:
            record[f"{name}.without"] = None
    return record
