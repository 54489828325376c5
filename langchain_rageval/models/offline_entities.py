"""What the offline judge says of entities and of questions that contexts may answer: word overlap again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stems_of

_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,][^\W_]+)*|[^\w\s]")
_ENOUGH = 0.6


def entities(inputs: Mapping[str, Any], _contexts: Mapping[str, str]) -> dict[str, Any]:
    """Runs of words that begin with a capital letter, but for the first word of a sentence, and numbers."""
    named = [name for sentence in split_sentences(str(inputs["text"])) for name in _named(sentence)]
    return {"entities": list(dict.fromkeys(named))}


def _named(sentence: str) -> list[str]:
    marked = [(token, _kind(token, first=number == 0)) for number, token in enumerate(_TOKEN.findall(sentence))]
    return [
        " ".join(token for token, _ in run)
        for kind, run in ((kind, list(run)) for kind, run in groupby(marked, key=lambda item: item[1]))
        if kind
    ]


def _kind(token: str, *, first: bool) -> str:
    if token[0].isdigit():
        return "number"
    return "name" if token[0].isupper() and not first else ""


def found(inputs: Mapping[str, Any], contexts: Mapping[str, str]) -> dict[str, Any]:
    """Each entity in the sentences that hold all its stems and numbers."""
    held = {number: stems_of(sentence) | numbers_of(sentence) for number, sentence in contexts.items()}
    listed = []
    for item in inputs["entities"]:
        wanted = stems_of(str(item["text"])) | numbers_of(str(item["text"]))
        evidence = [number for number, stems in held.items() if wanted and wanted <= stems]
        if evidence:
            listed.append({"entity": item["entity"], "evidence": evidence})
    return {"found": listed}


def answerable(inputs: Mapping[str, Any], contexts: Mapping[str, str]) -> dict[str, Any]:
    """Whether some sentence holds at least 60% of the question's stems."""
    wanted = stems_of(str(inputs["question"]))
    shared = max((len(wanted & stems_of(sentence)) for sentence in contexts.values()), default=0)
    return {"reason": f"{shared}/{len(wanted)}", "answerable": bool(wanted) and shared >= _ENOUGH * len(wanted)}
