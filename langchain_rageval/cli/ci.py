"""`rageval ci FILE`: evaluate, compare with a baseline and gate, for a merge request."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_rageval.cli import evaluate
from langchain_rageval.cli.arguments import PIPE, check_writable
from langchain_rageval.errors import BelowThreshold, ConfigError, RagevalError


def add_to(commands: Any) -> None:
    """Add the command `rageval ci` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ci", help="evaluate, compare with a baseline and gate; write Markdown and JUnit XML for a merge request"
    )
    parser.set_defaults(run=run)
    evaluate.add_options(parser)
    parser.add_argument("--baseline", metavar="REPORT", help="report of the run that must not be worse")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        help="largest loss against the baseline that is accepted (default: %(default)s)",
    )
    parser.add_argument("--markdown", metavar="FILE", help="write a summary for the merge request")
    parser.add_argument("--junit", metavar="FILE", help="write each gate as a test case of JUnit XML")


def run(options: argparse.Namespace) -> int:
    """Evaluate and check every gate; the files are written also if the run or a gate fails."""
    from langchain_rageval.report.report import Report

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
            evaluate.run(options)
        except BelowThreshold:
            pass  # the gates are checked below, one by one
        except RagevalError as caught:
            error = caught
        report = Report.load(path) if _state(path) != earlier else None
    _finish(options, report, baseline, error, page)
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


def _finish(options: argparse.Namespace, report: Any, baseline: Any, error: RagevalError | None, page: Any) -> None:
    """Write the files and raise the error of the run or of its gates."""
    from langchain_rageval.report.gates import check_gates, gate_results
    from langchain_rageval.report.junit import write_junit
    from langchain_rageval.report.markdown import markdown_of

    comparison, results = None, []
    if report is not None and error is None:
        comparison = None if baseline is None else report.compare(baseline, options.margin)
        gates = evaluate.parse_gates(options)
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
