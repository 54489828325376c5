"""`rageval qualify`, `probe`, `label`, `agreement`, `leaderboard` and `rubric-study`: test judges, rank models."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from langchain_rageval._internal.page import pluralize, printable
from langchain_rageval.cli.inputs import build_embeddings, build_judge, call_options, parse_pairs, typed_prices
from langchain_rageval.cli.report_view import check_not_all_failed, warn_about_failures
from langchain_rageval.cli.terminal import console, open_if_possible, pick, show_notes, show_or_write, table_of
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import BelowThreshold, ConfigError, list_choices
from langchain_rageval.models.loading import load_judge
from langchain_rageval.report.files import metric_or_only
from langchain_rageval.report.labelling import load_labels
from langchain_rageval.report.report import Report
from langchain_rageval.trust.agreement import agreement
from langchain_rageval.trust.fitness import STEPS_OF
from langchain_rageval.trust.leaderboard import HEADINGS as BOARD_HEADINGS
from langchain_rageval.trust.leaderboard import leaderboard, standing_cells
from langchain_rageval.trust.probing import probe_judge
from langchain_rageval.trust.qualification import (
    KIND_HEADINGS,
    KIND_TITLE,
    LEGEND,
    STEP_HEADINGS,
    Fitness,
    Qualification,
    write_agreement,
)
from langchain_rageval.trust.qualify import qualify_judge
from langchain_rageval.trust.rubric_study import rubric_study

_LEVELS: Mapping[str, Sequence[Fitness]] = {"fit": ["fit"], "care": ["fit", "fit with care"]}
_FITNESS_COLOURS = {"fit": "green", "fit with care": "yellow", "cannot tell": "magenta", "unfit": "red"}
_EXAMPLES = {"per_grade": "examples", "none": "no examples"}


def run_qualify(options: argparse.Namespace) -> None:
    """Check all options, measure how often the judge is right on labelled items, and write and show the results.

    If a verdict on the judge does not meet `--require`, raise BelowThreshold.
    """
    required = _parse_requirements(options.require)
    if options.quick and options.full:
        raise ConfigError("--quick and --full exclude each other: leave one of them out")
    qualification = qualify_judge(
        build_judge(options),
        build_embeddings(options),
        options.language,
        items=options.own,
        quick=options.quick or not (options.full or options.own),
        repeats=options.repeats,
        **call_options(options),
    )
    if options.out:
        qualification.to_json(options.out)
    show_or_write(options, qualification.to_dict, lambda: _show_qualification(qualification, written=options.out))
    found = qualification.verdict
    levels = {name: _LEVELS[level] for name, level in required.items()}
    if missed := {name: " or ".join(allowed) for name, allowed in levels.items() if found[name] not in allowed}:
        problems = (f"{name}: required {allowed}, got {found[name]}" for name, allowed in missed.items())
        raise BelowThreshold("; ".join(problems))


def run_probe(options: argparse.Namespace) -> None:
    """Send test requests to the judge's endpoint, and write and show the capabilities found."""
    judge = load_judge(options.judge, **pick(options, "base_url", "temperature"))
    probe = probe_judge(judge, timeout=options.timeout)
    if options.out:
        probe.to_json(options.out)
    facts = {**asdict(probe), "options": probe.options}

    def show() -> None:
        out, words = console(), {None: "unknown", True: "yes", False: "no"}
        rows = [[name.replace("_", " "), str(words.get(value, value))] for name, value in asdict(probe).items()]
        out.print(table_of(("endpoint", "found"), rows, title=probe.judge, left=("found",)))
        fitting = ", ".join(f"{name}={value!r}" for name, value in probe.options.items())
        out.print(f"Options that fit: Judge(model, {fitting})", markup=False, soft_wrap=True)
        show_notes((), out, "Probe", options.out)

    show_or_write(options, lambda: facts, show)


def _parse_requirements(items: Sequence[str]) -> dict[str, str]:
    required = dict(parse_pairs(items, "--require"))
    for metric, level in required.items():
        if metric not in STEPS_OF:
            raise ConfigError(f"--require {metric}: unknown metric; use one of {list_choices(metric, STEPS_OF)}")
        if level not in _LEVELS:
            accepted = "METRIC=fit (the judge must be fit) or METRIC=care (fit, or fit with care)"
            raise ConfigError(f"--require takes {accepted}, got {metric}={level}")
    return required


def _show_qualification(qualification: Qualification, *, written: str | None) -> None:
    """Print the results of each step and kind of item, the metrics that the judge is fit for, and the notes."""
    out = console()
    tables = (
        (qualification.title, STEP_HEADINGS, qualification.step_cells()),
        (KIND_TITLE, KIND_HEADINGS, qualification.kind_cells()),
        ("Replies and cost", qualification.cost_headings, qualification.cost_cells()),
    )
    for title, headings, lines in tables:
        out.print(table_of(headings, lines, title=title, left=("step", "verdict", "output mode", "kind of item")))
    out.print(f"[dim]{LEGEND}[/dim]\n", soft_wrap=True)
    examined = {name for name, steps in STEPS_OF.items() if qualification.steps.keys() & {*steps}}
    for metric, verdict, reason in qualification.metric_cells():
        if metric not in examined:
            continue
        colour = _FITNESS_COLOURS[qualification.verdict[metric]]
        explanation = escape(printable(reason))
        out.print(
            f"[bold]{escape(metric)}[/bold] [{colour}]{escape(verdict)}[/{colour}]\n  [dim]{explanation}[/dim]",
            soft_wrap=True,
        )
    if others := [name for name in qualification.verdict if name not in examined]:
        out.print(f"Not examined, for lack of labelled items or of --embeddings: {', '.join(others)}", soft_wrap=True)
    show_notes(qualification.notes, out)
    if written:
        out.print(f"\nWritten to {escape(written)}", soft_wrap=True)


