"""Plan of a generation: the expected and the greatest number of calls and tokens of each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_rageval._internal.html import paragraph, pluralize, table, text
from langchain_rageval.run.planned_costs import PlannedCosts
from langchain_rageval.run.prices import format_money

_HEADINGS = ("step", "calls", "tokens read", "tokens written", "texts to embed", "at most calls", "tokens")


@dataclass(frozen=True)
class PlannedStep:
    """Expected and greatest cost of one step over all rows.

    Attributes:
        step: name of the step.
        calls: number of chat model calls if nothing is rejected.
        input_tokens: tokens read by the models, as characters / 4; most tokenizers count more for Cyrillic.
        output_tokens: tokens written by the models, if their replies are as short as those of the dry run.
        embedded: number of texts to embed.
        most_calls: number of calls if every row uses all its attempts and every rewrite.
        most_tokens: number of tokens read and written in these calls.
        money: price of the expected calls; None without prices, or if a model has no price.
        most_money: price of the greatest number of calls.
    """

    step: str
    calls: int
    input_tokens: int
    output_tokens: int
    embedded: int
    most_calls: int
    most_tokens: int
    money: float | None = None
    most_money: float | None = None

    @property
    def tokens(self) -> int:
        """Sum of the expected input and output tokens of this step."""
        return self.input_tokens + self.output_tokens


class GenerationPlan(PlannedCosts[PlannedStep]):
    """Mapping of the names of steps to their costs, in the order of the steps.

    Attributes:
        size: number of rows to generate.
        rehearsed: number of rows in the dry run, from which the figures are scaled up.
        notes: costs that the figures do not include.
    """

    def __init__(self, steps: Iterable[PlannedStep], size: int, rehearsed: int, notes: Sequence[str]) -> None:
        super().__init__({step.step: step for step in steps})
        self.size = size
        self.rehearsed = rehearsed
        self.notes = list(notes)

    @property
    def total(self) -> PlannedStep:
        """Cost of all steps together."""
        names = ("calls", "input_tokens", "output_tokens", "embedded", "most_calls", "most_tokens")
        sums: dict[str, Any] = {name: sum(getattr(step, name) for step in self.values()) for name in names}
        for name in ("money", "most_money"):
            amounts = [getattr(step, name) for step in self.values()]
            sums[name] = None if None in amounts else sum(amounts)
        return PlannedStep("total", **sums)

    @property
    def most_calls(self) -> int:
        """Upper bound of the number of calls."""
        return self.total.most_calls

    @property
    def most_tokens(self) -> int:
        """Upper bound of the number of tokens."""
        return self.total.most_tokens

    @property
    def most_money(self) -> float | None:
        """Upper bound of the price."""
        return self.total.most_money

    @property
    def title(self) -> str:
        """Heading of the plan: the number of questions, and the expected calls for each."""
        return (
            f"Plan for {pluralize(self.size, 'question')}: {self.calls / self.size:.1f} calls each if none is rejected"
        )

    def __repr__(self) -> str:
        """Return the plan as text: a line for each step, the total with its upper bound, and the notes."""
        lines = [
            f"{step.step} {step.calls:,} calls, {step.tokens:,} tokens{_money(step.money)}, {step.embedded:,} texts to "
            f"embed, at most {step.most_calls:,} calls, {step.most_tokens:,} tokens{_money(step.most_money)}"
            for step in (*self.values(), self.total)
        ]
        return "\n".join([self.title, *lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the costs, for notebooks."""
        headings, lines = generation_table(self)
        rows = [map(text, line) for line in lines]
        notes = "".join(paragraph(f"<em>{text(note)}</em>") for note in self.notes)
        return paragraph(text(self.title)) + table(headings, rows) + notes


def generation_table(plan: GenerationPlan) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return headings and lines of the table of a plan, the total last; with columns for money if there are prices."""
    steps = (*plan.values(), plan.total)
    lines = [_cells(step) for step in steps]
    if all(step.most_money is None for step in steps):
        return _HEADINGS, lines
    amounts = [(format_money(step.money), format_money(step.most_money)) for step in steps]
    return (*_HEADINGS, "money", "at most"), [(*line, *own) for line, own in zip(lines, amounts, strict=True)]


def _cells(step: PlannedStep) -> tuple[str, ...]:
    expected = (step.calls, step.input_tokens, step.output_tokens, step.embedded)
    return (step.step, *(f"{number:,}" for number in (*expected, step.most_calls, step.most_tokens)))


def _money(amount: float | None) -> str:
    return "" if amount is None else f", {format_money(amount)} money"
