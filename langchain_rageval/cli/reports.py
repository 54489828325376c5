"""`rageval report`, `compare`, `trend` and `runs`: show stored reports."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from langchain_rageval.cli.inputs import parse_allow, parse_number, parse_require
from langchain_rageval.cli.report_view import report_object, show_report
from langchain_rageval.cli.terminal import (
    check_writable,
    console,
    fields_of,
    open_page,
    pick,
    show_notes,
    show_or_write,
    table_of,
    write_message,
)
from langchain_rageval.data.notes import Note
from langchain_rageval.errors import BelowThreshold, ConfigError, list_choices
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.files import Decision, is_report, judge_names
from langchain_rageval.report.gates import Gate
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import Summary
from langchain_rageval.report.tables import number_text
from langchain_rageval.report.trend import trend
from langchain_rageval.report.trend_page import Trend
from langchain_rageval.statistics.paired import pairs_to_show

_COLOURS = {"better": "green", "worse": "red", "no worse": "green", "inconclusive": "yellow"}


def run_report(options: argparse.Namespace) -> None:
    """Show a report; with the options for a page, write the HTML page and open it."""
    page = options.html or (str(Path(options.report).with_suffix(".html")) if options.open else None)
    if options.baseline and not page:
        raise ConfigError("--baseline needs --html or --open; to compare in the terminal, use rageval compare")
    check_writable("--html", page, options.report)
    report = Report.load(options.report)
    if page:
        report.to_html(
            page,
            baseline=Report.load(options.baseline) if options.baseline else None,
            **pick(options, "margin", "allow_different_instruments", "language"),
        )
    show_or_write(options, lambda: report_object(report), lambda: show_report(report, console(), written=page))
    if page and options.open:
        open_page(page)


def run_compare(options: argparse.Namespace) -> None:
    """Compare reports and show the verdicts.

    With --fail-if-worse, raise BelowThreshold unless every metric meets the requirement `--require` (by default, that
    no regression is found).
    """
    paths = (_path_of_run(name, options.runs) for name in (options.baseline, options.candidate))
    baseline, candidate = map(Report.load, paths)
    metrics = [list(report.summary()) for report in (baseline, candidate)]
    if set(metrics[0]).isdisjoint(metrics[1]):
        one, other = (", ".join(names) or "none" for names in metrics)
        raise ConfigError(
            f"the reports have no metric in common: {options.baseline} has {one}, {options.candidate} has {other}; "
            "score both with the same metric"
        )
    comparison = candidate.compare(
        baseline,
        options.margin,
        options.cluster or None,
        options.allow_different_instruments,
        paired=not options.unpaired,
        reweight=options.reweight or None,
        require=parse_require(options),
        **pick(options, "labels", "metric"),
    )
    gates = comparison.gates(allow=parse_allow(options))
    show_or_write(
        options, lambda: comparison_object(comparison, gates), lambda: _show_comparison(comparison, candidate, baseline)
    )
    if options.fail_if_worse:
        comparison.check(allow=parse_allow(options))


def _show_comparison(comparison: Comparison, candidate: Report, baseline: Report) -> None:
    texts = ("metric", "verdict")
    colours = {one.shown: _COLOURS[one.verdict] for one in comparison.values() if one.verdict in _COLOURS}
    table = table_of(comparison.headings, comparison.cells(), title=comparison.title, left=texts, colours=colours)
    is_paired = all(metric.samples is None for metric in comparison.values())
    counted = "+ and −: number of pairs in which the candidate is better or worse"
    table.caption = counted if is_paired else "samples: scored samples of candidate / baseline"
    out = console()
    out.print(table)
    show_notes([*_next_steps(comparison, candidate, baseline), *comparison.notes], out)


def _next_steps(comparison: Comparison, candidate: Report, baseline: Report) -> Iterator[str]:
    """Yield what inconclusive metrics leave open, and what would decide it."""
    unclear = [metric for metric in comparison.values() if metric.possible_loss]
    for metric in unclear:
        line = f"{metric.metric}: inconclusive, {metric.possible_loss}."
        if metric.samples is None and metric.clusters is None:
            least = candidate.minimum_detectable_difference(metric.metric, baseline=baseline)
            line += f" {metric.pairs} pairs detect a difference of {least:.2f} with 80% power, "
            line += "four times as many detect half of it or less."
        yield line
    if unclear and not comparison.margin:
        yield "With --margin, the loss that you accept, the verdict is no worse as soon as a larger loss is excluded."
    elif unclear and unclear[0].samples is None:
        needed, pairs = pairs_to_show(comparison.margin), max(metric.pairs for metric in unclear)
        if pairs < needed:
            yield Note("no-worse-takes", margin=comparison.margin, needed=needed, count=pairs)


def comparison_object(comparison: Comparison, gates: Sequence[Gate]) -> dict[str, Any]:
    """Return the JSON object that `rageval compare` prints.

    Its keys are `metrics`, `margin`, `judge_shift`, `notes` and `gates`.
    """
    return {
        "metrics": {
            name: {"candidate": metric.mean, **fields_of(metric, "metric", "mean")}
            for name, metric in comparison.items()
        },
        "margin": comparison.margin,
        "judge_shift": {name: asdict(shift) for name, shift in comparison.judge_shift.items()},
        "notes": comparison.notes,
        "gates": [gate.to_dict() for gate in gates],
    }


def trend_object(trend: Trend) -> dict[str, Any]:
    """Return the JSON object that `rageval trend` prints.

    Its keys are `periods`, `baseline`, `alarms`, `changes`, `judge_shift` and `notes`.
    """

    def means(summary: Summary) -> dict[str, Any]:
        keys = ("mean", "low", "high", "scored", "unscored", "failed", "units")
        return {name: pick(metric, *keys) for name, metric in summary.items()}

    return {
        "periods": {name: means(summary) for name, summary in trend.items()},
        "baseline": None if trend.baseline is None else means(trend.baseline),
        "alarms": {name: fields_of(alarm, "metric") for name, alarm in trend.alarms.items()},
        "changes": {name: [fields_of(one, "metric") for one in changes] for name, changes in trend.changes.items()},
        "judge_shift": {name: asdict(shift) for name, shift in trend.judge_shift.items()},
        "notes": list(trend.notes),
    }


def run_trend(options: argparse.Namespace) -> None:
    """Show the mean of each metric by period, such as the day, and write and open the HTML page if requested.

    If a metric has drifted (become worse than in the report of `--baseline`), raise
    BelowThreshold, which gives the exit code 1.
    """
    page = options.html or (str(Path(options.live).with_suffix(".html")) if options.open else None)
    check_writable("--html", page, *filter(None, (options.live, options.baseline)))
    found = trend(
        Report.load(options.live),
        None if options.baseline is None else Report.load(options.baseline),
        options.by,
        adjust=options.adjust or None,
        **pick(options, "margin", "error", "since", "allow_different_instruments"),
    )
    if page:
        found.to_html(page, language=options.language)
    show_or_write(options, lambda: trend_object(found), lambda: _show_trend(found, page))
    if page and options.open:
        open_page(page)
    found.check()


def _show_trend(found: Trend, page: str | None) -> None:
    out = console()
    out.print(table_of(found.headings, found.cells(), title="Means with 95% intervals"))
    changes = [str(change) for changes in found.changes.values() for change in changes]
    show_notes([*changes, *found.notes], out, "Trend", page)


def run_runs(options: argparse.Namespace) -> None:
    """Show the stored reports of a folder, the latest first.

    Raises:
        BelowThreshold: if the latest report does not pass the thresholds.
        ConfigError: if the folder has no reports, or it is unknown whether the latest report passes the thresholds.
    """
    folder = Path(options.folder)
    thresholds = parse_number(options.fail_under, "--fail-under")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name the folder with the reports")
    runs, damaged = _stored_runs(folder, thresholds)
    found = sorted(runs, key=lambda one: (one["finished"], one["name"]), reverse=True)
    if damaged and not found:
        raise ConfigError("; ".join(damaged))
    for problem in damaged:
        write_message(f"left out: {problem}")
    if not found:
        raise ConfigError(f"{folder} has no reports; `rageval evaluate --out {folder}/NAME.jsonl` writes one")
    metrics = list(dict.fromkeys(name for one in found for name in one["means"]))
    if unknown := [name for name in thresholds if name not in metrics]:
        raise ConfigError(
            f"--fail-under {unknown[0]}: no run has this metric; the runs have {list_choices(unknown[0], metrics)}"
        )
    show_or_write(options, lambda: {"runs": found}, lambda: _show_runs(found, metrics))
    if thresholds and damaged:
        raise ConfigError("which run is the latest is unknown, because a report is damaged: repair or delete its file")
    latest = found[0]
    if thresholds and latest["gate"] != "passed":
        raise BelowThreshold(
            f"the latest run, {latest['name']}, does not pass {' '.join(options.fail_under)}: {latest['gate']}"
        )


def _stored_runs(folder: Path, thresholds: Mapping[str, float]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the summaries of the reports in a folder and its subfolders, and what is wrong with unreadable ones."""
    found: list[dict[str, Any]] = []
    damaged: list[str] = []
    for path in sorted(folder.rglob("*.jsonl")):
        if not is_report(path):
            continue
        try:
            report = Report.load(path, lazy=True)
            run = {
                "name": path.relative_to(folder).with_suffix("").as_posix(),
                "finished": report.finished,
                "samples": len(report),
                "complete": report.complete,
                "judges": judge_names(report),
                "means": {name: metric.mean for name, metric in report.summary().items()},
                "gate": _gate(report, thresholds),
            }
            found.append(run)
        except ConfigError as error:
            damaged.append(str(error))
    return found, damaged


