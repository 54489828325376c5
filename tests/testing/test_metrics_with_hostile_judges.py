"""Metrics that pass HostileJudgeTests: those of the package, and a user's, as a step and as a chain."""

import pytest
from helpers.own.politeness import politeness
from helpers.own.tone import tone
from helpers.servers.brain import METRICS, UNJUDGED
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Metric,
    Sample,
    Step,
    StrictJsonOutputParser,
    Value,
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
    def build_metric(self, judge):
        return politeness(judge)


class TestTheChainOfTheGuide(HostileJudgeTests):
    def build_metric(self, judge):
        return tone(judge)

    test_a_huge_reply_leaves_a_small_score = None


class Politeness(BaseModel):
    """How polite an answer is."""

    reason: str
    grade: int = Field(ge=1, le=5)


def share(state):
    return Value((state["politeness"].grade - 1) / 4, state["politeness"].reason)


class TestAUsersChain(HostileJudgeTests):
    sample = Sample(question="Сколько стоит полис?", answer="Спасибо за вопрос! Тысячу рублей.")

    @pytest.fixture
    def judge(self):
        return lambda messages: '{"reason": "Thanks.", "grade": 4}'

    def build_metric(self, judge):
        request = RunnableLambda(lambda sample: [HumanMessage(f"How polite is this, as JSON? {sample['answer']}")])
        chain = request | judge | StrictJsonOutputParser(Politeness)
        steps = Step.from_chain(chain, reads=("answer",), key="politeness")
        return Metric("politeness", aspect="style", reads={"answer"}, steps=steps, reduce=share)

    test_a_huge_reply_leaves_a_small_score = None
