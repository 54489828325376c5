"""Ids of passages: those that the user's retriever returns."""

import pytest
from helpers.writers import Writer, generator
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import CharacterTextSplitter

from langchain_rageval import HashingEmbeddings, Sample
from langchain_rageval.data.documents import to_documents
from langchain_rageval.testset import Docstore

LINES = CharacterTextSplitter(separator="\n", chunk_size=30, chunk_overlap=0)


def ids(documents, **options):
    return [passage.id for passage in Docstore(documents, **options).passages]


@pytest.mark.parametrize("splitter", [None, False, LINES])
def test_a_document_that_is_one_passage_keeps_its_id(splitter):
    documents = [Document("Поле и щавель.", id="d1"), Document("Кирпич и глина.", id="d2")]
    assert ids(documents, splitter=splitter) == ["d1", "d2"]


@pytest.mark.parametrize("key", ["chunk_id", "id", "_id", "doc_id"])
def test_the_id_may_be_in_the_metadata(key):
    assert ids([Document("Поле.", metadata={key: 7, "source": "a"})], splitter=False) == ["7"]


def test_the_own_id_precedes_one_in_the_metadata():
    assert ids([Document("Поле.", id="own", metadata={"id": "other"})], splitter=False) == ["own"]


def test_passages_of_a_split_document_derive_from_its_id_and_text():
    text = "Первая строка о поле и лесе.\nВторая строка о щавеле."
    first, second = ids([Document(text, id="d1")], splitter=LINES)
    assert (first.partition("#")[0], second.partition("#")[0], first != second) == ("d1", "d1", True)
    assert ids([Document(f"Новая строка в начале.\n{text}", id="d1")], splitter=LINES)[1:] == [first, second]


def test_an_id_that_chunks_share_is_made_distinct():
    documents = [Document("Поле.", metadata={"doc_id": "d"}), Document("Щавель.", metadata={"doc_id": "d"})]
    first, second = ids(documents, splitter=False)
    assert (first, second.startswith("d#")) == ("d", True)


def test_passages_without_an_id_have_a_hash_that_does_not_change():
    assert ids([Document("Поле.", metadata={"source": "a"})]) == ["07c4602a3cf2269f"]


def test_records_and_objects_keep_their_ids():
    class Chunk:
        id = "o1"
        text = "Поле."

    assert [document.id for document in to_documents([Chunk(), Document("Щавель.", id="d")])] == ["o1", "d"]
    assert ids([{"id": "r1", "text": "Кирпич."}], splitter=False) == ["r1"]


def test_contexts_without_own_ids_have_those_of_their_metadata():
    chunks = [Document("Поле.", metadata={"chunk_id": "c1"}), Document("Щавель.", id="c2")]
    assert Sample.parse({"question": "Что?", "contexts": chunks}).context_ids == ["c1", "c2"]


def test_rows_have_the_ids_of_the_vector_store():
    store = InMemoryVectorStore(HashingEmbeddings())
    documents = [Document(f"Отрывок номер {n} о поле и лесе подробно.", metadata={"source": "a"}) for n in range(6)]
    store.add_documents(documents, ids=[f"v{n}" for n in range(6)])
    unnamed = [Document(d.page_content, metadata=d.metadata) for d in documents]
    testset = generator(Writer(), vectorstore=store).generate(unnamed, size=3)
    by_text = {document.page_content: f"v{n}" for n, document in enumerate(documents)}
    assert [row.passage_ids for row in testset] == [[by_text[text] for text in row.contexts] for row in testset]
