"""Reports of a file that others wrote, as text and as Markdown: no character commands the terminal."""

import pytest

from langchain_rageval import Report, leaderboard
from langchain_rageval.data.schema import Failure, Finding, Row, Sample, Score
from langchain_rageval.report.markdown import markdown_of

HOSTILE = "<b>a\x1b]0;title\x07\x1b[31m\x9b1m\u202eb\u2066c\u2028d"
FORBIDDEN = set("\x07\x1b\x9b\u202e\u2066\u2028")


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.jsonl"
    Report([row(0), row(1), failed(2)], [f"note {HOSTILE}"], True, []).to_jsonl(path)
    return Report.load(path)


def sample(number):
    return Sample(id=f"{HOSTILE}{number}", question=HOSTILE, answer=HOSTILE, metadata={"model": HOSTILE})


def row(number):
    finding = Finding(kind="statement", number=1, text=HOSTILE, verdict="contradicted")
    score = Score(metric=HOSTILE, aspect=HOSTILE, value=0.0, reason=HOSTILE, findings=[finding])
    return Row(index=number, sample=sample(number), scores={HOSTILE: score})


def failed(number):
    score = Score(metric=HOSTILE, aspect=HOSTILE, failure=Failure(error="ValueError", message=HOSTILE))
    return Row(index=number, sample=sample(number), scores={HOSTILE: score})


def test_what_a_report_shows_as_text_has_no_control_characters(report):
    shown = [
        repr(report),
        repr(report.summary()),
        repr(report.compare(report)),
        repr(report.diagnose()),
        repr(leaderboard(report)),
        *map(str, report.diagnose()),
        *(str(score) for row in report.rows for score in row.scores.values()),
    ]
    assert [text for text in shown if FORBIDDEN & set(text)] == []
    assert all("\n" not in str(score) for row in report.rows for score in row.scores.values())


def test_markdown_has_no_control_characters(report):
    assert not FORBIDDEN & set(markdown_of(report, [], report.compare(report)))


def test_what_a_notebook_shows_has_no_tags_of_others(report):
    results = [report, report.summary(), report.compare(report), report.diagnose(), leaderboard(report)]
    shown = [result._repr_html_() for result in results]
    assert [html for html in shown if "<b>" in html] == []
    assert all("&lt;b&gt;" in html for html in (shown[0], shown[2], shown[4]))
