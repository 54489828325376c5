"""Answers of the offline judge about entities and answerability, computed from word overlap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stems_of

_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,][^\W_]+)*|[^\w\s]")
_ENOUGH = 0.6


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
