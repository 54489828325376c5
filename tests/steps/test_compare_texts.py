import asyncio

import pytest

from langchain_rageval.steps.measure_similarity import compare_texts

ASKED = []


def measured(one, other):
    ASKED.append((one, other))
    return 1.0000000004


def found(measure, one, *others):
    stage = compare_texts(measure, lambda state: (one, others), source="mine 1")
    sync, later = stage.invoke({}), asyncio.run(stage.ainvoke({}))
    assert sync == later
    return sync["similarities"]


def test_both_sides_are_folded_and_nothing_is_above_one():
    ASKED.clear()
    assert found(measured, "  ЁЖ ", "Кот\nи ёж") == [1.0]
    assert set(ASKED) == {("еж", "кот и еж")}


def test_what_is_equal_is_one_whatever_the_measure_says():
    assert found(lambda *_: 0.2, "ЁЖ", "еж", "уж") == [1.0, 0.2]


@pytest.mark.parametrize("others", [[], ["a"]])
def test_there_is_a_number_for_each(others):
    assert len(found(lambda *_: 0.0, "b", *others)) == len(others)


def test_the_source_is_part_of_the_instrument():
    stages = [compare_texts(measured, lambda _: ("", []), source=source) for source in ("mine 1", "mine 2")]
    assert stages[0].instrument != stages[1].instrument
    assert list(stages[0].models) == list(stages[0].judges) == []
