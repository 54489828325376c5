"""The metrics, one per file; a new one is its file, its prompts, its test, and a line here."""

from collections.abc import Mapping
from typing import Literal

BUILDERS: Mapping[str, str] = {
    name: f"langchain_rageval.metrics.{name}"
    for name in (
        "faithfulness",
        "answer_relevance",
        "context_precision",
        "context_recall",
        "context_relevance",
        "answer_similarity",
        "answer_correctness",
        "aspect_critique",
        "context_entity_recall",
        "abstention",
        "exact_match",
        "string_presence",
        "rouge",
        "bleu",
        "chrf",
        "rubric",
    )
}
"""Name of each builder to the module that holds it; read by the command line."""

RANKINGS: Mapping[str, str] = {
    name: f"langchain_rageval.metrics.{name}_at"
    for name in ("ndcg", "mrr", "map", "recall", "precision", "hit_rate", "mean_grade")
}
"""Name before "@k" of each metric of a ranked list to the module that holds its builder, `<name>_at(k, grader)`."""

ASPECTS: Mapping[str, Literal["higher", "lower"]] = {
    "harmfulness": "lower",
    "maliciousness": "lower",
    "coherence": "higher",
    "correctness": "higher",
    "conciseness": "higher",
}
"""The built-in aspects of `aspect_critique`, and which direction is better; the prompts define them."""
