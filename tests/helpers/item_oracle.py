"""`oracle`: a judge that replies to labelled items from their labels, and functions that make it err."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from threading import Lock
from typing import Any

from helpers.item_checks import options_of
from helpers.scripted import Scripted, answering, human_of

from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import NumberedContexts, read_inputs, read_title
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.trust.examination import holds_term
from langchain_rageval.trust.items import CRITERIA, LabelledItem, labelled_items

_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)

Choose = Callable[[Sequence[str], str], str]
"""Function from the possible verdicts and the right verdict to the given verdict."""


def truth(_options: Sequence[str], right: str) -> str:
    """Return the right verdict."""
    return right


def yes(options: Sequence[str], _right: str) -> str:
    """Return the first possible verdict."""
    return options[0]


def coins(seed: int) -> Choose:
    """Return a function that returns a random verdict."""
    random, lock = Random(seed), Lock()

    def choose(options: Sequence[str], _right: str) -> str:
        with lock:
            return random.choice(options)

    return choose


def oracle(choose: Choose = truth, *, cites: str | None = None, items: Sequence[LabelledItem] = ()) -> Scripted:
    """Return a judge that knows the labels of items, by default the packaged ones.

    Args:
        choose: returns the given verdict.
        cites: sentence number that replaces its citations.
        items: other items than the packaged ones.
    """
    return answering(lambda messages: json.dumps(answer(human_of(messages), choose, cites, tuple(items))))


def answer(
    human: str, choose: Choose = truth, cites: str | None = None, items: tuple[LabelledItem, ...] = ()
) -> dict[str, Any]:
    """Return the reply to a request as a mapping."""
    inputs, sentences = read_inputs(human), {text: number for number, text in _SENTENCE.findall(human)}
    item = find_item(str(read_title(human)), {*_texts(inputs), *sentences}, items)
    options = options_of(item)
    given = []
    for label in item.labels:
        right = label.accepted[::-1] if label.accepted[-1:] == (options[0],) else label.accepted  # the extreme grade
        given.append(choose(options, right[0]) if right else options[-1])
    reply = _REPLIES[item.step if item.step in _REPLIES else str(read_title(human))]
    return reply(item, given, inputs, sentences, cites)


def find_item(title: str, texts: set[str], items: tuple[LabelledItem, ...] = ()) -> LabelledItem:
    """Return the item that shares most texts with a request; of several, the one that has fewest others."""
    known = _known(title) if not items else [(i, _own_texts(i)) for i in items if _title_of(i.step) == title]
    return max(known, key=lambda one: (len(one[1] & texts), -len(one[1])))[0]


@cache
def _known(title: str) -> list[tuple[LabelledItem, frozenset[str]]]:
    items = [item for language in ("ru", "en") for item in labelled_items(language) if _title_of(item.step) == title]
    return [(item, _own_texts(item)) for item in items]


def _title_of(step: str) -> str:
    schema = ANSWER_SCHEMAS.get("verify_statements" if step == "answer_check" else step)
    return schema.__name__ if schema else ""


def _own_texts(item: LabelledItem) -> frozenset[str]:
    own = [item.question, item.answer or "", item.aspect, *item.statements, *item.references, *item.contexts]
    terms = item.terms if item.step == "find_entities" else ()
    turns = [turn.text for turn in item.history]
    sentences = NumberedContexts.of(item.contexts).sentences.values()
    return frozenset([*filter(None, own), "\n".join(item.references), *terms, *turns, *sentences])


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a nested value."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(part)


def _numbered(texts: Sequence[str], given: Sequence[str], asked: Sequence[dict[str, Any]]) -> list[Any]:
    """Return each asked element with its own verdict."""
    verdicts = dict(zip(texts, given, strict=True))
    return [(element, verdicts[element["text"]]) for element in asked]


def _statements(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    if not item.terms:
        return {"statements": split_sentences(inputs["text"]) if given[0] == "facts" else []}
    return {"statements": _spoken(item.terms, given, "stated") or ["Nothing of that."]}


def _spoken(terms: Sequence[str], given: Sequence[str], positive: str) -> list[str]:
    """Return a text for each term that has the positive verdict."""
    chosen = [term for term, verdict in zip(terms, given, strict=True) if verdict == positive]
    return [" ".join(part.split("/")[0] for part in term.split(" + ")) for term in chosen]


def _verdicts(item: LabelledItem, given: Sequence[str], inputs: Any, sentences: Any, cites: str | None) -> Any:
    if item.step == "answer_check":
        label = "supported" if given[0] == "accepted" else "absent"
        return {"verdicts": [{"statement": 1, "reason": "", "evidence": [cites or "1.1"], "verdict": label}]}
    numbers, verdicts = NumberedContexts.of(item.contexts).sentences, []
    evidence = {text: label.evidence for text, label in zip(item.statements, item.labels, strict=True)}
    for asked, verdict in _numbered(item.statements, given, inputs["statements"]):
        deciding = [t for n, t in numbers.items() if any(f"{n}.".startswith(f"{e}.") for e in evidence[asked["text"]])]
        cited = [cites] if cites else [sentences[(deciding or [*numbers.values()])[0]]]
        shown = cited if verdict != "absent" else []
        verdicts.append({"statement": asked["statement"], "reason": "", "evidence": shown, "verdict": verdict})
    return {"verdicts": verdicts}


def _classification(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    count = len(item.statements)
    answers = _numbered(item.statements, given[:count], inputs["answer_statements"])
    references = _numbered(item.references, given[count:], inputs["reference_statements"])
    found: dict[str, list[Any]] = {"TP": [], "FP": [], "FN": []}
    for asked, verdict in answers:
        found["TP" if verdict == "TP" else "FP"].append({"answer": asked["answer"], "reason": "", "references": []})
    said = [asked["reference"] for asked, verdict in references if verdict == "TP"]
    for hit in found["TP"]:
        hit["references"] = said or [asked["reference"] for asked, _ in references]
    for asked, verdict in references:
        if verdict != "TP" or not found["TP"]:
            found["FN"].append({"reference": asked["reference"], "reason": ""})
    return found


def _chunks(item: LabelledItem, given: Sequence[str], sentences: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the number in the request and the verdict of each chunk of an item."""
    for context, verdict in zip(item.contexts, given, strict=True):
        first = NumberedContexts.of([context]).sentences["1.1"]
        if first in sentences:  # a repeated request shows the missing chunks only
            yield int(sentences[first].partition(".")[0]), verdict


