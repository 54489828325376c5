"""All metrics, real samples, and what the offline judge says of them, to which runs over HTTP are compared."""

import gzip
import json
import re
from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from helpers.servers.chat import ChatRequest
from langchain_core.runnables import RunnableLambda

import langchain_rageval
from langchain_rageval import (
    HashingEmbeddings,
    Metric,
    OfflineJudge,
    Sample,
    Score,
    Value,
    aspect_critique,
    claim_metrics,
    faithfulness,
    llm_grader,
    ndcg_at,
    noise_sensitivity,
)
from langchain_rageval.metrics.answer_completeness import list_question_parts
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.prompts.layout import read_inputs

ROWS = Path(__file__).parents[1] / "fixtures" / "rag_answers" / "rows.jsonl.gz"

Build = Callable[..., Metric]
HASHED = HashingEmbeddings()


def claim_score(score: str, judge: Any, *, name: str | None = None) -> Metric:
    """Build a part of `claim_metrics`."""
    (part,) = (part for part in claim_metrics(judge).metrics if part.name == score)
    return part if name is None else part.model_copy(update={"name": name})


def _of_judge_and_embeddings(build: Build) -> Build:
    """Return a builder of both and of options, which passes what `build` takes."""
    taken = signature(build).parameters.keys() & {"judge", "embeddings", "model"}

    def built(judge: Any = None, embeddings: Any = HASHED, **options: Any) -> Metric:
        given = {"judge": judge, "embeddings": embeddings, "model": embeddings}
        return build(**{name: given[name] for name in taken}, **options)

    return built


_OTHERS: dict[str, Build] = {
    "conciseness": partial(aspect_critique, aspect="conciseness"),
    "claim_f1": partial(claim_score, "claim_f1"),
    "noise_sensitivity_relevant": noise_sensitivity,
    "ndcg@5": lambda judge, **options: ndcg_at(5, llm_grader(judge), **options),
}
METRICS: dict[str, Build] = {
    name: _of_judge_and_embeddings(_OTHERS[name] if name in _OTHERS else getattr(langchain_rageval, name))
    for name in (
        *("faithfulness", "answer_relevance", "context_precision", "context_recall", "context_relevance"),
        *("answer_similarity", "answer_correctness", "conciseness", "claim_f1", "noise_sensitivity_relevant"),
        *("ndcg@5", "context_entity_recall", "abstention", "exact_match", "string_presence", "rouge", "bleu", "chrf"),
        *("rubric", "answer_completeness"),
    )
}
"""Functions that build a metric from a judge, embeddings and options, by score: all builders, and a ranking."""

SIX = (
    *("faithfulness", "answer_relevance", "context_precision", "context_recall"),
    *("answer_correctness", "context_relevance"),
)
"""Names of the metrics of the benchmarks."""


def six_metrics(judge: Any) -> list[Metric]:
    return [METRICS[name](judge) for name in SIX]


EMBEDDED = ["answer_relevance", "answer_similarity", "answer_correctness"]
"""Names of the metrics that embed texts."""

BY_LETTERS = ["exact_match", "string_presence", "rouge", "bleu", "chrf"]
"""Names of the metrics that call no model at all."""

UNJUDGED = ["answer_similarity", *BY_LETTERS]
"""Names of the metrics that call no judge."""

RICH = [
    Sample(
        question="When was Munich founded, and by whom?",
        answer="Munich was founded in 1158. A million elephants live there.",
        contexts=[
            "Munich was founded in 1158 by Henry the Lion. It is on the Isar.",
            "Bread is good.",
            "Munich is old.",
        ],
        references=["Henry the Lion founded Munich in 1158.", "Munich was founded in 1158. Henry the Lion did it."],
    ),
    Sample(
        question="Что покрывает страховка бани?",
        answer="Страховка бани покрывает пожар. Страховка покрывает также кражу.",
        contexts=["Полис страхования бани покрывает пожар и залив. Кража в полис не входит.", "Баня стоит у реки."],
        references=["Страховка бани покрывает пожар и залив."],
    ),
]
"""Samples with several statements, chunks and references, whose scores lie between 0 and 1."""

PASS = RunnableLambda(dict)
"""Step that adds nothing to the state."""


def own_metric(reduce: Callable[[Any], Any], name: str = "own", **options: Any) -> Metric:
    """Build a metric of the answer, by default without a judge."""
    return Metric(name, **{"aspect": "answer", "reads": {"answer"}, "steps": PASS, "reduce": reduce, **options})


def unfaithfulness(judge: Any) -> Metric:
    """Build another metric over the steps of faithfulness: 1 - faithfulness, of which less is better."""
    metric = faithfulness(judge)
    options = {"aspect": "grounding", "reads": metric.reads, "steps": metric.steps, "direction": "lower"}
    return own_metric(lambda state: Value(1 - (metric.reduce(state).number or 0.0)), "unfaithfulness", **options)


_ROUNDED = re.compile(r"\d\.\d\d\b")


def offline(request: ChatRequest) -> dict[str, Any]:
    """Answer a request as OfflineJudge does."""
    human = next(message["content"] for message in request.messages if message["role"] == "user")
    assert request.schema_title, "the request names no schema"
    if request.schema_title == "QuestionParts":
        return list_question_parts.offline(read_inputs(human)).model_dump()
    return answer_offline(request.schema_title, human)


@cache
def rag_samples(count: int) -> list[Sample]:
    """Return the first real questions, in Russian and English, whose answers state a fact."""
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        samples = (Sample.parse(json.loads(line)) for line in lines)
        return list(islice((sample for sample in samples if clean(sample).value is not None), count))


@cache
def _metric(name: str) -> Metric:
    return METRICS[name](OfflineJudge())


@cache
def _clean(sample_json: str, name: str) -> Score:
    return _metric(name).invoke(Sample.model_validate_json(sample_json))


def clean(sample: Sample, name: str = "faithfulness") -> Score:
    """Score a sample offline."""
    return _clean(sample.model_dump_json(), name)


def says_the_same(score: Score, sample: Sample) -> bool:
    """Return True if a score equals that of the offline run, except for cost and instrument.

    Vectors sent as base64 are 32-bit floats, so similarities may differ from the sixth digit on.
    """
    return _comparable(score, float) == _comparable(clean(sample, score.metric), partial(pytest.approx, abs=1e-5))


def _comparable(score: Score, number: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields of a score to compare, with similarities converted by `number`."""
    fields = score.model_dump(exclude={"usage", "instrument"})
    if score.metric in EMBEDDED and score.value is not None:
        fields["value"] = number(score.value)
        fields["reason"] = _ROUNDED.sub("…", fields["reason"])
        for finding in fields["findings"]:
            if finding["kind"] in ("criterion", "question"):
                finding["verdict"] = number(float(finding["verdict"]))
    return fields
