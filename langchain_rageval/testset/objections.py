"""Objections: problems with a generated question or answer, found by rules before a critic is asked."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from langchain_rageval.testset.candidate import SIMPLE, Candidate, Objection, Passage, Reason
from langchain_rageval.text.sentences import is_evasive, is_question, split_sentences
from langchain_rageval.text.words import has_content, normalize_text, numbers_of, shared_share, words_of

_LEAST_SHARE = 0.1  # of the letters, from which a script belongs to a text
_LONGEST_COPY = 120  # characters of a passage that a question may repeat in a row
_SENTENCE = 5  # words
_LONG_ANSWER = 300  # characters; a shorter answer may be a whole passage
_TOO_LONG = 1_200  # characters; a longer answer may not be half of its passages
_COPIED_SHARE = 0.9  # of an answer, or of a passage
_SAMPLE = 4_000  # characters in which letters are counted

_LABEL = re.compile(
    r"^\W*(?:\d+\W+)?(?:(?:rewritten|new|final|seed|итоговый|новый)\s+)?"
    r"(?:questions?|q|вопросы?|问题|pregunta|frage|domanda)\s*\d*\s*[:：]"
    r"|\b(?:here is|here's|below is)\s+(?:the|a|your|my)\s+(?:\w+\s+)?question\b"
    r"|^\W*(?:вот|ниже)\s+(?:\w+\s+)?вопрос\b"
    r"|^\W*(?:sure|certainly|of course|okay|ok|конечно|разумеется|хорошо)\s*[!.,:—-]"
    r"|^\d+[.)]\s|^[\[{<]\w+[\]}>]$|^[\"«“][^\"«»“”]*[\"»”]$|^\W*$|[:：]$",
    re.IGNORECASE,
)
_AFTER = re.compile(r"[?？؟]\W*\w")  # an answer or an explanation follows
_JOINED = re.compile(
    r"(?:\band|\bи|\bа|;)\s+(?:how|what|when|where|who|why|which|сколько|когда|где|кто|кому|что|почему|как|зачем)\b",
    re.IGNORECASE,
)
_TEXTS = r"(?:text|passage|excerpt|context|paragraph|snippet)s?"
_RUSSIAN_TEXTS = r"(?:текст|отрыв|фрагмент|контекст|документ|абзац)\w*"
_POINTING = re.compile(
    rf"\b(?:{_TEXTS}|document)\s+(?:above|below)\b|\b(?:above|provided|given|following)\s+{_TEXTS}\b"
    rf"|\b(?:according to|based on|in|from|per)\s+(?:the|this)\s+{_TEXTS}\b(?!\s+(?:of|field|file))"
    r"|\baccording to (?:the|this) (?:article|author|document)\b|\bdoes the author (?:say|mention|claim|write|state)\b"
    r"|\b(?:stated|described|mentioned|shown|noted|explained|said)\s+(?:above|below|in (?:the|this) document)\b"
    r"|\b(?:приведённ|приведенн|предоставленн|представленн|вышеприведённ|вышеприведенн|вышеуказанн)\w+\s+"
    rf"{_RUSSIAN_TEXTS}|\b{_RUSSIAN_TEXTS}\s+(?:выше|ниже)\b"
    r"|\b(?:сказано|указано|описано|говорится|упомянуто|отмечено|написано)\s+"
    r"(?:(?:выше|ниже)\b|в\s+(?:тексте|документе)\s*(?:[?,.]|$))"
    r"|\b(?:согласно|судя по|исходя из|на основ\w+)\s+(?:этому\s+|данному\s+|этого\s+|данного\s+)?"
    rf"{_RUSSIAN_TEXTS}\s*(?:[?,.]|$)"
    r"|\bв\s+(?:этом\s+|данном\s+)?(?:отрывке|фрагменте)\b|\bв\s+(?:этом|данном)\s+(?:тексте|абзаце)\b"
    r"|(?:上文|上述|以上|本文|文中|该文|这段)(?:文字|文本|内容|段落)?",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\b(?:passages?|texts?|contexts?|documents?|excerpts?)\b[^.!?]{0,40}(?:(?:\bnot|n't)\s+(?:\w+\s+){0,2}?"
    r"(?:say|mention|contain|provide|specif|state|include|describe|discuss|give|answer|tell|indicate|explain)"
    r"|\bno (?:information|mention|answer|detail|data)|\bsilent\b)"
    r"|(?:\bnot|n't) (?:given|stated|mentioned|provided|specified|described|available|found|explained)\b[^.!?]{0,30}"
    r"\b(?:passage|text|context|document|excerpt)"
    r"|\b(?:not possible|impossible|unable|cannot|can't|could not|couldn't)\s+(?:to\s+)?(?:be\s+)?(?:determine|answer)"
    r"|\bi (?:could not|couldn't|cannot|can't) find\b|\bit is unclear\b|\b(?:i am|i'm) sorry\b|\bas an ai\b"
    rf"|\b{_RUSSIAN_TEXTS}\b[^.!?]{{0,40}}\b(?:нет\s+(?:ответ|сведен|информац|данн|упомин)|не\s+(?:содерж|указ|сказ|говор"
    r"|упом|сообща|опис|да[её]т|привод|назыв|назв|отвеча|уточня|объясня))"
    r"|\bоб этом\b[^.!?]{0,20}\bне\s+(?:сказ|говор|упом|сообща)|\bответа\b[^.!?]{0,40}\bнет\b"
    r"|\b(?:невозможно|нельзя)\s+(?:ответить|определить)"
    r"|\b(?:ответить|определить)[^.!?]{0,40}\b(?:невозможно|нельзя)\b"
    r"|\b(?:информация|сведения|данные)\s+(?:об этом\s+)?отсутству"
    r"|\b(?:извините|к сожалению),?\s+(?:но\s+)?(?:я|не|в)\b"
    r"|^\W*(?:unknown|unclear|n/?a|not (?:known|applicable|available)|неизвестно|нет данных|answer|todo|tbd|ответ)\W*$"
    r"|没有(?:提到|说明|提供|信息)|无法(?:回答|确定)|不知道",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<=\d)[\s,.\u00a0\u202f](?=\d{3}(?!\d))")


def blank_objection(answer: Any) -> str | None:
    """Return "the question is blank" if the field `question` of a model's typed answer is blank, else None."""
    return None if answer.question.strip() else "the question is blank"


