import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.sentences import split_sentences

RUSSIAN = yaml.safe_load((Path(__file__).parent / "data" / "sentences_ru.yaml").read_text(encoding="utf-8"))

FRAGMENTS = [
    *("Слово", "слово", "г.", "т.д.", "1799", "А.", "Он", "St.", "Word", "好。", "？”", "한다.", "좋아요"),
    *("«Да!", "»", "— сказал", "1.", "- ", "# ", "```\n", "| a | b |", "...", "?!", ":"),
    *(" ", "\n", "\n\n", "\t", "\u00a0", "\u2028", "\x1c", "\ufeff"),
]
texts = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))


@pytest.mark.parametrize("case", RUSSIAN, ids=lambda case: f"{case['kind']}: {case['text'][:30]!r}")
def test_russian_hard_case_is_split_as_a_reader_would(case):
    assert split_sentences(case["text"]) == case["sentences"]


@pytest.mark.parametrize("sentence", sorted({row for case in RUSSIAN for row in case["sentences"]}))
def test_a_sentence_alone_stays_whole(sentence):
    assert split_sentences(sentence, "ru") == [sentence]


@given(texts, st.sampled_from(["auto", "ru", "en", "zh", "xx"]))
def test_the_sentences_hold_every_character_in_order(text, language):
    sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("text", ["", " ", "\n\n \t\n"])
def test_text_without_characters_has_no_sentences(text):
    assert split_sentences(text) == []


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("今天下雨。我们不出门！真的吗？", ["今天下雨。", "我们不出门！", "真的吗？"]),
        ("他说：“走吧。”大家都走了。", ["他说：“走吧。”", "大家都走了。"]),
        ("他问“为什么？”。没人知道。", ["他问“为什么？”。", "没人知道。"]),
        ("これはペンです。「はい。」彼は言った。", ["これはペンです。", "「はい。」", "彼は言った。"]),
        ("맛이 좋아요 다시 오겠습니다 추천합니다.", ["맛이 좋아요", "다시 오겠습니다", "추천합니다."]),
        ("He moved to St. Louis on Sept. 10. It was hot.", ["He moved to St. Louis on Sept. 10.", "It was hot."]),
        ("I need vitamin D. It helps. Ask Prof. Smith.", ["I need vitamin D.", "It helps.", "Ask Prof. Smith."]),
        ("Wait...What is it? See e.g. Smith et al. 2020.", ["Wait...", "What is it?", "See e.g. Smith et al. 2020."]),
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


def test_a_sentence_across_two_windows_stays_whole():
    random.seed(0)
    sentences = [f"Предложение {'слово ' * random.randint(1, 60)}конец." for _ in range(300)]
    assert split_sentences(" ".join(sentences), "ru") == sentences


@pytest.mark.parametrize("unit", ["т.д. ", "a. ", "\n", "а\n", "«Да! ", "a.a.", "好。", "1. ", "слово ", '"', "5 г. "])
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
    code = "import sys, langchain_rageval.sentences; sys.exit('razdel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
