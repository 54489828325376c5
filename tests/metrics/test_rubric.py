"""rubric: its arithmetic, its options, what it warns of, its place in a run, and recorded ratings that it orders."""

import gzip
import json
import warnings
from collections import Counter
from math import log
from pathlib import Path

import pytest
from helpers.each import each, error_of
from helpers.scripted import answering, graded, scripted
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from langchain_rageval import ConfigError, Criterion, Judge, OfflineJudge, Report, Sample, evaluate, jury, rubric
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.rubric import expected_grade, weighted_grade
from langchain_rageval.prompts.layout import read_inputs

SAMPLE = Sample(question="When was Munich founded?", answer="In 1158.", contexts=["Munich was founded in 1158."])
KIND = Criterion("tone", "Whether it is kind.", 3, grades={1: "Rude.", 5: "Kind."})
MINE = [KIND, Criterion("brevity", "Whether it is short.")]


@each(("grades", "value"), [((3, 3, 3), 1.0), ((0, 0, 0), 0.0), ((2, 1, 3), 0.6 * 2 / 3 + 0.2 / 3 + 0.2)])
def test_the_value_is_the_weighted_mean_of_the_grades(grades, value):
    reply = graded(**dict(zip(("correctness", "completeness", "readability"), grades, strict=True)))
    score = rubric(scripted(reply)).invoke(SAMPLE)
    assert score.value == pytest.approx(value, abs=1e-12)
    assert [finding.verdict for finding in score.findings] == [str(grade) for grade in grades]
    assert value not in (0, 1) or score.value == value


def test_weights_need_not_add_up_to_one_and_the_scale_may_begin_above_zero():
    score = rubric(scripted(graded(tone=4, brevity=1)), MINE, (1, 5)).invoke(SAMPLE)
    assert score.value == (3 * 3 / 4 + 0) / 4


@example([(3, 0.1)])  # 0.1 · 3 / 3 > 0.1
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), min_size=1, max_size=6).filter(
        lambda pairs: sum(weight for _, weight in pairs) > 0
    )
)
def test_the_value_lies_from_0_to_1_and_is_that_of_the_formula(pairs):
    names = [str(number) for number in range(len(pairs))]
    grades, given = zip(*pairs, strict=True)
    marks = zip(names, map(str, grades), strict=True)
    findings = [Finding(kind="criterion", number=1, text=name, verdict=grade) for name, grade in marks]
    weights = dict(zip(names, given, strict=True))
    state = {"sample": SAMPLE, "rubric_grades": findings}
    value = weighted_grade(state, weights=weights, scale=(0, 3)).number
    expected = sum(weight * grade / 3 for grade, weight in pairs) / sum(weight for _, weight in pairs)
    assert 0 <= value <= 1
    assert value == pytest.approx(expected, abs=1e-9)


@each(
    ("probabilities", "value"),
    [
        (({}, {}), 1 / 2),
        (({"0": 0.5, "3": 0.5}, {}), 1 / 4),
        (({}, {"0": 0.5, "3": 0.5}), 3 / 4),
        (({"1": 1.0}, {"2": 1.0}), 1 / 2),
        (({"2": 1.0}, {"2": 1.0}), 2 / 3),
    ],
)
def test_the_expected_grade_takes_a_grade_without_probabilities_as_certain(probabilities, value):
    findings = [
        Finding(kind="criterion", number=n, text=name, verdict=grade, probabilities=known)
        for n, (name, grade, known) in enumerate(zip("ab", "30", probabilities, strict=True), 1)
    ]
    state = {"sample": SAMPLE, "rubric_grades": findings}
    options = {"weights": {"a": 1.0, "b": 1.0}, "scale": (0, 3)}
    expected, plain = expected_grade(state, **options), weighted_grade(state, **options)
    assert (expected.number, plain.number) == (pytest.approx(value), 0.5)
    assert (expected.reason == plain.reason) is not any(probabilities)


def test_a_blank_answer_scores_0_without_a_call_and_says_so():
    blank = "The answer is blank. On a scale from 1 to 5: tone 1"
    for question, told in (("When?", blank), ("Когда это было?", "Ответ пуст. По шкале от 1")):
        score = rubric(scripted(), MINE, (1, 5)).invoke({"question": question, "answer": " "})
        assert (score.value, score.usage.calls) == (0.0, 0)
        assert score.reason.startswith(told)


def test_criteria_may_be_mappings_and_weight_0_is_graded_and_does_not_count():
    criteria = [{"name": "tone", "description": "Kind?"}, {"name": "brevity", "description": "Short?", "weight": 0}]
    score = rubric(scripted(graded(tone=3, brevity=0)), criteria).invoke(SAMPLE)
    assert score.value == 1.0
    assert [(finding.text, finding.verdict) for finding in score.findings] == [("tone", "3"), ("brevity", "0")]


def test_graded_answers_are_shown_unless_examples_are_none():
    model = scripted(*[graded(correctness=1, completeness=1, readability=1)] * 2)
    for examples in ("per_grade", "none"):
        rubric(model, examples=examples).invoke(SAMPLE)
    with_examples, without = ([c.get("examples") for c in inputs["criteria"]] for inputs in model.inputs)
    assert [[example["grade"] for example in shown] for shown in with_examples] == [[0, 1, 2, 3]] * 3
    assert without == [None] * 3


SCALE = "scale must be the lowest and the highest grade, whole numbers such as (0, 3), got"
ONCE = "criteria must contain at least one criterion, and each name once, got"
MISSING, POSITIVE = "missing 1 required positional argument", "give at least one of them a positive weight"
OFF = "which are off the scale from"
REMEDY = "change them, or pass scale=(lowest, highest)"


