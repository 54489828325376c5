"""Test sets of several people: merged, filtered, split, reviewed twice, and as data sets of BEIR and LangSmith."""

import json
from dataclasses import replace
from unittest.mock import create_autospec
from uuid import UUID

import pytest
from helpers.each import error_of
from helpers.writers import Writer, documents, generator
from langsmith import Client
from langsmith.schemas import Example, ExampleCreate

from langchain_rageval import ConfigError
from langchain_rageval.testset import Candidate, Passage, Testset, TestsetRow, Trial
from langchain_rageval.testset.row import row_id


def row(number, evolution="simple", **others):
    question = others.pop("question", f"Question {number}?")
    passages = [f"p{number}"]
    fields = {
        "contexts": [f"Passage {number}."],
        "reference": f"Answer {number}.",
        "spans": [("a.md", number, number + 9)],
    }
    own = others.pop("id", row_id(question, passages, []))
    return TestsetRow(id=own, question=question, evolution=evolution, passage_ids=passages, **{**fields, **others})


def set_of(*rows, **others):
    return Testset(list(rows), {"attempts": len(rows), "rejected": {}}, **others)


def test_test_sets_are_merged_with_each_id_and_each_question_once():
    one = set_of(row(1), row(2), notes=["a"])
    other = set_of(row(2), row(3), row(4, question="question  1?"), notes=["a", "b"])
    merged = one.merge(other)
    assert merged.rows == [row(1), row(2), row(3)]
    assert (merged.yields, merged.notes) == ({"attempts": 5, "rejected": {}}, ["a", "b"])
    assert (merged.complete, merged.broken_off, merged.number) == (True, False, 1)
    ended = one.merge(set_of(row(9), complete=False, broken_off=True, number=4))
    assert (ended.complete, ended.broken_off, ended.number) == (False, True, 4)
    reviewed = row(1, history=[Trial(kind="review", question="Question 1?")])
    assert one.merge(set_of(reviewed)).rows == one.rows
    errors = [error_of(ConfigError, one.merge, wrong) for wrong in ([other], set_of(row(1, reference="Another.")))]
    assert [*map(str, errors)] == [
        "merge takes test sets as separate arguments, got list",
        f"two rows have the id {row(1).id!r} and differ in reference: rename one of them",
    ]


def test_a_filter_keeps_rows_and_a_split_keeps_shares_and_trees():
    rows = [row(n, "reasoning" if n % 4 == 0 else "simple") for n in range(40)]
    trees = [
        row(n, kind, tree_id=f"t{n // 2}") for n in range(40, 60, 2) for n, kind in ((n, "simple"), (n + 1, "numbers"))
    ]
    testset = set_of(*rows, *trees)
    assert testset.filter(lambda one: one.evolution == "reasoning").counts == {"reasoning": 10}
    assert str(error_of(ConfigError, testset.filter, "x")) == (
        "filter takes a function from a row to True or False, such as lambda row: row.answerable; got str"
    )
    first, rest = testset.split(0.3, seed=1)
    assert (len(first), len(rest)) == (18, 42)
    assert sorted(r.id for r in (*first, *rest)) == sorted(r.id for r in testset)
    assert {one.tree_id for one in first if one.tree_id}.isdisjoint({one.tree_id for one in rest})
    assert all(abs(first.counts.get(name, 0) - 0.3 * count) <= 1 for name, count in testset.counts.items())
    assert set_of(*reversed(testset.rows)).split(0.3, seed=1)[0].filter(lambda _: True).counts == first.counts
    assert testset.split(0.3, seed=2)[0].rows != first.rows
    assert [len(part) for part in set_of(*map(row, range(3))).split(0.5)] == [2, 1]
    for share in (0, 1, True, "half"):
        assert str(error_of(ConfigError, testset.split, share)).startswith(
            "share must be a number between 0 and 1, got"
        )


def reviewed(testset, dropped=(), edited=(), open_rows=()):
    """Return a test set as a person saves it from the page."""
    rows, rejected = [], []
    for number, one in enumerate(testset.rows):
        change = {"reference": "Edited."} if number in edited else {}
        trial = Trial(kind="review", question=one.question, accepted=number not in dropped)
        if number in dropped:
            passages = [Passage(id=own, text="x", source="s", start=0, end=1) for own in one.passage_ids]
            fields = {"metadata": {"id": one.id}, "history": [trial], "rejected": "dropped by a reviewer"}
            rejected.append(Candidate(passages=passages, question=one.question, **fields))
        else:
            rows.append(one if number in open_rows else one.model_copy(update={**change, "history": [trial]}))
    return set_of(*rows, rejected=rejected)


