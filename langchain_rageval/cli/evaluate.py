"""`rageval evaluate` and `rageval ci`: score samples, and check thresholds (gates) for a merge request."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.runnables import Runnable

from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval.cli.chains import ask_chain
from langchain_rageval.cli.inputs import (
    build_audit,
    build_budget,
    call_options,
    describe_fields,
    notice_for,
    parse_allow,
    parse_number,
    parse_require,
    selected_metrics,
    selected_samples,
)
from langchain_rageval.cli.recorded import record_command
from langchain_rageval.cli.report_view import check_not_all_failed, report_object, show_report, warn_about_failures
from langchain_rageval.cli.selection import parse_metric_names, scorable_metrics, score_names
from langchain_rageval.cli.terminal import PIPE, console, json_stdout, show_or_write, write_message
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.errors import ConfigError, RagevalError, did_you_mean
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.job import STOPPED
from langchain_rageval.evaluation.options import Batch
from langchain_rageval.evaluation.until import Decided
from langchain_rageval.metrics.structure import judges_of, names_of
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.files import is_report
from langchain_rageval.report.gates import Gate, check_gates
from langchain_rageval.report.labelling import read_labels
from langchain_rageval.report.markdown import markdown_of, write_junit
from langchain_rageval.report.metric_comparison import rows_to_ask_again
from langchain_rageval.report.report import Report
from langchain_rageval.report.rescoring import join_reports
from langchain_rageval.run.run import check_options
from langchain_rageval.run.usage import format_money
from langchain_rageval.statistics.paired import pairs_to_show
from langchain_rageval.trust.qualification import ExaminedJudge, judge_gates


@dataclass(frozen=True)
class EndedRun:
    """Report of a run that may have ended early.

    Attributes:
        report: the report, already written to `--out`; None if there is no report.
        error: error to raise after the report was shown; None if the run is complete.
        is_shown: False if all scores failed, so that only the error is shown.
        metrics: the metrics of the run.
    """

    report: Report | None = None
    error: RagevalError | KeyboardInterrupt | None = None
    is_shown: bool = True
    metrics: Sequence[Runnable[Any, Any]] = ()


def run_evaluate(options: argparse.Namespace) -> None:
    """Check all options, evaluate the samples, write and show the report, and check the gates."""
    outcome = _evaluate(options)
    finish(options, outcome, checked_gates(outcome, options))


def _evaluate(options: argparse.Namespace) -> EndedRun:
    """Evaluate, and write the report to `--out`."""
    gates = parse_gates(options)
    until = stopping_rule(options, gates)
    budget = build_budget(options)
    metrics = selected_metrics(options)
    _check_judge_is_named(options, metrics, gates)  # before a chain is asked
    samples = ask_chain(options) if getattr(options, "questions", None) else selected_samples(options)
    metrics = scorable_metrics(options, metrics, samples)
    if options.judge != "offline":  # before the first paid call
        notice_for(options)(f"first sample: {describe_fields(samples[0])}")
    audit, calls = build_audit(options), call_options(options)
    check_options(calls)
    record_command(options)  # what is refused before does not replace the command of an earlier run
    report = evaluate(
        samples,
        metrics,
        journal=options.journal,
        budget=budget,
        strict=options.strict,
        until=until,
        audit=audit,
        batch=Batch() if options.batch else None,
        canaries=not options.no_canaries and bool(gates or getattr(options, "baseline", None)),
        **calls,
    )
    name = "" if options.file == PIPE else Path(options.file).stem
    report = replace(report, name=name, unreadable=options.unreadable)
    if not report.complete and not report.rows:
        for note in report.notes:
            if code_of(note) != "interrupted":
                write_message(note)
        raise KeyboardInterrupt
    complete = _with_earlier_scores(report, options)
    if options.out:
        complete.to_jsonl(json_stdout() if options.out == PIPE else options.out)
    if stopped := [note for note in report.notes if code_of(note) in STOPPED]:
        any_score = any(not score.failure for row in report.rows for score in row.scores.values())
        return EndedRun(complete, ConfigError(" ".join(stopped)), any_score)
    if not report.complete:
        return EndedRun(complete, KeyboardInterrupt())
    try:
        check_not_all_failed(report)
    except ConfigError as error:
        return EndedRun(complete, error, is_shown=False)
    return EndedRun(complete, metrics=metrics)


def finish(
    options: argparse.Namespace,
    outcome: EndedRun,
    gates: Sequence[Gate],
    baseline: Report | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the files of `rageval ci` and the HTML page, show the report, and raise any error of the run or a gate."""
    report, error = outcome.report, outcome.error
    problem = "" if error is None else str(error) or "interrupted"
    markdown, junit = getattr(options, "markdown", None), getattr(options, "junit", None)
    if options.html:
        page = report or Report([], [problem], complete=False)
        page.to_html(options.html, baseline=baseline, comparison=comparison, gates=gates)
    if markdown:
        Path(markdown).write_text(markdown_of(report, gates, comparison, problem), encoding="utf-8")
    if junit:
        name = Path(options.file).stem or "rageval"
        write_junit(junit, gates, name=name, finished=report.finished if report else "", error=problem)
    if report is not None and outcome.is_shown:
        written = " and ".join(path for path in (options.out, options.html) if path and path != PIPE)

        def show() -> None:
            notes = () if comparison is None else comparison.notes
            show_report(report, console(stderr=options.out == PIPE), written=written, gates=gates, notes_on_gates=notes)

        show_or_write(options, lambda: report_object(report, gates), show)
        warn_about_failures(report)
    if error is not None:
        raise error
    check_gates(gates)


