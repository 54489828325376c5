"""Graders: cross-encoders, embeddings, labels, ids, and spans of source passages."""

import math

import pytest
from helpers.each import each
from helpers.scripted import PairScores, Vectors, scripted

from langchain_rageval import (
    Finding,
    Sample,
    SampleError,
    cross_encoder_grader,
    embedding_grader,
    hit_rate_at,
    id_grader,
    label_grader,
    llm_grader,
    map_at,
    mean_grade_at,
    mrr_at,
    ndcg_at,
    precision_at,
    recall_at,
    rerank_gain,
    span_grader,
)
from langchain_rageval.data.instrument import split_digests
from langchain_rageval.metrics.grading import Grader


def grades(grader, **fields):
    sample = Sample(question="Where?", **fields)
    return [finding.verdict for finding in grader.invoke({"sample": sample})["grades"] if finding.kind == "context"]


def scoring(scores):
    """A cross-encoder that gives each text its score."""
    return PairScores(lambda _question, text: scores[text])


# Cross-encoders


RANK = "rank among the cross-encoder's scores"
SCORES = {"a": -7.5, "b": 3.0, "c": -7.5, "d": 0.1}
LOW, HIGH, MIDDLE = (repr(1 / (1 + math.exp(-SCORES[name]))) for name in "abd")


@each(
    ("how", "expected", "reason"),
    [
        ("rank", ["1", "3", "0", "1", "2"], RANK),
        ("rank_from_0", ["0", "2", "0", "0", "1"], f"{RANK}, from 0"),
        ("sigmoid", [LOW, HIGH, "0", LOW, MIDDLE], "sigmoid of the cross-encoder's score"),
    ],
)
def test_equal_scores_have_equal_grades_and_a_blank_chunk_gets_0_unread(how, expected, reason):
    ce = scoring(SCORES)
    grader = cross_encoder_grader(ce, how)
    findings = grader.invoke({"sample": Sample(question="Where?", contexts=["a", "b", " ", "c", "d"])})["grades"]
    assert [(finding.verdict, finding.reason) for finding in findings] == [(grade, reason) for grade in expected]
    assert grades(grader, contexts=["", "\n"]) == ["0", "0"]
    assert ce.asked == [[("Where?", text) for text in "abcd"]]


@each(("how", "expected"), [("rank_from_0", [0.76, 0.76]), ("rank", [0.77, 0.78])])
def test_ranks_from_0_give_the_ndcg_of_an_article_that_uses_ranks_as_relevance(how, expected):
    """The cross-encoder ranks document 3 first and document 1 second."""
    sample, values = Sample(question="?", contexts=list("abcde")), []
    for scores in ([3.0, -1.0, 9.0, 2.0, 0.0], [3.0, 0.0, 9.0, -1.0, 2.0]):
        grader = cross_encoder_grader(scoring(dict(zip("abcde", scores, strict=True))), how)
        values.append(round(ndcg_at(5, grader).invoke(sample).value, 2))
    assert values == expected


# Embeddings


def test_a_grade_is_the_cosine_with_the_question_and_none_is_negative():
    vectors = Vectors({"Where?": [1.0, 0.0], "a": [3.0, 4.0], "b": [-1.0, 0.0], "c": [2.0, 0.0]})
    found = grades(embedding_grader(vectors), contexts=["a", "b", " ", "c"])
    assert [float(grade) for grade in found] == [pytest.approx(0.6), 0.0, 0.0, 1.0]
    assert sorted(text for batch in vectors.asked for text in batch) == ["Where?", "a", "b", "c"]


# Labels and ids

LABELLED = {"context_ids": ["x", "y", "z"], "relevance": {"z": 3, "x": -1, "elsewhere": 0.5}}
REPEATED = {"context_ids": ["a", "b", "a"], "relevance": {"a": 4}, "reference_context_ids": ["a"]}


@each(
    ("grader", "fields", "found", "judged"),
    [
        (label_grader(), LABELLED, ["-1", "0", "3"], [3, -1, 0.5]),
        (label_grader(), REPEATED, ["4", "0", "0"], [4]),
        (id_grader(), {**LABELLED, "reference_context_ids": ["z", "far", "far"]}, ["0", "0", "1"], [1, 1]),
        (id_grader(), REPEATED, ["1", "0", "0"], [1]),
    ],
)
def test_known_grades_are_of_what_was_retrieved_once_and_of_what_was_not(grader, fields, found, judged):
    assert grades(grader, **fields) == found
    assert grader.judged_grades(Sample(question="q", **fields)) == judged


