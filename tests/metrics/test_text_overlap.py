"""What holds for every metric without a model; in their own files what holds for one."""

import re
import subprocess
import sys
from itertools import product

import pytest
from helpers.each import each
from helpers.offline import BY_LETTERS, METRICS
from helpers.stored import fixture_data
from helpers.texts import ENGLISH, RUSSIAN, scored, value
from hypothesis import assume, given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import sentence_bleu, sentence_chrf
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

from langchain_rageval import ConfigError, bleu, chrf, rouge
from langchain_rageval.metrics.text_overlap import contains_whole_words, shared_words
from langchain_rageval.text.words import normalize_text

TEXTS = fixture_data("overlaps.yaml")

BUILT = {name: METRICS[name](None, None) for name in BY_LETTERS}
every_metric = each("metric", BUILT.values(), ids=BUILT)


@every_metric
@given(text=st.text(min_size=1), other=RUSSIAN)
def test_any_text_is_itself_and_the_best_reference_counts(metric, text, other):
    assume(text.strip())
    assert value(metric, text, text) == value(metric, text, other, text, "") == 1.0


@every_metric
@given(answer=RUSSIAN, reference=RUSSIAN)
def test_scores_are_from_0_to_1_and_do_not_depend_on_case(metric, answer, reference):
    assume(answer and reference)
    found = value(metric, answer, reference)
    assert 0 <= found <= 1
    assert value(metric, answer.upper(), f" {normalize_text(reference)}\n") == found


@every_metric
def test_a_blank_answer_is_zero_and_blank_references_leave_it_unscored(metric):
    for question, reason in (("What?", "The answer is blank."), ("Что это?", "Ответ пуст.")):
        blank = scored(metric, " \n", "a", question=question)
        assert (blank.value, blank.reason, blank.findings) == (0.0, reason, [])
    for answer in ("a", ""):
        assert scored(metric, answer, "", " ").unscored == "the references are blank"


@every_metric
def test_findings_hold_the_number_for_each_reference_that_is_not_blank(metric):
    score = scored(metric, "полис действует год", "гости", "", "полис действует год")
    assert {f.kind for f in score.findings} == {"criterion"}
    assert [(f.number, f.text) for f in score.findings] == [(1, "гости"), (3, "полис действует год")]
    worse, best = (float(f.verdict) for f in score.findings)
    assert worse < 0.5 < best == score.value == 1.0
    assert score.usage.calls == 0


