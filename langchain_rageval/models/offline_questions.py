"""Answers of the offline judge about entities and subjects of questions, and to steps that rephrase questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from zlib import crc32

from langchain_rageval.models.offline_overlap import ENOUGH, stem_share, tally
from langchain_rageval.models.offline_writer import content_stems, fill_template, quoted_phrases, subject, texts_for
from langchain_rageval.text.sentences import is_question, split_sentences
from langchain_rageval.text.words import normalize_text, numbers_of, stems_of, words_of

_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,][^\W_]+)*|[^\w\s]")
_FEW_WORDS = 3
_POINTING = re.compile(
    r"\b(?:he|she|it|they|him|her|them|his|its|their|there|then|that one|this|these|those|one"
    r"|он|она|оно|они|его|ему|ей|её|ее|их|им|ими|ней|нём|нем|ними|него|неё|нее|там|тогда|это\w*|эт[аиу]\w*|так\w*)\b",
    re.IGNORECASE,
)


def list_entities(text: str) -> list[str]:
    """Return runs of capitalized words, and numbers; the first word of a sentence does not count as capitalized."""
    return list(dict.fromkeys(name for sentence in split_sentences(text) for name in _names(sentence)))


def _names(sentence: str) -> list[str]:
    """Return the names and numbers of a sentence: runs of adjacent capitalized words, and runs of adjacent numbers."""
    tokens = [(token, _kind(token, first=place == 0)) for place, token in enumerate(_TOKEN.findall(sentence))]
    return [
        " ".join(token for token, _ in run)
        for kind, run in ((kind, list(run)) for kind, run in groupby(tokens, key=lambda item: item[1]))
        if kind
    ]


def _kind(token: str, *, first: bool) -> str:
    if token[0].isdigit():
        return "number"
    return "name" if token[0].isupper() and not first else ""


def name_the_subject(question: str, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a pointing or very short question with the last named entity of a conversation.

    Any other question, and one of a conversation that names nothing, is repeated.
    """
    names = [name for turn in history for name in _entities_of_turn(str(turn["text"]))]
    if not names or not (len(words_of(question)) <= _FEW_WORDS or _POINTING.search(question)):
        return {"reason": "", "question": question}
    body, end = (question[:-1], question[-1]) if question[-1:] in "?？.!" and question else (question, "")
    return {"reason": names[-1], "question": f"{body.rstrip()} ({names[-1]}){end}"}


def _entities_of_turn(text: str) -> list[str]:
    """Return the names of a turn; if there are none, a first word that is a short answer's only capitalized one."""
    names = [name for sentence in split_sentences(text) for name in _names(sentence) if not name[0].isdigit()]
    words = text.strip(" .!?…").split()
    is_short = 0 < len(words) <= _FEW_WORDS and words[0][0].isupper() and not is_question(text.rstrip())
    return [" ".join(words)] if is_short and all(word[0].isupper() for word in words) else names


def locate_entities(entities: Sequence[Mapping[str, Any]], sentences: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return each entity that is found, with the numbers of the sentences that contain all its words."""
    stems_by_sentence = {number: stems_of(sentence) | numbers_of(sentence) for number, sentence in sentences.items()}
    found = []
    for item in entities:
        wanted = stems_of(str(item["text"])) | numbers_of(str(item["text"]))
        evidence = [number for number, stems in stems_by_sentence.items() if wanted and wanted <= stems]
        if evidence:
            found.append({"entity": item["entity"], "evidence": evidence})
    return found


def judge_answerability(question: str, sentences: Mapping[str, str]) -> dict[str, Any]:
    """Return whether one sentence contains 60% of the words of the question."""
    wanted = stems_of(question)
    best = max(map(stems_of, sentences.values()), key=lambda stems: len(wanted & stems), default=set[str]())
    return {"reason": tally(wanted, best), "answerable": stem_share(wanted, best) >= ENOUGH}


_LONG_WORD = re.compile(r"\b([^\W\d_]{5,})([^\W\d_])([^\W\d_])([^\W\d_]*)\b")  # the stem of five letters is kept
_MARKS = re.compile(r"[«»\"?!.,:;]")
_TOPIC = re.compile(r"(?:(теме|темой|тема|тему) )?(?:«[^«»]+»|\"[^\"]+\")")
_PRONOUNS = {"теме": "ней", "темой": "ней", "тема": "она", "тему": "её"}


def misspell(question: str) -> str:
    """Return a question in lower case without marks, with two letters of long words swapped."""
    return _LONG_WORD.sub(r"\1\3\2\4", _MARKS.sub("", question).lower())


def reframe(style: str, question: str) -> str:
    """Return a question within the fixed phrase of a style."""
    if style == "voice":
        question = " ".join(_MARKS.sub(" ", question).lower().split())
    if style == "angry":
        question = question.rstrip("?")
    return fill_template(style, question, question)


def ask_off_topic(question: str, texts: Sequence[str]) -> str:
    """Return a question about plants that the passages do not name."""
    present, own = stems_of(" ".join(texts)), texts_for(" ".join([question, *texts]))
    number = crc32(question.encode())
    things = [thing for thing in own["things"] if not stems_of(thing) & present] or own["things"]
    verb, thing = own["verbs"][number % len(own["verbs"])], things[number // len(own["verbs"]) % len(things)]
    return str(own["off topic"]).format(verb, thing)


def write_conversation(question: str, earlier: str) -> dict[str, Any]:
    """Return exchanges that name the first topic, and the question with a pronoun in place of the topic.

    At most two exchanges, which differ.
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
    """Return whether a question depends on its chat, asks the same as its standalone form, and is open.

    It depends on the chat if it lacks words of its standalone form, asks the same if these are in the chat, and is open
    if the user has not asked it before.
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
    """Return the first personas of a fixed list, whatever the passages are."""
    return list(texts_for(" ".join(texts))["personas"][: int(count)])
