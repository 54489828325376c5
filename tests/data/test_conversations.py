"""Conversations: one sample for each answer, with the turns before it as history; and the last of each."""

import json
import logging
import time
from dataclasses import make_dataclass

import pytest
from helpers.each import each, error_of
from helpers.samples import sequence
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from langchain_rageval import OfflineJudge, conversation_metrics, evaluate, last_turns, load_samples, samples_of
from langchain_rageval.data.loading import parse_record
from langchain_rageval.data.schema import Sample, Turn, default_id
from langchain_rageval.errors import SampleError

TEXTS = ("Кто основал Мюнхен?", "Генрих Лев.", "А когда он умер?", "Он умер в 1195 году.")
MUNICH = [*zip(("user", "assistant") * 2, TEXTS, strict=True)]
PAIRS = [(MUNICH[0][1], MUNICH[1][1]), (MUNICH[2][1], MUNICH[3][1])]
LAST = {"question": MUNICH[2][1], "answer": MUNICH[3][1]}
FIRST = [Turn(role="user", text="Кто основал Мюнхен?"), Turn(role="assistant", text="Генрих Лев.")]


def dicts(pairs):
    return [{"role": role, "content": text} for role, text in pairs]


def messages(pairs):
    return [HumanMessage(text) if role == "user" else AIMessage(text) for role, text in pairs]


RagasMessage = make_dataclass("RagasMessage", ["content", "type"])
MultiTurnSample = make_dataclass("MultiTurnSample", ["user_input", ("reference", str, None)])
DeepEvalTurn = make_dataclass("DeepEvalTurn", ["role", "content", ("retrieval_context", list, None)])
ConversationalTestCase = make_dataclass("ConversationalTestCase", ["turns", ("scenario", str, None)])


def response(role, text, kind="output_text"):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def run(question, answer, **others):
    return {"run_type": "chain", "inputs": {"question": question}, "outputs": {"answer": answer}, **others}


RUSSIAN = {"user": "Пользователь", "assistant": "Ассистент"}
IN_RUSSIAN = "Пользователь: Кто основал Мюнхен?\nБот: Генрих Лев."
OF_RAGAS = {"user": "human", "assistant": "ai"}
OF_RESPONSES = {"user": "input_text", "assistant": "output_text"}
FORMS = {
    "pairs of role and text": MUNICH,
    "messages of LangChain": messages(MUNICH),
    "messages of OpenAI": dicts(MUNICH),
    "a LangGraph state": {"messages": messages(MUNICH)},
    "inputs and outputs of a run": {"inputs": {"messages": dicts(MUNICH[:3])}, "outputs": {"messages": dicts(MUNICH)}},
    "a chat history": {**LAST, "chat_history": messages(MUNICH[:2])},
    "a chat history of dicts": {"input": MUNICH[2][1], "output": MUNICH[3][1], "chat_history": dicts(MUNICH[:2])},
    "a chat history of pairs": {**LAST, "chat_history": PAIRS[:1]},
    "a chat history as text": {**LAST, "chat_history": "Human: Кто основал Мюнхен?\nAI: Генрих Лев."},
    "a history in Russian": {"вопрос": MUNICH[2][1], "ответ": MUNICH[3][1], "История": IN_RUSSIAN},
    "a MultiTurnSample of ragas": MultiTurnSample([RagasMessage(text, OF_RAGAS[role]) for role, text in MUNICH]),
    "a ConversationalTestCase of DeepEval": ConversationalTestCase([DeepEvalTurn(role, text) for role, text in MUNICH]),
    "an earlier ConversationalTestCase": {"turns": [{"input": one, "actual_output": other} for one, other in PAIRS]},
    "pairs of question and answer": PAIRS,
    "items of OpenAI's Responses": [response(role, text, OF_RESPONSES[role]) for role, text in MUNICH],
    "the runs of a thread": [run(*pair) for pair in PAIRS],
    "runs of a thread, newest first": [run(*PAIRS[n], start_time=f"2026-01-01T00:0{n}:00") for n in (1, 0)],
    "a transcript": "\n".join(f"{RUSSIAN[role]}: {text}" for role, text in MUNICH),
    "a transcript in Markdown": "\n\n".join(f"**{role.capitalize()}:** {text}" for role, text in MUNICH),
    "a sample": Sample(**LAST, history=FIRST),
}


