"""What a printed report says about scores that are missing."""

from helpers.reports import report, sample, score

from langchain_rageval import Report, Row, Score
from langchain_rageval.data.schema import Failure


def failed(number, error, message, metric="faithfulness"):
    failure = Failure(error=error, message=message, step="verify_statements")
    return Row(
        index=number, sample=sample(number), scores={metric: Score(metric=metric, aspect="grounding", failure=failure)}
    )


def test_a_printed_report_says_why_scores_failed_and_why_samples_are_unscored():
    lines = str(report([1.0, 0.5, 0.0], notes=["Judged offline."])).splitlines()
    assert lines[3:] == [
        "Failed: 1 of claim_noise: JudgeOutputError in verify_statements, first in sample 'sample-0': no JSON",
        "Unscored: 1 of claim_noise: the answer states no facts, first in sample 'sample-1'",
        "Note: Judged offline.",
    ]


def test_a_report_without_missing_scores_says_nothing_about_them():
    whole = Report([Row(index=0, sample=sample(0), scores={"faithfulness": score(1.0)})])
    assert len(str(whole).splitlines()) == 2


def test_the_most_frequent_causes_come_first_and_the_rest_are_counted():
    rows = [failed(0, "A", "once"), *(failed(n, "B", f"no {n}\nmore") for n in (1, 2)), failed(3, "C", "c")]
    rows += [failed(4, "D", "d"), failed(5, "B", "again", "context_recall")]
    assert str(Report(rows)).splitlines()[3:] == [
        "Failed: 3 of faithfulness, context_recall: B in verify_statements, first in sample 'sample-1': no 1 more",
        "Failed: 1 of faithfulness: A in verify_statements, first in sample 'sample-0': once",
        "Failed: 1 of faithfulness: C in verify_statements, first in sample 'sample-3': c",
        "Failed: 1 for other causes",
    ]


def test_a_long_message_is_cut():
    line = str(Report([failed(0, "A", "x" * 1000)])).splitlines()[2]
    assert line.endswith(": " + "x" * 300 + "…")


def test_a_notebook_shows_the_causes_with_their_texts_escaped():
    html = Report([failed(0, "A", "<script>")])._repr_html_()
    assert "in sample &#x27;sample-0&#x27;: &lt;script&gt;" in html
