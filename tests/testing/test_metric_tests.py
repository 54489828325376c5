"""MetricTests: each of its tests fails for a metric that is broken in the matching way."""

import os
import random
import re
import subprocess
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from helpers.scripted import critique, grades

from langchain_rageval import (
    ConfigError,
    Metric,
    OfflineJudge,
    Sample,
    SampleError,
    Score,
    aspect_critique,
    context_precision,
    faithfulness,
    testing,
)
from langchain_rageval.metrics.structure import sequential_steps
from langchain_rageval.testing import MetricTests, ScriptedJudge
from langchain_rageval.testing.hostile_judges import SAMPLE
from langchain_rageval.testing.metric_tests import _pickle_copy

ROOT = Path(__file__).parents[2]
NO_REPLY = (
    "although the judge gave no usable reply: that is a failure; read replies with a Step or StrictJsonOutputParser, "
    "and let their errors pass"
)


class TestFixturesOfAModule(MetricTests):
    @pytest.fixture
    def judge(self) -> ScriptedJudge:
        return ScriptedJudge(grades({1: True, 2: False, 3: True, 4: True, 5: True, 6: True}), repeat=True)

    @pytest.fixture
    def metric(self, judge: ScriptedJudge) -> Metric:
        return context_precision(judge, against="question")

    @pytest.fixture
    def sample(self) -> dict[str, Any]:
        return {"question": "Where is Munich?", "contexts": ["On the Isar.", "Far away."]}

    def test_a_fixture_overrides_the_property(self, metric, sample, fields):
        assert metric.name == "context_precision"
        assert sample["question"] == fields["question"] == "Where is Munich?"


def broken(**members: Any) -> type[Metric]:
    """Return a class of metrics that has other members."""
    return type("Broken", (Metric,), members)


def around(before: Any = lambda metric, given: None, after: Any = lambda score: score) -> type[Metric]:
    """Return a metric that does something before it scores a sample, and changes its score."""

    def _do(self: Metric, input: Any, config: Any) -> Score:
        before(self, input)
        return after(Metric._do(self, input, config))

    return broken(_do=_do)


calls = count()


async def another_value(self: Metric, input: Any, config: Any) -> Score:
    return (await Metric._ado(self, input, config)).model_copy(update={"value": 0.25})


def call_first(metric: Metric, given: Any) -> None:
    sequential_steps(metric)[0].invoke({"sample": Sample.parse(given).model_copy(update={"answer": "x."})})


BROKEN = {
    "another order": (
        broken(batch=lambda self, *given, **options: Metric.batch(self, *given, **options)[::-1]),
        "test_scores_keep_the_order_of_the_samples_when_the_first_takes_longest",
        "batch",
    ),
    "another reason each time": (
        around(after=lambda score: score.model_copy(update={"reason": f"call {next(calls)}"})),
        "test_nothing_is_kept_between_calls",
    ),
    "a seed": (around(lambda *_: random.seed(next(calls))), "test_the_process_stays_as_it_was"),
    "a variable": (around(lambda *_: os.environ.update(RAGEVAL_BROKEN="1")), "test_the_process_stays_as_it_was"),
    "the question as a format": (
        around(lambda metric, given: metric.read(given).question.format()),
        "test_hostile_content_stays_data",
        "{question} {{0}} {",
    ),
    "another value in async": (broken(_ado=another_value), "test_every_way_of_calling_gives_the_same_score"),
    "a call before the check": (around(call_first), "test_a_missing_field_raises_before_any_call_and_says_what_to_do"),
    "another instrument each time": (
        broken(instrument=property(lambda self: f"instrument {next(calls)}")),
        "test_it_tells_its_name_aspect_direction_and_fields",
    ),
    "a changed sample": (around(lambda _, given: given.update(answer="x")), "test_the_users_sample_is_not_changed"),
    "no reason": (
        around(after=lambda score: score.model_copy(update={"reason": ""})),
        "test_its_score_is_a_number_with_a_reason_and_survives_being_written",
    ),
    "other feedback": (
        broken(__call__=lambda self, **given: {**Metric.__call__(self, **given), "score": 0.99}),
        "test_feedback_is_the_same_through_openevals_and_langsmith",
    ),
    "a bare score of a node": (
        broken(as_node=lambda self, key=None: self),
        "test_a_node_writes_under_the_key_it_was_given",
    ),
}
"""Class of a broken metric, the test that it fails, and further arguments of the test."""


def built(kind: type[Metric]) -> Metric:
    good = faithfulness(OfflineJudge())
    given = {name: getattr(good, name) for name in ("aspect", "reads", "steps", "reduce", "direction", "options")}
    return kind(good.name, **given)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_metric_fails_where_it_is_broken(name, monkeypatch):
    monkeypatch.delenv("RAGEVAL_BROKEN", raising=False)
    kind, test, *rest = BROKEN[name]
    getattr(MetricTests(), test)(built(Metric), dict(SAMPLE), *rest)
    with pytest.raises((AssertionError, LookupError, AttributeError)):
        getattr(MetricTests(), test)(built(kind), dict(SAMPLE), *rest)
    monkeypatch.delenv("RAGEVAL_BROKEN", raising=False)


