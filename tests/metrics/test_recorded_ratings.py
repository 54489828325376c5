"""Recorded ratings of Llama-3-8B with the probabilities of their tokens: a rubric scored by expectation orders them."""

import gzip
import json
from collections import Counter
from math import log
from pathlib import Path

import pytest
from helpers.each import each
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import Criterion, Judge, rubric

RATINGS = Path(__file__).parents[1] / "fixtures" / "wikieval_judge_outputs" / "rating_raw_outputs.jsonl.gz"
CRITERIA = [Criterion("relevance", "How far does the answer address the question?")]


def recorded(scale, style):
    """Return the recorded ratings of a scale and a style of prompt, by question and role of the answer."""
    with gzip.open(RATINGS, "rt", encoding="utf-8") as file:
        ratings = [json.loads(line) for line in file]
    chosen = [one for one in ratings if one["score_range"] == f"1-{scale}" and one["style"] == style]
    return {(one["wikieval_id"], one["role"]): one for one in chosen}


def reply_with(rating):
    """Return a reply of our schema in which the recorded token stands for the grade."""
    grade = rating["raw_output"].split()[0].strip('."')
    top = [{"token": token, "logprob": log(p)} for token, p in rating["top_token_probs"].items() if p > 0]
    own = next((one for one in top if one["token"] == grade), {"token": grade, "logprob": -99.0})
    head, tail = '{"grades": [{"criterion": "relevance", "reason": "", "grade": ', "}]}"
    items = [{"token": head, "logprob": 0.0}, {**own, "top_logprobs": top}, {"token": tail, "logprob": 0.0}]
    return AIMessage(head + grade + tail, response_metadata={"logprobs": {"content": items}})


def outcomes(scale, style, *, expected):
    """Return how often the good answer is rated above, like or below the poor one."""
    ratings = recorded(scale, style)
    found = Counter()
    for question in {question for question, _ in ratings}:
        values = {}
        for role in ("answer", "poor_answer"):
            reply = reply_with(ratings[question, role])
            judge = Judge(RunnableLambda(lambda _, reply=reply: reply), version="1", probabilities=expected)
            metric = rubric(judge, CRITERIA, scale=(1, scale), expected=expected)
            values[role] = metric.invoke({"question": "What is it?", "answer": role}).value
        difference = values["answer"] - values["poor_answer"]
        found["above" if difference > 0 else "below" if difference < 0 else "tie"] += 1
    return found


@pytest.mark.gate
@each("style", ["imperative", "interrogative"])
@each("scale", [5, 10])
def test_the_expected_rating_orders_every_pair_where_the_plain_one_has_ties(scale, style):
    assert outcomes(scale, style, expected=True) == {"above": 20}
    plain = outcomes(scale, style, expected=False)
    assert (plain["above"], plain["below"]) == ({5: 18, 10: 19}[scale], 0)
