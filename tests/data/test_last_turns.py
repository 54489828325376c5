"""The last sample of each conversation."""

import pytest

from langchain_rageval import Sample, SampleError, Turn, last_turns, samples_of


def sample(text, **metadata):
    return Sample(question=text, metadata=metadata)


def test_the_highest_turn_of_each_conversation_is_kept_in_the_order_of_the_conversations():
    given = [
        sample("b2", conversation="b", turn=2),
        sample("alone"),
        sample("a10", conversation="a", turn=10),
        sample("b1", conversation="b", turn=1),
        sample("a9", conversation="a", turn="9"),
        sample("alone too"),
    ]
    assert [one.question for one in last_turns(given)] == ["b2", "alone", "a10", "alone too"]


def test_without_turn_numbers_the_longest_history_and_then_the_order_decide():
    turn = Turn(role="user", text="?")
    long = Sample(question="long", history=[turn, turn], metadata={"conversation": 1})
    short = Sample(question="short", metadata={"conversation": "1"})
    assert last_turns([long, short]) == [long]
    assert last_turns([short, short.model_copy(update={"question": "later"})])[0].question == "later"
    assert last_turns(iter([])) == []


def test_the_last_sample_holds_the_whole_conversation():
    messages = [("user", "A?"), ("assistant", "A."), ("user", "B?"), ("assistant", "B.")]
    (last,) = last_turns(samples_of(messages))
    assert [*(turn.text for turn in last.history), last.question, last.answer] == ["A?", "A.", "B?", "B."]


def test_what_is_no_sample_is_refused_by_its_place():
    with pytest.raises(SampleError) as caught:
        last_turns([sample("a"), {"question": "b"}])
    assert str(caught.value) == (
        "last_turns expected samples, got dict at index 1: pass those of samples_of(conversation) or "
        "load_samples(path, each_turn=True), or Sample.parse(record)"
    )
