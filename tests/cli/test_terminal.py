"""Tables, the demo and reports in terminals of any width: no number is ever cut."""

import io
import re

import pytest
from helpers.each import each
from helpers.reports import QUESTION, STANDALONE, judged_as, report, sample, score, turn_row
from helpers.screens import seen, shown
from rich.cells import cell_len
from rich.table import Table

from langchain_rageval import Report, Row
from langchain_rageval.cli.demo import NEXT_COMMANDS
from langchain_rageval.cli.main import build_parser
from langchain_rageval.cli.report_view import warn_about_failures
from langchain_rageval.cli.terminal import TableConsole, table_of
from langchain_rageval.data.schema import Failure

LONGEST = "context_entity_recall"
HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b1m\x1b]8;;http://h\x1b\\\\b\u202e\u2066c\u200f\u061c\u2028\rd"
FORBIDDEN = set("\x07\x1b\x9b\r\u202e\u2066\u200f\u061c\u2028")


@pytest.mark.gate
@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_progress_and_tables_have_colours_unless_disabled(written, environment, coloured):
    samples = written(*[{"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}] * 3)
    told = seen(100, "evaluate", samples, **environment)
    assert [part for part in ("3/3 samples", "Judged offline") if part not in told] == []
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


def test_dropped_columns_are_named_and_a_pipe_is_as_wide_as_the_table():
    assert "A wider terminal also shows tokens, calls." in " ".join(printed(66, table())[0].split())
    assert "wider" not in printed(80, table())[0]
    with_room = printed(120, table())[0]
    assert ("wider" in with_room, "│" in with_room) == (False, True)
    told, width = printed(40, table(), terminal=False)
    assert ("│" in told, "…" in told, width > 40) == (True, False, True)


def test_a_long_word_is_folded_and_not_cut():
    row = ["night", "2026-11-02 10:00", "Q" * 30]
    told, _ = printed(45, table_of(("run", "finished", "judge"), [row], left=("finished", "judge")))
    assert (told.count("Q"), "…" in told) == (30, False)


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
    assert [line for line in lines if len(line) > 80 or "…" in line] == []
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


# The demo and reports in 80 columns


@pytest.fixture(scope="module")
def demo():
    """Return the lines that the demo writes to a terminal of 80 columns."""
    return shown(80, "demo", "--quiet")


def test_the_demo_fits_one_screen_and_gives_the_diagnosis_before_the_details_and_explains_its_columns(demo):
    assert 24 <= len(demo) <= 40
    assert max(map(cell_len, demo)) <= 80
    text = "\n".join(demo)
    places = [text.index(part) for part in ("Diagnosis", "Mean score for", "Question", "Judged offline", "Score your")]
    assert places == sorted(places)
    shown = ("40 answers", "the right answer", "answer to another", "refusal to answer", "[1.1]", "Шурин", "0 failed")
    assert [part for part in shown if part not in text] == []
    assert text.count("\n  Answer ") == 2


def test_the_demo_ends_with_the_two_commands_to_try_next(demo):
    ends = [line for line in demo if line][-2:]
    assert ends == [f"{title} {command}" for title, command in NEXT_COMMANDS.items()]
    for command in NEXT_COMMANDS.values():
        assert callable(build_parser().parse_args(command.split()[1:]).run)


@pytest.mark.gate
def test_wrapped_lines_keep_their_indentation(tmp_path):
    question = "Which rivers flow through the capital of Bavaria and in which order do they reach it from the south?"
    reason = "The contexts support one of three statements; not found: «It lies in Saxony»; not found: «It is old»."
    row = Row(index=0, sample=sample(0, question=question), scores={"faithfulness": score(0.25, reason=reason)})
    Report([row]).to_jsonl(tmp_path / "report.jsonl")
    lines = shown(80, "report", tmp_path / "report.jsonl")
    start = lines.index("Worst by faithfulness")
    end = lines.index("", start)
    assert [line.rstrip() for line in lines[start + 1 : end]] == [
        "  0.250  Which rivers flow through the capital of Bavaria and in which order do",
        "         they reach it from the south? (sample-0)",
        "         The contexts support one of three statements; not found: «It lies in",
        "         Saxony»; not found: «It is old».",
    ]


def test_a_report_says_why_scores_are_missing_and_shows_the_worst_samples_after_the_diagnosis(rageval, tmp_path):
    report([0.5, 0.0, 0.25]).to_jsonl(tmp_path / "run.jsonl")
    _, out, _ = rageval("report", tmp_path / "run.jsonl")
    assert out.splitlines()[0].strip() == "3 samples · run"
    assert out.index("Diagnosis") < out.index("Worst by faithfulness")
    worst = out[out.index("Worst by faithfulness") : out.index("Worst by claim_noise")].splitlines()
    shown = [line.strip() for line in worst if "Question" in line]
    assert shown == [f"{value}  Question {n}? (sample-{n})" for value, n in (("0.000", 1), ("0.250", 2), ("0.500", 0))]
    assert "Failed: 1 of claim_noise: JudgeOutputError in verify_statements" in out
    assert "Unscored: 1 of claim_noise: the answer states no facts" in out


FAILURES = [
    (("ConnectError", "no such name (https://host/api/v2/oauth)"), "is GIGACHAT_AUTH_URL right?"),
    (("ConnectError", "[SSL: CERTIFICATE_VERIFY_FAILED] (https://host/v1)"), "in GIGACHAT_CA_BUNDLE_FILE, for other"),
    (
        ("ReadError", "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] (https://host/v1)"),
        "in Python, ssl_context= of GigaChat",
    ),
    (("AuthenticationError", "401 https://host: scope from db"), "does GIGACHAT_SCOPE belong to the key: "),
    (("AuthenticationError", "401 https://host/api/v2/oauth"), "is the key in the environment right?"),
    (("APIConnectionError", "Connection error."), "is --base-url right?"),
    (("NotFoundError", "404"), "are the model's name and --base-url right?"),
    (("APITimeoutError", "Request timed out."), "increase --timeout or reduce --max-concurrency"),
    (("FileNotFoundError", "no such file"), "a variable such as SSL_CERT_FILE"),
]


@each(("failure", "hint"), FAILURES)
def test_a_failure_has_a_hint(failure, hint, capsys):
    error, message = failure
    fields = {"value": None, "failure": Failure(error=error, message=message)}
    failed = score(1.0).model_copy(update=fields)
    warn_about_failures(Report([Row(index=0, sample=sample(0), scores={"faithfulness": failed})]))
    assert f"{error}: {message} (" in (told := capsys.readouterr().err)
    assert hint in told


def test_the_question_of_a_conversation_is_followed_by_the_one_that_was_judged(rageval, tmp_path):
    Report([turn_row(judged_as(STANDALONE), reason="")]).to_jsonl(tmp_path / "report.jsonl")
    _, out, _ = rageval("report", tmp_path / "report.jsonl")
    lines = [line.rstrip() for line in out.splitlines()]
    assert f"  0.500  {QUESTION} → {STANDALONE} (sample-0)" in lines
