"""assert_scores: thresholds, and the message of a failure."""

import pytest
from helpers.each import each
from helpers.samples import SAMPLE
from helpers.scripted import absent, contradicted, critique, grades, statements, supported, verdicts

from langchain_rageval import (
    ConfigError,
    OfflineJudge,
    SampleError,
    aspect_critique,
    context_precision,
    context_recall,
    faithfulness,
    suite,
)
from langchain_rageval.testing import ScriptedJudge, aassert_scores, assert_scores

RUSSIAN = {
    "id": "баня",
    "question": "Как застраховать баню?",
    "answer": "Баню страхуют вместе с домом. Взнос платят раз в месяц. Слоны бесплатно.",
    "contexts": ["Отдельно баню застраховать нельзя: её страхуют вместе с домом.", "Взнос платят раз в год."],
}


def judge():
    """Three statements: one supported, one absent, one contradicted."""
    extracted = statements("Баню страхуют вместе с домом.", "Слоны бесплатно.", "Взнос платят раз в месяц.")
    return ScriptedJudge(extracted, verdicts(supported(1), absent(2), contradicted(3, "2.1")), repeat=True)


async def test_scores_that_reach_their_thresholds_are_returned():
    metric = faithfulness(OfflineJudge())
    for scores in (assert_scores(SAMPLE, {metric: 0.5}), await aassert_scores(SAMPLE, {metric: 0.5})):
        assert scores["faithfulness"].value == 0.5


async def test_a_failure_shows_a_line_for_each_metric_with_the_worst_findings():
    faithful, useful = faithfulness(judge()), context_precision(ScriptedJudge(grades({1: True, 2: True}), repeat=True))
    expected = [
        "1 of 2 scores of sample 'баня' («Как застраховать баню?») miss their threshold",
        f"  FAILED faithfulness 0.333, at least 0.8: {faithful.invoke(RUSSIAN).comment}"
        " | contradicted [2.1]: «Взнос платят раз в месяц.» («because») | absent: «Слоны бесплатно.» («because»)",
        f"  passed context_precision 1.000, at least 0.9: {useful.invoke(RUSSIAN).comment}",
    ]
    with pytest.raises(AssertionError) as caught:
        assert_scores(RUSSIAN, {faithful: 0.8, useful: 0.9})
    assert str(caught.value).splitlines() == expected
    with pytest.raises(AssertionError) as again:
        await aassert_scores(RUSSIAN, {faithful: 0.8, useful: 0.9})
    assert str(again.value) == str(caught.value)


def test_the_number_of_findings_is_limited_and_the_worst_is_kept():
    with pytest.raises(AssertionError) as caught:
        assert_scores(RUSSIAN, {faithfulness(judge()): 0.8}, findings=1)
    assert " | contradicted [2.1]: " in str(caught.value)
    assert " | absent" not in str(caught.value)


def test_long_texts_are_cut_and_stay_on_one_line():
    long = statements("слон\n" * 100)
    with pytest.raises(AssertionError) as caught:
        assert_scores(RUSSIAN, {faithfulness(ScriptedJudge(long, verdicts(absent(1)))): 0.8})
    line = str(caught.value).splitlines()[-1]
    assert " | absent: «слон слон" in line
    assert "…»" in line.rpartition(" | ")[2]


def test_reaching_the_threshold_passes_and_lower_may_be_better():
    harmless = aspect_critique(ScriptedJudge(critique(False), repeat=True), "harmfulness")
    harmful = aspect_critique(ScriptedJudge(critique(True), repeat=True), "harmfulness")
    assert_scores(SAMPLE, {harmless: 0})
    with pytest.raises(AssertionError, match=r"FAILED harmfulness 1\.000, at most 0: "):
        assert_scores(SAMPLE, {harmful: 0})


def test_a_suite_has_one_threshold_for_all_and_shares_its_steps():
    once = ScriptedJudge(statements("a"), verdicts(supported(1)))
    both = suite(faithfulness(once), faithfulness(once, name="other"))
    assert assert_scores(SAMPLE, {both: 1}).keys() == {"faithfulness", "other"}
    assert len(once.requests) == 2


def test_a_score_without_a_value_fails_and_an_unscored_one_may_pass():
    metric = faithfulness(ScriptedJudge(statements(), repeat=True))
    with pytest.raises(
        AssertionError, match=r"FAILED faithfulness no value, at least 0\.5: the answer states no facts"
    ):
        assert_scores(SAMPLE, {metric: 0.5})
    assert assert_scores(SAMPLE, {metric: 0.5}, missing="pass")["faithfulness"].value is None


def test_a_failed_score_and_a_blank_answer_never_pass():
    dead = faithfulness(ScriptedJudge(ConnectionError("reset by peer"), repeat=True))
    for metric, sample, told in (
        (dead, SAMPLE, "ConnectionError: reset by peer"),
        (faithfulness(OfflineJudge()), SAMPLE | {"answer": " "}, ""),
    ):
        for missing in ("fail", "pass"):
            with pytest.raises(AssertionError, match=rf"FAILED faithfulness no value, at least 0\.5: {told}"):
                assert_scores(sample, {metric: 0.5}, missing=missing)


def test_a_sample_that_lacks_a_field_raises_before_any_call():
    judge = ScriptedJudge()
    with pytest.raises(SampleError, match=r"lacks \['references'\]"):
        assert_scores(SAMPLE, {faithfulness(judge): 0.5, context_recall(judge): 0.5})
    assert judge.requests == []


@each(
    ("thresholds", "told"),
    [
        ({}, r"thresholds must map metrics to numbers, such as .*, got \{\}"),
        ([0.8], r"thresholds must map metrics to numbers, such as .*, got \[0\.8\]"),
        (
            {"faithfulness": 0.8},
            r"the keys of thresholds are metrics, such as faithfulness\(judge\), got 'faithfulness'",
        ),
        ({faithfulness(OfflineJudge()): "0.8"}, "must be a finite number, got '0.8'"),
        ({faithfulness(OfflineJudge()): float("nan")}, "must be a finite number, got nan"),
        ({faithfulness(OfflineJudge()): True}, "must be a finite number, got True"),
    ],
)
def test_invalid_thresholds_and_options_raise(thresholds, told):
    with pytest.raises(ConfigError, match=told):
        assert_scores(SAMPLE, thresholds)
    with pytest.raises(ConfigError, match="missing must be 'fail' or 'pass', got 'raise'"):
        assert_scores(SAMPLE, thresholds, missing="raise")


def test_metrics_and_suites_are_keys():
    metric = faithfulness(OfflineJudge())
    both, copied = suite(metric), metric.model_copy()
    assert {metric: 1, both: 2}[metric] == 1
    assert {metric: 1, both: 2}[suite(metric)] == 2
    assert {metric, copied} == {metric}
    assert len({metric, faithfulness(OfflineJudge(), name="other")}) == 2
