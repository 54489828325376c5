"""What holds for every metric without a model; in their own files what holds for one."""

import subprocess
import sys

import pytest
from helpers.each import each
from helpers.offline import BY_LETTERS, METRICS
from helpers.texts import LONG, RUSSIAN, scored, value
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_rageval import ConfigError
from langchain_rageval.text.words import normalize_text

BUILT = {name: METRICS[name](None, None) for name in BY_LETTERS}
every_metric = each("metric", BUILT.values(), ids=BUILT)
graded = each("metric", [BUILT[name] for name in ("rouge", "bleu", "chrf")], ids=str)

TEXTS = [*LONG, "Да", "东京塔建于一九五八年。", "東京タワー", "서울은 수도이다.", "ёлка", "+++", "…", "«»", "a", "5"]


@every_metric
@each("text", TEXTS)
def test_identical_texts_are_exactly_one(metric, text):
    assert value(metric, text, text) == 1.0


@every_metric
@given(text=st.text(min_size=1), other=RUSSIAN)
def test_any_text_is_itself_and_the_best_reference_counts(metric, text, other):
    assume(text.strip())
    assert value(metric, text, text) == value(metric, text, other, text, "") == 1.0


@every_metric
def test_case_form_white_space_and_io_make_no_difference(metric):
    assert value(metric, "  ВСЕ ЕЩЕ нельзя\nрубить  е\u0308лки ", "Всё ещё нельзя рубить ёлки") == 1.0


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
    assert [(f.kind, f.number, f.text) for f in score.findings] == [
        ("criterion", 1, "гости"),
        ("criterion", 3, "полис действует год"),
    ]
    assert [float(f.verdict) for f in score.findings][1] == score.value == 1.0
    assert float(score.findings[0].verdict) < 0.5
    assert score.usage.calls == 0


@every_metric
@each(("question", "letters"), [("What is it?", "abcdefghijklmnopqrstuvwxyz"), ("Что это?", "абвгдежз")])
@pytest.mark.parametrize("answer", ["a", "кот"])
def test_the_reason_is_in_the_samples_language(metric, question, letters, answer):
    reason = scored(metric, answer, "кот", question=question).reason
    assert reason.endswith(".")
    assert set(letters) & set(reason.lower())
    assert (letters[0] == "а") is bool(set("абвгдежз") & set(reason.lower()))


@graded
def test_more_than_the_first_sentence_counts(metric):
    one, two = LONG[0], LONG[0].replace("Взнос платят раз в квартал?", "Слоны живут в Африке, а не тут!")
    assert value(metric, two, one) < 0.95
    assert value(metric, one.partition(". ")[0], one) < 0.75


@graded
def test_another_case_ending_costs_something_and_not_all(metric):
    near = value(
        metric,
        "Полис страхования бани действует один год с оплаты",
        "Полис страхования бани действует один год с оплатой",
    )
    assert 0.5 < near < 1


def test_characters_forgive_an_ending_that_words_do_not():
    pair = ("страхование бани", "страхования бань")
    assert value(BUILT["chrf"], *pair) > 0.5 > value(BUILT["rouge"], *pair) == 0.0


@graded
def test_nothing_in_common_is_nothing(metric):
    assert value(metric, "кот", "ягуль") < 0.01


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


@pytest.mark.parametrize("name", ["exact_match", "string_presence", "rouge"])
def test_the_others_need_no_extra(name, monkeypatch):
    for package in ("sacrebleu", "rouge_score"):
        monkeypatch.setitem(sys.modules, package, None)
    assert value(METRICS[name](None, None), "кот", "Кот.") == 1.0
