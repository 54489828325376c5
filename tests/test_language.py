import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.language import _MARKS, _SCRIPTS, detect_language

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


@pytest.mark.parametrize(
    ("language", "question"), [(code, text) for code, texts in QUESTIONS.items() for text in texts]
)
def test_a_question_is_in_the_language_of_its_function_words(language, question):
    assert detect_language(question) == language


@given(st.text())
def test_every_text_has_one_of_the_known_languages(text):
    assert detect_language(text) in QUESTIONS


@given(st.text())
def test_only_the_beginning_of_a_text_counts(tail):
    beginning = "Что это такое и зачем? " * 100
    assert detect_language(beginning + tail) == "ru"


@pytest.mark.parametrize("letters", [*_MARKS.values(), *_SCRIPTS.values()], ids=[*_MARKS, *_SCRIPTS])
def test_no_pattern_finds_anything_among_letters_below_its_lowest(letters):
    lower = "".join(map(chr, range(ord(letters.lowest))))
    assert not letters.pattern.search(lower)
    assert letters.pattern.search(letters.lowest + "з")  # "дз" is one of the patterns
