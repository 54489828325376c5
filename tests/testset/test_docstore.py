"""Docstore: passages of documents with their ids, their neighbours in the text, and similar passages."""

import asyncio
import logging

import pytest
from helpers.each import each, error_of
from helpers.scripted import Vectors
from helpers.texts import corpus
from helpers.writers import Writer, generator
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_text_splitters import CharacterTextSplitter, RecursiveCharacterTextSplitter

from langchain_rageval import HashingEmbeddings
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.testset.candidate import Passage
from langchain_rageval.testset.docstore import Docstore, embed_passages

WIKI, FASTAPI = corpus("ru_wiki"), corpus("fastapi")


def pieces(*texts, **metadata):
    """Passages of one document, as they are."""
    return [Document(text, metadata={"source": "a", **metadata}) for text in texts]


def texts(passages):
    return [passage.text for passage in passages]


# Splitting


@pytest.mark.parametrize("documents", [WIKI, FASTAPI], ids=["wiki", "markdown"])
def test_real_documents_are_split_whole_into_pieces_of_at_most_about_1000_tokens(documents):
    store = Docstore(documents)
    for document in documents:
        source, text = document.metadata["source"], document.page_content
        own = [passage for passage in store.passages if passage.source == source]
        assert all(passage.text == text[passage.start : passage.end] for passage in own)
        assert "".join("".join(texts(own)).split()) == "".join(text.split())
        assert max(len(passage.text) for passage in own) <= 4000
    sources = dict.fromkeys(passage.source for passage in store.passages)
    assert [*sources] == [document.metadata["source"] for document in documents]
    assert repr(store) == f"Docstore({len(store)} passages of {len(documents)} documents)"


def test_pieces_begin_with_a_heading_where_there_is_one_and_never_within_a_sentence():
    store = Docstore(WIKI)
    begun = [p for p in store.passages if store.previous(p)]
    assert len(begun) > 5
    assert sum(passage.text.startswith("==") for passage in begun) >= len(begun) / 2
    heads = ["## А", "## Б", "## В"]
    sections = "\n".join("\n\n".join([head, *["Полис действует год. " * 50] * 3]) for head in heads)
    assert [p.text.split("\n")[0] for p in Docstore(sections).passages] == heads
    letters = " ".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    assert [(p.start, p.end) for p in Docstore(letters).passages] == [(0, 3999), (4000, 5999)]
    sentences = "Полис действует год. " * 1000
    assert all(p.text.startswith("Полис") and p.text.endswith(".") for p in Docstore(sentences).passages)


LINES = st.lists(
    st.sampled_from(["# Баня", "", "Полис действует год.", "да", "x" * 700, "保险。" * 90, "\u2028", "a b"]),
    max_size=60,
)


@given(st.one_of(st.text(max_size=300), LINES.map("\n".join), LINES.map("".join)), st.integers(1, 4))
@example("слово" * 3000, 1)
@example("а " * 6000, 1)
def test_every_character_but_white_space_is_in_some_passage_and_spans_hold(text, times):
    text *= times
    store = Docstore([Document(text, metadata={"source": "a"})])
    left_out = list(text)
    for passage in store.passages:
        assert passage.text == text[passage.start : passage.end]
        at = text.find(passage.text)
        while at >= 0:  # a text that occurs several times is kept once
            left_out[at : at + len(passage.text)] = " " * len(passage.text)
            at = text.find(passage.text, at + 1)
    assert "".join(left_out).strip() == ""


