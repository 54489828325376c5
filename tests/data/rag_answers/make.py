"""Make the rows of this folder, and the demo's, from RuBQ and CLAPNQ: `make.py RU_WIKI_RAG/qa.jsonl CLAPNQ.jsonl`.

Every text is a person's. What we do is to pair them: an answer with its own passage among others, or another question's
answer with it; and we write the refusals.
"""

import gzip
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
DEMO = HERE.parents[2] / "langchain_rageval" / "demo_data" / "samples.jsonl"
MOST = {"its own": 10, "another question's": 7, "a refusal": 3}
REFUSALS = {"ru": "В найденных документах нет сведений об этом.", "en": "The retrieved passages do not say."}


def main(rubq: str, clapnq: str) -> None:
    russian, english = list(read_rubq(rubq)), list(read_clapnq(clapnq))
    rows = [row for language, items in (("ru", russian), ("en", english)) for row in pair(language, items, seed=7)]
    write(gzip.GzipFile(HERE / "rows.jsonl.gz", "wb", mtime=0), rows)
    write(DEMO.open("wb"), for_demo(rows))


def read_rubq(path: str):
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if len(row["context"]) < 900:
            yield row["id"], row["question"], row["answer"], row["context"]


def read_clapnq(path: str):
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["answerable"] and len(row["passage"]) < 1200:
            question = row["question"].rstrip(" ?").capitalize() + "?"  # the data set has them in lower case
            yield (
                f"clapnq-{row['id'].lstrip('-')[:8]}",
                question,
                row["answers"][0]["answer"],
                untokenised(row["passage"]),
            )


def untokenised(text: str) -> str:
    """Undo the spaces that the data set puts around punctuation."""
    text = text.replace("`` ", "“").replace(" ''", "”").replace(" -- ", " – ").replace("( ", "(")
    return re.sub(r" ([.,;:!?)]|'s\b|n't\b)", r"\1", text).replace(" - ", "-")


def pair(language: str, items: list[tuple[str, str, str, str]], seed: int):
    shuffled = random.Random(seed).sample(items, len(items))
    for at, (id_, question, answer, passage) in enumerate(shuffled):
        (_, _, other_answer, other), (_, _, _, third) = shuffled[at - 1], shuffled[at - 2]
        kind = ("its own", "its own", "another question's", "a refusal")[at % 4]
        given = {"its own": answer, "another question's": other_answer, "a refusal": REFUSALS[language]}[kind]
        yield {
            "id": id_,
            "question": question,
            "answer": given,
            "contexts": [other, passage, third] if at % 2 else [passage, third],
            "references": [answer],
            "metadata": {"language": language, "answer_is": kind, "source": "RuBQ" if language == "ru" else "CLAPNQ"},
        }


def for_demo(rows: list[dict]):
    """The first short ones of each kind, 40 in all."""
    taken = Counter()
    for row in rows:
        kind = (row["metadata"]["language"], row["metadata"]["answer_is"])
        if sum(map(len, row["contexts"])) < 2400 and taken[kind] < MOST[kind[1]]:
            taken[kind] += 1
            yield row


def write(file, rows: Iterable[dict]) -> None:
    with file:
        file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
