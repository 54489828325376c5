"""Tables in terminals of any width: no number is ever cut."""

import io
import re

import pytest
from helpers.each import each
from helpers.reports import report
from helpers.screens import seen, shown
from rich.table import Table

from langchain_rageval.cli.terminal import TableConsole

LONGEST = "context_entity_recall"
HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b1m\x1b]8;;http://h\x1b\\\\b\u202e\u2066c\u200f\u061c\u2028\rd"
FORBIDDEN = set("\x07\x1b\x9b\r\u202e\u2066\u200f\u061c\u2028")


@pytest.mark.gate
@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), pytest.param({"NO_COLOR": "1"}, False, marks=pytest.mark.gate)]
)
def test_progress_and_tables_have_colours_unless_disabled(written, environment, coloured):
    samples = written(*[{"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}] * 3)
    told = seen(100, "evaluate", samples, **environment)
    assert "3/3 samples" in told
    assert "Judged offline" in told
    assert bool(re.search(r"\x1b\[[0-9;]*(3[0-8]|9[0-7])[0-9;]*m", told)) == coloured


def table(columns=("mean", "95% interval", "scored", "unscored", "failed", "calls", "tokens")):
    made = Table(title="t")
    made.add_column("metric")
    for heading in columns:
        made.add_column(heading, justify="right")
    made.add_row(LONGEST, *["[0.395, 0.711]" if "interval" in heading else "64,213" for heading in columns])
    return made


def printed(width, made, *, terminal=True):
    out = TableConsole(width=width, force_terminal=terminal, no_color=True, highlight=False)
    with out.capture() as captured:
        out.print(made)
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get()), out.width


@each("width", [60, 80, 100, 120])
def test_no_name_and_no_number_is_cut(width):
    told, _ = printed(width, table())
    assert "…" not in told
    assert LONGEST in told
    assert "[0.395, 0.711]" in told
    assert max(map(len, told.splitlines())) <= width


def test_a_table_that_is_too_wide_without_all_optional_columns_is_not_cut():
    told, width = printed(40, table(["faithfulness", "context_precision", "95% interval"]))
    assert (width, "…" in told) == (40, False)
    assert told.splitlines()[-1].split() == [LONGEST, "64,213", "64,213", "[0.395,", "0.711]"]


def test_dropped_columns_are_named():
    assert "A wider terminal also shows tokens, calls." in " ".join(printed(66, table())[0].split())
    assert "wider" not in printed(80, table())[0]
    with_room = printed(120, table())[0]
    assert ("wider" in with_room, "│" in with_room) == (False, True)


def test_a_pipe_is_as_wide_as_the_table():
    told, width = printed(40, table(), terminal=False)
    assert "│" in told
    assert "…" not in told
    assert width > 40


def test_a_column_of_words_is_broken_rather_than_the_frame():
    made = Table("cause", "what to check")
    made.add_row("unsupported addition", "look at chunking and k " * 10)
    told, _ = printed(60, made)
    assert "│ unsupported addition" in told
    assert max(map(len, told.splitlines())) <= 60


@pytest.mark.parametrize(
    "words",
    [["compare", "before.jsonl", "after.jsonl"], pytest.param(["report", "after.jsonl"], marks=pytest.mark.gate)],
)
def test_reports_and_comparisons_fit_eighty_columns(tmp_path, words):
    for name in ("before", "after"):
        report([1.0, 0.0, 0.5] * 3).to_jsonl(tmp_path / f"{name}.jsonl")
    lines = shown(80, *(tmp_path / word if word.endswith("jsonl") else word for word in words))
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    assert any(line.startswith(("faithfulness ", "│ faithfulness ")) for line in lines)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_console_prints_a_cell_on_one_line_and_no_hostile_character_wherever_it_stands(is_terminal):
    file = io.StringIO()
    out = TableConsole(file=file, force_terminal=is_terminal, no_color=True, width=200, highlight=False)
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row("on one\nline")
    out.print(table)
    out.print(HOSTILE)
    out.print(f"[bold]{HOSTILE.replace('[', '(')}[/bold]", soft_wrap=True)
    shown = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())  # the styles of the table
    assert not FORBIDDEN & set(shown)
    assert shown.count("\ufffd]0;title\ufffd") == 6
    assert "on one line" in shown
