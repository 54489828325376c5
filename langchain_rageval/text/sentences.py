"""Sentence splitting by lines and by the library razdel, with corrected boundaries.

The pattern `NUMBERED_MARK` finds the marks of cited sources in a text, such as "[2]" or "(source 2)".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise, repeat
from typing import Any, NamedTuple

from langchain_rageval._internal.cached import locked_cache
from langchain_rageval.text.language import FUNCTION_WORDS, WORDS, detect_language

_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\||[-=*_|:+\s]{3,}$)")  # or a horizontal rule
_ROW = re.compile(r".*\s\|\s.*\s\|\s|[^(]*\s\|\s|.*\S\t.*\S\t")  # table row
_LIST_ITEM = re.compile(r"\s*(?:[-*+•◦▪‣·–—]|--|\(?(?:\d{1,3}(?:\.\d{1,3})*|[ivxIVX]{1,4}|[a-zа-яё])[.)])\s+(?=\S)")
_FINISHED = re.compile(r"[.!?…:;。！？][»”’\"')\]]*$")
_FIRST_LETTER = re.compile(r"[«„“\"'(\[]*[^\W\d_]")
_TAIL = 40  # characters at the end of a sentence that show whether it is complete
_ENTRY = 400  # characters; a longer line that ends with page numbers is prose with a citation
_COLUMN = 40  # characters; no page is narrower, so shorter lines were broken on purpose

# razdel scans a sentence once per punctuation mark, so it receives at most this many characters at a time;
# a longer run without white space contains no boundary that razdel could find.
_LONGEST = 4000
_WINDOW = re.compile(rf"\s?\S{{{_LONGEST},}}|.{{1,{_LONGEST}}}(?=\s|$)", re.DOTALL)

# razdel finds boundaries only here: after a mark, before white space that is not followed by a lower-case word
_SPACED = r"(?=\s+\S)(?!\s[a-zа-яё]+[\s.,])"
_BOUNDARY = re.compile(rf"[.?!…;\"„'»”’)\]}}(]{_SPACED}")

_SURNAME = re.compile(
    r"[^.!?…]\s[А-ЯЁ][а-яё]+(?:[оеё]в|[иы]н|[сц]к|ко|[уюя]к|ич|ян)(?:ий|ая|ого|ой|ым|[аыуе])?\s[А-ЯЁ]\.\s?[А-ЯЁ]\.$"
)
_YEAR = re.compile(r"(?:\d{4}|\b(?:[вксВКС]|до|от|после|около)\s\d{3})\s?г\.$")
_EMOJI = "\u2639\u263a\u2764\ufe0f\u200d\U0001f300-\U0001faff"


def _after(*endings: str) -> str:
    """Return a lookbehind pattern for any of the endings; each must have a fixed width."""
    return "(?:" + "|".join(f"(?<={ending})" for ending in endings) + ")"


# A sentence ends at the end of a match. Every pattern begins after the sentence's final mark or the last syllable of
# its verb: a pattern that begins with a set of characters skips the rest of the text quickly.
_MARK = rf"[.!?…。！？｡:)다까요죠{_EMOJI}]"
_CUTS = (
    r"(?<=[。！？｡])[。！？｡”’」』）》】〉]*+(?![，、])",  # full-width marks need no space
    # Korean polite verb endings
    r"(?:(?<=니다)(?<![아다지]니다)|(?<=[습입합됩십]니까)|(?<=[어아여해에예네군세까지]요)|(?<=죠))~*\s+(?=[가-힣])",
    r"(?<=[а-яё]{3}[.!?…])(?<![Пп]росп.)(?<![Пп]роф.)(?<![Аа]кад.)[.!?…]*+(?=[А-ЯЁ][а-яё])",  # missing space
    r"(?:(?<=[^\W\d_]\.)\.\.|(?<=[^\W\d_]…))(?=[A-ZА-ЯЁ][a-zа-яё])",
    r"(?<=:)\s+(?=1(?:\.\s+\S|\)\s+[A-ZА-ЯЁ]))",  # a list that starts within a line
    _after(*(f"{before}{unit}\\." for unit in ("см", "р", "с", "ч", "стр") for before in (r"\d", r"\d\s", "/")))
    + r"\s+(?=[А-ЯЁ])",  # units of measure; without a number they precede a name
    _after(r"тыс\. стр\.", r"рт\. ст\.", r"°[CСFФ]\.") + r"\s+(?=[A-ZА-ЯЁ])",
    r"(?<=[.!?…])(?:(?:\[[^\s\[\]]{1,20}\])+|\*\*?)\s+(?=[«“\"A-ZА-ЯЁ])",  # footnote mark, end of bold type
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
# These end a sentence if `_is_sentence_end` confirms it.
_DOUBTFUL = (
    r"(?P<smile>(?<=\w\))\)+)\s+(?=[@A-ZА-ЯЁ])",
    "(?P<grams>" + _after(r"\dг\.", r"\d\sг\.") + r")\s+(?=[А-ЯЁ])",
    "(?P<initials>" + _after(r"[а-яё]\s[А-ЯЁ]\.[А-ЯЁ]\.", r"[а-яё]\s[А-ЯЁ]\.\s[А-ЯЁ]\.") + r")\s+(?=[А-ЯЁ][а-яё])",
)
_PARTICLES = "d da dal de dei del della der des di du el l la le lo los"  # parts of names: "L. Di Maio"

# A sentence continues where one of these matches; NUL marks the place where razdel would end it.
_CONTINUATIONS = (
    _after(
        *(
            rf"{number}{space}{word}\.\0"  # a year or a century, not followed by a function word
            for number in (r"[\dIVXLC]", r"\d-[а-яё]", r"\d-[а-яё]{2}")
            for space in ("", r"\s")
            for word in ("[гв]", "(?:гг|вв)")
        )
    ),
    r"(?<=\bдолл\.\0)(?:США|Канад|Австрал|Гонконг|Сингапур)",
    r"(?<=;\0)",
    r"(?<=\.\0)№",
    r"(?<=[»”\"]\0)[(\[][a-zа-яё\d]",  # source of a quotation
    r"[\W_]*$",
)
_LABEL = re.compile(r"[^\W\d_]+\.?\s(?:[\d.]+|[IVXLC]+)\.\s*")  # "Статья 15.", "Fig. 2."
# the sentence continues after a quotation, or a quotation continues after an insertion that names the speaker
_SPEECH_CONTINUES = re.compile(r"[^«»“”]*[»”],?\s*[—–-]{0,2}\s*[a-zа-яё]|\s*[—–-]{1,2}\s[^«»“”]*[»”]")
_PAIRED = re.compile(r"[«»“”()\[\]]")
_BRACKET_ENDS = re.compile(r"[^()\[\]]*(?:[^.!?…()\[\]][)\]]|[)\]]\s*[,;:—–-]?\s*[a-zа-яё])")
# the end of an entry in a bibliography: "1994. — 399 с.", "№ 4. С. 12–18."
_PAGES = re.compile(r"\d\.\s(?:[—–-]\s)?(?:\d+\s?[сpS]|(?:[СCSPp]|pp)\.\s?\d+(?:\s?[–—-]\s?\d+)?)\.?$")


def split_sentences(text: str, language: str = "auto") -> list[str]:
    """Split a text into sentences; a line of a list, table or code is one, if it has a letter or digit.

    Args:
        text: plain text or Markdown.
        language: ISO 639-1 code of the language whose abbreviations and function words decide where a full stop ends a
            sentence; "auto" detects it.

    Returns:
        The sentences in order, without surrounding white space. No character other than white space is lost; a line
        break within a sentence is replaced by a space. Prose without sentence ends is cut at white space at least every
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
    joined: list[str] = []
    is_worded = False
    for sentence in filter(None, map(str.strip, sentences)):
        has_words = any(map(str.isalnum, sentence)) and not _FENCE.match(sentence)
        if joined and not (is_worded and has_words):
            joined[-1] += f" {sentence}"  # a rule, a fence, or the line below the head of a table
            is_worded = is_worded or has_words
        else:
            joined.append(sentence)
            is_worded = has_words
    return joined