def objection_to_question(state: Candidate, *, strict: bool = True) -> Callable[[Any], str | Objection | None]:
    """Return a function that takes a model's reply and returns the problem with the question in the reply, or None.

    The problem is a str if the question is blank, else an `Objection`. `state` is the candidate, with whose passages
    the question is compared. `strict` is True for one plain question, False for a question in the style of a user.
    """
    return lambda reply: blank_objection(reply) or question_objection(reply.question, state.passages, strict=strict)


def question_objection(question: str, passages: Sequence[Passage], *, strict: bool = True) -> Objection | None:
    """Return the problem that makes a question unusable, or None if rules find none.

    Args:
        question: question that a model wrote.
        passages: passages that the question is about.
        strict: True for one plain question; False for a question in the style of a user, which may hold several
            sentences and question marks.
    """
    text, own, problem = "\n".join(passage.text for passage in passages), question.strip(), ""
    if "\n" in own:
        problem = "the question has several lines: return the question alone, on one line"
    elif _LABEL.search(own):
        problem = "there is a label or an announcement: return the question alone"
    elif _POINTING.search(own):
        problem = "the question points at a text that the reader does not see: name what is meant"
    elif strict and (len(re.findall("[?？؟]", own)) > 1 or len(_JOINED.findall(own)) > 1):
        problem = "these are several questions: ask one"
    elif strict and _AFTER.search(own):
        problem = "something follows the question: return the question alone"
    elif _is_copied(own, text):
        problem = "the question repeats a passage: ask in other words"
    elif _is_foreign(own, text):
        problem = "the question is in another script than the passages: write it in their language"
    return Objection(Reason.QUESTION_REJECTED, problem, own) if problem else None


