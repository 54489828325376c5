"""Texts: their language, sentences in hard cases and treebanks, words, and what two texts have in common."""

import gzip
import json
import random
import subprocess
import sys
import time
import unicodedata
from itertools import accumulate

import pytest
from helpers.each import each, error_of
from helpers.stored import FIXTURES, fixture_data
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError
from langchain_rageval.text.language import _SCRIPT_OF, _SCRIPTS, FUNCTION_WORDS, detect_language, page_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import common_share, content_words, normalize_text, shared_share, tokens_of, words_of

# Language

QUESTIONS = {
    "ru": ["Что такое RAG pipeline?", "Кто написал War and Peace?", "Столица Франции?", "Сколько стоит iPhone 15?"],
    "uk": ["Що таке штучний інтелект?", "Де знаходиться Київ?", "Столиця України?"],
    "be": ["Што такое інтэлект?", "Дзе знаходзіцца Мінск?"],
    "bg": ["Какво е изкуствен интелект?", "Къде се намира София?"],
    "kk": ["Қазақстанның астанасы қайда?", "RAG деген не?"],
    "en": [*("What is Москва?", "What is 東京大学?", "When did WWII end?", "", "12 + 3", "🙂", "RAG"),
           *("daß groß", "[ˈdeɪvɪd ˈrɒbət]", "Trụ sở không ở đâu")],  # words are not cut at their rarer letters
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


ASKED = {"ru": "Когда основан Мюнхен?", "en": "When was Munich founded?", "de": "Wann wurde die Stadt gegründet?"}


@each(
    ("of_questions", "language"), [(["ru", "ru", "en"], "ru"), (["en", "en", "ru"], "en"), (["de"], "en"), ([], "en")]
)
def test_the_language_of_a_page_is_that_of_most_questions_or_the_chosen_one(of_questions, language):
    questions = [ASKED[one] for one in of_questions]
    assert (page_language("auto", questions), page_language("ru", questions)) == (language, "ru")
    assert "language must be one of auto, en, ru, got 'de'" in str(
        error_of(ConfigError, page_language, "de", questions)
    )


# Sentences

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


SPLIT = [
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
    ("It was No. 50; Kesha left (b. 1987; US). She sang.", ["It was No. 50; Kesha left (b. 1987; US).", "She sang."]),
    ("Parla L. Di Maio. Poi il sig. Rossi.", ["Parla L. Di Maio.", "Poi il sig. Rossi."]),
]


@each(("text", "sentences"), SPLIT)
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


# Words

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ёЁеЕйїéИи\u0301\u0308\u0306 \n\u00a0ßİ"))


EQUAL = [("ЁЛКА", "елка"), ("е\u0308лка", "ёлка"), ("Е\u0308лка", "елка"), ("всё\u0301", "все"), ("Ї\u0301", "ї")]
EQUAL += [("a\u00a0 b\n\tc\u3000d", " a b c d "), ("Straße", "STRASSE"), ("cafe\u0301", "CAFÉ")]


@each(("one", "other"), EQUAL)
def test_these_are_equal_after_normalization(one, other):
    assert normalize_text(one) == normalize_text(other)


@each(("one", "other"), [("й", "и"), ("ї", "і"), ("é", "e"), ("a.", "a"), ("a b", "ab"), ("ё", "о")])
def test_these_differ_after_normalization(one, other):
    assert normalize_text(one) != normalize_text(other)


@given(TEXTS)
def test_normalizing_twice_changes_nothing(text):
    assert normalize_text(normalize_text(text)) == normalize_text(text)


@given(TEXTS)
def test_neither_form_nor_white_space_around_matters(text):
    forms = {normalize_text(unicodedata.normalize(form, f" {text}\n")) for form in ("NFC", "NFD")}
    assert forms == {normalize_text(text)}


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_in_european_alphabets_case_does_not_matter(text):
    assert normalize_text(text.casefold()) == normalize_text(text)


WORDS = [
    (tokens_of, "полис № 5, «елка»", ["полис", "5", "елка"]),
    (tokens_of, "re-check 3.5%", ["re", "check", "3", "5"]),
    (tokens_of, "东京塔 tokyo 1958年", ["东", "京", "塔", "tokyo", "1958", "年"]),
    (tokens_of, "서울은", ["서", "울", "은"]),
    (tokens_of, "a_b", ["a", "b"]),
    # in lower case, without stress marks
    (words_of, "Ещё ЁЛКА, 3 шт.", ["еще", "елка", "3", "шт"]),
    (words_of, "за\u0301мок a_b", ["замок", "a", "b"]),
    (words_of, "東京 Straße", ["東京", "straße"]),
    # stems, without function words and short words
    (content_words, "Munich was founded in 1158, on the Isar.", {"munic", "found", "1158", "isar"}),
    (content_words, "Мюнхен основан в 5 веке.", {"мюнхе", "основ", "5", "веке"}),
    (content_words, "慕尼黑", {"慕", "尼", "黑"}),
    (content_words, "It is, or he was.", set()),
]


@each(("words", "text", "expected"), WORDS)
def test_tokens_words_and_content_words_of_every_script(words, text, expected):
    assert words(text) == expected


@given(TEXTS)
def test_every_letter_and_digit_is_in_a_word(text):
    found = "".join(tokens_of(text))
    assert [char for char in found if char.isalnum()] == [char for char in text if char.isalnum()]


WHOLE = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе до первого марта."


SHARES = [
    (WHOLE, WHOLE, 1.0),
    (WHOLE, WHOLE[10:40], 1.0),
    (WHOLE, f"Заголовок страницы\n\n{WHOLE.upper()}".replace(" ", "\n"), 1.0),
    (WHOLE, "", 0.0),
    (WHOLE, "Взнос платят раз в год, и никак не чаще, чем об этом сказано в самом уставе.", 0.0),
    ("дня", "после двух дней", 0.0),
    ("дней", "после двух дней", 1.0),
]


@each(("one", "other", "share"), SHARES)
def test_the_share_of_the_shorter_text_ignores_white_space_and_letter_case(one, other, share):
    assert shared_share(one, other) == shared_share(other, one) == share


def test_a_text_that_is_cut_shares_the_part_that_is_left():
    letters = "".join(chr(0x4E00 + number) for number in range(200))
    assert shared_share(letters[:100], letters[40:160]) == 0.6
    assert shared_share(letters[:100], letters[90:160]) == 0.0  # a run of ten characters may be a coincidence


PATTERNS = [
    ("The capital of country 17 is city 17.", "The capital of country 12 is city 12."),
    (
        "Document 5: the warranty of product 5 lasts 15 months and covers water damage.",
        "Document 7: the warranty of product 7 lasts 17 months and covers water damage.",
    ),
    (
        "Тариф «Дача» стоит 450 рублей в месяц, подключение по оптике занимает 5 рабочих дней.",
        "Тариф «Премиум» стоит 900 рублей в месяц, подключение по оптике занимает 2 рабочих дня.",
    ),
]


@pytest.mark.parametrize(("one", "other"), PATTERNS)
def test_texts_of_one_pattern_have_nothing_in_common(one, other):
    assert shared_share(one, other) > 0.5
    assert common_share(one, other) == common_share(other, one) == 0.0


CHUNKS = [
    WHOLE[13:60],
    f"Правила. Раздел 3, страница 14. {WHOLE[13:]}",
    f"{WHOLE[20:]} Взнос платят раз в год, и никак не чаще.",
    WHOLE.replace("ждать", "ожидать"),
    WHOLE.replace("больше пяти", "**больше** (пяти)"),
]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_part_of_a_text_is_common_to_both_with_what_stands_around_it(chunk):
    other = f"Как поступают с домом и с баней. {WHOLE} Об отказе пишут отдельно."
    assert common_share(chunk, other) == common_share(other, chunk) == shared_share(chunk, other) > 0.5
