"""Answers of the offline judge to the requests of metrics, from shared word stems, numbers and negations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import partial
from itertools import combinations, groupby, pairwise
from typing import Any, TypeVar

from langchain_rageval._internal.page import pluralize
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.sentences import NUMBERED_MARK, assertions, is_evasive, is_question, split_sentences
from langchain_rageval.text.words import numbers_of, stems_of, words_of

_Items = Sequence[Mapping[str, Any]]
_Sentences = Mapping[str, str]

ENOUGH = 0.6
"""Share of the stems of a text from which the text is taken to be said."""

SOME = 0.4
"""Share of the stems of a text from which something is taken to be about it."""

Key = TypeVar("Key")


def stem_share(wanted: Set[str], present: Set[str]) -> float:
    """Return the share of the wanted stems that are present, from 0 to 1; 0 if no stem is wanted."""
    return len(wanted & present) / len(wanted) if wanted else 0.0


def tally(wanted: Set[str], present: Set[str]) -> str:
    """Return the number of wanted stems that are present, and the number wanted, as text such as "3/5"."""
    return f"{len(wanted & present)}/{len(wanted)}"


def cover(wanted: Set[str], stems: Mapping[Key, Set[str]], most: int | None = None) -> tuple[list[Key], Set[str]]:
    """Choose texts that together contain most of the wanted stems.

    Args:
        wanted: stems to find.
        stems: stems of each text, by the key of the text.
        most: maximum number of keys; None for no limit.

    Returns:
        The keys of the chosen texts, and the wanted stems that these texts contain. Each next text is the one that adds
        most stems; a text that adds no stem is not chosen.
    """
    found, missing = list[Key](), wanted
    while stems and (most is None or len(found) < most):
        best = max(stems, key=lambda key: len(missing & stems[key]))
        if not missing & stems[best]:
            break
        found.append(best)
        missing = missing - stems[best]
    return found, wanted - missing


_MOST_SENTENCES = 3  # of a concise answer, for one sentence of the question


def list_statements(text: str) -> list[str]:
    """Return the statements in a text, without citation marks such as `[1]`."""
    return list(assertions(NUMBERED_MARK.sub("", text)))


def find_evidence(statements: _Items, sentences: _Sentences) -> list[dict[str, Any]]:
    """Return a verdict for each statement: "supported", "contradicted" or "absent".

    The one or two sentences that share most word stems with the statement decide. The verdict is "absent" if they
    contain less than 60% of its stems, and otherwise "contradicted" if they lack one of its numbers. Each dict has the
    keys "statement" (its number), "verdict", "evidence" (numbers of the sentences; empty if absent) and "reason" (such
    as "3/5").
    """
    stems = {number: stems_of(sentence) for number, sentence in sentences.items()}
    return [_verdict(item["statement"], str(item["text"]), stems, sentences) for item in statements]


def _verdict(number: int, text: str, stems: Mapping[str, set[str]], sentences: _Sentences) -> dict[str, Any]:
    wanted = stems_of(text)
    cited, present = cover(wanted, stems, most=2)
    known_numbers = numbers_of(" ".join(sentences[n] for n in cited))
    stated = "supported" if numbers_of(text) <= known_numbers else "contradicted"
    is_absent = stem_share(wanted, present) < ENOUGH
    return {
        "statement": number,
        "reason": tally(wanted, present),
        "evidence": [] if is_absent else cited,
        "verdict": "absent" if is_absent else stated,
    }


def classify(reference_statements: _Items, answer_statements: _Items) -> dict[str, Any]:
    """Compare the statements of an answer with those of a reference.

    Two statements are the same if they share 60% of the stems of the shorter statement, and one has all numbers of the
    other. The dict has the keys "TP" (statements in both), "FP" (only in the answer) and "FN" (only in the reference).
    Each value is a list of dicts with statement numbers ("answer", "references" or "reference"), "reason" and, for FP,
    "kind".
    """
    references = {int(item["reference"]): str(item["text"]) for item in reference_statements}
    hits: list[dict[str, Any]] = []
    misses: list[dict[str, Any]] = []
    for item in answer_statements:
        text = str(item["text"])
        same = [number for number, reference in references.items() if _same(text, reference)]
        if same:
            hits.append({"reason": "overlap", "answer": item["answer"], "references": same})
        else:
            kind = "contradicts" if any(_same_but_numbers(text, one) for one in references.values()) else "extra"
            misses.append({"reason": "no overlap", "answer": item["answer"], "kind": kind, "references": []})
    covered = {number for hit in hits for number in hit["references"]}
    uncovered = [{"reason": "no overlap", "reference": number} for number in references if number not in covered]
    return {"TP": hits, "FP": misses, "FN": uncovered}


def _same(one: str, other: str) -> bool:
    """Return True if two statements share 60% of the stems of the shorter statement and have no conflicting numbers."""
    numbers = [numbers_of(text) for text in (one, other)]
    return _same_but_numbers(one, other) and (numbers[0] <= numbers[1] or numbers[1] <= numbers[0])


def _same_but_numbers(one: str, other: str) -> bool:
    shorter, longer = sorted(map(stems_of, (one, other)), key=len)
    return stem_share(shorter, longer) >= ENOUGH


def grade_chunks(question: str, answer: str, sentences: _Sentences) -> list[dict[str, Any]]:
    """Return for each chunk whether it contains at least 40% of the word stems of the answer, and is thus useful.

    Without an answer, the stems of the question are used. `sentences` maps numbers to texts; "2.1" is a sentence of
    chunk 2. Each dict has the keys "context" (number of the chunk), "reason" (such as "3/5") and "useful" (a bool).
    """
    wanted = stems_of(answer) or stems_of(question)
    return [{**item, "useful": share >= SOME} for item, share in _shares_of_chunks(wanted, sentences)]


def grade_by_question(question: str, scale: Sequence[int], sentences: _Sentences) -> list[dict[str, Any]]:
    """Return a relevance grade for each chunk, computed from the share of the question's word stems in the chunk.

    `scale` is the lowest and the highest grade. `sentences` maps numbers to texts; the sentences "2.1" and "2.2" are
    parts of chunk 2. Each dict has the keys "context" (number of the chunk), "reason" (such as "3/5") and "grade".
    """
    chunks = _shares_of_chunks(stems_of(question), sentences)
    return [{**item, "grade": _grade(share, scale)} for item, share in chunks]


def _shares_of_chunks(wanted: Set[str], sentences: _Sentences) -> list[tuple[dict[str, Any], float]]:
    """Return for each chunk an item with its number and the tally of wanted stems, and the share of these stems."""
    chunks: dict[int, set[str]] = {}
    for number, sentence in sentences.items():
        chunks.setdefault(int(number.partition(".")[0]), set()).update(stems_of(sentence))
    return [
        ({"context": chunk, "reason": tally(wanted, stems)}, stem_share(wanted, stems))
        for chunk, stems in chunks.items()
    ]


def _grade(share: float, scale: Sequence[int]) -> int:
    """Return the grade at a share, from 0 to 1, of a scale from its lowest to its highest grade."""
    return scale[0] + round(share * (scale[-1] - scale[0]))


def list_needed(question: str, sentences: _Sentences) -> dict[str, Any]:
    """Return the numbers of the sentences that each contain at least 40% of the question's word stems.

    `sentences` maps numbers, such as "2.3", to texts. The returned dict has the keys "sentences" (list of the numbers;
    empty if no sentence contains enough stems) and "reason" (a fixed text). A stem is the first five letters of a word.
    """
    wanted = stems_of(question)
    needed = [number for number, text in sentences.items() if stem_share(wanted, stems_of(text)) >= SOME]
    return {"reason": f"at least {SOME:.0%} of the question's words", "sentences": needed}


def turn_into_questions(answer: str, count: str) -> dict[str, Any]:
    """Return the first statements of an answer as questions, with a question mark added.

    `count` is the maximum number of questions, such as "3". The dict has the keys "questions" (list of texts) and
    "evasive" (True if the answer contains no statement).
    """
    questions = [sentence.rstrip(".!…。！ ") + "?" for sentence in assertions(str(answer))[: int(count)]]
    return {"evasive": not questions, "questions": questions}


def critique(question: str, answer: str, aspect: str, sentences: _Sentences) -> dict[str, Any]:
    """Return whether an answer satisfies an aspect.

    The known aspects are "conciseness" (at most three sentences for each sentence of the question), "correctness" (no
    number that the contexts lack, if there are contexts) and "coherence" (no repeated sentence). Any other aspect is
    not satisfied. The dict has the keys "verdict" (True or False) and "reason".
    """
    parts = split_sentences(answer)
    russian = detect_language(question) == "ru"
    length = f"предложений: {len(parts)}" if russian else pluralize(len(parts), "sentence")
    if aspect == "conciseness":
        asked = max(1, len(split_sentences(question)))
        return {"reason": length, "verdict": len(parts) <= _MOST_SENTENCES * asked}
    if aspect == "correctness":
        others = numbers_of(answer) - numbers_of(" ".join(sentences.values()))
        reason = f"других чисел: {len(others)}" if russian else f"{len(others)} other numbers"
        return {"reason": reason, "verdict": not (sentences and others)}
    if aspect == "coherence":
        return {"reason": length, "verdict": len(set(parts)) == len(parts)}
    unknown = "совпадение слов этого не покажет" if russian else "word overlap cannot tell"
    return {"reason": unknown, "verdict": False}


def assess_abstention(question: str, answer: str) -> dict[str, Any]:
    """Return whether an answer abstains, that is, contains no statement.

    The dict has the keys "abstains" (a bool) and "reason" (the number of statements, as text in Russian for a Russian
    question, otherwise in English).
    """
    count = len(assertions(answer))
    reason = f"утверждений: {count}" if detect_language(question) == "ru" else pluralize(count, "statement")
    return {"reason": reason, "abstains": not count}


def grade_criteria(
    question: str, answer: str, reference: str, criteria: _Items, sentences: _Sentences
) -> list[dict[str, Any]]:
    """Return a grade for each criterion of a rubric, computed from a share between 0 and 1.

    For "completeness", this is the share of the stems of `reference` (else of `question`) that the answer contains. For
    "readability", it is the share of distinct pairs of neighbouring words. For any other criterion, it is the share of
    the answer's stems in `reference` (else in `sentences`, else in `question`), and 0 for an evasion or a number
    missing there. Each dict has the keys "criterion", "reason" (such as "60%") and "grade" (on the criterion's scale).
    """
    ground = reference or " ".join(sentences.values()) or question
    shares = {
        "correctness": partial(_correct_share, answer, ground),
        "completeness": partial(stem_share, stems_of(reference or question), stems_of(answer)),
        "readability": partial(_distinct_share, answer),
    }
    grades = []
    for criterion in criteria:
        found = shares.get(criterion["criterion"], shares["correctness"])()
        grade = _grade(found, sorted(map(int, criterion["grades"])))
        grades.append({"criterion": criterion["criterion"], "reason": f"{found:.0%}", "grade": grade})
    return grades


def _correct_share(answer: str, ground: str) -> float:
    """Return the share of the answer's stems that occur in a text; 0 for an evasion or a number missing in the text."""
    if is_evasive(answer) or not numbers_of(answer) <= numbers_of(ground):
        return 0.0
    return stem_share(stems_of(answer), stems_of(ground))


def _distinct_share(text: str) -> float:
    """Return the share of distinct pairs among all pairs of neighbouring words; 1 for fewer than two words."""
    pairs = [*pairwise(words_of(text))]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


_TOKEN = re.compile(r"[^\W_]+(?:[-'’.,][^\W_]+)*|[^\w\s]")
_FEW_WORDS = 3
_POINTING = re.compile(
    r"\b(?:he|she|it|they|him|her|them|his|its|their|there|then|that one|this|these|those|one"
    r"|он|она|оно|они|его|ему|ей|её|ее|их|им|ими|ней|нём|нем|ними|него|неё|нее|там|тогда|это\w*|эт[аиу]\w*|так\w*)\b",
    re.IGNORECASE,
)


def list_entities(text: str) -> list[str]:
    """Return the entities of a text: numbers, and runs of capitalized words.

    The first word of a sentence does not count as capitalized.
    """
    return list(dict.fromkeys(name for sentence in split_sentences(text) for name in _names(sentence)))


def _names(sentence: str) -> list[str]:
    """Return the names and numbers of a sentence: runs of adjacent capitalized words, and runs of adjacent numbers."""
    tokens = enumerate(_TOKEN.findall(sentence))
    runs = groupby(tokens, key=lambda item: (item[1][0].isdigit(), item[0] > 0 and item[1][0].isupper()))
    return [" ".join(token for _, token in run) for kind, run in runs if any(kind)]


def name_the_subject(question: str, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the last named entity of a conversation to a question that has at most three words or a pronoun.

    The entity is added in brackets. Any other question is unchanged, and so is every question if the conversation names
    nothing. The dict has the keys "question" and "reason" (the added entity; "" for an unchanged question).
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
    """Return the entities that occur in the sentences, each with the numbers of the sentences that contain it.

    A sentence contains an entity if it contains all stems and numbers of the entity. Each dict has the keys "entity"
    (its number) and "evidence" (numbers of the sentences). Entities that occur nowhere are left out.
    """
    stems_by_sentence = {number: stems_of(sentence) | numbers_of(sentence) for number, sentence in sentences.items()}
    found = []
    for item in entities:
        wanted = stems_of(str(item["text"])) | numbers_of(str(item["text"]))
        evidence = [number for number, stems in stems_by_sentence.items() if wanted and wanted <= stems]
        if evidence:
            found.append({"entity": item["entity"], "evidence": evidence})
    return found


def judge_answerability(question: str, sentences: Mapping[str, str]) -> dict[str, Any]:
    """Return whether one of the sentences contains at least 60% of the word stems of a question.

    `sentences` maps numbers to the sentences of the contexts. The dict has the keys "answerable" (True or False) and
    "reason" (such as "3/5": the largest number of stems in one sentence, and the number in the question).
    """
    wanted = stems_of(question)
    best = max(map(stems_of, sentences.values()), key=lambda stems: len(wanted & stems), default=set[str]())
    return {"reason": tally(wanted, best), "answerable": stem_share(wanted, best) >= ENOUGH}


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
    """Return the assistant's statements, the user's facts and the user's needs in a conversation.

    A fact is a sentence in the first person. A need is a question or a wish. The keys are "statements", "facts" and
    "needs". Each value is a list of dicts with the keys "turn" (number of the turn) and "text" (the sentence).
    """
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
    """Return the pairs of statements from different turns that contradict each other.

    Two statements do so if they share 60% of the stems of the shorter statement, and each has a number that the other
    lacks, or one is negated. A pair whose second statement is a correction, as with "sorry", is left out. Each dict has
    the keys "first" and "second" (numbers of the statements) and "reason".
    """
    pairs = []
    for one, other in combinations(statements, 2):
        texts = str(one["text"]), str(other["text"])
        if one["turn"] != other["turn"] and not _CORRECTION.search(texts[1]) and (reason := _conflict(*texts)):
            pairs.append({"reason": reason, "first": one["statement"], "second": other["statement"]})
    return pairs


def follow_facts(facts: _Items, turns: _Items) -> list[dict[str, Any]]:
    """Return for each fact of the user whether the assistant later asks for it again or contradicts it.

    Each dict has the keys "fact" (its number), "reason", "verdict" and "turns" (list with the number of the turn that
    asks or contradicts; else empty). The verdict is "asked again", "ignored" (contradicted), "kept" (only mentioned) or
    "not touched" (not mentioned).
    """
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
    """Return for each need of the user (question or wish) whether a later turn of the assistant answers it.

    In the next turn of the assistant, any statement is an answer; in later turns, statements with at least 40% of the
    word stems of the need. Each dict has the keys "need" (its number), "reason", "verdict" ("met" or "unmet") and
    "turns" (list with the number of the first turn that answers; empty if unmet).
    """
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
