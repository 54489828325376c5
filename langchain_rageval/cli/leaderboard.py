"""`rageval leaderboard REPORT...`: which model's answers are better, and which are not told apart."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_rageval.cli.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from langchain_rageval.data.schema import Row
    from langchain_rageval.trust.leaderboard import Leaderboard


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "leaderboard", help="rank the models whose answers one or several reports have scored"
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="that `rageval evaluate --out` wrote; samples that name no model in their metadata count as the file's "
        "name, and questions are paired by id",
    )
    parser.add_argument("--metric", help="by which to rank (default: rubric, or the only one)")


def run(options: argparse.Namespace) -> int:
    """Rank, and show the table."""
    from langchain_rageval.report.report import Report
    from langchain_rageval.trust.leaderboard import leaderboard

    stems = [Path(path).stem for path in options.reports]
    names = stems if len(set(stems)) == len(stems) else options.reports
    reports = {name: Report.load(path) for name, path in zip(names, options.reports, strict=True)}
    rows = [_named(row, name) for name, report in reports.items() for row in report.rows]
    notes = dict.fromkeys(note for report in reports.values() for note in report.notes)
    _show(leaderboard(Report(rows, list(notes)), options.metric))
    return 0


def _named(row: Row, file: str) -> Row:
    metadata = {"model": file, **row.sample.metadata}
    return row.model_copy(update={"sample": row.sample.model_copy(update={"metadata": metadata})})


def _show(board: Leaderboard) -> None:
    from rich.markup import escape
    from rich.table import Table

    from langchain_rageval.cli.tables import console, show_notes
    from langchain_rageval.trust.leaderboard import HEADINGS, cells

    table = Table(title=escape(board.title), title_justify="left", title_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for standing in board.values():
        table.add_row(*(escape(printable(cell)) for cell in cells(standing)))
    out = console()
    out.print(table)
    if board.criteria:
        out.print(_grades(board))
    show_notes(board.notes, out)


def _grades(board: Leaderboard) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Mean grades", title_justify="left", title_style="bold")
    table.add_column("model")
    for name in board.criteria:
        table.add_column(escape(printable(name)), justify="right")
    for model, standing in board.items():
        grades = (standing.grades.get(name) for name in board.criteria)
        table.add_row(escape(printable(model)), *("–" if grade is None else f"{grade:.2f}" for grade in grades))
    return table
