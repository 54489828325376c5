"""Which chunks a prompt holds, however a formatter has changed them, and which model calls an answer builds on."""

import html
import json
import random
import re
import textwrap
import time

import pytest
from helpers.each import each
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from langchain_rageval.chains.prompt_search import Chunk, ModelCall, find_read, prompt_of

QUESTION = "When was Munich founded?"
ANSWER = "It was founded in the year 1158."
A = "Munich was founded by Henry the Lion in 1158, when he moved the bridge of the salt road to the south."
B = "The river Isar rises in the Karwendel range, flows through four lakes and then joins the Danube near Deggendorf."
C = "Berlin has had a zoo since 1844, which is the oldest one in Germany and keeps more species than any other."
RUSSIAN = "Мюнхен основал Генрих Лев в 1158 году, когда он перенёс мост «соляной дороги» на юг, к монахам."
CHINESE = "慕尼黑由亨利狮子公爵于1158年建立，当时他将盐路的桥梁向南移动到僧侣的定居点附近。"


def call(number, output, *prompt):
    """Return a model call that starts and ends at the time of its number."""
    result = ModelCall(2 * number, prompt_of([HumanMessage(prompt[0])] if len(prompt) == 1 else prompt))
    if output is not None:
        generation = ChatGeneration(message=AIMessage(output)) if isinstance(output, str) else output
        result.end(2 * number + 1, LLMResult(generations=[[generation] if generation else []]))
    return result


def found(prompt, *texts, question=QUESTION):
    """Return the texts that were read, of chunks that were seen before the only call."""
    parts = find_read(ANSWER, question, [Chunk(text, seen=1) for text in texts], [call(5, ANSWER, prompt)], [])
    return [part.text for part in parts]


FORMS = {
    "joined": lambda text: text,
    "numbered": lambda text: f"[1]{text}",
    "one line": lambda text: " ".join(text.lower().split()),
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps({"content": json.dumps({"text": text})}),
    "JSON as it is": lambda text: json.dumps(text, ensure_ascii=False),
    "Python": lambda text: repr([text]),
    "XML": lambda text: f"<c>{text.replace('&', '&amp;').replace('«', '&laquo;')}</c>",
    "a number for each line": lambda text: "\n".join(f"{n}: {line}" for n, line in enumerate(text.split(", "), 1)),
    "a quote": lambda text: "\n".join(f"> {line}" for line in text.split(", ")),
}


@each("form", FORMS)
@pytest.mark.parametrize("text", [A, B, RUSSIAN, 'A "quoted" path C:\\temp\\new & a line\nbreak with Ünïcödé 🙂 here.'])
def test_a_chunk_is_found_in_any_form(form, text):
    prompt = f"Answer:\n{FORMS[form](C)}\n{FORMS[form](text)}\n{QUESTION}"
    assert found(prompt, text, B if text != B else A, C) == [C, text]


def test_chinese_is_found_in_part_too():
    assert found(f"根据以下内容回答：{CHINESE}", CHINESE, B) == [CHINESE]
    assert found(f"根据以下内容回答：{CHINESE[:20]}…", CHINESE, B) == [CHINESE[:20]]


@pytest.mark.parametrize(
    ("read", "part"),
    [(A[:72], A[: A.index(" of the salt")]), (f"…{A[30:]}", A[A.index("Lion") :]), (f"{A[:40]} [...] {A[60:]}", None)],
)
def test_a_part_of_a_chunk_is_what_was_read(read, part):
    (text,) = found(f"{read}\n{B}", A, C)
    assert text == part or (part is None and text.startswith(A[:38]) and text.endswith(A[64:]) and " … " in text)


def test_a_few_words_in_common_are_not_a_part():
    assert found(f"Say when Munich was founded by someone. {B}", A, B) == [B]
    short = "Munich was founded by Henry the Lion."
    assert found(f"{A} {short}", A, short) == [A, short]


def test_eight_words_of_a_long_chunk_or_three_of_five_words_show_that_it_was_read():
    words = "by Henry the Lion in 1158, when"
    assert found(f"Notes: {words} he", A) == [f"{words} he"]
    assert found(f"Notes: {words}", A) == []
    assert found("They wrote: salt was carried there.", "Salt was carried over bridges") == ["Salt was carried"]
    assert found("They wrote: salt was carried there.", "Salt was carried over") == []


def test_each_stretch_of_a_prompt_counts_for_one_chunk():
    overlapping = f"{A[40:]} {B}"
    assert found(A, overlapping, A, A[:50]) == [A]
    assert found(overlapping, overlapping, A, B) == [overlapping]
    assert found(f"{A}\n\n{A}", A, A[10:]) == [A]
    sheets = [f"Data sheet of the product {name}: it weighs {n} kg, at {n} euros." for n, name in enumerate("XYZ")]
    assert found(f"{sheets[0]}\n{sheets[2]}", *sheets) == [sheets[0], sheets[2]]
    heads = [f"Handbook of the ministry of transport, third edition, page {n}, for internal use only. " for n in (1, 2)]
    assert found(heads[0] + A, heads[0] + A, heads[1] + B) == [heads[0] + A]
    assert found((heads[0] + A)[:130], heads[0] + A, heads[1] + B) == [(heads[0] + A)[:130].removesuffix(",")]


