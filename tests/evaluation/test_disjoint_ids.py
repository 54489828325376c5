"""Ids that never meet are refused, and a generated set is scored whatever the splitter of the retriever."""

import pytest
from helpers.each import each
from helpers.texts import corpus
from helpers.writers import Writer
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Sample,
    TestsetGenerator,
    evaluate,
    exact_match,
    hit_rate_at,
    id_grader,
    label_grader,
    ndcg_at,
    recall_at,
    span_grader,
)

TEXT = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе."


def sample(number, found=("d1", "d2"), relevant=("x1",), **fields):
    return Sample(question=f"Вопрос {number}?", context_ids=list(found), reference_context_ids=list(relevant), **fields)


def mean(samples, metric):
    return evaluate(samples, metric, progress=False).summary()[metric.name].mean


def problem(samples, metric=None):
    with pytest.raises(ConfigError) as caught:
        evaluate(samples, metric or recall_at(3), progress=False)
    return str(caught.value)


def test_ids_that_never_meet_in_three_samples_are_refused_before_a_call_and_noted_of_an_iterator(tmp_path):
    given, path = [sample(n) for n in range(3)], tmp_path / "samples.jsonl"
    path.write_text("\n".join(one.model_dump_json() for one in given), encoding="utf-8")
    told = (
        "recall@3 compares ids that never meet: no retrieved id, such as 'd1', is among the reference ids, such as "
        "'x1', of any of the 3 samples: give both from one index, or compare reference_contexts with span_grader(), "
        "or --grader spans"
    )
    assert problem(given) == problem(str(path)) == problem(str(path), [recall_at(3), exact_match()]) == told
    assert evaluate(iter(given), recall_at(3, id_grader()), progress=False).notes == [f"{told}."]


def test_one_sample_is_enough_if_a_retrieved_text_is_that_of_a_reference():
    given = sample(1, contexts=["Другое.", TEXT[5:]], reference_contexts=[TEXT])
    assert problem([given], hit_rate_at(2)) == (
        "hit_rate@2 compares ids that never meet: no retrieved id, such as 'd1', is among the reference ids, such as "
        "'x1', of the sample, although texts agree: compare the texts with span_grader(), or --grader spans"
    )
    assert mean([given], hit_rate_at(2, span_grader())) == 1.0


SHEETS = [f"Полис {n} стоит {n}0 рублей в год и действует в пределах области {n}." for n in range(4)]


@each(
    "given",
    [
        [sample(n, contexts=["Про погоду.", "Про слонов."], reference_contexts=[TEXT]) for n in range(10)],
        [sample(n, contexts=[SHEETS[n + 1], "Другое."], reference_contexts=[SHEETS[n]]) for n in range(3)],
        [sample(1), sample(2)],
        [sample(1), sample(2, found=["d9"], relevant=["d1"]), sample(3)],
        [sample(1, relevant=["d9"]), sample(2, found=["d9"]), sample(3)],
    ],
    ids=["texts differ", "words of the right chunks", "too few samples", "an id of another", "a reference of another"],
)
def test_a_retriever_that_finds_nothing_right_scores_zero(given):
    assert mean(given, recall_at(3)) == 0.0


@pytest.mark.parametrize("fields", [{"found": []}, {"relevant": []}])
def test_samples_without_ids_are_no_evidence(fields):
    without = [sample(n, **fields) for n in range(5)]
    evaluate(without, recall_at(3), progress=False)
    assert "of any of the 3 samples" in problem([*without, *(sample(n) for n in range(7, 10))])


def test_labels_that_never_meet_the_ids_are_refused_too():
    labelled = [Sample(question=f"{n}?", context_ids=["a"], relevance={"b": 1.0, "a": 0.0}) for n in range(3)]
    assert problem(labelled, ndcg_at(3, label_grader())).startswith(
        "ndcg@3 compares ids that never meet: no retrieved id, such as 'a', is among the reference ids, such as 'b'"
    )


def test_a_retriever_with_its_own_ids_and_splitter_is_scored_as_by_hand():
    documents = corpus("ru_wiki")
    testset = TestsetGenerator(
        Writer().model, embeddings=HashingEmbeddings(), distribution={"simple": 1}, dedupe=None, progress=False
    ).generate(documents, size=12, seed=5)
    splitter = RecursiveCharacterTextSplitter(chunk_size=300, chunk_overlap=50, add_start_index=True)
    store = InMemoryVectorStore(HashingEmbeddings())
    chunks = splitter.split_documents(documents)
    store.add_documents(chunks, ids=[f"mine-{n}" for n in range(len(chunks))])
    samples = testset.run(store.as_retriever(search_kwargs={"k": 4}), progress=False)
    assert all(name.startswith("mine-") for name in samples[0].context_ids)

    places = {chunk.page_content: chunk for chunk in chunks}
    texts = {document.metadata["source"]: document.page_content for document in documents}

    def holds(text, row):
        chunk, (source, start, end) = places[text], row.spans[0]
        begin = chunk.metadata["start_index"]
        assert texts[chunk.metadata["source"]][begin : begin + len(text)] == text
        shared = min(begin + len(text), end) - max(begin, start)
        return chunk.metadata["source"] == source and shared >= 0.5 * min(len(text), end - start)

    by_hand = [any(holds(text, row) for text in s.contexts) for s, row in zip(samples, testset, strict=True)]
    assert sum(by_hand) > 0
    assert mean(samples, recall_at(4, span_grader())) == pytest.approx(sum(by_hand) / len(by_hand))


def test_a_reranker_that_drops_every_relevant_chunk_scores_zero():
    dropped = [sample(n, relevant=[f"x{n}"], retrieved_ids=["d1", "d2", f"x{n}"]) for n in range(3)]
    assert mean(dropped, recall_at(3)) == 0.0
    assert mean(dropped, recall_at(3, of="retrieved")) == 1.0
    assert "'d7'" in problem([sample(n, retrieved_ids=["d7"]) for n in range(3)])


@each(("place", "is_compared"), [(0, True), (49, True), (50, False)])
def test_the_texts_of_the_first_fifty_samples_are_compared(place, is_compared):
    same = {"contexts": [TEXT, "Другое."], "reference_contexts": [TEXT]}
    other = {"contexts": ["Про погоду.", "Другое."], "reference_contexts": [TEXT]}
    given = [sample(n, **(same if n == place else other)) for n in range(51)]
    if is_compared:
        assert "of any of the 51 samples, although texts agree" in problem(given)
    else:
        assert mean(given, recall_at(3)) == 0.0
