"""Metrics that pass HostileJudgeTests: those of the package, and those of the guide, a step and a chain."""

import pytest
from helpers.own.politeness import politeness
from helpers.own.tone import tone
from helpers.servers.brain import METRICS, UNJUDGED

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Sample,
    answer_similarity,
    context_relevance,
    faithfulness,
    suite,
)
from langchain_rageval.testing import HostileJudgeTests


class TestAMetric(HostileJudgeTests):
    def build_metric(self, judge):
        return faithfulness(judge)


class TestEveryOtherMetric(HostileJudgeTests):
    @pytest.fixture(params=[name for name in METRICS if name not in (*UNJUDGED, "faithfulness")])
    def build_metric(self, request):
        return lambda judge: METRICS[request.param](judge, HashingEmbeddings())

    test_a_huge_reply_leaves_a_small_score = None  # takes seconds; the parser is that of faithfulness


class TestASuite(HostileJudgeTests):
    def build_metric(self, judge):
        return suite(
            faithfulness(Judge(judge, draws=3)), context_relevance(judge), answer_similarity(HashingEmbeddings())
        )

    test_a_huge_reply_leaves_a_small_score = None


class TestTheStepOfTheGuide(HostileJudgeTests):
    sample = Sample(question="Сколько стоит полис?", answer="Спасибо за вопрос! Тысячу рублей.")

    def build_metric(self, judge):
        return politeness(judge)


class TestTheChainOfTheGuide(HostileJudgeTests):
    def build_metric(self, judge):
        return tone(judge)

    test_a_huge_reply_leaves_a_small_score = None
