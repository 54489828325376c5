"""Texts of tests: real documents, runs of trec_eval, words for properties, and the steps with prompts by language."""

import gzip
import json
from pathlib import Path

from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS

_DATA = Path(__file__).parents[1] / "fixtures" / "documents"


def corpus(name: str) -> list[Document]:
    """Return the documents of "ru_wiki" or "fastapi"."""
    lines = gzip.decompress((_DATA / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    records = [json.loads(line) for line in lines]
    return [Document(record.pop("text"), metadata=record) for record in records]


DATA = Path(__file__).parents[1] / "fixtures" / "trec_eval"


def strings(value):
    """Every text in a nested value, without the keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


def unpacked(name, folder):
    """Unpack a file of the excerpt into a folder and return its path."""
    path = folder / name
    path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return path


def expected():
    """Return the output of trec_eval: measure, value to four decimals, run, qrels, rel_threshold."""
    with gzip.open(DATA / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


_ENGLISH = "the cat dog sat on mat a 5 3.5% Munich, founded in 1158. (so) it's well-known & old"
_RUSSIAN = "Ёлка ёлку елки полис полиса действует 30 дней, год. «Гавань» — № 5 т.д."

ENGLISH = st.lists(st.sampled_from(_ENGLISH.split(" ")), min_size=1, max_size=14).map(" ".join)
RUSSIAN = st.lists(st.sampled_from(_RUSSIAN.split(" ")), max_size=9).map(" ".join)


def scored(metric, answer, *references, question="Что?"):
    """Return the score of an answer."""
    return metric.invoke({"question": question, "answer": answer, "references": list(references)})


def value(metric, answer, *references):
    """Return the value of the score of an answer."""
    return scored(metric, answer, *references).value


LANGUAGES = ["en", "it", "ko", "ru", "zh"]
JUDGING = {
    *("check_needs", "check_user_facts", "classify_statements", "critique_aspect", "detect_abstention"),
    *("detect_answerable", "extract_entities", "extract_statements", "extract_turn_statements"),
    *("find_contradictions", "find_entities", "grade_contexts", "grade_relevance", "grade_rubric", "list_turn_facts"),
    *("regenerate_questions", "regenerate_turn_questions", "rewrite_question", "select_sentences"),
    "verify_statements",
}
OWN = {language: sorted(ANSWER_SCHEMAS if language in ("en", "ru") else JUDGING) for language in LANGUAGES}
