"""Progress of a run on stderr: a live line in a terminal or notebook, now and then a plain one elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_rageval.run.usage_meter import UsageMeter

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts finished rows; shows nothing by itself."""

    def __init__(self, total: int | None, meter: UsageMeter, unit: str) -> None:
        self.total = total
        self._unit = unit
        self._meter = meter
        self._started = time.monotonic()
        self.rows = 0
        self.failed = 0

    def advance(self, failed: int = 0) -> None:
        """Count a row, and how many of its scores failed."""
        self.rows += 1
        self.failed += failed

    def finish(self) -> None:
        """Nothing more comes."""

    def line(self) -> str:
        """Rows, calls, tokens, failures, and the time left as far as it can be told."""
        usage = self._meter.usage
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        rows = f"{self.rows}/{self.total}" if self.total is not None else str(self.rows)
        return f"{rows} {self._unit}, {usage.calls} calls, {tokens:,} tokens, {self.failed} failed{self._left()}"

    def _left(self) -> str:
        if not self.rows or self.total is None or self.rows >= self.total:
            return ""
        seconds = (time.monotonic() - self._started) / self.rows * (self.total - self.rows)
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


class PlainProgress(Progress):
    """A line at most every few seconds, and one at the end of a run that had any."""

    _last = 0.0
    _said = False

    def advance(self, failed: int = 0) -> None:
        """Count a row, and say so if nothing was said for a while."""
        super().advance(failed)
        now = time.monotonic()
        self._last = self._last or self._started
        if now - self._last >= _SECONDS_BETWEEN_LINES:
            self._say()
            self._last = now

    def finish(self) -> None:
        """Say how it ended, if anything was said before."""
        if self._said:
            self._say()

    def _say(self) -> None:
        self._said = True
        sys.stderr.write(f"rageval: {self.line()}\n")
        sys.stderr.flush()


class LiveProgress(Progress):
    """One line that is drawn anew."""

    def __init__(self, total: int | None, meter: UsageMeter, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        super().__init__(total, meter, unit)
        columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.description}"))
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._task = self._bar.add_task(self.line(), total=total)
        self._bar.start()

    def advance(self, failed: int = 0) -> None:
        """Count a row and draw it."""
        super().advance(failed)
        self._bar.update(self._task, completed=self.rows, description=self.line())

    def finish(self) -> None:
        """Take the line away."""
        self._bar.stop()


@contextmanager
def show_progress(total: int | None, meter: UsageMeter, *, show: bool, unit: str = "samples") -> Iterator[Progress]:
    """The progress of a run, shown in the way that fits where stderr goes."""
    kind = Progress if not show else LiveProgress if _live() else PlainProgress
    progress = kind(total, meter, unit)
    try:
        yield progress
    finally:
        progress.finish()


def _live() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
