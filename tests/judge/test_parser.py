import gzip
import json
import re
import time
from collections import Counter
from contextlib import suppress
from enum import Enum
from typing import Any, Literal

import pytest
from helpers.each import each, error_of
from helpers.stored import FIXTURES, assert_stored, fixture_data
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field, RootModel, ValidationError

from langchain_rageval.judge.parser import StrictJsonOutputParser, strict_schema
from langchain_rageval.judge.reply import CutOffReply, reply_texts
from langchain_rageval.prompts.answer_schemas import Statements

CORPUS = FIXTURES / "wikieval_judge_outputs" / "ragas_raw_outputs.jsonl.gz"
REPLIES = fixture_data("replies.yaml")


class Verdict(BaseModel):
    statement: int
    reason: str = Field(description="why")
    verdict: Literal["supported", "absent"]


class Verdicts(BaseModel):
    """One verdict per statement."""

    verdicts: list[Verdict]


class Reply(BaseModel):
    a: Any


class Defaults(BaseModel):
    items: list[str] = []
    score: float = 0


Texts = RootModel[list[str]]
ONE = '{"verdicts": [{"statement": 1, "reason": "да", "verdict": "supported"}]}'
ITEMS = ONE[len('{"verdicts": ') : -1]
PARSER = StrictJsonOutputParser(Verdicts)
WANTED = Verdicts.model_validate_json(ONE)
OTHER = ONE.replace("supported", "absent")
DRAFTS = (OTHER, OTHER[len('{"verdicts": ') : -1], f'{{"Verdicts": {OTHER}}}')


def refusal_of(schema, text):
    caught = error_of(OutputParserException, StrictJsonOutputParser(schema).parse, text)
    assert caught.llm_output == text
    assert "http" not in str(caught)
    return str(caught)


@each("text", [*REPLIES["read"], f"По [1], [1.1] и [1.1–1.3]: {ONE}"])
def test_every_spelling_reads_the_same(text):
    assert PARSER.parse(text) == WANTED


def test_raw_line_breaks_in_strings_are_kept():
    assert StrictJsonOutputParser(Texts).parse('["первая\nвторая\tстрока"]').root == ["первая\nвторая\tстрока"]


@each("number", REPLIES["no_numbers"])
def test_what_is_not_a_number_is_refused(number):
    refusal_of(Defaults, f'{{"score": {number}}}')


def test_a_key_with_two_equal_values_has_this_value():
    assert StrictJsonOutputParser(Reply).parse('{"a": 1, "a": 1}').a == 1


CUT_OFF_TEXTS = [
    (Verdicts, ONE[:-1]),
    (Verdicts, f"{ONE} {ONE[:30]}"),
    (Verdict, '[{"statement": 1, "reason": "", "verdict": "absent"}, {"statement": 2'),
    (Verdict, '{verdicts: [{"statement": 1, "reason": "", "verdict": "absent"}], '),
    (Texts, "['a', 'b'"),
    (Texts, '["знак "] лишний", "b"]'),
    (Verdicts, f"<think>{ONE}"),
]


@each(
    ("schema", "text", "reason"),
    [
        *((schema, text, "cut off|close") for schema, text in CUT_OFF_TEXTS),  # even if a piece is complete
        (Reply, '{"a": 1, "a": true}', '"a" has two values'),
        (Defaults, "{}", "none of the keys"),
        (Texts, '["a\\\nb"]', r"Invalid \\escape"),  # what the line break stands for is not guessed
        (Verdict, '{"x" {"statement": 1, "reason": "", "verdict": "absent"}}', "not JSON"),
        (Texts, 'Ответ: ["a"]. Или ["b"].', "2 different answers"),
        (Reply, '{"a": 1} {"a": true}', "2 different answers"),
        *((Verdicts, f"{draft}\n{ONE}", "2 different answers") for draft in DRAFTS),
        (Texts, '["a" "b"]\nIf nothing is found: ["Insufficient Information"]', "not JSON"),
        (Texts, 'Use output["question"] here.', "not JSON"),
    ],
)
def test_what_is_cut_off_doubled_or_unclear_is_refused_though_a_piece_is_complete(schema, text, reason):
    assert re.search(reason, refusal_of(schema, text))


