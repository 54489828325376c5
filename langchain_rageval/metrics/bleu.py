"""BLEU: the share of the answer's word n-grams, up to four words, that a reference contains.

From 0 to 1, higher is better; no model is called. Source: Papineni et al. 2002, aclanthology.org/P02-1040, computed by
sacrebleu (Post 2018, arXiv:1804.08771) for single texts.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import installed_version, nearest_reference_reason, overlap_metric
from langchain_rageval.text.language import detect_language

Tokenize = Literal["auto", "13a", "intl", "zh", "char"]

_TOKENIZERS = {"en": "13a", "zh": "zh", "ja": "char", "ko": "char"}
_DEFAULT_TOKENIZER = "intl"


def bleu(*, tokenize: Tokenize = "auto", name: str = "bleu") -> Metric:
    """Score the whole answer by BLEU against the nearest reference.

    Both texts are normalized first (case, ё or е). N-grams longer than a text do not count ("effective order"), orders
    without a match are smoothed ("exp"), and an answer shorter than the reference gets the brevity penalty. Each
    reference is compared separately; their n-grams are not pooled.

    Args:
        tokenize: sacrebleu's tokenizer; "auto" chooses by the language of the reference: "13a" for English, "zh" for
            Chinese, "char" for Japanese and Korean, else "intl", which also splits off «», — and №.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `tokenize` is invalid.
    """
    if tokenize not in get_args(Tokenize):
        raise ConfigError(f"tokenize must be one of {', '.join(get_args(Tokenize))}, got {tokenize!r}")
    return overlap_metric(
        name,
        partial(sentence_bleu, tokenize=tokenize),
        source=installed_version("sacrebleu", "bleu"),
        format_reason=partial(nearest_reference_reason, measure="BLEU"),
        options={"tokenize": tokenize},
    )


def sentence_bleu(answer: str, reference: str, *, tokenize: Tokenize) -> float:
    """Return the BLEU of two normalized texts, from 0 to 1."""
    scorer = _scorer(
        _TOKENIZERS.get(detect_language(reference), _DEFAULT_TOKENIZER) if tokenize == "auto" else tokenize
    )
    score = scorer.sentence_score(answer, [reference]).score
    _clear_caches(scorer)
    return float(score) / 100


@cache
def _scorer(tokenize: str) -> Any:
    from sacrebleu import BLEU  # from the package: threads that import two of its modules at once deadlock

    return BLEU(tokenize=tokenize, effective_order=True)


def _clear_caches(scorer: Any) -> None:
    """Empty the tokenizers' caches, which would keep the last 65,536 texts of a long run in memory."""
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    caches: list[Any] = [type(scorer.tokenizer).__call__, TokenizerRegexp.__call__]
    for cached in caches:
        cached.cache_clear()