@each("form", FORMS)
def test_every_form_of_a_conversation_gives_the_same_samples(form):
    first, second = samples_of(FORMS[form])
    assert (first.question, first.answer, first.history) == ("Кто основал Мюнхен?", "Генрих Лев.", [])
    assert (second.question, second.answer, second.history) == ("А когда он умер?", "Он умер в 1195 году.", FIRST)
    assert [sample.metadata["turn"] for sample in (first, second)] == [1, 2]
    assert first.metadata["conversation"] == second.metadata["conversation"]


NO_RECORDS = ("run", "transcript", "earlier", "pairs of question", "Responses")


@each("form", [form for form in FORMS if not any(word in form for word in NO_RECORDS)])
def test_parse_reads_the_last_turn_of_each_form_that_is_a_record(form):
    value = FORMS[form]
    sample = Sample.parse({"messages": value} if isinstance(value, list) else value)
    assert (sample.question, sample.answer, sample.history) == ("А когда он умер?", "Он умер в 1195 году.", FIRST)


def test_the_id_of_a_conversation_does_not_depend_on_its_last_answer():
    changed = [*MUNICH[:3], ("assistant", "В 1195 году.")]
    ids = [sample.id for sample in samples_of(MUNICH)]
    assert [sample.id for sample in samples_of(changed)] == ids
    assert samples_of(changed)[0].metadata["conversation"] == samples_of(MUNICH)[0].metadata["conversation"] == ids[1]
    other = [("user", "Кто основал Берлин?"), *MUNICH[1:]]
    assert samples_of(other)[0].metadata["conversation"] != ids[1]


@each("form", ["a LangGraph state", "an earlier ConversationalTestCase"])
@each("key", ["id", "thread_id", "session_id", "conversation_id"])
def test_a_record_with_an_id_names_its_conversation_and_its_turns(form, key):
    samples = samples_of({**FORMS[form], key: "t-7"})
    assert [sample.id for sample in samples] == ["t-7:1", "t-7:2"]
    assert {sample.metadata["conversation"] for sample in samples} == {"t-7"}


def test_each_turn_has_the_contexts_that_its_own_messages_carry():
    atlas = Document("Munich was founded in 1158.", id="d1", metadata={"source": "atlas"})
    conversation = [
        SystemMessage("Be brief."),
        HumanMessage("When was Munich founded?"),
        AIMessage("I will look.", tool_calls=[{"name": "search", "args": {"q": "Munich"}, "id": "c1"}]),
        ToolMessage("Munich was founded ...", tool_call_id="c1", artifact=[atlas]),
        AIMessage("In 1158."),
        HumanMessage("And Berlin?"),
        AIMessage("", tool_calls=[{"name": "search", "args": {"q": "Berlin"}, "id": "c2"}]),
        ToolMessage("Berlin was first named in 1237.", tool_call_id="c2"),
        ToolMessage("no connection", tool_call_id="c3", status="error"),
        AIMessage("In 1237."),
        HumanMessage("Thanks!"),
        AIMessage("You are welcome."),
    ]
    samples = samples_of(conversation)
    assert [(one.contexts, one.metadata.get("context_sources"), len(one.history)) for one in samples] == [
        (["Munich was founded in 1158."], ["atlas"], 0),
        (["Berlin was first named in 1237."], ["search c2"], 2),
        (None, None, 4),
    ]
    assert [turn.text for turn in samples[1].history] == ["When was Munich founded?", "In 1158."]
    assert (samples[0].context_ids, samples[0].metadata["earlier_messages"]) == (["d1"], ["I will look."])
    calls = [[call["args"]["q"] for call in one.metadata.get("tool_calls", [])] for one in samples]
    assert calls == [["Munich"], ["Berlin"], []]