def test_fields_of_an_object_with_a_key_of_the_class_have_their_defaults():
    assert StrictJsonOutputParser(Defaults).parse('{"result": {"items": ["a"]}}').items == ["a"]


@each("text", [*REPLIES["no_json"], *REPLIES["refused"]])
def test_a_reply_without_the_json_or_that_could_be_read_in_two_ways_is_refused(text):
    refusal_of(Verdicts, text)


def test_the_message_says_where_what_was_expected_and_what_came():
    text = ONE.replace("supported", "maybe").replace('"reason": "да", ', "")
    assert refusal_of(Verdicts, text) == (
        "the JSON does not fit the schema: verdicts.0.reason: Field required; "
        "verdicts.0.verdict: Input should be 'supported' or 'absent', not \"maybe\""
    )
    assert refusal_of(Texts, "[1, 2, 3]").endswith("not 2; and 1 more")


# What the message holds


def usage(reasoning, output):
    details = {} if reasoning is None else {"output_token_details": {"reasoning": reasoning}}
    return {"input_tokens": 9, "output_tokens": output, "total_tokens": 9 + output, **details}


def call(name, args):
    return {"name": name, "args": args, "id": name, "type": "tool_call"}


def invalid(name, args):
    return {**call(name, args), "error": None, "type": "invalid_tool_call"}


