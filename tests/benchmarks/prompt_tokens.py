"""Prompt tokens of each judged metric, alone and together, beside those of ragas 0.4.3.

    python tests/benchmarks/prompt_tokens.py [--samples 8] [--qwen qwen.tiktoken]

Eight samples with five contexts each, English and Russian; o200k, and Qwen's tokenizer if its ranks are given (a file
in the wheel of dashscope). Nothing is sent: the replies are those of the offline judge, and ragas' requests are counted
as its prompts without input, measured once, and the input as ragas writes it.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tiktoken

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.offline import METRICS, SIX
from helpers.scripted import answering, offline_reply
from samples import samples

from langchain_rageval import Judge, suite
from langchain_rageval.models.offline_judge import answer_offline

MOST = {"en": 1.0, "ru": 1.2}
"""Largest ratio to ragas' tokens, by language."""

Count = Callable[[str], int]
RAGAS = {
    "StatementGeneratorPrompt": {"qwen": 321, "o200k": 328},
    "NLIStatementPrompt": {"qwen": 764, "o200k": 767},
    "ResponseRelevancePrompt": {"qwen": 330, "o200k": 332},
    "ContextPrecisionPrompt": {"qwen": 890, "o200k": 849},
    "ContextRecallClassificationPrompt": {"qwen": 837, "o200k": 806},
    "CorrectnessClassifier": {"qwen": 1097, "o200k": 1083},
}
"""Tokens of ragas 0.4.3's prompts, `PydanticPrompt.to_string()` without input."""


def statements_of(text: str) -> list[str]:
    """Return the statements that the offline judge finds in a text."""
    return list(answer_offline("Statements", "\n" + json.dumps({"text": text}))["statements"])


def ragas_requests(name: str, sample: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the prompts and the inputs of ragas' requests for a metric, as its metric classes build them."""
    question, answer, contexts, reference = (sample[key] for key in ("question", "answer", "contexts", "references"))
    reference, joined = reference[0], "\n".join(contexts)
    extract = ("StatementGeneratorPrompt", {"question": question, "answer": answer})
    match name:
        case "faithfulness":
            return [extract, ("NLIStatementPrompt", {"context": joined, "statements": statements_of(answer)})]
        case "answer_relevance":
            return [("ResponseRelevancePrompt", {"response": answer})] * 3
        case "context_precision":
            inputs = [{"question": question, "context": context, "answer": reference} for context in contexts]
            return [("ContextPrecisionPrompt", one) for one in inputs]
        case "context_recall":
            return [
                ("ContextRecallClassificationPrompt", {"question": question, "context": joined, "answer": reference})
            ]
        case "answer_correctness":
            both = {"answer": statements_of(answer), "ground_truth": statements_of(reference)}
            other = ("StatementGeneratorPrompt", {"question": question, "answer": reference})
            return [extract, other, ("CorrectnessClassifier", {"question": question, **both})]
    return []


def ragas_tokens(name: str, sample: dict[str, Any], tokenizer: str, count: Count) -> int:
    """Return the prompt tokens of ragas for a metric of a sample; 0 for a metric that it does not have."""
    return sum(
        RAGAS[prompt][tokenizer] + count(json.dumps(inputs, indent=4, ensure_ascii=False))
        for prompt, inputs in ragas_requests(name, sample)
    )


def own_requests(names: Sequence[str], sample: dict[str, Any], mode: str) -> list[str]:
    """Return the texts of the requests that metrics make for a sample."""
    model = answering(offline_reply)
    judge = Judge(model, mode=mode)  # type: ignore[arg-type]
    suite(*(METRICS[name](judge) for name in names)).invoke(sample)
    return ["\n".join(message.text for message in messages) for messages in model.asked]


QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def encodings(qwen: str | None) -> dict[str, Count]:
    """Return the tokenizers by name."""
    litellm = getattr(find_spec("litellm"), "origin", None)
    if litellm is None:
        sys.exit("install litellm: its wheel holds the ranks of o200k")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(litellm).parent / "litellm_core_utils" / "tokenizers")
    found = {"o200k": tiktoken.get_encoding("o200k_base")}
    if qwen:
        lines = (line.split() for line in Path(qwen).read_bytes().splitlines() if line)
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        found["qwen"] = tiktoken.Encoding("qwen", pat_str=QWEN, mergeable_ranks=ranks, special_tokens={})
    return {name: (lambda text, own=own: len(own.encode(text, disallowed_special=()))) for name, own in found.items()}


def main() -> None:
    """Print a table for each tokenizer and language."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--qwen", help="file of ranks of Qwen's tokenizer, qwen.tiktoken")
    parser.add_argument("--mode", default="prompt", help="mode of the judge")
    options = parser.parse_args()
    for tokenizer, count in encodings(options.qwen).items():
        for language in MOST:
            drawn = samples(options.samples, [language])
            print(f"\n{tokenizer}, {language}, tokens a sample")
            print(f"{'metric':20} {'calls':>6} {'ours':>7} {'ragas':>7} {'ratio':>6}")
            for names in (*([name] for name in SIX), SIX):
                requests = [own_requests(names, sample, options.mode) for sample in drawn]
                ours = sum(count(text) for texts in requests for text in texts) / len(drawn)
                theirs = sum(ragas_tokens(name, sample, tokenizer, count) for name in names for sample in drawn)
                calls = sum(map(len, requests)) / len(drawn)
                label = names[0] if len(names) == 1 else "together"
                ratio = f"{ours / (theirs / len(drawn)):6.3f}" if theirs else ""
                print(f"{label:20} {calls:6.1f} {ours:7.0f} {theirs / len(drawn):7.0f} {ratio}")


if __name__ == "__main__":
    main()
