"""BLEU: the share of the answer's words, and of their runs up to four, that a reference has as well.

From 0 to 1, higher is better; no model is asked. Source: Papineni et al. 2002, aclanthology.org/P02-1040, as sacrebleu
(Post 2018, arXiv:1804.08771) counts it for single texts.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import near_reference, overlap_metric, source_in_extra
from langchain_rageval.text.language import detect_language

Tokenize = Literal["auto", "13a", "intl", "zh", "char"]

_TOKENIZERS = {"en": "13a", "zh": "zh", "ja": "char", "ko": "char"}
_OTHERWISE = "intl"


def bleu(*, tokenize: Tokenize = "auto", name: str = "bleu") -> Metric:
    """Score the answer, all its sentences together, by BLEU against the nearest reference.

    Both are folded first (case, ё or е). Runs longer than a text are left out of its mean ("effective order"), those
    that nothing shares are smoothed ("exp"), and an answer shorter than the reference is cut down. Each reference is
    compared by itself; their runs are not pooled.

    Args:
        tokenize: sacrebleu's tokenizer; "auto" goes by the language of the reference: "13a" for English, "zh" for
            Chinese, "char" for Japanese and Korean, and for all others "intl", which knows «», — and № as well.
        name: key of the score.

    Returns:
        A metric reading `answer` and `references`; 0 for a blank answer, unscored when the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `tokenize` is none of these.
    """
    if tokenize not in get_args(Tokenize):
        raise ConfigError(f"tokenize is one of {', '.join(get_args(Tokenize))}, got {tokenize!r}")
    return overlap_metric(
        name,
        partial(sentence_bleu, tokenize=tokenize),
        source=source_in_extra("sacrebleu", "bleu"),
        told=partial(near_reference, measure="BLEU"),
        options={"tokenize": tokenize},
    )


def sentence_bleu(answer: str, reference: str, *, tokenize: Tokenize) -> float:
    """BLEU of two folded texts, from 0 to 1."""
    scorer = _scorer(_TOKENIZERS.get(detect_language(reference), _OTHERWISE) if tokenize == "auto" else tokenize)
    score = scorer.sentence_score(answer, [reference]).score
    _forget(scorer)
    return float(score) / 100


@cache
def _scorer(tokenize: str) -> Any:
    from sacrebleu import BLEU  # of the package: threads that begin with two of its modules block each other

    return BLEU(tokenize=tokenize, effective_order=True)


def _forget(scorer: Any) -> None:
    """Empty the tokenizers' caches, which would keep the last 65,536 texts of a long run in memory."""
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    caches: list[Any] = [type(scorer.tokenizer).__call__, TokenizerRegexp.__call__]
    for cached in caches:
        cached.cache_clear()