CHUNKS = [{"text": "Base costs 5 euros.", "source": "prices.md"}, {"text": "Plus costs 9 euros."}]
USE = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "Munich"}}
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Henry founded it."}]},
    {"type": "tool_result", "tool_use_id": "c2", "content": "no connection", "is_error": True},
]
CALL = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
FUNCTION_RESULT = {"role": "function", "name": "search", "content": "Henry founded it."}
FUNCTION_CALL = {"name": "search", "arguments": {"q": "Munich"}}
HENRY = {"role": "assistant", "content": "Henry."}
LOOK = {"type": "text", "text": "I will look."}
SEARCHES = {
    "Anthropic": (
        dicts([("assistant", [LOOK, USE]), ("user", RESULTS), ("assistant", [{"type": "text", "text": "Henry."}])]),
        ["Henry founded it."],
        {"context_sources": ["search c1"], "earlier_messages": ["I will look."], "tool_calls": [USE]},
    ),
    "Responses of OpenAI": (
        [
            {"type": "reasoning", "id": "r1", "summary": []},
            response("assistant", "I will look."),
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "Henry founded it."},
            response("assistant", "Henry."),
        ],
        ["Henry founded it."],
        {"context_sources": ["search c1"], "earlier_messages": ["I will look."], "tool_calls": [{**CALL, "id": "c1"}]},
    ),
    "a list of chunks as JSON": (
        [{"role": "tool", "name": "search", "tool_call_id": "c1", "content": json.dumps(CHUNKS)}, HENRY],
        ["Base costs 5 euros.", "Plus costs 9 euros."],
        {"context_sources": ["prices.md", "search c1"]},
    ),
    "the call of a function": (
        [{"role": "assistant", "function_call": FUNCTION_CALL}, FUNCTION_RESULT, HENRY],
        ["Henry founded it."],
        {"context_sources": ["search"], "tool_calls": [FUNCTION_CALL]},
    ),
}


@each("form", SEARCHES)
def test_results_of_tools_are_contexts_and_no_questions(form):
    found, contexts, metadata = SEARCHES[form]
    (sample,) = samples_of([{"role": "user", "content": "Who founded Munich?"}, *found])
    assert (sample.question, sample.answer, sample.history) == ("Who founded Munich?", "Henry.", [])
    assert sample.contexts == contexts
    assert {name: sample.metadata[name] for name in metadata} == metadata


def test_the_thread_of_a_snapshot_names_its_conversation():
    def node(state):
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    graph = sequence(MessagesState, {"node": node}, InMemorySaver())
    config = {"configurable": {"thread_id": "t-7"}}
    for question in ("one?", "two?"):
        graph.invoke({"messages": [("user", question)]}, config)
    samples = samples_of(graph.get_state(config))
    found = [(sample.id, sample.question, sample.answer) for sample in samples]
    assert found == [("t-7:1", "one?", "answer 1"), ("t-7:2", "two?", "answer 3")]


def test_a_reference_belongs_to_the_last_turn_and_a_greeting_to_the_history_of_the_first_question():
    first, second = samples_of({**FORMS["a LangGraph state"], "reference": "1195"})
    assert (first.references, second.references) == ([], ["1195"])
    (sample,) = samples_of([("assistant", "Hello!"), ("user", "q"), ("assistant", "a")])
    assert sample.history == [Turn(role="assistant", text="Hello!")]


