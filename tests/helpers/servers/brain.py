"""What the servers answer: the offline judge, so that scores over HTTP can be compared with a run without a network."""

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
from langchain_core.embeddings import Embeddings

from langchain_rageval import (
    HashingEmbeddings,
    Metric,
    OfflineJudge,
    Sample,
    Score,
    abstention,
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
from langchain_rageval.models.offline_judge import answer_offline

ROWS = Path(__file__).parents[2] / "fixtures" / "rag_answers" / "rows.jsonl.gz"

METRICS: dict[str, Callable[[Any, Embeddings], Metric]] = {
    "faithfulness": lambda judge, _: faithfulness(judge),
    "answer_relevance": answer_relevance,
    "context_precision": lambda judge, _: context_precision(judge),
    "context_recall": lambda judge, _: context_recall(judge),
    "context_relevance": lambda judge, _: context_relevance(judge),
    "answer_similarity": lambda _, embeddings: answer_similarity(embeddings),
    "answer_correctness": answer_correctness,
    "conciseness": lambda judge, _: aspect_critique(judge, "conciseness"),
    "claim_f1": lambda judge, _: next(part for part in claim_metrics(judge).metrics if part.name == "claim_f1"),
    "noise_sensitivity_relevant": lambda judge, _: noise_sensitivity(judge),
    "ndcg@5": lambda judge, _: ndcg_at(5, llm_grader(judge)),
    "context_entity_recall": lambda judge, _: context_entity_recall(judge),
    "abstention": lambda judge, _: abstention(judge),
    "exact_match": lambda *_: exact_match(),
    "string_presence": lambda *_: string_presence(),
    "rouge": lambda *_: rouge(),
    "bleu": lambda *_: bleu(),
    "chrf": lambda *_: chrf(),
    "rubric": lambda judge, _: rubric(judge),
}
"""Name of the score to what builds the metric from a judge and embeddings: each of the builders, and a ranking."""

EMBEDDED = ["answer_relevance", "answer_similarity", "answer_correctness"]
"""Those that embed texts."""

BY_LETTERS = ["exact_match", "string_presence", "rouge", "bleu", "chrf"]
"""Those that ask no model of any kind."""

UNJUDGED = ["answer_similarity", *BY_LETTERS]
"""Those that ask no judge."""

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

_ROUNDED = re.compile(r"\d\.\d\d\b")


def offline(request: ChatRequest) -> dict[str, Any]:
    """What OfflineJudge says to this request."""
    human = next(message["content"] for message in request.messages if message["role"] == "user")
    assert request.schema_title, "the request names no schema"
    return answer_offline(request.schema_title, human)


@cache
def rag_samples(count: int) -> list[Sample]:
    """Real questions with answers, Russian and English: the first ones whose answer states a fact."""
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        samples = (Sample.parse(json.loads(line)) for line in lines)
        return list(islice((sample for sample in samples if clean(sample).value is not None), count))


@cache
def _metric(name: str) -> Metric:
    return METRICS[name](OfflineJudge(), HashingEmbeddings())


@cache
def _clean(sample_json: str, name: str) -> Score:
    return _metric(name).invoke(Sample.model_validate_json(sample_json))


def clean(sample: Sample, name: str = "faithfulness") -> Score:
    """The score of a sample without a network."""
    return _clean(sample.model_dump_json(), name)


def says_the_same(score: Score, sample: Sample) -> bool:
    """Whether a score is that of the run without a network, all but its cost and instrument.

    Vectors that travel as base64 come back as 32-bit floats: similarities may differ from the sixth digit on.
    """
    return _told(score, float) == _told(clean(sample, score.metric), partial(pytest.approx, abs=1e-5))


def _told(score: Score, number: Callable[[Any], Any]) -> dict[str, Any]:
    """What a score says; with similarities as `number` makes them."""
    told = score.model_dump(exclude={"usage", "instrument"})
    if score.metric in EMBEDDED and score.value is not None:
        told["value"] = number(score.value)
        told["reason"] = _ROUNDED.sub("…", told["reason"])
        for finding in told["findings"]:
            if finding["kind"] in ("criterion", "question"):
                finding["verdict"] = number(float(finding["verdict"]))
    return told
