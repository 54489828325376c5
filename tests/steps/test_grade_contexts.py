from helpers.each import each
from helpers.scripted import answering, grades, human_of, scripted

from langchain_rageval import Judge, Sample
from langchain_rageval.steps.grade_contexts import grade_contexts

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
    assert block(judge.asked[0]) == [
        "[1]",
        "[1.1] First.",
        "[1.2] Second.",
        "[2]",
        "[2.1] Third.",
        "[3]",
        "[3.1] Fourth.",
    ]
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in findings] == [
        ("context", 1, "First. Second.", "useful", "r1"),
        ("context", 2, "Third.", "not useful", "r2"),
        ("context", 3, "Fourth.", "useful", "r3"),
    ]


@each("contexts", [[], [""], [" ", "\n"]])
def test_without_a_chunk_that_holds_words_no_call_is_made(contexts):
    assert useful(found(scripted(), contexts)) == [False] * len(contexts)


def test_a_blank_chunk_keeps_its_number_and_is_not_useful_whatever_the_judge_says():
    judge = scripted(grades({1: True, 2: True, 3: True}))
    assert useful(found(judge, ["A.", " ", "B."])) == [True, False, True]
    assert block(judge.asked[0]) == ["[1]", "[1.1] A.", "[2]", "[3]", "[3.1] B."]


def test_a_blank_chunk_without_a_verdict_is_not_asked_again():
    judge = scripted(grades({1: True, 3: False}))
    assert useful(found(judge, ["A.", " ", "B."])) == [True, False, False]


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
