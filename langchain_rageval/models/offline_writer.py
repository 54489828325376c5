"""Answers of the offline judge to the requests that write and check test sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from importlib.resources import files
from typing import Any
from zlib import crc32

from langchain_rageval._internal.files import load_yaml
from langchain_rageval.models.offline_verdicts import ENOUGH, SOME, cover, stem_share, tally
from langchain_rageval.text.language import FUNCTION_WORDS, detect_language
from langchain_rageval.text.sentences import is_question, split_sentences
from langchain_rageval.text.words import normalize_text, numbers_of, stem_of, stems_of, words_of

_MOST_PHRASES = 5
_MOST_CANDIDATES = 50  # phrases of a text, when one that another text lacks is searched for
_LONGEST_PHRASE = 3  # words
_SHORTEST_WORD = 4  # letters of a word in a phrase
_SHORTEST_SENTENCE = 5  # words
_FIRST_YEAR = 2101

_MARKUP = re.compile(r"```.*?(?:```|\Z)|<[^<>]*>|https?://\S+", re.DOTALL)
_NOT_PROSE = ("#", "|", "==")  # beginnings of headings and tables
_IDEOGRAM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # two of them count as one word
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_QUOTED = re.compile(r"«([^«»]+)»|\"([^\"]+)\"")
_POINTING = re.compile(
    r"\b(?:in|from|by|according to) the (?:given |provided |above )?(?:texts?|passages?|documents?|excerpts?)\b"
    r"|\b(?:in|from) the (?:given |provided )?context\b(?! of| manager)|\b(?:this|these|those)\b"
    r"|\b(?:в|во|из) (?:\w+ )?(?:тексте|текста|отрывк\w+|документе|документа|фрагмент\w+)\b"
    r"|\b(?:согласно|судя по) (?:\w+ )?(?:тексту|отрывк\w+|документу|статье|фрагмент\w+)\b"
    r"|\b(?:это|этот|эта|эти|этого|этой|этому|этом|этим|этими|этих|эту|данный|данная|данное|данного|данной|данном)\b",
    re.IGNORECASE,
)
_DULL = re.compile(
    _POINTING.pattern
    + r"|котор\w+|явля\w+|сво(?:й|ей|его|их|им|ими|ём|ю|я|и|е|ё)|друг(?:ой|ая|ие|их|ого|ую|им)|такж\w+"
    r"|может|могут|можете|будет|some|such|other|using|used|here|there|they|them|more|most|like",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"\b(?:скажите|подскажите|расскажите|пожалуйста|не могли бы вы|могли бы вы|не подскажете ли|я хотел\w? бы знать"
    r"|на самом деле|вообще|в целом|please|kindly|could you tell me|can you tell me|could you explain"
    r"|i would like to know|i want to know|actually|in general|basically)\b[, ]*",
    re.IGNORECASE,
)
_WHY = re.compile(r"\b(?:why|how|почему|отчего|зачем|как)\b", re.IGNORECASE)

_FUNCTION_WORDS = FUNCTION_WORDS["en"] | FUNCTION_WORDS["ru"]


@cache
def _texts(language: str) -> Mapping[str, Any]:
    """Return templates and lists by name: in Russian, or else in English."""
    content = (files("langchain_rageval.models") / "offline_texts.yaml").read_text(encoding="utf-8")
    texts: Mapping[str, Any] = load_yaml(content)["ru" if language == "ru" else "en"]
    return texts


@cache
def _own_stems() -> Set[str]:
    """Return the stems of the templates."""
    texts = (text for language in ("en", "ru") for text in _texts(language).values())
    return stems_of(" ".join(text for text in texts if isinstance(text, str)))


def grade_prose(passage: str) -> dict[str, Any]:
    """Return a passage's grades for clarity, depth, structure and relevance, each from 1 to 3 (best), and a reason.

    The dict has the keys "clarity", "depth", "structure", "relevance" and "reason". The grades are computed from the
    number and share of prose sentences, full stops and key phrases.
    """
    prose = _prose_sentences(passage)
    prose_share = sum(map(len, prose)) / max(1, len(passage.strip()))
    ended = sum(sentence.rstrip("»\"')").endswith((".", "!", "?", "…", ":", ";", "。")) for sentence in prose)
    return {
        "reason": f"{len(prose)} / {prose_share:.0%} / {ended}",
        "clarity": 1 + (prose_share >= SOME) + (prose_share >= ENOUGH),
        "depth": 1 + (len(prose) > 1) + (len(prose) > _MOST_PHRASES),
        "structure": 1 + (ended > 0) + (ended > ENOUGH * len(prose)),
        "relevance": 1 + (len(prose) > 0) + (len(key_phrases(passage)) >= _MOST_PHRASES),
    }


def reword_question(question: str, texts: Sequence[str]) -> str:
    """Return a question without context-dependent words such as "this" or "in the text".

    If the passages do not answer the remaining question, a new question about the most related key phrase is returned.
    """
    direct = " ".join(_POINTING.sub(" ", question).split()).replace(" ?", "?")
    if direct != question and content_stems(direct) and _is_answerable(direct, texts):
        return direct
    stems, old = content_stems(question), quoted_phrases(question)
    others = [phrase for text in texts for phrase in key_phrases(text) if phrase not in old]
    if not others:
        return direct
    nearest = max(others, key=lambda phrase: len(content_stems(phrase) & stems))
    return fill_template("write", " ".join(texts), nearest)


def join_phrase(template: str, question: str, texts: Sequence[str]) -> str:
    """Return a new question that connects the topics of a question with a phrase of the passages.

    The phrase is the first key phrase or word of `texts` (the passages) that shares no word stem with `question`. If
    there is none, `question` is returned unchanged. `template` is the name of the template of the new question, such as
    "reasoning" for "How is ... connected with ..., and why?".
    """
    phrase = _unused_phrase(texts, beyond=question)
    return fill_template(template, question, subject(question), phrase) if phrase else question


def connect_passages(question: str, texts: Sequence[str]) -> str:
    """Extend a question so that several passages are needed to answer it.

    The function takes the passage that shares least with the question, and adds a phrase that only this passage
    contains. If the passage covers the whole question, a phrase of the other passages is added too. Without such
    phrases, the question is returned unchanged.
    """
    wanted = content_stems(question)
    *own, other = sorted(texts or [""], key=lambda text: -len(wanted & stems_of(text)))
    phrase = _unused_phrase([other], beyond=" ".join([question, *own]))
    parts = topics_of(question)
    if wanted <= stems_of(other):
        parts.append(_unused_phrase(own, beyond=f"{question} {other}") or "")
    if not phrase or not all(parts):
        return question
    return fill_template("multi_context", question, _join_quoted(question, parts), phrase)


def make_conversational(question: str) -> str:
    """Return a question in lower case, without quotation marks and a final question mark."""
    return fill_template("conversational", question, re.sub('[«»"]', "", subject(question)).lower())


def make_unanswerable(question: str, texts: Sequence[str]) -> str:
    """Return a new question about the topics of a question in a future year, from 2101, that no text names.

    An example is `What will become of "income tax" in 2101?`. The year is neither in `question` nor in `texts` (the
    passages).
    """
    numbers = numbers_of(" ".join([question, *texts]))
    year = next(str(year) for year in range(_FIRST_YEAR, _FIRST_YEAR + len(numbers) + 1) if str(year) not in numbers)
    return fill_template("unanswerable", question, subject(question), year)


def ask_for_numbers(question: str, texts: Sequence[str]) -> str:
    """Return a question about the first number of the passages that the question does not contain.

    Without such a number, the question is returned unchanged.
    """
    new = [number for number in re.findall(r"\d+", " ".join(texts)) if number not in numbers_of(question)]
    return fill_template("numbers", question, subject(question), new[0]) if new else question


def shorten_question(question: str) -> str:
    """Return a question without polite phrases."""
    question = question.strip()
    short = _POLITE.sub("", question).strip(" ,")
    return short[0].upper() + short[1:] if content_stems(short) and short != question else question


def assess_question(question: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return whether a question is standalone and answerable.

    A question is standalone if it has no words such as "this" or "in the text". It is answerable if `texts` (the
    passages) contain 60% of its word stems and all its numbers. The dict has the keys "standalone" and "answerable"
    (True or False) and "feedback" (what is wrong with the question).
    """
    standalone = bool(content_stems(question)) and not _POINTING.search(question)
    answerable = _is_answerable(question, texts)
    faults = ["not standalone"] * (not standalone) + ["not answerable"] * (not answerable)
    own = texts_for(" ".join([question, *texts]))
    feedback = " ".join(own[fault] for fault in faults or ["fine"])
    return {"feedback": feedback, "standalone": standalone, "answerable": answerable}