def checked_gates(outcome: EndedRun, options: argparse.Namespace, comparison: Comparison | None = None) -> list[Gate]:
    """Return the gates of a run with their verdicts; [] for an incomplete run, or without thresholds and comparison."""
    thresholds = parse_gates(options)
    if outcome.report is None or outcome.error is not None or not (thresholds or comparison is not None):
        return []
    missing = set(() if comparison is None else comparison.missing_metrics)
    gates = outcome.report.gates(
        thresholds,
        options.max_failed,
        max_unscored=options.max_unscored,
        comparison=comparison,
        allow=parse_allow(options, lost=not missing.isdisjoint(score_names(parse_metric_names(options.metrics)))),
    )
    if path := getattr(options, "require_judge", None):
        judge = [options.judge]  # its name and its options, as words of a command line
        for name in ("base_url", "embeddings", "embeddings_base_url", "temperature", "judge_probe", "mode", "draws"):
            if (option := f"--{name.replace('_', '-')}") in options.named:
                judge += [option, redact_secrets(text := str(getattr(options, name)), text)]
        gates += judge_gates(outcome.report, [*thresholds, *(comparison or ())], path, shlex.join(judge))
    return gates


def _compared(
    report: Report, metrics: Sequence[Runnable[Any, Any]], baseline: Report, options: argparse.Namespace
) -> tuple[Comparison, Report]:
    """Return the comparison with the baseline, and the report.

    With --anchors, the judge is asked again if the comparison shows no shift, within what is left of the budget; the
    report then has the usage, and is written again.
    """

    def compare(anchors: Report | None = None) -> Comparison:
        labels = {"labels": options.labels, "metric": options.labelled_metric}
        return report.compare(baseline, options.margin, require=parse_require(options), anchors=anchors, **labels)

    comparison = compare()
    if options.anchors < 1 or comparison.judge_shift:
        return comparison, report
    samples = [row.sample for row in rows_to_ask_again(baseline.rows, options.anchors)]
    cache = get_llm_cache()
    set_llm_cache(None)
    try:
        budget = build_budget(options, spent=report.usage)
        again = evaluate(samples, metrics, budget=budget, **call_options(options))
    finally:
        set_llm_cache(cache)
    usage, notes = again.usage, [note for note in again.notes if code_of(note) == "budget-spent"]
    money = [] if usage.money is None else [Note("for-money", money=format_money(usage.money))]
    facts = {"count": len(again), "baseline": options.baseline, "calls": usage.calls, "tokens": usage.tokens or 0}
    notes.insert(0, Note("asked-again", **facts, money=money))
    report = replace(report, notes=[*report.notes, *notes], asked_again=usage)
    if options.out:
        report.to_jsonl(options.out)
    return compare(again), report


def _check_judge_is_named(
    options: argparse.Namespace, metrics: Sequence[Runnable[Any, Any]], gates: Mapping[str, float]
) -> None:
    """Check that the judge of a gate was named: the default judges by word overlap.

    Raises:
        ConfigError: if a gated metric asks a judge that the command does not name.
    """
    gates_all = bool(getattr(options, "baseline", None))
    names = [name for metric in metrics if judges_of(metric) for name in names_of(metric)]
    asking = [name for name in names if gates_all or name in gates]
    if asking and not {"--judge", "--audit"} & options.named:
        raise ConfigError(
            f"a gate on {asking[0]} needs --judge: name a model such as vllm:MODEL, or --judge offline for a smoke "
            "test by word overlap"
        )