@each(
    ("options", "message"),
    [
        ({"scale": (3, 0)}, f"{SCALE} (3, 0)"),
        ({"examples": "all"}, "examples must be one of per_grade, none, got 'all'"),
        ({"criteria": MINE}, f"criterion 'tone' describes the grades [5], {OFF} 0 to 3: {REMEDY}"),
        ({"criteria": MINE, "scale": (2, 5)}, f"criterion 'tone' describes the grades [1], {OFF} 2 to 5: {REMEDY}"),
        ({"criteria": []}, f"{ONCE} []"),
        ({"criteria": [KIND, Criterion("Tone", "d")], "scale": (1, 5)}, f"{ONCE} ['tone', 'Tone']"),
        ({"criteria": "tone"}, "criteria must be a list of Criterion(name, description, ...), got str"),
        ({"criteria": MINE[0]}, "criteria must be a list of Criterion(name, description, ...), got Criterion"),
        ({"criteria": ["tone"]}, "criteria must be Criterion(name, description, ...), got str"),
        ({"criteria": [{"name": "tone"}]}, f"criterion 'tone': Criterion.__init__() {MISSING}: 'description'"),
        ({"criteria": [Criterion("tone", "d", 0)]}, f"all criteria have weight 0; {POSITIVE}"),
    ],
)
def test_an_invalid_option_is_refused_when_the_metric_is_built(options, message):
    assert str(error_of(ConfigError, rubric, OfflineJudge(), **options)) == message


# What it warns of


def warnings_of(build):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build()
    assert all((one.filename, one.lineno) == (__file__, build.__code__.co_firstlineno) for one in caught)
    return [str(warning.message) for warning in caught]


@each(("scale", "warned"), [((0, 10), False), ((1, 11), False), ((0, 11), True), ((0, 100), True)])
def test_a_scale_of_more_than_10_steps_warns_and_says_why(scale, warned):
    message = (
        f"a scale from {scale[0]} to {scale[1]} has {scale[1] - scale[0]} steps: neither people nor judges can "
        "distinguish that many grades consistently; use 0 to 3 or 1 to 5, which loses little information"
    )
    assert warnings_of(lambda: rubric(OfflineJudge(), scale=scale)) == [message] * warned


def chat(**options):
    return ChatOpenAI(model="m", api_key="k", **options)


@each(
    ("judge", "warned"),
    [
        (lambda: chat(temperature=0.31), True),
        (lambda: chat(temperature=0.3), False),
        (lambda: chat(temperature=0.9).with_retry(), True),
        (lambda: chat(temperature=0.1).with_fallbacks([chat(temperature=1.0)]), True),
        (lambda: chat().bind(temperature=1), True),
        (lambda: chat(temperature=0.9).bind(temperature=0.1), False),
        (lambda: Judge(chat(temperature=0.9), draws=3), False),
        (lambda: jury([chat(temperature=0.9)] * 3), False),
        (lambda: RunnableLambda(lambda _: "{}"), False),
    ],
)
def test_a_temperature_above_0_3_with_a_single_draw_warns(judge, warned):
    told = warnings_of(lambda: rubric(judge()))
    assert ["the same answer may get another grade next time" in text for text in told] == [True] * warned


# In a run


def by_answer(messages):
    """Grades by what the answer begins with."""
    grade = int(read_inputs(messages[1].text)["answer"][0])
    return graded(correctness=grade, completeness=3 - grade, readability=3)


ANSWERS = [Sample(question=f"What is number {n}?", answer=f"{n} of them.") for n in range(4)]


def test_weights_are_changed_without_a_call(tmp_path):
    model = answering(by_answer)
    path = tmp_path / "report.jsonl"
    evaluate(ANSWERS, rubric(model), progress=False).to_jsonl(path)
    equal = [Criterion(name, "d") for name in ("correctness", "completeness", "readability")]
    again = Report.load(path).rescore(rubric(scripted(), equal))
    assert [row.scores["rubric"].value for row in again.rows] == pytest.approx([2 / 3] * 4)
    only = [Criterion(c.name, "d", weight) for c, weight in zip(equal, (1, 0, 0), strict=True)]
    once_more = again.rescore(rubric(scripted(), only))
    assert [row.scores["rubric"].value for row in once_more.rows] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert len(model.asked) == 4


@each(("names", "scale"), [(["tone"], (0, 3)), (None, (0, 1)), (["correctness"], (0, 3))])
def test_other_criteria_or_grades_off_the_new_scale_are_not_restored(names, scale):
    criteria = names and [Criterion(name, "d") for name in names]
    report = evaluate(ANSWERS, rubric(answering(by_answer)), progress=False)
    with pytest.raises(ConfigError, match="cannot be computed from the findings of rubric"):
        report.rescore(rubric(scripted(), criteria, scale))


# Offline


@each(
    ("answer", "grades"),
    [
        ("Полис покрывает пожар и залив бани.", (3, 3, 3)),
        ("Полис покрывает пожар и залив бани 24 часа.", (0, 3, 3)),
        ("Полис покрывает слонов.", (2, 1, 3)),
        ("Я не знаю.", (0, 0, 3)),
        ("пожар пожар пожар пожар пожар пожар пожар", (3, 1, 0)),
    ],
)
def test_the_offline_judge_grades_what_can_be_counted(answer, grades):
    sample = {"question": "Что он покрывает?", "answer": answer, "references": ["Полис бани покрывает пожар и залив."]}
    score = rubric(OfflineJudge()).invoke(sample)
    assert tuple(int(finding.verdict) for finding in score.findings) == grades


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
