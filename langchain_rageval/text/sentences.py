"""Splitting text into sentences: lines first, then razdel, then what razdel leaves out or overdoes.

A list, a table, a heading and a piece of code keep their lines apart; a line that only a page's width broke is joined
to the next. Source of the rules for prose: razdel 0.5, https://github.com/natasha/razdel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from langchain_rageval._internal.cached import locked_cache
from langchain_rageval.text.language import FUNCTION_WORDS, detect_language

_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\||[-=*_|:+\s]{3,}$)")  # or a rule
_ROW = re.compile(r".*\s\|\s.*\s\|\s|[^(]*\s\|\s|.*\S\t.*\S\t")  # of a table
_LIST_ITEM = re.compile(r"\s*(?:[-*+•◦▪‣·–—]|--|\(?(?:\d{1,3}(?:\.\d{1,3})*|[ivxIVX]{1,4}|[a-zа-яё])[.)])\s+(?=\S)")
_FINISHED = re.compile(r"[.!?…:;。！？][»”’\"')\]]*$")
_GOES_ON = re.compile(r"[«„“\"'(\[]*[^\W\d_]")
_TAIL = 40  # characters at the end of a sentence that tell whether it is whole
_ENTRY = 400  # characters; a longer line that ends with the pages of a book is prose that cites it
_COLUMN = 40  # characters; no page is set narrower, so shorter lines were not broken by one

# razdel reads a sentence again for every mark in it, so it gets no more than this many characters at once;
# a longer run without white space holds no boundary that razdel could find.
_LONGEST = 4000
_WINDOW = re.compile(rf"\s?\S{{{_LONGEST},}}|.{{1,{_LONGEST}}}(?=\s|$)", re.DOTALL)

# razdel finds a boundary nowhere else: behind a mark, before a white space that no word in lower case follows
_SPACED = r"(?=\s+\S)(?!\s[a-zа-яё]+[\s.,])"
_BOUNDARY = re.compile(rf"[.?!…;\"„'»”’)\]}}(]{_SPACED}")

_SURNAME = re.compile(
    r"[^.!?…]\s[А-ЯЁ][а-яё]+(?:[оеё]в|[иы]н|[сц]к|ко|[уюя]к|ич|ян)(?:ий|ая|ого|ой|ым|[аыуе])?\s[А-ЯЁ]\.\s?[А-ЯЁ]\.$"
)
_YEAR = re.compile(r"(?:\d{4}|\b(?:[вксВКС]|до|от|после|около)\s\d{3})\s?г\.$")
_EMOJI = "\u2639\u263a\u2764\ufe0f\u200d\U0001f300-\U0001faff"


def _after(*endings: str) -> str:
    """Just behind any of these; each has a fixed width."""
    return "(?:" + "|".join(f"(?<={ending})" for ending in endings) + ")"


# A sentence ends where one of these matches to. All of them begin behind its mark or the last syllable of its verb:
# a pattern that begins with a set of characters passes over the rest of the text quickly.
_MARK = rf"[.!?…。！？｡:)다까요죠{_EMOJI}]"
_CUTS = (
    r"(?<=[。！？｡])[。！？｡”’」』）》】〉]*+(?![，、])",  # full-width marks need no space
    # polite endings
    r"(?:(?<=니다)(?<![아다지]니다)|(?<=[습입합됩십]니까)|(?<=[어아여해에예네군세까지]요)|(?<=죠))~*\s+(?=[가-힣])",
    r"(?<=[а-яё]{3}[.!?…])(?<![Пп]росп.)(?<![Пп]роф.)(?<![Аа]кад.)[.!?…]*+(?=[А-ЯЁ][а-яё])",  # a space was forgotten
    r"(?:(?<=[^\W\d_]\.)\.\.|(?<=[^\W\d_]…))(?=[A-ZА-ЯЁ][a-zа-яё])",
    r"(?<=:)\s+(?=1(?:\.\s+\S|\)\s+[A-ZА-ЯЁ]))",  # a list that begins within a line
    _after(*(f"{before}{unit}\\." for unit in ("см", "р", "с", "ч", "стр") for before in (r"\d", r"\d\s", "/")))
    + r"\s+(?=[А-ЯЁ])",  # a unit; without a number it stands before a name
    _after(r"тыс\. стр\.", r"рт\. ст\.", r"°[CСFФ]\.") + r"\s+(?=[A-ZА-ЯЁ])",
    r"(?<=[.!?…])(?:(?:\[[^\s\[\]]{1,20}\])+|\*\*?)\s+(?=[«“\"A-ZА-ЯЁ])",  # a footnote's mark, the end of bold type
    _after(rf"[\w.!?…)][{_EMOJI}]", rf"[\w.!?…)]\s[{_EMOJI}]") + rf"[{_EMOJI}]*\s+(?=[@A-ZА-ЯЁ])",
)
# These end a sentence if a function word follows: "в 1799 г. Он", "vitamin D. It".
_AMBIGUOUS = (
    _after(
        *(
            rf"{number}{space}{word}\."
            for word in ("г", "гг", "в", "вв")
            for number in (r"[\dIVXLC]", "-[а-яё]")
            for space in ("", r"\s")
        ),
        r"\bSt\.",
        r"[\s.][A-ZА-ЯЁ]\.",
    )
    + r"\s+"
)
# These end a sentence if `_holds` agrees.
_DOUBTFUL = (
    r"(?P<smile>(?<=\w\))\)+)\s+(?=[@A-ZА-ЯЁ])",
    "(?P<grams>" + _after(r"\dг\.", r"\d\sг\.") + r")\s+(?=[А-ЯЁ])",
    "(?P<initials>" + _after(r"[а-яё]\s[А-ЯЁ]\.[А-ЯЁ]\.", r"[а-яё]\s[А-ЯЁ]\.\s[А-ЯЁ]\.") + r")\s+(?=[А-ЯЁ][а-яё])",
)
# Words that begin a sentence also where nobody cares for capitals: "call them. they will answer"
_SUBJECTS = {"en": "i i'm i've i'd i'll it it's they they're he he's she she's we we're you you're"}
_PARTICLES = "d da dal de dei del della der des di du el l la le lo los"  # of a name: "L. Di Maio"
_STARTERS = {
    "ru": "ему ей им ими них нему ней ним меня мной тебя вас нас свой свои каждый теперь здесь лишь только уже ещё "
    "даже именно например сейчас сегодня позже ранее далее"
}

# Abbreviations that razdel does not know and that stand before a name or a number.
_NEVER_LAST = {
    "ru": "табл илл разд прил подп вып наб бул мкр респ ген полк подполк лейт адм доц инж митр преп "
    "янв февр апр авг сент окт нояб дек доб дер макс",
    "en": "prof st sen rep gov gen rev col lt sgt capt messrs drs fig figs eq approx e.g i.e cf viz "
    "jan feb aug sept oct nov dec",
    "it": "sig sigg dott prof ing avv art artt pag pagg fig es",
    "de": "nr bzw ca z.b d.h u.a prof hr fr str bd vgl abb",
    "fr": "mm mme mlle me prof art fig env",
    "es": "sr sra sres dra prof ud uds núm pág art fig",
}
# A sentence goes on where one of these matches, behind the NUL that stands where razdel would end it.
_UNENDED = (
    _after(
        *(
            rf"{number}{space}{word}\.\0"  # a year or a century, and no function word after it
            for number in (r"[\dIVXLC]", r"\d-[а-яё]", r"\d-[а-яё]{2}")
            for space in ("", r"\s")
            for word in ("[гв]", "(?:гг|вв)")
        )
    ),
    r"(?<=\bдолл\.\0)(?:США|Канад|Австрал|Гонконг|Сингапур)",
    r"(?<=;\0)",
    r"(?<=\.\0)№",
    r"(?<=[»”\"]\0)[(\[][a-zа-яё\d]",  # the source of a quotation
    r"[\W_]*$",
)
_LABEL = re.compile(r"[^\W\d_]+\.?\s(?:[\d.]+|[IVXLC]+)\.\s*")  # "Статья 15.", "Fig. 2."
# the quotation ends and its sentence goes on, or words on who said it interrupted it
_SPEECH_GOES_ON = re.compile(r"[^«»“”]*[»”],?\s*[—–-]{0,2}\s*[a-zа-яё]|\s*[—–-]{1,2}\s[^«»“”]*[»”]")
_PAIRED = re.compile(r"[«»“”()\[\]]")
_BRACKET_ENDS = re.compile(r"[^()\[\]]*(?:[^.!?…()\[\]][)\]]|[)\]]\s*[,;:—–-]?\s*[a-zа-яё])")
# the end of an entry in a bibliography: "1994. — 399 с.", "№ 4. С. 12–18."
_PAGES = re.compile(r"\d\.\s(?:[—–-]\s)?(?:\d+\s?[сpS]|(?:[СCSPp]|pp)\.\s?\d+(?:\s?[–—-]\s?\d+)?)\.?$")


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
        if prose and not (len(piece) <= _ENTRY and _PAGES.search(piece[-_TAIL:])):
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
        whole = fenced or fence or _stands_alone(line)
        fenced ^= fence
        if paragraph and (whole or not line.strip() or _LIST_ITEM.match(line)):
            yield from ((piece, True) for piece in _unwrapped(paragraph))
            paragraph = []
        if whole:
            yield line, False
        elif line.strip():
            paragraph.append(line.strip())
    yield from ((piece, True) for piece in _unwrapped(paragraph))


def _stands_alone(line: str) -> bool:
    return bool(_HEADING.match(line)) or (("|" in line or "\t" in line) and bool(_ROW.match(line)))


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """Join the lines that only the width of a page broke; one that goes on in lower case betrays such a page."""
    if len(lines) == 1:
        yield lines[0]
        return
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
    ends = [0, *(match.end() for match in rules.cut.finditer(window) if _holds(match)), len(window)]
    parts = [window[start:end] for start, end in pairwise(ends)]
    return [sentence for part in parts for sentence in _mended(_razdel(part), rules.unended)]


def _razdel(text: str) -> list[str]:
    if len(text) > _LONGEST + 1 or not _BOUNDARY.search(text):
        return [text]
    starts = [sentence.start for sentence in _sentenize()(text)][1:]
    return [text[start:end] for start, end in pairwise([0, *starts, len(text)])]


@cache
def _sentenize() -> Callable[[str], Iterable[Any]]:
    """razdel, but looking only at the marks where it could find a boundary."""
    from razdel.segmenters.sentenize import DELIMITER, RULES, SentSegmenter, SentSplitter

    splitter = SentSplitter(pattern=DELIMITER + _SPACED)
    return SentSegmenter(splitter, [rule.function for rule in RULES])  # type: ignore[no-any-return]


def _holds(match: re.Match[str]) -> bool:
    """Whether a cut is right that depends on more than a pattern sees from where it begins."""
    kind = match.lastgroup
    if kind is None:
        return True
    if kind == "smile":
        return match.string.count("(", 0, match.end()) < match.string.count(")", 0, match.end())
    before = match.string[max(0, match.end(kind) - _TAIL) : match.end(kind)]
    return bool(_SURNAME.search(before)) if kind == "initials" else not _YEAR.search(before)


def _mended(parts: list[str], unended: re.Pattern[str]) -> list[str]:
    """Join what razdel took apart: an abbreviation and its name, a quotation and the words on who said it."""
    sentences: list[str] = []
    quoted: int | None = None  # the sentence in which a quotation began that has not ended
    bracketed: int | None = None  # the same of a bracket
    for part in parts:
        if quoted is not None and _SPEECH_GOES_ON.match(part):
            sentences[quoted:] = ["".join(sentences[quoted:]) + part]
        elif bracketed is not None and len(sentences) - bracketed < 4 and _BRACKET_ENDS.match(part):
            sentences[bracketed:] = ["".join(sentences[bracketed:]) + part]
        elif sentences and _goes_on(sentences[-1], part, unended):
            sentences[-1] += part
        else:
            sentences.append(part)
        if _PAIRED.search(part):
            quoted = _left_open(part, "«“", "»”", quoted, len(sentences) - 1)
            bracketed = _left_open(part, "([", ")]", bracketed, len(sentences) - 1)
    return sentences


def _left_open(part: str, opening: str, closing: str, before: int | None, here: int) -> int | None:
    """The index of the sentence with the opening mark that no closing one has followed, up to the one `here`."""
    opened, closed = (max(map(part.rfind, marks)) for marks in (opening, closing))
    if opened > closed:
        return here
    return min(before, here) if before is not None and closed < 0 else None


def _goes_on(left: str, right: str, unended: re.Pattern[str]) -> bool:
    """Whether the end of one sentence and the beginning of the next belong together."""
    if len(left) <= _TAIL and _LABEL.fullmatch(left):
        return True
    return unended.search(f"{left[-_TAIL:].rstrip()}\0{right[:_TAIL]}") is not None


class _Rules(NamedTuple):
    cut: re.Pattern[str]  # a sentence ends where it matches to
    unended: re.Pattern[str]  # what it is found in is no whole sentence


@locked_cache
def _rules(language: str) -> _Rules:
    words = {*FUNCTION_WORDS.get(language, ()), *_STARTERS.get(language, "").split()} - set(_PARTICLES.split())
    starters = "|".join(sorted(word.capitalize() for word in words))
    ambiguous = rf"{_AMBIGUOUS}(?=(?:{starters})\b(?!\.))" if starters else "(?!)"
    uncapitalised = _uncapitalised(language) if language in _SUBJECTS else "(?!)"
    abbreviations = [rf"(?i:{re.escape(word)})\." for word in _NEVER_LAST.get(language, "").split()]
    if not abbreviations:
        return _Rules(_beginning_with_a_mark([*_CUTS, ambiguous, uncapitalised, *_DOUBTFUL]), _behind_nul(_UNENDED))
    after = _after(*(rf"\s{abbreviation}" for abbreviation in abbreviations))
    reference = rf"(?=\s?\d){after}\s?\d+\.\s+(?=[A-ZА-ЯЁ])"  # razdel takes "4. It" for a list item
    abbreviated = _after(*(rf"(?<![^\W\d_]){abbreviation}\0" for abbreviation in abbreviations))
    return _Rules(
        _beginning_with_a_mark([*_CUTS, ambiguous, uncapitalised, reference, *_DOUBTFUL]),
        _behind_nul([*_UNENDED, abbreviated]),
    )


def _uncapitalised(language: str) -> str:
    """Ends of sentences whose next one begins in lower case: a question's, and those before a subject."""
    subjects = "|".join(map(re.escape, _SUBJECTS[language].split()))
    whole = "".join(rf"(?<!\b{re.escape(word)}\.)" for word in _NEVER_LAST[language].split())
    mark = rf"(?:(?<=[a-z]{{2}}\.){whole}|(?<=\w[!?]))"
    return rf"{mark}[.!?]*\s+(?=(?:{subjects})(?![\w'’]))|(?<=\w\?)\s+(?=[a-z])"


def _beginning_with_a_mark(patterns: list[str]) -> re.Pattern[str]:
    return re.compile(f"{_MARK}(?:{'|'.join(patterns)})")


def _behind_nul(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"\0(?:{'|'.join(patterns)})")
