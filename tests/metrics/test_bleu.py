import subprocess
import sys

import pytest
from helpers.each import each
from helpers.texts import ENGLISH, LONG, RUSSIAN, value
from hypothesis import assume, given
from sacrebleu import sentence_bleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

from langchain_rageval import ConfigError, bleu


def oracle(answer, reference, tokenize):
    return sentence_bleu(answer, [reference], lowercase=True, tokenize=tokenize).score / 100


@given(ENGLISH, ENGLISH)
def test_on_english_it_is_that_of_sacrebleu(answer, reference):
    assert value(bleu(tokenize="13a"), answer, reference) == pytest.approx(oracle(answer, reference, "13a"))


@given(RUSSIAN, RUSSIAN)
def test_on_russian_it_is_that_of_sacrebleu_but_for_io(answer, reference):
    assume(answer and reference)
    answer, reference = answer.replace("ё", "е").replace("Ё", "Е"), reference.replace("ё", "е").replace("Ё", "Е")
    for tokenize in ("13a", "intl", "char"):
        found = value(bleu(tokenize=tokenize), answer, reference)
        assert found == pytest.approx(oracle(answer, reference, tokenize))


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


def test_all_sentences_count_not_the_first_alone():
    first = LONG[0].partition(". ")[0] + "."
    assert value(bleu(), LONG[0], LONG[0]) == 1.0
    assert 0 < value(bleu(), first, LONG[0]) < 0.3  # cut down for its length
    assert 0 < value(bleu(), f"{first} Слоны живут в Африке, их там много.", LONG[0]) < 0.6


@each("text", ["Да", "Нет, нельзя", "1158"])
def test_short_texts_are_not_lost_for_want_of_four_words(text):
    assert value(bleu(), f"{text} !", f"{text} ?") > 0.4


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


@each("tokenize", ["ja-mecab", "spm", None, ""])
def test_a_tokenizer_that_needs_more_is_refused(tokenize):
    with pytest.raises(ConfigError, match="tokenize must be one of auto, 13a, intl, zh, char, got "):
        bleu(tokenize=tokenize)
    assert bleu().instrument != bleu(tokenize="13a").instrument


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
