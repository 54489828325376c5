"""Splitting text into sentences: lines first, then razdel, then what razdel leaves out or overdoes.

A list, a table, a heading and a piece of code keep their lines apart; a line that only a page's width broke is joined
to the next. Source of the rules for prose: razdel 0.5, https://github.com/natasha/razdel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from langchain_rageval.language import FUNCTION_WORDS, detect_language

_FENCE = re.compile(r"\s*(```|~~~)")
_WHOLE_LINE = re.compile(r"\s*(?:#{1,6}\s|\||[-=*_|:+\s]{3,}$)|.*\s\|\s.*\s\|\s|.*\S\t.*\S\t")  # heading, rule, table
_LIST_ITEM = re.compile(r"\s*(?:[-*+•◦▪‣·–—]|--|\(?(?:\d{1,3}(?:\.\d{1,3})*|[ivxIVX]{1,4}|[a-zа-яё])[.)])\s+(?=\S)")
_FINISHED = re.compile(r"[.!?…:;。！？][»”’\"')\]]*$")
_GOES_ON = re.compile(r"[«„“\"'(\[]*[^\W\d_]")
_TAIL = 40  # characters at the end of a sentence that tell whether it is whole
_COLUMN = 40  # characters; no page is set narrower, so shorter lines were not broken by one

# razdel reads a sentence again for every mark in it, so it gets no more than this many characters at once;
# a longer run without white space holds no boundary that razdel could find.
_LONGEST = 4000
_WINDOW = re.compile(rf"\s?\S{{{_LONGEST},}}|.{{1,{_LONGEST}}}(?=\s|$)", re.DOTALL)

_CUTS = (
    r"[。！？｡][。！？｡”’」』）》】〉]*+(?![，、])",  # full-width marks need no space
    r"(?:(?<![아다지])니다|[습입합됩십]니까|[어아여해에예네군세까지]요|죠)~*\s+(?=[가-힣])",  # polite endings
    r"[.!?…](?<=[а-яё]{3}.)(?<![Пп]росп.)(?<![Пп]роф.)(?<![Аа]кад.)[.!?…]*+(?=[А-ЯЁ][а-яё])",  # a space was forgotten
    r"(?:\.(?<=[^\W\d_].)\.\.|…(?<=[^\W\d_].))(?=[A-ZА-ЯЁ][a-zа-яё])",
    r"\d\s?(?:см|р|с|стр)\.\s+(?=[А-ЯЁ])",  # a unit; without a number it stands before a name
    r":\s+(?=1[.)]\s+\S)",  # a list that begins within a line
)
# These end a sentence if a function word follows: "в 1799 г. Он", "vitamin D. It".
_AMBIGUOUS = r"(?:[\dIVXLC]\s?(?:гг?|вв?)|\b(?:долл|St)|(?<=[\s.])[A-ZА-ЯЁ])\.\s+"
_PARTICLES = "d da dal de dei del della der des di du el l la le lo los"  # of a name: "L. Di Maio"

# Abbreviations that razdel does not know and that stand before a name or a number.
_NEVER_LAST = {
    "ru": "табл илл разд прил подп вып наб бул мкр респ ген полк подполк лейт адм доц инж митр преп "
    "янв февр авг сент окт нояб дек",
    "en": "prof st sen rep gov gen rev col lt sgt capt messrs drs fig figs eq approx e.g i.e cf viz "
    "jan feb aug sept oct nov dec",
    "it": "sig sigg dott prof ing avv art artt pag pagg fig es",
    "de": "nr bzw ca z.b d.h u.a prof hr fr str bd vgl abb",
    "fr": "mm mme mlle me prof art fig env",
    "es": "sr sra sres dra prof ud uds núm pág art fig",
}
_UNENDED = (
    r"(?:[\dIVXLC]\s?(?:гг?|вв?)|\bдолл)\.\s*$",  # a year or a century, and no function word after it
    r"^[^\W\d_]+\.?\s[\d.]+\.\s*$",  # a label: "Статья 15.", "Fig. 2."
)
_SPEECH_ENDS = re.compile(r"[^«»“”]*[»”],?\s*[—–-]{0,2}\s*([^\W\d_])")


def split_sentences(text: str, language: str = "auto") -> list[str]:
    """Split a text into sentences; the rows of lists, tables and code count as sentences too.

    Args:
        text: plain text or Markdown.
        language: ISO 639-1 code: whose abbreviations and function words tell where a full stop ends a sentence;
            "auto" finds it out.

    Returns:
        The sentences in order, without white space around them. Together they hold every other character of the text;
        a line break within a sentence has become a space. Prose that has no end is cut at a white space at least every
        4000 characters. Empty text gives [].
    """
    rules = _rules(detect_language(text) if language == "auto" else language)
    sentences: list[str] = []
    for piece, prose in _pieces(text):
        if prose:
            marker = _LIST_ITEM.match(piece)
            body = marker.end() if marker else 0
            first, *others = _prose_sentences(piece[body:], rules)
            sentences += [piece[:body] + first, *others]
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces that hold whole sentences, each with whether it is prose, to be split further."""
    paragraph: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = bool(_FENCE.match(line))
        whole = fenced or fence or bool(_WHOLE_LINE.match(line))
        fenced ^= fence
        if paragraph and (whole or not line.strip() or _LIST_ITEM.match(line)):
            yield from ((piece, True) for piece in _unwrapped(paragraph))
            paragraph = []
        if whole:
            yield line, False
        elif line.strip():
            paragraph.append(line.strip())
    yield from ((piece, True) for piece in _unwrapped(paragraph))


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """Join the lines that only the width of a page broke; one that goes on in lower case betrays such a page."""
    wrapped = any(_runs_on(line, below) for line, below in pairwise(lines))
    width = max(map(len, lines), default=0)
    piece: list[str] = []
    for line, below in pairwise([*lines, ""]):
        piece.append(line)
        full = wrapped and width >= _COLUMN and len(line) + 1 + len(below.partition(" ")[0]) > width
        if not below or not (_runs_on(line, below) or full):
            yield " ".join(piece)
            piece = []


