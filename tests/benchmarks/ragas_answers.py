"""Replies of the model server to ragas 0.4.3: valid answers of its schemas, by the same word overlap as ours.

Its prompts hold the answer's JSON schema and end with their input as JSON; those of ContextRelevance ask for a bare
rating of 0, 1 or 2. What it cannot read it sends back to be mended, with the prompt that it came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from helpers.servers.chat import objects_in

from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.prompts.layout import NumberedContexts

Inputs = Mapping[str, Any]


def answer_ragas(prompt: str) -> dict[str, Any] | str:
    """Return the reply to a prompt of ragas; a rating if the prompt has no schema.

    Raises:
        KeyError: if there is no prompt with such a schema.
    """
    schema, *_, inputs = [*objects_in(prompt)] or [{}, {}]
    return _ANSWERS[schema["title"]](inputs) if schema else "2"


def _offline(title: str, inputs: Inputs, context: str = "") -> dict[str, Any]:
    block = NumberedContexts.of([context]).block
    return answer_offline(title, f"{block}\n{json.dumps(inputs, ensure_ascii=False)}")


def _statements(text: str) -> list[str]:
    return list(_offline("Statements", {"text": text})["statements"])


def _supported(statements: list[str], context: str) -> list[dict[str, Any]]:
    items = [{"statement": number, "text": text} for number, text in enumerate(statements, 1)]
    verdicts = _offline("Verdicts", {"question": "", "statements": items}, context)["verdicts"]
    return [
        {"statement": text, "reason": verdict["reason"], "verdict": int(verdict["verdict"] == "supported")}
        for text, verdict in zip(statements, verdicts, strict=True)
    ]


def _questioned(inputs: Inputs) -> dict[str, Any]:
    told = _offline("RegeneratedQuestions", {"answer": inputs["response"], "count": 1})
    return {"question": "".join(told["questions"]), "noncommittal": int(told["evasive"])}


def _attributed(inputs: Inputs) -> dict[str, Any]:
    verdicts = _supported(_statements(inputs["answer"]), inputs["context"])
    return {
        "classifications": [
            {"statement": found["statement"], "reason": found["reason"], "attributed": found["verdict"]}
            for found in verdicts
        ]
    }


def _classified(inputs: Inputs) -> dict[str, Any]:
    answers, references = inputs["answer"], inputs["ground_truth"]
    told = _offline(
        "Classification",
        {
            "answer_statements": [{"answer": number, "text": text} for number, text in enumerate(answers)],
            "reference_statements": [{"reference": number, "text": text} for number, text in enumerate(references)],
        },
    )
    texts = {"TP": ("answer", answers), "FP": ("answer", answers), "FN": ("reference", references)}
    return {
        kind: [{"statement": text[item[number]], "reason": item["reason"]} for item in told[kind]]
        for kind, (number, text) in texts.items()
    }


def _verified(inputs: Inputs) -> dict[str, Any]:
    told = _offline("ContextVerdicts", {"question": inputs["question"], "answer": inputs["answer"]}, inputs["context"])
    return {"reason": told["verdicts"][0]["reason"], "verdict": int(told["verdicts"][0]["useful"])}


_ANSWERS: Mapping[str, Callable[[Inputs], dict[str, Any]]] = {
    "StatementGeneratorOutput": lambda inputs: {"statements": _statements(inputs["answer"])},
    "NLIStatementOutput": lambda inputs: {"statements": _supported(inputs["statements"], inputs["context"])},
    "ResponseRelevanceOutput": _questioned,
    "ContextRecallClassifications": _attributed,
    "ClassificationWithReason": _classified,
    "Verification": _verified,
    "StringIO": lambda inputs: {"text": json.dumps(answer_ragas(inputs["prompt_value"]), ensure_ascii=False)},
}