def run_label(options: argparse.Namespace) -> None:
    """Draw samples, write the CSV file or the HTML page for labelling, and print the next step."""
    if not options.html and (options.scale or options.instruction):
        raise ConfigError("--scale and --instruction apply only to the HTML page: add --html")
    baseline = Report.load(options.baseline) if options.baseline else None
    report = Report.load(options.report, lazy=True)
    sheet = report.to_label(options.n, options.metric, seed=options.seed, baseline=baseline)
    out = console()
    count = f"{pluralize(len(sheet), 'sample')} to label for {sheet.metric}, written to"
    if options.out or not options.html:
        path = options.out or "labels.csv"
        sheet.to_csv(path, delimiter=";" if options.semicolons else ",")
        out.print(escape(printable(f"{count} {path}: fill in the column 'label'")), soft_wrap=True)
    if options.html:
        scale = tuple(options.scale) if options.scale else None
        sheet.to_html(options.html, scale=scale, instruction=options.instruction, language=options.language)
        saved = f"{Path(options.html).stem}.csv"
        use = "rageval compare --labels" if baseline else "rageval agreement"
        message = f"{count} {options.html}: open it in a browser; it saves {saved}, for {use}"
        out.print(escape(printable(message)), soft_wrap=True)
    show_notes(sheet.notes, out)
    if options.html:
        open_if_possible(options.html, options)


def run_agreement(options: argparse.Namespace) -> None:
    """Compare the judge's scores with human labels, and show each statistic with its interval."""
    report = Report.load(options.report, lazy=True)
    metric = metric_or_only(report, options.metric)
    scale = tuple(options.scale) if options.scale else None
    result = agreement(
        report.scores(metric),
        load_labels(options.labels),
        options.kind,
        scale=scale,
        **pick(options, "threshold", "raw_grades"),
    )
    if options.out:
        write_agreement(options.out, result, metric, report)
    out = console()
    out.print(table_of(result.headings, result.cells(), title=result.title, left=("note",)))
    show_notes(result.notes, out)


def run_leaderboard(options: argparse.Namespace) -> None:
    """Rank the models whose answers the reports score, by the mean of one metric, and show the table of ranks."""
    stems = [Path(path).stem for path in options.reports]
    names = stems if len(set(stems)) == len(stems) else options.reports
    reports = {name: Report.load(path) for name, path in zip(names, options.reports, strict=True)}
    rows = [_with_model(row, name) for name, report in reports.items() for row in report.rows]
    notes = dict.fromkeys(note for report in reports.values() for note in report.notes)
    board, out = leaderboard(Report(rows, list(notes)), options.metric), console()
    out.print(table_of(BOARD_HEADINGS, map(standing_cells, board.values()), title=board.title, left=("model",)))
    if board.criteria:
        grades = {model: [standing.grades.get(name) for name in board.criteria] for model, standing in board.items()}
        cells = ((model, *("–" if one is None else f"{one:.2f}" for one in line)) for model, line in grades.items())
        out.print(table_of(("model", *board.criteria), cells, title="Mean grades"))
    show_notes(board.notes, out)


def _with_model(row: Row, default: str) -> Row:
    metadata = {"model": default, **row.sample.metadata}
    return row.model_copy(update={"sample": row.sample.model_copy(update={"metadata": metadata})})


def run_rubric_study(options: argparse.Namespace) -> None:
    """Grade the same answers by each judge with each rubric, and show a table of agreement with labels and cost."""
    endpoint = pick(options, "base_url", "temperature")
    judges = {name: load_judge(name, **endpoint) for name in options.judge or ["offline"]}
    sheets = list(load_samples(options.file))
    if not sheets:
        raise ConfigError(f"{options.file} contains no samples: pass at least one")
    labels = None
    if options.labels:
        labels = {s.id: s.metadata[options.labels] for s in sheets if s.metadata.get(options.labels) is not None}
        if not labels:
            raise ConfigError(
                f"--labels {options.labels}: no sample has a value under this key in its metadata; name the key of the "
                "human labels"
            )
    study = rubric_study(
        judges,
        _rubrics(options.scale or ["0-3"], options.examples),
        sheets,
        labels,
        price=typed_prices(options),
        label_scale=_parse_scale(options.label_scale, "--label-scale"),
        progress=not options.quiet,
        **pick(options, "max_concurrency", "journal"),
    )
    check_not_all_failed(study.report)
    if options.out:
        study.report.to_jsonl(options.out)
    table = table_of(study.headings, study.cells(), title=study.title, left=("rubric",))
    for column in table.columns[:2]:
        column.no_wrap = True
    out = console()
    if not out.is_terminal:
        out.width = 160  # so that no number is cut
    out.print(table)
    show_notes(study.notes, out)
    warn_about_failures(study.report)


def _rubrics(scales: Sequence[str], examples: str) -> Mapping[str, Mapping[str, Any]]:
    choices = _EXAMPLES if examples == "both" else {examples: _EXAMPLES[examples]}
    return {
        f"{scale}, {label}": {"scale": _parse_scale(scale, "--scale"), "examples": choice}
        for scale in scales
        for choice, label in choices.items()
    }


def _parse_scale(text: str, option: str) -> tuple[int, int]:
    match = re.fullmatch(r"(-?\d+)-(-?\d+)", text.strip())
    if not match:
        raise ConfigError(f"{option} takes LOW-HIGH, such as 0-3, got {text!r}")
    return int(match[1]), int(match[2])
