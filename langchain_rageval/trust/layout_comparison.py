"""LayoutComparison: qualifications of one judge with several layouts (orders of the parts of a request)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from langchain_rageval.prompts.layout import Layout
from langchain_rageval.report.html_table import html_table
from langchain_rageval.trust.qualification import Qualification

LAYOUT_HEADINGS = ("step", "layout", "verdict", "right", "share", "interval", "valid at once", "tokens")


class LayoutComparison(Mapping[Layout, Qualification]):
    """Mapping of a layout to the qualification of a judge with it, shown as one table of all steps.

    The layouts are tried on the same labelled items. If the intervals of two layouts overlap, their shares of right
    verdicts may differ by chance.

    Args:
        qualifications: layout to qualification, in the order of the table.
    """

    def __init__(self, qualifications: Mapping[Layout, Qualification]) -> None:
        self._qualifications = dict(qualifications)

    def __getitem__(self, layout: Layout) -> Qualification:
        """Return the qualification with a layout."""
        return self._qualifications[layout]

    def __iter__(self) -> Iterator[Layout]:
        """Yield the layouts."""
        return iter(self._qualifications)

    def __len__(self) -> int:
        """Return the number of layouts."""
        return len(self._qualifications)

    @property
    def title(self) -> str:
        """Heading of the comparison: the judge, the language and the layouts."""
        first = next(iter(self._qualifications.values()))
        return f"{first.judge} in {first.language!r}, layouts {', '.join(self)}"

    def cells(self) -> Iterator[list[str]]:
        """Yield a table row for each step and layout, with a cell for each column of `LAYOUT_HEADINGS`."""
        first = next(iter(self._qualifications.values()))
        for name in first.steps:
            for layout, qualification in self._qualifications.items():
                step = qualification.steps[name]
                right = f"{step.right.hits:.0f}/{step.right.of}"
                tokens = "–" if step.tokens is None else f"{step.tokens:,}"
                shares = [step.right.percent, step.right.interval, step.valid.percent]
                yield [name, layout, step.verdict, right, *shares, tokens]

    def __repr__(self) -> str:
        """Return the comparison as text: the title, and a line for each step and layout."""
        lines = (
            f"{name}, {layout}: {verdict}. Right {right}, {share} {interval}; valid at once {valid}; tokens {tokens}"
            for name, layout, verdict, right, share, interval, valid, tokens in self.cells()
        )
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        """Return the table of steps and layouts as HTML, for notebooks."""
        return html_table(self.title, LAYOUT_HEADINGS, self.cells())

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of each layout to the fields of its qualification."""
        return {layout: qualification.to_dict() for layout, qualification in self._qualifications.items()}

    def to_json(self, path: str | Path) -> None:
        """Write `to_dict()` to a JSON file."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=2)
        Path(path).write_text(text + "\n", encoding="utf-8")
