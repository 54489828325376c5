"""Steps that judge contexts: useful chunks, relevance grades, needed sentences."""

import re

from helpers.each import each
from helpers.scripted import answering, grades, human_of, needed, relevance, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, Sample, llm_grader
from langchain_rageval.steps.grade_contexts import grade_contexts, select_sentences

CONTEXTS = ["First. Second.", "Third.", "Fourth."]


def found(judge, contexts=CONTEXTS, answer="so"):
    step = grade_contexts(judge, against=lambda sample: sample.answer)
    state = {"sample": Sample(question="What?", answer=answer, contexts=contexts)}
    return step.invoke(state)["context_verdicts"]


def useful(findings):
    return [finding.verdict == "useful" for finding in findings if finding.kind == "context"]


def block(messages):
    return human_of(messages).split("\n\n")[0].splitlines()[1:]


def test_all_chunks_go_out_in_one_call_in_retrieval_order_with_question_and_answer():
    judge = scripted(grades({1: True, 2: False, 3: True}))
    findings = found(judge)
    assert judge.inputs == [{"question": "What?", "answer": "so"}]
    numbered = "[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n[3]\n[3.1] Fourth."
    assert block(judge.asked[0]) == numbered.splitlines()
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in findings] == [
        ("context", 1, "First. Second.", "useful", "r1"),
        ("context", 2, "Third.", "not useful", "r2"),
        ("context", 3, "Fourth.", "useful", "r3"),
    ]


@each("given", [{1: True, 2: True, 3: True}, {1: True, 3: True}])
def test_a_blank_chunk_keeps_its_number_and_is_not_useful_whatever_the_judge_says(given):
    judge = scripted(grades(given))
    assert useful(found(judge, ["A.", " ", "B."])) == [True, False, True]
    assert block(judge.asked[0]) == ["[1]", "[1.1] A.", "[2]", "[3]", "[3.1] B."]


@each("word", ['"useful"', "2", "0.5", "null", '""'])
def test_a_verdict_that_is_no_boolean_is_asked_again(word):
    wrong = grades({1: True}).model_dump_json().replace("true", word)
    judge = scripted(wrong, grades({1: False}))
    assert useful(found(judge, ["A."])) == [False]
    assert len(judge.asked[1]) == 4


# Windows


def test_long_contexts_go_out_in_windows_each_numbered_from_one():
    judge = answering(lambda messages: grades({int(line[1]): line == "[1.2] Second." for line in block(messages)}))
    findings = found(Judge(judge, max_context_tokens=4))
    assert [block(messages) for messages in judge.asked] == [
        ["[1]", "[1.1] First."], ["[1]", "[1.2] Second."], ["[1]", "[1.1] Third."], ["[1]", "[1.1] Fourth."],
    ]  # fmt: skip
    assert useful(findings) == [True, False, False]


@each("parts", [(True, False), (False, True), (True, True), (False, False)])
def test_a_chunk_cut_by_a_window_is_useful_if_any_part_of_it_is(parts):
    replies = [grades({1: part}) for part in parts]
    assert useful(found(Judge(scripted(*replies), max_context_tokens=4), CONTEXTS[:1])) == [any(parts)]


CONTEXTS_OF_GRADE_RELEVANCE = ["First. Second.", "Third.", "Fourth.", "Fifth."]


def found_of_grade_relevance(judge, contexts=CONTEXTS_OF_GRADE_RELEVANCE, question="What?", **options):
    return llm_grader(judge, **options).invoke({"sample": Sample(question=question, contexts=contexts)})["grades"]


def graded(findings):
    return [int(finding.verdict) for finding in findings if finding.kind == "context"]


def chunks(messages):
    """Number to text, of chunks of one sentence."""
    return {int(n): text for n, text in re.findall(r"^\[(\d+)\.1\] (.*)$", human_of(messages), re.MULTILINE)}


def by_text(grades):
    """A judge that grades chunks by their first sentence."""
    return answering(lambda messages: relevance({n: grades[text] for n, text in chunks(messages).items()}))


BY_TEXT = {"First.": 4, "Third.": 0, "Fourth.": 2, "Fifth.": 4}


def test_all_chunks_go_out_in_one_call_with_question_and_scale():
    judge = by_text(BY_TEXT)
    findings = found_of_grade_relevance(judge)
    assert judge.inputs == [{"question": "What?", "scale": [0, 4]}]
    graded_texts = enumerate(zip(CONTEXTS_OF_GRADE_RELEVANCE, "4024", strict=True), 1)
    expected = [("context", number, text, grade) for number, (text, grade) in graded_texts]
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings] == expected
    assert all(re.fullmatch(r"r\d", finding.reason) for finding in findings)


