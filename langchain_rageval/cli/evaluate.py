"""`rageval evaluate FILE`: score the samples of a file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.arguments import (
    PIPE,
    add_audit_options,
    add_budget_options,
    add_input_options,
    add_judge_options,
    add_price_option,
    add_quiet_option,
    check_writable,
    parse_numbers,
    parse_prices,
)
from langchain_rageval.cli.failures import check_not_all_failed, warn_about_failures
from langchain_rageval.cli.inputs import build_audit, build_budget, load_inputs
from langchain_rageval.cli.json_output import (
    add_json_option,
    check_single_stdout,
    json_stdout,
    report_object,
    write_json,
)
from langchain_rageval.cli.messages import write_message
from langchain_rageval.cli.metric_selection import parse_metric_names, score_names
from langchain_rageval.cli.recorded_command import record_command
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langchain_rageval.evaluation.until import Decided
    from langchain_rageval.report.report import Report


def add_to(commands: Any) -> None:
    """Add the command `rageval evaluate` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate", help="score the samples of a JSON, CSV, Excel or Parquet file, a TREC run, or a report"
    )
    parser.set_defaults(run=run)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an evaluation."""
    add_input_options(parser)
    add_judge_options(parser)
    add_price_option(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the report as JSON lines; - writes it to stdout and the table to stderr",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as a self-contained HTML page")
    add_gate_options(parser)
    parser.add_argument(
        "--until-decided",
        action="store_true",
        help="ask about samples in random order and stop when every gate is decided, with 5%% error over all",
    )
    add_audit_options(parser)
    parser.add_argument(
        "--batch",
        action="store_true",
        help="send the requests through the batch API of OpenAI or Anthropic, at half the price; takes hours",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop before the first call if a sample lacks a field that a metric reads",
    )
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="SQLite file for finished scores; after a crash or Ctrl-C `rageval resume FILE` continues the run",
    )
    add_budget_options(parser)
    add_json_option(parser)
    add_quiet_option(parser)


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide about the exit code."""
    parser.add_argument(
        "--fail-under",
        action="append",
        default=[],
        metavar="METRIC=NUMBER",
        help="exit with 1 if the mean, or that of the audit, is worse than the number; may be repeated",
    )
    parser.add_argument(
        "--max-failed",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="maximum share of failed samples with which --fail-under still passes (default: %(default)s)",
    )
    parser.add_argument(
        "--max-unscored",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="maximum share of samples without a score, such as refusals, with which --fail-under still passes "
        "(default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Check all options before the first call, then evaluate, write and show the report."""
    from langchain_rageval.evaluation.api import evaluate
    from langchain_rageval.evaluation.batch import Batch
    from langchain_rageval.evaluation.engine import INTERRUPTED
    from langchain_rageval.evaluation.judge_breaker import STOPPED

    check_single_stdout(options)
    gates = parse_gates(options)
    until = stopping_rule(options, gates)
    budget = build_budget(options)
    _check_shares(options)
    check_writable("--out", options.out, options.file)
    check_writable("--html", options.html, options.file)
    samples, metrics = load_inputs(options)
    record_command(options)
    report = evaluate(
        samples,
        metrics,
        journal=options.journal,
        budget=budget,
        max_concurrency=options.max_concurrency,
        timeout=options.timeout,
        price=parse_prices(options),
        progress=not options.quiet,
        strict=options.strict,
        until=until,
        audit=build_audit(options),
        batch=Batch() if options.batch else None,
    )
    report = replace(report, name="" if options.file == PIPE else Path(options.file).stem)
    stopped = [note for note in report.notes if note.startswith(STOPPED)]
    if not report.complete and not report.rows:
        for note in report.notes:
            if not note.startswith(INTERRUPTED):
                write_message(note)
        raise KeyboardInterrupt
    complete = _with_earlier_scores(report, options)
    _write(complete, options)
    if stopped and all(score.failure for row in report.rows for score in row.scores.values()):
        raise ConfigError(" ".join(stopped))
    if report.complete:
        check_not_all_failed(report)
    _show(complete, options)
    warn_about_failures(report)
    if stopped:
        raise ConfigError(" ".join(stopped))
    if not report.complete:
        raise KeyboardInterrupt
    if gates:
        report.check(gates, max_failed=options.max_failed, max_unscored=options.max_unscored)
    return 0


def finish(report: Report, options: argparse.Namespace, gates: Mapping[str, float]) -> int:
    """Write and show a complete report, and check the gates."""
    _check_shares(options)
    _write(report, options)
    _show(report, options)
    warn_about_failures(report)
    if gates:
        report.check(gates, max_failed=options.max_failed, max_unscored=options.max_unscored)
    return 0


def _check_shares(options: argparse.Namespace) -> None:
    for option, share in (("--max-failed", options.max_failed), ("--max-unscored", options.max_unscored)):
        if not 0 <= share <= 1:
            raise ConfigError(f"{option} must be a share from 0 to 1, got {share:g}")


def stopping_rule(options: argparse.Namespace, gates: Mapping[str, float]) -> Decided | None:
    """Return the rule that the options describe; None if the run asks about all samples."""
    from langchain_rageval.evaluation.until import Decided
    from langchain_rageval.report.report import Report

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
    from langchain_rageval.report.files import is_report
    from langchain_rageval.report.joining import join_reports
    from langchain_rageval.report.report import Report

    if options.file == PIPE or options.fields or not is_report(options.file):
        return report
    return join_reports(Report.load(options.file), report)


def parse_gates(options: argparse.Namespace) -> dict[str, float]:
    """Return the thresholds of `--fail-under` by metric.

    Raises:
        ConfigError: if a metric is not evaluated, or a threshold is not a number.
    """
    metrics = score_names(parse_metric_names(options.metrics))
    gates = parse_numbers(options.fail_under, "--fail-under")
    for metric in gates:
        if metric not in metrics:
            raise ConfigError(f"--fail-under {metric}: not among --metrics {','.join(metrics)}")
    return gates


def _write(report: Report, options: argparse.Namespace) -> None:
    """Write the files that were asked for."""
    if options.html:
        report.to_html(options.html)
    if options.out:
        report.to_jsonl(json_stdout() if options.out == PIPE else options.out)


def _show(report: Report, options: argparse.Namespace) -> None:
    """Print the summary as a table or as JSON."""
    from langchain_rageval.cli.report_view import show_report
    from langchain_rageval.cli.tables import console

    to_stdout = options.out == PIPE
    if options.json:
        write_json(report_object(report))
    else:
        hidden = (PIPE, getattr(options, "temporary_out", None))  # which rageval ci deletes
        files = [path for path in (options.out, options.html) if path and path not in hidden]
        show_report(report, console(stderr=to_stdout), written=" and ".join(files))