@each(
    "message",
    [
        AIMessage([{"type": "output_text", "text": ONE}]),
        AIMessage([{"type": "reasoning", "content": [{"type": "text", "text": "{}"}]}, {"type": "text", "text": ONE}]),
        AIMessage([{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": ONE}]}]),
        AIMessage("", additional_kwargs={"reasoning_content": ONE}),
        AIMessage("\n", additional_kwargs={"reasoning": f" {ONE} "}),
        AIMessage([{"type": "thinking", "thinking": f"```json\n{ONE}\n```"}]),
        AIMessage("", additional_kwargs={"function_call": {"name": "Verdicts", "arguments": ONE}}),
        AIMessage("", tool_calls=[call("Verdicts", {"arguments": ONE})]),
        AIMessage("", tool_calls=[call("Verdicts", {"verdicts": ITEMS})]),
        AIMessage("", tool_calls=[call("f", {"Verdicts": json.loads(ONE)})]),
        AIMessage("Сейчас", tool_calls=[call("Search", {"q": 1}), call("Verdicts", json.loads(ONE))]),
        AIMessage("", invalid_tool_calls=[invalid("Verdicts", json.dumps(ONE))]),
        AIMessage("", invalid_tool_calls=[invalid("Verdicts", ONE.replace('"', "'"))]),
        AIMessage(
            "", invalid_tool_calls=[invalid("Verdicts", ONE), invalid("Find", "")], usage_metadata=usage(200, 200)
        ),
    ],
)  # fmt: skip
def test_the_answer_is_read_wherever_a_client_puts_it(message):
    assert PARSER.read_message(message) == WANTED


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", additional_kwargs={"reasoning_content": f"Perhaps {ONE}"}),
        AIMessage("", additional_kwargs={"reasoning_content": f"{ONE} or rather not"}),
        AIMessage("Hm.", additional_kwargs={"reasoning_content": ONE}),
        AIMessage([{"type": "thinking", "thinking": ONE}, {"type": "thinking", "thinking": OTHER}]),
        AIMessage([{"type": "input_text", "text": ONE}]),
    ],
)
def test_thoughts_that_are_not_the_whole_reply_are_no_answer(message):
    with pytest.raises(OutputParserException):
        PARSER.read_message(message)


# How the reply stopped


class FinishReason(Enum):
    """As the clients of Google name it."""

    STOP = 1
    MAX_TOKENS = 2
    SAFETY = 3


@each(
    ("metadata", "message"),
    REPLIES["stops"]
    + [({"finish_reason": FinishReason.MAX_TOKENS}, "cut off"), ({"finish_reason": FinishReason.SAFETY}, "refused")],
)
def test_how_the_reply_stopped_is_read_from_the_message_and_the_generation(metadata, message):
    for generation in (
        ChatGeneration(message=AIMessage(ONE, response_metadata=metadata)),
        ChatGeneration(message=AIMessage(ONE), generation_info=metadata),
        Generation(text=ONE, generation_info=metadata),
    ):
        with pytest.raises(OutputParserException, match=message) as caught:
            PARSER.parse_result([generation])
        assert caught.value.llm_output == ONE


@each("metadata", [*REPLIES["ends"], {"finish_reason": FinishReason.STOP}, {"tier": "failed"}, {"note": "incomplete"}])
def test_a_reply_that_ended_by_itself_is_read(metadata):
    assert PARSER.read_message(AIMessage(ONE, response_metadata=metadata)) == WANTED


STOPS = ("finish_reason", "stop_reason", "done_reason")


def test_an_unknown_stop_reason_refuses_lists_only():
    unknown = AIMessage('{"question": "?", "noncommittal": 0}', response_metadata={"finish_reason": "abort"})
    assert StrictJsonOutputParser(RegeneratedQuestion).read_message(unknown).question == "?"
    aborted = AIMessage(ONE, response_metadata={"finish_reason": "abort"})
    caught = error_of(OutputParserException, PARSER.read_message, aborted)
    assert str(caught) == "the model stopped for an unknown reason (abort), so that a list may be incomplete"
    with pytest.raises(OutputParserException, match=r"unknown reason \(abort, weird, worn\)"):
        PARSER.read_message(AIMessage(ONE, response_metadata=dict(zip(STOPS, ("worn", "abort", "weird"), strict=True))))


THOUGHTS_ONLY, CUT_OFF, EMPTY = True, False, "this is not JSON"


@each(
    ("text", "stop", "reasoning", "output", "expected"),
    [
        *(("", None, *tokens, THOUGHTS_ONLY) for tokens in [(1, 1), (9, 10), (10, 10), (180, 200)]),
        *(("", None, *tokens, EMPTY) for tokens in [(0, 0), (None, 0), (1, 0), (None, 1), (0, 1), (8, 10), (179, 200)]),
        ("", "stop", 10, 10, EMPTY),
        *((ONE, stop, 195, 200, WANTED) for stop in (None, "stop")),
        *((" ", "length", *tokens, THOUGHTS_ONLY) for tokens in [(1, 200), (200, 200)]),
        *((" ", "length", *tokens, CUT_OFF) for tokens in [(0, 200), (None, 200)]),
        (ONE[:20], "length", 100, 200, CUT_OFF),
        (f"<think>So.</think>{ONE[:20]}", "length", None, 200, CUT_OFF),
        *(
            (f"<{tag}>So {{", "length", None, 200, THOUGHTS_ONLY)
            for tag in ("think", "thinking", "THOUGHT", "reasoning")
        ),
    ],
)
def test_a_reply_of_thoughts_only_differs_from_a_short_and_a_cut_off_one(text, stop, reasoning, output, expected):
    message = AIMessage(text, response_metadata={"finish_reason": stop}, usage_metadata=usage(reasoning, output))
    if expected is WANTED:
        assert PARSER.read_message(message) == WANTED
        return
    caught = error_of(OutputParserException, PARSER.read_message, message)
    assert isinstance(caught, CutOffReply) == (expected is not EMPTY)
    if expected is EMPTY:
        assert str(caught) == "the reply is empty"
    else:
        assert (caught.only_thoughts, caught.output_tokens) == (expected, output)
        assert caught.llm_output == text


def nested_call(depth):
    arguments: dict[str, Any] = {}
    for _ in range(depth):
        arguments = {"a": arguments}
    message = AIMessage("")
    message.tool_calls = [call("Reply", arguments)]
    return message


@each(
    ("schema", "message", "reason"),
    [
        (Verdicts, AIMessage("", additional_kwargs={"refusal": "I cannot"}), "refused"),
        (Verdicts, AIMessage([{"type": "refusal", "refusal": "I cannot"}]), "refused"),
        (Verdicts, None, "empty"),
        (Reply, AIMessage("", tool_calls=[call("Reply", {"a": 1}), call("Reply", {"a": 2})]), "2 different answers"),
        (Verdicts, AIMessageChunk("", tool_call_chunks=[{**call("Verdicts", ONE[:-2]), "index": 0}]), "cut off"),
        (Reply, nested_call(100_000), "deeply"),
    ],
    ids=["refusal", "block", "nothing", "calls", "cut-off stream", "nested"],
)
def test_a_message_without_one_whole_answer_is_an_error_that_says_why(schema, message, reason):
    assert reason in str(error_of(OutputParserException, StrictJsonOutputParser(schema).read_message, message))
    assert "empty" in str(error_of(OutputParserException, PARSER.parse_result, []))


def test_a_call_is_quoted_in_its_own_script():
    message = AIMessage("", tool_calls=[call("Verdicts", {"verdicts": "да"})])
    assert error_of(OutputParserException, PARSER.read_message, message).llm_output == '{"verdicts": "да"}'


async def test_a_chain_reads_text_blocks_and_the_stop():
    blocks = [{"type": "reasoning", "reasoning": "{"}, *({"type": "text", "text": part} for part in (ONE[:9], ONE[9:]))]
    cut = AIMessage(ONE, response_metadata={"finish_reason": "length"})
    model = FakeMessagesListChatModel(responses=[AIMessage(blocks), AIMessage(ONE), cut, cut])
    chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | model | PARSER
    assert chain.invoke({"question": "?"}) == await chain.ainvoke({"question": "?"}) == WANTED
    with pytest.raises(OutputParserException, match="cut off"):
        chain.invoke({"question": "?"})
    with pytest.raises(OutputParserException, match="cut off"):
        await chain.ainvoke({"question": "?"})


def test_the_parser_names_its_output_and_refuses_unknown_options():
    assert PARSER.OutputType is Verdicts
    assert PARSER._type == "strict_json"
    with pytest.raises(ValidationError):
        StrictJsonOutputParser(Verdicts, strict=True)


def test_the_instructions_hold_the_schema_on_one_line():
    line = PARSER.get_format_instructions().splitlines()[2]
    assert json.loads(line) == strict_schema(Verdicts)
    assert "JSON object" in PARSER.get_format_instructions()
    assert "JSON list" in StrictJsonOutputParser(Texts).get_format_instructions()


def test_a_strict_schema_is_inlined_closed_and_in_order():
    assert_stored("strict_verdicts.json", json.dumps(strict_schema(Verdicts), indent=1) + "\n")


def test_a_field_called_title_stays_and_defaults_are_required():
    class Page(BaseModel):
        title: str = "x"
        default: int = 0

    schema = strict_schema(Page)
    assert schema["properties"] == {"title": {"type": "string"}, "default": {"type": "integer"}}
    assert schema["required"] == ["title", "default"]


class Tree(BaseModel):
    leaves: list["Tree"]


def test_a_recursive_class_has_no_strict_schema():
    with pytest.raises(ValueError, match="Tree holds itself"):
        strict_schema(Tree)


VALUES = st.builds(
    Verdicts,
    verdicts=st.lists(
        st.builds(Verdict, statement=st.integers(), reason=st.text(), verdict=st.sampled_from(["supported", "absent"]))
    ),
)
AROUND = st.sampled_from(
    [
        *("{}", "```json\n{}\n```", "Ответ (см. [1]): {} Готово.", "<think>it's [\"</think>{}", "мысль</think>\n{}"),
        *("[{}]", '{{"output": {}}}'),
    ]
)


@given(VALUES, AROUND, st.booleans())
def test_a_value_is_reread_equal_from_whatever_stands_around_it(value, around, ascii_only):
    text = json.dumps(value.model_dump(), ensure_ascii=ascii_only, indent=1)
    assert PARSER.parse(around.format(text)) == value


@each("text", REPLIES["cut_anywhere"])
def test_no_prefix_of_a_reply_is_read_as_another_answer(text):
    answers = []
    for end in range(len(text) + 1):
        with suppress(OutputParserException):
            answers.append(PARSER.parse(text[:end]))
    assert WANTED in answers
    assert all(answer == WANTED for answer in answers)


PIECES = st.sampled_from(
    [
        *"{}[]\"'“”„«»,:\\\n -1aT",
        *("</think>", "<think>", '"a"', "True", "NaN", '{"a": 1}', "1e999"),
        *("Verdicts", '"name"', '"arguments"', "//", "/*", "*/", "\\'", "\u00a0", "да", "#1", ONE),
        *("<thinking>", "[TOOL_CALLS]", "<|channel|>final<|message|>", "<|channel|>analysis<|message|>", "<|end|>"),
        *("analysis", "assistantfinal"),
    ]
)
TEXTS = st.text(max_size=20) | st.lists(PIECES, max_size=12).map("".join)


@given(st.sampled_from([Reply, Texts, Defaults, RootModel[Any]]), TEXTS)
@example(Texts, "[" * 100_000 + "]" * 100_000)
@example(RootModel[Any], '{"a":' * 900 + "1" + "}" * 900)
@example(Reply, '{"a": ' + "1" * 5000 + "}")
@example(Texts, '["\\ud800"]')
def test_no_text_raises_anything_else(schema, text):
    with suppress(OutputParserException):
        StrictJsonOutputParser(schema).parse(text)


NAMES = st.sampled_from(["verdicts", "Verdicts", "name", "arguments", "text", "type"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=3),
)
BLOCKS = st.lists(
    TEXTS | st.dictionaries(st.sampled_from(["type", "text", "content", "thinking", "reasoning"]), ANYTHING)
)
METADATA = st.dictionaries(
    st.sampled_from(["finish_reason", "stopReason", "done", "status", "choices", "stop_reason", "incomplete_details"]),
    ANYTHING | st.sampled_from(["stop", "length", "SAFETY", FinishReason.STOP]),
)
SPOKEN = st.dictionaries(st.sampled_from(["reasoning_content", "refusal", "function_call", "x"]), ANYTHING, max_size=2)


ARGUMENTS = st.none() | st.dictionaries(TEXTS, ANYTHING) | TEXTS


@given(st.sampled_from([Verdicts, Reply, Texts, Defaults, Verdict]), TEXTS | BLOCKS, METADATA, SPOKEN, ARGUMENTS)
def test_no_message_raises_anything_else(schema, content, metadata, spoken, arguments):
    message = AIMessage("", response_metadata=metadata, additional_kwargs=spoken)
    message.content = content
    message.tool_calls = [] if arguments is None else [call("Verdicts", arguments)]
    with suppress(OutputParserException):
        StrictJsonOutputParser(schema).read_message(message)


@pytest.mark.gate
@each("piece", REPLIES["pieces"])
def test_a_megabyte_of_anything_takes_linear_time(piece):
    text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    began = time.process_time()
    refusal_of(Verdicts, text)
    assert time.process_time() - began < 20  # a second or so; quadratic, it is hours


class RegeneratedQuestion(BaseModel):
    question: str
    noncommittal: Literal[0, 1]


SCHEMAS = {"statements": Texts, "context_sentences": Texts, "question_generation": RegeneratedQuestion}
SCHEMAS["verdict"] = RootModel[Literal[0, 1]]


def accepts(parser, message):
    try:
        parser.read_message(message)
    except OutputParserException:
        return False
    return True


def test_the_recorded_replies_of_a_weak_judge_are_read_or_refused():
    plain, read, read_knowing_the_stop = Counter(), Counter(), Counter()
    for line in gzip.decompress(CORPUS.read_bytes()).decode().splitlines():
        row = json.loads(line)
        key = row["task"], row["mode"]
        parser = StrictJsonOutputParser(SCHEMAS[row["task"]])
        stop = {"finish_reason": "length" if row["truncated"] else "stop"}
        plain[key] += row["json_loads_ok"]
        read[key] += accepts(parser, AIMessage(row["raw_output"]))
        accepted = accepts(parser, AIMessage(row["raw_output"], response_metadata=stop))
        assert not (accepted and row["truncated"]), row["id"]
        read_knowing_the_stop[key] += accepted
    assert {key: (plain[key], read[key], read_knowing_the_stop[key]) for key in plain} == {
        ("statements", "chat"): (17, 38, 38),
        ("statements", "completion"): (0, 9, 0),
        ("context_sentences", "chat"): (0, 32, 32),
        ("context_sentences", "completion"): (0, 3, 1),
        ("question_generation", "chat"): (15, 120, 120),
        ("question_generation", "completion"): (0, 21, 21),
        ("verdict", "chat"): (0, 0, 0),
        ("verdict", "completion"): (0, 0, 0),
    }


@each("padding", range(0, 90, 7))
def test_a_message_quotes_no_part_of_a_key(padding):
    key = "sk-very-secret-0123456789"
    for reply in (
        f"{'a ' * (padding // 2)}{key} is the key",
        f'{{"statements": ["{"a " * (padding // 2)}{key}" {"b " * (padding // 2)}',
        json.dumps({"statements": {"a " * (padding // 2) + key: 1}}),
        json.dumps({"statements": ["a"], "more": f"{'a ' * (padding // 2)}{key}"}) + "}}",
        json.dumps({"statements": f"{'a ' * (padding // 2)}{key}"}),
    ):
        raised = error_of(OutputParserException, StrictJsonOutputParser(Statements).parse, reply)
        message = str(raised).replace(key, "***")  # as a whole, redaction removes it
        assert not any(key[at : at + 8] in message for at in range(len(key) - 7)), message


def test_a_message_holds_no_authorization():
    reply = "You sent Authorization: Bearer abcdef0123456789."
    raised = error_of(OutputParserException, StrictJsonOutputParser(Statements).parse, reply)
    quoted = "You sent Authorization: Bearer ***"
    assert str(raised) == f'this is not JSON: Expecting value at "{quoted}", after ""'
    assert raised.llm_output == reply


@each("spelled", ["{", "[1]", '{"names": ["b"]}'])
def test_the_providers_spelling_of_a_tool_call_is_read_only_if_it_says_the_same(spelled):
    raw = {"id": "Names", "type": "function", "function": {"name": "Names", "arguments": spelled}}
    message = AIMessage("", tool_calls=[call("Names", {"names": ["a"]})], additional_kwargs={"tool_calls": [raw]})
    assert next(iter(reply_texts(message))).text == '{"names": ["a"]}'


@each("raw", [None, "x", {}, [None], ["x"], [{"id": "1"}], [{"id": "1", "function": "f"}], [{"function": {}}]])
def test_a_providers_tool_call_in_another_form_is_ignored(raw):
    message = AIMessage("", tool_calls=[call("Verdicts", json.loads(ONE))], additional_kwargs={"tool_calls": raw})
    assert PARSER.read_message(message) == WANTED


def test_of_several_pieces_the_message_is_about_the_one_that_fits_the_schema_most_deeply():
    class Page(BaseModel):
        items: list[Verdict]
        size: int

    deep = {"items": [{"statement": 1, "reason": "", "verdict": "maybe"}], "size": "big"}
    for other in ({"items": ["x"], "size": 1}, {"items": "x", "size": 1}, {"foo": 1}):
        for pieces in ((deep, other), (other, deep)):
            problem = refusal_of(Page, " or ".join(map(json.dumps, pieces)))
            assert problem.startswith("the JSON does not fit the schema: items.0.verdict: "), pieces


def corrupted(text):
    """Yield a reply with one place deleted, cut off, doubled or replaced, and in wrappers."""
    for place in range(0, len(text), 3):
        head, tail = text[:place], text[place + 1 :]
        yield from (head + tail, head, head + 2 * text[place] + tail)
        yield from (f"{head}{other}{tail}" for other in ("'", ",", "}", "“", "// x\n", "\\"))
    half = text[: len(text) // 2]
    yield from (f"```json\n{text}\n```", f"<think>{text}</think>{text}", f"<think>{half}", f"Sure: {text} {half}")
    yield from (json.dumps(text), f"[{text}]", f'{{"answer": {text}}}', f'{{"name": "x", "arguments": {text}}}')
    yield from (f"{text}\n{text}", f"{text} {half}x{text}", text.replace('"', "'"), text.replace('"', "”"))
    yield from (text.replace("supported", label) for label in ("Supported.", "not supported", "SUPPORTED", "a"))
    yield from (text.replace(": 1", f": {number}") for number in ('"1"', '"one"', "1.0", "NaN", "9" * 30, "[1]"))


def reading(schema, text):
    try:
        return repr(StrictJsonOutputParser(schema).parse(text))
    except OutputParserException as error:
        return str(error).partition("\nFor troubleshooting")[0]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (Verdicts, ONE),
        (Reply, '{"a": [1, 2.5, null, true, {"b": "x\\"y"}]}'),
        (Texts, '["a", "b"]'),
        (Defaults, '{"items": ["x"], "score": 1e3}'),
    ],
)
def test_what_becomes_of_corrupted_replies_is_as_stored(schema, text):
    lines = dict.fromkeys(f"{reply!r}\n    {reading(schema, reply)}" for reply in corrupted(text))
    assert_stored(f"readings_{schema.__name__.partition('[')[0]}.txt", "\n".join(lines) + "\n")
