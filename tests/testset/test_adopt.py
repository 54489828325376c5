"""Questions of users as rows: found, reviewed, answered and verified, or marked as unanswerable."""

import pytest
from helpers.each import each, error_of
from helpers.writers import Ring, Writer

from langchain_rageval import Budget, ConfigError, Sample, Testset, TestsetGenerator
from langchain_rageval.errors import EmptyTestsetError

DOCUMENTS = [f"Полис {n} стоит {n} рублей в год. Его оформляют в отделении {n}." for n in range(70)]


def generator(writer, **options):
    embeddings = Ring(same=lambda text: text.lower().removesuffix("?").strip(), near=0.1)
    return TestsetGenerator(writer.model, embeddings=embeddings, splitter=False, progress=False, **options)


def price(question):
    """Return the number of the policy in a question."""
    return next((word.strip("?") for word in question.split() if word.strip("?").isdigit()), "")


def writer_of_prices():
    """Return a model that answers questions about the price of a policy that a passage names."""

    def found(inputs):
        name = f"Полис {price(inputs['question'])} "
        return [passage["passage"] for passage in inputs["passages"] if name in passage["text"]]

    def review(inputs, _):
        clear = "Полис" in inputs["question"]
        return {"feedback": "О чём?", "standalone": clear, "answerable": bool(found(inputs))}

    def needed(inputs, _):
        return {"reason": "", "passages": found(inputs)}

    def answered(inputs, _):
        text = f"{price(inputs['question'])} рублей в год" if found(inputs) else ""
        return {"answerable": bool(text), "answer": text}

    return Writer(QuestionReview=review, NeededPassages=needed, ReferenceAnswer=answered)


QUESTIONS = [
    *(f"Сколько стоит Полис {n}?" for n in range(60)),
    *(f"Сколько стоит Полис {n}?" for n in range(500, 530)),  # no document names them
    *(f"сколько стоит полис {n}" for n in range(10)),  # again
]


@pytest.mark.parametrize("call", ["adopt", "aadopt"])
async def test_a_hundred_questions_are_answered_marked_or_counted_together(call):
    writer = writer_of_prices()
    given = generator(writer)
    testset = given.adopt(QUESTIONS, DOCUMENTS) if call == "adopt" else await given.aadopt(QUESTIONS, DOCUMENTS)
    assert (len(testset), testset.counts, testset.complete) == (90, {"adopted": 90}, True)
    assert [row.question for row in testset] == QUESTIONS[:90]
    assert [row.answerable for row in testset] == [True] * 60 + [False] * 30
    assert [row.metadata["asked"] for row in testset] == [2] * 10 + [1] * 80
    assert [row.reference for row in testset.rows[:60]] == [f"{n} рублей в год" for n in range(60)]
    assert all(row.contexts == [DOCUMENTS[n]] and row.evidence for n, row in enumerate(testset.rows[:60]))
    assert {row.reference for row in testset.rows[60:]} == {"В документах этого нет."}
    assert writer.total == testset.usage.calls == 60 * 4 + 30 * 2
    assert testset.usage.embedded == len(DOCUMENTS) + len(QUESTIONS)


def test_questions_are_texts_samples_rows_or_a_file_and_others_are_rejected(tmp_path):
    class Row:
        sample = Sample(question="Сколько стоит Полис 3?", metadata={"thread": "t-1"})

    given = generator(writer_of_prices())
    testset = given.adopt(
        ["Сколько стоит Полис 1?", {"question": "Сколько стоит Полис 2?"}, Row, "А когда?"], DOCUMENTS
    )
    assert [row.reference for row in testset] == ["1 рублей в год", "2 рублей в год", "3 рублей в год"]
    assert testset[2].metadata["thread"] == "t-1"
    assert (testset.yields, testset.complete) == ({"attempts": 4, "rejected": {"question rejected": 1}}, False)
    (tmp_path / "q.jsonl").write_text('{"question": "Сколько стоит Полис 1?"}\n', encoding="utf-8")
    assert given.adopt(str(tmp_path / "q.jsonl"), DOCUMENTS).rows[0].question == "Сколько стоит Полис 1?"
    testset.to_jsonl(tmp_path / "t.jsonl")
    assert Testset.load(tmp_path / "t.jsonl") == testset


def test_a_question_that_shares_nothing_with_the_documents_is_reviewed_with_one_passage():
    given = generator(writer_of_prices(), dedupe=None)
    (row,) = given.adopt(["Полис?"], ["Дом.", "Щавель."])
    assert (row.answerable, row.contexts) == (False, ["Дом."])


def test_redact_comes_before_everything_else(tmp_path):
    writer = writer_of_prices()
    given = generator(writer, journal=tmp_path / "run.db")

    def redact(given):
        text = (given if isinstance(given, str) else given.question).replace(", спрашивает Иван Петров", "")
        return text if isinstance(given, str) else given.model_copy(update={"question": text})

    texts = [f"Сколько стоит Полис {n}, спрашивает Иван Петров?" for n in range(2)]
    testset = given.adopt(texts, DOCUMENTS, redact=redact)
    assert given.adopt([Sample(question=text) for text in texts], DOCUMENTS, redact=redact) == testset
    testset.to_jsonl(tmp_path / "t.jsonl")
    journal = (tmp_path / "run.db").read_bytes().decode("utf-8", "ignore")
    for stored in (str(writer.model.requests), (tmp_path / "t.jsonl").read_text("utf-8"), journal):
        assert "Петров" not in stored
        assert "Полис" in stored


NO_FUNCTION = "redact must be a function, from a text to a text and from a Sample to a Sample, got str"


@each(
    ("questions", "options", "message"),
    [
        ([], {}, "adopt needs at least one question"),
        ("Сколько стоит?", {}, "there is no file 'Сколько стоит?'; a single question goes in a list"),
        (["?"], {"redact": lambda _: None}, "redact must return a str, got NoneType"),
        ([Sample(question="?")], {"redact": lambda sample: sample.question}, "redact must return a Sample, got str"),
        (["?"], {"documents": None}, "adopt needs the documents, or a generator with a vectorstore"),
        (["?"], {"redact": "x"}, NO_FUNCTION),
    ],
)
def test_what_cannot_be_adopted_is_refused_before_a_call(questions, options, message):
    writer = writer_of_prices()
    error = error_of(ConfigError, generator(writer).adopt, questions, **{"documents": DOCUMENTS, **options})
    assert (str(error), writer.total) == (message, 0)


def test_a_spent_budget_and_no_rows_are_named():
    given = generator(writer_of_prices(), budget=Budget(calls=5), max_concurrency=1)
    testset = given.adopt(QUESTIONS[:3], DOCUMENTS)
    assert (len(testset), testset.notes) == (1, ["1 of 3 rows were generated: the budget is spent."])
    with pytest.raises(EmptyTestsetError, match="question rejected"):
        given.adopt(["А когда?"], DOCUMENTS)
    assert generator(writer_of_prices(), allow_empty=True).adopt(["А когда?"], DOCUMENTS).rows == []