def _gate(report: Report, thresholds: Mapping[str, float]) -> str:
    """Return the worst verdict of the thresholds; without thresholds, the worst decision of a run that ended early.

    Returns:
        "failed", "worse" (only of a decision), "undecided" or "passed"; "" if there is no verdict.
    """
    try:
        decided: Iterable[Gate | Decision] = report.gates(thresholds) if thresholds else report.decisions.values()
    except ConfigError:  # the run has no such metric
        return "undecided"
    verdicts = {one.verdict for one in decided}
    return next((one for one in ("failed", "worse", "undecided", "passed") if one in verdicts), "")


def _path_of_run(name: str, folder: str | None) -> str:
    """Return the path of a report: the name itself, or that of a report in the folder of runs."""
    if folder is None:
        return name
    path = Path(folder) / name
    return str(path if path.suffix == ".jsonl" else path.with_name(f"{path.name}.jsonl"))


def _show_runs(found: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> None:
    gate = ("gate",) if any(one["gate"] for one in found) else ()
    rows = []
    for one in found:
        when, judges = one["finished"][:16].replace("T", " ") or "–", ", ".join(one["judges"]) or "–"
        samples = f"{one['samples']}" + ("" if one["complete"] else " (interrupted)")
        means = (number_text(one["means"].get(name)) for name in metrics)
        rows.append([one["name"], when, judges, samples, *(one[name] or "–" for name in gate), *means])
    texts = ("run", "finished", "judge")
    table = table_of((*texts, "samples", *gate, *metrics), rows, title="Runs, the latest first", left=texts)
    table.columns[1].width = len("2026-11-02 10:00")  # a date on two lines would take the room of the judge's name
    console().print(table)
