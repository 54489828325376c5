"""Real texts end to end, offline: excerpts of WikiEval, CLAPNQ, TERRa and XQuAD with all metrics that fit.

The offline judge counts words, so only what any sane judge must find is held here.
"""

import gzip
import json
import re
from pathlib import Path

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval import (
    HashingEmbeddings,
    OfflineJudge,
    PromptSet,
    answer_correctness,
    answer_relevance,
    answer_similarity,
    aspect_critique,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
)
from langchain_rageval.metrics import ASPECTS

HERE = Path(__file__).parent
LANGUAGES = ("en", "ru", "zh")
UNSCORED = {
    "the answer states no facts",
    "the reference states no facts",
    "the answer states no facts, nor does the reference",
}


def rows_of(folder, name):
    lines = gzip.decompress((HERE / "fixtures" / folder / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


def sample(name, question, answer, contexts, references, **more):
    return {"id": name, "question": question, "answer": answer, "contexts": contexts, "references": references} | more


WIKIEVAL, CLAPNQ, TERRA = (
    rows_of(*names) for names in (("wikieval", "wikieval"), ("clapnq", "clapnq_dev"), ("terra_ru", "terra_train"))
)
CONTEXTS, QUESTIONS = rows_of("xquad", "contexts"), rows_of("xquad", "questions")
CONTRASTS = {
    name: [sample(row["id"], row["question"], row[name], [row["context_v1"]], [row["answer"]]) for row in WIKIEVAL]
    for name in ("answer", "ungrounded_answer", "poor_answer")
}


def clapnq(answerable, answer=lambda row: "The retrieved passages do not say."):
    """Return a sample for each question that is answerable or not, by default with a refusal as its answer."""
    return [
        sample(row["id"], row["question"], answer(row), [row["passage"]], [one["answer"] for one in row["answers"]])
        for row in CLAPNQ
        if row["answerable"] is answerable
    ]


def xquad(language):
    """Return a sample for each question with its own paragraph, the next one and one of another article, in turn."""
    ids = [context["id"] for context in CONTEXTS]
    texts = {context["id"]: context["context"][language] for context in CONTEXTS}
    article = {context["id"]: context["article"] for context in CONTEXTS}
    samples = []
    for turn, question in enumerate(QUESTIONS):
        own = question["context_id"]
        after = [*ids[ids.index(own) + 1 :], *ids[: ids.index(own)]]
        chunks = {"own": own, "sibling": next(one for one in after if article[one] == article[own])}
        chunks["stranger"] = next(one for one in after if article[one] != article[own])
        order = [*chunks][turn % 3 :] + [*chunks][: turn % 3]
        asked, answer = question["question"][language], question["answer"][language]
        reference = f"{asked.rstrip('?？ ')}: {answer}"
        contexts = [texts[chunks[kind]] for kind in order]
        samples.append(sample(question["id"], asked, answer, contexts, [reference], metadata={"order": order}))
    return samples


SETS = {
    **{f"wikieval {name}": samples for name, samples in CONTRASTS.items()},
    "clapnq": clapnq(True, lambda row: row["answers"][0]["answer"]),
    "clapnq unanswerable": clapnq(False),
    "terra": [
        sample(row["id"], "Что из этого следует?", row["hypothesis"], [row["premise"]], [row["hypothesis"]])
        for row in TERRA
    ],
    **{f"xquad {language}": xquad(language) for language in LANGUAGES},
}


def fitting(samples):
    """Return the eight metrics, or those of them whose fields every sample has."""
    judge, embeddings = OfflineJudge(), HashingEmbeddings()
    metrics = [
        faithfulness(judge),
        answer_relevance(judge, embeddings),
        context_precision(judge, weighting="plain"),
        context_recall(judge),
        context_relevance(judge),
        answer_similarity(embeddings),
        answer_correctness(judge, embeddings),
        aspect_critique(judge, "correctness"),
    ]
    there = set.intersection(*({name for name, value in sample.items() if value} for sample in samples))
    return [metric for metric in metrics if metric.reads <= there]


def rows(samples, *metrics):
    """Return the scored rows of samples, by default by all metrics that fit."""
    return evaluate(samples, metrics or fitting(samples), progress=False).rows


def scores(samples, metric):
    given = [row.scores[metric.name].value for row in rows(samples, metric)]
    assert None not in given
    return given


@pytest.mark.parametrize("name", SETS)
def test_every_score_of_a_file_has_a_value_or_a_reason(name, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(s, ensure_ascii=False) + "\n" for s in SETS[name]), encoding="utf-8")
    metrics = fitting(SETS[name])
    report = evaluate(path, metrics, progress=False)
    assert len(metrics) == (5 if name == "clapnq unanswerable" else 8)
    assert len(report) == len(SETS[name])
    assert report.failures() == []
    assert any("not a measure of quality" in note for note in report.notes)
    for row in report.rows:
        assert [*row.scores] == [metric.name for metric in metrics]
        for score in row.scores.values():
            assert (score.value is None) != (score.unscored is None)
            assert score.unscored in UNSCORED if score.value is None else 0 <= score.value <= 1
            assert bool(score.reason) == (score.value is not None)


def test_answers_from_the_context_are_more_faithful_than_answers_without_one():
    metric = faithfulness(OfflineJudge())
    grounded, ungrounded = (scores(CONTRASTS[name], metric) for name in ("answer", "ungrounded_answer"))
    assert sum(grounded) > sum(ungrounded)
    pairs = [*zip(grounded, ungrounded, strict=True)]
    assert sum(better > worse for better, worse in pairs) > sum(better < worse for better, worse in pairs)


def test_the_grounded_answer_is_recalled_from_its_own_context_and_not_from_anothers():
    samples, metric = CONTRASTS["answer"], context_recall(OfflineJudge())
    moved = [s | {"contexts": o["contexts"]} for s, o in zip(samples, samples[1:] + samples[:1], strict=True)]
    assert sum(scores(samples, metric)) > sum(scores(moved, metric))


def test_a_refusal_is_evasive_and_states_no_facts():
    refused = [one | {"references": ["The passage does not say."]} for one in SETS["clapnq unanswerable"]]
    for row in rows(refused):
        assert row.scores["answer_relevance"].value == 0
        assert row.scores["answer_relevance"].reason == "The answer is blank or evasive."
        assert row.scores["faithfulness"].unscored == "the answer states no facts"
        assert row.scores["context_recall"].unscored == "the reference states no facts"
        assert row.scores["answer_correctness"].unscored == "the answer states no facts, nor does the reference"


def test_a_premise_supports_itself():
    samples = [{"question": "?", "answer": row["premise"], "contexts": [row["premise"]]} for row in TERRA]
    assert scores(samples, faithfulness(OfflineJudge())) == [1.0] * 20


def test_a_hypothesis_has_one_verdict_as_answer_or_as_reference():
    for row in rows(SETS["terra"]):
        ((answer,), (reference,)) = (row.scores[name].findings for name in ("faithfulness", "context_recall"))
        assert (answer.verdict, answer.cites) == (reference.verdict, reference.cites)
        assert bool(answer.cites) == (answer.verdict != "absent")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_own_paragraph_is_more_useful_than_anothers(language):
    metric = context_precision(OfflineJudge(), weighting="plain", against="answer", name="useful")
    kinds = {"own": [], "sibling": [], "stranger": []}
    for row in rows(xquad(language), metric):
        verdicts = [finding.verdict for finding in row.scores["useful"].findings if finding.kind == "context"]
        for kind, verdict in zip(row.sample.metadata["order"], verdicts, strict=True):
            kinds[kind].append(verdict == "useful")
    assert sum(kinds["own"]) > max(sum(kinds["sibling"]), sum(kinds["stranger"]))


class Asked(BaseCallbackHandler):
    def __init__(self):
        self.systems = []

    def on_chat_model_start(self, serialized, messages, **kwargs):
        self.systems += [given[0].text for given in messages]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_uses_its_own_prompts(language):
    asked = Asked()
    report = evaluate(xquad(language), fitting(xquad(language)), progress=False, callbacks=[asked])
    common = PromptSet.default(language).common
    assert common.language == language
    assert set(asked.systems) == {common.system}
    assert len(asked.systems) == sum(summary.calls for summary in report.summary().values())


@pytest.mark.parametrize(("language", "own", "other"), [("en", "[a-z]", "[а-яё]"), ("ru", "[а-яё]", "[a-z]")])
def test_reasons_are_in_the_language_of_the_question_except_for_quotations(language, own, other):
    aspects = [aspect_critique(OfflineJudge(), aspect, name=f"is_{aspect}") for aspect in ASPECTS]
    for row in rows(xquad(language), *fitting(xquad(language)), *aspects):
        for score in row.scores.values():
            told = re.sub("«.*»", "", score.reason, flags=re.DOTALL).lower()
            assert re.search(own, told), score.reason
            assert not re.search(other, told), score.reason
