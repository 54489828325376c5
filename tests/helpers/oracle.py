"""`oracle`: a judge that replies to labelled items from their labels, and functions that make it err."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from threading import Lock
from typing import Any

from helpers.scripted import Scripted, answering, human_of

from langchain_rageval.prompts.layout import NumberedContexts, read_inputs, read_schema
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.trust.examination import LabelledItem, labelled_items

_SENTENCE = re.compile(r"^\[(\d+\.\d+)\] (.*)$", re.MULTILINE)

Choose = Callable[[list[str], str], str]
"""Function from the possible verdicts and the right verdict to the given verdict."""


def truth(_options: list[str], right: str) -> str:
    """Return the right verdict."""
    return right


def yes(options: list[str], _right: str) -> str:
    """Return the first possible verdict."""
    return options[0]


def coins(seed: int) -> Choose:
    """Return a function that returns a random verdict."""
    random, lock = Random(seed), Lock()

    def choose(options: list[str], _right: str) -> str:
        with lock:
            return random.choice(options)

    return choose


def oracle(choose: Choose = truth, *, cites: str | None = None) -> Scripted:
    """Return a judge that knows the labels; `cites` is a sentence number that replaces its citations."""
    return answering(lambda messages: json.dumps(answer(human_of(messages), choose, cites)))


def answer(human: str, choose: Choose = truth, cites: str | None = None) -> dict[str, Any]:
    """Return the reply to a request as a mapping."""
    inputs = read_inputs(human)
    numbers = {text: number for number, text in _SENTENCE.findall(human)}
    title = (read_schema(human) or {}).get("title")
    if title in _BY_TITLE:
        return _BY_TITLE[title](inputs, numbers, choose)
    if "statements" in inputs:
        return _verdicts(inputs, numbers, choose, cites)
    if "answer_statements" in inputs:
        return _classification(inputs, choose)
    if "text" in inputs:
        return _statements(inputs, choose)
    if "count" in inputs:
        item = _item("regenerate_questions", "answer", inputs["answer"])
        evasive = choose(["answers", "evasive"], item.labels[0].accepted[0]) == "evasive"
        return {"evasive": evasive, "questions": [] if evasive else ["What is said?"]}
    if inputs.keys() == {"question"}:
        return _needed(inputs, numbers, choose)
    return _grades(inputs, numbers, choose)


def _verdicts(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose, cites: str | None) -> dict:
    verdicts, texts = [], {asked["text"] for asked in inputs["statements"]}
    item = next(i for i in _items("verify_statements") if texts <= {*i.statements})
    for asked in inputs["statements"]:
        label = item.labels[item.statements.index(asked["text"])]
        verdict = choose(["supported", "contradicted", "absent"], label.accepted[0])
        sentences = NumberedContexts.of(item.contexts).sentences
        deciding = [text for n, text in sentences.items() if any(f"{n}.".startswith(f"{e}.") for e in label.evidence)]
        evidence = [cites] if cites else [numbers[(deciding or [*sentences.values()])[0]]]
        given = {"evidence": evidence if verdict != "absent" else [], "verdict": verdict}
        verdicts.append({"statement": asked["statement"], "reason": "", **given})
    return {"verdicts": verdicts}


def _classification(inputs: Mapping[str, Any], choose: Choose) -> dict:
    answers = {asked["text"]: asked["answer"] for asked in inputs["answer_statements"]}
    references = {asked["text"]: asked["reference"] for asked in inputs["reference_statements"]}
    item = next(i for i in _items("classify_statements") if {*i.statements} == {*answers})
    labels = dict(zip([*item.statements, *(("", text) for text in item.references)], item.labels, strict=True))
    unlabelled = [number for text, number in references.items() if not labels["", text].accepted]
    company = unlabelled or [*references.values()]  # named by a statement in other words; labels decide on FN below
    found: dict[str, list[Any]] = {"TP": [], "FP": [], "FN": []}
    for text, number in answers.items():
        verdict = choose(["TP", "FP"], labels[text].accepted[0])
        same = [references[text]] if text in references else company
        found[verdict].append({"answer": number, "reason": "", **({"references": same} if verdict == "TP" else {})})
    cited = {number for hit in found["TP"] for number in hit["references"]}
    for text, number in references.items():
        wrong = choose(["TP", "FN"], (labels["", text].accepted or ["TP"])[0]) == "FN"
        if wrong or (number not in cited and not found["TP"]):
            found["FN"].append({"reference": number, "reason": ""})
        elif number not in cited:
            found["TP"][0]["references"] = [*found["TP"][0]["references"], number]
    return found


def _statements(inputs: Mapping[str, Any], choose: Choose) -> dict:
    item = _item("extract_statements", "answer", inputs["text"])
    found = choose(["facts", "no facts"], item.labels[0].accepted[0])
    return {"statements": split_sentences(inputs["text"]) if found == "facts" else []}


def _needed(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("select_sentences", "question", inputs["question"])
    sentences = NumberedContexts.of(item.contexts).sentences
    labelled = {sentences[label.number]: label.accepted[0] for label in item.labels}
    chosen = [text for text, right in labelled.items() if choose(["needed", "not needed"], right) == "needed"]
    return {"reason": "", "sentences": [numbers[text] for text in chosen]}


def _grades(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("grade_contexts", "question", inputs["question"])
    verdicts = []
    for context, label in zip(item.contexts, item.labels, strict=True):
        number = int(numbers[split_sentences(context)[0]].partition(".")[0])
        useful = choose(["useful", "not useful"], label.accepted[0]) == "useful"
        verdicts.append({"context": number, "reason": "", "useful": useful})
    return {"verdicts": verdicts}


def _aspect(inputs: Mapping[str, Any], _numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("critique_aspect", "answer", inputs["answer"])
    return {"reason": "", "verdict": choose(["yes", "no"], item.labels[0].accepted[0]) == "yes"}


def _abstention(inputs: Mapping[str, Any], _numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("detect_abstention", "question", inputs["question"])
    return {"reason": "", "abstains": choose(["abstains", "answers"], item.labels[0].accepted[0]) == "abstains"}


def _answerable(inputs: Mapping[str, Any], _numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("detect_answerable", "question", inputs["question"])
    return {"reason": "", "answerable": choose(["answer", "do not answer"], item.labels[0].accepted[0]) == "answer"}


def _entities(inputs: Mapping[str, Any], _numbers: Mapping[str, str], choose: Choose) -> dict:
    item = next(item for item in _items("extract_entities") if item.references[0] == inputs["text"])
    verdicts = [choose(["named", "not named"], label.accepted[0]) for label in item.labels]
    return {"entities": [term for term, verdict in zip(item.terms, verdicts, strict=True) if verdict == "named"]}


def _found(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose) -> dict:
    texts = [asked["text"] for asked in inputs["entities"]]
    shown = set(numbers)
    item = next(
        item
        for item in _items("find_entities")
        if {*texts} <= {*item.terms} and {*NumberedContexts.of(item.contexts).sentences.values()} == shown
    )
    found = []
    for asked in inputs["entities"]:
        label = item.labels[item.terms.index(asked["text"])]
        if choose(["found", "not found"], label.accepted[0]) == "found":
            chunk = label.evidence[0] if label.evidence else "1"
            evidence = [number for number in numbers.values() if number.startswith(f"{chunk}.")]
            found.append({"entity": asked["entity"], "evidence": evidence})
    return {"found": found}


def _relevance(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("grade_relevance", "question", inputs["question"])
    grades = []
    for context, label in zip(item.contexts, item.labels, strict=True):
        first = NumberedContexts.of([context]).sentences["1.1"]
        grade = int(choose(list("43210"), label.accepted[-1] if "4" in label.accepted else label.accepted[0]))
        grades.append({"context": int(numbers[first].partition(".")[0]), "reason": "", "grade": grade})
    return {"grades": grades}


def _rubric(inputs: Mapping[str, Any], _numbers: Mapping[str, str], choose: Choose) -> dict:
    item = _item("grade_rubric", "answer", inputs["answer"], question=inputs["question"])
    asked = zip(inputs["criteria"], item.labels, strict=True)
    return {
        "grades": [
            {
                "criterion": criterion["criterion"],
                "reason": "",
                "grade": int(choose(list("3210"), (label.accepted or ("3",))[0])),
            }
            for criterion, label in asked
        ]
    }


_BY_TITLE: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, str], Choose], dict]] = {
    "AspectVerdict": _aspect,
    "Abstention": _abstention,
    "Answerable": _answerable,
    "Entities": _entities,
    "FoundEntities": _found,
    "RelevanceGrades": _relevance,
    "RubricGrades": _rubric,
}


def _item(step: str, field: str, value: str, **others: str) -> LabelledItem:
    wanted = {field: value, **others}
    return next(item for item in _items(step) if all(getattr(item, name) == text for name, text in wanted.items()))


@cache
def _items(step: str) -> list[LabelledItem]:
    return [item for language in ("ru", "en") for item in labelled_items(language) if item.step == step]
