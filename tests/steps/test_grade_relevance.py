import re

import pytest
from helpers.each import each
from helpers.scripted import answering, human_of, relevance, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Judge, Sample, llm_grader

CONTEXTS = ["First. Second.", "Third.", "Fourth.", "Fifth."]


def found(judge, contexts=CONTEXTS, question="What?", **options):
    return llm_grader(judge, **options).invoke({"sample": Sample(question=question, contexts=contexts)})["grades"]


def graded(findings):
    return [int(finding.verdict) for finding in findings if finding.kind == "context"]


def block(messages):
    return human_of(messages).split("\n\n")[0].splitlines()[1:]


def chunks(messages):
    """Number to text, of chunks of one sentence."""
    return {int(n): text for n, text in re.findall(r"^\[(\d+)\.1\] (.*)$", human_of(messages), re.MULTILINE)}


def by_text(grades):
    """A judge that grades chunks by their first sentence."""
    return answering(lambda messages: relevance({n: grades[text] for n, text in chunks(messages).items()}))


BY_TEXT = {"First.": 4, "Third.": 0, "Fourth.": 2, "Fifth.": 4}


def test_all_chunks_go_out_in_one_call_with_question_and_scale():
    judge = by_text(BY_TEXT)
    findings = found(judge)
    assert judge.inputs == [{"question": "What?", "scale": [0, 4]}]
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings] == [
        ("context", 1, "First. Second.", "4"),
        ("context", 2, "Third.", "0"),
        ("context", 3, "Fourth.", "2"),
        ("context", 4, "Fifth.", "4"),
    ]
    assert all(re.fullmatch(r"r\d", finding.reason) for finding in findings)


@given(st.permutations(CONTEXTS))
def test_the_prompt_is_the_same_to_the_byte_in_whatever_order_the_chunks_were_retrieved(shuffled):
    ordered, other = by_text(BY_TEXT), by_text(BY_TEXT)
    found(ordered)
    grades = graded(found(other, shuffled))
    assert [m.content for m in other.asked[0]] == [m.content for m in ordered.asked[0]]
    assert dict(zip(shuffled, grades, strict=True)) == dict(zip(CONTEXTS, [4, 0, 2, 4], strict=True))


def test_the_order_shown_is_that_of_a_hash_and_not_of_retrieval_or_of_the_alphabet():
    texts = [f"{letter} is a letter." for letter in "ABCDEFGHIJ"]
    judge = by_text(dict.fromkeys(texts, 1))
    found(judge, texts)
    shown = list(chunks(judge.asked[0]).values())
    assert sorted(shown) == texts
    assert shown not in (texts, texts[::-1])


def test_equal_chunks_are_shown_once_and_get_the_same_grade():
    judge = by_text(BY_TEXT)
    assert graded(found(judge, ["Third.", "Fourth.", "Third.", "Fourth."])) == [0, 2, 0, 2]
    assert len(chunks(judge.asked[0])) == 2


def test_a_judge_that_flatters_what_comes_first_gives_each_chunk_the_same_grade_in_every_order():
    def flatters(messages):
        return relevance({number: max(0, 5 - number) for number in chunks(messages)})

    one = dict(zip(CONTEXTS, graded(found(answering(flatters))), strict=True))
    other = dict(zip(CONTEXTS[::-1], graded(found(answering(flatters), CONTEXTS[::-1])), strict=True))
    assert one == other
    assert len(set(one.values())) == 4


@each("contexts", [[], [""], [" ", "\n"]])
def test_without_a_chunk_that_holds_words_no_call_is_made(contexts):
    assert graded(found(scripted(), contexts)) == [0] * len(contexts)
    assert graded(found(scripted(), contexts, scale=(1, 5))) == [1] * len(contexts)


def test_a_blank_chunk_gets_the_lowest_grade_and_is_not_shown():
    judge = by_text(BY_TEXT)
    assert graded(found(judge, ["", "Fourth.", "  "])) == [0, 2, 0]
    assert block(judge.asked[0]) == ["[1]", "[1.1] Fourth."]


def test_one_chunk_at_a_time_no_other_is_seen():
    judge = by_text(BY_TEXT)
    assert graded(found(judge, pointwise=True)) == [4, 0, 2, 4]
    assert sorted(map(block, judge.asked)) == sorted(
        [["[1]", "[1.1] First.", "[1.2] Second."], *(["[1]", f"[1.1] {text}"] for text in CONTEXTS[1:])]
    )


# Asking again


@each(
    "first",
    [{1: 3, 2: 1, 3: 0}, {1: 3, 2: 1, 3: 0, 7: 4}, {1: 3, 2: 1, 3: 0, 4: 5}, {1: 3, 2: 1, 3: 0, 4: -1}],
    ids=["missing", "unknown number", "above the scale", "below the scale"],
)
def test_a_chunk_without_a_grade_on_the_scale_is_asked_about_again_alone_numbered_from_one(first):
    judge = scripted(relevance(first), relevance({1: 2}))
    grades = graded(found(judge))
    assert sorted(grades) == [0, 1, 2, 3]
    assert [list(chunks(messages)) for messages in judge.asked] == [[1, 2, 3, 4], [1]]
    assert chunks(judge.asked[1]) == {1: chunks(judge.asked[0])[4]}


# Votes and windows


def test_of_several_draws_the_median_holds_and_their_agreement_is_told():
    replies = [relevance({1: grade, 2: 0}) for grade in (4, 1, 3)]
    findings = found(Judge(scripted(*replies), draws=3), ["One.", "Two."])
    assert sorted(graded(findings)) == [0, 3]
    agreed = {f.text: (f.verdict, f.reason) for f in findings if f.kind == "agreement"}
    assert sorted(agreed.values()) == [("0.33", "1 of 3 draws: 4, 1, 3"), ("1.00", "3 of 3 draws")]


def test_a_chunk_cut_by_a_window_gets_the_best_grade_of_its_parts():
    def answer(messages):
        return relevance({1: 4 if "Six" in human_of(messages) else 1})

    judge = answering(answer)
    findings = found(Judge(judge, max_context_tokens=8), ["One two three four. Five. Six seven eight nine."])
    assert len(judge.asked) > 1
    assert graded(findings) == [4]


# Options


@each("scale", [(0, 1), (1, 5), (-1, 3)])
def test_any_scale_is_sent_and_held_to(scale):
    judge = scripted(relevance({1: scale[1] + 1}), relevance({1: scale[1]}))
    assert graded(found(judge, ["One."], scale=scale)) == [scale[1]]
    assert judge.inputs[0]["scale"] == list(scale)


@each("scale", [(4, 0), (1, 1), (0.0, 4), (0,), (0, 1, 2), "04", None, (False, True)])
def test_what_is_no_scale_is_refused(scale):
    with pytest.raises(ConfigError, match=r"scale must (be|give) the lowest"):
        llm_grader(scripted(), scale)


def test_pointwise_is_yes_or_no():
    with pytest.raises(ConfigError, match="pointwise is True or False"):
        llm_grader(scripted(), pointwise="yes")


def test_whatever_changes_the_grades_changes_the_instrument():
    judge = scripted()
    graders = [llm_grader(judge), llm_grader(judge, (0, 3)), llm_grader(judge, pointwise=True)]
    assert len({repr(grader.instrument) for grader in graders}) == 3
    assert llm_grader(judge).instrument == graders[0].instrument
