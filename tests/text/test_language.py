"""Language of a text and of a page."""

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError
from langchain_rageval.text.language import _SCRIPT_OF, _SCRIPTS, FUNCTION_WORDS, detect_language, page_language

QUESTIONS = {
    "ru": ["Что такое RAG pipeline?", "Кто написал War and Peace?", "Столица Франции?", "Сколько стоит iPhone 15?"],
    "uk": ["Що таке штучний інтелект?", "Де знаходиться Київ?", "Столиця України?"],
    "be": ["Што такое інтэлект?", "Дзе знаходзіцца Мінск?"],
    "bg": ["Какво е изкуствен интелект?", "Къде се намира София?"],
    "kk": ["Қазақстанның астанасы қайда?", "RAG деген не?"],
    "en": ["What is Москва?", "What is 東京大学?", "When did WWII end?", "", "12 + 3", "🙂", "RAG"],
    "it": ["Dov'è la stazione?", "Qual è la capitale d'Italia?", "Quando è nato Dante?"],
    "de": ["Wo ist der Bahnhof?", "Wer hat Faust geschrieben?"],
    "fr": ["Qu'est-ce que le RAG ?", "Quand est né Molière ?"],
    "es": ["¿Qué es RAG?", "¿Cuándo nació Cervantes?"],
    "ko": ["한국의 수도는?", "LangChain에서 retriever란 무엇인가요?", "서울"],
    "ja": ["東京はどこですか", "カタカナ"],
    "zh": ["北京在哪里？", "什么是 LangChain retriever?", "北京"],
}  # fmt: skip


@each(("language", "question"), [(code, text) for code, texts in QUESTIONS.items() for text in texts])
def test_a_question_is_in_the_language_of_its_function_words(language, question):
    assert detect_language(question) == language


@given(st.text())
def test_every_text_has_one_of_the_known_languages(text):
    assert detect_language(text) in QUESTIONS


@given(st.text())
def test_only_the_beginning_of_a_text_counts(tail):
    beginning = "Что это такое и зачем? " * 100
    assert detect_language(beginning + tail) == "ru"


@pytest.mark.parametrize("language", _SCRIPTS)
def test_a_text_is_searched_for_every_script_that_it_may_hold(language):
    letters = [chr(code) for code in range(0x10000) if _SCRIPTS[language].words.fullmatch(chr(code))]
    assert letters
    found = {letter: detect_language(letter) for letter in letters}
    assert [letter for letter in letters if _SCRIPT_OF.get(found[letter], found[letter]) != language] == []


@each(("language", "marked"), [(language, marked) for language, script in _SCRIPTS.items() for marked in script.marks])
def test_the_marks_of_a_language_are_letters_of_its_script(language, marked):
    marks = _SCRIPTS[language].marks[marked]
    outside = (chr(code) for code in range(0x10000) if not _SCRIPTS[language].words.fullmatch(chr(code)))
    assert marks.search("".join(outside)) is None


def test_every_function_word_is_a_word_of_its_languages_script():
    for language, words in FUNCTION_WORDS.items():
        script = _SCRIPTS[_SCRIPT_OF.get(language, language)]
        assert [word for word in words if not script.words.fullmatch(word) and "-" not in word] == []


@pytest.mark.parametrize(
    ("text", "language"), [("daß groß", "en"), ("[ˈdeɪvɪd ˈrɒbət]", "en"), ("Trụ sở không ở đâu", "en")]
)
def test_a_word_is_not_cut_at_its_rarer_letters(text, language):
    assert detect_language(text) == language


RUSSIAN, ENGLISH, GERMAN = "Когда основан Мюнхен?", "When was Munich founded?", "Wann wurde die Stadt gegründet?"


@pytest.mark.parametrize(
    ("questions", "language"),
    [([RUSSIAN, RUSSIAN, ENGLISH], "ru"), ([ENGLISH, ENGLISH, RUSSIAN], "en"), ([GERMAN], "en"), ([], "en")],
)
def test_it_is_that_of_most_questions(questions, language):
    assert page_language("auto", questions) == language


def test_it_can_be_chosen():
    assert page_language("ru", [ENGLISH]) == "ru"
    with pytest.raises(ConfigError, match="language must be one of auto, en, ru, got 'de'"):
        page_language("de", [])