HEADS = [f"Rules of the company Daisy, for internal use only, page {n}. " for n in range(3)]
BODIES = ("Leave is asked for early.", "Travel is paid by bill.", "Notes go to the staff.")
SHEETS = [head + body for head, body in zip(HEADS, BODIES, strict=True)]
YEARS = {"Munich": 1158, "Berlin": 1237, "Ulm": 854}
FAQ = [f"Q: When was {town} founded? A: In {year}." for town, year in YEARS.items()]
WINDOWS = [f"{n}. " + " ".join(f"w{7 * n + place}" for place in range(30)) for n in range(8)]
CODE = [
    "def add(a, b):\n    return a + b",
    "def sub(a, b):\n    return a - b",
    "class Bag:\n    def put(self, x):\n        pass",
]
TAGGED = ["<p>Munich &amp; its <b>bridge</b> were built by the duke.</p>", "<p>Berlin has a <i>zoo</i> of its own.</p>"]


@each(
    ("chunks", "kept", "form"),
    [
        (SHEETS, [2, 0], json.dumps),
        (SHEETS, [2, 0], lambda text: textwrap.fill(text, 20)),
        (FAQ, [0, 2], str),
        (FAQ, [2], str.upper),
        (WINDOWS, [5, 4, 3], str),
        (CODE, [2, 1], lambda text: "\n".join(f"{n}  {line}" for n, line in enumerate(text.splitlines(), 1))),
        (TAGGED, [0], lambda text: html.unescape(re.sub("<[^>]+>", "", text))),
    ],
    ids=range(7),
)
def test_chunks_with_words_in_common_are_told_apart(chunks, kept, form):
    assert found("\n".join(form(chunks[number]) for number in kept), *chunks) == [chunks[number] for number in kept]


def test_words_are_whole():
    assert found("In 1942 a cat sat there. Total: 42", "42") == ["42"]
    assert found("In 1942 a cat sat there.", "42") == []


def test_neither_the_question_nor_an_earlier_answer_is_a_chunk():
    asked = f"Is it true that {A}"
    assert found(f"{B}\n{asked}", A, B, question=asked) == [B]
    assert found(f"{A}\n{B}\n{asked}", A, B, question=asked) == [A, B]
    chat = call(5, ANSWER, HumanMessage("Hello"), AIMessage(A), SystemMessage(B), HumanMessage(QUESTION))
    assert [part.text for part in find_read(ANSWER, QUESTION, [Chunk(A), Chunk(B)], [chat], [])] == [B]
    filled = call(5, ANSWER, AIMessage(f"I found: {A}"), HumanMessage(QUESTION))
    assert [part.text for part in find_read(ANSWER, QUESTION, [Chunk(A), Chunk(B)], [filled], [])] == [A]


def read(calls, *texts, answer=ANSWER, queries=(), seen=1):
    chunks = [Chunk(text, seen=seen) for text in texts]
    return [part.text for part in find_read(answer, QUESTION, chunks, calls, queries)]


DRAFT = "The chronicle names the year 1158 for the town."


def test_a_draft_that_a_prompt_holds_brings_the_chunks_of_its_call():
    calls = [call(1, DRAFT, A), call(2, "x", C), call(3, ANSWER, f"Improve: {DRAFT} by {B}")]
    assert read(calls, C, B, A) == [A, B]
    escaped = [call(1, DRAFT, A), call(2, ANSWER, f"Improve: {json.dumps({'draft': DRAFT})}")]
    assert read(escaped, A, B) == [A]
    part_of_json = [call(1, json.dumps({"answer": DRAFT, "sure": True}), A), call(2, ANSWER, f"Improve: {DRAFT}")]
    assert read(part_of_json, A, B) == [A]
    three = [call(1, DRAFT, A), call(2, DRAFT + " Sure.", f"{DRAFT} {B}"), call(3, ANSWER, f"{DRAFT} Sure. {C}")]
    assert read(three, C, B, A) == [A, B, C]


def test_a_short_draft_counts_if_the_prompt_of_the_answer_holds_no_chunk():
    calls = [call(1, "1158", A), call(2, ANSWER, "Translate: 1158")]
    assert read(calls, A, B) == [A]
    router = [call(1, "history", A), call(2, ANSWER, f"You know history. {B}")]
    assert read(router, A, B) == [B]


def test_a_draft_that_equals_a_chunk_is_no_chunk_unless_the_chunk_was_made_of_it():
    calls = [call(1, A, B), call(2, ANSWER, f"Improve: {A}")]
    assert read(calls, A, B) == [B]
    assert read(calls, A, seen=4) == [A]


def test_a_chunk_that_equals_a_draft_counts_if_it_stands_beside_it():
    calls = [call(1, A, B), call(2, ANSWER, f"Refine {A} by {A}")]
    assert read(calls, A, B) == [B, A]
    same = [call(1, A, C), call(2, A, f"Context: {A}")]  # the topic of a router, then the answer, in the same words
    parts = find_read(A, QUESTION, [Chunk(C, seen=1), Chunk(A, seen=4)], same, [("Munich", 3)])
    assert [part.text for part in parts] == [A]


