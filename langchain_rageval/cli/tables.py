"""What the commands print: tables and samples, coloured in a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from langchain_rageval.cli.text import printable
from langchain_rageval.data.schema import Finding, Row, Score
from langchain_rageval.evaluation.planning import PLAN_HEADINGS, Plan, plan_cells
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import MetricSummary, summarise
from langchain_rageval.testset.rows import Testset
from langchain_rageval.trust.qualification import COST_HEADINGS, LEGEND, STEP_HEADINGS, Qualification

_COLOURS = {
    "supported": "green",
    "contradicted": "red",
    "absent": "yellow",
    "TP": "green",
    "FP": "red",
    "FN": "yellow",
    "useful": "green",
    "needed": "green",
}
_FITNESS = {"fit": "green", "fit with care": "yellow", "cannot tell": "magenta", "unfit": "red"}
_WORST = 3
_LONGEST = 300
_ENDLESS = 1_000_000
_SPARED = ("tokens", "calls", "unscored", "pairs", "baseline", "candidate")
"""Columns that a narrow terminal can do without, the first to go first."""


class Output(Console):
    """Makes tables as wide as they may be, and leaves the end of a closed pipe to the commands.

    rich itself would cut numbers off, and exit with 1, a gate's code.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints, tables so that no name and no number is cut."""
        for table in objects:
            if isinstance(table, Table):
                self._fit(table)
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Say so to whoever started the command."""
        raise BrokenPipeError

    def _fit(self, table: Table) -> None:
        """Break headings rather than cells; then drop the frame, and the columns that can be spared.

        What is no terminal is as wide as the table.
        """
        if self._widest(table) <= self.width:
            return
        for place, column in enumerate(table.columns):
            if place == 0 or column.justify == "right":
                cells = [cell_len(Text.from_markup(str(cell)).plain) for cell in column.cells]
                words = [cell_len(word) for word in Text.from_markup(str(column.header)).plain.split()]
                column.width = max([*cells, *words])
        if not self.is_terminal:
            self.width = max(self.width, self._narrowest(table))
        if self._narrowest(table) > self.width:
            table.box, table.show_edge, table.padding = box.SIMPLE_HEAD, False, (0, 0)
        spared = [column for name in _SPARED for column in table.columns if column.header == name]
        left_out = []
        while spared and self._narrowest(table) > self.width:
            left_out.append(spared.pop(0))
            table.columns.remove(left_out[-1])
        if left_out:
            told = f"A wider terminal also shows {', '.join(str(column.header) for column in left_out)}."
            table.caption = "\n".join(filter(None, (str(table.caption or ""), told)))

    def _widest(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(max_width=_ENDLESS)).maximum

    def _narrowest(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(max_width=_ENDLESS)).minimum


def console(*, stderr: bool = False) -> Console:
    """Where the commands print; not narrower than a table needs when it is a pipe."""
    made = Output(highlight=False, emoji=False, stderr=stderr)
    if not made.is_terminal:
        made.width = 120
    return made


def show_report(report: Report, out: Console, *, written: str | None = None) -> None:
    """Print the summary, the worst samples, and the notes."""
    summary = report.summary()
    out.print(summary_table(f"{len(report)} samples", {"all": report.rows}))
    for metric, whole in summary.items():
        best = 1.0 if whole.direction == "higher" else 0.0
        worst = [row for row in report.worst(metric, _WORST) if row.scores[metric].value != best]
        if worst:
            out.print(f"\n[bold]Worst by {escape(metric)}[/bold]")
        for row in worst:
            out.print(f"  {escape(_short(row.sample.id))}: {escape(_short(str(row.scores[metric])))}")
    show_notes(report.notes, out)
    if written:
        out.print(f"\nReport written to {escape(written)}", soft_wrap=True)


def show_diagnosis(report: Report) -> None:
    """Print how many samples have each cause, and what to look at; nothing when no metric can show one."""
    diagnosis = report.diagnose()
    if diagnosis.counts.keys() <= {"cannot tell"}:
        return
    table = Table(title="Diagnosis", title_justify="left", title_style="bold")
    for heading in ("samples", "cause", "what to look at"):
        table.add_column(heading, justify="right" if heading == "samples" else "left")
    for cause, count in diagnosis.counts.items():
        table.add_row(str(count), cause, diagnosis.remedies.get(cause, ""))
    out = console()
    out.print()
    out.print(table)


def show_plan(plan: Plan) -> None:
    """Print what each metric is expected to cost, and all together."""
    table = Table(title=plan.title, title_justify="left", title_style="bold")
    for number, heading in enumerate(PLAN_HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    for metric in plan.values():
        table.add_row(*map(escape, plan_cells(metric)))
    table.add_section()
    table.add_row(*plan_cells(plan.total))
    out = console()
    out.print(table)
    show_notes(plan.notes, out)


def show_testset(testset: Testset, out: Console, *, written: str) -> None:
    """Print how many rows of each evolution came, some of them, what was rejected and why, and the notes."""
    table = Table(title=f"{len(testset)} questions", title_justify="left", title_style="bold")
    table.add_column("evolution")
    table.add_column("rows", justify="right")
    table.add_column("for example")
    for name, count in testset.counts.items():
        first = next(row for row in testset.rows if row.evolution == name)
        table.add_row(escape(name), str(count), escape(_short(first.question)))
    out.print(table)
    out.print(f"{testset.yields['attempts']} attempts")
    for reason, count in testset.yields["rejected"].items():
        out.print(f"  {count} {escape(printable(reason))}")
    show_notes(testset.notes, out)
    if written:
        out.print(f"\nTest set written to {escape(written)}", soft_wrap=True)


def show_notes(notes: Iterable[str], out: Console) -> None:
    """Print what a reader of the numbers should know."""
    for note in notes:
        out.print(f"\n[italic]{escape(printable(note))}[/italic]", soft_wrap=True)


def summary_table(title: str, slices: Mapping[str, Sequence[Row]]) -> Table:
    """A line for each metric of each slice of rows."""
    table = Table(title=title, title_justify="left", title_style="bold")
    named = len(slices) > 1
    for heading in (*(["slice"] if named else []), "metric"):
        table.add_column(heading)
    for heading in ("mean", "95% interval", "scored", "unscored", "failed", "calls", "tokens"):
        table.add_column(heading, justify="right")
    for name, rows in slices.items():
        for metric in summarise(rows).values():
            told = [name, metric.metric] if named else [metric.metric]
            table.add_row(*(escape(printable(cell)) for cell in told), *_cells(metric))
    return table


def comparison_table(title: str, slices: Mapping[str, Sequence[Row]]) -> Table:
    """A line for each metric with its mean in each slice of rows, and what it cost over all of them."""
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    table.add_column("mean", no_wrap=True)
    for heading in (*slices, "unscored", "calls"):
        table.add_column(escape(heading), justify="right", max_width=10)
    summaries = [summarise(rows) for rows in slices.values()]
    everything = summarise([row for rows in slices.values() for row in rows])
    for name, whole in everything.items():
        better = " ↓" if whole.direction == "lower" else ""
        means = [_mean(summary[name]) for summary in summaries]
        table.add_row(f"{escape(name)}{better}", *means, str(whole.unscored), str(whole.calls))
    tokens = sum((metric.input_tokens or 0) + (metric.output_tokens or 0) for metric in everything.values())
    calls = sum(metric.calls for metric in everything.values())
    failed = sum(metric.failed for metric in everything.values())
    table.caption = (
        f"↓ lower is better. {calls} calls, {tokens:,} tokens, {failed} failed. Shared steps are asked once."
    )
    return table


def show_qualification(found: Qualification, *, written: str | None) -> None:
    """Print what was found of each step, which metrics the judge is fit for, and the notes."""
    out = console()
    told = [(found.title, STEP_HEADINGS, found.step_cells()), ("Replies and cost", COST_HEADINGS, found.cost_cells())]
    for title, headings, lines in told:
        table = Table(title=escape(printable(title)), title_justify="left", title_style="bold")
        for heading in headings:
            table.add_column(heading, justify="left" if heading in ("step", "verdict", "rung") else "right")
        for line in lines:
            table.add_row(*map(escape, line))
        out.print(table)
    out.print(f"[dim]{LEGEND}[/dim]\n", soft_wrap=True)
    for metric, verdict, reason in found.metric_cells():
        colour = _FITNESS[found.verdict[metric]]
        why = escape(printable(reason))
        out.print(f"[bold]{metric}[/bold] [{colour}]{verdict}[/{colour}]\n  [dim]{why}[/dim]", soft_wrap=True)
    show_notes(found.notes, out)
    if written:
        out.print(f"\nWritten to {escape(written)}", soft_wrap=True)


def show_sample(row: Row, score: Score, out: Console) -> None:
    """Print a sample with the reason for its score, each statement with its verdict and the sentences that decide."""
    sentences = NumberedContexts.of(row.sample.contexts or []).sentences
    out.print(f"\n[bold]{escape(_short(row.sample.question))}[/bold]")
    out.print(f"  {escape(_short(row.sample.answer or ''))}")
    out.print(f"  [bold]{'–' if score.value is None else f'{score.value:.2f}'}[/bold] {escape(_short(score.comment))}")
    for finding in score.findings:
        colour = _COLOURS.get(finding.verdict, "default")
        out.print(f"    [{colour}]{finding.verdict}[/{colour}] {escape(_short(finding.text))}")
        for line in _cited(finding, sentences):
            out.print(f"      [dim]{line}[/dim]")


def _cited(finding: Finding, sentences: dict[str, str]) -> Iterable[str]:
    return (escape(_short(f"[{number}] {sentences[number]}")) for number in finding.cites if number in sentences)


def _cells(metric: MetricSummary) -> tuple[str, ...]:
    tokens = (metric.input_tokens or 0) + (metric.output_tokens or 0)
    return (
        _mean(metric),
        escape(metric.interval) or "–",
        str(metric.scored),
        str(metric.unscored),
        str(metric.failed),
        str(metric.calls),
        f"{tokens:,}" if tokens else "–",
    )


def _mean(metric: MetricSummary) -> str:
    return "–" if metric.mean is None else f"{metric.mean:.3f}"


def _short(text: str) -> str:
    line = printable(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
