"""An excerpt of trec_eval's tests: runs, judgments and expected output."""

import gzip
import json
from pathlib import Path

from langchain_rageval import load_samples

DATA = Path(__file__).parents[1] / "fixtures" / "trec_eval"


def unpacked(name, folder):
    """Unpack a file of the excerpt into a folder and return its path."""
    path = folder / name
    path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return path


def sample_of(run, qrels, folder):
    """Return topic 301 of a run with its judgments as a sample."""
    name = "run.txt" if run == "full" else f"run_{run}.txt"
    (sample,) = load_samples(unpacked(name, folder), qrels=unpacked(f"qrels_{qrels}.txt", folder))
    return sample


def expected():
    """Return the output of trec_eval: measure, value to four decimals, run, qrels, rel_threshold."""
    with gzip.open(DATA / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
