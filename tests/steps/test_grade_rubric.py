"""grade_rubric: what is asked, what is asked again, and how votes decide."""

import pytest
from helpers.each import each
from helpers.scripted import graded, scripted

from langchain_rageval import Criterion, Judge, JudgeOutputError, Sample
from langchain_rageval.prompts.answer_schemas import RubricGrade, RubricGrades
from langchain_rageval.prompts.criteria import default_criteria
from langchain_rageval.steps.grade_rubric import grade_rubric

SAMPLE = Sample(question="When was Munich founded?", answer="In 1158.", contexts=["Munich was founded in 1158."])
RUSSIAN = Sample(question="Когда основан Мюнхен?", answer="В 1158 году.", references=["В 1158.", "При Генрихе Льве."])
ALL = graded(correctness=3, completeness=2, readability=1)
TWO = [Criterion("polite tone", "Whether it is kind."), Criterion("brevity", "Whether it is short.")]


def step(judge, criteria=None, scale=(0, 3), with_examples=True):
    by_language = {"en": criteria} if criteria else default_criteria(scale)
    return grade_rubric(judge, by_language, scale, with_examples=with_examples)


def found(judge, sample=SAMPLE, **options):
    findings = step(judge, **options).invoke({"sample": sample})["rubric_grades"]
    return [(finding.text, finding.verdict) for finding in findings if finding.kind == "criterion"]


def asked_for(model):
    """The criteria of every call."""
    return [[criterion["criterion"] for criterion in inputs["criteria"]] for inputs in model.inputs]


def test_the_judge_reads_question_answer_reference_and_criteria_beside_the_contexts():
    model = scripted(ALL)
    step(model).invoke({"sample": SAMPLE})
    (inputs,), ((_, human),) = model.inputs, model.asked
    assert list(inputs) == ["question", "answer", "reference", "criteria"]
    assert (inputs["question"], inputs["answer"], inputs["reference"]) == (SAMPLE.question, SAMPLE.answer, "")
    assert [list(criterion) for criterion in inputs["criteria"]] == [
        ["criterion", "description", "grades", "examples"]
    ] * 3
    assert "\n[1.1] Munich was founded in 1158.\n" in human.text


def test_the_criteria_are_in_the_language_of_the_prompts():
    model = scripted(ALL, ALL, ALL)
    for sample, judge in [(RUSSIAN, Judge(model)), (SAMPLE, Judge(model)), (SAMPLE, Judge(model, language="ru"))]:
        step(judge).invoke({"sample": sample})
    described = [inputs["criteria"][0]["description"] for inputs in model.inputs]
    english, russian = (default_criteria()[language][0].description for language in ("en", "ru"))
    assert described == [russian, english, russian]


def test_a_language_without_criteria_has_the_english_ones():
    model = scripted(ALL)
    step(Judge(model, language="it")).invoke({"sample": SAMPLE})
    assert model.inputs[0]["criteria"][0]["description"] == default_criteria()["en"][0].description


def test_of_more_contexts_than_fit_the_highest_grade_of_the_windows_counts():
    model = scripted(
        graded(correctness=3, completeness=0, readability=1), graded(correctness=1, completeness=2, readability=1)
    )
    long = SAMPLE.model_copy(update={"contexts": ["One is long enough to fill a window.", "Two."]})
    state = step(Judge(model, max_context_tokens=10)).invoke({"sample": long})
    assert [finding.verdict for finding in state["rubric_grades"]] == ["3", "2", "1"]
    assert ["Two." in messages[1].text for messages in model.asked] == [False, True]


@each("off", [-1, 4, 100])
def test_a_grade_off_the_scale_is_asked_for_alone(off):
    model = scripted(graded(correctness=off, completeness=2, readability=0), graded(correctness=3))
    assert found(model) == [("correctness", "3"), ("completeness", "2"), ("readability", "0")]
    assert asked_for(model)[1] == ["correctness"]


def test_conflicting_doubles_are_asked_for_again_and_agreeing_ones_collapse():
    doubled = RubricGrades(grades=[*ALL.grades, *graded(correctness=3, readability=0).grades])
    model = scripted(doubled, graded(readability=2))
    assert found(model) == [("correctness", "3"), ("completeness", "2"), ("readability", "2")]
    assert asked_for(model)[1] == ["readability"]


def test_unknown_criteria_are_dropped_and_a_name_may_begin_with_a_capital():
    reply = RubricGrades(
        grades=[*graded(beauty=9).grades]
        + [RubricGrade(criterion=name, reason="", grade=1) for name in ("Polite  Tone", " BREVITY")]
    )
    assert found(scripted(reply), criteria=TWO) == [("polite tone", "1"), ("brevity", "1")]


def test_a_reply_without_a_single_usable_grade_is_shown_to_the_judge_with_what_is_wrong():
    model = scripted(graded(beauty=1), graded(correctness=7), ALL)
    assert found(model)[0] == ("correctness", "3")
    assert [len(messages) for messages in model.asked] == [2, 4, 4]
    assert "no single grade from 0 to 3 for correctness, completeness, readability" in model.asked[1][-1].text


@each(
    ("replies", "told"),
    [
        ([graded(correctness=3, readability=1)] + [graded(completeness=4)] * 2, "0 to 3 for completeness"),
        ([graded()] * 3, "0 to 3 for correctness, completeness, readability"),
        (
            [graded(correctness=3), graded(completeness=3), graded(readability=9)],
            "no single grade from 0 to 3 for readability",
        ),
    ],
)
def test_after_all_attempts_it_fails_and_says_what_is_missing(replies, told):
    model = scripted(*replies)
    with pytest.raises(JudgeOutputError, match=told) as raised:
        step(model).invoke({"sample": SAMPLE})
    assert raised.value.step == "grade_rubric"
    assert len(model.asked) == 3


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_a_blank_answer_has_the_lowest_grades_without_a_call(blank):
    sample = SAMPLE.model_copy(update={"answer": blank})
    assert found(scripted(), sample=sample, scale=(1, 5)) == [
        ("correctness", "1"),
        ("completeness", "1"),
        ("readability", "1"),
    ]


def test_several_references_are_one_text_and_without_contexts_there_is_no_block():
    model = scripted(ALL)
    step(model).invoke({"sample": RUSSIAN})
    assert model.inputs[0]["reference"] == "В 1158.\nПри Генрихе Льве."
    assert "[1.1]" not in model.asked[0][1].text
