"""Asking a chain: its input, concurrency, timeout, progress, and journals of one stated run."""

import asyncio
import threading
from operator import itemgetter

import pytest
from helpers.chains import FOUND
from helpers.each import each, error_of
from helpers.samples import CONTEXTS, rag, sequence
from helpers.waiting import PATIENCE
from langchain_classic.chains import ConversationChain
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tracers.context import collect_runs
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_rageval import ConfigError, Sample, Turn, answered_by
from langchain_rageval.chains.answering import ANSWER_DEFAULTS, Answering
from langchain_rageval.errors import JournalError
from langchain_rageval.run.progress import PlainProgress
from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow

QUESTIONS = ["1?", "2?", "3?"]
TESTSET = Testset([TestsetRow(id=q, question=q, contexts=[], reference="r", evolution="simple") for q in QUESTIONS])


class Chain:
    """A chain that counts its questions and fails on some of them."""

    def __init__(self, fails_on=()):
        self.asked = []
        self.fails_on = list(fails_on)

    def ask(self, question: str):
        self.asked.append(question)
        if question in self.fails_on:
            raise ConnectionError("no index")
        return {"answer": f"to {question}", "contexts": FOUND}

    async def aask(self, question: str):
        await asyncio.sleep(0)
        return self.ask(question)


def answers(samples):
    return [sample.answer for sample in samples]


# Journal


THREE = (
    "pass the version of that run (version=, --version), continue an unfinished run (resume=True, --resume), ask the "
    "failed questions of a finished one (retry_failed=True, --retry-failed), or name another journal"
)


def interrupted(chain, journal, **options):
    """Ask through a journal until the third question, at which the user interrupts."""

    def ask(question: str):
        if question == "3?":
            raise KeyboardInterrupt
        return chain.ask(question)

    with pytest.raises(KeyboardInterrupt):
        TESTSET.run(ask, journal=journal, progress=False, max_concurrency=1, **options)


def refused(chain, journal, state, **options):
    """Check that a run is refused with a message that names the three ways on, and that nothing is asked."""
    chain.asked.clear()
    error = error_of(ConfigError, TESTSET.run, chain.ask, journal=journal, progress=False, **options)
    assert (str(error), chain.asked) == (f"{journal} holds {state}: {THREE}", [])


def test_a_finished_run_answers_only_under_its_stated_version_or_to_ask_what_failed_and_says_so(tmp_path, caplog):
    for version in ("1", None):
        chain, journal = Chain(fails_on=["2?"]), tmp_path / f"answers-{version}.db"
        first = TESTSET.run(chain.ask, journal=journal, version=version, progress=False)
        assert answers(first) == ["to 1?", None, "to 3?"]
        assert first[1].metadata["error"] == "ConnectionError: no index"
        chain.fails_on.clear()
        state = f"a finished run {'without a version' if version is None else 'of version ' + repr(version)}"
        refused(chain, journal, state)
        refused(chain, journal, state, resume=True)
        for others in ({}, {"resume": True}, {"retry_failed": True}):
            refused(chain, journal, f"{state}, not of version '2'", version="2", **others)
        assert caplog.messages == []
        if version is not None:
            assert TESTSET.run(chain.ask, journal=journal, version=version, progress=False) == first
            assert chain.asked == []
            assert caplog.messages == [f"answers are taken from {journal}, which holds {state}"]
        second = TESTSET.run(chain.ask, journal=journal, retry_failed=True, progress=False)
        assert chain.asked == ["2?"]
        assert second == TESTSET.run(chain.ask, progress=False)
        caplog.clear()
    assert (second[1].contexts, second[1].context_ids) == (CONTEXTS, ["m1", "m2"])
    assert second[1].metadata["context_sources"] == ["munich-1.md", "munich-2.md"]


def test_an_unfinished_run_goes_on_with_resume_or_its_version(tmp_path):
    for number, (begun, goes_on) in enumerate([({}, {"resume": True}), ({"version": "1"},) * 2]):
        chain, journal = Chain(fails_on=["2?"]), tmp_path / f"answers-{number}.db"
        interrupted(chain, journal, **begun)
        assert chain.asked == ["1?", "2?"]
        state = f"an unfinished run {'of version ' + repr(begun['version']) if begun else 'without a version'}"
        refused(chain, journal, state)
        refused(chain, journal, state, retry_failed=True)
        for others in ({}, {"resume": True}):
            refused(chain, journal, f"{state}, not of version '2'", version="2", **others)
        chain.fails_on.clear()
        interrupted(chain, journal, **goes_on)
        assert chain.asked == ["2?"]
        samples = TESTSET.run(chain.ask, journal=journal, progress=False, **goes_on)
        assert (answers(samples), chain.asked) == (["to 1?", "to 2?", "to 3?"], ["2?", "3?"])
        refused(chain, journal, state.replace("an unfinished", "a finished"))


def test_a_finished_run_asks_questions_that_are_new(tmp_path):
    chain, options = Chain(), {"journal": tmp_path / "answers.db", "version": "1", "progress": False}
    answered_by(chain.ask, **options).invoke([{"question": "1?"}])
    assert answers(TESTSET.run(chain.ask, **options)) == ["to 1?", "to 2?", "to 3?"]
    assert sorted(chain.asked) == QUESTIONS


