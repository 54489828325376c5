"""Summaries: counts, means and intervals of each metric, and what a printed report says about missing scores."""

from statistics import fmean

import pytest
from helpers.each import each
from helpers.reports import STATEMENT, failed, report_of, row, sample, scored, unscored
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Finding, Report, Row, Sample, Score
from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.statistics import bounded_mean_interval

MISSED = Finding(kind="reference_statement", number=1, text="Henry did it.", verdict="FN")
outcomes = st.lists(
    st.one_of(st.floats(0, 1).map(scored), st.just(unscored()), st.just(unscored("other")), st.just(failed())),
    min_size=1,
    max_size=30,
)


@given(outcomes)
def test_every_score_is_counted_once_and_only_values_make_the_mean(scores):
    summary = report_of(*scores).summary()["faithfulness"]
    values = [score.value for score in scores if score.value is not None]
    assert (summary.scored, summary.unscored, summary.failed) == (
        len(values),
        sum(score.unscored is not None for score in scores),
        sum(score.failure is not None for score in scores),
    )
    assert summary.mean == (fmean(values) if values else None)
    assert (summary.low, summary.high) == (bounded_mean_interval(values) if values else (None, None))
    assert values or summary.interval == ""


# Abstained: samples whose answer states no facts; None for metrics that do not look


@each(
    ("scores", "abstained"),
    [
        ([unscored(), unscored(), scored(1.0, findings=[STATEMENT])], 2),
        ([scored(1.0, findings=[STATEMENT])], 0),
        ([scored(1.0, findings=[STATEMENT]), scored(0.5)], 0),
        ([unscored(), scored(0.5)], 1),
        ([unscored("the answer states no facts, nor does the reference")], 1),
        ([scored(0.0, findings=[MISSED])], 1),
        ([scored(0.5, findings=[STATEMENT, MISSED])], 0),
        ([unscored()], 1),
        ([scored(0.5)], None),
        ([unscored("the reference states no facts")], None),
        ([failed()], None),
    ],
)
def test_abstained_counts_the_answers_without_facts(scores, abstained):
    assert report_of(*scores).summary()["faithfulness"].abstained == abstained


# Several metrics


def test_scores_count_under_the_name_that_the_row_has_for_them():
    both = Row(index=0, sample=Sample(question="Q?"), scores={"one": scored(1.0), "two": scored(0.5)})
    report = Report([both])
    assert {name: metric.mean for name, metric in report.summary().items()} == {"one": 1.0, "two": 0.5}
    assert [metric.metric for metric in report.summary().values()] == ["one", "two"]
    report.check({"two": 0.4})


def failing(number, error, message, metric="faithfulness"):
    failure = Failure(error=error, message=message, step="verify_statements")
    return Row(
        index=number, sample=sample(number), scores={metric: Score(metric=metric, aspect="grounding", failure=failure)}
    )


def test_the_most_frequent_causes_come_first_and_the_rest_are_counted():
    rows = [failing(0, "A", "once"), *(failing(n, "B", f"no {n}\nmore") for n in (1, 2)), failing(3, "C", "c")]
    rows += [failing(4, "D", "d"), failing(5, "B", "again", "context_recall")]
    assert str(Report(rows)).splitlines()[3:] == [
        "Failed: 3 of faithfulness, context_recall: B in verify_statements, first in sample 'sample-1': no 1 more",
        "Failed: 1 of faithfulness: A in verify_statements, first in sample 'sample-0': once",
        "Failed: 1 of faithfulness: C in verify_statements, first in sample 'sample-3': c",
        "Failed: 1 for other causes",
    ]


def test_a_long_message_is_cut():
    line = str(Report([failing(0, "A", "x" * 1000)])).splitlines()[2]
    assert line.endswith(": " + "x" * 300 + "…")


def test_an_aspect_is_the_mean_of_its_metrics_of_the_range_0_to_1_with_lower_is_better_turned_round():
    others = [scored(4.0, "grade", range=(1, 5)), scored(0.0, "half", range=(0, 2)), failed("lost")]
    noise, ranks = scored(0.4, "noise", direction="lower"), unscored("nothing", "ranks", aspect="ranking")
    summary = report_of([scored(0.8), noise, scored(0.1, "similarity", aspect="answer"), ranks, *others]).summary()
    assert {aspect: (own.mean, own.metrics) for aspect, own in summary.aspects.items()} == {
        "grounding": (pytest.approx((0.8 + 0.6) / 2), ["faithfulness", "noise", "lost"]),
        "answer": (0.1, ["similarity"]),
        "ranking": (None, ["ranks"]),
    }
    assert str(summary["lost"]) == "lost no score (0 scored, 0 unscored, 1 failed; 0 calls)"


def test_money_has_a_column_only_if_it_is_known():
    free, dear = (report_of(scored(1.0, usage=Usage(calls=1, money=money))).summary() for money in (None, 0.25))
    assert (free.has_money, dear.has_money) == (False, True)
    assert (dear.headings[-1], dear.cells()[0][-1], len(dear.cells()[0])) == ("money", "0.2500", len(dear.headings))
    assert len(free.cells()[0]) == len(free.headings) == len(dear.headings) - 1
    assert dear["faithfulness"].money == dear.usage.money == 0.25
    assert "1 call, 0.2500 money" in str(dear["faithfulness"])


def audited(*pairs, **more):
    """Return the audit of rows with these values of the own and of the strong judge."""
    audits = [{"faithfulness": scored(strong, **more)} for _, strong in pairs]
    rows = [row(n, scored(own, **more), audit=audits[n]) for n, (own, _) in enumerate(pairs)]
    return Report(rows).audit["faithfulness"]


def test_judges_agree_up_to_a_tenth_whatever_the_rounding():
    tenths = [(n / 10, (n + 1) / 10) for n in range(10)]
    assert audited(*tenths).agreement == 1.0
    assert audited(*tenths, *((strong, own) for own, strong in tenths)).agreement == 1.0
    assert audited((0.0, 0.1), (0.0, 0.11), (0.5, 0.5), (0.6, 0.4)).agreement == 0.5


def test_the_audit_of_a_metric_without_a_range_has_a_mean_alone():
    found = audited(*((float(n), float(2 * n)) for n in range(20)), range=(None, None))
    assert (found.mean, found.own_mean, found.low, found.interval) == (pytest.approx(19.0), 9.5, None, "")
    assert [pair.index for pair in found.parted] == [*range(19, 9, -1)]
