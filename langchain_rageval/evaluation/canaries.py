"""Canaries: plain statements with known verdicts that check the judges of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rageval._internal.files import load_yaml
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Sample, Score, Usage
from langchain_rageval.judge.endpoint import model_identity
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import ascore_sample, judges_of, score_sample
from langchain_rageval.metrics.supported import Value
from langchain_rageval.report.files import Canaries
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.run import Run
from langchain_rageval.steps.stage import Stage, State
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.text.language import detect_language

N_FIRST = 8
"""Number of statements that a judge without errors is asked about."""
_MOST_WRONG = (2, 3)  # of the first items, of all of them
_CANNED = ("rageval-offline", "rageval-scripted")

Item = tuple[Sample, bool]
"""A sample whose answer is one statement, and whether its context supports it."""


@lru_cache
def items_in(language: str) -> Sequence[Item]:
    """Return the 24 canaries (statements with known verdicts) in a language; in English if the language has none.

    Each verdict is True if the context supports the statement, which holds for half of the statements. The first eight
    items are asked first.
    """
    texts = load_yaml((files("langchain_rageval.evaluation") / "canaries.yaml").read_text(encoding="utf-8"))
    question = {"ru": "Что сказано в тексте?"}.get(language, "What does the text say?")
    return [
        (Sample(id=f"canary-{n}-{kind}", question=question, answer=pair[kind], contexts=[pair["context"]]), truth)
        for n, pair in enumerate(texts.get(language, texts["en"]))
        for kind, truth in (("supported", True), ("unsupported", False))
    ]


class _AnswerAsStatement(Stage[State]):
    """Stage that takes the answer as the only statement, so that the judge is asked about nothing else."""

    def work(self, state: State) -> Operation[State]:
        yield from ()
        return state | {"answer_statements": [state["sample"].answer]}

    @property
    def instrument(self) -> Mapping[str, Any]:
        return {"step": "answer_as_statement"}


def canary_metric(judge: Judge) -> Metric:
    """Return a metric that gives 1 if the judge finds the answer supported by the contexts, otherwise 0."""
    steps = _AnswerAsStatement() | verify_statements(judge, of="answer")
    return Metric(
        "canary", aspect="grounding", reads={"question", "answer", "contexts"}, steps=steps, reduce=_is_supported
    )


def _is_supported(state: State) -> Value:
    return Value(float(state["answer_verdicts"][0].verdict == "supported"), "")


def judges_to_ask(metrics: Iterable[Runnable[Any, Any]]) -> list[Judge]:
    """Return the judges of metrics, each once; judges with an `OfflineJudge` or `ScriptedJudge` model are left out."""
    judges = {id(judge): judge for metric in metrics for judge in judges_of(metric)}
    return [judge for judge in judges.values() if not any(map(_is_canned, judge.asked))]


def _is_canned(judge: Judge) -> bool:
    return any(getattr(model, "_llm_type", "") in _CANNED for model in inner_models(judge.model))


_Ask = tuple[Metric, Sequence[Item]]


def ask(judges: Sequence[Judge], questions: Iterable[str], run: Run, config: RunnableConfig) -> Canaries:
    """Ask each judge about the canaries (plain statements with known verdicts), in threads.

    The language is that of the first of `questions`, the questions of the run. The result holds the number of right
    verdicts and the failed judges.
    """
    asking, scores = _rounds(judges, questions), None
    try:
        while True:
            metric, items = asking.send(scores)
            jobs = [run.threads.submit(partial(score_sample, metric, sample, run, config)) for sample, _ in items]
            scores = [job.result()["canary"] for job in jobs]
    except StopIteration as stop:
        found_all: Canaries = stop.value
        return found_all


async def aask(judges: Sequence[Judge], questions: Iterable[str], run: Run, config: RunnableConfig) -> Canaries:
    """Ask each judge about the canaries (plain statements with known verdicts), with the models' async methods.

    The language is that of the first of `questions`, the questions of the run. The result holds the number of right
    verdicts and the failed judges.
    """
    asking, scores = _rounds(judges, questions), None
    try:
        while True:
            metric, items = asking.send(scores)
            found = await asyncio.gather(*(ascore_sample(metric, sample, run, config) for sample, _ in items))
            scores = [one["canary"] for one in found]
    except StopIteration as stop:
        found_all: Canaries = stop.value
        return found_all


def _rounds(judges: Sequence[Judge], questions: Iterable[str]) -> Generator[_Ask, list[Score] | None, Canaries]:
    """Yield what to ask, receive the scores, and return the result."""
    items = items_in(detect_language(next(iter(questions), "")))
    total, right, usage, failed = 0, 0, Usage(), list[str]()
    for judge in judges:
        metric, wrong = canary_metric(judge), 0
        for part in (items[:N_FIRST], items[N_FIRST:]):
            scores = (yield metric, part) or []
            errors = sum(score.value != float(truth) for score, (_, truth) in zip(scores, part, strict=True))
            total, right, wrong = total + len(part), right + len(part) - errors, wrong + errors
            usage = sum((score.usage for score in scores), usage)
            if not wrong or wrong > _MOST_WRONG[0]:
                break
        if wrong > _MOST_WRONG[len(part) > N_FIRST]:
            failed.append(model_identity(judge.model))
    return Canaries(total, right, failed, usage)


def notes_on(canaries: Canaries | None) -> Iterator[Note]:
    """Yield one note for the report on the verdicts of all judges on the canaries; nothing if `canaries` is None."""
    if canaries is not None:
        code = "canaries-failed" if canaries.failed else "canaries-right"
        yield Note(code, right=canaries.right, asked=canaries.asked, judges=canaries.failed)
