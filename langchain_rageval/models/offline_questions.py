"""Answers of the offline judge about entities and subjects of questions, and to steps that rephrase questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any
from zlib import crc32

from langchain_rageval.models.offline_writer import (
    TEMPLATES,
    content_stems,
    fill_template,
    passage_texts,
    quoted_phrases,
    subject,
    template_language,
    topics_of,
)
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import normalize_text, numbers_of, stems_of, words_of

_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,][^\W_]+)*|[^\w\s]")
_ENOUGH = 0.6
_FEW_WORDS = 3
_POINTING = re.compile(
    r"\b(?:he|she|it|they|him|her|them|his|its|their|there|then|that one|this|these|those|one"
    r"|он|она|оно|они|его|ему|ей|её|ее|их|им|ими|ней|нём|нем|ними|него|неё|нее|там|тогда|это\w*|эт[аиу]\w*|так\w*)\b",
    re.IGNORECASE,
)


def list_entities(inputs: Mapping[str, Any], _contexts: Mapping[str, str]) -> dict[str, Any]:
    """Offline reply to the step `extract_entities`: runs of capitalized words, and numbers.

    The first word of a sentence does not count as capitalized.
    """
    names = [name for sentence in split_sentences(str(inputs["text"])) for name in _names(sentence)]
    return {"entities": list(dict.fromkeys(names))}


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


def name_the_subject(inputs: Mapping[str, Any], _contexts: Mapping[str, str]) -> dict[str, Any]:
    """Offline reply to the step `rewrite_question`: a pointing or very short question with the last named entity.

    Any other question, and one of a conversation that names nothing, is repeated.
    """
    question = str(inputs["question"])
    words = words_of(question)
    names = [name for turn in inputs["history"] for name in _entities_of_turn(str(turn["text"]))]
    if not names or not (len(words) <= _FEW_WORDS or _POINTING.search(question)):
        return {"reason": "", "question": question}
    body, end = (question[:-1], question[-1]) if question[-1:] in "?？.!" and question else (question, "")
    return {"reason": names[-1], "question": f"{body.rstrip()} ({names[-1]}){end}"}


def _entities_of_turn(text: str) -> list[str]:
    """Return the names of a turn; if there are none, a first word that is a short answer's only capitalized one."""
    names = [name for sentence in split_sentences(text) for name in _names(sentence) if not name[0].isdigit()]
    words = text.strip(" .!?…").split()
    is_short = 0 < len(words) <= _FEW_WORDS and words[0][0].isupper() and not text.rstrip().endswith(("?", "？"))
    return [" ".join(words)] if is_short and all(word[0].isupper() for word in words) else names


def locate_entities(inputs: Mapping[str, Any], contexts: Mapping[str, str]) -> dict[str, Any]:
    """Offline reply to the step `find_entities`: each entity with the sentences that contain all its words."""
    stems_by_sentence = {number: stems_of(sentence) | numbers_of(sentence) for number, sentence in contexts.items()}
    entities = []
    for item in inputs["entities"]:
        wanted = stems_of(str(item["text"])) | numbers_of(str(item["text"]))
        evidence = [number for number, stems in stems_by_sentence.items() if wanted and wanted <= stems]
        if evidence:
            entities.append({"entity": item["entity"], "evidence": evidence})
    return {"found": entities}


def judge_answerability(inputs: Mapping[str, Any], contexts: Mapping[str, str]) -> dict[str, Any]:
    """Offline reply to the step `detect_answerable`: true if one sentence contains 60% of the words of the question."""
    wanted = stems_of(str(inputs["question"]))
    shared = max((len(wanted & stems_of(sentence)) for sentence in contexts.values()), default=0)
    return {"reason": f"{shared}/{len(wanted)}", "answerable": bool(wanted) and shared >= _ENOUGH * len(wanted)}


_Inputs = Mapping[str, Any]

