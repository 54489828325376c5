"""Names of other libraries, and names with two meanings."""

import json

import pytest
from helpers.each import each
from hypothesis import given, strategies

from langchain_rageval.data.foreign_records import check_outputs_are_clear
from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.data.tables import decode_row, guess_encoding, parse_literal
from langchain_rageval.errors import ConfigError, SampleError


def read(path, content, name="a.jsonl", encoding="utf-8", fields=None):
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    path = path / name
    path.write_bytes(text.encode(encoding))
    return list(load_samples(path, fields))


DEEPEVAL = {"input": "q", "actual_output": "a", "expected_output": "r", "retrieval_context": ["c"], "context": ["g"]}


@pytest.mark.parametrize("fields", [None, {"answer": "actual_output"}])
def test_the_context_of_deepeval_is_never_retrieved(fields):
    sample = Sample.parse(DEEPEVAL, fields)
    assert (sample.question, sample.answer, sample.contexts) == ("q", "a", ["c"])
    assert (sample.references, sample.reference_contexts) == (["r"], ["g"])
    for missing in ("retrieval_context", "expected_output"):
        assert Sample.parse(DEEPEVAL | {missing: None}).reference_contexts == ["g"]
    golden = Sample.parse({"input": "q", "expected_output": "r", "context": ["g"]})
    assert (golden.contexts, golden.reference_contexts) == (None, ["g"])


def test_the_camel_case_of_a_test_run_of_deepeval_is_known():
    sample = Sample.parse({"input": "q", "actualOutput": "a", "retrievalContext": ["c"], "context": ["g"]})
    assert (sample.answer, sample.contexts, sample.reference_contexts) == ("a", ["c"], ["g"])


TWO_READINGS = [
    (
        {"question": "q", "answer": "a", "expected_output": "r", "context": ["c"]},
        "'context' can be the retrieved chunks (fields={'contexts': 'context'}; in the shell, --fields "
        "contexts=context) or the gold context, as in DeepEval, which also uses the name 'expected_output' "
        "(fields={'reference_contexts': 'context'}; in the shell, --fields reference_contexts=context): choose one",
        {"contexts": "context"},
        {"contexts": ["c"], "answer": "a"},
    ),
    (
        {"query": "q", "answer": "r", "result": "a"},
        "'answer' and 'result' could both be the answer: write fields={'answer': 'result', 'references': 'answer'} "
        "or fields={'answer': 'answer'}; in the shell, --fields answer=result,references=answer",
        {"references": "answer"},
        {"references": ["r"], "answer": "a"},
    ),
    (
        {"question": "q", "answer": "a", "contexts": ["c"], "evolution_type": "simple", "episode_done": True},
        "'contexts' can be the retrieved chunks of the answer (fields={'contexts': 'contexts'}; in the shell, "
        "--fields contexts=contexts) or the passages of the reference, as in a test set of ragas 0.1 "
        "(fields={'reference_contexts': 'contexts'}; in the shell, --fields reference_contexts=contexts): choose "
        "one",
        {"contexts": "contexts"},
        {"contexts": ["c"], "reference_contexts": None},
    ),
    (
        {"inputs": {"question": "q"}, "outputs": {"answer": "r"}},
        "'outputs' can be the answer, as in a run of LangSmith (fields={'answer': 'outputs.answer'}; in the "
        "shell, --fields answer=outputs.answer) or the reference, as in a data set of LangSmith "
        "(fields={'references': 'outputs.answer'}; in the shell, --fields references=outputs.answer): choose one",
        {"references": "outputs.answer"},
        {"references": ["r"], "answer": None},
    ),
]


@pytest.mark.parametrize(("record", "message", "fields", "expected"), TWO_READINGS)
def test_a_name_with_two_meanings_is_refused_with_both_until_one_is_chosen(tmp_path, record, message, fields, expected):
    with pytest.raises(SampleError) as caught:
        read(tmp_path, [record])
    assert str(caught.value) == f"a.jsonl, line 1: {message}"
    (sample,) = read(tmp_path, [record], fields=fields)
    assert {name: getattr(sample, name) for name in expected} == expected


