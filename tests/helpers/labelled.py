"""Judges that answer from labels: of claims (`World`), of dialogues, of labelled items (`oracle`); and RAGChecker."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from helpers.scripted import Scripted, answering, classification, human_of, statements, verdict, verdicts

from langchain_rageval import Sample, samples_of
from langchain_rageval.prompts.layout import NumberedContexts, read_inputs, read_schema
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.trust.items import LabelledItem, labelled_items

QUESTION = "Что покрывает страховка бани?"
FIRE, FLOOD, THEFT, METEOR, WAR = (
    f"Страховка бани покрывает {risk}." for risk in ("пожар", "залив", "кражу", "падение метеорита", "войну")
)
CONTEXTS = ["Полис покрывает пожар и кражу.", "Застрахован и пожар.", "Оговорено падение метеорита."]
SAMPLE = Sample(
    id="баня",
    question=QUESTION,
    answer="\n".join([FIRE, THEFT, METEOR, WAR]),
    contexts=CONTEXTS,
    references=["\n".join([FIRE, FLOOD])],
)
"""The answer has four statements: a right one, one from a relevant chunk, one from another chunk, one from none."""


@dataclass(frozen=True)
class World:
    """Numbers of the chunks that support or contradict each statement.

    Attributes:
        supports: statement to the numbers of the chunks that support it.
        contradicts: statement to the numbers of the chunks that contradict it.
        cites: maximum number of chunks that the judge cites.
    """

    supports: Mapping[str, Sequence[int]] = field(default_factory=lambda: {FIRE: [1, 2], THEFT: [1], METEOR: [3]})
    contradicts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cites: int = 100

    def reply(self, messages: Any) -> Any:
        """Return the reply to a request of any of the three steps of the claim graph."""
        human = human_of(messages)
        inputs = read_inputs(human)
        if "text" in inputs:
            return statements(*inputs["text"].split("\n"))
        if "statements" in inputs:
            shown = {int(number) for number in re.findall(r"^\[(\d+)\.1\]", human, re.MULTILINE)}
            return verdicts(*(self.verdict(item["statement"], item["text"], shown) for item in inputs["statements"]))
        references = {item["text"]: item["reference"] for item in inputs["reference_statements"]}
        answers = {item["answer"]: item["text"] for item in inputs["answer_statements"]}
        right = {number: [references[text]] for number, text in answers.items() if text in references}
        missed = [number for text, number in references.items() if text not in answers.values()]
        return classification(right, fp=[number for number in answers if number not in right], fn=missed)

    def verdict(self, number: int, text: str, shown: set[int]) -> Any:
        """Return the verdict on a statement, by the chunks that are shown."""
        for label, chunks in (("supported", self.supports), ("contradicted", self.contradicts)):
            deciding = [chunk for chunk in chunks.get(text, ()) if chunk in shown]
            if deciding:
                return verdict(number, label, *(f"{chunk}.1" for chunk in deciding[: self.cites]))
        return verdict(number, "absent")

    def judge(self) -> Scripted:
        """Return a new judge that records its requests."""
        return answering(self.reply)


def mean(truths):
    """Return the share of true values; None if there are no values."""
    truths = list(truths)
    return sum(truths) / len(truths) if truths else None


def ragchecker(answer_by_chunk, reference_by_chunk, correct, covered, chunks):
    """Return the metrics by name; None where the denominator is 0.

    Args:
        answer_by_chunk: for each claim of the answer, whether each chunk entails it.
        reference_by_chunk: likewise for the reference.
        correct: whether the reference entails each claim of the answer.
        covered: whether the answer entails each claim of the reference.
        chunks: number of chunks.
    """
    relevant = [False] * chunks
    for row in reference_by_chunk:
        for chunk in range(chunks):
            relevant[chunk] = relevant[chunk] or row[chunk]
    faithful, from_relevant, from_irrelevant = [], [], []
    for row in answer_by_chunk:
        faithful.append(any(row))
        from_relevant.append(any(row[chunk] and relevant[chunk] for chunk in range(chunks)))
        from_irrelevant.append(
            any(row[chunk] and not relevant[chunk] for chunk in range(chunks)) and not from_relevant[-1]
        )
    recalled = [any(row) for row in reference_by_chunk]
    claims = range(len(answer_by_chunk))
    return {
        "precision": mean(correct),
        "recall": mean(covered),
        "f1": harmonic(mean(correct), mean(covered)),
        "context_recall": mean(recalled),
        "context_precision": mean(relevant),
        "context_utilization": mean(said for said, found in zip(covered, recalled, strict=True) if found),
        "noise_relevant": mean(from_relevant[n] and not correct[n] for n in claims),
        "noise_irrelevant": mean(from_irrelevant[n] and not correct[n] for n in claims),
        "hallucination": mean(not faithful[n] and not correct[n] for n in claims),
        "self_knowledge": mean(not faithful[n] and correct[n] for n in claims),
        "faithfulness": mean(faithful),
    }


def harmonic(precision, recall):
    """Return the harmonic mean; 0 if either value is 0, None if either is None."""
    if precision is None or recall is None:
        return None
    return 2 * precision * recall / (precision + recall) if precision and recall else 0.0


FILE = Path(__file__).parents[1] / "data" / "dialogues.jsonl"

Dialogue = dict[str, Any]


@cache
def dialogues() -> Sequence[Dialogue]:
    """Return all dialogues."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def whole(dialogue: Dialogue) -> Sample:
    """Return the sample that holds a whole dialogue."""
    messages = [(turn["role"], turn["text"]) for turn in dialogue["turns"]]
    return samples_of(messages)[-1].model_copy(update={"id": dialogue["id"]})