def _runs_on(line: str, below: str) -> bool:
    start = _GOES_ON.match(below)
    return start is not None and start[0][-1].islower() and not _FINISHED.search(line[-20:])


def _prose_sentences(text: str, rules: _Rules) -> Iterator[str]:
    start = 0
    while window := _WINDOW.match(text, start):
        sentences = _window_sentences(window[0], rules)
        start = window.end()
        if start < len(text) and len(sentences) > 1:
            start -= len(sentences.pop())  # the window may have cut it
        yield from sentences


def _window_sentences(window: str, rules: _Rules) -> list[str]:
    """Split at the marks that razdel misses, then by razdel; the parts hold all of the window, white space too."""
    ends = [0, *(match.end() for match in rules.cut.finditer(window)), len(window)]
    parts = [window[start:end] for start, end in pairwise(ends)]
    return [sentence for part in parts for sentence in _mended(_razdel(part), rules.unended)]


def _razdel(text: str) -> list[str]:
    from razdel import sentenize

    if len(text) > _LONGEST + 1:
        return [text]
    starts = [sentence.start for sentence in sentenize(text)][1:]
    return [text[start:end] for start, end in pairwise([0, *starts, len(text)])]


def _mended(parts: list[str], unended: re.Pattern[str]) -> list[str]:
    """Join what razdel took apart: an abbreviation and its name, a quotation and the words on who said it."""
    sentences: list[str] = []
    quoted: int | None = None  # the sentence in which a quotation began that has not ended
    for part in parts:
        speech = _SPEECH_ENDS.match(part)
        if quoted is not None and speech and speech[1].islower():
            sentences[quoted:] = ["".join(sentences[quoted:]) + part]
        elif sentences and unended.search(sentences[-1], max(0, len(sentences[-1]) - _TAIL)):
            sentences[-1] += part
        else:
            sentences.append(part)
        opened, closed = (max(map(part.rfind, marks)) for marks in ("«“", "»”"))
        if opened > closed:
            quoted = len(sentences) - 1
        elif closed >= 0:
            quoted = None
    return sentences


class _Rules(NamedTuple):
    cut: re.Pattern[str]  # a sentence ends where it matches to
    unended: re.Pattern[str]  # what it is found in is no whole sentence


@cache
def _rules(language: str) -> _Rules:
    words = FUNCTION_WORDS.get(language, frozenset()) - set(_PARTICLES.split())
    starters = "|".join(sorted(word.capitalize() for word in words))
    ambiguous = rf"{_AMBIGUOUS}(?=(?:{starters})\b(?!\.))" if starters else "(?!)"
    abbreviations = "|".join(map(re.escape, _NEVER_LAST.get(language, "").split()))
    if not abbreviations:
        return _Rules(re.compile("|".join([*_CUTS, ambiguous])), re.compile("|".join(_UNENDED)))
    after = "|".join(rf"(?<=\s(?i:{re.escape(word)}))" for word in _NEVER_LAST[language].split())
    reference = rf"(?=\.\s?\d)(?:{after})\.\s?\d+\.\s+(?=[A-ZА-ЯЁ])"  # razdel takes "4. It" for a list item
    abbreviated = rf"(?<![^\W\d_])(?i:{abbreviations})\.\s*$"
    return _Rules(re.compile("|".join([*_CUTS, ambiguous, reference])), re.compile("|".join([*_UNENDED, abbreviated])))