def objection_to_answer(state: Candidate) -> Callable[[Any], str | Objection | None]:
    """Return a function that takes a model's reply and returns the problem with the answer in the reply, or None.

    The problem is a str if the answer is blank, else an `Objection`. `state` is the candidate whose question is
    answered. There is no problem if the reply or the candidate says that the documents do not answer the question.
    """

    def problem(reply: Any) -> str | Objection | None:
        if not reply.answerable or not state.answerable:
            return None
        if not has_content(reply.answer):
            return "the answer is blank, but `answerable` is true"
        plain = state.evolution == SIMPLE
        return answer_objection(reply.answer, state.standalone_question, state.passages, plain=plain)

    return problem


def answer_objection(answer: str, question: str, passages: Sequence[Passage], *, plain: bool) -> Objection | None:
    """Return the problem that makes a reference answer unusable, or None if rules find none.

    Args:
        answer: reference answer that a model wrote.
        question: question that the answer belongs to, in a form that needs no earlier turns.
        passages: passages that must support the answer.
        plain: True if the answer needs no computation; each of its numbers must then be in the passages or the
            question.
    """
    text = "\n".join(passage.text for passage in passages)
    sentences, problem = split_sentences(answer), ""
    is_there = normalize_text(answer) in normalize_text(text)
    reason, unknown = Reason.UNSUPPORTED, _numbers(answer) - _numbers(f"{text}\n{question}")
    if not is_there and all(is_evasive(sentence) or _REFUSAL.search(sentence) for sentence in sentences):
        reason, problem = Reason.REFUSAL, "this is no answer, but `answerable` is true: answer, or set it to false"
    elif not is_there and (words_of(answer) == words_of(question) or all(map(is_question, sentences))):
        problem = "the answer repeats the question: answer it"
    elif _is_foreign(answer, f"{text}\n{question}"):
        reason, problem = Reason.OTHER_LANGUAGE, "the answer is in another script than the question and the passages"
    elif any(_is_most(answer, whole) for whole in [text, *(passage.text for passage in passages)]):
        reason, problem = Reason.COPIED, "the answer repeats the passages: leave out what the question does not ask for"
    elif plain and unknown:
        problem = f"the passages do not name {', '.join(sorted(unknown))}"
    return Objection(reason, problem, answer) if problem else None


def _is_most(answer: str, text: str) -> bool:
    """Return True if an answer is nearly the whole of a text, or if a very long one is half of it."""
    least = _COPIED_SHARE if len(answer) <= _TOO_LONG else 0.5
    is_long = len(answer) > _LONG_ANSWER and len(answer) >= least * len(text)
    return is_long and shared_share(answer, text) >= _COPIED_SHARE


def _numbers(text: str) -> set[str]:
    return numbers_of(_THOUSANDS.sub("", text))


def _is_copied(question: str, text: str) -> bool:
    """Return True if a question repeats a long run of a text, or is one of it; white space and case do not count."""
    own, others = normalize_text(question), normalize_text(text)
    return (own in others and len(own.split()) >= _SENTENCE) or any(
        own[at : at + _LONGEST_COPY] in others for at in range(len(own) - _LONGEST_COPY + 1)
    )


def _is_foreign(text: str, source: str) -> bool:
    """Return True if a text has letters of other scripts alone, and no word of it is in the source."""
    own, there = _scripts(text), _scripts(source)
    shared = {*words_of(text)} & {*words_of(source)}
    return bool(own and there) and not own & there and all(map(str.isdigit, shared))


def _scripts(text: str) -> set[str]:
    """Return the scripts of a text, such as "LATIN" or "CJK", that have a tenth of its letters."""
    letters = [unicodedata.name(letter, "").split(" ")[0] for letter in text[:_SAMPLE] if letter.isalpha()]
    return {script for script, count in Counter(letters).items() if count >= _LEAST_SHARE * len(letters)}
