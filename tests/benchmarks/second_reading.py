"""Print labelled items without their labels for another reader, and compare the reader's answers with the labels.

    python tests/benchmarks/second_reading.py en verify_statements > sheet.yaml   # fill in each `verdict:`
    python tests/benchmarks/second_reading.py en verify_statements --answers sheet.yaml

Members of a pair are far apart on the sheet. The comparison gives the agreement and each element that differs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

import yaml

from langchain_rageval.trust.items import CHUNK_STEPS, CRITERIA, LabelledItem, labelled_items

FIELDS = {"question", "answer", "references", "history", "aspect", "contexts"}


def elements(item: LabelledItem) -> list[str]:
    """Return a text for each label of an item."""
    if item.step == "classify_statements":
        return [f"answer: {text}" for text in item.statements] + [f"reference: {text}" for text in item.references]
    if item.step in CHUNK_STEPS:
        return [f"context {number}" for number in range(1, len(item.contexts) + 1)]
    if item.step == "select_sentences":
        return [f"sentence {label.number}" for label in item.labels]
    if item.turns:
        return [f"turn {turn}: {text}" for turn, text in zip(item.turns, item.statements, strict=True)]
    return [*(item.statements or item.terms or CRITERIA.get(item.step) or ["the whole"])]


def sheet_of(items: list[LabelledItem]) -> list[dict[str, object]]:
    """Return the items without labels, pairs torn apart."""
    order = Random(0).sample(items, len(items))
    order.sort(key=lambda item: item.id.endswith("-b"))
    return [
        {
            "id": item.id,
            **item.model_dump(include=FIELDS, exclude_defaults=True),
            "elements": [{"text": text, "verdict": ""} for text in elements(item)],
        }
        for item in order
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("language")
    parser.add_argument("step")
    parser.add_argument("--answers", type=Path)
    options = parser.parse_args()
    items = {item.id: item for item in labelled_items(options.language) if item.step == options.step}
    if options.answers is None:
        print(yaml.safe_dump(sheet_of([*items.values()]), allow_unicode=True, sort_keys=False, width=110))
        return
    same = total = 0
    for answer in yaml.safe_load(options.answers.read_text(encoding="utf-8")):
        item = items[answer["id"]]
        for label, element in zip(item.labels, answer["elements"], strict=True):
            if not label.accepted or element["verdict"] == "":
                continue
            verdict = {True: "yes", False: "no"}.get(element["verdict"], str(element["verdict"]))
            total, same = total + 1, same + (verdict in label.accepted)
            if verdict not in label.accepted:
                print(f"{item.id}: {element['text']}: reader {verdict}, label {'|'.join(label.accepted)}")
    print(f"{options.step}: {same} of {total} verdicts agree")


if __name__ == "__main__":
    main()
