"""What the servers answer: the offline judge, so that scores over HTTP can be compared with a run without a network."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from servers.chat import ChatRequest

from langchain_rageval import OfflineJudge, Sample, Score, faithfulness
from langchain_rageval.offline import answer_offline

ROWS = Path(__file__).parents[1] / "data" / "rag_answers" / "rows.jsonl.gz"


def offline(request: ChatRequest) -> dict[str, Any]:
    """What OfflineJudge says to this request."""
    human = next(message["content"] for message in request.messages if message["role"] == "user")
    assert request.schema_title, "the request names no schema"
    return answer_offline(request.schema_title, human)


@cache
def rag_samples(count: int) -> list[Sample]:
    """Real questions with answers, Russian and English: the first ones whose answer states a fact."""
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        samples = [Sample.parse(json.loads(line)) for line in lines]
    return [sample for sample in samples if clean(sample).value is not None][:count]


@cache
def _clean(sample_json: str) -> Score:
    return faithfulness(OfflineJudge()).invoke(Sample.model_validate_json(sample_json))


def clean(sample: Sample) -> Score:
    """The score of a sample without a network."""
    return _clean(sample.model_dump_json())


def says_the_same(score: Score, sample: Sample) -> bool:
    """Whether a score is that of the run without a network, all but its cost and instrument."""
    own = {"usage", "instrument"}
    return score.model_dump(exclude=own) == clean(sample).model_dump(exclude=own)
