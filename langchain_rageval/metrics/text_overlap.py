"""Overlap metrics: the answer is compared with each reference without a model; the best value counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal, get_args

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import OVERLAP, Value, answer_and_references, blank_value, similarity_findings
from langchain_rageval.steps.measure_similarity import TextMeasure, compare_texts
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language
from langchain_rageval.text.words import UNSPACED, tokens_of

_UNSPACED = re.compile(f"[{UNSPACED}]")
_DIGIT_AND_MARK = re.compile(r"\d[.,]")
_MARK_AND_DIGIT = re.compile(r"[.,]\d")


def without_stop(text: str) -> str:
    """Return a normalized text without its final full stop; unchanged if it consists of full stops."""
    return text.rstrip(".。… ") or text


def contains_whole_words(whole: str, text: str) -> bool:
    """Return True if `text` occurs in `whole` as whole words and whole numbers; an empty text never occurs.

    In scripts without spaces between words, any occurrence counts.
    """
    places = (match.start() for match in re.finditer(f"(?={re.escape(text)})", whole))
    return bool(text) and any(_is_bounded(whole, at, at + len(text)) for at in places)


def _is_bounded(whole: str, start: int, end: int) -> bool:
    before, first, last, after = whole[start - 1 : start], whole[start], whole[end - 1], whole[end : end + 1]
    if _same_word(before, first) or _same_word(last, after):
        return False
    cut_before = first.isdigit() and start > 1 and _DIGIT_AND_MARK.match(whole, start - 2)
    return not cut_before and not (last.isdigit() and _MARK_AND_DIGIT.match(whole, end))


def _same_word(left: str, right: str) -> bool:
    """Return True if two adjacent characters belong to one word; an empty string belongs to none."""
    return bool(left and right) and all(c.isalnum() and not _UNSPACED.match(c) for c in (left, right))


def overlap_metric(name: str, measure: TextMeasure, *, source: str, shown: str, options: Mapping[str, Any]) -> Metric:
    """Return a metric that compares texts without a model.

    Args:
        name: key of the score.
        measure: function from the normalized answer and a normalized reference to a number from 0 to 1.
        source: name, and version if any, of the implementation; part of the metric's `instrument` (hashes of its
            configuration).
        shown: name of the measure in the reason of the score, such as "BLEU". The special names "equality" and
            "presence" give a reason without a number instead, such as "The answer equals a reference".
        options: all options that could change the number.
    """
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=compare_texts(measure, answer_and_references, source=source),
        reduce=partial(best_overlap, shown=shown),
        options=options,
    )


def best_overlap(state: State, *, shown: str) -> Value:
    """Return the highest of the overlaps of the answer with the references, from 0 to 1, which a step has computed.

    0 for a blank answer; unscored if all references are blank. `shown` is the name of the measure in the reason, such
    as "BLEU"; for "equality" and "presence", the reason is a sentence without a number.
    """
    sample, similarities = state["sample"], state["similarities"]
    if (blank := blank_value(sample)) is not None:
        return blank
    best = max(similarities)
    code = f"{shown}-{best > 0}".lower() if shown in ("equality", "presence") else "nearest-overlap"
    reason = explain(sample.language_text, Note(code, measure=shown, value=best))
    return Value(best, reason, similarity_findings(sample, similarities, reason=OVERLAP))


def installed_version(package: str, metric: str) -> str:
    """Return the name and version of a package of the extra "text", without importing the package.

    Raises:
        ConfigError: if the package is not installed; the message names the metric that needs it.
    """
    if find_spec(package) is None:
        raise ConfigError(f"{metric} needs {package}: pip install {package}")
    return f"{package} {version(package)}"


def exact_match(*, name: str = "exact_match") -> Metric:
    """Score 1 if the answer equals a reference, else 0.

    Differences in Unicode form, case, ё or е, white space and a full stop at the end are ignored ("Мюнхен." equals
    "мюнхен"). Other differences in punctuation are not ignored.

    Args:
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`: 1 if the answer equals one of them, else 0. A blank answer is 0.
        Unscored if the references are blank. Findings of the kind "criterion" hold 1.0 or 0.0 for each reference.
    """
    return overlap_metric(name, equality, source="equality", shown="equality", options={})


def equality(answer: str, reference: str) -> float:
    """Return 1.0 if two normalized texts are equal except for a final full stop, else 0.0."""
    return float(without_stop(answer) == without_stop(reference))


def string_presence(*, name: str = "string_presence") -> Metric:
    """Score 1 if the answer contains a reference, else 0; for short references such as a name, a date or a number.

    Only whole words match: "кот" does not match in "который", nor 158 in 1158 or 1,158. In Chinese, Japanese, Korean,
    Thai and other scripts without spaces between words, any place matches. Differences in Unicode form, case, ё or е,
    white space and a full stop at the end of the reference are ignored.

    Args:
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`: 1 if the answer contains one of them, else 0. A blank answer is
        0. Unscored if the references are blank. Findings of the kind "criterion" hold 1.0 or 0.0 for each reference.
    """
    return overlap_metric(name, presence, source="whole words", shown="presence", options={})


def presence(answer: str, reference: str) -> float:
    """Return 1.0 if the normalized answer contains the normalized reference, else 0.0."""
    return float(contains_whole_words(answer, without_stop(reference)))


RougeVariant = Literal["rougeL", "rouge1", "rouge2", "rouge3", "rouge4"]
RougeStatistic = Literal["fmeasure", "precision", "recall"]


def rouge(*, variant: RougeVariant = "rougeL", of: RougeStatistic = "fmeasure", name: str | None = None) -> Metric:
    """Score the word overlap (ROUGE) of the answer with the most similar reference.

    Words are sequences of letters and digits of any alphabet, normalized (case, ё or е). In scripts without spaces
    between words, such as Chinese, each character is a word. Words are not stemmed: two inflections of a word do not
    match.

    Args:
        variant: "rougeL" for the longest common subsequence of words, gaps allowed; "rouge1" to "rouge4" for n-grams of
            1 to 4 words.
        of: "recall" is the share of the reference's words that the answer contains, "precision" the share of the
            answer's words that the reference contains, "fmeasure" their harmonic mean.
        name: key of the score; by default "rouge" for "rougeL", else the variant.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the ROUGE (from 0 to 1) with each reference.

    Raises:
        ConfigError: if an option is invalid.
    """
    check_choice("variant", variant, get_args(RougeVariant))
    check_choice("of", of, get_args(RougeStatistic))
    measure = f"ROUGE-{variant.removeprefix('rouge')}"
    return overlap_metric(
        name or ("rouge" if variant == "rougeL" else variant),
        partial(shared_words, variant=variant, of=of),
        source="rouge",
        shown=measure if of == "fmeasure" else f"{measure} {of}",
        options={"variant": variant, "of": of},
    )


def shared_words(answer: str, reference: str, *, variant: RougeVariant, of: RougeStatistic) -> float:
    """Return the ROUGE of two normalized texts; 0.0 if a text is too short to contain an n-gram of the variant."""
    answer_words, reference_words = tokens_of(answer), tokens_of(reference)
    if variant == "rougeL":
        shared, sizes = lcs_length(answer_words, reference_words), (len(answer_words), len(reference_words))
    else:
        length = int(variant.removeprefix("rouge"))
        grams = _ngrams(answer_words, length), _ngrams(reference_words, length)
        shared, sizes = (grams[0] & grams[1]).total(), (grams[0].total(), grams[1].total())
    precision, recall = (shared / size if size else 0.0 for size in sizes)
    if of != "fmeasure":
        return precision if of == "precision" else recall
    return 2 * precision * recall / (precision + recall) if shared else 0.0


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Source: Hyyrö 2004, "Bit-parallel LCS-length computation revisited": each row of the dynamic programming table is
    one integer, whose zero bits mark where the length grows. Time O(n·m / 64).
    """
    places: dict[str, int] = {}
    for at, token in enumerate(other):
        places[token] = places.get(token, 0) | 1 << at
    row = full = (1 << len(other)) - 1
    for token in one:
        matches = row & places.get(token, 0)
        row = (row + matches | row - matches) & full
    return len(other) - row.bit_count()


