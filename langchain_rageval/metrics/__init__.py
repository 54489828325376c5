"""The metrics, one per file; a new one is its file, its prompts, its test, and a line here."""

from collections.abc import Mapping, Sequence
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
        "claim_metrics",
        "noise_sensitivity",
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

SCORES: Mapping[str, Sequence[str]] = {
    "claim_metrics": (
        "claim_precision",
        "claim_recall",
        "claim_f1",
        "claim_context_recall",
        "claim_context_precision",
        "claim_context_utilization",
        "claim_noise_relevant",
        "claim_noise_irrelevant",
        "claim_hallucination",
        "claim_self_knowledge",
        "claim_faithfulness",
        "claim_contradiction",
    ),
    "noise_sensitivity": ("noise_sensitivity_relevant",),
}
"""Names of the scores of those builders whose own names are none."""
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
