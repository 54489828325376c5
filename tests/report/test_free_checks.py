"""Checks of a run that cost no call."""

import pytest
from helpers.each import each, error_of
from helpers.reports import STATEMENT, paid, report_of, row, scored, unscored
from langchain_core.embeddings import Embeddings

from langchain_rageval import HashingEmbeddings, OfflineJudge, Report, answer_relevance, answer_similarity, evaluate
from langchain_rageval.data.loading import ROWS
from langchain_rageval.data.messages import CONTEXTS_FROM, NO_CONTEXTS
from langchain_rageval.data.notes import code_of
from langchain_rageval.errors import BelowThreshold
from langchain_rageval.report.free_checks import FreeChecks

BROKEN = {
    "html": ["<!DOCTYPE html><html>", "<html><body>502</body>", "502 Bad Gateway", "<h1>503 Service Unavailable</h1>"],
    "stack-trace": [
        "Traceback (most recent call last):\n  File",
        'Exception in thread "main" java.lang.NullPointerException',
        "java.util.concurrent.TimeoutException: 30 s",
        "TypeError: x is undefined\n    at main (app.js:1)",
    ],
    "outage": [
        "Sorry, the service is temporarily unavailable.",
        "Извините, сервис временно недоступен. Попробуйте позже.",
        "К сожалению, сервер сейчас перегружен.",
        "Leider ist der Dienst derzeit nicht verfügbar.",
        "Es tut mir leid, der Dienst ist zurzeit nicht erreichbar.",
    ],
}
HEALTHY = [
    "Yes.",
    "Да, до первого марта.",
    "I do not know.",
    "Das steht nicht in den Unterlagen.",
    "Спросите куратора: в регламенте этого нет.",
    "Error 502 means that the gateway got no answer; call the help desk.",
    "If the service is unavailable, write to the help desk.",
    "Служба поддержки работает с девяти.",
    "HTML pages begin with <html>.",
    "A Traceback shows where an exception was raised.",
    "Sorry, but the fee is not refunded.",
    "The service is available from nine to five.",
    "ValueError is raised for an invalid number.",
]


def answering(*answers, **sample):
    return Report([row(n, scored(1.0), answer=answer, question=f"Q{n}?", **sample) for n, answer in enumerate(answers)])


@each(("code", "answer"), [(code, answer) for code, answers in BROKEN.items() for answer in answers])
def test_an_answer_that_no_working_application_gives_is_named(code, answer):
    (note,) = FreeChecks(answering(answer, *HEALTHY).rows).notes()
    assert (note.code, note.fields) == (code, {"count": 1, "total": 1 + len(HEALTHY)})
    assert error_of(BelowThreshold, answering(answer, *HEALTHY).check, {"faithfulness": 0.5}).codes == [code]
    answering(answer, *HEALTHY).check({"faithfulness": 0.5}, allow={code})
    answering(answer, *HEALTHY * 4).check({"faithfulness": 0.5})  # under 5%: a note


def test_honest_answers_have_no_note():
    assert list(FreeChecks(answering(*HEALTHY).rows).notes()) == []


SAME = "The fee is due on the first of March of each year."


@each(
    ("same", "others", "references", "score", "codes"),
    [
        (5, 10, True, scored(1.0), ["same-answer"]),
        (4, 0, True, scored(1.0), []),
        (5, 25, True, scored(1.0), []),  # under a fifth: a note
        (9, 0, False, scored(1.0), []),
        (9, 0, True, unscored(), []),  # refusals in the team's own words
    ],
)
def test_one_answer_to_questions_with_different_references_is_a_problem(same, others, references, score, codes):
    told = [[f"R{n if references else 0}"] for n in range(same)]
    rows = [row(n, score, answer=SAME, question=f"Q{n}?", references=own) for n, own in enumerate(told)]
    rows += [row(n, score, answer=f"Number {n}.", question=f"Q{n}?") for n in range(same, same + others)]
    checks = FreeChecks(rows)
    assert [note.code for note in checks.problems(0.05, ())] == codes
    noted = references and same >= 5 and score.value
    assert [note.code for note in checks.notes()] == (["same-answer"] if noted else [])
    assert checks.problems(0.05, {"same-answer"}) == []


def test_verdicts_without_citations_are_a_problem_above_a_fifth():
    def verdicts(cited, uncited):
        bare = STATEMENT.model_copy(update={"cites": []})
        findings = [STATEMENT] * cited + [bare] * uncited
        scores = (scored(1.0, findings=[one], usage=paid(1, 1, 1, 0.0)) for one in findings)
        return FreeChecks(report_of(*scores).rows)

    assert [note.code for note in verdicts(10, 20).problems(0.05, ())] == ["no-citations"]
    assert [note.fields for note in verdicts(20, 5).notes()] == [{"count": 5, "total": 25}]
    assert verdicts(20, 5).problems(0.05, ()) == []
    assert list(verdicts(20, 0).notes()) == []


@each(
    ("answer", "more", "count"),
    [("", {}, 1), (" \n", {}, 1), (None, {}, 1), ("...", {}, 1), ("C", {}, 0), ("", {"answerable": False}, 0)],
)
def test_blank_answers_are_counted_but_for_questions_without_an_answer(answer, more, count):
    rows = [row(0, scored(1.0)), row(1, unscored(), answer=answer, metadata=more)]
    assert [note.fields["count"] for note in FreeChecks(rows).notes()] == ([1] if count else [])
    ranked = [row(1, scored(1.0, aspect="ranking"), answer=answer)]
    assert list(FreeChecks(ranked).notes()) == []