@given(st.permutations(CONTEXTS_OF_GRADE_RELEVANCE))
def test_the_prompt_is_the_same_to_the_byte_in_whatever_order_the_chunks_were_retrieved(shuffled):
    ordered, other = by_text(BY_TEXT), by_text(BY_TEXT)
    found_of_grade_relevance(ordered)
    grades = graded(found_of_grade_relevance(other, shuffled))
    assert [m.content for m in other.asked[0]] == [m.content for m in ordered.asked[0]]
    assert dict(zip(shuffled, grades, strict=True)) == dict(zip(CONTEXTS_OF_GRADE_RELEVANCE, [4, 0, 2, 4], strict=True))


def test_the_order_shown_is_that_of_a_hash_and_not_of_retrieval_or_of_the_alphabet():
    texts = [f"{letter} is a letter." for letter in "ABCDEFGHIJ"]
    judge = by_text(dict.fromkeys(texts, 1))
    found_of_grade_relevance(judge, texts)
    shown = list(chunks(judge.asked[0]).values())
    assert sorted(shown) == texts
    assert shown not in (texts, texts[::-1])


def test_equal_chunks_are_shown_once_and_get_the_same_grade():
    judge = by_text(BY_TEXT)
    assert graded(found_of_grade_relevance(judge, ["Third.", "Fourth.", "Third.", "Fourth."])) == [0, 2, 0, 2]
    assert len(chunks(judge.asked[0])) == 2


@each("lowest", [0, 1])
def test_a_blank_chunk_gets_the_lowest_grade_and_is_not_shown(lowest):
    judge = by_text(BY_TEXT)
    found = found_of_grade_relevance(judge, ["", "Fourth.", "  "], scale=(lowest, 4))
    assert graded(found) == [lowest, 2, lowest]
    assert block(judge.asked[0]) == ["[1]", "[1.1] Fourth."]


def test_one_chunk_at_a_time_no_other_is_seen():
    judge = by_text(BY_TEXT)
    assert graded(found_of_grade_relevance(judge, pointwise=True)) == [4, 0, 2, 4]
    others = [["[1]", f"[1.1] {text}"] for text in CONTEXTS_OF_GRADE_RELEVANCE[1:]]
    assert sorted(map(block, judge.asked)) == sorted([["[1]", "[1.1] First.", "[1.2] Second."], *others])


# Asking again


@each(
    "first",
    [{1: 3, 2: 1, 3: 0}, {1: 3, 2: 1, 3: 0, 7: 4}, {1: 3, 2: 1, 3: 0, 4: 5}, {1: 3, 2: 1, 3: 0, 4: -1}],
    ids=["missing", "unknown number", "above the scale", "below the scale"],
)
def test_a_chunk_without_a_grade_on_the_scale_is_asked_about_again_alone_numbered_from_one(first):
    judge = scripted(relevance(first), relevance({1: 2}))
    grades = graded(found_of_grade_relevance(judge))
    assert sorted(grades) == [0, 1, 2, 3]
    assert [list(chunks(messages)) for messages in judge.asked] == [[1, 2, 3, 4], [1]]
    assert chunks(judge.asked[1]) == {1: chunks(judge.asked[0])[4]}


# Votes and windows


@each(("votes", "median"), [((0, 3, 2), "2"), ((4, 0, 0), "0"), ((4, 3, 0), "3")])
def test_of_several_votes_the_median_grade_holds(votes, median):
    judge = Judge(scripted(*(relevance({1: grade}) for grade in votes)), draws=3)
    state = {"sample": Sample(question="q", contexts=["One."])}
    assert llm_grader(judge).invoke(state)["grades"][0].verdict == median


def test_a_chunk_cut_by_a_window_gets_the_best_grade_of_its_parts():
    judge = answering(lambda messages: relevance({1: 4 if "Six" in human_of(messages) else 1}))
    texts = ["One two three four. Five. Six seven eight nine."]
    assert graded(found_of_grade_relevance(Judge(judge, max_context_tokens=8), texts)) == [4]
    assert len(judge.asked) > 1


# Options


