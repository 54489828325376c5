"""Real texts end to end, offline: excerpts of WikiEval, CLAPNQ, TERRa and XQuAD with all metrics that fit.

The offline judge counts words, so only what any sane judge must find is held here; its figures on the full sets are
those of tests/benchmarks/baselines.py.
"""

import gzip
import json
import re
import sys
from pathlib import Path

import pytest
from helpers.manual import load_benchmark
from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval import (
    OfflineJudge,
    PromptSet,
    aspect_critique,
    context_precision,
    context_recall,
    evaluate,
    faithfulness,
)
from langchain_rageval.metrics import ASPECTS

HERE = Path(__file__).parent
LANGUAGES = ("en", "ru", "zh")
EIGHT = {
    "faithfulness",
    "answer_relevance",
    "context_precision",
    "context_recall",
    "context_relevance",
    "answer_similarity",
    "answer_correctness",
    "correctness",
}
REFUSAL = "The retrieved passages do not say."
UNSCORED = {
    "the answer states no facts",
    "the reference states no facts",
    "the answer states no facts, nor does the reference",
}


baselines = load_benchmark("baselines")


def rows_of(folder, name):
    lines = gzip.decompress((HERE / "fixtures" / folder / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


WIKIEVAL, CLAPNQ, TERRA = (
    rows_of(*names) for names in (("wikieval", "wikieval"), ("clapnq", "clapnq_dev"), ("terra_ru", "terra_train"))
)
CONTEXTS, QUESTIONS = rows_of("xquad", "contexts"), rows_of("xquad", "questions")
ANSWERABLE, UNANSWERABLE = ([row for row in CLAPNQ if row["answerable"] is kind] for kind in (True, False))
CONTRASTS = baselines.wikieval_samples(WIKIEVAL)


def human(rows):
    return baselines.clapnq_samples(rows, lambda row: row["answers"][0]["answer"])


def refused(rows):
    return baselines.clapnq_samples(rows, lambda row: REFUSAL)


def xquad(language):
    return baselines.xquad_samples(QUESTIONS, CONTEXTS, language)


SETS = {
    **{f"wikieval {name}": samples for name, samples in CONTRASTS.items()},
    "clapnq": human(ANSWERABLE),
    "clapnq unanswerable": refused(UNANSWERABLE),
    "terra": baselines.terra_samples(TERRA),
    **{f"xquad {language}": xquad(language) for language in LANGUAGES},
}


def scores(samples, metric):
    return [row.scores[metric.name].value for row in evaluate(samples, metric, progress=False).rows]


def total(samples, metric):
    given = scores(samples, metric)
    assert None not in given
    return sum(given)


@pytest.mark.parametrize("name", SETS)
def test_every_score_of_a_file_has_a_value_or_a_reason(name, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(s, ensure_ascii=False) + "\n" for s in SETS[name]), encoding="utf-8")
    report = evaluate(path, baselines.fitting(SETS[name]), progress=False)
    lacking = {"context_recall", "answer_similarity", "answer_correctness"} if name == "clapnq unanswerable" else set()
    assert len(report) == len(SETS[name])
    assert report.failures() == []
    assert any("not a measure of quality" in note for note in report.notes)
    for row in report.rows:
        assert row.scores.keys() == EIGHT - lacking
        for score in row.scores.values():
            assert (score.value is None) != (score.unscored is None)
            assert score.unscored in UNSCORED if score.value is None else 0 <= score.value <= 1
            assert bool(score.reason) == (score.value is not None)


# WikiEval: better by construction


def test_answers_from_the_context_are_more_faithful_than_answers_without_one():
    metric = faithfulness(OfflineJudge())
    grounded, ungrounded = (scores(CONTRASTS[name], metric) for name in ("answer", "ungrounded_answer"))
    assert sum(grounded) > sum(ungrounded)
    wins = sum(better > worse for better, worse in zip(grounded, ungrounded, strict=True))
    losses = sum(better < worse for better, worse in zip(grounded, ungrounded, strict=True))
    assert wins > losses


def test_the_grounded_answer_is_recalled_from_its_own_context_and_not_from_anothers():
    samples, metric = CONTRASTS["answer"], context_recall(OfflineJudge())
    moved = [s | {"contexts": o["contexts"]} for s, o in zip(samples, samples[1:] + samples[:1], strict=True)]
    assert total(samples, metric) > total(moved, metric)


# CLAPNQ: sentences and answers chosen by people


def test_gold_sentences_are_found_among_ours_by_their_characters():
    assert baselines.gold_of_ours(["One two.", "Three."], ["One", "two. Three."], {1}) == [True, True]
    assert baselines.gold_of_ours(["One two. Three."], ["One two.", "Three."], {1}) == [False]
    assert baselines.gold_of_ours(["A b .", "C d ."], ["A b .", "C d ."], {0}) == [True, False]
    report = baselines.judged(human(ANSWERABLE))
    selection = baselines.Selection.of(report, ANSWERABLE)
    assert (
        len(selection.gold)
        == len(selection.selected)
        == sum(len(row.scores["context_relevance"].findings) for row in report.rows)
    )
    assert 0 < sum(selection.gold) < len(selection.gold)


def test_a_refusal_is_evasive_and_states_no_facts():
    samples = [sample | {"references": ["The passage does not say."]} for sample in refused(UNANSWERABLE)]
    for row in baselines.judged(samples).rows:
        assert row.scores["answer_relevance"].value == 0
        assert row.scores["answer_relevance"].reason == "The answer is blank or evasive."
        assert row.scores["faithfulness"].unscored == "the answer states no facts"
        assert row.scores["context_recall"].unscored == "the reference states no facts"
        assert row.scores["answer_correctness"].unscored == "the answer states no facts, nor does the reference"


# TERRa: entailment


def test_a_premise_supports_itself():
    samples = [{"question": "?", "answer": row["premise"], "contexts": [row["premise"]]} for row in TERRA]
    assert total(samples, faithfulness(OfflineJudge())) == len(TERRA) == 20


def test_a_hypothesis_has_one_verdict_as_answer_or_as_reference():
    report = baselines.judged(baselines.terra_samples(TERRA))
    for row in report.rows:
        ((answer,), (reference,)) = (row.scores[name].findings for name in ("faithfulness", "context_recall"))
        assert (answer.verdict, answer.cites) == (reference.verdict, reference.cites)
        assert bool(answer.cites) == (answer.verdict != "absent")


# XQuAD: the same items in three languages


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_own_paragraph_is_more_useful_than_anothers(language):
    metric = context_precision(OfflineJudge(), weighting="plain", against="answer", name="useful")
    kinds = baselines.useful(evaluate(xquad(language), metric, progress=False), "useful")
    assert len(kinds["own"]) == len(kinds["sibling"]) == len(kinds["stranger"]) == len(QUESTIONS)
    assert sum(kinds["own"]) > sum(kinds["sibling"])
    assert sum(kinds["own"]) > sum(kinds["stranger"])


def test_paragraphs_rotate_in_order_and_name_their_source():
    article = {context["id"]: context["article"] for context in CONTEXTS}
    assert len({sample["metadata"]["order"][0] for sample in xquad("en")}) == 3
    for question in QUESTIONS:
        chunks = baselines.neighbours(CONTEXTS, question["context_id"])
        own = article[question["context_id"]]
        assert chunks["own"] == question["context_id"] != chunks["sibling"]
        assert article[chunks["sibling"]] == own != article[chunks["stranger"]]


class Asked(BaseCallbackHandler):
    def __init__(self):
        self.systems = []

    def on_chat_model_start(self, serialized, messages, **kwargs):
        self.systems += [given[0].text for given in messages]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_uses_its_own_prompts(language):
    asked = Asked()
    report = evaluate(xquad(language), baselines.fitting(xquad(language)), progress=False, callbacks=[asked])
    common = PromptSet.default(language).common
    assert common.language == language
    assert set(asked.systems) == {common.system}
    assert len(asked.systems) == sum(summary.calls for summary in report.summary().values())


@pytest.mark.parametrize(("language", "own", "other"), [("en", "[a-z]", "[а-яё]"), ("ru", "[а-яё]", "[a-z]")])
def test_reasons_are_in_the_language_of_the_question_except_for_quotations(language, own, other):
    judge = OfflineJudge()
    aspects = [aspect_critique(judge, aspect, name=f"is_{aspect}") for aspect in ASPECTS]
    report = evaluate(xquad(language), [*baselines.fitting(xquad(language)), *aspects], progress=False)
    for row in report.rows:
        for score in row.scores.values():
            told = re.sub("«.*»", "", score.reason, flags=re.DOTALL).lower()
            assert re.search(own, told), score.reason
            assert not re.search(other, told), score.reason


# The benchmark


@pytest.mark.gate
def test_the_benchmark_prints_every_figure_with_its_counts(tmp_path, capsys, monkeypatch):
    names = {
        "wikieval/wikieval": WIKIEVAL,
        "clapnq/clapnq_dev": CLAPNQ,
        "terra_ru/terra_train": TERRA,
        "xquad_en_ru_zh/contexts": CONTEXTS,
        "xquad_en_ru_zh/questions": QUESTIONS,
    }
    for name, rows in names.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    sets = ["wikieval", "clapnq", "terra_ru", "xquad"]
    monkeypatch.setattr(sys, "argv", ["baselines.py", "--data", str(tmp_path), "--sets", *sets])
    baselines.main()
    head, _columns, *lines = capsys.readouterr().out.splitlines()
    assert "not a measure of quality" in head
    assert list(dict.fromkeys(line.split()[0] for line in lines)) == sets
    assert sum("win-tie-loss" in line for line in lines) == 6
    assert [line for line in lines if not any(letter.isdigit() for letter in line)] == []


@pytest.mark.parametrize(
    ("better", "worse", "told"),
    [([1.0, 0.5, 0.0], [0.0, 0.5, 1.0], "win-tie-loss 1-1-1"), ([1.0, None], [0.0, 0.0], "win-tie-loss 1-0-0, 1 un")],
)
def test_a_tie_is_half_a_win_and_unscored_pairs_are_counted_separately(better, worse, told):
    figure = baselines.contest("m", better, worse)
    assert figure.told.startswith(told)
    assert sum(figure.values) == (1.5 if len(figure.values) == 3 else 1)


def test_auc_counts_pairs_in_the_right_order_and_ties_half():
    assert baselines.auc([3, 2, 2, 1], [True, True, False, False]) == 0.875
