"""Criteria: what they refuse, what the judge is shown of them, and those that come with the package."""

import pytest
from helpers.each import each, error_of

from langchain_rageval import ConfigError, Criterion
from langchain_rageval.prompts.criteria import criterion_inputs, default_criteria
from langchain_rageval.text.language import detect_language

DEFAULT = default_criteria()
TONE = Criterion(
    "tone",
    "Whether it is kind.",
    0.5,
    grades={0: "Rude.", 3: "Kind."},
    examples=[{"question": "?", "answer": "Here you are!", "reason": "Kind.", "grade": 3}],
)


def texts_of(criterion):
    examples = [text for e in criterion.examples for text in (e.question, e.answer, e.reason)]
    return [criterion.description, *criterion.grades.values(), *examples]


@pytest.mark.parametrize("language", ["en", "ru"])
def test_the_packaged_criteria_describe_every_grade_and_show_an_answer_for_it(language):
    criteria = DEFAULT[language]
    assert [(c.name, c.weight) for c in criteria] == [("correctness", 0.6), ("completeness", 0.2), ("readability", 0.2)]
    for criterion in criteria:
        assert sorted(criterion.grades) == [0, 1, 2, 3]
        assert [example.grade for example in criterion.examples] == [0, 1, 2, 3]
        assert len({example.question for example in criterion.examples}) == 1
        assert all(example.reason for example in criterion.examples)
        assert len(set(criterion.grades.values())) == 4


@pytest.mark.parametrize("language", ["en", "ru"])
def test_each_language_has_criteria_in_its_own_words(language):
    for criterion in DEFAULT[language]:
        for text in (criterion.description, criterion.examples[0].question):
            assert detect_language(text) == language
        latin = any("a" <= letter.lower() <= "z" for text in texts_of(criterion) for letter in text)
        assert latin is (language == "en")


@each(
    ("scale", "described"),
    [
        ((0, 3), [0, 1, 2, 3]),
        ((1, 4), [1, 2, 3, 4]),
        ((0, 6), [0, 2, 4, 6]),
        ((1, 5), [1, 5]),
        ((0, 1), [0, 1]),
        ((-3, 3), [-3, -1, 1, 3]),
    ],
)
def test_on_another_scale_grades_keep_their_place_between_the_ends(scale, described):
    for criteria in default_criteria(scale).values():
        for criterion, usual in zip(criteria, DEFAULT["en"], strict=True):
            assert sorted(criterion.grades) == [example.grade for example in criterion.examples] == described
            assert criterion.weight == usual.weight
    moved, usual = default_criteria(scale)["en"][0], DEFAULT["en"][0]
    assert (moved.grades[scale[0]], moved.grades[scale[1]]) == (usual.grades[0], usual.grades[3])
    assert moved.examples[-1].answer == usual.examples[-1].answer


def test_the_judge_reads_both_ends_of_the_scale_even_without_descriptions():
    bare = Criterion("tone", "Whether it is kind.", grades={2: "Neither."})
    inputs = criterion_inputs(bare, (1, 5), with_examples=True)
    assert inputs.keys() == {"criterion", "description", "grades"}
    assert (inputs["criterion"], inputs["description"]) == ("tone", "Whether it is kind.")
    assert list(inputs["grades"].items()) == [("1", ""), ("2", "Neither."), ("5", "")]


def test_graded_answers_are_sorted_by_grade_and_can_be_left_out():
    lower = {"question": "?", "answer": "No.", "grade": 0}
    criterion = Criterion("tone", "d", examples=[*TONE.examples, lower])
    inputs = criterion_inputs(criterion, (0, 3), with_examples=True)
    assert [example["grade"] for example in inputs["examples"]] == [0, 3]
    assert "examples" not in criterion_inputs(TONE, (0, 3), with_examples=False)


def test_a_criterion_is_frozen_and_equal_by_its_texts():
    assert Criterion(**TONE.model_dump()) == TONE
    assert hash(Criterion(**TONE.model_dump())) == hash(TONE)
    with pytest.raises(Exception, match="frozen"):
        TONE.weight = 1.0


def test_lone_surrogates_are_replaced():
    assert Criterion("tone", "d\ud800").description == "d\ufffd"


@each(
    ("given", "told"),
    [
        ({"name": " "}, "the name is blank"),
        ({"description": ""}, "the description is blank"),
        ({"grades": {1: " "}}, "the description of grade 1 is blank"),
        ({"weight": -0.1}, "weight must be a number of at least 0, got -0.1"),
        ({"weight": float("nan")}, "weight must be a number of at least 0, got nan"),
        ({"weight": "much"}, "weight: Input should be a valid number"),
        ({"grades": {1.5: "x"}}, "valid integer"),
        ({"grades": ["x"]}, "grades: Input should be a valid dictionary"),
        ({"examples": [{"answer": "x", "grade": 1}]}, "examples.0.question: Field required"),
        ({"examples": [{"question": "?", "answer": "x", "grade": 1, "garde": 2}]}, "examples.0.garde: Extra inputs"),
        ({"examples": "x"}, "examples must be a list of mappings, got str"),
        ({"examples": 3}, "examples must be a list of mappings, got int"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, told):
    assert told in str(error_of(ConfigError, Criterion, **{"name": "tone", "description": "d", **given}))