_LONG_WORD = re.compile(r"\b([^\W\d_]{5,})([^\W\d_])([^\W\d_])([^\W\d_]*)\b")  # the stem of five letters is kept
_MARKS = re.compile(r"[«»\"?!.,:;]")
_TOPIC = re.compile(r"(?:(теме|темой|тема|тему) )?(?:«[^«»]+»|\"[^\"]+\")")
_PRONOUNS = {"теме": "ней", "темой": "ней", "тема": "она", "тему": "её"}


def misspell(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_misspelt`: lower case without marks, two letters of long words swapped."""
    plain = _MARKS.sub("", str(inputs["question"])).lower()
    return {"question": _LONG_WORD.sub(r"\1\3\2\4", plain)}


def keywords(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_terse`: the topics of the question without other words."""
    return {"question": " ".join(topics_of(str(inputs["question"])))}


def reframe(inputs: _Inputs, *, style: str) -> dict[str, Any]:
    """Offline reply to the steps of other styles: the question within a fixed phrase of the style."""
    question = str(inputs["question"])
    if style == "voice":
        question = " ".join(_MARKS.sub(" ", question).lower().split())
    if style == "angry":
        question = question.rstrip("?")
    return {"question": fill_template(question, style, question)}


def speak_as_persona(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_persona`: the question after a greeting, for any persona."""
    question = str(inputs["question"])
    return {"question": fill_template(question, "persona", question)}


def ask_off_topic(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_off_topic`: a question about plants that the passages do not name."""
    question, present = str(inputs["question"]), stems_of(" ".join(passage_texts(inputs)))
    own = TEMPLATES[template_language(" ".join([question, *passage_texts(inputs)]))]
    number = crc32(question.encode())
    things = [thing for thing in own["things"] if not stems_of(thing) & present] or own["things"]
    verb, thing = own["verbs"][number % len(own["verbs"])], things[number // len(own["verbs"]) % len(things)]
    return {"question": str(own["off topic"]).format(verb, thing)}


def write_conversation(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `evolve_follow_up`: exchanges that name the first topic, and a question that points.

    The topic is replaced in the last question by a pronoun. At most two exchanges, which differ.
    """
    question = str(inputs["question"])
    first = next(iter(quoted_phrases(question)), "")
    topic = next((match.group() for match in _TOPIC.finditer(question) if first and first in match.group()), "")
    mentions = [fill_template(question, name, subject(question)) for name in ("topic", "topic again")]
    answer = fill_template(question, "which")
    exchanges = [{"question": mention, "answer": answer} for mention in mentions[: int(inputs["earlier"])]]
    last = question.replace(topic, _pronoun(topic, question), 1) if topic else fill_template(question, "follow_up")
    return {"exchanges": exchanges, "question": last}


def assess_follow_up(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `review_follow_up`.

    The question depends on the chat if it lacks words of its standalone form, asks the same if these are in the chat,
    and is open if the user has not asked it before.
    """
    wanted, own = content_stems(str(inputs["standalone"])), stems_of(str(inputs["question"]))
    chat = stems_of(" ".join(str(turn["text"]) for turn in inputs["turns"]))
    asked = {normalize_text(str(turn["text"])) for turn in inputs["turns"] if turn["role"] == "user"}
    return {
        "feedback": f"{len(wanted & own)} + {len(wanted & chat)} / {len(wanted)}",
        "depends": bool(wanted - own),
        "same": len(wanted & (own | chat)) >= _ENOUGH * len(wanted),
        "open": normalize_text(str(inputs["standalone"])) not in asked,
    }


def list_personas(inputs: _Inputs) -> dict[str, Any]:
    """Offline reply to the step `propose_personas`: the first personas of a fixed list, whatever the passages are."""
    own = TEMPLATES[template_language(" ".join(passage_texts(inputs)))]["personas"]
    return {"personas": list(own[: int(inputs["count"])])}


def _pronoun(topic: str, question: str) -> str:
    word = topic.split(" ")[0]
    return _PRONOUNS.get(word, "это" if template_language(question) == "ru" else "it")
