import math

import pytest
from helpers.each import each
from helpers.offline import offline
from helpers.reports import HOSTILE, LOST, Tags, failed, report_of, row, scored, unscored
from helpers.servers.chat import Faults

from langchain_rageval import BelowThreshold, ConfigError, Judge, OfflineJudge, Report, evaluate, faithfulness

SAMPLE = {"question": "Q?", "answer": "Munich is old.", "contexts": ["Munich is old."]}


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


def test_of_equal_values_the_first_is_worst_and_what_has_no_value_is_not_among_them():
    report = report_of(scored(0.5), failed(), scored(0.5), unscored())
    assert [row.index for row in report.worst("faithfulness")] == [0, 2]
    assert report.worst("faithfulness", 0) == []


# Gates


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_floats_of_a_mean_do_not_decide_a_gate(direction):
    """The mean of 29 times 0.01 is a hair less than 0.01."""
    for value in (percent / 100 for percent in range(1, 100)):
        report_of(*[scored(value, direction=direction)] * 29).check({"faithfulness": value})


def test_a_mean_that_does_not_reach_it_raises_and_says_by_how_much():
    with pytest.raises(BelowThreshold, match=r"faithfulness is 0\.500 \[0\..*\], at least 0\.8 is required") as caught:
        report_of(scored(0.5)).check({"faithfulness": 0.8})
    assert (caught.value.threshold, caught.value.score) == (0.8, None)


@pytest.mark.parametrize("nothing", [[unscored()], [unscored(), unscored()]])
def test_a_metric_with_nothing_scored_does_not_pass(nothing):
    with pytest.raises(BelowThreshold, match="faithfulness has nothing scored, at least 0 is required"):
        report_of(*nothing).check({"faithfulness": 0.0})


def test_too_many_failures_do_not_pass_unless_the_worst_of_them_would():
    report = report_of(*[scored(1.0)] * 9, failed())
    told = (
        r"1 of 10 samples have no value of faithfulness \(1 failed\): its mean may be anything from 0.900 to 1.000, at"
    )
    with pytest.raises(BelowThreshold, match=told):
        report.check({"faithfulness": 0.95})
    report.check({"faithfulness": 0.95}, max_failed=0.1)
    report.check({"faithfulness": 0.9}, max_failed=0.0)


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


def test_every_gate_that_fails_is_named():
    report = report_of([scored(0.1), scored(0.9, "noise", direction="lower"), scored(1.0, "good"), failed("lost")])
    with pytest.raises(BelowThreshold) as caught:
        report.check({"faithfulness": 0.8, "noise": 0.2, "good": 0.5, "lost": 0.5})
    assert [name for name in ("faithfulness", "noise", "good", "lost") if name in str(caught.value)] == [
        "faithfulness",
        "noise",
        "lost",
    ]


@pytest.mark.parametrize("ask", [lambda report: report.check({"recall": 0.5}), lambda report: report.worst("recall")])
def test_a_metric_that_is_not_there_is_named_with_those_that_are(ask):
    with pytest.raises(ConfigError, match="no metric 'recall'; it has faithfulness"):
        ask(report_of(scored(1.0)))
    with pytest.raises(ConfigError, match="it has none"):
        ask(report_of())


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


def test_nan_is_nowhere_else():
    report = report_of(unscored(), failed())
    shown = repr(report) + report._repr_html_() + repr(report.summary()) + repr(report.rows)
    assert "nan" not in shown.lower()
    with pytest.raises(ValueError, match="finite"):
        scored(math.nan)


# What it looks like


def test_the_table_in_a_notebook_escapes_what_others_wrote():
    shown = Tags(report_of(scored(0.5, HOSTILE), notes=[HOSTILE])._repr_html_())
    assert shown.tags == {"p", "table", "tr", "th", "td", "em"}
    assert shown.texts.count(HOSTILE) == 2


# Notes


def test_a_report_by_the_offline_judge_says_so_once():
    metrics = [faithfulness(OfflineJudge()), faithfulness(OfflineJudge(), name="again")]
    report = evaluate([SAMPLE], metrics, progress=False)
    assert [note for note in report.notes if "offline" in note] == report.notes
    assert len(report.notes) == 1
    assert report.notes[0] in repr(report)
    assert report.notes[0] in Tags(report._repr_html_()).texts


@pytest.mark.parametrize(
    ("mode", "faults", "rung"),
    [
        ("auto", [], "json_schema"),
        ("function_calling", [], "function_calling"),
        ("auto", ["refused_format"], "function_calling"),
    ],
)
def test_a_report_says_how_a_model_was_asked(openai_server, chat_openai, mode, faults, rung):
    server = openai_server(offline, faults=Faults.script(faults))
    report = evaluate([SAMPLE], faithfulness(Judge(chat_openai(server), mode=mode)), progress=False)
    (note,) = report.notes
    assert note.endswith(f" was called in {rung} mode.")
    assert "sk-test" not in note


def test_a_metric_that_was_left_out_everywhere_does_not_pass_nor_one_that_the_left_out_scores_could_turn():
    report = Report([row(0, scored(0.9))], left_out=[(0, "other"), (1, "faithfulness"), (1, "other")])
    report.check({"faithfulness": 0.45})
    with pytest.raises(BelowThreshold) as caught:
        report.check({"faithfulness": 0.96, "other": 0.0})
    assert [(gate.verdict, gate.codes) for gate in caught.value.gates] == [
        ("failed", ["below-threshold"]),
        ("undecided", ["not-scored-at-all"]),
    ]
    with pytest.raises(ConfigError, match="no metric 'third'"):
        report.check({"third": 0.5})
