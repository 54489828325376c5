"""Metrics that pass HostileJudgeTests: those of the package, and those of the guide, a step and a chain.

A metric and a step run as users run them. The gate holds each rule over all other metrics; there, the rule that calls a
metric in four ways takes one of them for each behaviour, so that each metric and each behaviour meets all four.
"""

import inspect

import pytest
from helpers.each import cases_of, each, rules_of
from helpers.offline import METRICS, UNJUDGED
from helpers.own.politeness import politeness
from helpers.own.tone import tone

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    RetryPolicy,
    Sample,
    answer_similarity,
    context_relevance,
    evaluate,
    faithfulness,
    suite,
)
from langchain_rageval.testing import HostileJudgeTests, hostile_judge_tests
from langchain_rageval.testing.hostile_judge_tests import _Runs
from langchain_rageval.testing.hostile_judges import BEHAVIOURS, SAMPLE, HostileJudge

POLICY = Sample(question="Сколько стоит полис?", answer="Спасибо за вопрос! Тысячу рублей.")


class TestAMetric(HostileJudgeTests):
    def build_metric(self, judge):
        return faithfulness(judge)


class TestTheStepOfTheGuide(HostileJudgeTests):
    sample = POLICY

    def build_metric(self, judge):
        return politeness(judge)

    test_a_huge_reply_leaves_a_small_score = None  # below


ACCEPTED = {"no items": None, "extra item": 0.5, "one item 1,000 times": 1.0, "1,000 different items": 0.0}
"""Faithfulness after each hostile reply that is a valid answer, although a wrong one."""


@each("behaviour", BEHAVIOURS)
def test_a_hostile_judge_fails_its_own_metric_alone_unless_its_reply_is_a_valid_answer(behaviour):
    judge, similarity = HostileJudge(judge=OfflineJudge(), behaviour=behaviour), answer_similarity(HashingEmbeddings())
    report = evaluate([SAMPLE], [faithfulness(judge), similarity], retry=RetryPolicy(attempts=1), progress=False)
    judged, unjudged = report.rows[0].scores.values()
    assert (judged.failure is None) == (behaviour in ACCEPTED)
    assert judged.value == ACCEPTED.get(behaviour)
    assert (unjudged.value, unjudged.failure) == (similarity.invoke(SAMPLE).value, None)


def suite_of_three(judge):
    """Return metrics of which one takes three draws and one asks no judge."""
    return suite(faithfulness(Judge(judge, draws=3)), context_relevance(judge), answer_similarity(HashingEmbeddings()))


OTHERS = {name: build for name, build in METRICS.items() if name not in (*UNJUDGED, "faithfulness")}
OTHERS |= {"a suite": suite_of_three, "the chain of the guide": tone}
SIZE = "test_a_huge_reply_leaves_a_small_score"  # takes seconds; the parser is that of faithfulness


@pytest.mark.gate
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("rule", [rule for rule in rules_of(HostileJudgeTests) if rule != SIZE])
def test_every_other_metric_passes(rule, name, tmp_path, caplog, capfd, monkeypatch):
    test = getattr(HostileJudgeTests(), rule)
    battery = _Runs(OTHERS[name], OfflineJudge(), Sample.parse(SAMPLE))
    ways = hostile_judge_tests._ENTRY_POINTS
    first = list(OTHERS).index(name)

    @each("number, case", enumerate(cases_of(test)))
    def passes(number, case):
        fixtures = {}
        monkeypatch.setattr(hostile_judge_tests, "_ENTRY_POINTS", (ways[(first + number) % len(ways)],))
        if "tmp_path" in inspect.signature(test).parameters:  # what an earlier case wrote is not of this one
            caplog.clear()
            capfd.readouterr()
            (directory := tmp_path / str(number)).mkdir()
            fixtures = {"tmp_path": directory, "caplog": caplog, "capfd": capfd}
        test(battery, **case, **fixtures)

    passes()


@pytest.mark.gate
@each("behaviour", [case["behaviour"] for case in cases_of(getattr(HostileJudgeTests, SIZE))])
def test_a_huge_reply_to_the_step_of_the_guide_leaves_a_small_score(behaviour):
    getattr(HostileJudgeTests(), SIZE)(_Runs(politeness, OfflineJudge(), POLICY), behaviour)