def test_what_is_in_no_sample_is_reported(caplog):
    caplog.set_level(logging.INFO, "langchain_rageval")
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    moderator = {"role": "moderator", "content": "Be polite."}
    messages_of_all = [*dicts(MUNICH[:2]), picture, {"role": "assistant", "content": "A cat."}, moderator]
    samples = samples_of([("system", "Be brief."), *messages_of_all, ("user", "Спасибо")])
    assert [sample.question for sample in samples] == ["Кто основал Мюнхен?"]
    assert [record.getMessage() for record in caplog.records] == [
        "messages of the system are no turns of a conversation and are not judged: 1",
        "messages with an unknown role are left out of their conversation: moderator; known roles: human, user, ai, "
        "assistant, bot, model, chatbot, tool, function, system, developer",
        "a message of the user without a text, [image], gives no sample of its conversation",
        "a question without an answer gives no sample of its conversation: 'Спасибо'",
    ]


MEDIA = {
    "[image]": [{"type": "image_url", "image_url": {"url": "data:,"}}],
    "[image] [file]": [{"type": "input_image"}, {"type": "file", "file_id": "f1"}],
    "[audio]": [{"type": "input_audio", "input_audio": {}}],
}


@each("shown", MEDIA)
def test_a_message_that_is_only_an_image_stands_in_the_history(shown):
    chat = [HumanMessage(MEDIA[shown]), AIMessage("A cat."), HumanMessage("Whose?"), AIMessage("Yours.")]
    (sample,) = samples_of(chat)
    assert [(turn.role, turn.text) for turn in sample.history] == [("user", shown), ("assistant", "A cat.")]
    assert sample.question == "Whose?"
    with_text = HumanMessage([*MEDIA[shown], {"type": "text", "text": "What is it?"}])
    assert samples_of([with_text, AIMessage("A cat.")])[0].question == "What is it?"


def test_messages_of_the_assistant_in_a_row_are_one_answer(caplog):
    caplog.set_level(logging.INFO, "langchain_rageval")
    call = {"name": "search", "args": {}, "id": "1"}
    chat = [
        *messages([("user", "q1"), ("assistant", "first"), ("assistant", "second"), ("user", "q2")]),
        AIMessage("I look it up.", tool_calls=[call]),
        ToolMessage("found", tool_call_id="1"),
        *messages([("assistant", "third"), ("assistant", " "), ("assistant", "fourth"), ("user", "q3")]),
        *(AIMessage("a note", name="researcher"), AIMessage("fifth", name="writer")),
    ]
    samples = samples_of(chat)
    assert [sample.answer for sample in samples] == ["first\n\nsecond", "third\n\nfourth", "fifth"]
    earlier = [sample.metadata.get("earlier_messages") for sample in samples]
    assert earlier == [None, ["I look it up."], ["a note"]]
    assert [turn.text for turn in samples[1].history] == ["q1", "first", "second"]
    assert caplog.messages == ["messages of the assistant in a row are one answer: 2"] * 2


def test_long_conversations_take_linear_time():
    chat = dicts(pair for n in range(1000) for pair in (("user", f"Вопрос {n}?"), ("assistant", f"Ответ {n}.")))
    start = time.process_time()
    samples = samples_of(chat)
    assert time.process_time() - start < 1
    assert [len(sample.history) for sample in samples] == [*range(0, 2000, 2)]
    last = samples[-1]
    assert last.id == default_id(last.question, last.history) == last.metadata["conversation"]
    assert last == Sample.parse(last.model_dump())


def test_turns_that_the_records_of_a_thread_repeat_are_validated_once():
    chat = PAIRS * 2
    history = [dicts(MUNICH * 2)[: 2 * place] for place in range(4)]
    samples = samples_of(
        [{"question": q, "answer": a, "chat_history": h} for (q, a), h in zip(chat, history, strict=True)]
    )
    assert [len(sample.history) for sample in samples] == [0, 2, 4, 6]
    assert len({id(turn) for sample in samples for turn in sample.history}) == 6


FORMS_OF_CONVERSATIONS = (
    "expected a conversation: a list of messages, an object with messages or a chat history, or a transcript that "
    "begins with a speaker such as 'User:'; got "
)


