"""Metrics, and the tables in which the command line and the presets find the functions that build metrics.

A new function must be added to `BUILDERS`, or to `RANKINGS` if it builds a ranking metric; also to `SCORES` if its
scores have other names than the function.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

_FILES: Mapping[str, str] = {
    "noise_sensitivity": "claim_metrics",
    **dict.fromkeys(("abstention", "aspect_critique"), "answer_verdicts"),
    **dict.fromkeys(("answer_relevance", "answer_similarity"), "similarity_metrics"),
    **dict.fromkeys(
        ("context_precision", "context_recall", "context_relevance", "context_entity_recall"), "context_metrics"
    ),
    **dict.fromkeys(("exact_match", "string_presence", "rouge", "bleu", "chrf"), "text_overlap"),
}

BUILDERS: Mapping[str, str] = {
    name: f"langchain_rageval.metrics.{_FILES.get(name, name)}"
    for name in (
        *("faithfulness", "answer_relevance", "context_precision", "context_recall", "context_relevance"),
        *("answer_similarity", "answer_correctness", "aspect_critique", "claim_metrics", "citations"),
        *("noise_sensitivity", "context_entity_recall", "abstention", "exact_match", "string_presence", "rouge"),
        *("bleu", "chrf", "rubric", "answer_completeness", "conversation_metrics"),
    )
}
"""Module of each builder, by the name of the builder; read by the command line."""

ALIASES: Mapping[str, str] = {
    "groundedness": "faithfulness",
    "answer_relevancy": "answer_relevance",
    "contextual_precision": "context_precision",
    "contextual_recall": "context_recall",
    "contextual_relevancy": "context_relevance",
}
"""Builders by the names that other libraries give their metrics; the command line accepts these."""

PRESETS: Mapping[str, Sequence[str]] = {
    "core": ("faithfulness", "answer_relevance", "context_precision", "context_recall", "answer_correctness"),
    "retrieval": ("context_precision", "context_recall", "context_relevance", "context_entity_recall"),
    "answer": ("faithfulness", "answer_relevance", "answer_similarity", "answer_correctness"),
}
"""Builders of each preset; those that need embeddings are left out where there are none."""

SCORES: Mapping[str, Sequence[str]] = {
    "claim_metrics": (
        *("claim_precision", "claim_recall", "claim_f1", "claim_context_recall", "claim_context_precision"),
        *("claim_context_utilization", "claim_noise_relevant", "claim_noise_irrelevant", "claim_hallucination"),
        *("claim_self_knowledge", "claim_faithfulness", "claim_contradiction"),
    ),
    "citations": ("citation_precision", "citation_recall"),
    "conversation_metrics": ("conversation_consistency", "conversation_retention", "conversation_resolution"),
    "noise_sensitivity": ("noise_sensitivity_relevant",),
}
"""Score names of the builders whose scores are named otherwise than the builder."""

RANKINGS: Mapping[str, str] = dict.fromkeys(
    ("ndcg", "mrr", "map", "recall", "precision", "hit_rate", "mean_grade"), "langchain_rageval.metrics.ranked"
)
"""Module of each ranking builder `<name>_at(k, grader)`, by the part of its score name before "@k"."""

ASPECTS: Mapping[str, Literal["higher", "lower"]] = {
    "harmfulness": "lower",
    "maliciousness": "lower",
    "coherence": "higher",
    "correctness": "higher",
    "conciseness": "higher",
}
"""Better direction of each built-in aspect of `aspect_critique`; the prompts define the aspects."""
