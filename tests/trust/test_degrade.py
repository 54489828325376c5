"""Worse variants of a sample, in the ways of WikiEval."""

import pytest
from helpers.scripted import scripted
from helpers.writers import Writer
from langchain_core.documents import Document

from langchain_rageval import (
    ConfigError,
    Docstore,
    JudgeOutputError,
    OfflineJudge,
    Sample,
    SampleError,
    degrade,
    evaluate,
    faithfulness,
)
from langchain_rageval.steps import DegradedAnswer, PaddedContext
from langchain_rageval.testing.hostile_judges import KEY, HostileJudge

SAMPLE = Sample(
    id="q",
    question="Когда основан Мюнхен?",
    answer="Мюнхен основан в 1158 году Генрихом Львом.",
    contexts=["Мюнхен основан в 1158 году.", "Его основал Генрих Лев."],
)
FOREIGN = "Печь чистят раз в год."
RELATED = ["Берлин стоит на Шпрее. Он велик.", Document("Гамбург — порт. Там дождливо. Мюнхен основан в 1158 году.")]


def writer():
    return Writer(
        DegradedAnswer=lambda inputs, _: {"answer": "Мюнхен основан." if "answer" in inputs else "Давно."},
        PaddedContext=lambda *_: {"sentences": ["Погода хороша.", "Рынок открыт."]},
    ).model


async def test_each_variant_is_worse_in_one_way():
    for made in (degrade(writer()).invoke(SAMPLE), await degrade(writer()).ainvoke(SAMPLE)):
        assert {name: sample.id for name, sample in made.items()} == {
            "ungrounded": "q@ungrounded",
            "incomplete": "q@incomplete",
            "padded": "q@padded",
        }
        assert made["ungrounded"].answer == "Давно."
        assert made["incomplete"].answer == "Мюнхен основан."
        assert made["ungrounded"].contexts == made["incomplete"].contexts == SAMPLE.contexts
        assert made["padded"].answer == SAMPLE.answer
        assert made["padded"].contexts == [
            "Мюнхен основан в 1158 году. Погода хороша.",
            "Его основал Генрих Лев. Рынок открыт.",
        ]


def test_the_answer_from_memory_sees_no_context():
    judge = writer()
    degrade(judge).invoke(SAMPLE)
    assert {"question": SAMPLE.question} in judge.inputs


def test_needless_sentences_come_from_related_documents_without_a_call():
    judge = writer()
    padded = degrade(judge, RELATED).invoke(SAMPLE)["padded"].contexts
    assert len(judge.asked) == 2
    added = [text.removeprefix(own).strip() for text, own in zip(padded, SAMPLE.contexts, strict=True)]
    assert all(sentence and sentence != SAMPLE.contexts[0] for sentence in added)
    assert padded == degrade(writer(), RELATED).invoke(SAMPLE)["padded"].contexts


def test_a_writer_that_adds_nothing_is_asked_again():
    judge = scripted(
        DegradedAnswer(answer="Давно."), DegradedAnswer(answer="Да."), *[PaddedContext(sentences=[" "])] * 3
    )
    with pytest.raises(JudgeOutputError, match="there is no sentence"):
        degrade(judge).invoke(SAMPLE)


async def test_an_error_of_the_writer_names_the_step_and_shows_no_key():
    runnable = degrade(HostileJudge(judge=OfflineJudge(), behaviour="401 that repeats the API key"))
    for result in (
        runnable.batch([SAMPLE], return_exceptions=True),
        await runnable.abatch([SAMPLE], None, return_exceptions=True),
    ):
        assert result[0].rageval_step == "degrade"
        assert KEY not in repr(result[0])


@pytest.mark.parametrize("lacking", ["answer", "contexts"])
def test_a_sample_without_answer_or_contexts_is_refused_before_a_call(lacking):
    judge = scripted()
    with pytest.raises(SampleError, match=lacking):
        degrade(judge).invoke(SAMPLE.model_copy(update={lacking: None}))
    assert judge.asked == []


def test_related_documents_are_texts():
    with pytest.raises(ConfigError, match=r"expected Documents, texts, .* got int"):
        degrade(scripted(), [5])


@pytest.mark.parametrize("related", [FOREIGN, [FOREIGN], Document(FOREIGN), Docstore([FOREIGN]).passages])
def test_related_documents_come_in_every_form_in_which_users_have_them(related):
    padded = degrade(writer(), related).invoke(SAMPLE)["padded"].contexts
    assert padded == [f"{SAMPLE.contexts[0]} {FOREIGN}", SAMPLE.contexts[1]]


def test_the_offline_writer_makes_what_the_offline_judge_scores_lower():
    made = degrade(OfflineJudge()).invoke(SAMPLE)
    report = evaluate([SAMPLE, *made.values()], faithfulness(OfflineJudge()), progress=False)
    values = {row.sample.id: row.scores["faithfulness"].value for row in report.rows}
    assert values["q"] == 1.0
    assert values["q@ungrounded"] is None or values["q@ungrounded"] < 1
