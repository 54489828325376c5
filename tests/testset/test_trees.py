"""Trees: one fact asked with every evolution."""

import asyncio
from collections import Counter

import pytest
from helpers import writers
from helpers.each import each
from helpers.writers import TOPICS, Killed, Ring, Writer, documents, dying, rejecting

from langchain_rageval import Budget, load_samples
from langchain_rageval.testset import Testset, evolution

TREE = {"simple": 1, "reasoning": 1, "multi_context": 1}


def generator(writer, distribution=TREE, **options):
    return writers.generator(writer, distribution, **{"tree": True, **options})


def trees(testset):
    found = {}
    for row in testset:
        found.setdefault(row.tree_id, []).append(row)
    return list(found.values())


@pytest.mark.parametrize(("size", "sizes"), [(9, [3, 3, 3]), (7, [3, 3, 1]), (2, [2])])
def test_size_counts_rows_and_each_tree_has_every_evolution_once(size, sizes):
    writer = Writer()
    testset = generator(writer).generate(documents(20), size=size)
    assert [len(tree) for tree in trees(testset)] == sizes
    for tree in trees(testset):
        assert [row.evolution for row in tree] == list(TREE)[: len(tree)]
        assert len({row.passage_ids[0] for row in tree}) == 1
        (question,) = {next(trial.question for trial in row.history if trial.kind == "seed") for row in tree}
        assert tree[0].question == question
    assert writer.total == 7 * len(sizes) + 7 * (size - len(sizes))


def test_shares_do_not_matter_and_the_sample_names_the_tree():
    testset = generator(Writer(), {"reasoning": 9, "simple": 1}).generate(documents(20), size=4)
    assert [row.evolution for row in testset] == ["simple", "reasoning"] * 2
    assert [sample.metadata["tree_id"] for sample in testset.to_samples()] == [row.tree_id for row in testset]


def test_a_row_that_cannot_be_evolved_moves_to_a_new_tree():
    texts = [f"номер {n} – о полисе и взносах." for n in range(6)]
    barren = generator(Writer()).generate(texts, size=2)[0].question
    no = {"reason": "", "deeper": False, "broader": False}
    writer = Writer(QuestionComparison=lambda inputs, _: no if barren in inputs["parent"] else None)
    testset = generator(writer).generate(texts, size=9)
    evolutions = [[row.evolution for row in tree] for tree in trees(testset)]
    assert evolutions == [["simple"], ["simple", "reasoning"], [*TREE], [*TREE]]
    assert testset[0].question == barren
    assert Counter(candidate.tree_id for candidate in testset.rejected) == {testset[0].tree_id: 2}


def test_variants_of_one_question_are_no_duplicates_of_each_other_unless_equal():
    polite = evolution("polite", "Спроси вежливо.", asks_more=False)
    same = Ring(same=lambda text: text if text[-1] != "?" else "all questions are one")
    testset = generator(Writer(), {"simple": 1, polite: 1}, embeddings=same).generate(documents(1), size=2)
    assert [row.evolution for row in testset] == ["simple", "polite"]


def test_a_corpus_without_near_passages_gives_trees_of_the_other_evolutions():
    testset = generator(Writer(), embeddings=Ring(near=0.0)).generate(documents(4), size=4)
    assert [row.evolution for row in testset] == ["simple", "reasoning"] * 2
    assert testset.yields == {"attempts": 4, "rejected": {"no passage is near enough": 1}}


def test_the_rows_of_a_tree_stand_together_although_some_were_moved():
    testset = generator(rejecting(evolution=0.6)).generate(documents(60), size=20, seed=2)
    ids = [row.tree_id for row in testset]
    assert testset.rejected
    assert ids == [row.tree_id for tree in trees(testset) for row in tree]


async def test_trees_do_not_depend_on_the_order_of_completion_and_resume(tmp_path):
    def writer():
        return rejecting(question=0.3, evolution=0.3, needed=0.3)

    docs = documents(60)
    made = [generator(writer(), max_concurrency=n).generate(docs, size=15, seed=2) for n in (1, 16)]
    assert made[0] == made[1] == await generator(writer()).agenerate(docs, size=15, seed=2)
    assert made[0].rejected

    killed = generator(dying(writer(), 60), journal=tmp_path / "run.db", max_concurrency=1)
    with pytest.raises(Killed):
        await asyncio.to_thread(killed.generate, docs, size=15, seed=2)
    resumed = generator(dying(writer(), 10_000), journal=tmp_path / "run.db").generate(docs, size=15, seed=2)
    assert resumed == made[0]
    poor = generator(dying(writer(), 0), journal=tmp_path / "run.db", budget=Budget(calls=1))
    assert poor.generate(docs, size=15, seed=2).rows == resumed.rows  # what is in the journal needs no budget


@pytest.mark.parametrize("tree", [True, False])
def test_the_file_read_as_samples_gives_the_samples_of_the_test_set(tree, tmp_path):
    testset = generator(Writer(), {**TREE, "follow_up": 1}, tree=tree).generate(documents(20), size=4)
    testset.to_jsonl(tmp_path / "t.jsonl")
    assert Testset.load(tmp_path / "t.jsonl").rows == testset.rows
    samples = list(load_samples(tmp_path / "t.jsonl"))
    assert samples == testset.to_samples()
    assert [sample.history for sample in samples] == [row.chat_history for row in testset]
    assert [len(sample.history) > 0 for sample in samples] == [row.evolution == "follow_up" for row in testset]


@each(
    ("distribution", "evolutions"),
    [
        ({"simple": 1, "numbers": 1}, ["simple"] * 4),
        ({"simple": 1, "numbers": 1, "follow_up": 1}, ["simple", "follow_up"] * 2),
    ],
)
def test_an_evolution_that_no_passage_suits_is_left_out_of_the_trees_with_a_note(distribution, evolutions):
    texts = [f"{topic.title()} описано здесь подробно." for topic in TOPICS]
    testset = generator(Writer(), distribution).generate(texts, size=4)
    assert [row.evolution for row in testset] == evolutions
    assert testset.notes == ["Left out where no passage suits: numbers (no numbers in the passage)."]
    assert testset.yields == {"attempts": 4, "rejected": {"no numbers in the passage": 1}}


def test_a_follow_up_has_the_turns_before_it_and_understood_alone_it_is_the_question_of_its_tree():
    testset = generator(Writer(), {"simple": 1, "follow_up": 1, "misspelt": 1}).generate(documents(20), size=6)
    for simple, follow_up, misspelt in trees(testset):
        assert (simple.evolution, follow_up.evolution, misspelt.evolution) == ("simple", "follow_up", "misspelt")
        assert follow_up.standalone_question == simple.question
        assert (bool(simple.chat_history), bool(follow_up.chat_history)) == (False, True)