@given(
    LINES.map("\n".join),
    st.sampled_from(
        [
            RecursiveCharacterTextSplitter(chunk_size=50, chunk_overlap=20),
            RecursiveCharacterTextSplitter(chunk_size=40, chunk_overlap=0, strip_whitespace=False),
            RecursiveCharacterTextSplitter(chunk_size=10, chunk_overlap=4, length_function=lambda t: len(t) // 4),
            CharacterTextSplitter(separator=" ", chunk_size=30, chunk_overlap=10),
        ]
    ),
)
def test_spans_hold_with_any_splitter_that_keeps_the_text(text, splitter):
    for passage in Docstore(text, splitter=splitter).passages:
        assert passage.text == text[passage.start : passage.end]


class Own(CharacterTextSplitter):
    """Pieces made by a function."""

    def __init__(self, split):
        super().__init__()
        self.split_text = split


SEVERAL = "ab ab ab ab ab cd ef"


@each(
    ("text", "pieces", "spans"),
    [
        (SEVERAL, ["ab ab", "ab ab"], [(0, 5)]),
        (SEVERAL, ["ab ab", "ab ab ab"], [(0, 5), (6, 14)]),
        (SEVERAL, ["ab\nab", "ab  cd"], [(0, 5), (12, 17)]),
        (SEVERAL, ["ab", "cd\ufffd"], [(0, 2), (15, 17)]),
        (SEVERAL, ["Summary."], [(0, 20)]),
        (SEVERAL, ["cd ef", "ab ab"], [(15, 20), (0, 5)]),
        (SEVERAL, ["ab", "b ab"], [(0, 2), (1, 5)]),
        ("abc x abd", ["abc", "ab"], [(0, 3), (6, 8)]),  # the piece before begins alike
        ("ab ab cd ef ab\nab", ["cd ef", "ab ab"], [(6, 11), (0, 5)]),  # the same white space precedes another
    ],
    ids=[
        *("equal", "straight on", "white space", "cut character", "rewritten", "another order", "a letter later"),
        *("beginning of the last", "same white space"),
    ],
)
def test_a_span_is_where_the_words_stand_or_the_whole_document(text, pieces, spans):
    store = Docstore(text, splitter=Own(lambda _: pieces))
    assert [(passage.start, passage.end) for passage in store.passages] == spans


def test_a_document_that_cannot_be_split_stops_no_other(caplog):
    def split(text):
        if text == "bad":
            raise RecursionError("too deep")
        return [text]

    store = Docstore([*pieces("bad"), *pieces("good")], splitter=Own(split))
    assert texts(store.passages) == ["good"]
    assert caplog.messages == ["skipped a, which cannot be split: too deep"]


def test_what_the_splitter_adds_to_the_metadata_is_kept_and_nothing_of_ours_is_added():
    splitter = RecursiveCharacterTextSplitter(chunk_size=10, chunk_overlap=0, add_start_index=True)
    document = Document("Баня стоит. Полис есть.", metadata={"source": "a", "page": 3})
    assert [passage.metadata for passage in Docstore(document).passages] == [{"source": "a", "page": 3}]
    theirs = Docstore(document, splitter=splitter).passages
    assert [p.metadata for p in theirs] == [{"source": "a", "page": 3, "start_index": p.start} for p in theirs]


# Passages


def test_blank_passages_are_dropped_and_of_equal_texts_the_first_is_kept():
    given = [*pieces("a", " \n", "b", "a"), Document("b", metadata={"source": "c"}), *pieces("d")]
    kept = [(passage.text, passage.source) for passage in Docstore(given, splitter=False).passages]
    assert kept == [("a", "a"), ("b", "a"), ("d", "a")]


def test_the_users_own_passages_are_as_they_are():
    whole = "x" * 9000
    given = [Document("  да \n", metadata={"source": "a", "start_index": 7}), Document(whole, metadata={"file": "b"})]
    own = [(one.text, one.source, one.start, one.end) for one in Docstore(given, splitter=False).passages]
    assert own == [("  да \n", "a", 7, 13), (whole, "documents", 0, 9000)]


@pytest.mark.parametrize("documents", [[], "", [" "], [Document("\n")]])
def test_documents_without_text_give_an_empty_store(documents):
    store = Docstore(documents, embeddings=Vectors({}))
    assert (store.passages, len(store)) == ([], 0)
    drive(embed_passages(store), Run(), {})


# Neighbours in the text


def test_neighbours_stand_next_to_each_other_in_one_document():
    store = Docstore([*pieces("a", "b"), Document("x", metadata={"source": "z"}), *pieces("c")], splitter=False)
    a, b, x, c = store.passages
    assert [store.previous(passage) for passage in (a, b, c, x)] == [None, a, b, None]
    assert [store.next(passage) for passage in (a, b, c, x)] == [b, c, None, None]


@pytest.mark.parametrize("key", ["source", "filename", "file_path", "url", None])
def test_documents_have_neighbours_whatever_names_them_or_if_nothing_does(key):
    document = Document("Полис действует год. " * 500, metadata={key: "a.txt"} if key else {})
    store = Docstore(
        [document, Document("Взнос платят раз. " * 500)], splitter=RecursiveCharacterTextSplitter(chunk_size=400)
    )
    assert len({passage.source for passage in store.passages}) == 2
    assert (store.passages[0].source == "a.txt") == bool(key)
    own = Docstore([Document("a"), Document("b")], splitter=False)
    assert store.next(store.passages[0]) == store.passages[1]
    assert own.next(own.passages[0]) == own.passages[1]


def test_a_text_that_stands_elsewhere_parts_its_neighbours_and_a_blank_one_does_not():
    store = Docstore(pieces("a", "b", "a", "c", " ", "d"), splitter=False)
    a, b, c, d = store.passages
    assert [store.next(passage) for passage in (a, b, c, d)] == [b, None, d, None]
    assert [store.previous(passage) for passage in (a, b, c, d)] == [None, a, None, c]


# Neighbours in meaning

ANGLES = {
    "a": [1, 0],
    "b": [0.9, 0.4359],
    "c": [0.6, 0.8],
    "d": [1e-300, 1e-301],
    "e": [-1, 0],
    "near": [0.999, 0.0447],
}


def similar(store, text, **options):
    passage = next(passage for passage in store.passages if passage.text == text)
    return texts(store.similar(passage, **options))


def test_similar_passages_are_nearest_first_between_the_floor_and_the_ceiling():
    store = Docstore(pieces(*ANGLES), splitter=False, embeddings=Vectors(ANGLES))
    assert similar(store, "a") == ["b"]
    assert similar(store, "a", k=9) == ["b", "c"]
    assert similar(store, "a", k=9, ceiling=1.1) == ["near", "d", "b", "c"]
    assert similar(store, "a", k=9, floor=0.7) == ["b"]
    assert similar(store, "a", k=9, floor=-1) == ["b", "c", "e"]
    assert similar(store, "e", floor=0) == []


def test_passages_are_embedded_once_when_the_first_is_looked_for_in_batches_of_64():
    embeddings = Vectors(answer=lambda text: [float(text), 1.0])
    store = Docstore(pieces(*map(str, range(150))), splitter=False, embeddings=embeddings)
    assert embeddings.asked == []
    assert similar(store, "1", k=2, ceiling=1.1) == ["2", "3"]
    assert [len(batch) for batch in embeddings.asked] == [64, 64, 22]
    assert [text for batch in embeddings.asked for text in batch] == [str(n) for n in range(150)]


async def test_embedding_is_done_once_for_all_runs_and_counted_in_the_first(caplog):
    embeddings, run = Vectors(answer=lambda text: [float(text), 1.0] if text != "7" else [0.0]), Run()
    store = Docstore(pieces(*map(str, range(150))), splitter=False, embeddings=embeddings)
    await asyncio.gather(*(adrive(embed_passages(store), run, {}) for _ in range(3)))
    drive(embed_passages(store), Run(), {})
    similar(store, "1")
    assert sum(map(len, embeddings.asked)) == run.meter.usage.embedded == 150
    assert len(embeddings.asked) == 3
    assert caplog.messages == ["'7' has no similar passages: the embeddings returned a zero vector"]


class Refused(Exception):
    status_code = 400


@pytest.mark.parametrize("made", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [], [1.0] * 3, None, Refused()])
@pytest.mark.parametrize("place", [0, 70])
def test_a_passage_without_a_usable_vector_has_no_similar_ones_and_the_others_have(made, place, caplog):
    def answer(text):
        if text == str(place) and isinstance(made, Exception):
            raise made
        return made if text == str(place) else [1.0, 0.3 * int(text)]

    store = Docstore(pieces(*map(str, range(100))), splitter=False, embeddings=Vectors(answer=answer))
    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        assert similar(store, str(place), floor=-1, ceiling=2) == []
    assert len(similar(store, "1", k=200, floor=-1, ceiling=2)) == 98
    assert len(caplog.messages) == 1
    assert f"'{place}' has no similar passages" in caplog.messages[0]


