import re

import pytest
from helpers.each import each
from helpers.texts import ENGLISH, RUSSIAN, scored, value
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from langchain_rageval import ConfigError, rouge
from langchain_rageval.metrics.text_overlap import lcs_length, shared_words
from langchain_rageval.text.words import normalize_text

VARIANTS = ["rouge1", "rouge2", "rouge3", "rouge4", "rougeL"]
OF = ["precision", "recall", "fmeasure"]
ORACLE = RougeScorer(VARIANTS)


class Words:
    """A tokenizer that keeps Cyrillic, for the oracle."""

    def tokenize(self, text):
        return re.findall(r"[а-яa-z0-9]+", text.lower().replace("ё", "е"))


CYRILLIC_ORACLE = RougeScorer(VARIANTS, tokenizer=Words())


@given(ENGLISH, ENGLISH)
def test_on_english_all_numbers_are_those_of_rouge_score(answer, reference):
    expected = ORACLE.score(reference, answer)
    for variant in VARIANTS:
        for of in OF:
            found = shared_words(normalize_text(answer), normalize_text(reference), variant=variant, of=of)
            assert found == pytest.approx(getattr(expected[variant], of), abs=1e-12)


@given(RUSSIAN, RUSSIAN)
def test_on_russian_they_are_those_of_rouge_score_with_words_that_it_knows(answer, reference):
    expected = CYRILLIC_ORACLE.score(reference, answer)
    for variant in VARIANTS:
        found = shared_words(normalize_text(answer), normalize_text(reference), variant=variant, of="fmeasure")
        assert found == pytest.approx(expected[variant].fmeasure, abs=1e-12)


def test_rouge_score_by_itself_sees_no_russian():
    text = "Полис действует один год."
    assert ORACLE.score(text, text)["rougeL"].fmeasure == 0
    assert value(rouge(), text, text) == 1.0


def plain_lcs_length(one, other):
    table = [[0] * (len(other) + 1)]
    for token in one:
        row = [0]
        for at, theirs in enumerate(other):
            row.append(table[-1][at] + 1 if token == theirs else max(table[-1][at + 1], row[-1]))
        table.append(row)
    return table[-1][-1]


TOKENS = st.lists(st.sampled_from("abcd"), max_size=90)


@given(TOKENS, TOKENS)
def test_the_longest_common_sequence_is_that_of_the_table(one, other):
    assert lcs_length(one, other) == plain_lcs_length(one, other) == lcs_length(other, one)


@given(RUSSIAN, RUSSIAN)
def test_the_mean_is_symmetric_and_precision_is_recall_the_other_way(one, other):
    for variant in VARIANTS:
        assert shared_words(one, other, variant=variant, of="fmeasure") == pytest.approx(
            shared_words(other, one, variant=variant, of="fmeasure")
        )
        assert shared_words(one, other, variant=variant, of="precision") == shared_words(
            other, one, variant=variant, of="recall"
        )


def test_a_long_answer_that_holds_the_reference_has_full_recall():
    pair = ("Полис действует один год, и его можно продлить.", "Полис действует год.")
    assert value(rouge(of="recall"), *pair) == 1.0
    assert value(rouge(of="precision"), *pair) == pytest.approx(3 / 8)
    assert value(rouge(), *pair) == pytest.approx(6 / 11)


def test_chinese_is_compared_by_characters():
    assert value(rouge(), "东京塔很高", "东京塔不高") == pytest.approx(0.8)


def test_texts_of_ten_thousand_words_are_no_burden():
    one, other = (" ".join(str(number * step % 997) for number in range(10_000)) for step in (7, 11))
    assert 0 < value(rouge(), one, other) < 1


def test_variants_have_names_of_their_own():
    assert [rouge(variant=variant).name for variant in ("rougeL", "rouge1", "rouge2")] == ["rouge", "rouge1", "rouge2"]
    assert rouge(variant="rouge2", name="mine").name == "mine"
    assert len({rouge(variant=variant, of=of).instrument for variant in VARIANTS for of in OF}) == 15
    assert (
        scored(rouge(variant="rouge1", of="recall"), "кот", "кот").reason == "ROUGE-1 recall, ближайший эталон: 1.00."
    )


@each("options", [{"variant": "rougeLsum"}, {"variant": "L"}, {"variant": None}, {"of": "f1"}])
def test_an_unknown_option_is_refused_with_those_there_are(options):
    (option,) = options
    with pytest.raises(ConfigError, match=f"{option} must be one of .*, got "):
        rouge(**options)
