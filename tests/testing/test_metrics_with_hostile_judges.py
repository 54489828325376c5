"""Metrics that pass HostileJudgeTests: those of the package, and a user's, as a step and as a chain."""

import pytest
from helpers.servers.brain import METRICS, UNJUDGED
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Metric,
    Prompt,
    Sample,
    Score,
    Step,
    StrictJsonOutputParser,
    Value,
    answer_similarity,
    context_relevance,
    faithfulness,
    suite,
)
from langchain_rageval.testing import HostileJudgeTests, ScriptedJudge


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


class Politeness(BaseModel):
    """How polite an answer is."""

    reason: str
    grade: int = Field(ge=1, le=5)


def inputs_of(state):
    return {"question": state["sample"].question, "answer": state["sample"].answer}


def politeness(state):
    return Value((state["politeness"].grade - 1) / 4, state["politeness"].reason)


class TestAUsersStep(HostileJudgeTests):
    judge = ScriptedJudge(Politeness(reason="Thanks.", grade=4), repeat=True)
    sample = Sample(question="Сколько стоит полис?", answer="Спасибо за вопрос! Тысячу рублей.")

    def build_metric(self, judge):
        step = Step(Prompt(instruction="Grade how polite `answer` is."), judge, Politeness, name="politeness")
        steps = RunnableLambda(inputs_of) | step
        return Metric("politeness", aspect="answer", reads={"answer"}, steps=steps, reduce=politeness)


class TestAUsersChain(HostileJudgeTests):
    @pytest.fixture
    def judge(self):
        return lambda messages: '{"reason": "Thanks.", "grade": 4}'

    @pytest.fixture
    def sample(self):
        return {"question": "How much is it?", "answer": "Thanks, nothing."}

    def build_metric(self, judge):
        request = RunnableLambda(lambda sample: [HumanMessage(f"How polite is this, as JSON? {sample.answer}")])
        score = RunnableLambda(lambda found: Score(metric="polite", aspect="answer", value=(found.grade - 1) / 4))
        return (request | judge | StrictJsonOutputParser(Politeness) | score).with_config(run_name="polite")

    test_a_judge_that_hangs_is_abandoned = None  # without a Step, the model needs a timeout of its own
