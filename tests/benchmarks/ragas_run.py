"""Ragas 0.4.3 as a client of the benchmarks: `ragas_run.py OPTIONS`, a JSON object; see `compare.py`.

Runs in an environment of its own, made by

    python3 -m venv ragas && ragas/bin/pip install ragas==0.4.3 "langchain-community==0.4.1" langchain-openai

(with a newer langchain-community it does not import). `evaluate` with a LangChain model, as users of LangChain call it,
and the metrics of that door. `context_relevancy` is gone since 0.2: ContextRelevance, which asks for two ratings of all
contexts together, took its place. Usage reports to its makers are off: each would be a request to the network. So are
its warnings that it got one question where it asked for three: it sets `n` on the model that all its calls share, and
the next call sets it back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import sys
import warnings
from typing import Any

os.environ["RAGAS_DO_NOT_TRACK"] = "true"
warnings.simplefilter("ignore")

from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402
from measured import measured, read_lines  # noqa: E402
from ragas import EvaluationDataset, aevaluate, evaluate  # noqa: E402
from ragas.metrics import (  # noqa: E402
    AnswerCorrectness,
    ContextPrecision,
    ContextRecall,
    ContextRelevance,
    Faithfulness,
    ResponseRelevancy,
)
from ragas.run_config import RunConfig  # noqa: E402

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
LOOP = asyncio.Runner()
KEPT: list[Any] = []  # a client that is dropped when its loop is closed fills stderr
logging.getLogger("ragas").setLevel(logging.ERROR)


def metrics() -> list[Any]:
    """Return the counterparts of our metrics, in the same order."""
    if OPTIONS["metrics"] == "one":
        return [Faithfulness()]
    return [
        Faithfulness(),
        ResponseRelevancy(),
        ContextPrecision(),
        ContextRecall(),
        AnswerCorrectness(),
        ContextRelevance(),
    ]


def run(samples: list[Any], url: str) -> dict[str, int | None]:
    """Evaluate, and count NaN: ragas does not distinguish failed from unscored."""
    rows = [
        {
            "user_input": sample["question"],
            "response": sample["answer"],
            "retrieved_contexts": sample["contexts"],
            "reference": sample["references"][0],
        }
        for sample in samples
    ]
    options = {
        "metrics": metrics(),
        "llm": ChatOpenAI(base_url=url, api_key="sk-test", model="m", temperature=0, timeout=OPTIONS["timeout"]),
        "embeddings": OpenAIEmbeddings(base_url=url, api_key="sk-test", model="e", check_embedding_ctx_length=False),
        "run_config": RunConfig(max_workers=OPTIONS["slots"]),
        "show_progress": False,
    }
    KEPT.append(options)
    dataset = EvaluationDataset.from_list(rows)
    result = LOOP.run(aevaluate(dataset, **options)) if OPTIONS["door"] == "async" else evaluate(dataset, **options)
    values = [value for scores in result.scores for value in scores.values()]
    assert len(values) == len(samples) * len(options["metrics"])
    return {"failed": sum(map(math.isnan, values)), "unscored": None}


if __name__ == "__main__":
    first, *others = read_lines(OPTIONS["samples"])
    measured(lambda: run([first], OPTIONS["warm_url"]), lambda: run(others, OPTIONS["url"]))