def test_embeddings_that_are_not_reached_end_the_search_and_those_that_give_too_few_vectors_find_nothing():
    def answer(_):
        raise error

    for error, count in ((ConnectionError("nobody there"), 300), (ModelOutputError("2 vectors for 3 texts"), 3)):
        embeddings = Vectors(answer=answer)
        store = Docstore(pieces(*map(str, range(count))), splitter=False, embeddings=embeddings)
        if isinstance(error, ConnectionError):
            assert error_of(ConnectionError, similar, store, "1") is error
            assert len(embeddings.asked) <= 5
        else:
            assert similar(store, "1") == []


def test_a_lost_request_is_sent_again_as_the_run_allows():
    lost = [ConnectionError("reset")]

    def answer(text):
        if lost:
            raise lost.pop()
        return [float(text), 1.0]

    store = Docstore(pieces(*"123"), splitter=False, embeddings=Vectors(answer=answer))
    drive(embed_passages(store), Run(retry=RetryPolicy(attempts=3, initial=0.01)), {})
    assert similar(store, "1", ceiling=1.1) == ["2"]


def test_a_search_without_embeddings_or_of_a_foreign_passage_says_what_to_pass():
    foreign = Passage(text="b", source="c", start=0, end=1)
    plain, embedded = Docstore("a"), Docstore("a", embeddings=Vectors({"a": [1.0]}))
    for store, where, k, message in (
        (plain, plain.passages[0], 1, "to find similar passages, give the Docstore embeddings=... or vectorstore=..."),
        (embedded, foreign, 1, f"passage {foreign.id} is not in this Docstore: take one of its passages"),
        (embedded, embedded.passages[0], 0, "k must be a whole number of at least 1, got 0"),
    ):
        assert str(error_of(ConfigError, store.similar, where, k=k)) == message
    assert plain.previous(foreign) is None