class OneVector(Embeddings):
    def embed_documents(self, texts):
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text):
        return [1.0, 0.0]


@each(("embeddings", "codes"), [(OneVector(), ["one-vector"]), (HashingEmbeddings(), ["offline-embeddings"])])
def test_one_vector_for_all_texts_is_named_and_fails_a_gate(embeddings, codes):
    texts = [(f"Когда платят взнос {n}?", f"Слон {n} летит.", [f"Взнос {n}."], []) for n in range(6)]
    rows = [dict(zip(("question", "answer", "references", "contexts"), own, strict=True)) for own in texts]
    report = evaluate(rows, answer_similarity(embeddings), progress=False)
    assert [code_of(note) for note in report.notes] == codes
    if codes == ["one-vector"]:
        assert report.summary()["answer_similarity"].mean == 1.0
        with pytest.raises(BelowThreshold, match=r"OneVector gave all of 12 different texts the same vector") as caught:
            report.check({"answer_similarity": 0.5})
        assert caught.value.codes == ["one-vector"]
    both = evaluate(rows, answer_relevance(OfflineJudge(), embeddings), progress=False)
    assert ("one-vector" in map(code_of, both.notes)) == (codes == ["one-vector"])


FROM, READ = {CONTEXTS_FROM: "retriever"}, {CONTEXTS_FROM: "prompt"}
DROPPED = {"contexts": ["x"], "retrieved": ["x", "y"]}


def chunks_read(retrieved, read, samples):
    return {"chunks-read": {"retrieved": retrieved, "read": read, "samples": samples}}


@each(
    ("fields", "notes"),
    [
        ([{"contexts": ["x"], "metadata": FROM}], {"unread-contexts": {"count": 1, "total": 1}}),
        ([{"contexts": ["x"], "metadata": FROM}] * 2 + [{}], {"unread-contexts": {"count": 2, "total": 3}}),
        ([{"contexts": [], "metadata": FROM}, {"metadata": FROM}, {"contexts": ["x"], "metadata": READ}], {}),
        ([{"contexts": ["x"], "metadata": FROM, "answer": ""}], {"blank": {"count": 1, "total": 1}}),
        ([{"metadata": {NO_CONTEXTS: True}}, {}], {"no-contexts": {"count": 1, "total": 2}}),
        ([{"metadata": {NO_CONTEXTS: True}, "answer": " "}], {"blank": {"count": 1, "total": 1}}),
        ([{"contexts": ["x", "y"], "metadata": {ROWS: 2}}, {}], {"joined-rows": {"count": 1, "total": 2}}),
        ([{"contexts": ["x"], "metadata": {ROWS: 2}}, {"metadata": {ROWS: 2}}, {"contexts": ["x", "y"]}], {}),
        ([{"contexts": ["x", "y"], "metadata": {ROWS: "2"}}], {}),
        ([{"contexts": ["x"], "retrieved": ["x", "y", "z"]}], chunks_read(3, 1, 1)),
        ([DROPPED, {"contexts": ["u", "v"], "metadata": READ}, {"contexts": ["w"]}], chunks_read(4, 3, 2)),
        ([{"retrieved": ["x", "y"]}], {}),
    ],
)
def test_contexts_that_no_model_read_and_chunks_that_were_dropped_are_counted(fields, notes):
    rows = [row(n, scored(1.0), **{"answer": f"Number {n}.", **own}) for n, own in enumerate(fields)]
    assert {note.code: note.fields for note in FreeChecks(rows).notes()} == notes


def test_a_run_without_any_answer_has_no_note_on_missing_ones():
    assert list(FreeChecks([row(n, unscored(), answer=None) for n in range(3)]).notes()) == []
    mixed = [row(0, scored(1.0, aspect="ranking"), scored(1.0, "other"), answer=None), row(1, scored(1.0))]
    assert [note.fields for note in FreeChecks(mixed).notes()] == [{"count": 1, "total": 2}]


def test_a_long_answer_is_no_message_about_an_outage_but_may_be_a_page():
    short, long = (f"Sorry, the service is unavailable. {'word ' * (count - 5)}" for count in (59, 60))
    page = f"<!DOCTYPE html><html> {'word ' * 99}"
    checks = [FreeChecks(answering(text, "Yes.").rows) for text in (short, long, page)]
    assert [[note.code for note in one.notes()] for one in checks] == [["outage"], [], ["html"]]


@each(("words", "codes"), [(7, []), (8, ["same-answer"])])
def test_short_answers_may_repeat(words, codes):
    rows = [row(n, scored(1.0), answer="word " * words, question=f"Q{n}?", references=[f"R{n}"]) for n in range(5)]
    assert [note.code for note in FreeChecks(rows).notes()] == codes
    others = [row(9 + n, scored(1.0), answer="other " * 8, question=f"P{n}?", references=[f"R{n}"]) for n in range(7)]
    (note,) = FreeChecks([*rows, *others]).notes()
    assert note.fields == {"count": 7, "total": 12}  # the most frequent one
