"""Extension of a test set by rows that it does not have yet."""

import asyncio

import pytest
from helpers.each import each, error_of
from helpers.writers import Ring, Writer, documents, generator

from langchain_rageval import ConfigError
from langchain_rageval.testset import Testset


@pytest.mark.parametrize("door", ["extend", "aextend"])
def test_new_rows_come_from_unused_passages(door):
    writer = Writer()
    given = generator(writer)
    testset = given.generate(documents(12), size=5, seed=2)
    longer = given.extend(testset, 7) if door == "extend" else asyncio.run(given.aextend(testset, 7))
    assert longer.rows[:5] == testset.rows
    assert len({row.contexts[0] for row in longer}) == len(longer) == 12
    kept, added = [row.id for row in testset], [row.id for row in longer.rows[5:]]
    assert longer.changes == {"kept": kept, "added": added, "updated": [], "dropped": []}
    assert (longer.number, longer.complete, writer.total) == (2, True, 12 * 7)


def test_new_trees_follow_those_that_are_there():
    given = generator(Writer(), distribution={"simple": 1, "reasoning": 1}, tree=True)
    testset = given.generate(documents(12), size=4)
    longer = given.extend(testset, 4)
    assert longer.rows[:4] == testset.rows
    assert [row.evolution for row in longer] == ["simple", "reasoning"] * 4
    assert len({row.tree_id for row in longer}) == 4


def test_near_duplicates_of_present_questions_are_found_by_embeddings():
    testset = generator(Writer()).generate(documents(9), size=1)
    same = generator(Writer(), embeddings=Ring(same=lambda _: "all texts are one"))
    assert same.extend(testset, 1, documents=documents(9)).yields["rejected"] == {"near-duplicate": 8}


def test_a_loaded_test_set_needs_the_documents(tmp_path):
    given = generator(Writer())
    testset = given.generate(documents(9), size=2)
    testset.to_jsonl(tmp_path / "t.jsonl")
    loaded = Testset.load(tmp_path / "t.jsonl")
    assert str(error_of(ConfigError, given.extend, loaded, 2)) == (
        "extend needs the documents, which a test set from a file does not know: "
        "generator.extend(testset, size, documents=documents)"
    )
    assert given.extend(loaded, 2, documents=documents(9)).rows == given.extend(testset, 2).rows


@each("given", [None, [1], "t.jsonl"])
def test_only_a_test_set_is_extended_or_refreshed(given):
    own = generator(Writer())
    errors = [error_of(ConfigError, call, given, documents=documents(2)) for call in (own.extend, own.refresh)]
    assert list(map(str, errors)) == [f"testset must be a Testset, got {type(given).__name__}"] * 2
