"""Processes that tests kill. They are forked from one process that has imported the package, once for all of them."""

import multiprocessing
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from helpers.texts import corpus
from helpers.waiting import PATIENCE
from langchain_openai import ChatOpenAI

from langchain_rageval import (
    Batch,
    HashingEmbeddings,
    Judge,
    TestsetGenerator,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
)

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(  # nothing of tests/, which is not on its path
    [
        *("langchain_openai", "openai.resources.chat.completions", "anyio._backends._asyncio", "pytest", "hypothesis"),
        *("langchain_rageval.evaluation.api", "langchain_rageval.metrics.faithfulness", "langchain_rageval.testset"),
        *("langchain_rageval.report.report", "razdel"),
    ]
)


def started(task: Any, url: str, journal: Path, out: Path, *more: Any) -> ForkServerProcess:
    """Start a process that executes a task with a model at `url`, a journal, and a file for the result."""
    process = _CONTEXT.Process(target=task, args=(f"{url}/v1", journal, out, *more), daemon=True)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int | None:
    """Wait until a process has ended, and return its exit code: 0 if the task is done."""
    process.join(PATIENCE)
    return process.exitcode


def _model(url: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=url, api_key="sk-test", model="m", max_retries=0)


def evaluated(url: str, journal: Path, out: Path, samples: Any) -> None:
    """Score samples with three metrics."""
    metrics = [metric(_model(url)) for metric in (faithfulness, context_recall, context_relevance)]
    evaluate(samples, metrics, journal=journal, progress=False, max_concurrency=4).to_jsonl(out)


def evaluated_in_batches(url: str, journal: Path, out: Path, samples: Any) -> None:
    """Score samples through a batch API."""
    metrics = [faithfulness(Judge(_model(url)))]
    evaluate(samples, metrics, journal=journal, batch=Batch(poll=0.01), progress=False).to_jsonl(out)


def generated(url: str, journal: Path, out: Path) -> None:
    """Generate a test set of eight rows."""
    options = {"embeddings": HashingEmbeddings(), "journal": journal, "progress": False, "max_concurrency": 4}
    TestsetGenerator(_model(url), **options).generate(corpus("ru_wiki")[:4], size=8, seed=3).to_jsonl(out)
