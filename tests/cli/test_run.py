"""`rageval run`: from a test set and a chain to a file of answers that `rageval evaluate` reads."""

import json
import sys
from importlib import import_module, invalidate_caches
from textwrap import dedent

import pytest
from helpers.each import each
from helpers.samples import CONTEXTS, QUESTION

from langchain_rageval import Report, load_samples
from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow

SECOND = "Where does Munich lie?"
APP = """
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda

    TEXTS = ["Munich was founded in 1158 by Henry the Lion.", "It lies on the Isar."]
    FAILS = []
    asked = []


    class Search(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(text, id=str(n), metadata={"source": "munich.md"}) for n, text in enumerate(TEXTS)]


    retriever = Search()


    def answer(documents):
        return documents[0].page_content


    chain = retriever | answer


    def ask(question):
        asked.append(question)
        if question in FAILS or "*" in FAILS:
            raise ConnectionError("no index")
        if "Ctrl-C" in FAILS and len(asked) == 2:
            raise KeyboardInterrupt
        return chain.invoke(question)


    def build():
        return chain

"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A module with chains in the working directory."""
    (tmp_path / "munich_app.py").write_text(dedent(APP), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    invalidate_caches()
    yield import_module("munich_app")
    del sys.modules["munich_app"]


@pytest.fixture
def testset(tmp_path):
    """A test set of two questions in a file."""
    shared = {"contexts": CONTEXTS, "reference": "1158", "evolution": "simple"}
    rows = [TestsetRow(id=f"q{n}", question=text, **shared) for n, text in enumerate([QUESTION, SECOND])]
    Testset(rows).to_jsonl(tmp_path / "testset.jsonl")
    return "testset.jsonl"


@pytest.mark.parametrize("place", ["munich_app:chain", "munich_app.py:chain", "munich_app:ask", "munich_app:build"])
def test_it_asks_every_question_and_evaluate_reads_the_answers(rageval, app, testset, place):
    code, told, complaints = rageval("run", place, testset, "--quiet")
    assert (code, complaints) == (0, "")
    assert told == "2 questions asked: 2 without an error, 2 with contexts\nAnswers written to answers.jsonl\n"
    first, second = load_samples("answers.jsonl")
    assert (first.id, first.question, first.answer, first.references) == ("q0", QUESTION, CONTEXTS[0], ["1158"])
    assert (first.contexts, first.context_ids) == (CONTEXTS, ["0", "1"])
    assert first.metadata["context_sources"] == ["munich.md", "munich.md"]
    assert second.question == SECOND
    code, told, _ = rageval("evaluate", "answers.jsonl", "--metrics", "faithfulness", "--quiet")
    assert (code, "faithfulness" in told) == (0, True)


def test_it_takes_samples_with_other_names_and_writes_to_stdout(rageval, app, tmp_path):
    (tmp_path / "questions.jsonl").write_text(json.dumps({"q": QUESTION}) + "\n", encoding="utf-8")
    words = ["run", "munich_app:retriever", "questions.jsonl", "--fields", "question=q", "--out", "-", "--quiet"]
    code, told, complaints = rageval(*words)
    assert code == 0
    (line,) = told.splitlines()
    sample = json.loads(line)
    assert (sample["question"], sample["answer"], sample["contexts"]) == (QUESTION, None, CONTEXTS)
    assert complaints == "1 question asked: 1 without an error, 1 with contexts\n"


def test_it_says_on_stderr_which_column_was_read_as_what_and_warns_even_if_quiet(rageval, app, tmp_path, caplog):
    (tmp_path / "questions.csv").write_text("Вопрос;Тема\nГде?;звери\n", encoding="utf-8")
    code, _, complaints = rageval("run", "munich_app:chain", "questions.csv", "--fields", "references=Эталон")
    assert code == 0
    assert "questions.csv: question from 'Вопрос'; only kept as metadata: 'Тема'\n" in complaints
    assert rageval("run", "munich_app:chain", "questions.csv", "--quiet", "--fields", "references=Эталон")[2] == ""
    assert caplog.messages == ["questions.csv: no record has 'Эталон', which fields maps to references"] * 2


def test_a_failed_question_is_reported_and_resume_asks_it_again(rageval, app, testset):
    words = ["run", "munich_app:ask", testset, "--quiet", "--journal", "answers.db"]
    app.FAILS.append(SECOND)
    code, told, complaints = rageval(*words)
    assert (code, told.splitlines()[0]) == (0, "2 questions asked: 1 without an error, 1 with contexts")
    error = f"ConnectionError: no index (question '{SECOND}')"
    assert complaints == f"rageval: failed questions: 1; first error: {error}\n"
    app.FAILS.clear()
    app.asked.clear()
    code, told, complaints = rageval("resume", "answers.db")
    assert (code, complaints, app.asked) == (0, "", [SECOND])
    assert [sample.answer for sample in load_samples("answers.jsonl")] == [CONTEXTS[0]] * 2


def test_a_journal_is_used_again_only_for_the_stated_run(rageval, app, testset):
    words = ["run", "munich_app:ask", testset, "--quiet", "--journal", "answers.db", "--max-concurrency", 1]
    app.FAILS.append("Ctrl-C")
    assert rageval(*words, "--version", "1")[0] == 130
    app.FAILS.clear()
    app.FAILS.append(SECOND)
    state = "answers.db holds an unfinished run of version '1'"
    for stated, problem in (
        ([], state),
        (["--retry-failed"], state),
        (["--resume", "--version", "2"], f"{state}, not of version '2'"),
    ):
        app.asked.clear()
        code, told, complaints = rageval(*words, *stated)
        assert (code, told, app.asked) == (2, "", [])
        assert complaints.startswith(f"rageval: {problem}: pass the version of that run (version=, --version), ")
    assert rageval(*words, "--resume")[0] == 0
    assert app.asked == [SECOND]
    app.FAILS.clear()
    for more, asked, answered in ((["--version", "1"], 1, 1), (["--retry-failed"], 2, 2)):
        code, told, complaints = rageval(*words, *more)
        assert (code, app.asked) == (0, [SECOND] * asked)
        assert told.startswith(f"2 questions asked: {answered} without an error, {answered} with contexts\n")


def test_if_every_question_failed_the_file_is_written_and_the_code_is_2(rageval, app, testset):
    app.FAILS.append("*")
    code, _, complaints = rageval("run", "munich_app:ask", testset, "--quiet")
    error = f"ConnectionError: no index (question '{QUESTION}')"
    assert (code, complaints) == (2, f"rageval: every question failed (2); first error: {error}\n")
    assert [sample.metadata["error"] for sample in load_samples("answers.jsonl")] == ["ConnectionError: no index"] * 2


def test_an_interrupted_run_writes_what_it_has(rageval, app, testset):
    app.FAILS.append("Ctrl-C")
    words = ["run", "munich_app:ask", testset, "--quiet", "--max-concurrency", 1]
    code, told, complaints = rageval(*words)
    assert (code, complaints) == (130, "rageval: interrupted\n")
    assert told.startswith("1 of 2 questions asked: 1 without an error, 1 with contexts\n")
    assert [sample.question for sample in load_samples("answers.jsonl")] == [QUESTION]


def test_ci_asks_a_chain_scores_its_answers_and_gates_them(rageval, app, testset, tmp_path):
    words = ["ci", "munich_app:ask", testset, "--judge", "offline", "--fail-under", "faithfulness=0.8", "--quiet"]
    assert rageval(*words, "--out", "main.jsonl")[0] == 0
    for row in (report := Report.load("main.jsonl")).rows:
        assert (row.sample.answer, row.sample.references) == (CONTEXTS[0], ["1158"])
    assert report.name == "testset"
    again = ["--markdown", "m.md", "--journal", "run.db"]
    app.FAILS.append(SECOND)  # a failed question is no answer: the gate counts it as the worst value
    code, _, complaints = rageval(*words, *again)
    assert code == 1, complaints
    assert "failed questions: 1; first error: ConnectionError: no index" in complaints
    assert "no index" in (tmp_path / "m.md").read_text(encoding="utf-8")
    app.FAILS.clear()
    app.asked.clear()
    assert rageval("resume", "run.db")[0] == 0
    assert app.asked == [SECOND]
    app.FAILS.append("*")
    code, _, complaints = rageval(*words, *again[:2])
    assert (code, "every question failed (2)" in complaints) == (2, True)
    assert "every question failed" in (tmp_path / "m.md").read_text(encoding="utf-8")


PROBLEMS = [
    (["munich_app:ask"], "munich_app:ask is a chain: name its questions too, as in rageval ci app:chain q.jsonl"),
    (["munich_app:ask", "testset.jsonl", "--fail-under", "nothing=1"], "--fail-under nothing: not among --metrics"),
    (["munich_app:ask", "testset.jsonl", "--out", "testset.jsonl"], "--out testset.jsonl is the input file"),
    (["munich_app:ask", "none.jsonl"], "none.jsonl does not exist: pass the path of an existing file"),
    (["munich_app:none", "testset.jsonl"], "the chain munich_app:none cannot be imported"),
]


@each(("words", "problem"), PROBLEMS)
def test_ci_checks_everything_before_it_asks_a_chain(rageval, app, testset, words, problem):
    words = ["ci", *words, "--judge", "offline", "--fail-under", "faithfulness=0.8", "--quiet"]
    code, _, complaints = rageval(*words)
    assert (code, app.asked) == (2, [])
    assert problem in complaints
    assert (rageval(*words[:2], "testset.jsonl", "--fail-under", "faithfulness=0.8")[0], app.asked) == (2, [])