def labelled_judge(dialogue: Dialogue, written: Callable[[Any], str] = json.dumps) -> Scripted:
    """Return a judge that answers from the labels of a dialogue.

    Args:
        dialogue: the dialogue.
        written: writes the answer as the text of a reply.
    """
    return answering(lambda messages: written(_answer(dialogue, human_of(messages))))


def _answer(dialogue: Dialogue, human: str) -> Any:
    inputs = read_inputs(human)
    match (read_schema(human) or {})["title"]:
        case "TurnFacts":
            shown = {turn["turn"] for turn in inputs["turns"]}
            return {
                name: [{"turn": fact["turn"], "text": fact["text"]} for fact in dialogue[name] if fact["turn"] in shown]
                for name in ("statements", "facts", "needs")
            }
        case "Contradictions":
            places = {item["text"]: item["statement"] for item in inputs["statements"]}
            texts = [statement["text"] for statement in dialogue["statements"]]
            pairs = [[texts[number - 1] for number in pair] for pair in dialogue["contradictions"]]
            asked = [[places[text] for text in pair] for pair in pairs if places.keys() >= {*pair}]
            return {"contradictions": [{"reason": "labelled", "first": a, "second": b} for a, b in asked]}
        case "FactVerdicts":
            return _verdicts(dialogue["facts"], inputs["facts"], "fact")
        case "NeedVerdicts":
            return _verdicts(dialogue["needs"], inputs["needs"], "need")
        case title:
            raise AssertionError(f"no labels for {title}")


def _verdicts(labels: Sequence[Dialogue], items: Sequence[Dialogue], key: str) -> Any:
    by_text = {label["text"]: label for label in labels}
    verdicts = []
    for item in items:
        label = by_text[item["text"]]
        verdicts.append({key: item[key], "reason": "labelled", "verdict": label["verdict"], "turns": label["turns"]})
    return {"verdicts": verdicts}


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
        return _item_verdicts(inputs, numbers, choose, cites)
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


def _item_verdicts(inputs: Mapping[str, Any], numbers: Mapping[str, str], choose: Choose, cites: str | None) -> dict:
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
