"""Report: the rows of a run with their summary, comparison, diagnosis and output formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypedDict, Unpack, overload

from langchain_rageval._internal.page import PageLanguage, pluralize, printable_lines
from langchain_rageval.data.instrument import Instrument
from langchain_rageval.data.loading import SampleIds
from langchain_rageval.data.notes import code_of
from langchain_rageval.data.schema import Row, Score, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.audit import AuditSummary, summarise_audit
from langchain_rageval.report.comparison import Comparison, Require, compare_rows, minimum_difference, requirement_of
from langchain_rageval.report.diagnosis import Diagnosis, diagnose_rows
from langchain_rageval.report.evolution_comparison import EvolutionComparison, compare_evolutions
from langchain_rageval.report.files import (
    ReportData,
    check_metric,
    head_of,
    instruments_of,
    metric_names,
    metric_or_only,
    read_report,
    to_data_frame,
    write_report,
)
from langchain_rageval.report.gates import Gate, Limits, check_gates, decided_gates, run_gates, threshold_gates
from langchain_rageval.report.labelling import LabelSheet, pairs_to_label, rows_to_label
from langchain_rageval.report.mlflow import write_run
from langchain_rageval.report.page import write_page
from langchain_rageval.report.pairing import pair_rows
from langchain_rageval.report.people import Corrected, Labels, answer_labels, corrected
from langchain_rageval.report.plot import plot_report
from langchain_rageval.report.rescoring import rescore_rows
from langchain_rageval.report.score_table import is_sqlite, read_score_table
from langchain_rageval.report.summary import Summary, missing_scores, summarise, summarise_slices, worst_rows
from langchain_rageval.report.tables import html_table
from langchain_rageval.report.units import AUTO, NONE, By, ScoresById, Slicer, Units
from langchain_rageval.report.unpaired import compare_unpaired

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from langchain_rageval.metrics.metric import Metric


class GateOptions(TypedDict, total=False):
    """Options of `Report.gates` and `Report.check`."""

    max_unscored: float
    baseline: Report | None
    margin: float
    require: Require
    allow: Collection[str]
    comparison: Comparison | None


@dataclass(frozen=True, repr=False)
class Report(ReportData):
    """Scored samples in the order of the input.

    Attributes:
        rows: one for each sample; a list, or, for a run with `out=`, a sequence that reads them from its file.
        notes: what a reader of the numbers should know, such as that an offline baseline judged.
        complete: False if the run was interrupted; the rows and scores are then those that were finished.
        left_out: index of the sample and name of the metric of each score that did not fit the budget, or that a run
            with `until=` did not need.
        provenance: readable parts of the instruments; `instruments` lists them by metric.
        decisions: what a run with `until=` decided about each metric.
        unreadable: number of records that the run was given and that are not samples; they have no rows.
        canaries: answers of the judges to statements with known verdicts; None if they were not asked.
        asked_again: usage of the scores of rows of a baseline that were asked again, see `rageval ci --anchors`.
        name: name of the run: that of the file from which it was first loaded; "" before that.
        finished: when the run ended, UTC, in ISO 8601; "" if it is unknown.
        version: version of the package that scored; "" if it is unknown.
    """

    def __post_init__(self) -> None:
        """Add the note on rows that lack the id of a conversation or tree that others have, as a run does."""
        if isinstance(self.rows, list) and "without-unit" not in map(code_of, self.notes):
            found = (note for note in Units(row.sample for row in self.rows).notes() if note.code == "without-unit")
            object.__setattr__(self, "notes", [*self.notes, *found])

    def __repr__(self) -> str:
        """Return the report as text: its summary, with a line for each metric, why scores are missing, and notes."""
        summary = self.summary()
        lines = [self._title(), *map(str, summary.values()), *map(str, self.audit.values())]
        notes = dict.fromkeys([*self.notes, *summary.notes])
        lines += [*missing_scores(self.rows), *(f"Note: {note}" for note in notes)]
        return printable_lines("\n".join(lines))

    def _repr_html_(self) -> str:
        """Return the summary as an HTML table for notebooks, with why scores are missing, and notes."""
        summary, audit = self.summary(), self.audit
        notes = dict.fromkeys([*self.notes, *summary.notes])
        below = [*missing_scores(self.rows), *notes]
        table = html_table(self._title(), summary.headings, summary.cells(), below)
        return table + (audit._repr_html_() if audit else "")

    @overload
    def summary(self, by: None = None, *, cluster: By | None = AUTO) -> Summary: ...

    @overload
    def summary(self, by: By, *, cluster: By | None = AUTO) -> dict[str, Summary]: ...

    def summary(self, by: By | None = None, *, cluster: By | None = AUTO) -> Summary | dict[str, Summary]:
        """Return the mean, 95% interval, counts and cost of each metric.

        The counts are of scored, unscored, failed and abstained samples.

        Args:
            by: what divides the report into slices: "metadata.split", "evolution", "turn", "language", any dotted path
                of the sample, or a function of the sample. "metadata." may be left out. A language that is not in the
                metadata is detected from the question.
            cluster: what groups dependent samples, such as "metadata.document" for questions about one document; a path
                or a function as for `by`. The intervals then treat the clusters, not the samples, as independent. By
                default a conversation (`metadata.conversation`), else a tree of a generated test set
                (`metadata.tree_id`), else the repeats of one question; None treats all samples as independent.

        Returns:
            The summary; with `by`, a mapping from each slice, as text, to its summary, in the order of the rows, or in
            numeric order if all slices are numbers. Samples without a value form the last slice, "(none)"; without a
            value for `cluster`, each is a cluster.

        Raises:
            ConfigError: if no sample has a value for `by` or `cluster`.
        """
        return summarise(self.rows, cluster) if by is None else summarise_slices(self.rows, by, cluster)

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds and, with `price=`, money of all scores, audits, canaries and rows asked again."""
        parts = [*(metric.usage for metric in self.audit.values()), *([self.canaries.usage] if self.canaries else [])]
        return sum([*parts, self.asked_again], self.summary().usage)

    @property
    def audit(self) -> AuditSummary:
        """Audit of each metric: the estimated mean of the strong judge over all samples.

        `report.audit["faithfulness"]` has `mean`, `low` and `high` of the strong judge, `agreement` of the two judges
        and the number of samples that are `audited`. The interval is prediction-powered, at 95%; like that of
        `summary`, it is for samples like these. Empty for a run without `audit=`.
        """
        audits = [score for row in self.rows for score in row.audit.values()]
        instruments = {score.instrument: self.provenance.instrument(score.metric, score.instrument) for score in audits}
        judges = dict.fromkeys(name for instrument in instruments.values() for name in instrument.judges)
        return summarise_audit(self.rows, ", ".join(judges))

    def failures(self) -> list[tuple[Row, Score]]:
        """Return every failed score with its row; `score.failure` gives the reason."""
        return [(row, score) for row in self.rows for score in row.scores.values() if score.failure]

    def worst(self, metric: str, n: int = 5) -> list[Row]:
        """Return the `n` rows with the worst values of a metric, the worst first.

        Raises:
            ConfigError: if the report has no such metric.
        """
        check_metric(self, metric)
        return worst_rows(self.rows, metric, n)

    def scores(self, metric: str | None = None) -> ScoresById:
        """Return the scores of a metric by sample id; the second and later samples with one id get `-2`, `-3` after it.

        `units` of the result has the unit of each sample by id, if several samples are of one, see `summary`.

        Args:
            metric: name of the metric; may be omitted if the report has only one.

        Raises:
            ConfigError: if the report has no such metric.
        """
        metric = metric_or_only(self, metric)
        ids = SampleIds()
        units, scores, names = Units(), {}, []
        for row in self.rows:
            name = ids.distinct(row.sample).id
            if metric in row.scores:
                units.add(row.sample)
                names.append(name)
                scores[name] = row.scores[metric]
        return ScoresById(scores, dict(zip(names, units.groups() or [], strict=False)))

    def instruments(self) -> dict[str, list[Instrument]]:
        """Return the instruments that gave the scores of each metric, in order of appearance; usually one.

        Each has the hashes that the scores carry, and two parts as readable data: `found_by` (models with their
        settings, prompts, options of the steps) and `counted_by` (reducer and options of the metric), or why a part is
        unknown. A report written by version 0.1.0 or by a killed process has only hashes.
        """
        return instruments_of(self)

    def to_label(
        self, n: int, metric: str | None = None, *, seed: int = 0, baseline: Report | None = None
    ) -> LabelSheet:
        """Draw rows for people to label, so that few labels are informative about all scores.

        Every row with a score has the same chance, and the rows are spread evenly over the scores. `agreement` and
        `calibrate` need a random sample, and this kind has the smallest variance. Rows on which the judge is least sure
        would show more of its errors, but would bias their estimated rate.

        Args:
            n: number of rows; `calibrate` and `compare` take at least 20.
            metric: the metric to compare with the labels; may be omitted if the report has only one.
            seed: seed of the draw.
            baseline: another run over the same samples: the sheet then has both answers of `n` samples, in an order and
                with ids that do not tell whose answer is whose, for `compare(baseline, labels=...)`.

        Returns:
            The rows, with `to_csv`; `load_labels` reads the labelled file.

        Raises:
            ConfigError: if there is no such metric, nothing is scored, or `n` is below 1.
        """
        metric = metric_or_only(self, metric)
        if baseline is not None:
            return pairs_to_label(pair_rows(self.rows, baseline.rows).pairs, n, metric, seed)
        return rows_to_label(self.rows, n, metric, seed)

    def corrected(
        self,
        labels: Labels,
        metric: str | None = None,
        by: By | None = None,
        *,
        scale: tuple[float, float] = (0.0, 1.0),
        cluster: By | None = AUTO,
    ) -> dict[str, Corrected | None]:
        """Estimate the mean of people's labels over all samples, and in slices, from the labels of some of them.

        The estimate is prediction-powered, as that of `calibrate`.

        Args:
            labels: a filled-in sheet of `to_label`, or its labels by id.
            metric: the metric that was labelled; may be omitted if the report has only one.
            by: what divides the report into slices, as for `summary`.
            scale: the lowest and the highest possible label.
            cluster: what groups dependent samples, as for `summary`.

        Returns:
            The estimate of each slice, None if fewer than 20 of its samples are labelled; without `by`, of one slice
            that is called "all".

        Raises:
            ConfigError: if the sheet cannot be read, there is no such metric, or no sample has a value for `by`.
        """
        metric = metric_or_only(self, metric)
        found, units = answer_labels(self.rows, labels), Units((row.sample for row in self.rows), cluster)
        values = [row.scores[metric].value if metric in row.scores else None for row in self.rows]
        slices: dict[str, list[int]] = {}
        slicer = None if by is None else Slicer(by)
        for place, row in enumerate(self.rows):
            slices.setdefault((slicer.slice_of(row.sample) or NONE) if slicer else "all", []).append(place)
        if slicer is not None:
            slicer.check_known()
        return {
            name: corrected([(found[at], values[at]) for at in places], scale, units.groups(places))
            for name, places in slices.items()
        }

    def by_evolution(self) -> EvolutionComparison:
        """Compare each evolution with the simple question about the same fact, for a test set of trees.

        The report must be of samples of a test set that was generated with `tree=True`: `metadata.tree_id` names the
        fact, and `metadata.evolution` the evolution. Facts are equal within a pair, so that a difference shows which
        kind of difficulty the chain fails at. Differences, intervals and verdicts are those of `compare`, with the
        trees as clusters; p-values are Holm-adjusted over all evolutions and metrics.

        Returns:
            Evolution to metric to its comparison, as a table, a DataFrame (`to_pandas`) or a picture (`plot`).

        Raises:
            ConfigError: if no sample belongs to a tree, or no tree has a simple and another question.
        """
        return compare_evolutions(self.rows)

    def compare(
        self,
        baseline: Report,
        margin: float = 0.0,
        cluster: By | None = AUTO,
        allow_different_instruments: bool = False,
        *,
        paired: bool = True,
        reweight: By | None = None,
        require: Require = "no regression found",
        labels: Labels | tuple[Labels, Labels] | None = None,
        metric: str | None = None,
        label_scale: tuple[float, float] = (0.0, 1.0),
        anchors: Report | None = None,
        rare_losses: None = None,
    ) -> Comparison:
        """Compare each metric of this run, the candidate, with that of a baseline.

        Samples are paired by id and question, several of one id in their order; the others by question. They count if
        both reports have a value; a blank answer without a value has the worst one. Interval and p-value come from one
        procedure: Student's t on the pairs and two invented ones, at plus and minus the largest difference, but at
        least the range of the values over the root of their number. The p-value is Holm-adjusted over the metrics, the
        interval is not. "no worse" rests on a wider interval, which allows for losses of the whole range that no pair
        shows: thirty equal pairs do not exclude that one question in ten breaks.

        Of the samples that the baseline scored, up to 5% may be missing or reworded in the candidate, and up to 5% may
        have failed; of more failed ones, the worst is assumed. Else the metric "lost coverage".

        Args:
            baseline: the run to compare with.
            margin: by how much a metric may be worse and still be "no worse", in its own units; also when so small a
                loss is significant.
            cluster: what ties samples together, such as "metadata.document"; see `summary`. None treats all pairs as
                independent.
            allow_different_instruments: compare also what different judges, prompts, options or versions have scored.
            paired: False to compare the means of runs over different samples, such as production with development, by
                Newcombe's hybrid interval. A note says in which properties the questions differ.
            reweight: with `paired=False`, a property of the samples, such as "language" or "metadata.topic", at whose
                shares in the baseline both runs are compared. Slices that only one run has are left out; a note names
                those of the baseline, and the verdict is at most "inconclusive" if they hold over 5% of its samples.
            require: what `check` and `gates` of the comparison require: "no regression found", so that "inconclusive"
                passes; "no worse", which needs a margin above 0; or "confirmed" by `labels`.
            labels: people's labels of both answers of at least 20 samples: a filled-in sheet of
                `to_label(n, baseline=...)`, or its labels by id; or a tuple of the sheets of this report and of the
                baseline. Their difference, which the judge's makes more precise, is `corrected`; `confirmed` says
                whether it shows what the judge's verdict says.
            metric: the metric that was labelled; may be omitted if the reports have only one in common.
            label_scale: the lowest and the highest possible label.
            anchors: rows of the baseline that were scored again by this run's metrics, past journal and cache. Like
                rows that did not change, they show how far the judge itself has moved: `judge_shift`.
            rare_losses: always on, and no option any more.

        Returns:
            Metric name to its comparison, for the metrics that both reports have; notes name the others.

        Raises:
            ConfigError: if instruments differ, `margin` is not a number of at least 0, no sample has a value for
                `cluster` or `reweight`, the baseline is not a report, or an option does not fit the others.
        """
        if rare_losses is not None:
            raise ConfigError("rare_losses= is no option any more: a loss that no pair shows is always allowed for")
        if not isinstance(baseline, Report):
            raise ConfigError(f"compare takes a report, got {type(baseline).__name__}; Report.load reads one")
        if reweight is not None and paired:
            raise ConfigError("reweight= needs paired=False")
        if require == "confirmed" and labels is None:
            raise ConfigError('require="confirmed" needs labels=...: pass a sheet of both reports that people labelled')
        if labels is not None and not paired:
            raise ConfigError("labels= are of pairs: they do not fit paired=False")
        known = (self.provenance, baseline.provenance)
        rows, again = (self.rows, baseline.rows), () if anchors is None else anchors.rows
        if paired:
            shared = [name for name in metric_names(self) if name in metric_names(baseline)]
            if labels is not None and metric is None and len(shared) != 1:
                raise ConfigError(f"name the labelled metric, such as metric={(shared or ['…'])[0]!r}")
            found = compare_rows(
                *rows,
                margin,
                cluster,
                allow_different_instruments,
                known,
                require,
                is_drawn=bool(self.decisions),
                labels=labels,
                labelled="" if labels is None else metric or shared[0],
                label_scale=label_scale,
                again=again,
            )
        else:
            found = compare_unpaired(
                *rows, margin, cluster, allow_different_instruments, reweight, known, require, again
            )
        found.left_out = {name for _, name in self.left_out}
        return found

    def minimum_detectable_difference(
        self,
        metric: str,
        power: float = 0.8,
        alpha: float = 0.05,
        correlation: float = 0.5,
        *,
        baseline: Report | None = None,
    ) -> float:
        """Return the smallest true difference of a metric that `compare` detects with the same number of samples.

        The samples are taken as independent.

        Args:
            metric: a metric of this report.
            power: probability of detecting the difference.
            alpha: level of the two-sided test; for several metrics, divide it by their number.
            correlation: between the values of this run and those of the later one, from -1 to below 1.
            baseline: a run over the same samples; its actual pairs are used instead of `correlation`.

        Returns:
            A difference in the metric's units; infinite if there are too few samples for a significant difference, as
            with up to four at the level 0.05. If more than half of the values, or of the differences, are equal, their
            spread says little about a later run; each change of a sample is then assumed to be a complete loss, from 1
            to 0. With the option `cluster`, the difference that `compare` detects is larger.

        Raises:
            ConfigError: if there is no such metric, an option is out of range, or fewer than two samples are scored.
        """
        return minimum_difference(self, metric, power, alpha, correlation, baseline)

    def diagnose(self) -> Diagnosis:
        """Assign to each row one cause of what is wrong with its answer, as far as the metrics show it.

        Faithfulness, context_recall and answer_correctness together, or claim_metrics, distinguish every cause. A row
        without a detected error is "nothing wrong"; if its metrics cannot show errors, it is "cannot tell".

        Returns:
            The rows in order, with counts of the causes and a remedy for each.
        """
        return diagnose_rows(self.rows)

    def rescore(self, metric: Metric) -> Report:
        """Return this report with a metric replaced or added, computed from stored findings without a model call.

        For options that only affect the arithmetic: weights, beta and formula of answer_correctness (with one
        reference), the threshold of answer_similarity, the weighting of context_precision, the weights of a rubric's
        criteria. The questions to the judge must be the same; a report cannot verify that.

        Args:
            metric: the metric to compute, from the findings of the metric of the same name. If the report has no such
                metric, from those of the only metric whose findings suffice.

        Returns:
            A new report with its rows in memory. Failures stay failures. A replaced score keeps its usage; an added
            one has none.

        Raises:
            ConfigError: if the findings do not suffice, or those of several metrics do.
            SampleError: if a sample lacks a field that the metric reads.
        """
        rows = list(rescore_rows(self.rows, metric))
        return replace(self, rows=rows, provenance=self.provenance.with_counting(metric.name, metric.provenance))

    def gates(
        self,
        thresholds: Mapping[str, float],
        max_failed: float = 0.05,
        *,
        max_unscored: float = 0.5,
        baseline: Report | None = None,
        margin: float = 0.0,
        require: Require = "no regression found",
        allow: Collection[str] = (),
        comparison: Comparison | None = None,
    ) -> list[Gate]:
        """Return the answer to each threshold, and to the comparison with a baseline: passed, failed or undecided.

        A gate asks about every sample that the run was given. Failed, unreadable and left out samples are unknown: up
        to `max_failed` of them are left out of the mean; of more, both the worst and the best value are assumed, and
        the gate is undecided if that turns the answer. A blank answer without a value counts as the worst value.
        At least five samples must have a score, in a report of fewer than ten at least half of them; repeats of one
        sample count once. If a run with `until=` decided about the metric, its interval is the answer; if a strong
        judge audited it, the interval of that judge's mean.

        Args:
            thresholds: metric name to the lowest accepted mean, or the highest if lower is better.
            max_failed: share of the samples, from 0 to 1, whose value may be unknown.
            max_unscored: highest accepted share of samples that have no score for a known reason, such as refusals.
            baseline: a run over the same samples, which this one must not be worse than; see `Comparison.gates`.
            margin: margin of the comparison; see `compare`.
            require: requirement of the comparison; see `compare`.
            allow: codes of reasons that are meant to be so in this application, such as "missing-samples".
            comparison: a comparison that was made already, such as with `labels`, in place of one with `baseline`.

        Raises:
            ConfigError: if the report has no such metric, a number is out of range, or nothing was compared.
        """
        limits = Limits(max_failed, max_unscored, allow)
        gates = [*threshold_gates(self, thresholds, limits), *run_gates(self, limits)]
        if comparison is None:
            if baseline is None:
                return gates
            comparison = self.compare(baseline, margin, require=require)
        requirement = requirement_of(comparison.require, comparison.margin)
        decided = decided_gates(self.decisions, thresholds, requirement, allow)
        if comparison.nothing_compared and not decided:
            comparison.check()
        return [*gates, *(decided.get(gate.metric, gate) for gate in comparison.gates(allow=allow))]

    def check(self, thresholds: Mapping[str, float], max_failed: float = 0.05, **options: Unpack[GateOptions]) -> None:
        """As `gates`, with the same options, but raise an error unless all passed.

        Raises:
            BelowThreshold: if a gate failed or is undecided; the message names every reason, and `gates` has all gates.
            ConfigError: if the report has no such metric, a number is out of range, or nothing was compared.
        """
        check_gates(self.gates(thresholds, max_failed, **options), next(iter(thresholds.values()), None))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one line for each sample.

        Its columns are the fields of the sample and, for each metric, the value, the reason, and why there is no value.
        pandas turns None into NaN in a column of values.
        """
        return to_data_frame(self.rows)

    def to_jsonl(self, path: str | Path | TextIO) -> None:
        """Write the report as JSON lines; `Report.load` reads it back as an equal report.

        Args:
            path: path of the file, or a text file that is open for writing, such as `sys.stdout`.

        Raises:
            ConfigError: if the file cannot be written.
        """
        write_report(path, self.rows, head_of(self))

    def to_html(
        self,
        path: str | Path,
        *,
        baseline: Report | None = None,
        margin: float = 0.0,
        allow_different_instruments: bool = False,
        language: PageLanguage = "auto",
        gates: Sequence[Gate] = (),
        comparison: Comparison | None = None,
    ) -> None:
        """Write the report as one HTML page that works offline: the summary, and every sample with its evidence.

        Args:
            path: path of the file.
            baseline: a run over the same samples to compare with; the page then lists the samples that changed.
            margin: margin of the comparison; see `compare`.
            allow_different_instruments: see `compare`.
            language: language of the page's own texts, "en" or "ru"; by default that of most questions.
            gates: gates of the run, which the page shows first; see `gates`.
            comparison: a comparison with the baseline that was made already, such as with `labels`.

        Raises:
            ConfigError: if jinja2 is not installed, or the reports cannot be compared.
        """
        if baseline is not None and comparison is None:
            comparison = self.compare(baseline, margin, AUTO, allow_different_instruments)
        write_page(self, path, baseline=baseline, comparison=comparison, language=language, gates=gates)

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
        """Log the report to MLflow, to the active run or else to a new one, which is then ended.

        Metrics are `faithfulness/mean`, `/low`, `/high`, `/scored`, `/unscored`, `/failed` and the cost; "ndcg@5" is
        logged as `ndcg_at_5`. Params are the package's version, the notes and each metric's instrument. Artifacts, in
        `rageval/`, are the rows as a table, the HTML page, and the file that `Report.load` reads.

        Args:
            run_name: name of the new run.
            experiment: name of the new run's experiment, which is created if it does not exist; by default the one that
                is set in MLflow.
            tracking_uri: where to store the new run, such as "sqlite:///mlflow.db"; MLflow's own setting is unchanged.
            prefix: prefix of every name, such as "before/", so that one run can hold several reports.
            table: True to log the rows as a table.
            page: True to log the HTML page.

        Returns:
            The id of the run.

        Raises:
            ConfigError: if mlflow is not installed, options of a new run are given while a run is active, two metrics
                would have the same name, or the active run already holds another report with this prefix.
        """
        return write_run(self, run_name, experiment, tracking_uri, prefix=prefix, table=table, page=page)

    def plot(
        self, *, baseline: Report | None = None, margin: float = 0.0, allow_different_instruments: bool = False
    ) -> Figure:
        """Plot each metric's mean with its interval, next to the distribution of its values.

        Args:
            baseline: a run over the same samples to compare with; adds its means, the differences and the verdicts.
            margin: margin of the comparison; see `compare`.
            allow_different_instruments: see `compare`.

        Returns:
            A matplotlib Figure, which notebooks show and `savefig` writes; pyplot is not used and no window opens.

        Raises:
            ConfigError: if matplotlib is not installed, nothing was scored, or the reports cannot be compared.
        """
        comparison = None if baseline is None else self.compare(baseline, margin, AUTO, allow_different_instruments)
        return plot_report(self, baseline, comparison)

    @classmethod
    def load(cls, path: str | Path, *, lazy: bool = False) -> Report:
        """Read a report that `to_jsonl`, `evaluate(out=...)`, a JsonlSink or a SqliteSink wrote.

        The `.part` file of a run that was killed is read too. A SqliteSink does not store ids of contexts.

        Args:
            path: path of the file.
            lazy: True to leave the rows on disk and read each one when it is accessed; not with a SqliteSink's file.

        Raises:
            ConfigError: if the file does not exist or is not a report; with `lazy`, an invalid row raises when it is
                accessed.
        """
        if is_sqlite(path):
            return cls(read_score_table(path), complete=False, name=Path(path).stem)
        rows, head = read_report(path)
        run = (head["notes"], head["complete"], head["left_out"], head["instruments"], head["decisions"])
        name = head["name"] or Path(Path(path).name.removesuffix(".part")).stem
        more = {key: head[key] for key in ("finished", "version", "unreadable", "canaries", "asked_again")}
        return cls(rows if lazy else list(rows), *run, name=name, **more)

    def _title(self) -> str:
        return f"Report of {pluralize(len(self.rows), 'sample')}"