def stopping_rule(options: argparse.Namespace, gates: Mapping[str, float]) -> Decided | None:
    """Return the rule that ends the run early, as the options describe it; None if the run scores all samples."""
    baseline = getattr(options, "baseline", None)  # of rageval ci
    if not options.until_decided:
        return None
    if baseline is not None:
        return replace(Decided.against(Report.load(baseline), options.margin), gates=gates)
    if not gates:
        raise ConfigError("--until-decided needs a gate to decide; add --fail-under METRIC=NUMBER")
    return Decided(gates)


def _with_earlier_scores(report: Report, options: argparse.Namespace) -> Report:
    """Return the report, with the scores of the report that was the input, if it was one."""
    if options.file == PIPE or options.fields or getattr(options, "questions", None) or not is_report(options.file):
        return report
    return join_reports(Report.load(options.file), report)


def parse_gates(options: argparse.Namespace) -> dict[str, float]:
    """Return the thresholds in `--fail-under`, by metric; also check `--max-failed` and `--max-unscored`.

    Raises:
        ConfigError: if a metric is not evaluated, a threshold is not a number, or `--max-failed` or `--max-unscored` is
            not from 0 to 1.
    """
    for option in ("max_failed", "max_unscored"):
        if not 0 <= (share := getattr(options, option, 0.0)) <= 1:
            raise ConfigError(f"--{option.replace('_', '-')} must be a share from 0 to 1, got {share:g}")
    metrics = score_names(parse_metric_names(options.metrics))
    gates = parse_number(options.fail_under, "--fail-under")
    for metric in gates:
        if metric not in metrics:
            remedy = did_you_mean(metric, metrics) or "; add it there"
            raise ConfigError(f"--fail-under {metric}: not among --metrics {','.join(metrics)}{remedy}")
    return gates


def run_ci(options: argparse.Namespace) -> None:
    """Evaluate the samples and check every gate (requirement such as a lowest mean, or no regression from a baseline).

    The HTML, Markdown and JUnit files in the options are written even if the run or a gate fails; the error is raised
    after that.
    """
    if not options.fail_under and options.baseline is None:
        raise ConfigError("rageval ci needs a gate: add --fail-under METRIC=NUMBER or --baseline REPORT")
    if options.labels and options.baseline is None:
        raise ConfigError("--labels needs two reports to compare: add --baseline REPORT")
    if options.questions:
        options.chain, options.file, options.unreadable = options.file, options.questions, 0
    elif ":" in options.file and not Path(options.file).exists():
        raise ConfigError(f"{options.file} is a chain: name its questions too, as in rageval ci app:chain q.jsonl")
    outcome, comparison, gates = EndedRun(), None, list[Gate]()
    try:
        baseline = _load_baseline(options)
        _check_files_of_people(options)
        outcome = _evaluate(options)
        if baseline is not None and outcome.report is not None and outcome.error is None:
            comparison, report = _compared(outcome.report, outcome.metrics, baseline, options)
            outcome = replace(outcome, report=report)
        gates = checked_gates(outcome, options, comparison)
    except (RagevalError, KeyboardInterrupt) as caught:
        outcome = replace(outcome, error=caught)
    finish(options, outcome, gates, baseline if comparison else None, comparison)


def _check_files_of_people(options: argparse.Namespace) -> None:
    """Raise ConfigError if labels are required and missing, or a file of people or of an examined judge is invalid."""
    if parse_require(options) == "confirmed" and not options.labels:
        raise ConfigError(
            "--require confirmed needs --labels FILE, a sheet that people labelled: write one with "
            "`rageval label CANDIDATE --baseline BASELINE`"
        )
    if options.labels:
        read_labels(Path(options.labels))
    if options.require_judge:
        ExaminedJudge.load(options.require_judge)


def _load_baseline(options: argparse.Namespace) -> Report | None:
    """Return the report of `--baseline`, and warn if it is too small to show "no worse".

    Returns:
        None without the option, or if a missing report is allowed.

    Raises:
        ConfigError: if there is no such file and `--allow missing-baseline` is not set.
    """
    if options.baseline is None:
        return None
    if Path(options.baseline).exists():
        baseline, margin = Report.load(options.baseline), options.margin
        if parse_require(options) == "no worse" and margin > 0 and len(baseline) < (needed := pairs_to_show(margin)):
            write_message(Note("no-worse-takes", margin=margin, needed=needed, count=len(baseline)))
        return baseline
    if "missing-baseline" not in parse_allow(options):
        raise ConfigError(
            f"{options.baseline} does not exist [missing-baseline]: name the report of an earlier run, or add --allow "
            "missing-baseline for the first run"
        )
    write_message(f"{options.baseline} does not exist, so nothing is compared")
    options.baseline = None
    return None