def _ngrams(tokens: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))


Tokenize = Literal["auto", "13a", "intl", "zh", "char"]

_TOKENIZERS = {"en": "13a", "zh": "zh", "ja": "char", "ko": "char"}


def bleu(*, tokenize: Tokenize = "auto", name: str = "bleu") -> Metric:
    """Score the answer by BLEU, from 0 to 1, against the reference that gives the highest value.

    Both texts are normalized first (case, ё or е). N-grams longer than a text do not count ("effective order"), n-gram
    orders without a match are smoothed ("exp"), and an answer shorter than the reference gets the brevity penalty. Each
    reference is compared separately; the n-grams of several references are not pooled.

    Args:
        tokenize: sacrebleu's tokenizer. "auto" chooses by the language of the reference: "13a" for English, "zh" for
            Chinese, "char" for Japanese and Korean, else "intl", which also splits off «», — and №.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the BLEU (from 0 to 1) with each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `tokenize` is invalid.
    """
    check_choice("tokenize", tokenize, get_args(Tokenize))
    return overlap_metric(
        name,
        partial(sentence_bleu, tokenize=tokenize),
        source=installed_version("sacrebleu", "bleu"),
        shown="BLEU",
        options={"tokenize": tokenize},
    )


def sentence_bleu(answer: str, reference: str, *, tokenize: Tokenize) -> float:
    """Return the BLEU of two normalized texts, from 0 to 1."""
    scorer = _bleu_scorer(_TOKENIZERS.get(detect_language(reference), "intl") if tokenize == "auto" else tokenize)
    score = scorer.sentence_score(answer, [reference]).score

    # The caches of the tokenizers would keep the last 65,536 texts of a long run in memory.
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    caches: list[Any] = [type(scorer.tokenizer).__call__, TokenizerRegexp.__call__]
    for cached in caches:
        cached.cache_clear()
    return float(score) / 100


