"""Contexts beyond `max_context_tokens`: a metric reads them all, or score and report say what was not read."""

from functools import partial

import pytest
from helpers.offline import METRICS as BY_SCORE
from helpers.offline import UNJUDGED
from pydantic import BaseModel

from langchain_rageval import (
    Judge,
    Metric,
    OfflineJudge,
    Prompt,
    Sample,
    Step,
    Value,
    abstention,
    citations,
    claim_metrics,
    evaluate,
    llm_grader,
    ndcg_at,
)
from langchain_rageval.prompts.layout import NumberedContexts

FILLER = [f"Пункт {n} говорит о другом предмете и ничего не решает." for n in range(120)]
SAMPLE = Sample(
    question="Когда основан Мюнхен?",
    answer="Мюнхен основан в 1158 году [121].",
    contexts=[*FILLER, "Мюнхен основан в 1158 году."],
    references=["Мюнхен основан в 1158 году."],
)
OTHERS = {*UNJUDGED, "answer_relevance", "answer_completeness", "claim_f1", "ndcg@5"}
METRICS = {
    **{name: build for name, build in BY_SCORE.items() if name not in OTHERS},
    "claim_metrics": claim_metrics,
    "citations": citations,
    "abstention": partial(abstention, given="contexts"),
    "ndcg@200": lambda judge: ndcg_at(200, llm_grader(judge)),
}


def noted(report):
    return {note.metric for note in report.notes if getattr(note, "code", "").startswith("contexts-")}


@pytest.mark.parametrize("name", METRICS)
def test_a_value_does_not_depend_on_the_window_or_the_report_says_so(name):
    def scored(limit):
        return evaluate([SAMPLE], METRICS[name](Judge(OfflineJudge(), max_context_tokens=limit)), progress=False)

    whole = scored(None)
    for limit in (500, 1000, 1500):
        windowed = scored(limit)
        for metric, score in windowed.rows[0].scores.items():
            expected = whole.rows[0].scores[metric]
            assert (score.value, score.unscored) == (expected.value, expected.unscored), (metric, limit)
        assert noted(windowed) == ({name} if name in ("rubric", "conciseness") else set())
    assert noted(whole) == set()


class Points(BaseModel):
    """Points that the contexts confirm."""

    confirmed: int


PROMPT = Prompt(instruction="Count the confirmed points.")


def confirmed(state):
    return Value(float(state["points"].confirmed))


def test_a_step_of_ones_own_is_asked_about_each_window():
    def scored(limit, **options):
        judge = Judge(OfflineJudge(), max_context_tokens=limit)
        step = Step(
            Points, prompts=PROMPT, reads=("answer", "contexts"), offline=lambda inputs: Points(confirmed=1), **options
        )
        metric = Metric(
            "points", aspect="answer", reads={"contexts"}, range=(0, 99), steps=step(judge), reduce=confirmed
        )
        return evaluate([SAMPLE], metric, progress=False)

    assert scored(500).rows[0].scores["points"].value == 1
    assert noted(scored(500)) == {"points"}
    summed = scored(500, windows=lambda answers: Points(confirmed=sum(answer.confirmed for answer in answers)))
    score = summed.rows[0].scores["points"]
    assert score.value == score.usage.calls == len(NumberedContexts.of(SAMPLE.contexts).windows(500)) > 2
    assert noted(summed) == set()
    one = scored(None, windows=len)
    assert one.rows[0].scores["points"].value == 1
    assert one.rows[0].scores["points"].instrument != scored(None).rows[0].scores["points"].instrument
    failure = scored(500, windows=len).rows[0].scores["points"].failure
    assert (failure.error, failure.message) == (
        "ConfigError",
        "windows returned int: it must return one Points for a list of them",
    )
