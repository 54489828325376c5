"""Labelled dialogues of `tests/data/dialogues.jsonl`, and a judge that answers about them from their labels."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from helpers.scripted import Scripted, answering, human_of

from langchain_rageval import Sample, samples_of
from langchain_rageval.prompts.layout import read_inputs, read_schema

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
