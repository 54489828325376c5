"""What a score says about the extraction of the statements that it counts."""

import pytest
from helpers.scripted import scripted, statements, supported, verdicts

from langchain_rageval import OfflineJudge, Sample, evaluate, faithfulness

ENGLISH = Sample(
    question="What does a parcel cost?",
    answer="A parcel of five kilos costs 4 euros. Couriers bring it within three days to every house in Leeds.",
    contexts=["A parcel costs 4 euros."],
)
RUSSIAN = Sample(
    question="Сколько стоит посылка?",
    answer="Посылка весом пять килограммов стоит 4 евро. Курьер приносит её за три дня в любой дом города.",
    contexts=["Посылка стоит 4 евро."],
)


@pytest.mark.parametrize(
    ("sample", "listed", "note"),
    [
        (
            ENGLISH,
            "A parcel of five kilos costs 4 euros.",
            "incomplete extraction: no statement mentions 8 of 14 content words and numbers of the answer",
        ),
        (
            RUSSIAN,
            "Посылка весом пять килограммов стоит 4 евро.",
            "извлечение неполно: 4 из 11 значимых слов и чисел ответа нет в утверждениях",
        ),
    ],
)
def test_a_score_says_that_its_statements_leave_out_much_of_the_answer(sample, listed, note):
    score = faithfulness(scripted(statements(listed), verdicts(supported(1)))).invoke(sample)
    assert score.value == 1.0
    assert score.reason.endswith(f"; {note}.")
    *items, extraction = score.findings
    assert [finding.kind for finding in items] == ["statement"]
    assert (extraction.kind, extraction.text, extraction.verdict) == ("extraction", "answer", "incomplete")
    assert extraction.reason == note


def test_a_score_that_is_computed_again_from_its_findings_keeps_the_note():
    judge = scripted(statements("A parcel of five kilos costs 4 euros."), verdicts(supported(1)))
    report = evaluate([ENGLISH], faithfulness(judge), progress=False)
    again = report.rescore(faithfulness(OfflineJudge()))
    assert again.rows[0].scores == report.rows[0].scores
    assert "no statement mentions 8 of 14" in again.rows[0].scores["faithfulness"].reason


def test_a_score_of_all_statements_says_nothing_of_the_extraction():
    judge = scripted(statements(*ENGLISH.answer.split(". ")), verdicts(supported(1), supported(2)))
    score = faithfulness(judge).invoke(ENGLISH)
    assert "extraction" not in score.reason
    assert {finding.kind for finding in score.findings} == {"statement"}


def test_a_short_answer_is_not_measured():
    short = ENGLISH.model_copy(update={"answer": "It costs 4 euros."})
    assert "extraction" not in faithfulness(scripted(statements("x"), verdicts(supported(1)))).invoke(short).reason