@pytest.mark.parametrize(
    "mark", [{"dataset_id": "d"}, {"metadata": {"dataset_split": ["base"]}}, {"modified_at": "2026-01-01"}]
)
def test_outputs_of_an_example_of_langsmith_are_the_reference(tmp_path, mark):
    (sample,) = read(tmp_path, [{"id": "e", "inputs": {"question": "q"}, "outputs": {"answer": "r"}, **mark}])
    assert (sample.id, sample.question, sample.answer, sample.references) == ("e", "q", None, ["r"])


@pytest.mark.parametrize(
    "mark", [{"run_type": "chain"}, {"trace_id": "t", "dotted_order": "o"}, {"reference_outputs": {"answer": "r"}}]
)
def test_outputs_of_a_run_are_the_answer(tmp_path, mark):
    (sample,) = read(tmp_path, [{"inputs": {"question": "q"}, "outputs": {"answer": "a"}, **mark}])
    assert (sample.question, sample.answer) == ("q", "a")


def test_the_retrievers_of_an_exported_run_give_its_contexts(tmp_path):
    retriever = {"run_type": "retriever", "outputs": {"documents": [{"page_content": "c", "metadata": {}}]}}
    run = {"run_type": "chain", "inputs": {"question": "q"}, "outputs": {"answer": "a"}, "child_runs": [retriever]}
    (sample,) = read(tmp_path, [run])
    assert (sample.answer, sample.contexts) == ("a", ["c"])


def test_the_expectations_of_mlflow_are_references(tmp_path):
    row = {"inputs": {"question": "q"}, "outputs": "a", "expectations": {"expected_response": "r"}}
    (sample,) = read(tmp_path, [row])
    assert (sample.question, sample.answer, sample.references) == ("q", "a", ["r"])