@cache
def _bleu_scorer(tokenize: str) -> Any:
    from sacrebleu import BLEU  # from the package: threads that import two of its modules at once deadlock

    return BLEU(tokenize=tokenize, effective_order=True)


def chrf(*, word_order: int = 0, name: str = "chrf") -> Metric:
    """Score the answer by chrF against the reference that gives the highest value.

    Both texts are normalized first (case, ё or е). chrF compares n-grams of 1 to 6 characters without white space, and
    recall counts twice as much as precision.

    Args:
        word_order: 0 for chrF without word n-grams; 1 or 2 to add word n-grams up to that length. 2 is chrF++.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `word_order` is invalid.
    """
    if not isinstance(word_order, int) or not 0 <= word_order <= 2:
        raise ConfigError(f"word_order is 0 for chrF, 1, or 2 for chrF++, got {word_order!r}")
    return overlap_metric(
        name,
        partial(sentence_chrf, word_order=word_order),
        source=installed_version("sacrebleu", "chrf"),
        shown="chrF" + "+" * word_order,
        options={"word_order": word_order},
    )


def sentence_chrf(answer: str, reference: str, *, word_order: int) -> float:
    """Return the chrF of two normalized texts, from 0 to 1."""
    return float(_chrf_scorer(word_order).sentence_score(answer, [reference]).score) / 100


@cache
def _chrf_scorer(word_order: int) -> Any:
    from sacrebleu import CHRF  # from the package, as in bleu

    return CHRF(word_order=word_order)