# A vector store of the user's own


class Counted(Vectors):
    def embed_query(self, text):
        return self.embed_documents([text])[0]


def filled(vectors, *documents):
    """A vector store that holds these documents and has embedded nothing since."""
    store = InMemoryVectorStore(Counted(vectors))
    store.add_documents(list(documents))
    store.embedding.asked.clear()
    return store


def test_a_vector_store_is_asked_instead_and_nothing_is_embedded_again():
    vectors = {name: angle for name, angle in ANGLES.items() if name != "d"}
    theirs, own = filled(vectors, *pieces(*vectors)), Vectors({})
    store = Docstore(pieces(*vectors), splitter=False, vectorstore=theirs, embeddings=own)
    assert similar(store, "a", k=9) == ["b", "c"]
    assert similar(store, "a", k=9, floor=-1, ceiling=1.1) == ["near", "b", "c", "e"]
    assert store.similar(store.passages[0])[0] is store.passages[1]
    assert theirs.embedding.asked == [["a"]] * 3
    assert drive(store.search_corpus("a"), Run(), {})[0].text == "a"
    drive(embed_passages(store), Run(), {})
    assert own.asked == []


def test_what_only_the_vector_store_knows_is_a_passage_of_its_own():
    vectors = {"a": [1, 0], "b": [0.8, 0.6], "c": [0.9, 0.4359]}
    theirs = filled(vectors, *pieces("a", "b"), Document("c", metadata={"source": "z", "start_index": 5}))
    store = Docstore(pieces("a", "b"), splitter=False, vectorstore=theirs)
    found, known = store.similar(store.passages[0], k=2)
    assert (found.text, found.source, found.start, found.end) == ("c", "z", 5, 6)
    assert known is store.passages[1]
    assert store.next(found) is None
    assert len(store) == 2
    assert texts(store.similar(found, k=1, ceiling=1.0)) == ["b"]


class Ranked(VectorStore):
    """Finds all texts in their order, with scores if it has some."""

    def __init__(self, found, scores=None):
        self.found, self.scores = found, scores

    def similarity_search(self, query, k=4, **kwargs):
        return pieces(*self.found)[:k]

    def similarity_search_with_score(self, query, k=4, **kwargs):
        if self.scores is None:
            raise NotImplementedError
        return list(zip(pieces(*self.found), self.scores, strict=True))[:k]

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        raise NotImplementedError


@each(
    ("scores", "found"),
    [
        (None, ["b", "c", "d"]),
        ([1.0, 0.97, 0.6, 0.2], ["c"]),
        ([0.0, 0.01, 0.3, 0.7], ["b", "c", "d"]),
        ([0.0, 3.0, 17.5, 20.0], ["b", "c", "d"]),
        ([20.0, 17.0, 3.0, 0.9], ["b", "c", "d"]),
        ([float("nan")] * 4, ["b", "c", "d"]),
    ],
    ids=["none", "cosines", "cosine distances", "distances", "dot products", "nan"],
)
def test_scores_that_are_no_cosines_are_not_compared_with_any(scores, found):
    store = Docstore(pieces(*"abcd"), splitter=False, vectorstore=Ranked("abcd", scores))
    assert (similar(store, "a", k=9), similar(store, "a")) == (found, found[:1])


