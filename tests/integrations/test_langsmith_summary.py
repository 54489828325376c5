"""summary_evaluator: the mean of a metric over a LangSmith experiment."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from helpers.each import error_of
from helpers.samples import ANSWER, CONTEXTS, QUESTION, REFUSAL
from helpers.scripted import broken_judge, recording_judge
from langsmith.run_trees import RunTree
from langsmith.schemas import Example

from langchain_rageval import ConfigError, OfflineJudge, faithfulness, suite
from langchain_rageval.integrations.langsmith import summary_evaluator
from langchain_rageval.statistics import bounded_mean_interval

TRUE = "Munich was founded in 1158."


def example(question: str = QUESTION) -> Example:
    return Example(id=uuid4(), dataset_id=uuid4(), inputs={"question": question}, created_at=datetime.now(UTC))


def run(answer: str | None, contexts: list[str] | None = CONTEXTS) -> Any:
    return RunTree(name="rag", inputs={}, outputs={"answer": answer, "contexts": contexts}, client=None)


def test_the_mean_has_an_interval_and_counts_of_missing_scores():
    answers = [ANSWER, TRUE, TRUE, REFUSAL["answer"]]
    result = summary_evaluator(faithfulness(OfflineJudge()))([*map(run, answers)], [example() for _ in answers])
    low, high = bounded_mean_interval([0.5, 1.0, 1.0])
    assert (result["key"], result["score"]) == ("faithfulness", pytest.approx(2.5 / 3))
    assert result["comment"] == f"95% interval [{low:.3f}, {high:.3f}]; 3 scored, 1 unscored, 0 failed"
    assert (result["metadata"]["low"], result["metadata"]["high"]) == (low, high)
    assert result["metadata"]["notes"][0].startswith("Judged offline")


def test_runs_that_cannot_be_scored_are_counted_and_do_not_affect_others():
    runs = [run(TRUE), run(TRUE, None), RunTree(name="rag", inputs={}, outputs=None, client=None)]
    result = summary_evaluator(faithfulness(OfflineJudge()))(runs, [example() for _ in runs])
    assert (result["score"], result["metadata"]["failed"]) == (1.0, 2)
    assert "1 scored, 0 unscored, 2 failed; SampleError: " in result["comment"]


def test_the_error_of_an_unreadable_run_is_in_the_comment():
    result = summary_evaluator(faithfulness(OfflineJudge()))([run(TRUE), run(TRUE, "a text")], [example(), example()])
    assert (result["score"], result["metadata"]["failed"]) == (1.0, 1)
    assert "SampleError: contexts: expected a list of str, got str 'a text'" in result["comment"]


def test_without_a_scored_run_there_is_no_score():
    result = summary_evaluator(faithfulness(broken_judge()))([run(TRUE)], [example()])
    assert result["score"] is None
    assert result["comment"].startswith("0 scored, 0 unscored, 1 failed; JudgeOutputError: extract_statements")
    nothing = summary_evaluator(faithfulness(OfflineJudge()))([], [])
    assert nothing == {"results": []}


def test_repetitions_of_one_example_are_separate_samples():
    once = example()
    result = summary_evaluator(faithfulness(OfflineJudge()))([run(TRUE), run(ANSWER)], [once, once])
    assert (result["score"], result["metadata"]["scored"]) == (0.75, 2)


def test_a_suite_gives_a_mean_for_each_metric_and_asks_once():
    judge = recording_judge()
    both = suite(faithfulness(judge), faithfulness(judge, name="other"))
    results = summary_evaluator(both)([run(ANSWER)], [example()])["results"]
    assert [(result["key"], result["score"]) for result in results] == [("faithfulness", 0.5), ("other", 0.5)]
    assert len(judge.asked) == 2


def test_an_argument_that_is_no_metric_raises():
    assert "takes a metric or a suite, got str" in str(error_of(ConfigError, summary_evaluator, "faithfulness"))