def _found(item: LabelledItem, given: Sequence[str], inputs: Any, sentences: Any, _cites: Any) -> Any:
    found = []
    labels = dict(zip(item.terms, item.labels, strict=True))
    for asked, verdict in _numbered(item.terms, given, inputs["entities"]):
        if verdict == "found":
            chunk = (labels[asked["text"]].evidence or ("1",))[0].partition(".")[0]
            evidence = [number for number in sentences.values() if number.startswith(f"{chunk}.")]
            found.append({"entity": asked["entity"], "evidence": evidence})
    return {"found": found}


def _turn_facts(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    turns = {"statements": "assistant", "facts": "user", "needs": "user"}
    numbers = {name: next(t["turn"] for t in inputs["turns"] if t["role"] == role) for name, role in turns.items()}
    texts: dict[str, list[str]] = {name: [] for name in turns}
    for term, verdict in zip(item.terms, given, strict=True):
        name, _, rest = term.partition(": ")
        texts[name] += _spoken([rest], [verdict], "listed")
    wrong = [term.partition(": ") for term, verdict in zip(item.terms, given, strict=True) if verdict != "listed"]
    for name, own in texts.items():  # a short turn has room for few entries
        joined = "; ".join(own)
        if not any(holds_term(joined, term) for other, _, term in wrong if other == name):
            texts[name] = [joined] if own else []
    return {name: [{"turn": numbers[name], "text": text} for text in own] for name, own in texts.items()}


def _contradictions(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    numbers = [asked["statement"] for asked in inputs["statements"]]
    turns = [asked["turn"] for asked in inputs["statements"]]
    wrong = [place for place, verdict in enumerate(given) if verdict == "contradicted"]
    others = {
        place: next(p for p in reversed(wrong or [0]) if turns[p] != turns[place] or len(wrong) < 2) for place in wrong
    }
    pairs = [{"reason": "", "first": numbers[a], "second": numbers[b]} for a, b in others.items() if a != b]
    return {"contradictions": pairs}


def _turn_verdicts(key: str, name: str) -> Callable[..., Any]:
    def reply(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
        last = inputs["turns"][-1]["turn"]
        asked = _numbered(item.statements, given, inputs[name])
        return {"verdicts": [{key: a[key], "reason": "", "verdict": v, "turns": [last]} for a, v in asked]}

    return reply


def _criteria(item: LabelledItem, given: Sequence[str], *_: Any) -> Any:
    values = [int(verdict) if verdict.isdigit() else verdict == "yes" for verdict in given]
    return {"reason": "", "feedback": "", **dict(zip(CRITERIA[item.step], values, strict=True))}


def _rubric(_item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    names = [criterion["criterion"] for criterion in inputs["criteria"]]
    return {"grades": [{"criterion": n, "reason": "", "grade": int(g)} for n, g in zip(names, given, strict=True)]}


def _needed(item: LabelledItem, given: Sequence[str], _inputs: Any, sentences: Any, _cites: Any) -> Any:
    texts = NumberedContexts.of(item.contexts).sentences
    chosen = [texts[label.number] for label, v in zip(item.labels, given, strict=True) if v == "needed"]
    return {"reason": "", "sentences": [sentences[text] for text in chosen]}


def _passages(item: LabelledItem, given: Sequence[str], inputs: Any, *_: Any) -> Any:
    needed = {text for text, verdict in zip(item.contexts, given, strict=True) if verdict == "needed"}
    return {"reason": "", "passages": [asked["passage"] for asked in inputs["passages"] if asked["text"] in needed]}


_REPLIES: dict[str, Callable[..., Any]] = {
    "extract_statements": _statements,
    "Verdicts": _verdicts,
    "classify_statements": _classification,
    "grade_contexts": lambda item, given, _inputs, sentences, _cites: {
        "verdicts": [{"context": n, "reason": "", "useful": v == "useful"} for n, v in _chunks(item, given, sentences)]
    },
    "grade_relevance": lambda item, given, _inputs, sentences, _cites: {
        "grades": [{"context": n, "reason": "", "grade": int(v)} for n, v in _chunks(item, given, sentences)]
    },
    "select_sentences": _needed,
    "regenerate_questions": lambda _item, given, *_: {
        "evasive": given[0] == "evasive",
        "questions": [] if given[0] == "evasive" else ["What is said?"],
    },
    "critique_aspect": lambda _item, given, *_: {"reason": "", "verdict": given[0] == "yes"},
    "detect_abstention": lambda _item, given, *_: {"reason": "", "abstains": given[0] == "abstains"},
    "detect_answerable": lambda _item, given, *_: {"reason": "", "answerable": given[0] == "answer"},
    "extract_entities": lambda item, given, *_: {
        "entities": [term for term, v in zip(item.terms, given, strict=True) if v == "named"]
    },
    "find_entities": _found,
    "grade_rubric": _rubric,
    "rewrite_question": lambda item, given, *_: {
        "reason": "",
        "question": " ".join(_spoken(item.terms, given, "named")) or "What?",
    },
    "list_turn_facts": _turn_facts,
    "find_contradictions": _contradictions,
    "check_user_facts": _turn_verdicts("fact", "facts"),
    "check_needs": _turn_verdicts("need", "needs"),
    **dict.fromkeys(("grade_passage", "review_question", "compare_questions", "review_follow_up"), _criteria),
    "find_passages": _passages,
}
