"""Samples of the benchmarks: real questions and answers with five contexts each, all different."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from langchain_rageval import split_sentences
from langchain_rageval.models.offline_judge import answer_offline

ROWS = Path(__file__).parents[1] / "fixtures" / "rag_answers" / "rows.jsonl.gz"
CONTEXTS = 5
Item = dict[str, Any]


def samples(count: int, languages: Sequence[str] = ("en", "ru")) -> list[Item]:
    """Return samples whose answer and reference state facts, so that metrics run all steps; languages alternate.

    A row has two or three contexts; passages of other questions fill them up. Many answers are their own reference, and
    would be worked out once for both: here an answer goes on with the first sentence of the question's passage. When
    the rows are used up they come again. Question, answer and first context begin with the sample's number: two samples
    share neither a step nor the head of a prompt, which some do in the data, where a passage serves its neighbour as a
    distractor.
    """
    rows = [json.loads(line) for line in gzip.decompress(ROWS.read_bytes()).splitlines()]
    by_language = [_endless([row for row in rows if row["metadata"]["language"] == name]) for name in languages]
    taken = islice(chain.from_iterable(zip(*by_language, strict=True)), count)
    return [_numbered(number, row) for number, row in enumerate(taken)]


def _endless(rows: list[Item]) -> Iterator[Item]:
    passages = cycle(dict.fromkeys(context for row in rows for context in row["contexts"]))
    longer = [{**row, "answer": f"{row['answer']} {split_sentences(row['contexts'][-2])[0]}"} for row in rows]
    for row in cycle([row for row in longer if row["metadata"]["answer_is"] != "a refusal" and _states_facts(row)]):
        contexts = dict.fromkeys(row["contexts"])
        while len(contexts) < CONTEXTS:
            contexts[next(passages)] = None
        yield {**row, "contexts": list(contexts)}


def _states_facts(row: Item) -> bool:
    texts = (row["answer"], *row["references"])
    return all(answer_offline("Statements", "\n" + json.dumps({"text": text}))["statements"] for text in texts)


def _numbered(number: int, row: Item) -> Item:
    first, *others = row["contexts"]
    return {
        "id": f"{row['id']}-{number}",
        "question": f"({number}) {row['question']}",
        "answer": f"({number}) {row['answer']}",
        "contexts": [f"({number}) {first}", *others],
        "references": row["references"],
    }