@each("scale", [(0, 1), (1, 5), (-1, 3)])
def test_any_scale_is_sent_and_held_to(scale):
    judge = scripted(relevance({1: scale[1] + 1}), relevance({1: scale[1]}))
    assert graded(found_of_grade_relevance(judge, ["One."], scale=scale)) == [scale[1]]
    assert judge.inputs[0]["scale"] == list(scale)


CONTEXTS_OF_SELECT_SENTENCES = ["First. Second. Third.", "Fourth."]


def found_of_select_sentences(judge, contexts=CONTEXTS_OF_SELECT_SENTENCES):
    return select_sentences(judge).invoke({"sample": Sample(question="What?", contexts=contexts)})["context_sentences"]


def chosen(findings):
    return [f.cites[0] for f in findings if f.kind == "sentence" and f.verdict == "needed"]


def test_each_sentence_has_one_finding_under_its_number():
    judge = scripted(needed("1.2", "2.1", reason="both tell"))
    findings = found_of_select_sentences(judge)
    assert judge.inputs == [{"question": "What?"}]
    assert block(judge.asked[0]) == ["[1]", "[1.1] First.", "[1.2] Second.", "[1.3] Third.", "[2]", "[2.1] Fourth."]
    assert [(f.kind, f.number, f.text, f.verdict, f.reason, f.cites) for f in findings] == [
        ("sentence", 1, "First.", "not needed", "", ["1.1"]),
        ("sentence", 2, "Second.", "needed", "both tell", ["1.2"]),
        ("sentence", 3, "Third.", "not needed", "", ["1.3"]),
        ("sentence", 4, "Fourth.", "needed", "both tell", ["2.1"]),
    ]


@each(
    "wrong",
    [
        "9.9", "1.4", "3.1", "1.0", "0.1", "A.1", "[B.2]", "1", "", "Second.", "1.2.1", "all", "-",
        "1.1-1.3", "1.1–1.3", "1.1—1.3", "[1.1]-[1.3]", "1.1 - 1.3", "1.1…1.3", "1.1..1.3", "1.1...1.3", "1.1 to 1.3",
        "с 1.1 по 1.3", "1.1 до 1.3", "1.1 through 1.3", "1.1~1.3", "1.1～1.3", "1.1−1.3", "1.1‑1.3", "1.1 -> 1.3",
        "1.1至1.3", "1.1부터 1.3까지", "da 1.1 a 1.3", "da [1.1] a [1.3]", "1.1:1.3", "1.1 — 1.3", "1.1-3",
    ],
)  # fmt: skip
def test_what_names_no_sentence_and_ranges_are_asked_again(wrong):
    judge = scripted(needed("1.2", wrong), needed("1.1"))
    assert chosen(found_of_select_sentences(judge)) == ["1.1"]
    assert repr(wrong) in judge.asked[1][-1].text
    assert "'1.1'" in judge.asked[1][-1].text


def test_long_contexts_go_out_in_windows_and_what_any_of_them_needs_is_needed():
    def answer(messages):
        own = [line[1:4] for line in block(messages) if "." in line[:4]]
        return needed(own[0], reason=own[0])

    judge = answering(answer)
    findings = found_of_select_sentences(Judge(judge, max_context_tokens=8))
    assert [block(messages) for messages in judge.asked] == [
        ["[1]", "[1.1] First.", "[1.2] Second."], ["[1]", "[1.3] Third.", "[2]", "[2.1] Fourth."],
    ]  # fmt: skip
    assert chosen(findings) == ["1.1", "1.3"]
    assert [f.reason for f in findings if f.verdict == "needed"] == ["1.1", "1.3"]


def test_a_sentence_of_another_window_is_asked_again():
    judge = scripted(needed("2.1"), needed("1.1"), needed())
    assert chosen(found_of_select_sentences(Judge(judge, max_context_tokens=8))) == ["1.1"]


def test_the_majority_of_the_draws_holds_for_each_sentence_and_its_rate_is_told():
    replies = [needed("1.1", "1.2", reason="x"), needed("1.1", reason="y"), needed("1.3", reason="z")]
    findings = found_of_select_sentences(Judge(scripted(*replies), draws=3), CONTEXTS_OF_SELECT_SENTENCES[:1])
    assert chosen(findings) == ["1.1"]
    assert [finding.reason for finding in findings[:3]] == ["x y", "x", "z"]  # of a minority, too
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings[3:]] == [
        ("agreement", 1, "First.", "0.67"), ("agreement", 2, "Second.", "0.67"), ("agreement", 3, "Third.", "0.67"),
    ]  # fmt: skip
