"""The span grader: chunks of any splitter against the source passages of the answer."""

import pytest
from helpers.each import each
from helpers.scripted import PairScores

from langchain_rageval import (
    Sample,
    hit_rate_at,
    map_at,
    mrr_at,
    ndcg_at,
    precision_at,
    recall_at,
    rerank_gain,
    span_grader,
)

FIRST = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе до марта."
SECOND = "Взнос платят раз в год, не позднее первого июня, через кассу или по реквизитам на сайте."
OTHER = "Погода в Африке бывает жаркой, а слоны живут большими семьями у реки и у озёр."


def sample(chunks, passages=(FIRST, SECOND), **metadata):
    return Sample(question="Когда?", contexts=chunks, reference_contexts=list(passages), metadata=metadata)


def values(given, *builders, k=3):
    return [build(k, span_grader()).invoke(given).value for build in builders]


def grades(given):
    return [finding.verdict for finding in span_grader().invoke({"sample": given})["grades"]]


def test_a_chunk_is_relevant_if_it_lies_in_a_passage_or_holds_it():
    assert grades(sample([OTHER, FIRST[5:60], f"{OTHER} {SECOND} {OTHER}"])) == ["0", "1", "1"]


def test_parts_of_one_passage_count_once_in_recall_and_each_in_precision():
    chunks = sample([FIRST[:50], OTHER, FIRST[50:]])
    assert values(chunks, recall_at, precision_at, hit_rate_at, mrr_at) == [0.5, 2 / 3, 1.0, 1.0]
    assert values(chunks, map_at) == [0.5]
    both = sample([FIRST[:50], OTHER, SECOND])
    assert values(both, recall_at, map_at) == [1.0, pytest.approx((1 + 2 / 3) / 2)]


def test_a_chunk_that_holds_both_passages_finds_both():
    assert values(sample([OTHER, f"{FIRST} {SECOND}"]), recall_at, ndcg_at) == [
        1.0,
        pytest.approx(1 / 1.584962500721156),
    ]


def test_the_ideal_order_has_every_passage_that_was_not_retrieved():
    assert values(sample([FIRST]), ndcg_at) == [pytest.approx(1 / (1 + 1 / 1.584962500721156))]


def test_a_question_without_source_passages_is_unscored():
    score = recall_at(3, span_grader()).invoke(sample([FIRST], passages=[]))
    assert (score.value, score.unscored) == (None, "no chunk is known to be relevant")


def test_nothing_retrieved_scores_zero():
    assert values(sample([]), recall_at, ndcg_at) == [0.0, 0.0]


def test_offsets_find_a_chunk_whose_text_was_rewritten():
    places = {"spans": [["a.md", 100, 200], ["b.md", 0, 100]], "context_spans": [["a.md", 120, 160], ["b.md", 60, 260]]}
    assert grades(sample(["rewritten text one", "rewritten text two"], **places)) == ["1", "0.4"]
    assert grades(sample(["rewritten text one", "rewritten text two"])) == ["0", "0"]


@each("spans", ["a.md", [["a.md"], None], [["a.md", "1", 2], ["a.md", 1, 1]], [["a.md", 0, 9]]])
def test_spans_that_are_none_leave_the_texts_to_decide(spans):
    assert grades(sample([FIRST, OTHER], spans=spans, context_spans=spans)) == ["1", "0"]


def sheet(number):
    return f"Тариф «Дом-{number}» стоит {450 + number} рублей в месяц, подключение занимает {number} рабочих дней."


def test_the_sheet_of_another_product_in_the_same_words_is_not_relevant():
    given = sample([sheet(2), sheet(3), sheet(1)[:70]], passages=[sheet(1)])
    assert grades(given) == ["0", "0", "1"]
    assert values(given, recall_at, precision_at, mrr_at) == [1.0, 1 / 3, 1 / 3]


def test_a_threshold_decides_which_part_of_a_passage_is_enough():
    letters = "".join(chr(0x4E00 + number) for number in range(200))
    given = sample([letters[60:160]], passages=[letters[:100]])
    assert grades(given) == ["0.4"]
    assert recall_at(1, span_grader()).invoke(given).value == 0.0
    assert recall_at(1, span_grader(), threshold=0.3).invoke(given).value == 1.0


def test_a_reranker_gains_by_putting_the_passage_first():
    prefer = PairScores(lambda _question, text: float(text == SECOND))
    scores = rerank_gain(span_grader(), prefer, k=2).invoke(sample([OTHER, SECOND], passages=[SECOND]))
    assert {name: score.value for name, score in scores.items()} == {
        "retriever": pytest.approx(0.63092975),
        "reranker": 1.0,
        "gain": pytest.approx(0.36907025),
    }


def test_scores_are_recomputed_from_findings_with_another_cutoff():
    given = sample([OTHER, FIRST, SECOND])
    score = recall_at(3, span_grader()).invoke(given)
    assert recall_at(2, span_grader()).rescore(given, score).value == 0.5


def test_from_a_threshold_of_a_thousandth_on_it_says_who_holds_a_passage():
    spans = {"spans": [["a.md", 0, 1000]], "context_spans": [["a.md", 999, 3000], ["a.md", 0, 1000]]}
    given = sample([OTHER, FIRST], passages=[SECOND], **spans)
    order = span_grader().invoke({"sample": given})["grades"]
    assert [finding.verdict for finding in order] == ["0.001", "1"]
    assert span_grader().known_grades(given, order, 0.001)[0] == [0.001, 0.0]
    assert span_grader().known_grades(given, order, 0.0)[0] == [0.001, 1.0]
