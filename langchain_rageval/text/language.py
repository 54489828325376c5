"""Language of a text, by script and function words, and of an HTML page, by that of the questions on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from langchain_rageval._internal.page import PageLanguage, check_page_language

_SAMPLE = 2000  # leading characters that are analysed

FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "a an the and or but of to in on at by for with from as is are was were be been it its this that these "
        "those he she they we you i his her their our your what which who when where why how do does did can "
        "could will would should has have had not no if there than then so also after before while however",
        "ru": "и в во не на я он она оно они мы вы ты с со как а то это этот эта эти что чтобы кто где когда почему "
        "зачем какой какая какое какие какого каком каким каких какую каков такое такой сколько чем чего к ко у "
        "же но да по за из из-за о об от до для при его её их был была было были есть ли или если так также там "
        "тогда затем потом однако поэтому после перед кроме между без под над через все всё нет нужно можно мне "
        "нам тем том",
        "uk": "і й та в у не на що як це цей ця ці чи хто де коли чому навіщо який яка яке які таке такий скільки від "
        "до із з за про для при його її їх був була було були є або якщо так також після перед але тому щоб він "
        "вона вони",
        "be": "і й ды ў у не на што як гэта гэты гэтая ці хто дзе калі чаму навошта які якая якое якія такое такі "
        "колькі ад да з за пра для пры яго яе іх быў была было былі ёсць або калі так таксама пасля але каб ён "
        "яна яны",
        "bg": "и в във не на аз той тя то те ние вие с със как а това този тази тези какво що че кой кое коя кои къде "
        "кога защо колко по за из от до при е са си се да ще беше бил или ако така също след преди но му го им "
        "има",
        "kk": "және мен пен бен бұл ол осы сол не неге қалай қандай қайда қашан кім қанша үшін деген деп бар жоқ емес "
        "болып болды болған туралы арқылы бойынша кейін дейін ма ме ба бе па пе да де та те сондай бірақ егер",
        "it": "il lo la i gli le un uno una l d di del della dei delle dello da dal dalla in nel nella con su sul "
        "sulla per tra fra e ed o ma che chi cosa cos è come dove quando perché quale quali quanto sono era non si ha "
        "hanno questo questa anche più al alla ai se",
        "de": "der die das den dem des ein eine einen einem einer und oder aber von vom zu zum zur in im an am auf für "
        "mit aus bei nach ist sind war waren wird werden nicht es er sie wir ihr ich was wer wie wo wann warum "
        "welche welcher welches hat haben sich auch als dass",
        "fr": "le la les un une des l d du de et ou mais à au aux en dans par pour sur avec sans est sont était ce "
        "cette ces qu que qui quoi quel quelle quels quelles où quand comment pourquoi il elle ils nous vous je "
        "ne pas se sa son plus",
        "es": "el la los las un una unos unas de del y e o pero a al en por para con sin sobre es son era está qué que "
        "quién cómo dónde cuándo cuál cuáles cuánto por no se su sus lo más también como este esta",
    }.items()
}
"""Lower-case function words of each language, by ISO 639-1 code."""

_LANGUAGES_OF: dict[str, list[str]] = {}  # function word to the languages that use it
for _language, _words in FUNCTION_WORDS.items():
    for _word in _words:
        _LANGUAGES_OF.setdefault(_word, []).append(_language)


class _Script(NamedTuple):
    """Patterns of one script: its words, and per language the letters or particles that count like function words."""

    words: re.Pattern[str]
    marks: dict[str, re.Pattern[str]]


_SCRIPTS = {  # keyed by the language that is assumed if only the script is known
    "en": _Script(re.compile("[a-zß-öø-˿ḁ-ỹ]+"), {}),
    "ru": _Script(
        re.compile("[а-ӿ]+"),
        {"uk": re.compile("[іїєґ]"), "be": re.compile("[іў]|ць|дз"), "kk": re.compile("[әғқңөұүһі]")},
    ),
    "ko": _Script(
        re.compile("[가-힣]+"),
        {"ko": re.compile("(?:은|는|을|를|이|가|에|의|로|란|다|요|까|나|뭐|무엇|어떻게)(?![가-힣])")},
    ),
    "ja": _Script(re.compile("[ぁ-ゖァ-ヺ]+"), {"ja": re.compile("[ぁ-ゖ]")}),
    "zh": _Script(
        re.compile("[一-鿿㐀-䶿]+"), {"zh": re.compile("[的是了在和吗呢不有与为]|什么|什麼|怎么|怎麼|哪|何|谁|誰|多少")}
    ),
}
_SCRIPT_OF = dict.fromkeys(("uk", "be", "bg", "kk"), "ru") | dict.fromkeys(("it", "de", "fr", "es"), "en")
_LANGUAGES = ("en", "ru", "uk", "be", "bg", "kk", "it", "de", "fr", "es", "ko", "ja", "zh")
_EASTERN = re.compile("[ぁ-힣]")  # Korean, Japanese, Chinese


def detect_language(text: str) -> str:
    """Return the language of a text; works for short questions that contain foreign terms.

    Args:
        text: plain text; only the first 2000 characters are analysed.

    Returns:
        ISO 639-1 code: en, ru, uk, be, bg, kk, it, de, fr, es, ko, ja or zh. "en" if the text has no letters of a known
        script, such as "" or "12 + 3".
    """
    return _detected(text[:_SAMPLE])


@lru_cache(maxsize=1024)  # every step and metric of a sample needs the language of the same question
def _detected(text: str) -> str:
    sample = text.lower()
    evidence = dict.fromkeys(_LANGUAGES, 0)  # number of function words and marks
    letters = dict.fromkeys(_SCRIPTS, 0.0)
    for language in _possible_scripts(sample):
        script = _SCRIPTS[language]
        words = script.words.findall(sample)
        letters[language] = len("".join(words))
        for word in words:
            for with_language in _LANGUAGES_OF.get(word, ()):
                evidence[with_language] += 1
        if words:
            for marked, marks in script.marks.items():
                evidence[marked] += len(marks.findall(sample))
    letters["en"] /= 2  # texts in every language contain Latin terms

    def likelihood(language: str) -> tuple[int, float, bool]:
        return evidence[language], letters[_SCRIPT_OF.get(language, language)], language in _SCRIPTS

    return max(_LANGUAGES, key=likelihood)


def _possible_scripts(sample: str) -> Iterable[str]:
    """Return the keys of the scripts that a lower-case text may contain; avoids searching for the others."""
    if sample.isascii():
        return ["en"]
    return _SCRIPTS if _EASTERN.search(sample) else ["en", "ru"]


_QUESTIONS = 200
"""Number of questions whose language is detected."""


def page_language(language: PageLanguage, questions: Iterable[str]) -> str:
    """Return "en" or "ru": a language as it is; for "auto" "ru" if most of the first 200 questions are Russian.

    Raises:
        ConfigError: if the language is not one of `PageLanguage`.
    """
    check_page_language(language)
    if language != "auto":
        return language
    languages = Counter(map(detect_language, islice(questions, _QUESTIONS)))
    return "ru" if languages and languages.most_common(1)[0][0] == "ru" else "en"
