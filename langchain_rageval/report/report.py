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
from langchain_rageval.report.comparison import (
    Comparison,
    PeopleLabels,
    Require,
    compare_paired,
    minimum_difference,
    requirement_of,
)
from langchain_rageval.report.diagnosis import Diagnosis, diagnose_rows
from langchain_rageval.report.evolution_comparison import EvolutionComparison, compare_evolutions
from langchain_rageval.report.files import (
    ReportData,
    check_metric,
    head_of,
    instruments_of,
    metric_or_only,
    read_report,
    to_data_frame,
    write_report,
)
from langchain_rageval.report.gates import Gate, Limits, check_gates, decided_gates, run_gates, threshold_gates
from langchain_rageval.report.labelling import LabelSheet, pairs_to_label, rows_to_label
from langchain_rageval.report.mlflow import write_run
from langchain_rageval.report.page import Page, language_of, render_page
from langchain_rageval.report.pairing import grouped, pair_rows
from langchain_rageval.report.people import Corrected, Labels, answer_labels, corrected
from langchain_rageval.report.plot import plot_report
from langchain_rageval.report.rescoring import rescore_rows
from langchain_rageval.report.score_table import is_sqlite, read_score_table
from langchain_rageval.report.summary import Summary, missing_scores, summarise, summarise_slices, worst_rows
from langchain_rageval.report.tables import html_table
from langchain_rageval.report.units import AUTO, NONE, By, ScoresById, Units, slices_of
from langchain_rageval.report.unpaired import compare_unpaired

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from langchain_rageval.metrics.metric import Metric


class GateOptions(TypedDict, total=False):
    """Types of the keyword arguments of `Report.check`; `Report.gates` describes the arguments with the same names."""

    max_unscored: float
    baseline: Report | None
    margin: float
    require: Require
    allow: Collection[str]
    comparison: Comparison | None


