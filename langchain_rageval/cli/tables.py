"""Terminal output of the commands: tables and samples, with colours in a terminal and without in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from langchain_rageval._internal.printable import printable, printable_lines
from langchain_rageval.data.schema import Row
from langchain_rageval.evaluation.planning import Plan, plan_table
from langchain_rageval.report.summary import MetricSummary, summarise
from langchain_rageval.run.prices import format_money
from langchain_rageval.testset.generation_plan import GenerationPlan, generation_table
from langchain_rageval.testset.testset import Testset, usage_line
from langchain_rageval.trust.qualification import (
    KIND_HEADINGS,
    KIND_TITLE,
    LEGEND,
    STEP_HEADINGS,
    Qualification,
)

_FITNESS_COLOURS = {"fit": "green", "fit with care": "yellow", "cannot tell": "magenta", "unfit": "red"}
_LONGEST = 300  # characters of a text
_ENDLESS = 1_000_000
_OPTIONAL_COLUMNS = ("tokens", "calls", "unscored", "pairs", "baseline", "candidate")
"""Columns that may be dropped in a narrow terminal, in this order."""


class TableConsole(Console):
    """Console that prints any text safely, never cuts names and numbers in tables, and raises BrokenPipeError.

    Texts lose control characters and marks of the writing direction; titles, headings and cells of tables are one line.
    rich itself would cut cells, and would exit with 1 at a closed pipe, which here means a threshold that was not met.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like rich, after fitting tables to the width."""
        for table in objects:
            if isinstance(table, Table):
                _put_on_one_line(table)
                self._fit(table)
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a str, in place of rich's own method, without characters that control the terminal."""
        return super().render_str(printable_lines(text), **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which `rageval` treats as success."""
        raise BrokenPipeError

    def _fit(self, table: Table) -> None:
        """Make a table fit: wrap headings rather than cells, then drop the frame, then optional columns.

        Output that is not a terminal becomes as wide as the table instead.
        """
        if self._widest(table) <= self.width:
            return
        for index, column in enumerate(table.columns):
            if index == 0 or column.justify == "right":
                cells = [cell_len(Text.from_markup(str(cell)).plain) for cell in column.cells]
                words = [cell_len(word) for word in Text.from_markup(str(column.header)).plain.split()]
                column.width = max([*cells, *words])
        if not self.is_terminal:
            self.width = max(self.width, self._narrowest(table))
        if self._narrowest(table) > self.width:
            table.box, table.show_edge, table.padding = box.SIMPLE_HEAD, False, (0, 0)
        optional = [column for name in _OPTIONAL_COLUMNS for column in table.columns if column.header == name]
        dropped = []
        while optional and self._narrowest(table) > self.width:
            dropped.append(optional.pop(0))
            table.columns.remove(dropped[-1])
        if dropped:
            hint = f"A wider terminal also shows {', '.join(str(column.header) for column in dropped)}."
            table.caption = "\n".join(filter(None, (str(table.caption or ""), hint)))

    def _widest(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(max_width=_ENDLESS)).maximum

    def _narrowest(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(max_width=_ENDLESS)).minimum


def _put_on_one_line(table: Table) -> None:
    """Put the title, the headings and the cells of a table on one line each, if they are str."""
    table.title = printable(table.title) if isinstance(table.title, str) else table.title
    for column in table.columns:
        column.header = printable(column.header) if isinstance(column.header, str) else column.header
        column._cells = [printable(cell) if isinstance(cell, str) else cell for cell in column._cells]


def console(*, stderr: bool = False) -> Console:
    """Return a console for stdout or stderr, 120 columns wide if it is not a terminal."""
    out = TableConsole(highlight=False, emoji=False, stderr=stderr)
    if not out.is_terminal:
        out.width = 120
    return out


def show_plan(plan: Plan) -> None:
    """Print the expected cost of each metric and the total."""
    table = Table(title=plan.title, title_justify="left", title_style="bold")
    headings, lines = plan_table(plan)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for number, line in enumerate(lines):
        if number == len(lines) - 1:
            table.add_section()
        table.add_row(*map(escape, line))
    out = console()
    out.print(table)
    show_notes(plan.notes, out)


def show_generation_plan(plan: GenerationPlan) -> None:
    """Print the expected and the greatest cost of each step of a generation, and the total."""
    headings, (*steps, total) = generation_table(plan)
    table = Table(title=plan.title, title_justify="left", title_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for cells in steps:
        table.add_row(*map(escape, cells))
    table.add_section()
    table.add_row(*total)
    out = console()
    out.print(table)
    show_notes(plan.notes, out)


def show_testset(testset: Testset, out: Console, *, written: str) -> None:
    """Print the numbers of questions with examples, the reasons of rejections, calls and tokens, and the notes."""
    table = Table(title=f"{len(testset)} questions", title_justify="left", title_style="bold")
    table.add_column("evolution")
    table.add_column("rows", justify="right")
    table.add_column("example")
    for name, count in testset.counts.items():
        first = next(row for row in testset.rows if row.evolution == name)
        table.add_row(escape(name), str(count), escape(shorten(first.question)))
    out.print(table)
    out.print(f"{testset.yields['attempts']} attempts")
    examples = testset.rejection_examples
    for reason, count in testset.yields["rejected"].items():
        example = f" ({shorten(examples[reason])})" if reason in examples else ""
        out.print(f"  {count} rejected: {escape(printable(reason + example))}")
    out.print(usage_line(testset.usage, testset.calls_per_row))
    show_notes(testset.notes, out)
    if written:
        out.print(f"\nTest set written to {escape(written)}", soft_wrap=True)


def show_notes(notes: Iterable[str], out: Console) -> None:
    """Print the notes of a result."""
    for number, note in enumerate(notes):
        if not number:
            out.print()
        print_indented(out, "", f"[italic]{escape(printable(note))}[/italic]", indent=2)


def summary_table(title: str, slices: Mapping[str, Sequence[Row]]) -> Table:
    """Build a table with one line for each metric of each slice of rows."""
    table = Table(title=title, title_justify="left", title_style="bold")
    has_slices = len(slices) > 1
    for heading in (*(["slice"] if has_slices else []), "metric"):
        table.add_column(heading)
    summaries = {name: summarise(rows) for name, rows in slices.items()}
    has_money = any(metric.money is not None for summary in summaries.values() for metric in summary.values())
    money = ("money",) if has_money else ()
    for heading in ("mean", "95% interval", "scored", "unscored", "failed", "calls", "tokens", *money):
        table.add_column(heading, justify="right")
    for name, summary in summaries.items():
        for metric in summary.values():
            names = [name, metric.metric] if has_slices else [metric.metric]
            amount = [format_money(metric.money)] if has_money else []
            table.add_row(*(escape(cell) for cell in names), *_cells(metric), *amount)
    return table


def show_qualification(qualification: Qualification, *, written: str | None) -> None:
    """Print the results of each step and kind of item, the metrics that the judge is fit for, and the notes."""
    out = console()
    tables = (
        (qualification.title, STEP_HEADINGS, qualification.step_cells()),
        (KIND_TITLE, KIND_HEADINGS, qualification.kind_cells()),
        ("Replies and cost", qualification.cost_headings, qualification.cost_cells()),
    )
    for title, headings, lines in tables:
        table = Table(title=escape(title), title_justify="left", title_style="bold")
        for heading in headings:
            table.add_column(
                heading, justify="left" if heading in ("step", "verdict", "rung", "kind of item") else "right"
            )
        for line in lines:
            table.add_row(*map(escape, line))
        out.print(table)
    out.print(f"[dim]{LEGEND}[/dim]\n", soft_wrap=True)
    for metric, verdict, reason in qualification.metric_cells():
        colour = _FITNESS_COLOURS[qualification.verdict[metric]]
        explanation = escape(printable(reason))
        out.print(
            f"[bold]{escape(metric)}[/bold] [{colour}]{escape(verdict)}[/{colour}]\n  [dim]{explanation}[/dim]",
            soft_wrap=True,
        )
    show_notes(qualification.notes, out)
    if written:
        out.print(f"\nWritten to {escape(written)}", soft_wrap=True)


def _cells(metric: MetricSummary) -> tuple[str, ...]:
    tokens = (metric.input_tokens or 0) + (metric.output_tokens or 0)
    return (
        format_mean(metric),
        escape(metric.interval) or "–",
        str(metric.scored),
        str(metric.unscored),
        str(metric.failed),
        str(metric.calls),
        f"{tokens:,}" if tokens else "–",
    )


def format_mean(metric: MetricSummary) -> str:
    """Return the mean of a metric with three decimals, or a dash."""
    return "–" if metric.mean is None else f"{metric.mean:.3f}"


def shorten(text: str) -> str:
    """Return the text on one line, cut after 300 characters."""
    line = printable(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def print_indented(out: Console, prefix: str, text: str, indent: int | None = None) -> None:
    """Print a text behind a prefix; its further lines begin below its first one, or after `indent` spaces.

    Args:
        out: console.
        prefix: beginning of the first line, as markup.
        text: the text, as markup on one line.
        indent: spaces before the further lines; by default the width of the prefix.
    """
    begin = Text.from_markup(prefix, emoji=False)
    indent = begin.cell_len if indent is None else indent
    whole = Text.assemble(begin, Text.from_markup(text, emoji=False))
    first, *_ = whole.wrap(out, out.width) or [Text()]
    out.print(first)
    rest = whole[len(first.plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    for line in rest.wrap(out, max(20, out.width - indent)) if rest else ():
        out.print(Text(" " * indent).append(line))
