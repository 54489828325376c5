"""Documents of Haystack and LlamaIndex, DataFrames, and corpora of BEIR and TREC."""

import json
from dataclasses import dataclass, field

import pytest
from helpers.each import each, error_of
from langchain_core.documents import Document

from langchain_rageval import ConfigError
from langchain_rageval.data.documents import to_documents
from langchain_rageval.testset import Docstore, from_haystack, load_documents


@dataclass
class HaystackLike:
    content: str | None
    meta: dict = field(default_factory=dict)
    id: str = "h-1"


@dataclass
class NodeLike:
    own: str
    metadata: dict = field(default_factory=dict)
    node_id: str = "n-1"
    ref_doc_id: str | None = None
    start_char_idx: int | None = None

    def get_content(self, metadata_mode=None):
        return self.own


class ScoredNodeLike:
    def __init__(self, node):
        self.node, self.metadata, self.get_content = node, node.metadata, node.get_content


def shown(documents):
    return [(document.id, document.page_content, document.metadata) for document in documents]


@pytest.mark.parametrize("read", [from_haystack, to_documents])
def test_documents_of_haystack_keep_id_text_and_metadata(read, caplog):
    pieces = [
        HaystackLike("Баня.", {"source_id": "doc", "split_idx_start": 7}, "p-2"),
        HaystackLike("Дом.", {"file_path": "дом.txt", "source_id": "doc"}, "p-3"),
        HaystackLike(None, {}, "картинка"),
    ]
    assert shown(read(pieces)) == [
        ("p-2", "Баня.", {"source_id": "doc", "split_idx_start": 7, "source": "doc", "start_index": 7}),
        ("p-3", "Дом.", {"file_path": "дом.txt", "source_id": "doc"}),
    ]
    assert caplog.messages == ["skipped the Haystack document картинка, which has no text"]
    assert shown(read(HaystackLike("Дом."))) == [("h-1", "Дом.", {})]


@each(
    ("given", "problem"),
    [
        ("Дом.", "from_haystack expected Haystack documents, got str"),
        (3, "from_haystack expected Haystack documents, got int"),
        ([HaystackLike("Да."), Document("Нет.")], "documents[1]: expected a Haystack document, got Document"),
    ],
)
def test_what_is_no_haystack_document_is_refused_with_its_place(given, problem):
    assert str(error_of(ConfigError, from_haystack, given)) == problem


def test_nodes_keep_id_text_and_metadata_with_or_without_a_score():
    node = NodeLike("Баня.", {"lang": "ru"}, "n-7", "doc", 12)
    expected = ("n-7", "Баня.", {"lang": "ru", "source": "doc", "start_index": 12})
    named = NodeLike("Дом.", {"file_name": "дом.txt"}, ref_doc_id="doc")
    found = shown(to_documents([node, ScoredNodeLike(node), named]))
    assert found == [expected, expected, ("n-1", "Дом.", {"file_name": "дом.txt"})]
    assert shown(to_documents(node)) == [expected]
    (passage,) = Docstore([node], splitter=False).passages
    assert (passage.source, passage.start, passage.end) == ("doc", 12, 17)


def test_real_documents_of_haystack():
    haystack = pytest.importorskip("haystack")
    document = haystack.Document(content="Баня.", meta={"lang": "ru"}, id="h-9")
    assert shown(from_haystack([document])) == shown(to_documents(document)) == [("h-9", "Баня.", {"lang": "ru"})]


def test_real_nodes_of_llama_index():
    schema = pytest.importorskip("llama_index.core.schema")
    node = schema.TextNode(text="Баня.", id_="n-9", metadata={"file_name": "баня.txt"})
    scored = schema.NodeWithScore(node=node, score=0.5)
    expected = ("n-9", "Баня.", {"file_name": "баня.txt"})
    assert shown(to_documents([node, scored])) == [expected] * 2
    assert shown(to_documents(schema.Document(text="Дом.", doc_id="d-9"))) == [("d-9", "Дом.", {})]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_of_a_data_frame_keep_their_ids(library):
    columns = {"id": ["a", "b", "c"], "text": ["Баня.", None, "Дом."], "year": [2024, 2025, 2026]}
    module = pytest.importorskip(library)
    build = module.table if library == "pyarrow" else module.DataFrame
    with pytest.raises(ConfigError, match=r"^documents: the DataFrame has no column 'text', but \['body'\]: "):
        to_documents(build({"body": ["Да."]}))
    assert shown(to_documents(build(columns))) == [
        ("a", "Баня.", {"id": "a", "year": 2024}),
        ("c", "Дом.", {"id": "c", "year": 2026}),
    ]