def test_nothing_is_imported_before_it_is_used_and_no_model_is_asked():
    script = """
import sys
from langchain_rageval import bleu, chrf, evaluate, exact_match, rouge, string_presence
metrics = [bleu(), chrf(), exact_match(), rouge(), string_presence()]
print([name for name in ("sacrebleu", "rouge_score", "nltk") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_a_missing_extra_is_told_when_the_metric_is_built(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ConfigError, match=f"{name} needs sacrebleu: pip install sacrebleu"):
        METRICS[name](None, None)


@each(("answer", "reference", "same"), TEXTS["equal"])
def test_a_final_full_stop_and_folding_make_no_difference_all_else_does(answer, reference, same):
    assert value(BUILT["exact_match"], answer, reference) == float(same)


@each(("answer", "reference", "there"), TEXTS["contained"])
def test_a_reference_stands_there_as_whole_words(answer, reference, there):
    assert value(BUILT["string_presence"], answer, reference) == float(there)


@given(st.text("ab "), st.text("ab ", min_size=1))
def test_words_are_bounded_as_a_pattern_would_have_it(whole, text):
    inside = re.search(rf"(?:(?<!\w)|(?!\w)){re.escape(text)}(?:(?<!\w)|(?!\w))", whole)
    assert contains_whole_words(whole, text) is bool(inside)


@each(("text", "whole"), [("", "a"), ("", ""), ("a", ""), ("3", "5.3"), ("3", "5.3 km"), ("5", "5.3"), ("5", "a 5,3")])
def test_an_empty_text_or_a_part_of_a_number_occurs_nowhere(text, whole):
    assert contains_whole_words(whole, text) is False


PAIRS = st.tuples(ENGLISH, ENGLISH) | st.tuples(RUSSIAN, RUSSIAN)
VARIANTS = ["rouge1", "rouge2", "rouge3", "rouge4", "rougeL"]


class Words:
    """A tokenizer that keeps Cyrillic, for the oracle."""

    def tokenize(self, text):
        return re.findall(r"[а-яa-z0-9]+", text.lower().replace("ё", "е"))


ORACLE = RougeScorer(VARIANTS, tokenizer=Words())


@given(PAIRS)
def test_all_numbers_are_those_of_rouge_score_with_words_that_it_knows(pair):
    answer, reference = pair
    expected = ORACLE.score(reference, answer)
    for variant, of in product(VARIANTS, ("precision", "recall", "fmeasure")):
        found = shared_words(normalize_text(answer), normalize_text(reference), variant=variant, of=of)
        assert found == pytest.approx(getattr(expected[variant], of), abs=1e-12)


def test_chinese_is_compared_by_characters():
    assert value(rouge(), "东京塔很高", "东京塔不高") == pytest.approx(0.8)


def test_options_choose_the_words_and_the_statistic():
    pair = ("Полис действует один год, и его можно продлить.", "Полис действует год.")
    metrics = [rouge(), rouge(of="recall"), rouge(of="precision"), rouge(variant="rouge2")]
    assert [value(metric, *pair) for metric in metrics] == pytest.approx([6 / 11, 1.0, 3 / 8, 2 / 9])


def test_variants_have_names_of_their_own():
    assert [rouge(variant=variant).name for variant in ("rougeL", "rouge1", "rouge2")] == ["rouge", "rouge1", "rouge2"]
    assert rouge(variant="rouge2", name="mine").name == "mine"
    recall = scored(rouge(variant="rouge1", of="recall"), "кот", "кот")
    assert recall.reason == "ROUGE-1 recall, ближайший эталон: 1.00."


@given(PAIRS)
def test_bleu_is_that_of_sacrebleu_but_for_io(pair):
    assume(all(pair))
    answer, reference = (text.replace("ё", "е").replace("Ё", "Е") for text in pair)
    for tokenize in ("13a", "intl", "char"):
        oracle = sentence_bleu(answer, [reference], lowercase=True, tokenize=tokenize).score / 100
        assert value(bleu(tokenize=tokenize), answer, reference) == pytest.approx(oracle)


@each(
    ("answer", "reference", "tokenize"),
    [
        ("The policy (a good one) holds.", "The policy, a good one, holds for a year.", "13a"),
        ("Полис «Дом» действует один год.", "Полис Дом действует ровно один год.", "intl"),
        ("东京塔很高，也很老。", "东京塔不高，但是很老。", "zh"),
        ("東京タワーは高いです。", "東京タワーは古いです。", "char"),
        ("서울은 한국의 수도이다.", "서울은 한국의 도시이다.", "char"),
    ],
)
def test_the_tokenizer_goes_by_the_language_of_the_reference(answer, reference, tokenize):
    found = value(bleu(), answer, reference)
    assert found == value(bleu(tokenize=tokenize), answer, reference)
    assert 0 < found < 1
    others = {value(bleu(tokenize=other), answer, reference) for other in ("13a", "intl", "zh", "char")}
    assert len(others) > 1


def test_references_are_compared_one_by_one():
    references = ["полис действует год", "взнос платят сразу"]
    metric = bleu()
    pooled = sentence_bleu("полис действует сразу", references).score / 100
    best = max(value(metric, "полис действует сразу", reference) for reference in references)
    assert value(metric, "полис действует сразу", *references) == best != pytest.approx(pooled)


def test_texts_of_a_long_run_are_not_kept():
    metric = bleu(tokenize="13a")
    for number in range(50):
        value(metric, f"a text of number {number}", "the text of a number")
    assert Tokenizer13a.__call__.cache_info().currsize == TokenizerRegexp.__call__.cache_info().currsize == 0


THREADS = """
import random, sys, threading, time

class Slow:
    def find_spec(self, name, *_):
        if name.startswith("sacrebleu"):
            time.sleep(random.random() * 0.03)

sys.meta_path.insert(0, Slow())
random.seed(1)
from langchain_rageval import bleu, chrf

def score(metric):
    time.sleep(random.random() * 0.1)
    scores.append(metric.invoke({"question": "q", "answer": "a b c", "references": ["a c d"]}).value)

scores = []
threads = [threading.Thread(target=score, args=(build(),)) for build in (bleu, chrf) * 4]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(scores))
"""


@pytest.mark.gate
def test_threads_that_are_the_first_to_score_do_not_lock_each_other_out():
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("8\n", "")


@pytest.mark.parametrize("word_order", [0, 1, 2])
@given(PAIRS)
def test_chrf_is_that_of_sacrebleu_of_folded_texts(word_order, pair):
    assume(all(pair))
    one, other = (text.lower().replace("ё", "е") for text in pair)
    expected = sentence_chrf(one, [other], word_order=word_order).score / 100
    assert value(chrf(word_order=word_order), *pair) == pytest.approx(expected)


def test_the_reason_of_chrf_with_words_has_its_name():
    assert scored(chrf(word_order=2), "полис действует", "полиса действуют").reason.startswith("chrF++, ")
