"""`rageval evaluate`, `rageval ci` and `rageval resume`: score samples, gate a merge request, and continue a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_rageval._internal.redaction import HIDDEN, redact_secrets
from langchain_rageval.cli.commands import build_parser
from langchain_rageval.cli.inputs import (
    build_audit,
    build_budget,
    check_writable,
    load_inputs,
    parse_numbers,
    parse_prices,
)
from langchain_rageval.cli.json_output import check_single_stdout, json_stdout, report_object, write_json
from langchain_rageval.cli.report_view import check_not_all_failed, show_report, warn_about_failures
from langchain_rageval.cli.selection import parse_metric_names, score_names, search_in_folder
from langchain_rageval.cli.terminal import PIPE, console, write_message
from langchain_rageval.errors import BelowThreshold, ConfigError, RagevalError
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.engine import INTERRUPTED, STOPPED
from langchain_rageval.evaluation.options import Batch
from langchain_rageval.evaluation.until import Decided
from langchain_rageval.report.files import is_report
from langchain_rageval.report.joining import join_reports
from langchain_rageval.report.markdown import markdown_of, write_junit
from langchain_rageval.report.report import Report
from langchain_rageval.report.thresholds import check_gates, gate_results
from langchain_rageval.run.journal import Journal

COMMAND = "command"
"""Key under which a journal holds the command line that wrote it."""


def run_evaluate(options: argparse.Namespace) -> int:
    """Check all options before the first call, then evaluate, write and show the report."""
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
    to_stdout = options.out == PIPE
    if options.json:
        write_json(report_object(report))
    else:
        hidden = (PIPE, getattr(options, "temporary_out", None))  # which rageval ci deletes
        files = [path for path in (options.out, options.html) if path and path not in hidden]
        show_report(report, console(stderr=to_stdout), written=" and ".join(files))


def run_ci(options: argparse.Namespace) -> int:
    """Evaluate and check every gate; the files are written also if the run or a gate fails."""
    if not options.fail_under and options.baseline is None:
        raise ConfigError("rageval ci needs a gate: add --fail-under METRIC=NUMBER or --baseline REPORT")
    for name in ("markdown", "junit"):
        check_writable(f"--{name}", getattr(options, name), options.file)
    baseline = None if options.baseline is None else Report.load(options.baseline)
    page, options.html = options.html, None
    error: RagevalError | None = None
    with _report_file(options) as path:
        earlier = _state(path)
        try:
            run_evaluate(options)
        except BelowThreshold:
            pass  # the gates are checked below, one by one
        except RagevalError as caught:
            error = caught
        report = Report.load(path) if _state(path) != earlier else None
    _finish_gates(options, report, baseline, error, page)
    return 0


@contextmanager
def _report_file(options: argparse.Namespace) -> Iterator[Path]:
    """Let `rageval evaluate` write the report to `--out`, or to a temporary file."""
    if options.out == PIPE:
        raise ConfigError("rageval ci writes the report to a file; name it with --out FILE")
    with TemporaryDirectory() as folder:
        path = Path(options.out or Path(folder) / "report.jsonl")
        options.temporary_out = None if options.out else str(path)
        options.out = str(path)
        yield path


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is replaced; None if there is none."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def _finish_gates(
    options: argparse.Namespace, report: Any, baseline: Any, error: RagevalError | None, page: Any
) -> None:
    """Write the files and raise the error of the run or of its gates."""
    comparison, results = None, []
    if report is not None and error is None:
        comparison = None if baseline is None else report.compare(baseline, options.margin)
        gates = parse_gates(options)
        results = gate_results(report, gates, options.max_failed, options.max_unscored, comparison)
    if page and report is not None:
        report.to_html(page, baseline=baseline)
    problem = "" if error is None else str(error)
    if options.markdown:
        Path(options.markdown).write_text(markdown_of(report, results, comparison, problem), encoding="utf-8")
    if options.junit:
        name = Path(options.file).stem or "rageval"
        write_junit(options.junit, results, name=name, finished=report.finished if report else "", error=problem)
    if error is not None:
        raise error
    check_gates(results)


def run_resume(options: argparse.Namespace) -> int:
    """Repeat the command that is recorded in the journal; its scores or answers are reused."""
    if not Path(options.journal).is_file():
        raise ConfigError(f"{options.journal} is not a file; pass the file that was given to --journal")
    with closing(Journal(options.journal)) as journal:
        recorded = journal.get(COMMAND)
    if recorded is None:
        raise ConfigError(f"{options.journal} contains no command; run the command with --journal again")
    command = json.loads(recorded)
    if command["words"][0] == "requests":
        raise ConfigError(
            f"{options.journal} was written by `rageval requests`; continue with `rageval replies FILE --journal "
            f"{options.journal}`"
        )
    repeated = build_parser(["evaluate", "ci", "run"]).parse_args([*command["words"], *options.options])
    _check_complete(repeated, options.journal)
    folder = Path(command["folder"])
    search_in_folder(folder)  # for metrics and chains of the user
    for option in ("file", "out", "html", "qrels", "topics", "baseline", "markdown", "junit"):
        path = getattr(repeated, option, None)
        if path not in (None, PIPE):
            setattr(repeated, option, str(folder / path))
    repeated.journal = options.journal
    repeated.resume = repeated.retry_failed = True  # of `rageval run`
    repeated.words = None
    return int(repeated.run(repeated))


def _check_complete(repeated: argparse.Namespace, journal: str) -> None:
    """Check that no option is needed whose secret was not stored.

    Raises:
        ConfigError: if there is one.
    """
    for name, value in vars(repeated).items():
        if isinstance(value, str) and HIDDEN in value:
            option = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{journal} does not store the key in {option} {value!r}; add {option} with the full value"
            )


def record_command(options: argparse.Namespace) -> None:
    """Store the command line without the secrets of its addresses in the journal that the options name, if any."""
    if options.journal and options.words is not None:
        words = [redact_secrets(word, word) for word in options.words]
        command = {"words": words, "folder": str(Path.cwd())}
        with closing(Journal(options.journal)) as journal:
            journal.put(COMMAND, json.dumps(command))
