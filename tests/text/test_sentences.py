"""Splitting into sentences: hard Russian cases, treebanks of five languages, any text at all, and time."""

import gzip
import json
import random
import subprocess
import sys
import time
from itertools import accumulate

import pytest
from helpers.each import each
from helpers.stored import FIXTURES, fixture_data
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.text.sentences import split_sentences

RUSSIAN = fixture_data("sentences_ru.yaml")

FRAGMENTS = [
    *("Слово", "слово", "г.", "т.д.", "1799", "А.", "Он", "St.", "Word", "好。", "？”", "한다.", "좋아요"),
    *("«Да!", "»", "— сказал", "1.", "- ", "# ", "```\n", "| a | b |", "...", "?!", ":"),
    *("😂", "(", ")", "))", ".[1]", "**", "Ким И. И.", "№ 5", "; ", "300 г.", "С. 12."),
    *(" ", "\n", "\n\n", "\t", "\u00a0", "\u2028", "\x1c", "\ufeff"),
]
texts = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))


def test_russian_hard_cases_are_split_as_a_reader_would_but_for_those_known_to_be_wrong():
    wrong = [case["text"] for case in RUSSIAN if split_sentences(case["text"]) != case["sentences"]]
    assert wrong == [case["text"] for case in RUSSIAN if case.get("wrong")]


def test_a_line_without_a_letter_or_digit_is_no_sentence():
    table = (
        "# Peaks\n\n| Peak | Height |\n|---|---|\n| Elbrus | 5642 m |\n| Kazbek | 5033 m |\n\n---\n\nSource: survey."
    )
    assert len(split_sentences(table)) == 5
    assert split_sentences("***\n----") == ["*** ----"]
    assert split_sentences("--\nOne.\n```bash\nrun\n```\nTwo.") == ["-- One. ```bash", "run ```", "Two."]


def _sentences_of_right_cases():
    for case in RUSSIAN:
        if not case.get("wrong") and "```" not in case["text"] and "~~~" not in case["text"]:
            yield from case["sentences"]


@each("sentence", sorted(set(_sentences_of_right_cases())))
def test_a_sentence_alone_stays_whole(sentence):
    assert split_sentences(sentence, "ru") == [sentence]


@pytest.mark.parametrize(("language", "bar"), [("ru", 0.975), ("en", 0.925), ("zh", 0.99), ("ko", 0.85), ("it", 0.99)])
def test_sentence_ends_agree_with_a_treebank(language, bar):
    with gzip.open(FIXTURES / "ud_sentences" / f"{language}.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    agreed = found = there = 0
    for document in documents:
        text = document["text"]
        theirs = _ends(text[start:end] for start, end in document["spans"])
        ours = _ends(split_sentences(text))
        agreed, found, there = agreed + len(theirs & ours), found + len(ours), there + len(theirs)
    assert there >= 100
    assert 2 * agreed / (found + there) >= bar  # F1


def _ends(sentences):
    """Where sentences end, counted in characters that are not white space."""
    return set(accumulate(len("".join(sentence.split())) for sentence in sentences))


@given(texts, st.sampled_from(["auto", "ru", "en", "zh", "xx"]))
def test_the_sentences_hold_every_character_in_order(text, language):
    sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@each(
    ("text", "sentences"),
    [
        ("今天下雨。我们不出门！真的吗？", ["今天下雨。", "我们不出门！", "真的吗？"]),
        ("他说：“走吧。”大家都走了。", ["他说：“走吧。”", "大家都走了。"]),
        ("他问“为什么？”。没人知道。", ["他问“为什么？”。", "没人知道。"]),
        ("これはペンです。「はい。」彼は言った。", ["これはペンです。", "「はい。」", "彼は言った。"]),
        ("맛이 좋아요 다시 오겠습니다 추천합니다.", ["맛이 좋아요", "다시 오겠습니다", "추천합니다."]),
        ("He moved to St. Louis on Sept. 10. It was hot.", ["He moved to St. Louis on Sept. 10.", "It was hot."]),
        ("I need vitamin D. It helps. Ask Prof. Smith.", ["I need vitamin D.", "It helps.", "Ask Prof. Smith."]),
        ("do I need it? i think so. they know!", ["do I need it?", "i think so.", "they know!"]),
        ('"Really?" he asked. Yahoo! and AOL agreed.', ['"Really?" he asked.', "Yahoo! and AOL agreed."]),
        ("It is 5 p.m. it seems, approx. it is.", ["It is 5 p.m. it seems, approx. it is."]),
        ("Wait...What is it? See e.g. Smith et al. 2020.", ["Wait...", "What is it?", "See e.g. Smith et al. 2020."]),
        ("It grew.[1] It fell.[2][3] See 'A'.", ["It grew.[1]", "It fell.[2][3]", "See 'A'."]),
        (
            "It was No. 50; Kesha left (b. 1987; US). She sang.",
            ["It was No. 50; Kesha left (b. 1987; US).", "She sang."],
        ),
        ("Parla L. Di Maio. Poi il sig. Rossi.", ["Parla L. Di Maio.", "Poi il sig. Rossi."]),
    ],
)
def test_other_languages_are_split_by_their_own_marks(text, sentences):
    assert split_sentences(text) == sentences


def test_the_language_tells_a_function_word_from_a_name():
    assert split_sentences("Vitamin D. Die", "de") == ["Vitamin D.", "Die"]
    assert split_sentences("Vitamin D. Die", "en") == ["Vitamin D. Die"]


def test_prose_without_an_end_is_cut_at_white_space():
    sentences = split_sentences("слово " * 2000)
    assert len(sentences) > 1
    assert max(map(len, sentences)) <= 4000
    assert all(sentence.endswith("слово") for sentence in sentences)


def test_a_long_line_that_ends_with_the_pages_of_a_book_is_prose():
    entry = "Ким И. И. Кредит // Деньги. 2019. № 4. С. 12."
    assert split_sentences(entry) == [entry]
    assert split_sentences("Так пишут все. " * 30 + entry)[:30] == ["Так пишут все."] * 30


def test_a_sentence_across_two_windows_stays_whole():
    random.seed(0)
    sentences = [f"Предложение {'слово ' * random.randint(1, 60)}конец." for _ in range(300)]
    assert split_sentences(" ".join(sentences), "ru") == sentences


@pytest.mark.gate
@each("unit", ["т.д. ", "a. ", "\n", "а\n", "«Да! ", "a.a.", "好。", "1. ", "слово ", '"', "5 г. "])
def test_time_grows_in_proportion_to_the_text(unit):
    def seconds(characters):
        text = unit * (characters // len(unit))
        return min(_seconds(lambda: split_sentences(text, "ru")) for _ in range(4))

    seconds(10_000)  # the first call loads razdel
    assert seconds(160_000) < 16 * 4 * seconds(10_000) + 0.01  # in proportion it is 16, quadratic it is 256


def _seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def test_importing_the_module_does_not_import_razdel():
    code = "import sys, langchain_rageval.text.sentences; sys.exit('razdel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
