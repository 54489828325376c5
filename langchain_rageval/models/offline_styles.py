"""Answers of the offline judge to the steps that rephrase questions: styles, personas, follow-ups, other topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from langchain_rageval.models.offline_templates import TEMPLATES
from langchain_rageval.models.offline_writer import (
    content_stems,
    fill_template,
    passage_texts,
    quoted_phrases,
    subject,
    template_language,
    topics_of,
)
from langchain_rageval.text.normalization import normalize_text
from langchain_rageval.text.stemming import stems_of

_Inputs = Mapping[str, Any]

_LONG_WORD = re.compile(r"\b([^\W\d_]{5,})([^\W\d_])([^\W\d_])([^\W\d_]*)\b")  # the stem of five letters is kept
_MARKS = re.compile(r"[«»\"?!.,:;]")
_TOPIC = re.compile(r"(?:(теме|темой|тема|тему) )?(?:«[^«»]+»|\"[^\"]+\")")
_PRONOUNS = {"теме": "ней", "темой": "ней", "тема": "она", "тему": "её"}
_ENOUGH = 0.6


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