NO_CONVERSATIONS = [
    *[(value, f"{FORMS_OF_CONVERSATIONS}{type(value).__name__}") for value in (None, 5, "Привет", b"Hello")],
    (
        {"id": "7", "msgs_v2": dicts(MUNICH)},
        "expected the messages of a conversation under a name such as 'messages', 'dialogue' or 'chat_history', "
        "the record has ['id', 'msgs_v2']: rename the one that holds them",
    ),
    (
        {"messages": [{"role": "boss", "content": "q"}]},
        "no message has a known role, got boss; known roles: human, user, ai, assistant, bot, model, chatbot, "
        "tool, function, system, developer",
    ),
]


@each(("value", "problem"), NO_CONVERSATIONS)
def test_what_is_no_conversation_is_an_error_that_names_the_forms_or_what_a_record_has(value, problem):
    assert str(error_of(SampleError, samples_of, value)) == problem


NUMBER = [{"role": "user", "content": 5}, {"role": "assistant", "content": "a"}]


@each("conversation", [[], "", [("assistant", "Hello!")], {"messages": []}, [1, 2], NUMBER])
def test_no_message_of_the_user_or_a_number_in_its_place_is_an_error(conversation):
    error_of(SampleError, samples_of, conversation)


REVIEW = [{"kind": "review", "question": "q", "accepted": True, "feedback": ""}]


HISTORIES = [
    *[({"chat_history": empty}, [], {}) for empty in ([], "", None)],
    *[({"chat_history": list_as_text}, FIRST, {}) for list_as_text in (str(PAIRS[:1]), json.dumps(PAIRS[:1]))],
    ({"chat_history": {"messages": dicts(MUNICH[:2])}}, FIRST, {}),
    ({"chat_history": messages(MUNICH[:3])}, FIRST, {}),  # with the question
    ({**LAST, "chat_history": messages(MUNICH)}, FIRST, {}),  # and with the answer
    *[({"history": kept}, [], {"history": kept}) for kept in ("moved from the archive", REVIEW, {"clicks": 3})],
    *[({"conversation": kept}, [], {"conversation": kept}) for kept in ("user:42", "chat-7", 3)],
]


@each(("record", "history", "metadata"), HISTORIES)
def test_a_history_is_read_in_each_form_and_what_is_none_stays_in_the_metadata(record, history, metadata, caplog):
    sample = Sample.parse({"question": MUNICH[2][1], **record})
    assert (sample.question, sample.history, sample.metadata) == (MUNICH[2][1], history, metadata)
    assert sample.id == default_id(sample.question, history)
    assert not caplog.records


UNKNOWN_FORMS = [
    ["Кто основал Мюнхен?", "Генрих Лев."],
    [{"role": "user", "msg": "Кто основал Мюнхен?"}],
    [{"human": "Кто основал Мюнхен?", "ai": "Генрих Лев."}],
    "Кто основал Мюнхен? Генрих Лев.",
]


@pytest.mark.parametrize("unread", UNKNOWN_FORMS)
def test_a_chat_history_of_an_unknown_form_is_kept_and_reported(unread, caplog):
    sample = Sample.parse({"question": MUNICH[2][1], "chat_history": unread})
    assert (sample.history, sample.metadata) == ([], {"chat_history": unread})
    assert caplog.messages == [
        "the chat history under 'chat_history' is kept as metadata and not judged: expected messages with a role and a "
        f"text, (question, answer) pairs or a transcript that begins with a speaker such as 'User:'; got {unread!r}"
    ]


@each("name", ["conversation", "dialogue", "диалог", "Переписка"])
def test_a_transcript_under_the_name_of_a_conversation_is_read(name):
    transcript = "\n".join(f"{'Клиент' if role == 'user' else 'Бот'}: {text}" for role, text in MUNICH)
    sample = Sample.parse({name: transcript, "id": "7"})
    assert (sample.id, sample.question, sample.answer, sample.history) == ("7", MUNICH[2][1], MUNICH[3][1], FIRST)
    assert [one.question for one in samples_of({name: transcript})] == [MUNICH[0][1], MUNICH[2][1]]


