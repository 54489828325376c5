"""Files that other programs wrote; `tests/fixtures/tables/make.py` says how."""

from pathlib import Path

import pytest
from helpers.each import each

from langchain_rageval.data.loading import load_samples

FOLDER = Path(__file__).parent.parent / "fixtures" / "tables"
QUESTION, ANSWER, REFERENCE = "Где живут слоны?", "Слоны живут в Африке.", "В Африке и в Азии."
RETRIEVED = ["Слоны живут в Африке; их два вида.", 'Слон, или "хоботное", весит пять тонн.']
GOLD = ["Слоны живут в Африке и в Азии."]
WEIGHT = "Сколько весит слон, кг?"


def fields_of(sample):
    return sample.question, sample.answer, sample.contexts, sample.references


@pytest.mark.parametrize(
    "name", ["openpyxl.xlsx", "pandas.xlsx", "libreoffice_cp1251.csv", "libreoffice_utf16.tsv", "libreoffice_utf8.csv"]
)
def test_a_russian_spreadsheet_is_read_in_every_dialect(name):
    if name.endswith("xlsx"):
        pytest.importorskip("openpyxl")
    samples = list(load_samples(FOLDER / name))
    assert [fields_of(sample) for sample in samples] == [
        (QUESTION, ANSWER, RETRIEVED[:1], [REFERENCE]),
        (WEIGHT, "5000", RETRIEVED[1:], ["5000"]),
    ]
    assert [sample.metadata for sample in samples] == [{"Тема": "звери"}, {}]


@each(
    ("name", "number"),
    [
        ("pandas_lists.csv", "5000.0"),
        ("pandas_cp1251.csv", "5000,0"),
        ("pandas_arrays.csv", "5000.0"),
        ("pandas.parquet", "5000"),
        ("pandas_columns.json", "5000"),
        ("pandas_split.json", "5000"),
        ("pandas_index.json", "5000"),
        ("pandas_lines.json", "5000"),
        ("lists_by_column.json", "5000"),
    ],
)
def test_every_file_of_pandas_gives_the_same_lists_and_its_missing_values_are_missing(name, number):
    samples = list(load_samples(FOLDER / name))
    assert [fields_of(sample) for sample in samples] == [
        (QUESTION, None, RETRIEVED, [REFERENCE]),
        (WEIGHT, number, RETRIEVED[1:], []),
    ]
    assert [sample.metadata for sample in samples] == [{}, {}]


@pytest.mark.parametrize("suffix", ["json", "csv", "jsonl"])
def test_in_files_of_deepeval_the_retrieval_context_is_retrieved_and_the_context_is_gold(suffix):
    (sample,) = load_samples(FOLDER / f"deepeval.{suffix}")
    assert fields_of(sample) == (QUESTION, ANSWER, RETRIEVED, [REFERENCE])
    assert sample.reference_contexts == GOLD
    (golden,) = load_samples(FOLDER / f"deepeval_goldens.{suffix}")
    assert fields_of(golden) == (QUESTION, None, None, [REFERENCE])
    assert golden.reference_contexts == GOLD


@pytest.mark.parametrize("name", ["ragas.csv", "ragas.jsonl", "ragas_pandas.csv"])
def test_files_of_ragas_are_read(name):
    (sample,) = load_samples(FOLDER / name)
    assert fields_of(sample) == (QUESTION, ANSWER, RETRIEVED, [REFERENCE])
    assert sample.reference_contexts == GOLD


def test_the_contexts_of_a_test_set_of_ragas_0_1_are_those_of_the_reference():
    (sample,) = load_samples(FOLDER / "ragas_0_1_testset.csv")
    assert fields_of(sample) == (QUESTION, None, None, [REFERENCE])
    assert sample.reference_contexts == GOLD


def test_the_outputs_of_a_langsmith_data_set_are_the_reference():
    (sample,) = load_samples(FOLDER / "langsmith_dataset.jsonl")
    assert fields_of(sample) == (QUESTION, None, None, [REFERENCE])
    assert sample.id == "00000000-0000-0000-0000-000000000001"


def test_the_table_of_a_langsmith_experiment_has_answer_and_reference_and_the_id_of_the_example():
    (sample,) = load_samples(FOLDER / "langsmith_experiment.csv")
    assert fields_of(sample) == (QUESTION, ANSWER, RETRIEVED, [REFERENCE])
    assert sample.id == "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("name", ["mlflow_trace.json", "mlflow_traces.csv"])
def test_a_trace_of_mlflow_gives_the_root_the_retrieved_documents_and_the_expectation(name):
    (sample,) = load_samples(FOLDER / name)
    assert fields_of(sample) == (QUESTION, ANSWER, RETRIEVED, [REFERENCE])
    assert sample.context_ids == ["d1", "d2"]


def test_a_record_of_trulens_has_question_and_answer():
    (sample,) = load_samples(FOLDER / "trulens.csv")
    assert fields_of(sample) == (QUESTION, ANSWER, None, [])
    assert "record_json" not in sample.metadata


@pytest.mark.parametrize(
    "name",
    ["langchain_serialized.jsonl", "langchain_documents.jsonl", "langchain_documents.csv", "langchain_messages.jsonl"],
)
def test_documents_and_messages_of_langchain_are_read_however_they_were_written(name):
    (sample,) = load_samples(FOLDER / name)
    assert fields_of(sample) == (QUESTION, ANSWER, RETRIEVED, [])
    assert sample.context_ids == ["d1", "d2"]


def test_messages_to_dict_is_a_conversation():
    (sample,) = load_samples(FOLDER / "langchain_messages_to_dict.jsonl")
    assert fields_of(sample) == (QUESTION, ANSWER, None, [])


def test_every_file_of_the_folder_is_named_in_this_test():
    own = Path(__file__).read_text(encoding="utf-8")
    names = {path.name for path in FOLDER.iterdir()} - {"make.py", "README.md"}
    assert {name for name in names if name not in own and not name.startswith("deepeval")} == set()