def contrast_questions(parent: str, question: str) -> dict[str, Any]:
    """Return whether a question is broader or deeper than its parent question.

    The question is broader if it has new word stems. It is deeper if it also has more words such as "why" and "how"
    than the parent question. The dict has the keys "broader" and "deeper" (True or False) and "reason" (number of new
    stems, such as "+2").
    """
    fresh = content_stems(question) - content_stems(parent)
    why = len(_WHY.findall(question)) > len(_WHY.findall(parent))
    return {"reason": f"+{len(fresh)}", "deeper": bool(fresh) and why, "broader": bool(fresh)}


def select_passages(question: str, passages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of passages that together contain at least 60% of the word stems of a question.

    `passages` are dicts with the keys "passage" (number) and "text". The returned dict has the keys "passages" (the
    numbers; empty if even all passages contain fewer stems) and "reason" (such as "3/5").
    """
    wanted = content_stems(question)
    stems = {int(item["passage"]): stems_of(str(item["text"])) for item in passages}
    selected, present = cover(wanted, stems)
    is_enough = stem_share(wanted, present) >= ENOUGH
    return {"reason": tally(wanted, present), "passages": sorted(selected) if is_enough else []}


def quote_answer(question: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return as the answer the one or two sentences of the passages that share most word stems with a question.

    The dict has the keys "answerable" (True or False) and "answer". If the sentences contain less than 40% of the
    question's stems, or if the passages lack a number of the question, the answer is "" and "answerable" is False.
    """
    wanted = content_stems(question)
    splitters = (_prose_sentences, split_sentences)
    stems = {sentence: stems_of(sentence) for split in splitters for text in texts for sentence in split(text)}
    quotes, present = cover(wanted, stems, most=2)
    is_enough = stem_share(wanted, present) >= SOME and _has_numbers(question, texts)
    answer = " ".join(sentence for sentence in stems if sentence in quotes) if is_enough else ""
    return {"answerable": is_enough, "answer": answer}


def halve_answer(answer: str) -> str:
    """Return the first half of an answer's sentences; for a single sentence, the first half of its words."""
    sentences = split_sentences(answer)
    parts = sentences if len(sentences) > 1 else " ".join(sentences).split()
    return " ".join(parts[: len(parts) // 2])


def write_padding(question: str, context: str) -> list[str]:
    """Return fixed sentences without information, such as "Many readers ask about ...", to pad a context.

    The sentences name the topics of `question`. They are in Russian if `context` is in Russian, otherwise in English.
    """
    return [sentence.format(subject(question)) for sentence in texts_for(context)["padding"]]


def fill_template(name: str, language_from: str, *parts: str) -> str:
    """Fill values into the question or answer template `name`, in the language of the text `language_from`."""
    return str(texts_for(language_from)[name]).format(*parts)


def texts_for(text: str) -> Mapping[str, Any]:
    """Return the templates and word lists in the language of a text: Russian, or otherwise English."""
    return _texts(detect_language(text))


def content_stems(text: str) -> set[str]:
    """Return the stems (first five letters) of a question's words, without function words and words of templates.

    The templates are the fixed texts of this writer, such as "What is known about ...?".
    """
    return stems_of(" ".join(word for word in words_of(text) if word not in _FUNCTION_WORDS)) - _own_stems()


def _is_answerable(question: str, texts: Sequence[str]) -> bool:
    wanted = content_stems(_POINTING.sub(" ", question))
    return stem_share(wanted, stems_of(" ".join(texts))) >= ENOUGH and _has_numbers(question, texts)


def _has_numbers(question: str, texts: Sequence[str]) -> bool:
    return numbers_of(question) <= numbers_of(" ".join(texts))


def quoted_phrases(question: str) -> list[str]:
    """Return the phrases in quotation marks of a question."""
    return [russian or other for russian, other in _QUOTED.findall(question)]


def subject(question: str) -> str:
    """Return the topics of a question as one quoted text."""
    return _join_quoted(question, topics_of(question))


def topics_of(question: str) -> list[str]:
    """Return the topics of a question: its quoted phrases or, if there are none, one phrase of its content words."""
    own = [word for word in _WORD.findall(question) if content_stems(word)]
    return quoted_phrases(question) or [" ".join(own) or question.strip(" ?")]


def _join_quoted(language_from: str, phrases: Sequence[str]) -> str:
    quoted = (fill_template("quoted", language_from, phrase) for phrase in phrases)
    return fill_template("and", language_from).join(quoted)


def _unused_phrase(texts: Sequence[str], *, beyond: str) -> str | None:
    """Return the first phrase, else the first word, of the texts without a stem of the text `beyond`; None if none."""
    known = stems_of(beyond)
    phrases = [phrase for text in texts for phrase in key_phrases(text, most=_MOST_CANDIDATES)]
    words = [word for phrase in phrases for word in phrase.split() if stems_of(word)]
    return next((phrase for phrase in (*phrases, *words) if not stems_of(phrase) & known), None)


def _prose_sentences(text: str) -> list[str]:
    """Return the sentences of prose in a text, without markup, headings, tables and questions."""
    sentences = (" ".join(sentence.split()) for sentence in split_sentences(_plain(text)))
    return [
        sentence
        for sentence in sentences
        if len(words_of(sentence)) + len(_IDEOGRAM.findall(sentence)) / 2 >= _SHORTEST_SENTENCE
        and not sentence.startswith(_NOT_PROSE)
        and not is_question(sentence)
    ]


def _plain(text: str) -> str:
    return re.sub(r"\u0301|\*+|`+", "", _MARKUP.sub(" ", text))


def key_phrases(text: str, most: int = _MOST_PHRASES) -> list[str]:
    """Return at most `most` key phrases of a text, the highest score first; no two phrases share a word stem.

    A phrase has one to three words. Its score is the mean frequency of the words, raised for names and for phrases of
    several words. Only prose sentences are used. If a text has none, the whole text is used.
    """
    sentences = _prose_sentences(text) or [" ".join(_WORD.findall(_plain(text)))]
    times = Counter(stem_of(word) for sentence in sentences for word in words_of(sentence))
    names = {word for sentence in sentences for word in _WORD.findall(sentence)[1:] if word[0].isupper()}
    best: dict[str, float] = {}
    for sentence in sentences:
        for run in _runs(sentence):
            for phrase, score in _score_phrases(run, times, names):
                best[phrase] = max(score, best.get(phrase, 0.0))
    phrases: list[str] = []
    used: set[str] = set()
    for phrase in sorted(best, key=lambda phrase: -best[phrase]):
        if not stems_of(phrase) & used and len(phrases) < most:
            phrases.append(phrase)
            used |= stems_of(phrase)
    return phrases


def _runs(sentence: str) -> list[list[str]]:
    """Return the lists of adjacent content words of a sentence; a list may be empty."""
    runs, end = list[list[str]](), -1
    for match in _WORD.finditer(sentence):
        word = match[0]
        is_content = len(word) >= _SHORTEST_WORD and content_stems(word) and not _DULL.fullmatch(word)
        if not is_content or not runs or match.start() != end + 1:
            runs.append([])
        if is_content:
            runs[-1].append(word)
        end = match.end()
    return runs


def _score_phrases(run: Sequence[str], times: Mapping[str, int], names: set[str]) -> Iterable[tuple[str, float]]:
    """Yield each phrase of up to three adjacent words in a list of words, with its score.

    The score is the mean frequency of the words, raised for several words, for names and for the whole list.
    """
    for size in range(1, _LONGEST_PHRASE + 1):
        for at in range(len(run) - size + 1):
            words = run[at : at + size]
            frequency = sum(times[stem_of(words_of(word)[0])] for word in words) / size
            name_share = sum(word in names for word in words) / size
            whole = size == len(run)
            yield " ".join(words), frequency * (1 + 0.5 * (size > 1) + 0.5 * name_share + 0.3 * whole)


_LONG_WORD = re.compile(r"\b([^\W\d_]{5,})([^\W\d_])([^\W\d_])([^\W\d_]*)\b")  # the stem of five letters is kept
_MARKS = re.compile(r"[«»\"?!.,:;]")
_TOPIC = re.compile(r"(?:(теме|темой|тема|тему) )?(?:«[^«»]+»|\"[^\"]+\")")
_PRONOUNS = {"теме": "ней", "темой": "ней", "тема": "она", "тему": "её"}


def misspell(question: str) -> str:
    """Return a question in lower case without punctuation, with two letters swapped in long words."""
    return _LONG_WORD.sub(r"\1\3\2\4", _MARKS.sub("", question).lower())


def reframe(style: str, question: str) -> str:
    """Return a question inside the fixed phrase of a style, such as "Please inform me: ..." for "formal".

    The other styles are "angry", "code_mixed", "voice", "persona" and "audience".
    """
    if style == "voice":
        question = " ".join(_MARKS.sub(" ", question).lower().split())
    if style == "angry":
        question = question.rstrip("?")
    return fill_template(style, question, question)


def ask_off_topic(question: str, texts: Sequence[str]) -> str:
    """Return a question about plants, if possible about plants that the passages do not name.

    `texts` are the passages. The same `question` always gives the same choice among the possible plants.
    """
    present, own = stems_of(" ".join(texts)), texts_for(" ".join([question, *texts]))
    number = crc32(question.encode())
    things = [thing for thing in own["things"] if not stems_of(thing) & present] or own["things"]
    verb, thing = own["verbs"][number % len(own["verbs"])], things[number // len(own["verbs"]) % len(things)]
    return str(own["off topic"]).format(verb, thing)


def write_conversation(question: str, earlier: str) -> dict[str, Any]:
    """Return a chat that names a question's topics, and the question with a pronoun in place of its first topic.

    A topic is a phrase in quotation marks. Without one, the chat names the content words of `question`, and the result
    is a fixed question such as "And what about it?". `earlier` is the wanted number of exchanges, such as "1"; there
    are at most two. The dict has the keys "exchanges" (dicts with "question" and "answer") and "question".
    """
    first = next(iter(quoted_phrases(question)), "")
    topic = next((match.group() for match in _TOPIC.finditer(question) if first and first in match.group()), "")
    mentions = [fill_template(name, question, subject(question)) for name in ("topic", "topic again")]
    answer = fill_template("which", question)
    exchanges = [{"question": mention, "answer": answer} for mention in mentions[: int(earlier)]]
    pronoun = _PRONOUNS.get(topic.split(" ")[0], fill_template("it", question))
    last = question.replace(topic, pronoun, 1) if topic else fill_template("follow_up", question)
    return {"exchanges": exchanges, "question": last}


def assess_follow_up(standalone: str, question: str, turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return whether a follow-up question depends on its chat, means the same as its standalone form, and is open.

    The question depends on the chat if it lacks words of its standalone form. It means the same if question and chat
    together contain 60% of the standalone form's word stems. It is open if the user has not asked the standalone form
    before. The dict has the keys "depends", "same" and "open" (True or False) and "feedback" (the counts as text).
    """
    wanted, own = content_stems(standalone), stems_of(question)
    chat = stems_of(" ".join(str(turn["text"]) for turn in turns))
    asked = {normalize_text(str(turn["text"])) for turn in turns if turn["role"] == "user"}
    return {
        "feedback": f"{len(wanted & own)} + {len(wanted & chat)} / {len(wanted)}",
        "depends": bool(wanted - own),
        "same": len(wanted & (own | chat)) >= ENOUGH * len(wanted),
        "open": normalize_text(standalone) not in asked,
    }


def list_personas(texts: Sequence[str], count: str) -> list[str]:
    """Return the first `count` personas of a fixed list, in the language of the passages."""
    return list(texts_for(" ".join(texts))["personas"][: int(count)])