def test_a_file_gives_the_last_turn_or_every_turn_and_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO, "langchain_rageval")
    file = tmp_path / "chats.jsonl"
    lines = [{"messages": dicts(MUNICH), "thread_id": "t1"}, dicts(MUNICH[:2])]
    file.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    last = list(load_samples(file))
    found = [(sample.question, len(sample.history)) for sample in last]
    assert found == [("А когда он умер?", 2), ("Кто основал Мюнхен?", 0)]
    assert caplog.records[-1].getMessage() == (
        "chats.jsonl: conversations: 1, answers in them: 2; a sample is the last answer, the turns before are its "
        "history; each_turn=True or --each-turn makes a sample of every answer"
    )
    first, second, _ = load_samples(file, each_turn=True)
    assert (first.id, second.id) == ("t1:1", "t1:2")


def test_a_conversation_that_ends_with_a_mere_message_of_the_user_is_scored_by_its_last_answer(tmp_path):
    chat = {"messages": [*dicts(MUNICH), {"role": "user", "content": "Спасибо"}], "id": "chat-2"}
    (first, last) = samples_of(chat)
    assert (first.id, last.id, last.metadata["conversation"]) == ("chat-2:1", "chat-2:2", "chat-2")
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps(chat), encoding="utf-8")
    for chats in (file, [chat]):
        (row,) = evaluate(chats, conversation_metrics(OfflineJudge()), progress=False).rows
        assert (row.sample.id, row.sample.answer, row.sample.history) == ("chat-2", "Он умер в 1195 году.", FIRST)
        assert row.scores["conversation_consistency"].value == 1.0
    assert [sample.question for sample in load_samples(file)] == ["Спасибо"]  # to be answered by a chain
    for given in ({"reference": "Не за что."}, {"contexts": ["Берлин"]}, {"answer": "Не за что."}):
        assert parse_record(chat | given).question == "Спасибо"
    assert parse_record({"question": "Спасибо", "chat_history": dicts(MUNICH)}).question == "Спасибо"


def test_equal_conversations_of_a_file_are_two_unless_they_share_an_id(tmp_path):
    file = tmp_path / "chats.jsonl"
    chat = json.dumps({"messages": dicts(MUNICH)})
    threads = [json.dumps({"messages": dicts(part), "session_id": "s"}) for part in (MUNICH[:2], MUNICH[2:])]
    file.write_text("\n".join([chat, chat, *threads]), encoding="utf-8")
    samples = list(load_samples(file, each_turn=True, on_error="skip"))
    first, _, second, _, *rest = [sample.metadata["conversation"] for sample in samples]
    assert second == f"{first}-2"
    assert rest == ["s", "s"]
    assert samples[3].id == second


def one_turn(text, **metadata):
    return Sample(question=text, metadata=metadata)


def test_the_highest_turn_of_each_conversation_or_the_longest_history_is_kept_in_the_order_of_the_conversations():
    given = [
        one_turn("b2", conversation="b", turn=2),
        one_turn("alone"),
        one_turn("a10", conversation="a", turn=10),
        one_turn("b1", conversation="b", turn=1),
        one_turn("a9", conversation="a", turn="9"),
        one_turn("alone too"),
    ]
    assert [one.question for one in last_turns(given)] == ["b2", "alone", "a10", "alone too"]
    turn = Turn(role="user", text="?")
    long = Sample(question="long", history=[turn, turn], metadata={"conversation": 1})
    short = Sample(question="short", metadata={"conversation": "1"})
    assert last_turns([long, short]) == [long]
    assert last_turns([short, short.model_copy(update={"question": "later"})])[0].question == "later"
    assert last_turns(iter([])) == []


def test_what_is_no_sample_is_refused_by_its_place():
    assert str(error_of(SampleError, last_turns, [one_turn("a"), {"question": "b"}])) == (
        "last_turns expected samples, got dict at index 1: pass those of samples_of(conversation) or "
        "load_samples(path, each_turn=True), or Sample.parse(record)"
    )
