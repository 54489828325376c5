"""answer_sheets: answers of several chains or models to the same questions over the same contexts, for comparison.

Source: the setup of Databricks' study of judges for RAG (Leng et al. 2023, "Best Practices for LLM Evaluation of RAG
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

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.inputs import Samples, prepare_samples
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.chain_collector import ChainCollector
from langchain_rageval.run.chain_input import conversation_keys, input_builder, turn_messages
from langchain_rageval.run.threads import shared_threads
from langchain_rageval.text.language import detect_language

log = logging.getLogger("langchain_rageval")

MODEL_KEY = "model"
"""Key of a sheet's metadata that holds the name of its model."""


def answer_sheets(
    models: Mapping[str, Runnable[Any, Any]], samples: Samples, *, max_concurrency: int = 8
) -> list[Sample]:
    """Collect the answers of several chains or models to the same questions.

    Each model is called by `invoke` in worker threads; use its `with_retry` to retry transport errors.

    Args:
        models: name to a chain or a chat model; a chat model may be followed by a parser. A chain receives a mapping
            with the question as `question` and `input`, and the sample's contexts as `contexts`, a list of texts, and
            as `context`, one text with blank lines in between; or only the question, if its input is a str. It returns
            a text, a message, or a mapping in any vocabulary that `Sample.parse` reads; contexts that it returns
            replace the sample's. A chat model is instructed to answer from the contexts alone.
        samples: as for `evaluate`; their answers are ignored.
        max_concurrency: maximum number of questions at a time.

    Returns:
        A sheet for each model and sample, grouped by model, as input for `evaluate` and `leaderboard`. Its id is the
        sample's id, "@" and the model's name; the name is also in `metadata["model"]`. If a model failed, `answer` is
        None, `metadata["error"]` holds the error, and a warning is logged. `evaluate` counts such a
        sheet as a failure with that error, unless all sheets lack an answer.

    Raises:
        ConfigError: if `models` is not a mapping from names to Runnables, or `max_concurrency` is not a whole number
            of at least 1.
        SampleError: if a sample cannot be read.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError('models must be a mapping of names to chains, such as {"new": chain}')
    for name, model in models.items():
        if not isinstance(name, str) or not name.strip() or not isinstance(model, Runnable):
            raise ConfigError(f"models maps names to chains or chat models, got {name!r}: {type(model).__name__}")
    if not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency must be a whole number of at least 1, got {max_concurrency!r}")
    unanswered = [_unanswered_sheet(sample, name) for sample in parse_samples(samples) for name in models]
    sheets = shared_threads().spread(
        [partial(_answer, models[sheet.metadata[MODEL_KEY]], sheet) for sheet in unanswered], max_concurrency
    )
    _warn_of_failures(sheets)
    return [sheet for name in models for sheet in sheets if sheet.metadata[MODEL_KEY] == name]


def parse_samples(samples: Samples) -> Iterator[Sample]:
    """Yield samples from any input that `evaluate` accepts, except an async iterator.

    Raises:
        SampleError: if a sample cannot be read.
    """
    for item in prepare_samples(samples, []):
        if isinstance(item, SampleError):  # a line of a file
            raise item
        yield Sample.parse(item)


def original_sample_id(sheet: Sample) -> str:
    """Return the id of the sample that a sheet answers."""
    return sheet.id.removesuffix(f"@{sheet.metadata.get(MODEL_KEY)}")


def _unanswered_sheet(sample: Sample, model: str) -> Sample:
    metadata = {**sample.metadata, MODEL_KEY: model}
    return sample.model_copy(update={"id": f"{sample.id}@{model}", "answer": None, "metadata": metadata})


def _answer(model: Runnable[Any, Any], unanswered: Sample) -> Sample:
    collector = ChainCollector()
    try:
        output = model.invoke(_input(model, unanswered), collector.config(None, conversation_keys(model)))
    except Exception as error:
        output = error
    answer = collector.answer(unanswered.question, output, model)
    sheet = answer.into(unanswered)
    own = {"contexts": unanswered.contexts, "context_ids": unanswered.context_ids}
    return sheet.model_copy(update=own) if answer.contexts in (None, unanswered.contexts) else sheet


def _input(model: Runnable[Any, Any], sheet: Sample) -> Any:
    first = model.first if isinstance(model, RunnableSequence) else model
    if all(isinstance(inner, BaseChatModel) for inner in inner_models(first)):
        return _messages(sheet)
    value = input_builder(model)(sheet.question, sheet.history)
    contexts = sheet.contexts or []
    return {**value, "contexts": contexts, "context": "\n\n".join(contexts)} if isinstance(value, dict) else value


def _messages(sheet: Sample) -> list[BaseMessage]:
    texts = _prompt_texts().get(detect_language(sheet.question)) or _prompt_texts()["en"]
    question = f"{texts['question']} {sheet.question}"
    if sheet.contexts is None:
        return [SystemMessage(texts["without_contexts"]), *turn_messages(sheet.history), HumanMessage(question)]
    block = "\n\n".join(f"[{number}] {context}" for number, context in enumerate(sheet.contexts, 1))
    asked = HumanMessage(f"{texts['contexts']}\n{block}\n\n{question}")
    return [SystemMessage(texts["with_contexts"]), *turn_messages(sheet.history), asked]


@lru_cache
def _prompt_texts() -> Mapping[str, Mapping[str, str]]:
    source = files("langchain_rageval.prompts").joinpath("answer_sheets.yaml").read_text(encoding="utf-8")
    texts: Mapping[str, Mapping[str, str]] = yaml.safe_load(source)
    return texts


def _warn_of_failures(sheets: list[Sample]) -> None:
    failed = [sheet for sheet in sheets if sheet.answer is None]
    if failed:
        error = failed[0].metadata.get("error", "the chain returned no answer")
        log.warning("%d of %d answers failed; the first, %s: %s", len(failed), len(sheets), failed[0].id, error)
