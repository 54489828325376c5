"""Testset: its rows, its files, running a chain on its questions, and the diff of two."""

import json
import re
from collections import Counter

from helpers.each import each, error_of
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.runnables.passthrough import RunnableAssign

from langchain_rageval import ConfigError, Sample, SampleError
from langchain_rageval.testset import Candidate, Passage, Testset, TestsetRow, Trial

ROW = TestsetRow(
    id="q1",
    question="Как застраховать баню?",
    contexts=["Баню страхуют вместе с домом."],
    reference="Вместе с домом.",
    evolution="reasoning",
    history=[
        Trial(kind="seed", question="Что с баней?", accepted=False, feedback="Неясно <b>."),
        Trial(kind="rewrite", question="Как застраховать баню?"),
    ],
    passage_ids=["p1"],
    spans=[("страхование.txt", 10, 39)],
    metadata={"page": 3},
)
OPEN = ROW.model_copy(update={"id": "q2", "question": "Кто победит в 2099 году?", "answerable": False})
TESTSET = Testset([ROW, OPEN], {"attempts": 5, "rejected": {"near-duplicate": 3}}, ["Offline."])


def test_the_repr_shows_counts_rejections_and_notes():
    assert (len(TESTSET), list(TESTSET), TESTSET[0]) == (2, TESTSET.rows, ROW)
    assert repr(Testset([])) == "Test set of 0 questions\n0 attempts"
    assert repr(TESTSET).splitlines() == [
        "Test set of 2 questions: 2 reasoning",
        "5 attempts; rejected: 3 near-duplicate",
        "Note: Offline.",
    ]


def test_a_notebook_shows_the_tree_with_everything_escaped():
    html = re.sub("</?bdi>", "", TESTSET._repr_html_())
    rejected_trial = "✗ <b>seed</b> Что с баней? <em>Неясно &lt;b&gt;.</em>"
    assert f'<li><div style="margin-left: 3em">{rejected_trial}</div></li>' in html
    assert "<li>✓ <b>rewrite</b> Как застраховать баню?</li>" in html
    for one, place in ((ROW, "страхование.txt 10–39: "), (ROW.model_copy(update={"spans": []}), "")):
        assert f"<li>{place}Баню страхуют вместе с домом.</li>" in re.sub("</?bdi>", "", one._repr_html_())
    lost = Candidate(passages=[Passage(text="Баня.", source="s", start=0, end=5)], question="Что?", rejected="unclear")
    assert "<b>unclear</b>" in re.sub("</?bdi>", "", Testset([ROW], rejected=[lost])._repr_html_())


