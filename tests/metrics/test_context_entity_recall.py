import pytest
from helpers.each import each
from helpers.scripted import entities, found_in, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, Report, Sample, context_entity_recall, evaluate
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.context_metrics import found_share

SAMPLE = Sample(
    question="Who founded Munich?",
    answer="Henry.",
    contexts=["Henry the Lion founded it.", "It was in 1158."],
    references=["Henry the Lion, in 1158, on the Isar."],
)
NAMED = entities("Henry the Lion", "1158", "Isar")
RUSSIAN = {"question": "Кто основал Мюнхен?"}


def test_the_share_of_entities_that_the_contexts_name():
    judge = scripted(NAMED, found_in({1: ["1.1"], 2: ["2.1"]}))
    score = context_entity_recall(judge).invoke(SAMPLE)
    assert score.value == 2 / 3
    assert score.reason == "The contexts name 2 of 3 entities of the reference; not found: «Isar»."
    assert [(f.kind, f.text, f.verdict, f.cites) for f in score.findings] == [
        ("entity", "Henry the Lion", "found", ["1.1"]),
        ("entity", "1158", "found", ["2.1"]),
        ("entity", "Isar", "not found", []),
    ]
    assert score.usage.calls == 2


def test_the_reason_is_in_the_language_of_the_sample():
    judge = scripted(entities(*"абвгдежз"), found_in({8: ["1.1"]}))
    score = context_entity_recall(judge).invoke(SAMPLE.model_copy(update=RUSSIAN))
    told = "В контекстах названо 1 из 8 сущностей эталона; не найдено: «а», «б», «в», «г», «д» и ещё 2."
    assert score.reason == told
    whole = scripted(entities("a"), found_in({1: ["1.1"]}))
    assert context_entity_recall(whole).invoke(SAMPLE).reason == "The contexts name 1 of 1 entity of the reference."


@each("references", [["r"], ["r", "s"], ["r", " "]])
def test_references_that_name_nothing_leave_it_unscored(references):
    judge = scripted(entities(), entities(" "))
    score = context_entity_recall(judge).invoke(SAMPLE.model_copy(update={"references": references}))
    assert (score.value, score.unscored, score.findings) == (None, "the reference names no entities", [])


def test_blank_references_name_nothing_without_a_call():
    score = context_entity_recall(scripted()).invoke(SAMPLE.model_copy(update={"references": [" "]}))
    assert (score.unscored, score.usage.calls) == ("the reference names no entities", 0)


@each("contexts", [[], [""], [" "]])
def test_nothing_retrieved_is_zero_when_there_was_something_to_find(contexts):
    nothing = SAMPLE.model_copy(update={"contexts": contexts})
    score = context_entity_recall(scripted(NAMED)).invoke(nothing)
    assert (score.value, score.usage.calls, len(score.findings)) == (0.0, 1, 3)
    assert context_entity_recall(scripted(entities())).invoke(nothing).value is None


def test_several_references_count_together():
    sample = SAMPLE.model_copy(update={"references": ["Henry, 1158.", "HENRY on the Isar."]})
    judge = scripted(entities("Henry", "1158"), entities("HENRY", "Isar"), found_in({1: ["1.1"]}))
    assert context_entity_recall(judge).invoke(sample).value == 1 / 3


@given(st.lists(st.sampled_from(["found", "not found"]), min_size=1))
def test_the_value_is_the_share_of_found_ones(labels):
    findings = [Finding(kind="entity", number=n, text=str(n), verdict=label) for n, label in enumerate(labels, 1)]
    agreement = Finding(kind="agreement", number=1, text="1", verdict="1.00")
    value = found_share({"sample": SAMPLE, "entity_verdicts": [*findings, agreement]})
    assert value.number == pytest.approx(labels.count("found") / len(labels))


def test_a_report_can_score_it_anew_from_its_findings():
    judge = Judge(scripted(NAMED, *[found_in({1: ["1.1"]})] * 3), draws=3)
    report = evaluate([SAMPLE], context_entity_recall(judge), progress=False)
    again: Report = report.rescore(context_entity_recall(scripted()))
    assert again.rows[0].scores["context_entity_recall"].value == 1 / 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "The contexts name 12 of 12 entities of the reference; surplus entities of the judge dropped: 988."),
        (RUSSIAN, "В контекстах названо 12 из 12 сущностей эталона; отброшено лишних сущностей из ответа судьи: 988."),
    ],
)
def test_the_reason_says_how_many_surplus_entities_were_dropped(change, reason):
    found = found_in({number: ["1.1"] for number in range(1, 13)})
    judge = scripted(entities(*(f"entity {number}" for number in range(1_000))), found, found)
    score = context_entity_recall(judge).invoke(SAMPLE.model_copy(update=change))
    assert (score.value, score.reason, score.usage.calls) == (1.0, reason, 3)
