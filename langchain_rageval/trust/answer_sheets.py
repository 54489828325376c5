"""answer_sheets: several chains or models answer the same questions over the same contexts, to be graded side by side.

Source: the set-up of Databricks' study of judges for RAG (Leng et al. 2023, "Best Practices for LLM Evaluation of RAG
Applications").
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import yaml
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval.data.rag_chain import answered, asked, takes_text
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.inputs import Samples, prepare_samples
from langchain_rageval.judge.identity import redact
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.threads import DaemonThreads
from langchain_rageval.text.language import detect_language

log = logging.getLogger("langchain_rageval")

MODEL = "model"
"""Under which key of a sheet's metadata the name of its model stands."""


def answer_sheets(
    models: Mapping[str, Runnable[Any, Any]], samples: Samples, *, max_concurrency: int = 8
) -> list[Sample]:
    """Have several chains or models answer the same questions.

    Each is asked in worker threads, by `invoke`; transport errors are for its own `with_retry`.

    Args:
        models: name to a chain, or a chat model, bare or before a parser. A chain takes a mapping with the question as
            `question` and `input`, and the sample's contexts as `contexts`, a list of texts, and as `context`, one text
            with a blank line between them; or the question alone, if a str is what it takes. It gives a text, a
            message, or a mapping in any vocabulary that `Sample.parse` reads; contexts that it gives replace the
            sample's. A chat model is told to answer by the contexts alone.
        samples: as for `evaluate`; answers that they have are not looked at.
        max_concurrency: questions at a time.

    Returns:
        A sheet for each model and sample, model by model, as `evaluate` and `leaderboard` take them: with
        "@" and the model's name after the sample's id, and the name in `metadata["model"]`. Where a model failed,
        `answer` is None, `metadata["error"]` says why, and a warning is logged; `evaluate(iter(sheets), ...)` counts
        such a sheet as a failure, while a list is refused for it.

    Raises:
        ConfigError: if `models` maps no names to Runnables, or `max_concurrency` is no whole number from 1 on.
        SampleError: if a sample cannot be read.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError('models takes a mapping of names to chains, such as {"new": chain}')
    for name, model in models.items():
        if not isinstance(name, str) or not name.strip() or not isinstance(model, Runnable):
            raise ConfigError(f"models maps names to chains or chat models, got {name!r}: {type(model).__name__}")
    if not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency takes a whole number from 1 on, got {max_concurrency!r}")
    blanks = [_blank(sample, name) for sample in read(samples) for name in models]
    sheets = DaemonThreads().spread(
        [partial(_filled_in, models[sheet.metadata[MODEL]], sheet) for sheet in blanks], max_concurrency
    )
    _warn_of_failures(sheets)
    return [sheet for name in models for sheet in sheets if sheet.metadata[MODEL] == name]


def read(samples: Samples) -> Iterator[Sample]:
    """Samples in any form that `evaluate` takes, but for an async iterator.

    Raises:
        SampleError: at the first that cannot be read.
    """
    for item in prepare_samples(samples, []):
        if isinstance(item, SampleError):  # a line of a file
            raise item
        yield Sample.parse(item)


def question_id(sheet: Sample) -> str:
    """The id of the sample that a sheet was made of."""
    return sheet.id.removesuffix(f"@{sheet.metadata.get(MODEL)}")


def _blank(sample: Sample, model: str) -> Sample:
    metadata = {**sample.metadata, MODEL: model}
    return sample.model_copy(update={"id": f"{sample.id}@{model}", "answer": None, "metadata": metadata})


def _filled_in(model: Runnable[Any, Any], blank: Sample) -> Sample:
    sheet = answered(blank, asked(model, _input(model, blank)))
    if "error" not in sheet.metadata:
        return sheet
    error = redact(sheet.metadata["error"], model)
    return sheet.model_copy(update={"metadata": {**sheet.metadata, "error": error}})


def _input(model: Runnable[Any, Any], sheet: Sample) -> Any:
    first = model.first if isinstance(model, RunnableSequence) else model
    if all(isinstance(inner, BaseChatModel) for inner in inner_models(first)):
        return _messages(sheet)
    if takes_text(model):
        return sheet.question
    contexts = sheet.contexts or []
    asking = {"question": sheet.question, "input": sheet.question}
    return {**asking, "contexts": contexts, "context": "\n\n".join(contexts)}


def _messages(sheet: Sample) -> list[BaseMessage]:
    told = _words().get(detect_language(sheet.question)) or _words()["en"]
    question = f"{told['question']} {sheet.question}"
    if sheet.contexts is None:
        return [SystemMessage(told["without_contexts"]), HumanMessage(question)]
    block = "\n\n".join(f"[{number}] {context}" for number, context in enumerate(sheet.contexts, 1))
    return [SystemMessage(told["with_contexts"]), HumanMessage(f"{told['contexts']}\n{block}\n\n{question}")]


@lru_cache
def _words() -> Mapping[str, Mapping[str, str]]:
    text = files("langchain_rageval.prompts").joinpath("answer_sheets.yaml").read_text(encoding="utf-8")
    words: Mapping[str, Mapping[str, str]] = yaml.safe_load(text)
    return words


def _warn_of_failures(sheets: list[Sample]) -> None:
    failed = [sheet for sheet in sheets if sheet.answer is None]
    if failed:
        why = failed[0].metadata.get("error", "the chain gave no answer")
        log.warning("%d of %d answers could not be had; the first, %s: %s", len(failed), len(sheets), failed[0].id, why)
