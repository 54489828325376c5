"""Documents from files, folders, objects with texts, other libraries, and collections of BEIR and TREC."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from helpers.each import each, error_of
from langchain_core.documents import Document
from langchain_core.load import dumpd

from langchain_rageval.data import documents as readers
from langchain_rageval.data.documents import load_documents, to_documents
from langchain_rageval.errors import ConfigError
from langchain_rageval.testset import from_haystack
from langchain_rageval.testset.docstore import Docstore


@pytest.fixture
def folder(tmp_path):
    def fill(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return fill


def read(path):
    return [(document.metadata["source"], document.page_content) for document in load_documents(path)]


# Files and folders


def test_a_folder_is_read_with_its_folders_in_the_order_of_the_paths(folder, caplog):
    root = folder({"b.md": "# Баня", "a/z.txt": "полис", "a/b/c.txt": "взнос", "c.TXT": "банк"})
    assert read(root) == [("a/b/c.txt", "взнос"), ("a/z.txt", "полис"), ("b.md", "# Баня"), ("c.TXT", "банк")]
    assert read(str(root)) == read(root)
    assert caplog.messages == []


def test_hidden_empty_and_blank_files_are_passed_over_in_silence_unless_named(folder, caplog):
    root = folder({".git/a.md": "x", "a/.b/c.md": "x", ".d.md": "x", "e.md": b"", "f.md": " \n", "g.md": "да"})
    assert read(root) == [("g.md", "да")]
    assert read(root / ".git" / "a.md") == [("a.md", "x")]
    assert caplog.messages == []


def test_links_out_of_a_folder_are_skipped_with_their_names(folder, caplog):
    root = folder({"docs/a.md": "да", "docs/b/c.md": "нет", "secret.txt": "тайна", "more/d.md": "тайна"})
    docs = root / "docs"
    (docs / "file.txt").symlink_to(root / "secret.txt")
    (docs / "b" / "relative.md").symlink_to("../../secret.txt")
    (docs / "chain.txt").symlink_to("file.txt")
    (docs / "folder").symlink_to(root / "more")
    (docs / "twin").symlink_to(docs / "b")
    (docs / "inside.md").symlink_to("b/c.md")
    (docs / "nowhere.md").symlink_to("missing.md")
    (docs / "loop.md").symlink_to("loop.md")
    assert read(docs) == [("a.md", "да"), ("b/c.md", "нет"), ("inside.md", "нет")]
    assert caplog.messages == [
        "b/relative.md: the link leads out of the folder; skipped",
        "chain.txt: the link leads out of the folder; skipped",
        "file.txt: the link leads out of the folder; skipped",
        "folder: the link leads out of the folder; skipped",
        "loop.md: the link leads to no file; skipped",
        "nowhere.md: the link leads to no file; skipped",
        "twin: linked folders are not entered; skipped",
    ]
    (root / "link").symlink_to(docs)
    assert read(root / "link") == read(docs)
    assert read(docs / "file.txt") == [("file.txt", "тайна")]


def test_a_text_in_another_encoding_is_read_and_a_guess_is_named(folder, caplog):
    texts = {"a.txt": "Баня".encode("cp1251"), "b.txt": "\ufeffда\r\nнет", "c.md": "нет".encode("utf-16")}
    found = read(folder({**texts, "d.txt": bytes(range(256))}))
    assert found == [("a.txt", "Баня"), ("b.txt", "да\nнет"), ("c.md", "нет")]
    no_text = "not a text in UTF-8, UTF-16 or a single-byte encoding; save the file as UTF-8"
    assert caplog.messages == ["a.txt is not UTF-8; read as cp1251", f"skipped d.txt: {no_text}"]


@each(("head", "encoding"), [("<meta charset=windows-1251>", "cp1251"), ("", "cp1251"), ("", "utf-8")])
def test_a_page_of_html_is_read_as_its_text_with_and_without_a_declaration_of_its_encoding(folder, head, encoding):
    pytest.importorskip("bs4", reason="beautifulsoup4 is no requirement of ours")
    page = f"<html><head>{head}<title>Баня</title></head><body><h1>Полис</h1><p>Взнос <b>раз</b> в год.</p></body>"
    (document,) = load_documents(folder({"a.html": page.encode(encoding)}))
    assert document.page_content.split() == ["Баня", "Полис", "Взнос", "раз", "в", "год."]
    assert document.metadata == {"source": "a.html", "title": "Баня"}


@each("encoding", ["cp1251", "utf-16", "utf-8"])
def test_a_table_with_a_column_of_texts_has_a_document_for_each_row(folder, encoding):
    table = "Текст;Источник;Раздел\nБаню страхуют с домом.;правила.pdf;2\n;пусто.pdf;3\nВзнос раз в год.;;\n"
    first, second = load_documents(folder({"a.csv": table.encode(encoding)}))
    assert first.page_content == "Баню страхуют с домом."
    assert first.metadata == {"source": "правила.pdf", "row": 0, "Раздел": "2"}
    assert (second.page_content, second.metadata) == ("Взнос раз в год.", {"source": "a.csv", "row": 2})
    (whole,) = load_documents(folder({"a.csv": b"\xef\xbb\xbfq,a\nno,2\n"}))
    assert (whole.page_content, whole.metadata) == ("q: no\na: 2", {"source": "a.csv", "row": 0})


def test_documents_that_langchain_serialized_are_read_from_json_and_each_line_of_a_jsonl_file_is_one(folder):
    written = [dumpd(Document("да", id="d1", metadata={"page": 1})), {"text": "нет"}]
    first, second = load_documents(folder({"a.json": json.dumps(written)}) / "a.json")
    assert (first.page_content, first.metadata["page"]) == ("да", 1)
    assert (second.page_content, second.metadata) == ("нет", {"source": "a.json:item 2"})
    lines = [{"text": "да", "page": 1}, {"content": "нет", "source": "устав", "metadata": {"year": 2020}}]
    first, second = load_documents(folder({"a.jsonl": "\n\n".join(map(json.dumps, lines))}) / "a.jsonl")
    assert (first.page_content, first.metadata) == ("да", {"page": 1, "source": "a.jsonl:1"})
    assert (second.page_content, second.metadata) == ("нет", {"source": "устав", "year": 2020})


def test_each_unknown_kind_of_file_is_named_once(folder, caplog):
    unknown = ("a.png", "b/c.png", "d.png", "e.PNG", "f.zip", "Makefile")
    assert read(folder({**dict.fromkeys(unknown, "x"), "g.md": "да"})) == [("g.md", "да")]
    assert sorted(caplog.messages) == [
        "skipped Makefile: files without a suffix cannot be read",
        "skipped a.png, b/c.png, d.png and 1 more: '.png' files cannot be read",
        "skipped f.zip: '.zip' files cannot be read",
    ]


def test_a_file_is_read_when_it_is_asked_for(folder):
    root = folder({"a.txt": "да", "b.txt": "нет"})
    documents = load_documents(root)
    assert next(documents).page_content == "да"
    (root / "b.txt").write_text("позже", encoding="utf-8")
    assert next(documents).page_content == "позже"


def test_a_line_that_is_no_document_is_named_and_the_others_are_read(folder, caplog):
    no_documents = (b"{", b"[1]", b'{"body": "b"}', b'{"text": 3}', b'{"text":' + b"[" * 100_000)
    no_documents += (b'{"text": "d", "deep": %b%b}' % (b"[" * 600, b"]" * 600),)
    texts = (b'{"text": "a"}', b'{"text": "\xd1\x8f"}', b'{"text": "c\xff"}')
    assert [text for _, text in read(folder({"a.jsonl": b"\n".join([*texts, *no_documents])}))] == ["a", "я", "c\ufffd"]
    invalid, *skipped = caplog.messages
    assert invalid == "a.jsonl, line 3 is not valid UTF-8; invalid characters are replaced"
    assert [message.split(":")[0] for message in skipped] == [f"skipped a.jsonl, line {n}" for n in range(4, 10)]
    problem = ": not valid JSON (Expecting property name enclosed in double quotes at column 2)"
    assert skipped[0].endswith(f"{problem}: correct the line, or leave out invalid ones")
    assert skipped[1].endswith(": expected a JSON object")
    assert skipped[2].endswith(": expected a text under one of text, page_content, content, got ['body']")


PACKAGES = {"pdf": "pypdf", "html": "beautifulsoup4", "htm": "beautifulsoup4", "docx": "docx2txt"}


@pytest.mark.parametrize(("suffix", "package"), PACKAGES.items())
def test_a_package_that_is_missing_is_named_before_anything_is_read(folder, monkeypatch, suffix, package):
    monkeypatch.setattr(readers, "find_spec", lambda module: module == "json")
    error = error_of(ConfigError, load_documents, folder({"a.txt": "да", f"b/c.{suffix}": "x"}))
    assert str(error) == f"b/c.{suffix} needs {package}, which is not installed: pip install {package}"


def test_a_document_that_its_loader_cannot_read_stops_no_other(folder, monkeypatch, caplog):
    """Whatever package reads PDF: here, one that finds the file broken on its second page."""

    def load():
        raise RuntimeError("EOF marker not found")

    loaders = SimpleNamespace(PyPDFLoader=lambda path: SimpleNamespace(load=load))
    monkeypatch.setattr(readers, "import_module", lambda name: loaders)
    monkeypatch.setattr(readers, "find_spec", lambda module: True)
    assert read(folder({"a.pdf": "%PDF", "b.txt": "да"})) == [("b.txt", "да")]
    assert caplog.messages == ["skipped a.pdf: EOF marker not found"]


KINDS = ".txt, .md, .markdown, .jsonl, .ndjson, .json, .pdf, .html, .htm, .docx, .csv, .tsv, .xlsx, .trec, .trectext, "
KINDS += ".sgml, .sgm"


# Whatever holds texts


@dataclass
class Node:
    """As in other libraries."""

    text: object
    metadata: dict = field(default_factory=dict)


WITH_TEXTS = [
    (Document("да", metadata={"page": 1}), ["да"], {"page": 1}),
    ("да", ["да"], {}),
    ("", [""], {}),
    ("длинно " * 5000, ["длинно " * 5000], {}),
    ("a\0b", ["a\0b"], {}),
    ("Read the file handbook.pdf", ["Read the file handbook.pdf"], {}),
    ({"text": "да", "page": 1}, ["да"], {"page": 1}),
    ({"page_content": "да", "metadata": {"page": 1}}, ["да"], {"page": 1}),
    (Node("да", {"page": 1}), ["да"], {"page": 1}),
    ([Document("да"), "нет", {"text": "ну"}], ["да", "нет", "ну"], {}),
    ((text for text in ("да", "нет")), ["да", "нет"], {}),
    ([], [], None),
    (["a\ud800"], ["a\ufffd"], {}),
    (Document("a\ud800", metadata={"b": "\ud800"}), ["a\ufffd"], {"b": "\ufffd"}),
]


@each(("given", "texts", "metadata"), WITH_TEXTS, ids=lambda given: type(given).__name__)
def test_a_text_is_found_in_any_supported_object(given, texts, metadata):
    found = to_documents(given)
    assert [document.page_content for document in found] == texts
    assert [document.metadata for document in found[:1]] == [metadata][: len(texts)]


def test_a_text_that_names_a_file_is_read_from_it(folder, monkeypatch):
    root = folder({"docs/a.txt": "да", "docs/b.txt": "нет"})
    monkeypatch.chdir(root)
    for given in ("docs", Path("docs"), [Path("docs/a.txt"), Path("docs/b.txt")]):
        assert [document.page_content for document in to_documents(given)] == ["да", "нет"]
    assert to_documents("docs and more")[0].page_content == "docs and more"


FORMS = {
    "list": list,
    "tuple": tuple,
    "generator": lambda texts: (text for text in texts),
    "Series": pd.Series,
    "keys": lambda texts: dict.fromkeys(texts).keys(),
    "DataFrame": lambda texts: pd.DataFrame({"text": texts}),
    "mappings": lambda texts: [{"text": text} for text in texts],
    "objects": lambda texts: [Node(text) for text in texts],
}


@each("form", FORMS.values(), ids=FORMS)
def test_a_text_among_others_never_reads_the_file_of_that_name(folder, monkeypatch, form):
    root = folder({"docs/a.txt": "тайна", "secret.txt": "тайна"})
    monkeypatch.chdir(root)
    texts = ["Баню страхуют.", "docs", "docs/a.txt", str(root / "secret.txt"), "~", "/", ".", "политика.docx"]
    assert [document.page_content for document in to_documents(form(texts))] == texts
    assert "тайна" not in str([passage.text for passage in Docstore(form(texts)).passages])


def test_rows_of_a_dataframe_with_a_text_under_any_known_name_are_documents():
    table = pd.DataFrame({"text": ["да", None, "нет"], "body": ["x", "y", None], "page": [1.0, None, 3.0]})
    for dtype, name in ((object, "text"), ("string", "page_content")):
        renamed = table.astype({"text": dtype, "body": dtype}).rename(columns={"text": name})
        expected = [("да", {"body": "x", "page": 1.0}), ("нет", {"page": 3.0})]
        assert [(doc.page_content, doc.metadata) for doc in to_documents(renamed)] == expected
    problem = str(error_of(ConfigError, to_documents, table[["body"]]))
    assert re.search(r"no column 'text', but \['body'\]: pass .* as in table\['body'\]", problem)
    assert [document.page_content for document in to_documents(table["body"][:2])] == ["x", "y"]


WITHOUT_TEXT = [
    (3, "documents: expected Documents, texts, a path, a DataFrame or a list of these, got int"),
    (None, "documents: expected .*, got NoneType$"),
    (["да", 3], r"documents\[1\]: expected .*, got int"),
    ([["да"]], r"documents\[0\]: expected .*, got list"),
    (Node(3), "documents: expected .*, got Node"),
    ({"body": "да"}, r"documents: expected a text under one of text, page_content, content, got \['body'\]"),
    (["да", {"text": 3}], r"documents\[1\]: expected a text under"),
]


@each(("given", "words"), WITHOUT_TEXT)
def test_what_holds_no_text_is_refused_with_its_place(given, words):
    with pytest.raises(ConfigError, match=words):
        to_documents(given)


# Haystack, LlamaIndex, DataFrames, BEIR and TREC


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


WITH_PLACE = [HaystackLike("Да."), Document("Нет.")]
NO_DOCUMENTS = [
    (load_documents, "b.txt", "b.txt does not exist: pass the path of a file or folder"),
    (load_documents, __file__, f"{__file__}: expected one of {KINDS}, got '.py': convert the file"),
    (to_documents, "handbok.pdf", "handbok.pdf does not exist: pass the path of a file or folder"),
    (to_documents, Path("handbok"), "handbok does not exist: pass the path of a file or folder"),
    (from_haystack, "Дом.", "from_haystack expected Haystack documents, got str"),
    (from_haystack, 3, "from_haystack expected Haystack documents, got int"),
    (from_haystack, WITH_PLACE, "documents[1]: expected a Haystack document, got Document"),
]


@each(("call", "given", "problem"), NO_DOCUMENTS)
def test_a_path_that_cannot_be_read_and_what_is_no_document_are_refused_at_the_call(call, given, problem):
    assert str(error_of(ConfigError, call, given)) == problem


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
    expected = [("a", "Баня.", {"id": "a", "year": 2024}), ("c", "Дом.", {"id": "c", "year": 2026})]
    assert shown(to_documents(build(columns))) == expected


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


def test_documents_in_the_markup_of_trec_are_read_with_their_numbers_and_a_run_is_none(tmp_path, caplog):
    for suffix in (".trec", ".trectext", ".sgml", ".sgm"):
        (tmp_path / f"la{suffix}").write_text(TREC, encoding="utf-8")
        assert shown(load_documents(tmp_path / f"la{suffix}")) == [
            ("LA010189-0001", "Баня & дом\n\nБаню страхуют с домом.\n\nВзнос < 5 %.", {"source": "LA010189-0001"}),
            ("LA010189-0002", "Без разметки текста.", {"source": "LA010189-0002"}),
        ]
    (tmp_path / "bm25.trec").write_text("1 Q0 d1 1 2.5 bm25\n", encoding="utf-8")
    assert list(load_documents(tmp_path / "bm25.trec")) == []
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