@dataclass(frozen=True, repr=False)
class Report(ReportData):
    """Report of a run: the scored samples in the order of the input, with methods that analyse and export them.

    Attributes:
        rows: one row for each sample; a list, or, after `evaluate(out=...)`, a sequence that reads rows from the file.
        notes: remarks that limit or explain the numbers, such as that the offline judge (word overlap) gave scores.
        complete: False if the run was interrupted; the report then holds only the finished rows and scores.
        left_out: pairs of sample index and metric name, one for each score that was not computed, because it did not
            fit the budget, or because a run with a stopping rule (`until=` of `evaluate`) did not need it.
        provenance: configurations (judge, prompts, options) that produced the scores; `instruments` lists them by
            metric.
        decisions: mapping of a metric to the decision of a run with a stopping rule; empty for other runs.
        unreadable: number of input records that are not valid samples; these records have no rows.
        canaries: verdicts of the judges on test statements with known verdicts; None if the judges were not tested.
        asked_again: calls, tokens and seconds for scoring rows of a baseline a second time, see `rageval ci --anchors`.
        name: name of the run: the name of the file from which the report was first loaded; "" before.
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
        lines += [*missing_scores(self.rows), *(f"Note: {one}" for one in dict.fromkeys([*self.notes, *summary.notes]))]
        return printable_lines("\n".join(lines))

    def _repr_html_(self) -> str:
        """Return the summary as an HTML table for notebooks, with why scores are missing, and notes."""
        summary, audit = self.summary(), self.audit
        below = [*missing_scores(self.rows), *dict.fromkeys([*self.notes, *summary.notes])]
        table = html_table(self._title(), summary.headings, summary.cells(), below)
        return table + (audit._repr_html_() if audit else "")

    @overload
    def summary(self, by: None = None, *, cluster: By | None = AUTO) -> Summary: ...

    @overload
    def summary(self, by: By, *, cluster: By | None = AUTO) -> dict[str, Summary]: ...

    def summary(self, by: By | None = None, *, cluster: By | None = AUTO) -> Summary | dict[str, Summary]:
        """Return the mean, 95% interval, counts and cost of each metric.

        The counts are of samples with a value (scored), samples to which the metric does not apply (unscored), samples
        on which the metric failed, and samples whose answer states no facts (abstained).

        Args:
            by: property that divides the report into slices: "metadata.split", "evolution", "turn", "language", any
                dotted path of the sample, or a function of the sample. "metadata." may be omitted. A language that is
                not in the metadata is detected from the question.
            cluster: property that groups dependent samples, such as "metadata.document" for questions about one
                document; a path or a function as for `by`. The intervals treat the clusters, not the samples, as
                independent. By default a cluster is a conversation (`metadata.conversation`), else a tree of a
                generated test set (questions about one fact, `metadata.tree_id`), else the repeats of one question.
                None treats all samples as independent.

        Returns:
            The summary; with `by`, a mapping from the name of each slice to the summary of the slice. Slices are in the
            order of the rows, or in numeric order if all names are numbers. Samples without a value of `by` form the
            last slice, "(none)". A sample without a value of `cluster` is a cluster by itself.

        Raises:
            ConfigError: if no sample has a value for `by` or `cluster`.
        """
        return summarise(self.rows, cluster) if by is None else summarise_slices(self.rows, by, cluster)

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds and money of the whole run; money is known only with the option `price` of `evaluate`.

        Includes audits, the test of the judges on statements with known verdicts (`canaries`), and rows of a baseline
        that were scored again (`asked_again`).
        """
        parts = [*(metric.usage for metric in self.audit.values()), *([self.canaries.usage] if self.canaries else [])]
        return sum([*parts, self.asked_again], self.summary().usage)

    @property
    def audit(self) -> AuditSummary:
        """Audit of each metric: the estimated mean of the strong judge over all samples.

        `report.audit["faithfulness"]` has `mean`, `low` and `high` of the strong judge, the number of `audited` samples
        and `agreement`: the share of these samples on which the strong judge and the metric's own judge differ by at
        most 0.1. The 95% interval is prediction-powered. Like the interval of `summary`, it treats the samples as a
        random part of a population. The audit is empty for a run without `audit=`.
        """
        audits = [score for row in self.rows for score in row.audit.values()]
        instruments = {score.instrument: self.provenance.instrument(score.metric, score.instrument) for score in audits}
        judges = dict.fromkeys(name for instrument in instruments.values() for name in instrument.judges)
        return summarise_audit(self.rows if audits else (), ", ".join(judges))

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
        """Return the scores of a metric as a mapping from sample ids to scores.

        If several samples have the same id, the second and later samples get `-2`, `-3` and so on after the id. The
        attribute `units` of the result maps ids to clusters, if a cluster has several samples; see `summary`.

        Args:
            metric: name of the metric; may be omitted if the report has only one.

        Raises:
            ConfigError: if the report has no such metric.
        """
        metric = metric_or_only(self, metric)
        ids, units, scores = SampleIds(), Units(), {}
        for row in self.rows:
            name = ids.distinct(row.sample).id
            if metric in row.scores:
                units.add(row.sample)
                scores[name] = row.scores[metric]
        return ScoresById(scores, dict(zip(scores, units.groups() or [], strict=False)))

    def instruments(self) -> dict[str, list[Instrument]]:
        """Return for each metric the configurations (instruments) that gave its scores; usually one per metric.

        The configurations are in order of appearance. Each has two parts in readable form, `found_by` and `counted_by`,
        and in `digests` the hashes of both, as in `Score.instrument`. `found_by` determines the facts (results of the
        metric's steps, such as a verdict on each statement): models with settings, prompts, options of the steps.
        `counted_by` determines the value: the function that computes it from the facts, and options of the metric. If
        a part cannot be identified, `unknown` gives the reason. A report written by version 0.1.0 or by a killed
        process has only hashes.
        """
        return instruments_of(self)

    def to_label(
        self, n: int, metric: str | None = None, *, seed: int = 0, baseline: Report | None = None
    ) -> LabelSheet:
        """Draw rows for people to label, so that few labels are informative about all scores.

        Every row with a score has the same chance to be drawn, and the drawn rows are spread evenly over the scores.
        `agreement` and `calibrate` need a random sample, and this kind of sample has the smallest variance. A sample of
        the rows on which the judge is least sure would show more errors of the judge, but would bias the estimated
        error rate.

        Args:
            n: number of rows; `calibrate` and `compare` need at least 20 labels.
            metric: the metric to compare with the labels; may be omitted if the report has only one.
            seed: seed of the draw.
            baseline: another run over the same samples. The sheet then has both answers of `n` samples, for
                `compare(baseline, labels=...)`. Order and ids do not reveal which run an answer is from.

        Returns:
            The sheet of rows. `to_csv` writes the sheet to a file, and `load_labels` reads the labelled file.

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
        """Estimate the mean of people's labels over all samples, or in slices, from labels of some samples.

        The estimate is prediction-powered, like the estimate of `calibrate`.

        Args:
            labels: path of a filled-in sheet of `to_label`, or a mapping of ids to labels.
            metric: the metric that was labelled; may be omitted if the report has only one.
            by: property that divides the report into slices, as for `summary`.
            scale: the lowest and the highest possible label.
            cluster: property that groups dependent samples, as for `summary`.

        Returns:
            Mapping of each slice to its estimate, or to None if fewer than 20 samples of the slice are labelled.
            Without `by`, the only slice is called "all".

        Raises:
            ConfigError: if the sheet cannot be read, there is no such metric, or no sample has a value for `by`.
        """
        metric = metric_or_only(self, metric)
        found, units = answer_labels(self.rows, labels), Units((row.sample for row in self.rows), cluster)
        values = [row.scores[metric].value if metric in row.scores else None for row in self.rows]
        slices = grouped((name or NONE, place) for place, name in enumerate(slices_of(self.rows, by)))
        return {
            name: corrected([(found[at], values[at]) for at in places], scale, units.groups(places))
            for name, places in slices.items()
        }

    def by_evolution(self) -> EvolutionComparison:
        """Compare each question type (evolution) with the simple questions about the same facts.

        The samples must come from a test set of `TestsetGenerator(..., tree=True)`. A tree is a simple question and its
        evolved questions about one fact. `metadata.tree_id` names the tree, and `metadata.evolution` the evolution.
        Both questions of a pair are about the same fact, so a difference shows which kind of difficulty the chain fails
        at. Differences, intervals and verdicts are computed as in `compare`; a tree counts as one observation. P-values
        are Holm-adjusted over all evolutions and metrics.

        Returns:
            Mapping of evolution to metric to comparison; shown as a table, a DataFrame (`to_pandas`) or a picture
            (`plot`).

        Raises:
            ConfigError: if no sample belongs to a tree, or no tree has both a simple question and another question.
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
        """Compare each metric of this run (the candidate) with the same metric of a baseline run.

        Samples are paired by id and question, several with the same id in order; the remaining samples are paired by
        question. A pair counts if both reports have a value; a blank answer without a value gets the worst value.
        Interval and p-value come from one procedure: Student's t on the differences of the pairs and two invented
        differences, +r and -r. Here r is the largest difference of a pair, without sign, but at least the range of the
        values divided by the square root of the number of pairs. The p-value is Holm-adjusted over the metrics, the
        interval is not. The verdict "no worse" means that the loss at the worst end of a wider interval is at most
        `margin`. This interval allows for rare samples that fall from the best to the worst possible value and are not
        among the pairs: after thirty pairs without a difference, one question in ten may still break.

        The verdict is "lost coverage" if the candidate lacks, or has reworded, more than 5% of the samples that the
        baseline scored. If more than 5% have failed, the worst value is assumed for the failed samples; the verdict is
        "lost coverage" if the metric would then be worse.

        Args:
            baseline: the run to compare with.
            margin: largest loss of a metric that still counts as "no worse", in the metric's units, even if the loss is
                significant.
            cluster: property that groups dependent samples, such as "metadata.document"; see `summary`. None treats all
                pairs as independent.
            allow_different_instruments: True to compare scores even if judges, prompts, options or versions differ.
            paired: False to compare the means of runs over different samples, such as production with development, by
                Newcombe's hybrid interval. A note says in which properties the questions differ.
            reweight: with `paired=False`, a property of the samples, such as "language" or "metadata.topic". Both runs
                are then weighted to the shares that the values of this property have in the baseline. Slices that only
                one run has are left out. A note names such slices of the baseline; if they hold over 5% of its samples,
                "inconclusive" replaces the verdicts "better" and "no worse".
            require: what `check` and `gates` of the comparison require: "no regression found", so that "inconclusive"
                passes; "no worse", which needs a margin above 0; or "confirmed" by `labels`.
            labels: people's labels of both answers of at least 20 samples: a filled-in sheet (CSV file) of `to_label(n,
                baseline=...)`, or a mapping of its ids to labels; or a tuple of the sheet of this report and the sheet
                of the baseline. The attribute `corrected` of the result estimates the difference from the labels, with
                the judge's scores for precision. `confirmed` states whether the labels confirm the judge's verdict.
            metric: the metric that was labelled; may be omitted if the reports have only one in common.
            label_scale: the lowest and the highest possible label.
            anchors: report of rows of the baseline that this run's metrics scored again by new model calls, not from
                a journal (file of stored results) or a cache. Like rows whose texts are equal in both runs, they show
                how far the judge itself has changed, see `Comparison.judge_shift`.
            rare_losses: removed option; rare losses are always allowed for.

        Returns:
            Mapping of metric names to comparisons, for the metrics that both reports have; notes name the other
            metrics.

        Raises:
            ConfigError: if judge configurations differ, `margin` is not a number of at least 0, no sample has a value
                for `cluster` or `reweight`, the baseline is not a report, or options contradict each other.
        """
        if rare_losses is not None:
            raise ConfigError("rare_losses= was removed: compare always allows for a loss that no pair shows")
        if not isinstance(baseline, Report):
            raise ConfigError(f"compare takes a report, got {type(baseline).__name__}; Report.load reads one")
        if reweight is not None and paired:
            raise ConfigError("reweight= needs paired=False")
        if require == "confirmed" and labels is None:
            raise ConfigError('require="confirmed" needs labels=...: pass a sheet of both reports that people labelled')
        if labels is not None and not paired:
            raise ConfigError("labels= needs paired samples: remove labels= or paired=False")
        again = () if anchors is None else anchors.rows
        options = (margin, cluster, allow_different_instruments, require, again)
        if paired:
            people = None if labels is None else PeopleLabels(labels, metric, label_scale)
            found = compare_paired(self, baseline, *options, people)
        else:
            found = compare_unpaired(self, baseline, *options, reweight)
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

        The difference is between this run and a later run over the same samples. The samples are taken as independent
        of one another.

        Args:
            metric: a metric of this report.
            power: probability of detecting the difference.
            alpha: level of the two-sided test; for several metrics, divide the level by the number of metrics.
            correlation: expected correlation between the values of this run and of the later run, from -1 to below 1.
            baseline: a run over the same samples; the pairs with this run are used instead of `correlation`.

        Returns:
            A difference in the metric's units. It is infinite if there are too few samples for a significant
            difference, as with up to four samples at the level 0.05. If more than half of the values (with `baseline`,
            of the differences) are equal to one another, the later run may differ more than their spread suggests. The
            result is then at least the smallest loss that `compare` detects in this case: a share of the samples falls
            from the best to the worst value, and the others keep their value. It is also infinite for a metric without
            a finite range. With clusters of dependent samples, the difference that `compare` detects is larger.

        Raises:
            ConfigError: if there is no such metric, an option is out of range, or fewer than two samples are scored.
        """
        return minimum_difference(self, metric, power, alpha, correlation, baseline)

    def diagnose(self) -> Diagnosis:
        """Assign to each row the cause of its wrong answer, as far as the metrics show the cause.

        Faithfulness, context_recall and answer_correctness together, or claim_metrics, distinguish every cause. The
        cause of a row without a detected error is "nothing wrong", or "cannot tell" if its metrics cannot exclude
        errors.

        Returns:
            The rows in order, with counts of the causes and a remedy for each.
        """
        return diagnose_rows(self.rows)

    def rescore(self, metric: Metric) -> Report:
        """Return this report with a metric replaced or added, computed from stored verdicts without a model call.

        Use this method after changing options that only affect the arithmetic: weights, beta and formula of
        answer_correctness (with one reference), the threshold of answer_similarity, the weighting of context_precision,
        the weights of a rubric's criteria. The questions to the judge must stay the same; the method cannot verify
        this.

        Args:
            metric: the metric to compute. It uses the stored findings (items with verdicts) of the metric with the same
                name. If the report has no such metric, it uses the findings of another metric, if they suffice.

        Returns:
            A new report with its rows in memory. Failures stay failures. A replaced score keeps its usage; an added
            one has none.

        Raises:
            ConfigError: if the stored findings of no metric suffice, or if those of several metrics suffice and give
                different values. Then build `metric` with the `name` of one of these metrics.
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
        """Return a gate (passed, failed or undecided) for each threshold, and for the comparison with a baseline.

        A gate concerns all input samples of the run. The value of a sample is unknown if an error prevented the score,
        if the input record is not a valid sample, or if the run left the score out, such as for lack of budget. Up to a
        share of `max_failed`, the mean excludes these samples. Above this share, the gate tries both the worst and the
        best value for them, and is undecided if the results differ. A blank answer without a value counts as the worst
        value. At least five samples must have a score; in a report of fewer than ten samples, at least half. With fewer
        scores, the gate is undecided. If no sample has a score, the gate is undecided if values are unknown, and fails
        if the metric applies to no sample. Repeats of a sample count once.
        If a run with a stopping rule (`until=`) decided about the metric, the gate uses the interval of this decision.
        If a strong judge audited the metric, the gate uses the interval of the strong judge's mean, and needs no least
        number of scores.

        Args:
            thresholds: mapping of metric names to the lowest accepted mean, or to the highest if lower is better.
            max_failed: share of the samples, from 0 to 1, that may have an unknown value.
            max_unscored: highest accepted share of samples to which the metric does not apply, such as refusals.
            baseline: a run over the same samples; this run must not be worse than the baseline, see `Comparison.gates`.
            margin: margin of the comparison; see `compare`.
            require: requirement of the comparison; see `compare`.
            allow: codes of reasons to ignore, because they are intended in this application, such as "missing-samples".
            comparison: an existing comparison, for example with `labels`, instead of a new comparison with `baseline`.

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
        """Raise an error unless all gates passed; the options are those of `gates`.

        Raises:
            BelowThreshold: if a gate failed or is undecided. The message names every reason; the attribute `gates` has
                all gates.
            ConfigError: if the report has no such metric, a number is out of range, or nothing was compared.
        """
        check_gates(self.gates(thresholds, max_failed, **options), next(iter(thresholds.values()), None))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one line for each sample.

        The columns are the fields of the sample and, for each metric, the value, the reason, and the cause of a missing
        value. In a column of values, pandas turns None into NaN.
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
        """Write the report as one HTML page that works offline, with the summary and every sample with its verdicts.

        Args:
            path: path of the file.
            baseline: a run over the same samples to compare with; the page then lists the samples that changed.
            margin: margin of the comparison; see `compare`.
            allow_different_instruments: see `compare`.
            language: language of the page's own texts, "en" or "ru"; by default the language of most questions.
            gates: gates of the run to show at the top of the page, see the method `gates`.
            comparison: an existing comparison with the baseline, for example with `labels`.

        Raises:
            ConfigError: if jinja2 is not installed, or the reports cannot be compared.
        """
        if baseline is not None and comparison is None:
            comparison = self.compare(baseline, margin, AUTO, allow_different_instruments)
        render_page(path, Page(self, language_of(language, self.rows), baseline, comparison, gates))

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
        """Log the report to the active MLflow run; without an active run, to a new run that is then ended.

        Metrics are `faithfulness/mean`, `/low`, `/high`, `/scored`, `/unscored`, `/failed` and the cost; "ndcg@5" is
        logged as `ndcg_at_5`. Params are the package's version, the notes and the configuration of each metric.
        Artifacts, in `rageval/`, are the rows as a table, the HTML page, and the file that `Report.load` reads.

        Args:
            run_name: name of the new run.
            experiment: name of the new run's experiment, which is created if it does not exist; by default the
                experiment that is set in MLflow.
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
            baseline: a run over the same samples; the plot then also shows the means of the baseline, the differences
                and the verdicts.
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
        """Read a report from a file of `to_jsonl`, `evaluate(out=...)`, a JsonlSink or a SqliteSink.

        The method also reads the `.part` file of a killed run. A file of a SqliteSink has no ids of contexts.

        Args:
            path: path of the file.
            lazy: True to leave the rows on disk and read each one when it is accessed; not with a SqliteSink's file.

        Raises:
            ConfigError: if the file does not exist or is not a report. With `lazy`, an invalid row raises the error on
                access.
        """
        if is_sqlite(path):
            return cls(read_score_table(path), complete=False, name=Path(path).stem)
        rows, head = read_report(path)
        name = head["name"] or Path(Path(path).name.removesuffix(".part")).stem
        return cls(rows if lazy else list(rows), **{**head, "name": name})

    def _title(self) -> str:
        return f"Report of {pluralize(len(self.rows), 'sample')}"
