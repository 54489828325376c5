"""All metrics, real samples, and what the offline judge says of them, to which runs over HTTP are compared."""

import gzip
import json
import re
from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from helpers.servers.chat import ChatRequest
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    HashingEmbeddings,
    Metric,
    OfflineJudge,
    Sample,
    Score,
    Value,
    abstention,
    answer_completeness,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    bleu,
    chrf,
    claim_metrics,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    exact_match,
    faithfulness,
    llm_grader,
    ndcg_at,
    noise_sensitivity,
    rouge,
    rubric,
    string_presence,
)
from langchain_rageval.metrics.answer_completeness import list_question_parts
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.prompts.layout import read_inputs

ROWS = Path(__file__).parents[1] / "fixtures" / "rag_answers" / "rows.jsonl.gz"

Build = Callable[..., Metric]


def _of_judge(build: Build, *arguments: Any) -> Build:
    return lambda judge, _embeddings=None, **options: build(judge, *arguments, **options)


def _of_embeddings(build: Build) -> Build:
    return lambda _judge, embeddings=HASHED, **options: build(embeddings, **options)


def _of_both(build: Build) -> Build:
    return lambda judge, embeddings=HASHED, **options: build(judge, embeddings, **options)


def _of_nothing(build: Build) -> Build:
    return lambda _judge=None, _embeddings=None, **options: build(**options)


def claim_score(score: str, judge: Any, *, name: str | None = None) -> Metric:
    """Build a part of `claim_metrics`."""
    (part,) = (part for part in claim_metrics(judge).metrics if part.name == score)
    return part if name is None else part.model_copy(update={"name": name})


def _ndcg(judge: Any, **options: Any) -> Metric:
    return ndcg_at(5, llm_grader(judge), **options)


HASHED = HashingEmbeddings()

METRICS: dict[str, Build] = {
    "faithfulness": _of_judge(faithfulness),
    "answer_relevance": _of_both(answer_relevance),
    "context_precision": _of_judge(context_precision),
    "context_recall": _of_judge(context_recall),
    "context_relevance": _of_judge(context_relevance),
    "answer_similarity": _of_embeddings(answer_similarity),
    "answer_correctness": _of_both(answer_correctness),
    "conciseness": _of_judge(aspect_critique, "conciseness"),
    "claim_f1": _of_judge(partial(claim_score, "claim_f1")),
    "noise_sensitivity_relevant": _of_judge(noise_sensitivity),
    "ndcg@5": _of_judge(_ndcg),
    "context_entity_recall": _of_judge(context_entity_recall),
    "abstention": _of_judge(abstention),
    "exact_match": _of_nothing(exact_match),
    "string_presence": _of_nothing(string_presence),
    "rouge": _of_nothing(rouge),
    "bleu": _of_nothing(bleu),
    "chrf": _of_nothing(chrf),
    "rubric": _of_judge(rubric),
    "answer_completeness": _of_judge(answer_completeness),
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