_NO_ANSWER = re.compile(
    r"\b(не знаю|не могу ответить|нет (?:таких )?(?:сведений|данных|информации)|не (?:сказано|указано|найден\w*)"
    r"|(?:do not|don't|does not|doesn't) (?:know|say|answer)|(?:cannot|can't) answer|no (?:answer|information)"
    r"|not (?:specified|mentioned))\b",
    re.IGNORECASE,
)


def is_evasive(text: str) -> bool:
    """Return True if a text contains a phrase which states that there is no answer."""
    return bool(_NO_ANSWER.search(text))


def is_question(sentence: str) -> bool:
    """Return True if a sentence ends with a question mark."""
    return sentence.endswith(("?", "？"))


@lru_cache(maxsize=256)  # every vote on an answer asks for its assertions
def assertions(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, except questions, evasive sentences, and sentences without a letter or digit.

    A sentence is evasive if it contains a phrase such as "do not know", which states that there is no answer.
    """
    sentences = split_sentences(text)
    return tuple(s for s in sentences if any(map(str.isalnum, s)) and not is_question(s) and not is_evasive(s))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield pieces of complete sentences, each with True if it is prose that must be split further."""
    paragraph: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = bool(_FENCE.match(line))
        whole = fenced or fence or _HEADING.match(line) or (("|" in line or "\t" in line) and _ROW.match(line))
        fenced ^= fence
        if paragraph and (whole or not line.strip() or _LIST_ITEM.match(line)):
            yield from zip(_unwrapped(paragraph), repeat(True))
            paragraph = []
        if whole:
            yield line, False
        elif line.strip():
            paragraph.append(line.strip())
    yield from zip(_unwrapped(paragraph), repeat(True))


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """Join lines that were broken by the page width.

    A line that continues in lower case on the next one shows that the text was wrapped; then full lines are joined too.
    """
    if len(lines) == 1:
        yield lines[0]
        return
    wrapped = any(_continues_below(line, below) for line, below in pairwise(lines))
    width = max(map(len, lines), default=0)
    piece: list[str] = []
    for line, below in pairwise([*lines, ""]):
        piece.append(line)
        full = wrapped and width >= _COLUMN and len(line) + 1 + len(below.partition(" ")[0]) > width
        if not below or not (_continues_below(line, below) or full):
            yield " ".join(piece)
            piece = []


def _continues_below(line: str, below: str) -> bool:
    start = _FIRST_LETTER.match(below)
    return start is not None and start[0][-1].islower() and not _FINISHED.search(line[-20:])


def _prose_sentences(text: str, rules: _Rules) -> Iterator[str]:
    start = 0
    while window := _WINDOW.match(text, start):
        part, start = window[0], window.end()
        # first at the boundaries that razdel misses, then by razdel; white space is kept
        ends = [0, *(match.end() for match in rules.cut.finditer(part) if _is_sentence_end(match)), len(part)]
        split = (_razdel(part[begin:end]) for begin, end in pairwise(ends))
        sentences = [sentence for parts in split for sentence in _join_parts(parts, rules.continuation)]
        if start < len(text) and len(sentences) > 1:
            start -= len(sentences.pop())  # the window may have cut it
        yield from sentences


def _razdel(text: str) -> list[str]:
    if len(text) > _LONGEST + 1 or not _BOUNDARY.search(text):
        return [text]
    starts = [sentence.start for sentence in _sentenize()(text)][1:]
    return [text[start:end] for start, end in pairwise([0, *starts, len(text)])]


@cache
def _sentenize() -> Callable[[str], Iterable[Any]]:
    """Return razdel's splitter, restricted to the marks at which it could find a boundary."""
    from razdel.segmenters.sentenize import DELIMITER, RULES, SentSegmenter, SentSplitter

    splitter = SentSplitter(pattern=DELIMITER + _SPACED)
    return SentSegmenter(splitter, [rule.function for rule in RULES])  # type: ignore[no-any-return]


def _is_sentence_end(match: re.Match[str]) -> bool:
    """Return True if a boundary is confirmed by the text before it; most patterns need no confirmation."""
    kind = match.lastgroup
    if kind is None:
        return True
    if kind == "smile":
        return match.string.count("(", 0, match.end()) < match.string.count(")", 0, match.end())
    before = match.string[max(0, match.end(kind) - _TAIL) : match.end(kind)]
    return bool(_SURNAME.search(before)) if kind == "initials" else not _YEAR.search(before)


def _join_parts(parts: list[str], continuation: re.Pattern[str]) -> list[str]:
    """Join parts that razdel separated wrongly, such as an abbreviation and a name, or a quotation and its speaker."""
    sentences: list[str] = []
    quoted: int | None = None  # index of the sentence in which an unclosed quotation began
    bracketed: int | None = None  # the same for a bracket
    for part in parts:
        if quoted is not None and _SPEECH_CONTINUES.match(part):
            sentences[quoted:] = ["".join(sentences[quoted:]) + part]
        elif bracketed is not None and len(sentences) - bracketed < 4 and _BRACKET_ENDS.match(part):
            sentences[bracketed:] = ["".join(sentences[bracketed:]) + part]
        elif sentences and _belong_together(sentences[-1], part, continuation):
            sentences[-1] += part
        else:
            sentences.append(part)
        if _PAIRED.search(part):
            quoted = _open_index(part, "«“", "»”", quoted, len(sentences) - 1)
            bracketed = _open_index(part, "([", ")]", bracketed, len(sentences) - 1)
    return sentences


def _open_index(part: str, opening: str, closing: str, before: int | None, here: int) -> int | None:
    """Return the index of the sentence with an unclosed opening mark, or None.

    Args:
        part: text that was just added to sentence `here`.
        opening: opening marks.
        closing: closing marks.
        before: the index before the part was added.
        here: index of the last sentence.
    """
    opened, closed = (max(map(part.rfind, marks)) for marks in (opening, closing))
    if opened > closed:
        return here
    return min(before, here) if before is not None and closed < 0 else None


def _belong_together(left: str, right: str, continuation: re.Pattern[str]) -> bool:
    """Return True if two adjacent parts belong to one sentence."""
    if len(left) <= _TAIL and _LABEL.fullmatch(left):
        return True
    return continuation.search(f"{left[-_TAIL:].rstrip()}\0{right[:_TAIL]}") is not None


class _Rules(NamedTuple):
    cut: re.Pattern[str]  # a sentence ends at the end of a match
    continuation: re.Pattern[str]  # a match shows that the sentence is not complete


@locked_cache
def _rules(language: str) -> _Rules:
    words = {*FUNCTION_WORDS.get(language, ()), *WORDS["starters"].get(language, ())} - set(_PARTICLES.split())
    starters = "|".join(sorted(word.capitalize() for word in words))
    ambiguous = rf"{_AMBIGUOUS}(?=(?:{starters})\b(?!\.))" if starters else "(?!)"
    uncapitalised = _uncapitalised(language) if language in WORDS["subjects"] else "(?!)"
    abbreviations = [rf"(?i:{re.escape(word)})\." for word in WORDS["abbreviations"].get(language, ())]
    cuts, continuations = [*_CUTS, ambiguous, uncapitalised], list(_CONTINUATIONS)
    if abbreviations:
        after = _after(*(rf"\s{abbreviation}" for abbreviation in abbreviations))
        cuts.append(rf"(?=\s?\d){after}\s?\d+\.\s+(?=[A-ZА-ЯЁ])")  # razdel takes "4. It" for a list item
        continuations.append(_after(*(rf"(?<![^\W\d_]){abbreviation}\0" for abbreviation in abbreviations)))
    return _Rules(
        re.compile(f"{_MARK}(?:{'|'.join([*cuts, *_DOUBTFUL])})"), re.compile(rf"\0(?:{'|'.join(continuations)})")
    )


def _uncapitalised(language: str) -> str:
    """Return a pattern of sentence ends before a lower-case letter: after a question, and before a subject."""
    subjects = "|".join(map(re.escape, WORDS["subjects"][language]))
    whole = "".join(rf"(?<!\b{re.escape(word)}\.)" for word in WORDS["abbreviations"][language])
    mark = rf"(?:(?<=[a-z]{{2}}\.){whole}|(?<=\w[!?]))"
    return rf"{mark}[.!?]*\s+(?=(?:{subjects})(?![\w'’]))|(?<=\w\?)\s+(?=[a-z])"


_NUMBERS = r"\d{1,3}(?:\s*(?:[,;&–—-]|и|and)\s*\d{1,3})*"
_WORD = r"(?:(?:см\.|see)\s*)?(?:источник\w*|ист\.|документ\w*|фрагмент\w*|sources?|documents?|docs?|chunks?|refs?\.?)"

NUMBERED_MARK = re.compile(
    rf"\[\s*\^?(?:{_WORD}\s*)?[№#]?\s*({_NUMBERS})\s*\]|\(\s*{_WORD}\s*[№#]?\s*({_NUMBERS})\s*\)|【\s*({_NUMBERS})[^】]*】",
    re.IGNORECASE,
)
"""Pattern of a mark; one of its groups is the numbers."""