def test_findings_hold_the_texts_or_where_there_are_none_the_ids():
    for contexts, texts in ((["A", "B", "C"], ["A", "B", "C"]), (None, ["x", "y", "z"])):
        sample = Sample(question="q", contexts=contexts, **LABELLED)
        findings = label_grader().invoke({"sample": sample})["grades"]
        assert [(f.number, f.text) for f in findings] == list(enumerate(texts, 1))
        assert {f.reason for f in findings} == {"label"}


@pytest.mark.parametrize("grader", [label_grader(), id_grader()], ids=["labels", "ids"])
def test_ids_that_do_not_match_the_contexts_are_refused(grader):
    with pytest.raises(SampleError, match="has 1 contexts and 3 context_ids: give each context its id"):
        grades(grader, contexts=["one"], reference_context_ids=["x"], **LABELLED)
    with pytest.raises(SampleError, match="has 0 contexts and 3 context_ids"):
        grades(grader, contexts=[], reference_context_ids=["x"], **LABELLED)


# What grades mean


class Lengths(Grader):
    """A grader of one's own: half the length of a chunk."""

    lowest: float = 1.0
    threshold: float = 1.5

    @property
    def instrument(self):
        return {"step": "lengths"}

    def grade(self, sample):
        chunks = enumerate(sample.contexts, 1)
        return [Finding(kind="context", number=n, text=text, verdict=str(len(text) / 2)) for n, text in chunks]
        yield


async def test_a_grader_of_ones_own_serves_every_metric():
    sample = Sample(question="q", contexts=["ab", "abcd"])
    assert ndcg_at(5, Lengths(), gain="linear").invoke(sample).value == pytest.approx(1 / math.log2(3))
    assert (await mrr_at(5, Lengths()).ainvoke(sample)).value == 0.5
    assert mean_grade_at(5, Lengths()).invoke(sample).value == 1.5

    counted = [
        split_digests(mrr_at(5, Lengths(name="a", **given)).instrument)[1]
        for given in ({}, {"threshold": 1.0}, {"lowest": 0.0}, {"meaning": "x"})
    ]
    assert len(set(counted)) == 4  # how grades count is in the instrument, beside how they are found

    class Renamed(Lengths):
        """Has the instrument of its parent."""

    class WithoutInstrument(type(label_grader())):
        """Has the instrument of the package."""

    for grader in (Renamed(name="renamed"), Lengths(name="lengths")):
        assert {"step", "class"} <= grader.description.keys()
        assert "stage" not in grader.description  # all that the object holds
    assert "stage" in WithoutInstrument(name="labels").description


def test_a_judge_gives_whole_grades_of_its_scale():
    given = ("0", "1", "3", "5", "6", "-1", "2.5")
    findings = [Finding(kind="context", number=1, text="", verdict=verdict) for verdict in given]
    for scale, possible in (((1, 5), ["1", "3", "5"]), ((-5, -1), ["-1"])):
        could_have_made = llm_grader(scripted(), scale).could_have_made
        assert [finding.verdict for finding in findings if could_have_made(finding)] == possible


FIRST = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе до марта."
SECOND = "Взнос платят раз в год, не позднее первого июня, через кассу или по реквизитам на сайте."
OTHER = "Погода в Африке бывает жаркой, а слоны живут большими семьями у реки и у озёр."


def sample(chunks, passages=(FIRST, SECOND), **metadata):
    return Sample(question="Когда?", contexts=chunks, reference_contexts=list(passages), metadata=metadata)


def grades_of_span_grader(given):
    return [finding.verdict for finding in span_grader().invoke({"sample": given})["grades"]]


def test_a_chunk_is_relevant_if_it_lies_in_a_passage_or_holds_it():
    assert grades_of_span_grader(sample([OTHER, FIRST[5:60], f"{OTHER} {SECOND} {OTHER}"])) == ["0", "1", "1"]


def sheet(number):
    return f"Тариф «Дом-{number}» стоит {450 + number} рублей в месяц, подключение занимает {number} рабочих дней."


SECOND_PLACE = 1 / math.log2(3)
PARTS = [FIRST[:50], OTHER, FIRST[50:]]  # two of them are of one passage