def test_a_vector_store_of_many_equal_texts_is_searched_far_enough():
    theirs = Ranked([*"aaaaaa", "b", "b", "c"])
    assert similar(Docstore(pieces(*"abc"), splitter=False, vectorstore=theirs), "a", k=2) == ["b", "c"]


NO_SPLITTER = "splitter must be a LangChain TextSplitter, or False for documents that are passages already"


@each(
    ("option", "value", "message"),
    [
        ("splitter", "none", f"{NO_SPLITTER}; got str"),
        ("splitter", True, f"{NO_SPLITTER}; got bool"),
        ("embeddings", Ranked(""), "embeddings must be LangChain Embeddings, got Ranked"),
        ("vectorstore", Vectors({}), "vectorstore must be a LangChain VectorStore, got Vectors"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(option, value, message):
    assert str(error_of(ConfigError, Docstore, "a", **{option: value})) == message


def test_the_texts_before_splitting_have_the_places_of_passages_or_begin_at_0():
    whole = Document("Munich is old. It lies on the Isar.", metadata={"source": "a.md"})
    part = Document("It lies on the Isar.", metadata={"source": "a.md", "start_index": 15})
    assert list(Docstore([whole]).texts()) == [("a.md", 0, whole.page_content)]
    assert list(Docstore([part], splitter=False).texts()) == [("a.md", 15, part.page_content)]


def test_a_piece_has_its_own_id_or_one_derived_from_that_of_its_document():
    splitter = CharacterTextSplitter()
    splitter.split_documents = lambda _: [Document(text, id=own) for text, own in (("One.", "p1"), ("Two.", "d"))]
    first, second = ids_of([Document("One.|Two.", id="d", metadata={"source": "a"})], splitter=splitter)
    assert (first, second.startswith("d#")) == ("p1", True)


BY_LINES = CharacterTextSplitter(separator="\n", chunk_size=30, chunk_overlap=0)


def ids_of(documents, **options):
    return [passage.id for passage in Docstore(documents, **options).passages]


class Chunk:
    id, text = "o1", "Поле."


@each(
    ("documents", "ids"),
    [
        ([Document("Поле и щавель.", id="d1"), Document("Кирпич и глина.", id="d2")], ["d1", "d2"]),
        *(([Document("Поле.", metadata={key: 7})], ["7"]) for key in ("chunk_id", "id", "_id", "doc_id")),
        ([Document("Поле.", id="own", metadata={"id": "other"})], ["own"]),
        ([Document("Поле.", metadata={"source": "a"})], ["07c4602a3cf2269f"]),  # a hash that does not change
        ([{"id": "r1", "text": "Кирпич."}], ["r1"]),
        ([Chunk(), Document("Щавель.", id="d")], ["o1", "d"]),
    ],
)
@each("splitter", [None, False, BY_LINES])
def test_a_document_that_is_one_passage_keeps_its_id(documents, ids, splitter):
    assert ids_of(documents, splitter=splitter) == ids


def test_passages_of_a_split_document_derive_from_its_id_and_text():
    text = "Первая строка о поле и лесе.\nВторая строка о щавеле."
    first, second = ids_of([Document(text, id="d1")], splitter=BY_LINES)
    assert (first.partition("#")[0], second.partition("#")[0], first != second) == ("d1", "d1", True)
    assert ids_of([Document(f"Новая строка в начале.\n{text}", id="d1")], splitter=BY_LINES)[1:] == [first, second]


def test_an_id_that_chunks_share_is_made_distinct():
    documents = [Document("Поле.", metadata={"doc_id": "d"}), Document("Щавель.", metadata={"doc_id": "d"})]
    first, second = ids_of(documents, splitter=False)
    assert (first, second.startswith("d#")) == ("d", True)


def test_rows_have_the_ids_of_the_vector_store():
    by_text = {f"Отрывок номер {n} о поле и лесе подробно.": f"v{n}" for n in range(6)}
    store = InMemoryVectorStore(HashingEmbeddings())
    store.add_documents(pieces(*by_text), ids=[*by_text.values()])
    testset = generator(Writer(), vectorstore=store).generate(pieces(*by_text), size=3)
    assert [row.passage_ids for row in testset] == [[by_text[text] for text in row.contexts] for row in testset]
