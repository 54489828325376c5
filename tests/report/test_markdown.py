"""Markdown and gates of a run for a merge request: the direction of a metric decides what is good."""

from helpers.reports import report_of, scored

from langchain_rageval.report.markdown import markdown_of

RIGHT = scored(1.0, reason="all is right")
BAD, GOOD = (scored(value, "noise", direction="lower", reason=f"noise is {value}") for value in (0.9, 0.0))


def test_the_worst_sample_of_a_metric_where_less_is_better_has_the_most_and_good_scores_need_no_comment():
    shown = markdown_of(report_of([RIGHT, GOOD], [RIGHT, BAD]), [], None)
    worst = shown.partition("### Worst samples")[2]
    assert "(q-1)" in worst
    assert "(q-0)" not in worst
    assert "- noise: noise is 0.9" in worst
    assert "all is right" not in worst


def test_a_gate_says_at_most_where_less_is_better_although_another_metric_comes_first():
    found = report_of([RIGHT], [RIGHT, BAD]).gates({"noise": 0.5, "faithfulness": 0.5}, 0.0)
    assert [result.requirement for result in found] == ["mean at most 0.5", "mean at least 0.5"]
