"""`corpus`: real documents from Russian Wikipedia, and from FastAPI's documentation in four languages."""

import gzip
import json
from pathlib import Path

from langchain_core.documents import Document

_DATA = Path(__file__).parents[1] / "fixtures" / "documents"


def corpus(name: str) -> list[Document]:
    """Return the documents of "ru_wiki" or "fastapi"."""
    lines = gzip.decompress((_DATA / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
    records = [json.loads(line) for line in lines]
    return [Document(record.pop("text"), metadata=record) for record in records]
