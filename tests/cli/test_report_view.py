"""The demo and reports in a terminal of 80 columns."""

import pytest
from helpers.each import each
from helpers.reports import QUESTION, STANDALONE, judged_as, report, sample, score, turn_row
from helpers.screens import shown
from rich.cells import cell_len

from langchain_rageval import Report, Row
from langchain_rageval.cli.demo import NEXT_COMMANDS
from langchain_rageval.cli.main import build_parser
from langchain_rageval.cli.report_view import warn_about_failures
from langchain_rageval.data.schema import Failure


@pytest.fixture(scope="module")
def demo():
    """Return the lines that the demo writes to a terminal of 80 columns."""
    return shown(80, "demo", "--quiet")


def test_the_demo_fits_one_screen_of_80_columns(demo):
    assert 24 <= len(demo) <= 40
    assert max(map(cell_len, demo)) <= 80


def test_the_demo_gives_the_diagnosis_before_the_details_and_explains_its_columns(demo):
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


def test_a_report_shows_the_worst_samples_first_with_their_questions_after_the_diagnosis(rageval, tmp_path):
    report([0.5, 0.0, 0.25]).to_jsonl(tmp_path / "run.jsonl")
    _, out, _ = rageval("report", tmp_path / "run.jsonl")
    assert out.splitlines()[0].strip() == "3 samples · run"
    assert out.index("Diagnosis") < out.index("Worst by faithfulness")
    worst = out[out.index("Worst by faithfulness") : out.index("Worst by claim_noise")].splitlines()
    shown = [line.strip() for line in worst if "Question" in line]
    assert shown == [f"{value}  Question {n}? (sample-{n})" for value, n in (("0.000", 1), ("0.250", 2), ("0.500", 0))]


def test_a_report_says_why_scores_are_missing(rageval, tmp_path):
    report([0.5, 0.0]).to_jsonl(tmp_path / "run.jsonl")
    _, out, _ = rageval("report", tmp_path / "run.jsonl")
    assert "Failed: 1 of claim_noise: JudgeOutputError in verify_statements" in out
    assert "Unscored: 1 of claim_noise: the answer states no facts" in out


@each(
    ("failure", "hint"),
    [
        (("ConnectError", "no such name (https://host/api/v2/oauth)"), "is GIGACHAT_AUTH_URL right?"),
        (
            ("ConnectError", "[SSL: CERTIFICATE_VERIFY_FAILED] (https://host/v1)"),
            "in GIGACHAT_CA_BUNDLE_FILE, for other",
        ),
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
    ],
)
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