def test_a_test_set_loaded_from_its_file_is_equal(tmp_path):
    TESTSET.to_jsonl(tmp_path / "t.jsonl")
    assert Testset.load(tmp_path / "t.jsonl") == TESTSET
    head, first, _ = map(json.loads, (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines())
    assert head["rageval_testset"]["yields"]["attempts"] == 5
    assert first["question"] == "Как застраховать баню?"


@each("content", ["", "no JSON", '{"rageval_report": {}}', '{"rageval_testset": {"yields": 1}}\n{}'])
def test_a_file_that_is_not_a_test_set_is_rejected(tmp_path, content):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    remedy = (
        f"; make one of its questions with `rageval generate DOCUMENTS --adopt {path}`, or ask a chain questions of "
        f"your own with answered_by(chain).invoke(load_samples({str(path)!r}))"
    )
    error = str(error_of(ConfigError, Testset.load, path))
    assert error.startswith(f"{path} is not a test set that Testset.to_jsonl wrote: ")
    assert error.endswith(remedy)
    assert ("its first line has no 'rageval_testset'" in error) == ("report" in content)


def test_other_rows_than_those_of_a_generator_are_refused():
    assert str(error_of(ConfigError, Testset, [{"question": "Why?"}])) == (
        "a Testset holds rows that a generator wrote, got dict; ask a chain questions of your own with "
        "answered_by(chain).invoke([...])"
    )


def test_paths_that_cannot_be_read_or_written_are_named(tmp_path):
    absent, folder = (
        error_of(ConfigError, Testset.load, tmp_path / "no"),
        error_of(ConfigError, TESTSET.to_jsonl, tmp_path),
    )
    assert str(absent) == f"{tmp_path / 'no'} cannot be read: No such file or directory"
    assert str(folder) == f"{tmp_path} cannot be written: Is a directory; choose another path"


def test_a_data_frame_has_a_line_for_each_row():
    frame = TESTSET.to_pandas()
    assert list(frame.columns) == list(TestsetRow.model_fields)
    assert list(frame.question) == [ROW.question, OPEN.question]
    assert list(Testset([]).to_pandas().columns) == list(frame.columns)


def test_samples_hold_the_reference_and_where_it_comes_from():
    sample, unanswered = TESTSET.to_samples()
    assert sample == Sample(
        id="q1",
        question=ROW.question,
        references=["Вместе с домом."],
        reference_contexts=ROW.contexts,
        reference_context_ids=["p1"],
        metadata={"page": 3, "evolution": "reasoning", "answerable": True, "spans": [["страхование.txt", 10, 39]]},
    )
    assert (unanswered.references, unanswered.metadata["answerable"]) == ([], False)


def test_every_runnable_and_function_is_asked_every_question():
    def by_text(question: str) -> str:
        return f"ответ на {question}"

    retrieved = [Document("Баню страхуют вместе с домом.", id="p1")]
    for chain in (
        lambda given: AIMessage(f"ответ на {given['input']}"),
        RunnablePassthrough.assign(context=lambda _: retrieved, answer=lambda g: f"ответ на {g['question']}"),
        by_text,
    ):
        samples = TESTSET.run(chain)
        assert [sample.answer for sample in samples] == [f"ответ на {row.question}" for row in TESTSET]
        assert [sample.references for sample in samples] == [["Вместе с домом."], []]
        if isinstance(chain, RunnableAssign):
            assert samples[0].contexts == ["Баню страхуют вместе с домом."]


def test_each_question_has_its_own_answer_also_behind_with_retry():
    """LangChain's batch of a Runnable with retries gives another item's result in the place of a failed one."""
    asked = Counter()

    def ask(given):
        question = given["question"]
        asked[question] += 1
        if question == "Никогда?" or (question == "Потом?" and asked[question] <= 2):
            raise ConnectionError(question)
        return f"ответ на {question}"

    chain = RunnableLambda(ask).with_retry(wait_exponential_jitter=False, stop_after_attempt=3)
    samples = Testset([row(text, question=text) for text in ("Сразу?", "Потом?", "Никогда?", "Тоже сразу?")]).run(chain)
    assert [sample.answer for sample in samples] == ["ответ на Сразу?", "ответ на Потом?", None, "ответ на Тоже сразу?"]
    assert (samples[2].metadata["error"], asked["Никогда?"]) == ("ConnectionError: Никогда?", 3)


def test_an_output_of_the_wrong_type_is_an_error_of_its_row_and_what_is_no_chain_is_refused():
    odd, _ = TESTSET.run(RunnableLambda(lambda _: {"answer": 5, "contexts": "a text"}))
    assert odd.metadata["error"].startswith("SampleError")
    assert "a chain must be a Runnable or a function of the question" in str(error_of(ConfigError, TESTSET.run, "gpt"))


def test_equal_questions_get_numbered_ids_and_other_questions_of_one_id_are_refused():
    assert [sample.id for sample in Testset([ROW, ROW, ROW]).to_samples()] == [ROW.id, f"{ROW.id}-2", f"{ROW.id}-3"]
    other = Testset([ROW, ROW.model_copy(update={"question": "Else?"})])
    assert str(error_of(SampleError, other.to_samples)) == (
        f"row 2 (index 1), question 'Else?': two different samples have the id {ROW.id!r}; give each its own, or leave "
        "the ids out"
    )


def row(name, **fields):
    values = {"question": f"Вопрос {name}?", "contexts": ["Поле."], "reference": "Ответ.", "evolution": "simple"}
    return TestsetRow(**{"id": name, **values, **fields})


OLD = Testset([row("a"), row("b"), row("c"), row("d")])
NEW = Testset([row("a"), row("b", reference="Другой."), row("e"), row("x", question="Вопрос d?")], number=2)


def test_a_difference_pairs_rows_by_id_and_else_by_question_and_is_shown():
    difference = OLD.diff(NEW)
    assert (difference.added, difference.dropped, difference.same) == ([NEW[2]], [OLD[2]], 2)
    assert difference.changed == {"b": {"reference": ("Ответ.", "Другой.")}}
    assert all([difference, OLD.diff(Testset(OLD.rows[:3])), Testset(OLD.rows[:3]).diff(OLD)])
    assert repr(difference) == (
        f"{OLD.version} -> {NEW.version}: 1 added, 1 dropped, 1 changed, 2 the same\n"
        "- c Вопрос c?\n"
        "+ e Вопрос e?\n"
        "~ b reference: Ответ. -> Другой."
    )
    changed = {"changed": {"b": {"reference": {"before": "Ответ.", "after": "Другой."}}}}
    versions = {"before": OLD.version, "after": NEW.version}
    assert difference.to_dict() == {**versions, "added": ["e"], "dropped": ["c"], **changed, "same": 2}
    html = Testset([]).diff(Testset([row("a", question="<script>alert(1)</script>")]))._repr_html_()
    assert ("<script>" in html, "&lt;script&gt;" in html) == (False, True)
    same = OLD.diff(Testset([row("a", history=ROW.history), *OLD.rows[1:]]))
    assert (bool(same), same.same, same.before == same.after) == (False, 4, True)


def test_the_version_depends_on_questions_and_answers():
    versions = {t.version for t in (OLD, Testset(OLD.rows[:3]), Testset([*OLD.rows[:3], row("d", reference="!")]))}
    assert len(versions) == 3
    assert Testset([row("a", passage_ids=["p"])]).version == Testset([row("a")]).version
    assert OLD.version == "1-8a9331e2"  # files of earlier versions of the package have it, too