def test_two_reviews_are_compared_and_joined():
    testset = set_of(*map(row, range(8)), row(8, id="own"))
    anna = reviewed(testset, dropped=[0, 1, 8], edited=[2], open_rows=[7])
    boris = reviewed(testset, dropped=[0, 3, 8])
    found = anna.agreement(boris)
    assert (found.rows, found.same, round(found.kappa, 2)) == (8, 6, 0.47)
    ids = [one.id for one in testset]
    assert found.disagreements == {
        ids[2]: ("Question 2?", "kept", "kept"),
        ids[3]: ("Question 3?", "kept", "dropped"),
        ids[1]: ("Question 1?", "dropped", "kept"),
    }
    merged = anna.merge_reviews(boris)
    assert {one.id for one in merged} == {*ids} - {ids[0], "own"}
    decided = {one.id for one in merged if any(trial.kind == "review" for trial in one.history)}
    assert {*ids[1:8]} - decided == {ids[1], ids[2], ids[3]}
    assert [candidate.question for candidate in merged.rejected] == ["Question 0?", "Question 8?"]
    assert merged.notes == ["Two reviews: 6 of 8 rows decided alike, kappa 0.47; 3 decided differently and left open."]
    with pytest.raises(ConfigError, match="no row that both reviewers decided about"):
        anna.agreement(testset)


def test_a_data_set_of_beir_holds_passages_questions_and_judgments(tmp_path):
    given = generator(Writer())
    made = given.generate(documents(9), size=3)
    testset = replace(made, rows=[*made.rows[:2], made[2].model_copy(update={"answerable": False})])
    for _ in range(2):  # the second time into a folder that exists
        testset.to_beir(tmp_path / "beir")
    corpus = [json.loads(line) for line in (tmp_path / "beir" / "corpus.jsonl").read_text("utf-8").splitlines()]
    assert sorted(line["text"] for line in corpus) == sorted(document.page_content for document in documents(9))
    assert given.plan(str(tmp_path / "beir"), 2).size == 2  # the folder is one of documents
    pairs = [line.split("\t") for line in (tmp_path / "beir" / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    assert pairs == [[one.id, own, "1"] for one in testset.rows[:2] for own in one.passage_ids]
    queries = [json.loads(line) for line in (tmp_path / "beir" / "queries.jsonl").read_text("utf-8").splitlines()]
    assert queries == [{"_id": one.id, "text": one.question, "metadata": {"evolution": "simple"}} for one in testset]
    testset.to_jsonl(tmp_path / "t.jsonl")
    Testset.load(tmp_path / "t.jsonl").to_beir(tmp_path / "loaded")  # without its documents
    corpus = [json.loads(line) for line in (tmp_path / "loaded" / "corpus.jsonl").read_text("utf-8").splitlines()]
    assert corpus == [
        {"_id": one.passage_ids[0], "title": "", "text": one.contexts[0], "metadata": {"source": one.spans[0][0]}}
        for one in testset
    ]
    with pytest.raises(ConfigError, match=r"t\.jsonl cannot be written: .*; choose another folder$"):
        testset.to_beir(tmp_path / "t.jsonl")


def test_a_data_set_of_beir_is_read_by_its_loader(tmp_path):
    testset = generator(Writer()).generate(documents(9), size=3)
    testset.to_beir(tmp_path / "beir")
    loader = pytest.importorskip("beir.datasets.data_loader")
    corpus, queries, qrels = loader.GenericDataLoader(str(tmp_path / "beir")).load(split="test")
    assert (len(corpus), queries) == (9, {one.id: one.question for one in testset})
    assert qrels == {one.id: dict.fromkeys(one.passage_ids, 1) for one in testset}


def test_a_data_set_of_langsmith_gives_the_rows_back_and_one_of_others_is_read():
    client = create_autospec(Client, instance=True)
    turns = [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Yes?"}]
    rows = [
        row(1, evidence=["Passage 1."], spans=[], tree_id="t"),
        row(2, "unanswerable", answerable=False, spans=[]),
        row(3, chat_history=turns, spans=[]),
    ]
    assert set_of(*rows).to_langsmith(client, "mine") is client.create_dataset.return_value
    described = "Test set of 3 questions: 2 simple, 1 unanswerable"
    client.create_dataset.assert_called_once_with("mine", description=described)
    made = [dict(ExampleCreate(**one)) for one in client.create_examples.call_args.kwargs["examples"]]
    outputs = "reference_outputs" if "reference_outputs" in ExampleCreate.model_fields else "outputs"
    named = [{name: one[name] for name in ("inputs", "metadata")} | {"outputs": one[outputs]} for one in made]
    new = {"id": UUID(int=1), "dataset_id": UUID(int=2)}
    client.list_examples.return_value = [Example(**new, **one) for one in named]
    assert Testset.from_langsmith(client, "mine").rows == rows
    client.list_examples.return_value = [Example(**new, inputs={"query": "Why?"}, outputs={"answer": "So."})]
    (own,) = Testset.from_langsmith(client, "theirs").rows
    assert (own.question, own.reference, own.contexts, own.evolution) == ("Why?", "So.", [], "simple")
    client.list_examples.return_value = []
    assert str(error_of(ConfigError, Testset.from_langsmith, client, "none")) == (
        "the LangSmith data set 'none' has no examples: pass the name of another data set"
    )
