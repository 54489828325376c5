"""Input of a chain for a question of a conversation: the turns before it."""

from operator import itemgetter

import pytest
from helpers.each import each, error_of
from helpers.samples import sequence
from langchain_classic.chains import ConversationChain
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_rageval import ConfigError, Sample, Turn, answered_by
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


TRANSCRIPT = "User: Кто основал Мюнхен?\nAssistant: Генрих Лев."


@each(
    ("kind", "with_history", "alone"),
    [
        (None, {"chat_history": EARLIER}, {}),
        (WithHistory, {"history": EARLIER}, {"history": []}),
        (WithTranscript, {"chat_history": TRANSCRIPT}, {"chat_history": ""}),
        (WithMessages, {"messages": [*EARLIER, HumanMessage(CHAT.question)]}, {"messages": EARLIER[:1]}),
    ],
)
def test_a_chain_gets_the_turns_before_the_question_where_it_takes_them(kind, with_history, alone):
    for sample, more in ((CHAT, with_history), (ALONE, alone)):
        assert input_of(sample, kind) == {"question": sample.question, "input": sample.question, **more}


def test_a_chain_that_takes_a_text_gets_the_question_and_a_warning(caplog):
    assert input_of(CHAT, str) == CHAT.question
    assert caplog.messages == ["the chain takes no history: 1 questions are asked without the turns before them"]


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


class Form(BaseModel):
    question: str
    limit: int


class Topic(TypedDict):
    subject: str
    style: str


def two(question, style):
    return question


def typed(form: Form):
    return form.question


GRAPH = sequence(Topic, {"write": lambda state: pytest.fail("the graph was asked")})
REMEDY = "pass a function that builds its input, such as lambda question: chain.invoke"
NONE = "none of which is known as the question"
UNKNOWN = "and no value is known for"
TWO_NAMES = ChatPromptTemplate([("human", "{subject} {tone}")])
STYLED = ChatPromptTemplate([("human", "{question} {style}")]) | FakeListChatModel(responses=["?"])
ITEMS = RunnableParallel(a=itemgetter("subject"), b=itemgetter("style"))


@each(
    ("chain", "names", "problem", "call"),
    [
        (TWO_NAMES, "subject, tone", NONE, "{'subject': question, 'tone': ...}"),
        (STYLED, "question, style", f"{UNKNOWN} {{style}}", "{'question': question, 'style': ...}"),
        (ITEMS, "subject, style", NONE, "{'subject': question, 'style': ...}"),
        (GRAPH, "subject, style", NONE, "{'subject': question}"),
        (typed, "question, limit", f"{UNKNOWN} {{limit}}", "Form(question=question, limit=...)"),
    ],
)
def test_a_chain_whose_input_is_not_known_is_refused_with_what_it_takes(chain, names, problem, call):
    error = error_of(ConfigError, answered_by(chain, progress=False).invoke, [ALONE])
    assert str(error) == f"the chain takes {{{names}}}, {problem}: {REMEDY}({call})"


def test_a_function_of_two_arguments_is_refused():
    remedy = "pass a function of the question alone, such as lambda question: two(question, ...)"
    error = error_of(ConfigError, lambda: answered_by(two, progress=False).invoke([ALONE]))
    assert str(error) == f"two takes question, style: {remedy}"


def test_an_error_about_names_says_what_the_chain_was_given():
    def lookup(given: dict):
        return given["subject"]

    def mistaken(question: str):
        raise KeyError("index")

    remedy = "if it takes something else, pass a function of the question that calls it"
    samples = [answered_by(chain, progress=False).invoke([ALONE])[0] for chain in (lookup, mistaken)]
    assert [sample.metadata["error"] for sample in samples] == [
        f"KeyError: 'subject' (the chain was given {{question, input}}: {remedy})",
        "KeyError: 'index'",
    ]


def test_a_function_that_adds_to_its_text_gets_a_text():
    (sample,) = answered_by(lambda question: question + "!", progress=False).invoke([ALONE])
    assert sample.answer == f"{ALONE.question}!"


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_a_classic_chain_gets_the_names_that_it_takes_and_no_others():
    chain = ConversationChain(llm=FakeListChatModel(responses=["Да."]))
    assert answered_by(chain, progress=False).invoke([ALONE])[0].answer == "Да."
