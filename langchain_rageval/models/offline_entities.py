"""Answers of the offline judge about entities, subjects of questions and answerability, computed from word overlap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from langchain_rageval.text.normalization import words_of
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stems_of

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
