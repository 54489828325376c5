"""Measure the calls of a generation whose critic rejects a share of what it sees: calls per row.

    python tests/benchmarks/rejection_cost.py                      # 300 short passages, two minutes
    python tests/benchmarks/rejection_cost.py ru_wiki fastapi      # documents of Wikipedia and FastAPI instead

Writer and critic are scripted and choose what they reject by its text, so the figures are the same on each run.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.texts import corpus
from helpers.writers import Ring, documents, rejecting
from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_rageval import TestsetGenerator
from langchain_rageval.testset import Testset

KINDS = ("passage", "question", "evolution", "needed")
SHARES = (0.0, 0.2, 0.5, 1.0)
SEEDS = range(8)
SIZE = 50


def ideal(testset: Testset) -> int:
    """Return the calls that the rows of a test set take if nothing is rejected."""
    return sum(7 if row.evolution == "simple" else 11 for row in testset)


def _splitter() -> RecursiveCharacterTextSplitter:
    return RecursiveCharacterTextSplitter(chunk_size=800, chunk_overlap=0)


def measure(docs: Any, rejected: dict[str, float]) -> str:
    """Return calls per row, share of the ideal, rows, calls and the most frequent reasons, over all seeds."""
    rows = calls = least = 0
    reasons: Counter[str] = Counter()
    for seed in SEEDS:
        writer = rejecting(**rejected)
        options: dict[str, Any] = {"splitter": _splitter(), "progress": False, "size": SIZE, "allow_empty": True}
        testset = TestsetGenerator(writer.model, embeddings=Ring(), **options).generate(docs, seed=seed)
        assert testset.usage.calls == writer.total
        rows, calls, least = rows + len(testset), calls + writer.total, least + ideal(testset)
        reasons.update(testset.yields["rejected"])
    per_row = f"{calls / rows:5.1f} calls a row, {calls / least:.2f} of the ideal" if rows else "no rows"
    found = ", ".join(f"{count / len(SEEDS):.1f} {reason}" for reason, count in reasons.most_common(3))
    return f"{per_row}; {rows / len(SEEDS):.1f} rows, {calls / len(SEEDS):.0f} calls; {found or 'nothing rejected'}"


def main() -> None:
    """Print a line for each corpus, kind of filter and share."""
    for name in sys.argv[1:] or ["short passages"]:
        docs = corpus(name) if sys.argv[1:] else documents(300, 20)
        for kinds in (*((kind,) for kind in KINDS), KINDS):
            for share in SHARES:
                print(
                    f"{name}, {'+'.join(kinds)} {share:.0%}: {measure(docs, dict.fromkeys(kinds, share))}", flush=True
                )


if __name__ == "__main__":
    main()
