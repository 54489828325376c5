"""The excerpt of trec_eval's own tests: runs, judgments, and what trec_eval prints."""

import gzip
import json
from pathlib import Path

from langchain_rageval import load_samples

DATA = Path(__file__).parents[1] / "fixtures" / "trec_eval"


def unpacked(name, folder):
    """A file of the excerpt as it was, in a folder."""
    path = folder / name
    path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return path


def sample_of(run, qrels, folder):
    """Topic 301 of a run with its judgments."""
    name = "run.txt" if run == "full" else f"run_{run}.txt"
    (sample,) = load_samples(unpacked(name, folder), qrels=unpacked(f"qrels_{qrels}.txt", folder))
    return sample


def expected():
    """What trec_eval prints: measure, value to four decimals, run, qrels, rel_threshold."""
    with gzip.open(DATA / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