async def test_answered_by_shares_the_journal_of_run_on_both_ways(tmp_path):
    chain, options = Chain(), {"journal": tmp_path / "answers.db", "version": "1", "progress": False}
    first = TESTSET.run(chain.ask, **options)
    asking = answered_by(chain.ask, **options)
    assert await asking.ainvoke(TESTSET) == asking.invoke(TESTSET) == first
    assert sorted(chain.asked) == QUESTIONS
    other_tone = {"configurable": {"tone": "dry"}}
    assert asking.invoke(TESTSET, other_tone) == first
    assert sorted(chain.asked) == sorted(QUESTIONS * 2)


def test_a_journal_that_holds_something_else_is_an_error(tmp_path):
    (tmp_path / "answers.db").write_text("no journal " * 100, encoding="utf-8")
    with pytest.raises(JournalError, match=r"answers\.db is damaged or not a journal"):
        TESTSET.run(Chain().ask, journal=tmp_path / "answers.db", progress=False)


# Concurrency, timeout, progress


@pytest.mark.gate  # each waits for the whole timeout
@pytest.mark.parametrize("chain", ["sync", "async", "async, on this loop"])
async def test_a_question_that_takes_too_long_is_recorded_and_the_others_are_answered(chain):
    release = threading.Event()

    def hangs(question: str):
        return "late" if question == "2?" and release.wait(PATIENCE) else f"to {question}"

    async def ahangs(question: str):
        if question == "2?":
            await asyncio.sleep(PATIENCE)
        return f"to {question}"

    options = {"timeout": 2.5, "progress": False}
    try:
        if chain == "async, on this loop":
            samples = await answered_by(ahangs, **options).ainvoke(TESTSET)
        else:
            samples = TESTSET.run(hangs if chain == "sync" else ahangs, **options)
        assert answers(samples) == ["to 1?", None, "to 3?"]
        assert samples[1].metadata["error"] == "TimeoutError: the chain did not answer within 2.5 s"
    finally:
        release.set()


async def test_a_timeout_within_the_chain_keeps_its_own_message():
    def raises(question: str):
        raise TimeoutError("the index is slow")

    options = {"timeout": PATIENCE, "progress": False}
    for sample in (*TESTSET.run(raises, **options), *await answered_by(raises, **options).ainvoke(TESTSET)):
        assert sample.metadata["error"] == "TimeoutError: the index is slow"


async def test_an_async_chain_is_asked_from_sync_code_on_one_loop_also_within_a_loop():
    loops = set()

    async def ask(question: str):
        loops.add(asyncio.get_running_loop())
        return f"to {question}"

    assert answers(TESTSET.run(ask, progress=False)) == ["to 1?", "to 2?", "to 3?"]
    assert len(loops) == 1
    assert asyncio.get_running_loop() not in loops


def test_the_progress_counts_questions_and_failures(capsys, monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.progress._SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("langchain_rageval.run.progress._supports_live_line", lambda: False)
    TESTSET.run(Chain(fails_on=["3?"]).ask, max_concurrency=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("rageval: 1/3 questions, 0 failed")
    assert lines[-1] == "rageval: 3/3 questions, 1 failed"
    TESTSET.run(Chain().ask, progress=False)
    assert capsys.readouterr().err == ""
    assert PlainProgress(None, None, "questions").status_line() == "0 questions, 0 failed"


def test_wrong_options_are_errors_before_the_chain_is_asked():
    chain = Chain()
    assert str(error_of(TypeError, TESTSET.run, chain.ask, max_concurency=1)) == (
        "run() got an unexpected option 'max_concurency'; did you mean 'max_concurrency'? "
        "Its options: chain, max_concurrency, timeout, journal, version, resume, retry_failed, progress"
    )
    needs_journal = "version, resume and retry_failed need a journal: name its file"
    for options, problem in (
        ({"timeout": 0}, "timeout must be a number of seconds above 0, or None, got 0"),
        ({"max_concurrency": 0}, "max_concurrency must be a whole number of at least 1, got 0"),
        ({"journal": "answers.db", "version": 1.4}, "version must be a text such as '1.4', got 1.4"),
        *((unstated, needs_journal) for unstated in ({"version": "1"}, {"resume": True}, {"retry_failed": True})),
    ):
        for ask in (TESTSET.run, answered_by):
            assert str(error_of(ConfigError, ask, chain.ask, **options)) == problem
    assert chain.asked == []


def test_the_trace_of_the_caller_sees_the_chain():
    outer = RunnableLambda(lambda _: TESTSET.run(rag().with_config(run_name="rag"), progress=False))
    with collect_runs() as collected:
        outer.invoke(0)
    assert [run.name for run in collected.traced_runs[-1].child_runs] == ["rag"] * 3


async def test_a_question_that_meets_a_connection_of_a_closed_loop_is_asked_again():
    errors = [RuntimeError("Event loop is closed")] * 3

    async def ask(question: str):
        if errors:
            raise errors.pop()
        return f"to {question}"

    assert answers(await answered_by(ask, progress=False).ainvoke(TESTSET)) == ["to 1?", "to 2?", "to 3?"]


# Input of a chain for a question of a conversation: the turns before it


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
