import asyncio

import pytest
from helpers.each import each
from helpers.scripted import answering, grades, human_of, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.steps import ContextVerdict, ContextVerdicts
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


def doubled(*verdicts):
    return ContextVerdicts(verdicts=[ContextVerdict(context=n, reason="", useful=u) for n, u in verdicts])


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


@given(st.permutations([(1, True), (2, False), (3, True)]))
def test_the_order_of_the_judges_reply_does_not_matter(shuffled):
    assert useful(found(scripted(grades(dict(shuffled))))) == [True, False, True]


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


def test_missing_chunks_are_asked_again_alone_numbered_from_one():
    judge = scripted(grades({2: True}), grades({2: True, 1: False}))
    assert useful(found(judge)) == [False, True, True]
    assert block(judge.asked[1]) == ["[1]", "[1.1] First.", "[1.2] Second.", "[2]", "[2.1] Fourth."]
    assert [message.type for message in judge.asked[1]] == ["system", "human"]


def test_agreeing_doubles_collapse_and_conflicting_ones_are_asked_again():
    judge = scripted(doubled((1, True), (1, True), (2, True), (2, False), (3, False)), grades({1: False}))
    assert useful(found(judge)) == [True, False, False]
    assert block(judge.asked[1]) == ["[1]", "[1.1] Third."]


def test_unknown_numbers_are_dropped():
    assert useful(found(scripted(grades({0: True, 1: False, 2: False, 3: False, 4: True, -1: True})))) == [False] * 3


def test_a_number_that_was_not_asked_again_does_not_change():
    judge = scripted(grades({1: True, 2: False}), grades({1: True, 2: False, 3: True}))
    assert useful(found(judge)) == [True, False, True]


def test_a_partial_reask_cannot_hand_one_chunk_the_verdict_of_the_next():
    findings = found(scripted(grades({1: False}), grades({1: True, 2: False})))
    assert [(f.number, f.text, f.verdict) for f in findings] == [
        (1, "First. Second.", "not useful"), (2, "Third.", "useful"), (3, "Fourth.", "not useful"),
    ]  # fmt: skip


def test_chunks_still_missing_after_all_attempts_are_a_failure():
    judge = scripted(*[grades({1: True, 2: True})] + [grades({2: True})] * 2)
    with pytest.raises(JudgeOutputError, match=r"^grade_contexts: no single verdict for the chunks \[3\]$") as caught:
        found(Judge(judge, attempts=3))
    assert caught.value.step == "grade_contexts"
    assert ContextVerdicts.model_validate_json(caught.value.raw_output) == grades({2: True})
    assert len(judge.asked) == 3


def test_every_call_counts_whatever_it_is_asked_for():
    replies = ["no", grades({1: True, 2: True}), grades({1: True})]
    assert useful(found(Judge(scripted(*replies), attempts=3))) == [True] * 3
    with pytest.raises(JudgeOutputError):
        found(Judge(scripted(*replies), attempts=2))


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


def test_each_window_has_attempts_of_its_own():
    replies = ["no", grades({1: False}), "no", grades({1: True})]
    assert useful(found(Judge(scripted(*replies), max_context_tokens=4, attempts=2), ["A.", "Bcdefghi."])) == [
        False, True,
    ]  # fmt: skip


# Draws


def test_the_majority_of_the_draws_holds_and_its_rate_is_told():
    replies = [grades({1: True, 2: False}), grades({1: False, 2: False}), grades({1: True, 2: False})]
    findings = found(Judge(scripted(*replies), draws=3), ["A.", "B."])
    assert useful(findings) == [True, False]
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings[2:]] == [
        ("agreement", 1, "A.", "0.67"), ("agreement", 2, "B.", "1.00"),
    ]  # fmt: skip


def test_sync_and_async_find_the_same():
    judge = answering(lambda messages: grades({int(line[1]): "r" in line for line in block(messages) if "." in line}))
    step = grade_contexts(Judge(judge, draws=3, max_context_tokens=4), against=lambda sample: "")
    state = {"sample": Sample(question="What?", contexts=CONTEXTS)}
    assert asyncio.run(step.ainvoke(state)) == step.invoke(state)
