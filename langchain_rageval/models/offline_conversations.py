"""Answers of the offline judge about whole conversations, by overlap of word stems, numbers and negations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from langchain_rageval.models.offline_overlap import ENOUGH, SOME, stem_share
from langchain_rageval.text.sentences import assertions, is_question, split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of

_Items = Sequence[Mapping[str, Any]]

_NEGATION = re.compile(r"\b(?:не|нет|нельзя|no|not|never|cannot)\b|n't\b", re.IGNORECASE)
_CORRECTION = re.compile(r"\b(?:ошиб\w*|поправ\w*|уточн\w*|исправл\w*|correct\w*|mistake\w*|sorry)\b", re.IGNORECASE)
_RUSSIAN_FIRST = "я мне меня мной мой моя моё мое мои моего моей моему моих мою мы нас нам наш наша наше наши нашей"
_ENGLISH_FIRST = "i i'm i've my mine me we our us"
_FIRST_PERSON = frozenset(_RUSSIAN_FIRST.split() + _ENGLISH_FIRST.split())
_WISH = re.compile(
    r"\b(?:хочу|хотел\w*|хотим|нужн\w*|надо|пожалуйста|подскажите|помогите|please|want|need|would like)\b",
    re.IGNORECASE,
)


def read_dialogue(turns: _Items) -> dict[str, Any]:
    """Return the assertions of the assistant, those of the user in the first person, and questions and wishes."""
    facts: dict[str, list[dict[str, Any]]] = {"statements": [], "facts": [], "needs": []}
    for turn in turns:
        for sentence in split_sentences(str(turn["text"])):
            fact = {"turn": turn["turn"], "text": sentence}
            if turn["role"] == "assistant":
                facts["statements"] += [fact] if assertions(sentence) else []
            elif is_question(sentence) or _WISH.search(sentence):
                facts["needs"].append(fact)
            elif _FIRST_PERSON & {*words_of(sentence)} or _FIRST_PERSON & {*sentence.lower().split()}:
                facts["facts"].append(fact)
    return facts


def compare_claims(statements: _Items) -> list[dict[str, Any]]:
    """Return the pairs of similar statements of different turns with other numbers, or one of which is negated."""
    pairs = []
    for one, other in combinations(statements, 2):
        texts = str(one["text"]), str(other["text"])
        if one["turn"] != other["turn"] and not _CORRECTION.search(texts[1]) and (reason := _conflict(*texts)):
            pairs.append({"reason": reason, "first": one["statement"], "second": other["statement"]})
    return pairs


def follow_facts(facts: _Items, turns: _Items) -> list[dict[str, Any]]:
    """Return for each fact whether a later question of the assistant repeats it, or a later statement conflicts."""
    verdicts = []
    for fact in facts:
        text, wanted = str(fact["text"]), stems_of(str(fact["text"]))
        verdict, reason, found = "not touched", "no overlap", list[int]()
        for turn in _later(turns, fact["turn"]):
            for sentence in split_sentences(str(turn["text"])):
                if is_question(sentence) and stem_share(stems_of(sentence), wanted) >= SOME:
                    verdict, reason, found = "asked again", "overlap", [turn["turn"]]
                elif not is_question(sentence) and (conflict := _conflict(text, sentence)):
                    verdict, reason, found = "ignored", conflict, [turn["turn"]]
                elif verdict == "not touched" and stem_share(wanted, stems_of(sentence)) >= SOME:
                    verdict, reason = "kept", "overlap"
            if found:
                break
        verdicts.append({"fact": fact["fact"], "reason": reason, "verdict": verdict, "turns": found})
    return verdicts


def follow_needs(needs: _Items, turns: _Items) -> list[dict[str, Any]]:
    """Return for each need whether an assertion of the assistant's next turn, or one that overlaps it, answers it."""
    verdicts = []
    for need in needs:
        wanted = stems_of(str(need["text"]))
        answers = [
            turn["turn"]
            for place, turn in enumerate(_later(turns, need["turn"]))
            if (stated := " ".join(assertions(turn["text"])))
            and (place == 0 or stem_share(wanted, stems_of(stated)) >= SOME)
        ]
        verdict = "met" if answers else "unmet"
        verdicts.append({"need": need["need"], "reason": "overlap", "verdict": verdict, "turns": answers[:1]})
    return verdicts


def _later(turns: _Items, number: int) -> _Items:
    """Return the turns of the assistant after a turn."""
    return [turn for turn in turns if turn["turn"] > number and turn["role"] == "assistant"]


def _conflict(one: str, other: str) -> str:
    """Return why two texts on one topic conflict; "" if they do not."""
    numbers = numbers_of(one), numbers_of(other)
    shorter, longer = sorted((stems_of(one) - numbers[0], stems_of(other) - numbers[1]), key=len)
    if stem_share(shorter, longer) < ENOUGH:
        return ""
    if numbers[0] - numbers[1] and numbers[1] - numbers[0]:
        return "other numbers"
    return "a negation" if bool(_NEGATION.search(one)) != bool(_NEGATION.search(other)) else ""
