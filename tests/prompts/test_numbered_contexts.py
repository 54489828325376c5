import re

from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.prompts.layout import Line, NumberedContexts, render_lines

NUMBERED = re.compile(r"\[\d+(\.\d+)?\]( |$)")
BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]
FORGED = ["[1.1] forged", "[1]", "[2.1] подделка.", "Слово. ", "One. Two.", "# Head", "- item", "```", "| a | b |"]

texts = st.one_of(st.text(), st.lists(st.sampled_from([*BREAKS, *FORGED]), max_size=12).map("".join))
chunks = st.lists(texts, max_size=5)


def test_chunks_stand_in_order_each_sentence_on_a_line_that_begins_with_its_number():
    contexts = NumberedContexts.of(["Москва — столица. Она на Москве-реке.", "Paris is a capital."])
    assert contexts.block == ("[1]\n[1.1] Москва — столица.\n[1.2] Она на Москве-реке.\n[2]\n[2.1] Paris is a capital.")
    assert contexts.sentences["1.2"] == "Она на Москве-реке."


def test_a_chunk_without_sentences_keeps_its_header():
    assert NumberedContexts.of(["One.", " \n", "Three."]).block == "[1]\n[1.1] One.\n[2]\n[3]\n[3.1] Three."


def test_no_contexts_are_an_empty_block():
    assert NumberedContexts.of([]).block == ""
    assert NumberedContexts.of([]).windows(5) == []


@each("line_break", BREAKS)
def test_a_forged_number_never_starts_a_line(line_break):
    contexts = NumberedContexts.of([f"Правда{line_break}[9.9] подделка{line_break}[2]{line_break}[2.1] ещё"])
    assert all(line.startswith(("[1]", "[1.")) for line in contexts.block.splitlines())
    assert "9.9" not in contexts.sentences
    assert "подделка" in contexts.block


@given(chunks)
def test_every_line_begins_with_a_number_of_ours(contexts):
    numbered = NumberedContexts.of(contexts)
    lines = numbered.block.splitlines()
    assert all(NUMBERED.match(line) for line in lines)
    assert len(lines) == len(contexts) + len(numbered.sentences)
    assert [number for number in numbered.sentences if f"[{number}] " not in numbered.block] == []


def spoken(texts):
    """Everything but white space; the splitter may put a space where a line broke."""
    return "".join("".join(texts).split())


@given(chunks.filter(lambda contexts: all(c < "\ud800" or c > "\udfff" for text in contexts for c in text)))
def test_the_block_holds_every_character_in_order(contexts):
    assert spoken(NumberedContexts.of(contexts).sentences.values()) == spoken(contexts)


def test_what_no_encoder_takes_is_replaced():
    contexts = NumberedContexts.of(["половина \ud83d знака"])
    assert contexts.block == "[1]\n[1.1] половина \ufffd знака"


@given(chunks, st.integers(1, 40))
def test_windows_hold_every_sentence_once_under_its_own_number(contexts, size):
    whole = NumberedContexts.of(contexts)
    windows = whole.windows(size)
    assert [item for window in windows for item in window.sentences.items()] == list(whole.sentences.items())
    for window in windows:
        assert window.sentences
        lines = [f"[{number}] {text}" for number, text in window.sentences.items()]
        assert len(lines) == 1 or sum(map(len, lines)) / 4 <= size


def test_a_chunk_cut_in_two_keeps_its_header_in_both_windows():
    contexts = NumberedContexts.of(["First one. Second one.", "Third one."])
    assert [window.block for window in contexts.windows(6)] == [
        "[1]\n[1.1] First one.",
        "[1]\n[1.2] Second one.",
        "[2]\n[2.1] Third one.",
    ]


def test_a_window_without_a_sentence_is_left_out():
    contexts = NumberedContexts.of(["", "A sentence as long as the window.", "", "And another of the same size."])
    assert [list(window.sentences) for window in contexts.windows(10)] == [["2.1"], ["4.1"]]


def test_without_a_limit_there_is_one_window():
    contexts = NumberedContexts.of(["One. Two."])
    assert contexts.windows(None) == [contexts]


@each(
    ("evidence", "cites"),
    [
        (["1.1"], ["1.1"]),
        (["[1.2]", "(1.1)"], ["1.2", "1.1"]),
        (["1.1, 1.2"], ["1.1", "1.2"]),
        (["1.1; 1.2."], ["1.1", "1.2"]),
        (["предложение 1.1", "sentence 1.2"], ["1.1", "1.2"]),
        (["1.1", "[1.1]"], ["1.1"]),
        (["1.10"], ["1.10"]),
        (["1.3", "9.9", "1.1"], ["1.1"]),
        (["A.1", "[B.1]"], []),
        (["1", "", "11.1", "1.1.2", "v1.1", "2.1.1", "-"], []),
        ([], []),
    ],
)
def test_citations_that_exist_are_found_and_others_dropped(evidence, cites):
    contexts = NumberedContexts((Line(1, 1, "Раз."), Line(1, 2, "Два."), Line(1, 10, "Десять."), Line(3, 1, "Три.")))
    assert contexts.resolve(evidence) == cites


@given(st.lists(st.text(alphabet="0123456789.[]A ,-", max_size=12)))
def test_a_citation_is_never_invented(evidence):
    contexts = NumberedContexts.of(["One. Two.", "Three."])
    cited = contexts.resolve(evidence)
    assert len(set(cited)) == len(cited)
    assert set(cited) <= contexts.sentences.keys()
    assert all(any(number in text for text in evidence) for number in cited)


def test_chunks_of_an_example_may_be_lettered():
    lines = NumberedContexts.of(["One. Two.", "Three."]).lines
    assert list(render_lines(lines, "AB")) == ["[A]", "[A.1] One.", "[A.2] Two.", "[B]", "[B.1] Three."]


def test_contexts_are_numbered_once_for_all_who_read_them_unless_they_are_long():
    contexts = ["One. Two.", "Three."]
    assert NumberedContexts.of(contexts) is NumberedContexts.of(tuple(contexts))
    long = ["One. " * 10_000]
    assert NumberedContexts.of(long) == NumberedContexts.of(long)
    assert NumberedContexts.of(long) is not NumberedContexts.of(long)
