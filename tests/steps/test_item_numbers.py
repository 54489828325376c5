"""Judges that number the items of a request from 0: each verdict would be that of the item before."""

from helpers.each import each
from helpers.scripted import absent, classification, grades, relevance, scripted, statements, supported, verdicts

from langchain_rageval import answer_correctness, context_precision, faithfulness, llm_grader, ndcg_at

SAMPLE = {
    "question": "Где что стоит?",
    "answer": "Мюнхен стоит на Изаре. Париж стоит на Сене. Рим стоит на Тибре.",
    "contexts": ["Слон.", "Париж стоит на Сене.", "Рим стоит на Тибре."],
    "references": ["Мюнхен стоит на Изаре. Рим стоит на Тибре."],
}
TEXTS = ("Мюнхен стоит на Изаре.", "Париж стоит на Сене.", "Рим стоит на Тибре.")
SAID = (statements(*TEXTS), statements(TEXTS[0], TEXTS[2]))


def precision(judge):
    return context_precision(judge, against="question")


def correctness(judge):
    return answer_correctness(judge, weights=(1, 0))


CASES = {
    "verify_statements": (
        faithfulness,
        [statements(*TEXTS)],
        verdicts(absent(0), supported(1, "2.1"), supported(2, "3.1")),
        verdicts(absent(1), supported(2, "2.1"), supported(3, "3.1")),
    ),
    "classify_statements": (
        correctness,
        SAID,
        classification(tp={0: [0], 2: [1]}, fp=[1]),
        classification(tp={1: [1], 3: [2]}, fp=[2]),
    ),
    "grade_contexts": (precision, [], grades({0: False, 1: True, 2: True}), grades({1: False, 2: True, 3: True})),
    "grade_relevance": (
        lambda judge: ndcg_at(3, llm_grader(judge)),
        [],
        relevance({0: 0, 1: 3, 2: 1}),
        relevance({1: 0, 2: 3, 3: 1}),
    ),
}


@each(("build", "before", "from_zero", "from_one"), CASES.values(), ids=CASES)
def test_a_reply_that_numbers_from_0_is_asked_for_again_as_a_whole(build, before, from_zero, from_one):
    judge = scripted(*before, from_zero, from_one)
    score = build(judge).invoke(SAMPLE)
    assert score.value == build(scripted(*before, from_one)).invoke(SAMPLE).value
    assert judge.inputs[-1] == judge.inputs[-2]
    assert "there is no item 0: use the numbers of the input, which count from 1" in judge.asked[-1][-1].text
