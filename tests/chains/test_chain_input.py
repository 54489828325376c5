"""Input of a chain for a question of a conversation: the turns before it."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from typing_extensions import TypedDict

from langchain_rageval import Sample, Turn
from langchain_rageval.chains.answering import ANSWER_DEFAULTS, Answering

CHAT = Sample(
    question="А когда он умер?",
    history=[Turn(role="user", text="Кто основал Мюнхен?"), Turn(role="assistant", text="Генрих Лев.")],
)
ALONE = Sample(question="Кто основал Мюнхен?")
EARLIER = [HumanMessage("Кто основал Мюнхен?"), AIMessage("Генрих Лев.")]


class WithHistory(TypedDict):
    question: str
    history: list[BaseMessage]


class WithTranscript(TypedDict):
    question: str
    chat_history: str


class WithMessages(TypedDict):
    messages: list[BaseMessage]


def input_of(sample, kind):
    """The input that a chain of this input type gets."""
    inputs = []

    def chain(given):
        inputs.append(given)
        return "Да."

    runnable = RunnableLambda(chain) if kind is None else RunnableLambda(chain).with_types(input_type=kind)
    Answering([sample], runnable, ANSWER_DEFAULTS | {"progress": False}).run()
    (given,) = inputs
    return given


@pytest.mark.parametrize(
    ("kind", "with_history", "alone"),
    [
        (
            None,
            {"question": CHAT.question, "input": CHAT.question, "chat_history": EARLIER},
            {"question": ALONE.question, "input": ALONE.question},
        ),
        (
            WithHistory,
            {"question": CHAT.question, "input": CHAT.question, "history": EARLIER},
            {"question": ALONE.question, "input": ALONE.question, "history": []},
        ),
        (
            WithTranscript,
            {
                "question": CHAT.question,
                "input": CHAT.question,
                "chat_history": "User: Кто основал Мюнхен?\nAssistant: Генрих Лев.",
            },
            {"question": ALONE.question, "input": ALONE.question, "chat_history": ""},
        ),
    ],
)
def test_a_chain_gets_the_turns_before_the_question_where_it_takes_them(kind, with_history, alone):
    assert input_of(CHAT, kind) == with_history
    assert input_of(ALONE, kind) == alone


def test_a_list_of_messages_gets_the_turns_before_the_question():
    given = input_of(CHAT, WithMessages)["messages"]
    assert given == [*EARLIER, HumanMessage(CHAT.question)]
    assert input_of(ALONE, WithMessages)["messages"] == [HumanMessage(ALONE.question)]


def test_a_chain_that_takes_a_text_gets_the_question_and_a_warning(caplog):
    assert input_of(CHAT, str) == CHAT.question
    assert [record.getMessage() for record in caplog.records] == [
        "the chain takes no history: 1 questions are asked without the turns before them"
    ]


def test_a_stored_answer_belongs_to_its_conversation(tmp_path):
    inputs = []

    def chain(given):
        inputs.append(given["question"])
        return "Да."

    other = CHAT.model_copy(update={"history": CHAT.history[:1]})
    options = ANSWER_DEFAULTS | {"progress": False, "journal": tmp_path / "a.db", "version": "1", "max_concurrency": 1}
    for _ in range(2):
        Answering([CHAT, other, ALONE], RunnableLambda(chain), options).run()
    assert inputs == [CHAT.question, CHAT.question, ALONE.question]