@each(
    ("chunks", "passages", "expected"),
    [
        (PARTS, [FIRST, SECOND], {recall_at: 0.5, precision_at: 2 / 3, hit_rate_at: 1.0, mrr_at: 1.0, map_at: 0.5}),
        ([FIRST[:50], OTHER, SECOND], [FIRST, SECOND], {recall_at: 1.0, map_at: (1 + 2 / 3) / 2}),
        ([OTHER, f"{FIRST} {SECOND}"], [FIRST, SECOND], {recall_at: 1.0, ndcg_at: SECOND_PLACE}),
        ([FIRST], [FIRST, SECOND], {ndcg_at: 1 / (1 + SECOND_PLACE)}),
        ([], [FIRST, SECOND], {recall_at: 0.0, ndcg_at: 0.0}),
        ([FIRST], [], {recall_at: None, ndcg_at: None}),
        # the sheet of another product in the same words is not relevant
        ([sheet(2), sheet(3), sheet(1)[:70]], [sheet(1)], {recall_at: 1.0, precision_at: 1 / 3, mrr_at: 1 / 3}),
    ],
)
def test_a_passage_counts_once_in_recall_and_in_the_ideal_order_retrieved_or_not(chunks, passages, expected):
    given = sample(chunks, passages)
    assert {build: build(3, span_grader()).invoke(given).value for build in expected} == pytest.approx(expected)


def test_offsets_find_a_chunk_whose_text_was_rewritten():
    places = {"spans": [["a.md", 100, 200], ["b.md", 0, 100]], "context_spans": [["a.md", 120, 160], ["b.md", 60, 260]]}
    assert grades_of_span_grader(sample(["rewritten text one", "rewritten text two"], **places)) == ["1", "0.4"]
    assert grades_of_span_grader(sample(["rewritten text one", "rewritten text two"])) == ["0", "0"]


@each("spans", ["a.md", [["a.md"], None], [["a.md", "1", 2], ["a.md", 1, 1]], [["a.md", 0, 9]]])
def test_spans_that_are_none_leave_the_texts_to_decide(spans):
    assert grades_of_span_grader(sample([FIRST, OTHER], spans=spans, context_spans=spans)) == ["1", "0"]


def test_a_threshold_decides_which_part_of_a_passage_is_enough():
    letters = "".join(chr(0x4E00 + number) for number in range(200))
    given = sample([letters[60:160]], passages=[letters[:100]])
    assert grades_of_span_grader(given) == ["0.4"]
    assert recall_at(1, span_grader()).invoke(given).value == 0.0
    for threshold, found in ((0.3, 1.0), (0.4, 1.0), (0.41, 0.0)):
        assert recall_at(1, span_grader(), threshold=threshold).invoke(given).value == found
    order = span_grader().invoke({"sample": given})["grades"]
    assert span_grader().known_grades(given, order, 0.4) == ([0.4], [0.4])
    assert span_grader().known_grades(given, order, 0.5) == ([0.4], [1.0, 0.4])  # the passage that nothing holds is 1
    assert span_grader().judged_grades(given) == [1.0]


@each("parts", [(slice(60, 160), slice(40, 140)), (slice(40, 140), slice(60, 160))])
def test_a_passage_in_two_chunks_has_the_better_grade_and_the_later_chunk_none(parts):
    letters = "".join(chr(0x4E00 + number) for number in range(200))
    given = sample([letters[part] for part in parts], passages=[letters[:100]])
    order = span_grader().invoke({"sample": given})["grades"]
    assert span_grader().known_grades(given, order, 0.4) == ([float(order[0].verdict), 0.0], [0.6])


def test_the_overlap_of_two_places_is_their_common_share_of_the_shorter():
    spans = [["a", start, start + length] for start in range(4) for length in (1, 2, 5, 9)] + [["b", 0, 9]]
    sets = [{(source, at) for at in range(start, end)} for source, start, end in spans]
    for passage, place in zip(sets, spans, strict=True):
        given = sample(["quite"] * len(spans), passages=["other"], spans=[place], context_spans=spans)
        shares = [len(chunk & passage) / min(len(chunk), len(passage)) for chunk in sets]
        assert [float(grade) for grade in grades_of_span_grader(given)] == shares


def test_a_reranker_gains_by_putting_the_passage_first():
    prefer = PairScores(lambda _question, text: float(text == SECOND))
    scores = rerank_gain(span_grader(), prefer, k=2).invoke(sample([OTHER, SECOND], passages=[SECOND]))
    found = {name: score.value for name, score in scores.items()}
    assert found == pytest.approx({"retriever": SECOND_PLACE, "reranker": 1.0, "gain": 1 - SECOND_PLACE})


def test_from_a_threshold_of_a_thousandth_on_it_says_who_holds_a_passage():
    spans = {"spans": [["a.md", 0, 1000]], "context_spans": [["a.md", 999, 3000], ["a.md", 0, 1000]]}
    given = sample([OTHER, FIRST], passages=[SECOND], **spans)
    order = span_grader().invoke({"sample": given})["grades"]
    assert [finding.verdict for finding in order] == ["0.001", "1"]
    assert span_grader().known_grades(given, order, 0.001)[0] == [0.001, 0.0]
    assert span_grader().known_grades(given, order, 0.0)[0] == [0.001, 1.0]
