"""Follow-ups: questions that need the turns before them."""

from helpers.each import each, error_of
from helpers.scripted import scripted
from helpers.writers import Writer, documents, generator, passage

from langchain_rageval import ConfigError, Turn
from langchain_rageval.steps import ChatExchange, FollowUp, FollowUpReview, NeededPassages, ReferenceAnswer
from langchain_rageval.testset import (
    Candidate,
    answer,
    conversational,
    evolution,
    find_passages,
    follow_up,
    persona,
    question_filter,
    reasoning,
    style,
    unanswerable,
)

ALONE = "Когда умер Генрих Лев?"
ASKED = Candidate(passages=[passage(0, "Генрих Лев основал Мюнхен. Он умер в 1195 году.")]).with_question(ALONE, "seed")
FOUNDED = ChatExchange(question="Кто основал Мюнхен?", answer="Генрих Лев.")
CHAT = FollowUp(exchanges=[FOUNDED], question="А когда он умер?")
TURNS = [Turn(role="user", text="Кто основал Мюнхен?"), Turn(role="assistant", text="Генрих Лев.")]
FINE = FollowUpReview(feedback="", depends=True, same=True, open=True)


def test_the_question_becomes_the_last_one_of_a_conversation():
    writer = scripted(CHAT)
    made = follow_up(writer).invoke(ASKED)
    assert (made.question, made.chat_history, made.standalone) == ("А когда он умер?", TURNS, ALONE)
    assert (made.parent, made.evolution, made.standalone_question) == (ALONE, "follow_up", ALONE)
    assert writer.inputs[0].keys() == {"question", "passages", "earlier"}


def test_the_seed_decides_whether_one_two_or_three_questions_come_before():
    counts = set()
    for seed in range(12):
        writer = scripted(CHAT)
        follow_up(writer).invoke(ASKED.replace(seed=seed))
        counts.add(writer.inputs[0]["earlier"])
    assert counts == {1, 2, 3}


@each(
    ("exchanges", "question", "problem"),
    [
        ([], "А когда?", "`exchanges` holds 1 to 3 exchanges, not 0"),
        ([FOUNDED] * 4, "А когда?", "`exchanges` holds 1 to 3 exchanges, not 4"),
        ([ChatExchange(question="Кто?", answer=" ")], "А когда?", "a question or an answer of `exchanges` is blank"),
        ([FOUNDED], "когда умер  Генрих Лев?", "the last question is the old one: leave out what the earlier turns"),
        ([FOUNDED], " ", "the question is blank"),
    ],
)
def test_a_conversation_that_is_none_is_requested_again(exchanges, question, problem):
    writer = scripted(FollowUp(exchanges=exchanges, question=question), CHAT)
    assert follow_up(writer).invoke(ASKED).question == "А когда он умер?"
    assert problem in writer.asked[1][-1].text


def test_the_review_reads_the_turns_and_not_whether_the_question_stands_alone():
    critic = scripted(FINE)
    made = question_filter(critic).invoke(follow_up(scripted(CHAT)).invoke(ASKED))
    assert made.rejected is None
    turns = [turn.model_dump() for turn in TURNS]
    assert critic.inputs == [{"turns": turns, "question": "А когда он умер?", "standalone": ALONE}]


@each("missing", ["depends", "same", "open"])
def test_a_follow_up_that_needs_no_turns_asks_something_else_or_is_answered_already_is_rejected(missing):
    review = FINE.model_copy(update={missing: False, "feedback": "Не то."})
    made = question_filter(scripted(review), scripted()).invoke(follow_up(scripted(CHAT)).invoke(ASKED))
    assert (made.rejected, made.history[-1].feedback) == ("question rejected", "Не то.")


def test_a_rejected_conversation_is_written_again_with_the_feedback():
    def chat(inputs, _):
        return {**CHAT.model_dump(), **({} if "feedback" in inputs else {"question": "А он умер?"})}

    no = {**FINE.model_dump(), "same": False, "feedback": "Спроси когда."}
    writer = Writer(FollowUp=chat, FollowUpReview=lambda _, before: None if before else no)
    made = follow_up(writer.model, critic=writer.model).invoke(ASKED)
    assert (made.question, made.standalone, made.evolution) == ("А когда он умер?", ALONE, "follow_up")
    assert writer.calls == {"FollowUp": 2, "FollowUpReview": 2}


def test_passages_and_answer_are_found_for_the_standalone_question():
    made = follow_up(scripted(CHAT)).invoke(ASKED)
    critic = scripted(NeededPassages(reason="", passages=[1]))
    writer = scripted(ReferenceAnswer(answerable=True, answer="В 1195 году."))
    assert answer(writer).invoke(find_passages(critic).invoke(made)).reference == "В 1195 году."
    assert [step.inputs[0]["question"] for step in (critic, writer)] == [ALONE, ALONE]


def test_the_row_and_its_sample_have_the_turns():
    writer = Writer()
    testset = generator(writer, {"follow_up": 1}, size=2, seed=3).generate(documents(9))
    assert writer.total == 18
    for row in testset:
        assert row.evolution == "follow_up"
        assert [turn.role for turn in row.chat_history] == ["user", "assistant"] * (len(row.chat_history) // 2)
        assert 2 <= len(row.chat_history) <= 6
        assert row.metadata["standalone_question"] == row.history[1].question != row.question
        assert row.to_sample().history == row.chat_history
        assert row.chat_history[0].text in row._repr_html_()
        assert row.standalone_question == row.metadata["standalone_question"]


def test_equal_last_questions_of_different_conversations_are_no_duplicates():
    chat = {"exchanges": [FOUNDED.model_dump()], "question": "А когда?"}
    testset = generator(Writer(FollowUp=lambda *_: chat), {"follow_up": 1}, size=3).generate(documents(9))
    assert [row.question for row in testset] == ["А когда?"] * 3
    assert len({row.id for row in testset}) == 3


def test_only_styles_and_personas_may_come_after_a_follow_up():
    for late in (reasoning, unanswerable, conversational, evolution("tale", "Перепиши.")):
        assert str(error_of(ConfigError, lambda late=late: follow_up | late)) == (
            f"{late} needs a question that stands alone, but follow_up comes before it: put follow_up last; only "
            "styles and personas may follow it"
        )
    branch = reasoning | follow_up | style("voice") | persona("Новичок")
    (row,) = generator(Writer(), {branch: 1}, size=1).generate(documents(9))
    assert row.evolution == "reasoning+follow_up+voice+persona"
    assert row.chat_history
    assert (row.metadata["style"], row.metadata["persona"]) == ("voice", "Новичок")


def test_a_chain_gets_the_turns_of_the_question():
    inputs = []
    testset = generator(Writer(), {"follow_up": 1}, size=1).generate(documents(9))
    (sample,) = testset.run(lambda given: inputs.append(given) or "Ответ.", progress=False)
    (given,) = inputs
    assert given["question"] == sample.question
    roles = {"human": "user", "ai": "assistant"}
    turns = [(roles[message.type], message.content) for message in given["chat_history"]]
    assert turns == [(turn.role, turn.text) for turn in sample.history]
