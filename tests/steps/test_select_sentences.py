import json

import pytest
from helpers.each import each
from helpers.scripted import answering, human_of, needed, scripted

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.run.run import Run
from langchain_rageval.steps import NeededSentences
from langchain_rageval.steps.grade_contexts import select_sentences
from langchain_rageval.steps.judge_step import JudgeStep

CONTEXTS = ["First. Second. Third.", "Fourth."]


def found(judge, contexts=CONTEXTS):
    return select_sentences(judge).invoke({"sample": Sample(question="What?", contexts=contexts)})["context_sentences"]


def chosen(findings):
    return [f.cites[0] for f in findings if f.kind == "sentence" and f.verdict == "needed"]


def block(messages):
    return human_of(messages).split("\n\n")[0].splitlines()[1:]


def test_each_sentence_has_one_finding_under_its_number():
    judge = scripted(needed("1.2", "2.1", reason="both tell"))
    findings = found(judge)
    assert judge.inputs == [{"question": "What?"}]
    assert block(judge.asked[0]) == ["[1]", "[1.1] First.", "[1.2] Second.", "[1.3] Third.", "[2]", "[2.1] Fourth."]
    assert [(f.kind, f.number, f.text, f.verdict, f.reason, f.cites) for f in findings] == [
        ("sentence", 1, "First.", "not needed", "", ["1.1"]),
        ("sentence", 2, "Second.", "needed", "both tell", ["1.2"]),
        ("sentence", 3, "Third.", "not needed", "", ["1.3"]),
        ("sentence", 4, "Fourth.", "needed", "both tell", ["2.1"]),
    ]


@each("contexts", [[], [""], [" ", "\n"]])
def test_without_a_sentence_no_call_is_made(contexts):
    assert found(scripted(), contexts) == []


def test_none_may_be_needed():
    assert chosen(found(scripted(needed()))) == []


@each(
    "sentences",
    [
        ["1.2", "2.1"],
        ["2.1", "1.2", "1.2", "[2.1]"],
        ["[1.2]", " 2.1 "],
        ["1.2.", "sentence 2.1"],
        ["1.2, 2.1"],
        ["[1.2], [2.1]"],
        ["[1.2][2.1]"],
        ["1.2 and 2.1"],
        ["1.2 и 2.1"],
        ["1.2; 2.1"],
        ["1.2、2.1"],
        ["предложения 1.2 и 2.1"],
    ],
)
def test_numbers_are_read_with_and_without_brackets_and_doubles_count_once(sentences):
    judge = scripted(needed(*sentences))
    assert chosen(found(judge)) == ["1.2", "2.1"]
    assert len(judge.asked) == 1


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
    assert chosen(found(judge)) == ["1.1"]
    assert repr(wrong) in judge.asked[1][-1].text
    assert "'1.1'" in judge.asked[1][-1].text


def test_a_second_question_shows_the_judge_its_reply_and_what_was_wrong():
    judge = scripted(needed("A.1"), needed("1.1"))
    found(judge)
    again = judge.asked[1]
    assert [message.type for message in again] == ["system", "human", "ai", "human"]
    assert again[:2] == judge.asked[0]
    assert NeededSentences.model_validate_json(again[2].text) == needed("A.1")


def test_unknown_numbers_after_all_attempts_are_a_failure():
    judge = scripted(*[needed("9.9")] * 2)
    with pytest.raises(JudgeOutputError, match=r"9\.9") as caught:
        found(Judge(judge, attempts=2))
    assert caught.value.step == "select_sentences"
    assert json.loads(caught.value.raw_output)["sentences"] == ["9.9"]
    assert len(judge.asked) == 2


def test_long_contexts_go_out_in_windows_and_what_any_of_them_needs_is_needed():
    def answer(messages):
        own = [line[1:4] for line in block(messages) if "." in line[:4]]
        return needed(own[0], reason=own[0])

    judge = answering(answer)
    findings = found(Judge(judge, max_context_tokens=8))
    assert [block(messages) for messages in judge.asked] == [
        ["[1]", "[1.1] First.", "[1.2] Second."], ["[1]", "[1.3] Third.", "[2]", "[2.1] Fourth."],
    ]  # fmt: skip
    assert chosen(findings) == ["1.1", "1.3"]
    assert [f.reason for f in findings if f.verdict == "needed"] == ["1.1", "1.3"]


def test_a_sentence_of_another_window_is_asked_again():
    judge = scripted(needed("2.1"), needed("1.1"), needed())
    assert chosen(found(Judge(judge, max_context_tokens=8))) == ["1.1"]


def test_the_majority_of_the_draws_holds_for_each_sentence_and_its_rate_is_told():
    replies = [needed("1.1", "1.2", reason="x"), needed("1.1", reason="y"), needed("1.3", reason="z")]
    findings = found(Judge(scripted(*replies), draws=3), CONTEXTS[:1])
    assert chosen(findings) == ["1.1"]
    assert findings[0].reason == "x y"
    assert [(f.kind, f.number, f.text, f.verdict) for f in findings[3:]] == [
        ("agreement", 1, "First.", "0.67"), ("agreement", 2, "Second.", "0.67"), ("agreement", 3, "Third.", "0.67"),
    ]  # fmt: skip


def test_the_same_question_by_a_plain_step_is_not_taken_for_this_one():
    judge = scripted(needed("9.9"), needed("9.9"), needed("1.1"))
    run = Run()
    plain = JudgeStep("select_sentences", judge, NeededSentences)
    assert plain.invoke({"question": "What?", "contexts": CONTEXTS}, run.into({}))["select_sentences"] == needed("9.9")
    state = {"sample": Sample(question="What?", contexts=CONTEXTS)}
    assert chosen(select_sentences(judge).invoke(state, run.into({}))["context_sentences"]) == ["1.1"]
