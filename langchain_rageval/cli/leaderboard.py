"""`rageval leaderboard REPORT...`: rank models by the scores of their answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from langchain_rageval.data.schema import Row
    from langchain_rageval.trust.leaderboard import Leaderboard


def add_to(commands: Any) -> None:
    """Add the command `rageval leaderboard` and its options to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "leaderboard", help="rank models by the scores of their answers in one or several reports"
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="report written by `rageval evaluate --out`; samples without metadata.model belong to a model named after "
        "the file, and questions are paired by id",
    )
    parser.add_argument("--metric", help="metric to rank by (default: rubric, or the only metric)")


def run(options: argparse.Namespace) -> int:
    """Rank the models and show the table."""
    from langchain_rageval.report.report import Report
    from langchain_rageval.trust.leaderboard import leaderboard

    stems = [Path(path).stem for path in options.reports]
    names = stems if len(set(stems)) == len(stems) else options.reports
    reports = {name: Report.load(path) for name, path in zip(names, options.reports, strict=True)}
    rows = [_with_model(row, name) for name, report in reports.items() for row in report.rows]
    notes = dict.fromkeys(note for report in reports.values() for note in report.notes)
    _show(leaderboard(Report(rows, list(notes)), options.metric))
    return 0


def _with_model(row: Row, default: str) -> Row:
    metadata = {"model": default, **row.sample.metadata}
    return row.model_copy(update={"sample": row.sample.model_copy(update={"metadata": metadata})})


def _show(board: Leaderboard) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.trust.leaderboard import HEADINGS, standing_cells

    table = Table(title=escape(board.title), title_justify="left", title_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for standing in board.values():
        table.add_row(*(escape(cell) for cell in standing_cells(standing)))
    out = console()
    out.print(table)
    if board.criteria:
        out.print(_grades_table(board))
    show_notes(board.notes, out)


def _grades_table(board: Leaderboard) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Mean grades", title_justify="left", title_style="bold")
    table.add_column("model")
    for name in board.criteria:
        table.add_column(escape(name), justify="right")
    for model, standing in board.items():
        grades = (standing.grades.get(name) for name in board.criteria)
        table.add_row(escape(model), *("–" if grade is None else f"{grade:.2f}" for grade in grades))
    return table