def test_the_order_test_is_skipped_if_all_scores_are_equal():
    constant = aspect_critique(ScriptedJudge(critique(True), repeat=True), "coherence")
    with pytest.raises(pytest.skip.Exception, match="all samples have equal scores, so their order cannot be tested"):
        MetricTests().test_scores_keep_the_order_of_the_samples_when_the_first_takes_longest(constant, SAMPLE, "batch")


def test_a_metric_that_cannot_be_pickled_fails_and_with_a_lambda_is_skipped():
    good, lock = built(Metric), threading.Lock()
    own = {"aspect": "answer", "reads": {"answer"}, "steps": good.steps, "version": "1"}
    remedy = "the metric cannot be pickled: define its functions at the top level of a module"
    with_lock = Metric("mine", reduce=partial(_with_lock, lock), **own)
    with pytest.raises(AssertionError, match=remedy):
        _pickle_copy(with_lock)
    with_lambda = Metric("mine", reduce=lambda state: good.reduce(state), **own)
    with pytest.raises(pytest.skip.Exception, match=f"{remedy}, if it is to be used in a process pool"):
        MetricTests().test_a_copy_scores_the_same_under_the_same_instrument(with_lambda, dict(SAMPLE), "pickle")


def _with_lock(lock, state):
    raise AssertionError("it is not called")


def test_without_a_metric_the_error_says_what_to_define():
    with pytest.raises(NotImplementedError, match="MetricTests must define `metric` as a property or a fixture"):
        MetricTests().metric  # noqa: B018


def test_a_sample_that_the_metric_cannot_read_is_an_error_that_says_so():
    with pytest.raises(SampleError, match="fill it in or drop the metric"):
        MetricTests().test_nothing_is_kept_between_calls(built(Metric), {"question": "?"})


@pytest.mark.parametrize("name", ["MetricTests", "HostileJudgeTests"])
def test_without_pytest_only_the_test_suites_are_missing_and_the_error_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(__import__("sys").modules, "pytest", None)
    with pytest.raises(ConfigError, match=f"^{name} needs pytest: pip install pytest$"):
        testing.__getattr__(name)
    with pytest.raises(AttributeError, match="has no attribute 'MetricTest'"):
        testing.__getattr__("MetricTest")
    assert testing.ScriptedJudge


OUTSIDE = """
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_rageval import Metric, OfflineJudge, Score, aspect_critique, faithfulness
from langchain_rageval.testing import HostileJudgeTests, MetricTests, assert_scores

SAMPLE = {"question": "Когда основан Мюнхен?", "answer": "В 1158 году. Слоны.", "contexts": ["Он основан в 1158 году."]}

class TestPoliteness(MetricTests):
    @property
    def metric(self):
        return aspect_critique(OfflineJudge(), "politeness", definition="The answer is polite.")

class Broken(Metric):
    def _score(self, value, usage):
        return super()._score(value, usage).model_copy(update={"reason": ""})

class TestBroken(MetricTests):
    @property
    def metric(self):
        good = faithfulness(OfflineJudge())
        return Broken("faithfulness", aspect="grounding", reads=good.reads, steps=good.steps, reduce=good.reduce)

class TestBadWithHostileJudges(HostileJudgeTests):
    judge = staticmethod(lambda messages: "yes")

    def build_metric(self, judge):
        def score(sample):
            try:
                said = judge.invoke([HumanMessage(sample.answer)]).text
            except Exception:
                said = ""
            return Score(metric="bad", aspect="answer", value=float(said == "yes"))
        return RunnableLambda(score, name="bad")

    test_a_judge_that_hangs_is_abandoned = None

def test_thresholds():
    assert_scores(SAMPLE, {faithfulness(OfflineJudge()): 0.9})
"""


@pytest.mark.gate
def test_failures_in_a_separate_session_without_these_settings_are_readable(tmp_path):
    (tmp_path / "test_outside.py").write_text(OUTSIDE, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", "test_outside.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(words, check=False, **options)
    output = done.stdout + done.stderr
    assert {name.partition("[")[0] for name in re.findall(r"^FAILED test_outside.py::(\S+)", output, re.MULTILINE)} == {
        "TestBroken::test_its_score_is_a_number_with_a_reason_and_survives_being_written",
        "TestBadWithHostileJudges::test_no_error_and_no_invalid_reply_becomes_a_number",
        "TestBadWithHostileJudges::test_a_huge_reply_leaves_a_small_score",
        "test_thresholds",
    }
    assert "a score must give its reason in one sentence" in output
    assert "where '' = Score(" in output  # pytest rewrites the assertions of MetricTests
    assert f"AssertionError: by invoke, bad has the value 0, {NO_REPLY}\n" in output
    assert "FAILED faithfulness 0.500, at least 0.9: " in output
    assert "assertions.py" not in output  # the frames of assert_scores are hidden
    assert "rageval" not in output.partition("collected")[0]  # the package registers no plugin
