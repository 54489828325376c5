import asyncio

from helpers.scripted import answering, entities, scripted

from langchain_rageval import Judge, Sample
from langchain_rageval.steps.entities import extract_entities

SAMPLE = Sample(question="Кто основал Мюнхен?", answer="Никто.", references=["Генрих Лев.", " ", "Лев, 1158 год."])


def found(judge, sample=SAMPLE):
    return extract_entities(judge).invoke({"sample": sample})["reference_entities"]


def test_each_reference_that_is_not_blank_is_read_alone():
    judge = scripted(entities("Генрих Лев"), entities("Лев", "1158 год"))
    assert found(judge) == ["Генрих Лев", "Лев", "1158 год"]
    assert judge.inputs == [{"text": "Генрих Лев."}, {"text": "Лев, 1158 год."}]


def test_the_prompt_is_in_the_language_of_the_question():
    judge = scripted(entities(), entities())
    found(judge)
    assert "Перечисли" in judge.asked[0][1].text


def test_spellings_of_one_entity_count_once_and_the_first_stays():
    judge = scripted(entities("Семён Лев", " ", "СЕМЕН  ЛЕВ"), entities("семен лев ", "Изар"))
    assert found(judge) == ["Семён Лев", "Изар"]


def test_equal_references_are_read_once_and_blank_ones_not_at_all():
    judge = scripted(entities("a"))
    assert found(judge, SAMPLE.model_copy(update={"references": ["r", "r", ""]})) == ["a"]
    assert found(scripted(), SAMPLE.model_copy(update={"references": ["", "\n"]})) == []


def test_draws_ask_nothing_more():
    judge = scripted(entities("a"), entities("b"))
    assert found(Judge(judge, draws=3)) == ["a", "b"]


def test_sync_and_async_find_the_same():
    step = extract_entities(answering(lambda _: entities("a")))
    assert asyncio.run(step.ainvoke({"sample": SAMPLE})) == step.invoke({"sample": SAMPLE})


def test_a_judge_that_repeats_itself_gives_no_more_entities_than_the_texts_can_hold():
    sample = SAMPLE.model_copy(update={"references": ["Генрих Лев.", "Лев основал Мюнхен в 1158 году."]})
    judge = scripted(entities(*map(str, range(1_000))), entities("Лев", *["лев"] * 1_000, "1158 год"))
    state = extract_entities(judge).invoke({"sample": sample})
    assert state["reference_entities"] == [*map(str, range(10)), "Лев", "1158 год"]
    assert state["dropped_entities"] == 990