def test_words_of_the_search_in_a_prompt_are_no_part_of_a_chunk():
    query = "In which year was the town of Munich founded by the duke"
    faq = f"{query}? It was in the year 1158, as the chronicle of the monastery says in its first part."
    assert read([call(4, ANSWER, f"{B}\n{query}")], faq, B, queries=[(query, 2)], seen=3) == [B]
    assert read([call(4, ANSWER, f"{B}\n{faq}\n{query}")], faq, B, queries=[(query, 2)], seen=3) == [B, faq]
    assert read([call(4, ANSWER, f"{B}\n{A}")], A, B, queries=[(A, 2)], seen=3) == [B, A]  # found by its own words


def test_a_sentence_of_a_chunk_suffices():
    long = f"{B} It has a bridge. {A} {C}"
    sentence = "it moved the bridge of the salt road to the south."
    assert found(f"Notes: {A[A.index('he moved') :]}", long, RUSSIAN) == [A[A.index("he moved") :].rstrip(".")]
    assert found(f"Notes: {sentence[:20]}", long) == []


def test_a_call_that_writes_the_search_is_no_draft():
    query = "In which year was the town of Munich founded"
    calls = [call(1, f"1. {query}\n2. Munich year", A), call(4, ANSWER, f"{B} 1. {query}\n2. Munich year")]
    assert read(calls, A, B, queries=[(query, 5)]) == [B]
    assert read(calls, A, B, queries=[(query, 1)]) == [A, B]  # asked before


def test_the_answer_is_found_in_what_a_model_wrote_and_around_it():
    wrong = call(1, "yes", C)
    json_answer = call(2, json.dumps({"answer": ANSWER}), A)
    assert read([wrong, json_answer], A, C) == [A]
    assert read([wrong, call(2, f"{ANSWER[:-1]} [1].", A)], A, C) == [A]
    assert read([wrong, call(2, "Ответ: \\u043c\\u044b", A)], A, C, answer="мы") == [A]
    first, second = "The first part is about A.", "The second part is about B."
    sections = [call(1, first, A), call(2, second, B), call(3, "fine", C)]
    assert read(sections, A, B, C, answer=f"# Report\n{first}\n\n{second}") == [A, B]
    assert read([wrong, call(2, "something else", A)], A, C) == []
    assert read([call(1, ANSWER, A), call(2, ANSWER, B)], A, B) == [B]  # the last one, as after a retry
    called = AIMessage("", tool_calls=[{"name": "Reply", "args": {"answer": ANSWER, "pages": [1]}, "id": "1"}])
    assert read([wrong, call(2, ChatGeneration(message=called), A)], A, C) == [A]


def test_calls_without_an_output_and_prompts_without_a_text_are_read():
    written = Generation(text=ANSWER)
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    assert read([call(1, None, A), call(2, written), call(3, (), image)], A) == []
    blocks = HumanMessage([{"type": "text", "text": A}, {"type": "document", "source": {"type": "text", "data": B}}])
    assert read([call(1, ANSWER, blocks, HumanMessage(QUESTION))], A, B, C) == [A, B]
    assert read([call(1, written, A, QUESTION)], A, B) == [A]


LARGE = {
    "whole": lambda documents: "\n".join(documents),
    "one dropped": lambda documents: "\n".join(documents[:4]),
    "cut": lambda documents: "\n".join(document[:1000] for document in documents),
}


@each("form", LARGE)
def test_large_documents_are_compared_in_linear_time(form):
    words = [f"{random.Random(number).randrange(10**6):06x}" for number in range(5000)]
    shuffled = random.Random(0)
    documents = [" ".join(shuffled.choices(words, k=10_000)) for _ in range(5)]
    start = time.process_time()
    parts = found(LARGE[form](documents), *documents)
    assert time.process_time() - start < 3
    assert len(parts) == (4 if form == "one dropped" else 5)
    assert form == "cut" or parts == documents[: len(parts)]


@pytest.mark.parametrize("pattern", ["a ", "yes no ", "one two three four five "])
def test_texts_that_repeat_themselves_take_no_longer(pattern):
    start = time.process_time()
    found(pattern[::-1] * 5_000, *(f"{pattern * 5_000}{number}" for number in range(5)))
    assert time.process_time() - start < 3


def test_many_calls_are_read_in_little_time():
    word = random.Random(1).choices
    words = [f"w{number}" for number in range(3000)]
    documents = [" ".join(word(words, k=200)) for _ in range(100)]
    notes = [" ".join(word(words, k=40)) for _ in documents]
    calls = [call(n, note, f"Sum up: {text}") for n, (note, text) in enumerate(zip(notes, documents, strict=True), 1)]
    start = time.process_time()
    assert read([*calls, call(200, ANSWER, "\n".join(notes))], *documents) == documents
    assert time.process_time() - start < 2
