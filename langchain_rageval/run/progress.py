"""Progress of a run on stderr: a live line in terminals and notebooks, otherwise a plain line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_rageval._internal.page import pluralize
from langchain_rageval.run.usage import UsageMeter, format_money

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counter of finished rows that displays nothing; subclasses display the counts.

    Args:
        total: number of rows; None if unknown.
        meter: usage meter of the run; None if calls and tokens are not counted.
        unit: plural noun for the rows, such as "samples".
        outcome: function that returns the text to show in place of the number of failures; None shows the number.
    """

    def __init__(
        self, total: int | None, meter: UsageMeter | None, unit: str, outcome: Callable[[], str] | None = None
    ) -> None:
        self.total = total
        self._unit = unit
        self._meter = meter
        self._outcome = outcome
        self._started = time.monotonic()
        self.rows = 0
        self.failed = 0
        self._state = ""

    def show(self, state: str) -> None:
        """Show after the counts what the run is waiting for, such as the state of a batch."""
        if state != self._state:
            self._state = state
            self.refresh()

    def advance(self, failed: int = 0) -> None:
        """Count one finished row and its failed scores, and update the display.

        `failed` is the number of failed scores in this row.
        """
        self.rows += 1
        self.failed += failed
        self.refresh()

    def refresh(self) -> None:
        """Update the display between two finished rows."""

    def finish(self) -> None:
        """End the display of the progress."""

    def status_line(self) -> str:
        """Return the progress as text: rows, calls, tokens, failures, and the estimated time left if known."""
        rows = f"{self.rows}/{self.total}" if self.total is not None else str(self.rows)
        parts = [self._outcome() if self._outcome else f"{self.failed} failed"]
        if self._meter is not None:
            usage = self._meter.usage
            tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
            money = [] if usage.money is None else [f"{format_money(usage.money)} money"]
            parts = [pluralize(usage.calls, "call"), pluralize(tokens, "token"), *money, *parts]
        if self.rows and self.total is not None and self.rows < self.total:
            seconds = (time.monotonic() - self._started) / self.rows * (self.total - self.rows)
            parts.append(f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left")
        return f"{rows} {self._unit}, {', '.join(parts)}" + (f"; {self._state}" if self._state else "")


class PlainProgress(Progress):
    """Progress display that prints a line at most every 5 seconds.

    A last line is printed at the end if any line was printed before, unless nothing has changed since.
    """

    _last_time = 0.0
    _last_line = ""

    def refresh(self) -> None:
        """Print a progress line if the last line is at least 5 seconds old."""
        now = time.monotonic()
        self._last_time = self._last_time or self._started
        if now - self._last_time >= _SECONDS_BETWEEN_LINES:
            self._print()
            self._last_time = now

    def finish(self) -> None:
        """Print a last progress line if any line was printed before."""
        if self._last_line:
            self._print()

    def _print(self) -> None:
        if (line := self.status_line()) != self._last_line:
            self._last_line = line
            sys.stderr.write(f"rageval: {line}\n")
            sys.stderr.flush()


class LiveProgress(Progress):
    """Progress display that redraws one line with a progress bar."""

    def __init__(self, total: int | None, *options: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        super().__init__(total, *options)
        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        columns = (SpinnerColumn(), BarColumn(bar_width=30), text)
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._task = self._bar.add_task(self.status_line(), total=total)
        self._bar.start()

    def refresh(self) -> None:
        """Redraw the progress line."""
        self._bar.update(self._task, completed=self.rows, description=self.status_line())

    def finish(self) -> None:
        """Remove the progress line."""
        self._bar.stop()


@contextmanager
def show_progress(
    total: int | None,
    meter: UsageMeter | None,
    *,
    show: bool,
    unit: str = "samples",
    outcome: Callable[[], str] | None = None,
) -> Iterator[Progress]:
    """Display the progress of a run on stderr while the context is open.

    Args:
        total: number of rows; None if unknown.
        meter: usage meter of the run; None if calls and tokens are not counted.
        show: False displays nothing.
        unit: plural noun for the rows, such as "samples".
        outcome: function that returns the text to show in place of the number of failures; None shows the number.

    Yields:
        The progress counter, to be advanced after each row.
    """
    kind = Progress if not show else LiveProgress if _supports_live_line() else PlainProgress
    progress = kind(total, meter, unit, outcome)
    try:
        yield progress
    finally:
        progress.finish()


def _supports_live_line() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