@each("key", ["id", "_id", "doc_id", "docid", "docno", "pid", "chunk_id"])
def test_the_id_of_a_record_is_the_id_of_its_document(key):
    assert [document.id for document in to_documents([{key: 7, "text": "Баня."}, {"text": "Дом."}])] == ["7", None]


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


@pytest.mark.parametrize("inside", ["", "scifact"])
def test_of_a_beir_folder_only_the_corpus_is_read(tmp_path, inside, caplog):
    folder = tmp_path / inside
    write_lines(
        folder / "corpus.jsonl",
        [
            {"_id": "4983", "title": "Баня", "text": "Её страхуют с домом.", "metadata": {"year": 2024}},
            {"_id": "5836", "title": "", "text": "Взнос платят раз в год."},
        ],
    )
    write_lines(folder / "queries.jsonl", [{"_id": "q1", "text": "Как застраховать баню?"}])
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t4983\t1\n", encoding="utf-8")
    assert shown(load_documents(tmp_path)) == [
        ("4983", "Баня\n\nЕё страхуют с домом.", {"source": "4983", "_id": "4983", "title": "Баня", "year": 2024}),
        ("5836", "Взнос платят раз в год.", {"source": "5836", "_id": "5836", "title": ""}),
    ]
    prefix = f"{inside}/" if inside else ""
    skipped = f"{prefix}qrels/test.tsv, {prefix}queries.jsonl"
    assert caplog.messages == [f"skipped {skipped}: questions and judgments of a BEIR data set, not documents"]
    (folder / "corpus.jsonl").unlink()  # without a corpus, they are documents
    assert "Как застраховать баню?" in [document.page_content for document in load_documents(tmp_path)]


TREC = """<DOC>
<DOCNO> LA010189-0001 </DOCNO>
<HEADLINE><P>Баня &amp; дом</P></HEADLINE>
<TEXT>
<P>
Баню страхуют с домом.
</P>


<P>Взнос &lt; 5 %.</P>
</TEXT>
</DOC>
<DOC><DOCNO>LA010189-0002</DOCNO>Без разметки текста.</DOC>
"""


@pytest.mark.parametrize("suffix", [".trec", ".trectext", ".sgml", ".sgm"])
def test_documents_in_the_markup_of_trec_are_read_with_their_numbers(tmp_path, suffix):
    (tmp_path / f"la{suffix}").write_text(TREC, encoding="utf-8")
    assert shown(load_documents(tmp_path)) == [
        ("LA010189-0001", "Баня & дом\n\nБаню страхуют с домом.\n\nВзнос < 5 %.", {"source": "LA010189-0001"}),
        ("LA010189-0002", "Без разметки текста.", {"source": "LA010189-0002"}),
    ]


def test_a_run_of_trec_is_no_document_and_a_warning_says_so(tmp_path, caplog):
    (tmp_path / "bm25.trec").write_text("1 Q0 d1 1 2.5 bm25\n", encoding="utf-8")
    assert list(load_documents(tmp_path)) == []
    assert caplog.messages == ["skipped bm25.trec: expected TREC documents between <DOC> and </DOC>, got none"]


def test_collections_of_trec_and_ms_marco_are_read_with_their_ids(tmp_path):
    (tmp_path / "collection.tsv").write_text("0\tБаня.\n1\tДом.\n\n", encoding="utf-8")
    (tmp_path / "table.tsv").write_text("id\ttext\n7\tВзнос.\n", encoding="utf-8")
    write_lines(tmp_path / "marco.jsonl", [{"docid": "D1", "url": "u", "title": "Полис", "body": "На год."}])
    write_lines(tmp_path / "anserini.jsonl", [{"id": "A1", "contents": "Осмотр."}])
    write_lines(tmp_path / "passages.jsonl", [{"pid": 3, "passage": "Ущерб."}])
    found = {document.id: document.page_content for document in load_documents(tmp_path)}
    collections = {"0": "Баня.", "1": "Дом.", "3": "Ущерб.", "A1": "Осмотр.", "D1": "Полис\n\nНа год."}
    assert found == {**collections, "7": "Взнос."}