def test_lines_of_openais_evals_have_messages_and_an_ideal(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
    item = {"item": {"question": "q", "ground_truth": "r"}, "sample": {"output_text": "a"}}
    one, several, sampled = read(
        tmp_path, [{"input": messages, "ideal": "r"}, {"input": "q2", "ideal": ["r", "s"]}, item]
    )
    assert (one.question, one.answer, one.references) == ("q", None, ["r"])
    assert several.references == ["r", "s"]
    assert (sampled.question, sampled.answer, sampled.references) == ("q", "a", ["r"])


def test_records_and_ground_truth_of_trulens_are_read(tmp_path):
    calls = [
        {"stack": [{"method": {"name": "query"}}], "rets": "a"},
        {"stack": [{"method": {"name": "query"}}, {"method": {"name": "retrieve"}}], "rets": ["c", "d"]},
    ]
    record = {
        "record_id": "1",
        "app_name": "rag",
        "input": "q",
        "output": "a",
        "record_json": json.dumps({"calls": calls}),
    }
    attributes = {"ai.observability.retrieval.retrieved_contexts": ["c"]}
    traced = {"record_id": "2", "input": "q2", "output": "a", "events": [{"record_attributes": attributes}]}
    truth = {"query_id": "3", "query": "q3", "expected_response": "r", "expected_chunks": [{"text": "g", "title": "t"}]}
    first, second, third = read(tmp_path, [record, traced, truth])
    assert (first.question, first.answer, first.contexts, first.metadata) == ("q", "a", ["c", "d"], {"app_name": "rag"})
    assert second.contexts == ["c"]
    assert (third.id, third.references, third.reference_contexts) == ("3", ["r"], ["g"])


@pytest.mark.parametrize(
    "chunk",
    [
        {"text": "c", "score": 0.5},
        {"content": "c", "doc_uri": "u"},
        {"node": {"text": "c", "id_": "n"}, "score": 0.5},
        {"page_content": "c", "metadata": {}},
    ],
)
def test_a_chunk_may_be_a_mapping_with_one_text(chunk):
    assert Sample.parse({"query": "q", "response": "a", "contexts": [chunk]}).contexts == ["c"]


def test_the_contexts_of_an_own_test_set_are_those_of_the_reference(tmp_path):
    row = {
        "question": "q",
        "contexts": ["g"],
        "reference": "r",
        "evolution": "simple",
        "passage_ids": ["p"],
        "spans": [],
    }
    lines = [{"rageval_testset": {}}, row | {"answerable": True}, row | {"question": "u", "answerable": False}]
    answerable, unanswerable = read(tmp_path, lines)
    assert (answerable.contexts, answerable.reference_contexts, answerable.references) == (None, ["g"], ["r"])
    assert answerable.reference_context_ids == ["p"]
    assert (unanswerable.reference_contexts, unanswerable.references) == ([], [])


@pytest.mark.parametrize("name", ["report.jsonl", "good.rep", "report.jsonl.part"])
def test_the_rows_of_a_report_are_samples_whatever_its_name(tmp_path, name):
    sample = Sample(id="s", question="q", answer="a", contexts=["c"])
    row = {"index": 0, "sample": sample.model_dump(), "scores": {}}
    assert read(tmp_path, [{"rageval_report": {"notes": []}}, row], name) == [sample]


# Spelling


@pytest.mark.parametrize(
    ("names", "encoding"),
    [
        (("Вопрос", "Ответ", "Контексты", "Эталон"), "cp1251"),
        (("ВОПРОС", "ответ модели", "Найденные фрагменты", "Эталонный ответ"), "utf-8-sig"),
        (("вопрос пользователя", "Ответ бота", "документы", "Правильный ответ"), "utf-16"),
        (("Question", "ANSWER", "Retrieved Contexts", "Ground Truth"), "utf-16-le"),
        (("user-input", "Response", "retrievedContexts", "Reference"), "utf-8"),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_names_are_known_in_russian_and_in_any_spelling(tmp_path, names, encoding, delimiter):
    cells = ["Где слоны, львы; тигры?", "Там, где всегда", '"[""к1"", ""к2""]"', "В Африке"]
    quoted = [cell if cell.startswith('"') else f'"{cell}"' for cell in cells]
    table = f"{delimiter.join(names)}\r\n{delimiter.join(quoted)}\r\n"
    (sample,) = read(tmp_path, table, "a.csv", encoding)
    assert (sample.question, sample.answer) == (cells[0], cells[1])
    assert (sample.contexts, sample.references, sample.metadata) == (["к1", "к2"], ["В Африке"], {})


def test_the_exact_name_goes_before_another_spelling_which_stays_in_the_metadata():
    sample = Sample.parse({"Question": "other", "question": "q"})
    assert (sample.question, sample.metadata) == ("q", {"Question": "other"})


def test_numbered_columns_are_one_list_in_the_order_of_their_numbers(tmp_path):
    (sample,) = read(tmp_path, "Вопрос;Контекст 10;Контекст 2;Контекст 1\nв;к10;к2;\n", "a.csv")
    assert (sample.contexts, sample.metadata) == (["к2", "к10"], {})


def test_a_source_is_metadata(tmp_path):
    (sample,) = read(tmp_path, "Вопрос;Источник\nв;правила.pdf\n", "a.csv")
    assert sample.metadata == {"source": "правила.pdf"}


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "Вопрос;Ответ;ответ\nв;о;п\n", "a.csv")
    problem = "the columns 'Ответ' (column 2) and 'ответ' (column 3) have one name"
    assert str(caught.value) == f"a.csv: {problem}: rename one of them"


@each(("value", "text"), [(42, "42"), (42.0, "42"), (0.5, "0.5"), (True, "True"), ("42", "42"), (float("nan"), None)])
def test_a_number_is_a_text_and_nan_is_missing(value, text):
    sample = Sample.parse({"question": "q", "answer": value, "reference": value})
    assert (sample.answer, sample.references) == (text, [] if text is None else [text])


# Cells


@pytest.mark.parametrize(
    ("cell", "contexts"),
    [
        ("['a', \"it's\"]", ["a", "it's"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a' 'b'\n 'c']", ["a", "b", "c"]),
        ("array(['a', 'b'], dtype=object)", None),
        ("[Document(id='1', metadata={'k': -1}, page_content='a')]", ["a"]),
        ("[]", []),
        ("nan", None),
        ("None", None),
    ],
)
def test_lists_in_cells_are_read_as_json_python_and_numpy_print_them(tmp_path, cell, contexts):
    quoted = cell.replace('"', '""')
    path = "question,contexts\nq," + f'"{quoted}"\n'
    if cell.startswith("array"):
        with pytest.raises(SampleError, match="expected a list of str"):
            read(tmp_path, path, "a.csv")
    else:
        (sample,) = read(tmp_path, path, "a.csv")
        assert sample.contexts == contexts


def test_a_list_that_was_cut_off_is_not_a_text(tmp_path):
    with pytest.raises(SampleError) as caught:
        read(tmp_path, "question,context\nq,\"['a', 'b\"\n", "a.csv")
    assert str(caught.value) == (
        "a.csv, line 2: 'context' begins like a list, but is none: it ends with \"['a', 'b\"; "
        "if the cell was cut off, save the table as JSON lines"
    )


def test_a_line_with_the_separator_titles_and_empty_rows_are_no_samples(tmp_path):
    table = "sep=;\r\nОтчёт за май;;\r\n;;\r\nВопрос;Ответ;\r\nв;о;\r\n;;\r\n"
    (sample,) = read(tmp_path, table, "a.csv")
    assert (sample.question, sample.answer, sample.metadata) == ("в", "о", {})


@pytest.mark.parametrize("text", ["[]", '[{"question": "q"}]', '[\n {"question": "q"}\n]', '{\n "question": "q"\n}'])
def test_json_in_a_file_of_json_lines_is_read_as_a_whole(tmp_path, text):
    assert [sample.question for sample in read(tmp_path, text)] == ["q"] * text.count("question")


def test_json_lines_in_a_json_file_and_a_single_sample_are_read(tmp_path):
    assert [sample.question for sample in read(tmp_path, [{"question": "q"}, {"question": "r"}], "a.json")] == [
        "q",
        "r",
    ]
    (sample,) = read(tmp_path, [{"question": "q", "contexts": ["c"]}], "b.json")
    assert sample.contexts == ["c"]


def test_rows_by_name_keep_the_name_as_id(tmp_path):
    samples = read(tmp_path, json.dumps({"a": {"question": "q"}, "b": {"question": "r"}}), "a.json")
    assert [(sample.id, sample.question) for sample in samples] == [("a", "q"), ("b", "r")]


@pytest.mark.parametrize(("suffix", "remedy"), [(".xls", "save it as .xlsx or .csv"), (".doc", "convert the file")])
def test_a_file_of_another_format_is_refused_with_the_remedy(tmp_path, suffix, remedy):
    with pytest.raises(ConfigError, match=f"got '{suffix}': {remedy}$"):
        read(tmp_path, "x", f"a{suffix}")


def test_lines_in_two_encodings_are_refused(tmp_path):
    lines = ['{"question": "Где живут слоны?"}\n'.encode(encoding) for encoding in ("cp1251", "utf-8")]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(ConfigError) as caught:
        list(load_samples(tmp_path / "a.jsonl"))
    assert str(caught.value) == "a.jsonl, line 2 is UTF-8, earlier lines are cp1251; save the file as UTF-8"


def test_what_was_read_as_what_is_logged(tmp_path, caplog):
    caplog.set_level("INFO", "langchain_rageval")
    read(tmp_path, "Вопрос;Ответ;Тема\nв;о;\nв2;о2;т\n", "a.csv")
    assert caplog.messages == ["a.csv: question from 'Вопрос', answer from 'Ответ'; only kept as metadata: 'Тема'"]


def test_numbered_columns_are_named_as_they_stand_in_the_file(tmp_path, caplog):
    caplog.set_level("INFO", "langchain_rageval")
    (sample,) = read(tmp_path, "Вопрос;Контекст 2;КОНТЕКСТ 1\nв;б;а\n", "a.csv")
    assert sample.contexts == ["а", "б"]
    assert caplog.messages == ["a.csv: question from 'Вопрос', contexts from 'КОНТЕКСТ 1' and 'Контекст 2'"]


def test_a_mapped_name_that_is_in_no_record_is_logged_and_not_called_read(tmp_path, caplog):
    caplog.set_level("INFO", "langchain_rageval")
    lines = [{"question": "q", "rag": {}}, {"question": "r", "rag": {"answer": "a"}}]
    text = "\n".join(map(json.dumps, lines))
    read(tmp_path, text, "a.jsonl", fields={"answer": "rag.answer", "contexts": "rag.dcos"})
    assert caplog.messages[1:] == ["a.jsonl: no record has 'rag.dcos', which fields maps to contexts"]
    assert "dcos" not in caplog.messages[0]


def test_an_encoding_is_named_once(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_bytes('{"question": "Где живут слоны?"}\n{"question": "Кто это?"}\n'.encode("cp1251"))
    assert [sample.question for sample in load_samples(tmp_path / "a.jsonl")] == ["Где живут слоны?", "Кто это?"]
    assert caplog.messages == ["a.jsonl is not UTF-8; read as cp1251"]


def test_lines_that_end_with_a_carriage_return_are_rows(tmp_path):
    (tmp_path / "a.csv").write_bytes('вопрос;ответ\rв;"две\rстроки"\rв2;о2\r'.encode())
    samples = [(sample.question, sample.answer) for sample in load_samples(tmp_path / "a.csv")]
    assert samples == [("в", "две\rстроки"), ("в2", "о2")]


# Any data

KEYS = [
    *("question", "answer", "context", "contexts", "inputs", "outputs", "messages", "trace", "info", "data", "spans"),
    *("attributes", "run_type", "child_runs", "sample", "item", "scores", "record_id", "input", "record_json", "calls"),
    *("stack", "method", "events", "record_attributes", "assessments", "expectation", "lc", "kwargs", "id", "node"),
    *("evolution", "passage_ids", "spans", "metadata", "inputs.question", "context_1", "trace_id", "expectations"),
    *("actual_output", "retrieval_context", "type", "content", "role", "request", "outputs.context", "parent_id"),
]
VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=9),
    lambda inner: (
        strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(strategies.dictionaries(strategies.sampled_from(KEYS), VALUES, max_size=7))
def test_any_record_is_a_sample_or_a_sample_error(record):
    for read_record in (Sample.parse, lambda row: Sample.parse(decode_row(row, {}))):
        try:
            check_outputs_are_clear(record, ())
            read_record(record)
        except SampleError:
            pass


@given(strategies.text(alphabet="[]{}()'\",abN \n\\-1:#", max_size=40))
def test_any_cell_is_a_list_or_a_mapping_or_a_text(text):
    parse_literal(text)


# Encodings


@each(
    ("text", "encoding"),
    [
        ("Баню страхуют вместе с домом.", "cp1251"),
        ("контекст да полис договор полис там полис вопрос", "cp1251"),
        ("эксперт контекст договор на и ООО как ООО", "cp1251"),
        ("ИТОГО ПО ДОГОВОРУ СТРАХОВАНИЯ", "cp1251"),
        ("Wer? Die Universität zu Köln, natürlich.", "cp1252"),
        ("Où est-il né ? Il est né à l’hôpital.", "cp1252"),
        ("Баню страхуют вместе с домом.", "koi8_r"),
        ("Баню страхуют вместе с домом.", "cp866"),
    ],
)
def test_the_letters_of_a_text_suggest_its_encoding(text, encoding):
    assert guess_encoding(text.encode(encoding)) == encoding
