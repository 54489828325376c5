"""This library as a client of the benchmarks: `our_run.py OPTIONS`, a JSON object; see `compare.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from measured import measured, read_lines

sys.path.insert(0, str(Path(__file__).parents[2]))

from langchain_rageval import (
    Judge,
    Metric,
    aevaluate,
    answer_correctness,
    answer_relevance,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
)

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
LOOP = asyncio.Runner()  # a single loop: ChatOpenAI objects share one async client for each address


def metrics(url: str) -> list[Metric]:
    """Return one metric or six with a new judge."""
    address = {"base_url": url, "api_key": "sk-test", "max_retries": 0}
    model = ChatOpenAI(model="m", temperature=0, **address)
    judge = Judge(model, **({"layout": OPTIONS["layout"]} if OPTIONS["layout"] else {}))
    if OPTIONS["metrics"] == "one":
        return [faithfulness(judge)]
    embeddings = OpenAIEmbeddings(model="e", check_embedding_ctx_length=False, **address)
    return [
        faithfulness(judge),
        answer_relevance(judge, embeddings),
        context_precision(judge),
        context_recall(judge),
        answer_correctness(judge, embeddings),
        context_relevance(judge),
    ]


def run(samples: list[Any], url: str) -> dict[str, int]:
    """Evaluate, and count scores without a value."""
    options = {"max_concurrency": OPTIONS["slots"], "progress": False, "timeout": OPTIONS["timeout"]}
    if OPTIONS["door"] == "async":
        report = LOOP.run(aevaluate(samples, metrics(url), **options))
    else:
        report = evaluate(samples, metrics(url), **options)
    summary = report.summary().values()
    return {"failed": sum(of.failed for of in summary), "unscored": sum(of.unscored for of in summary)}


if __name__ == "__main__":
    first, *others = read_lines(OPTIONS["samples"])
    measured(lambda: run([first], OPTIONS["warm_url"]), lambda: run(others, OPTIONS["url"]))
