import pytest
from helpers.each import each
from helpers.reports import LOST, failed, report_of, row, scored, unscored

from langchain_rageval import ConfigError, Report

# Failures and the worst


def test_failures_come_with_their_rows():
    report = report_of([scored(1.0), failed("other")], [failed(), unscored("why", "other")])
    assert [(row.index, score.metric, score.failure) for row, score in report.failures()] == [
        (0, "other", LOST),
        (1, "faithfulness", LOST),
    ]


@pytest.mark.parametrize(("direction", "worst"), [("higher", [3, 0, 4]), ("lower", [2, 4, 0])])
def test_the_worst_come_first_in_the_metrics_own_direction(direction, worst):
    scores = [scored(value, direction=direction) for value in (0.5, 0.9, 1.0, 0.1, 0.6)]
    scores[1] = failed(direction=direction)
    assert [row.index for row in report_of(*scores).worst("faithfulness", 3)] == worst


# Gates


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_floats_of_a_mean_do_not_decide_a_gate(direction):
    """The mean of 29 times 0.01 is a hair less than 0.01."""
    for value in (percent / 100 for percent in range(1, 100)):
        report_of(*[scored(value, direction=direction)] * 29).check({"faithfulness": value})


@each(
    ("thresholds", "max_failed", "told"),
    [
        ("faithfulness", 0.05, "check takes thresholds by metric"),
        ({"faithfulness": "0.8"}, 0.05, "the threshold of faithfulness must be a number, got '0.8'"),
        ({"faithfulness": float("nan")}, 0.05, "must be a number, got nan"),
    ],
)
def test_invalid_thresholds_are_refused(thresholds, max_failed, told):
    with pytest.raises(ConfigError, match=told):
        report_of(scored(0.5)).check(thresholds, max_failed)


@pytest.mark.parametrize("ask", [lambda report: report.check({"recall": 0.5}), lambda report: report.worst("recall")])
def test_a_metric_that_is_not_there_is_named_with_those_that_are(ask):
    with pytest.raises(ConfigError, match="no metric 'recall'; it has faithfulness"):
        ask(report_of(scored(1.0)))
    with pytest.raises(ConfigError, match="it has none"):
        ask(report_of())


def test_a_metric_that_was_left_out_everywhere_is_known_and_undecided():
    report = Report([row(0, scored(0.9))], left_out=[(0, "other")])
    (gate,) = report.gates({"other": 0.0})
    assert (gate.verdict, gate.codes) == ("undecided", ["not-scored-at-all"])
    with pytest.raises(ConfigError, match="no metric 'third'"):
        report.check({"third": 0.5})


# pandas


def test_a_frame_has_a_line_for_each_sample_and_says_why_there_is_no_value():
    report = Report(
        [
            row(0, scored(0.5, reason="half"), answer="a", contexts=["c"], metadata={"split": "x"}),
            row(1, unscored()),
            row(2, failed()),
        ]
    )
    frame = report.to_pandas()
    assert list(frame["id"]) == ["q-0", "q-1", "q-2"]
    assert frame["faithfulness"].dtype == float
    assert frame["faithfulness"][0] == 0.5
    assert frame["faithfulness"].isna().tolist() == [False, True, True]
    assert frame["faithfulness.reason"].tolist() == ["half", "", ""]
    assert frame["faithfulness.without"].isna().tolist() == [True, False, False]
    assert frame["faithfulness.without"][2] == "APIConnectionError: Connection error."
    assert frame["metadata.split"][0] == "x"
    assert frame["contexts"][0] == ["c"]
    assert len(report_of().to_pandas()) == 0
