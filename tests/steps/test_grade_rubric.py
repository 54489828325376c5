"""grade_rubric: what is asked, what is asked again, and how votes decide."""

from helpers.each import each, error_of
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


def test_the_judge_reads_question_answer_reference_and_criteria_beside_the_contexts():
    model = scripted(ALL)
    step(model).invoke({"sample": SAMPLE})
    (inputs,), ((_, human),) = model.inputs, model.asked
    assert list(inputs) == ["question", "answer", "reference", "criteria"]
    assert (inputs["question"], inputs["answer"], inputs["reference"]) == (SAMPLE.question, SAMPLE.answer, "")
    keys = ["criterion", "description", "grades", "examples"]
    assert [list(criterion) for criterion in inputs["criteria"]] == [keys] * 3
    assert "\n[1.1] Munich was founded in 1158.\n" in human.text


def test_the_criteria_are_in_the_language_of_the_prompts_or_else_english():
    model = scripted(ALL, ALL, ALL, ALL)
    for sample, language in [(RUSSIAN, "auto"), (SAMPLE, "auto"), (SAMPLE, "ru"), (SAMPLE, "it")]:
        step(Judge(model, language=language)).invoke({"sample": sample})
    described = [inputs["criteria"][0]["description"] for inputs in model.inputs]
    english, russian = (default_criteria()[language][0].description for language in ("en", "ru"))
    assert described == [russian, english, russian, english]


def test_of_more_contexts_than_fit_the_highest_grade_of_the_windows_counts():
    replies = [{"correctness": 3, "completeness": 0}, {"correctness": 1, "completeness": 2}]
    model = scripted(*(graded(**reply, readability=1) for reply in replies))
    long = SAMPLE.model_copy(update={"contexts": ["One is long enough to fill a window.", "Two."]})
    state = step(Judge(model, max_context_tokens=10)).invoke({"sample": long})
    assert [finding.verdict for finding in state["rubric_grades"]] == ["3", "2", "1"]
    assert ["Two." in messages[1].text for messages in model.asked] == [False, True]


DOUBLED = RubricGrades(grades=[*ALL.grades, *graded(correctness=3, readability=0).grades])


@each("first", [DOUBLED, *(graded(correctness=3, completeness=2, readability=off) for off in (-1, 4))])
def test_conflicting_doubles_and_grades_off_the_scale_are_asked_for_alone_and_equal_ones_collapse(first):
    model = scripted(first, graded(readability=2))
    assert found(model) == [("correctness", "3"), ("completeness", "2"), ("readability", "2")]
    assert [criterion["criterion"] for criterion in model.inputs[1]["criteria"]] == ["readability"]


def test_unknown_criteria_are_dropped_and_a_name_may_begin_with_a_capital():
    known = [RubricGrade(criterion=name, reason="", grade=1) for name in ("Polite  Tone", " BREVITY")]
    reply = RubricGrades(grades=[*graded(beauty=9).grades, *known])
    assert found(scripted(reply), criteria=TWO) == [("polite tone", "1"), ("brevity", "1")]


def test_a_reply_without_a_single_usable_grade_is_shown_to_the_judge_with_what_is_wrong():
    model = scripted(graded(beauty=1), graded(correctness=7), ALL)
    assert found(model)[0] == ("correctness", "3")
    assert [len(messages) for messages in model.asked] == [2, 4, 4]
    assert "no single grade from 0 to 3 for correctness, completeness, readability" in model.asked[1][-1].text


@each(
    ("replies", "told"),
    [
        ([graded(correctness=3, readability=1)] + [graded(completeness=4)] * 2, "from 0 to 3 for completeness"),
        ([graded(correctness=3), graded(completeness=3), graded(readability=9)], "from 0 to 3 for readability"),
    ],
)
def test_after_all_attempts_it_fails_and_says_what_is_missing(replies, told):
    model = scripted(*replies)
    assert str(error_of(JudgeOutputError, found, model)) == f"grade_rubric: no single grade {told}"
    assert len(model.asked) == 3


@each("blank", ["", "  \n"])
def test_a_blank_answer_has_the_lowest_grades_without_a_call(blank):
    sample = SAMPLE.model_copy(update={"answer": blank})
    lowest = [(name, "1") for name in ("correctness", "completeness", "readability")]
    assert found(scripted(), sample=sample, scale=(1, 5)) == lowest


def test_several_references_are_one_text_and_without_contexts_there_is_no_block():
    model = scripted(ALL)
    step(model).invoke({"sample": RUSSIAN})
    assert model.inputs[0]["reference"] == "В 1158.\nПри Генрихе Льве."
    assert "[1.1]" not in model.asked[0][1].text
