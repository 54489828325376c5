"""Judges that answer from labels: of claims (`World`) and of dialogues; and RAGChecker."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from helpers.scripted import Scripted, answering, classification, human_of, statements, verdict, verdicts

from langchain_rageval import Sample, samples_of
from langchain_rageval.prompts.layout import read_inputs, read_schema

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
