"""answer_sheets: what models are given and what becomes of their answers; leaderboard: ranking of the models."""

import logging
import threading

import pytest
from helpers.each import each
from helpers.reports import failed, row, scored
from helpers.scripted import answering, scripted
from helpers.waiting import PATIENCE
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.runnables.base import coerce_to_runnable

from langchain_rageval import Finding, OfflineJudge, Report, Sample, Score, answer_sheets, evaluate, leaderboard, rubric
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.statistics import bounded_mean_interval, paired_difference

QUESTION = "Когда основан Мюнхен?"
SAMPLES = [
    Sample(id="a", question=QUESTION, contexts=["В 1158 году.", "На Изаре."], answer="old", references=["В 1158."]),
    Sample(id="b", question="When was Berlin founded?", contexts=[], metadata={"split": "test"}),
]
RETURN = "return a text, a message, Documents, or a mapping with an answer"
ECHO = RunnableLambda(lambda asked: f"Ответ: {asked['question']}")


def test_every_model_answers_every_question_under_its_own_name():
    sheets = answer_sheets({"one": ECHO, "two": RunnableLambda(lambda _: AIMessage("Yes."))}, SAMPLES)
    assert [(s.id, s.metadata["model"], s.answer) for s in sheets] == [
        ("a@one", "one", f"Ответ: {QUESTION}"),
        ("b@one", "one", "Ответ: When was Berlin founded?"),
        ("a@two", "two", "Yes."),
        ("b@two", "two", "Yes."),
    ]
    for sheet, sample in zip(sheets, SAMPLES * 2, strict=True):
        assert (sheet.contexts, sheet.references) == (sample.contexts, sample.references)
        assert sheet.metadata.items() >= sample.metadata.items()


def test_a_chain_is_given_question_and_contexts_in_the_usual_names():
    given = []
    answer_sheets({"m": RunnableLambda(lambda asked: given.append(asked) or "A.")}, SAMPLES[:1])
    found = {"contexts": ["В 1158 году.", "На Изаре."], "context": "В 1158 году.\n\nНа Изаре."}
    assert given == [{"question": QUESTION, "input": QUESTION, **found}]


def test_a_prompt_over_a_model_is_a_chain_and_has_its_own_words():
    model = scripted(AIMessage("В 1158."))
    chain = ChatPromptTemplate.from_template("{context}\n---\n{question}") | model
    (sheet,) = answer_sheets({"m": chain}, SAMPLES[:1])
    assert sheet.answer == "В 1158."
    assert model.asked[0][0].text == f"В 1158 году.\n\nНа Изаре.\n---\n{QUESTION}"


def test_a_chain_that_takes_a_text_is_given_the_question():
    def ask(question: str) -> str:
        return question.upper()

    sheets = answer_sheets({"m": RunnableLambda(ask)}, SAMPLES[:1])
    assert sheets[0].answer == QUESTION.upper()


@each(
    "wrapped",
    [
        lambda m: m,
        lambda m: m.with_retry(),
        lambda m: m.bind(stop=["x"]),
        lambda m: m.with_fallbacks([m]),
        lambda m: m | StrOutputParser(),
        lambda m: m.bind(stop=["x"]) | StrOutputParser() | str.strip,
    ],
)
def test_a_bare_model_is_instructed_to_answer_from_the_contexts_in_the_language_of_the_question(wrapped):
    model = answering(lambda _: AIMessage("A."))
    first, second = answer_sheets({"m": wrapped(model)}, SAMPLES, max_concurrency=1)
    assert (first.answer, second.answer) == ("A.", "A.")
    (system, human), (english, _) = model.asked
    assert system.text.startswith("Ответь на вопрос только по контекстам")
    assert human.text == f"Контексты:\n[1] В 1158 году.\n\n[2] На Изаре.\n\nВопрос: {QUESTION}"
    assert english.text.startswith("Answer the question by the contexts alone")


def test_a_bare_model_without_contexts_is_asked_the_question_alone():
    model = scripted(AIMessage("A."))
    answer_sheets({"m": model}, [{"question": QUESTION}])
    assert [message.text for message in model.asked[0]] == ["Ответь на вопрос, на его языке.", f"Вопрос: {QUESTION}"]


@each(
    ("chain", "gives_contexts"),
    [
        (lambda _: {"answer": "A.", "context": [Document("Own.")]}, True),
        (lambda _: {"answer": "A."}, False),
        (lambda _: "A.", False),
        (RunnablePassthrough.assign(answer=lambda _: "A."), False),
    ],
)
def test_contexts_that_a_chain_gives_replace_those_of_the_sample_with_their_ids(chain, gives_contexts):
    sample = SAMPLES[0].model_copy(update={"context_ids": ["d1", "d2"]})
    (sheet,) = answer_sheets({"m": coerce_to_runnable(chain)}, [sample])
    contexts, ids = (["Own."], None) if gives_contexts else (sample.contexts, ["d1", "d2"])
    assert (sheet.answer, sheet.contexts, sheet.context_ids) == ("A.", contexts, ids)


def test_a_failing_call_is_reported_and_does_not_affect_the_others(caplog):
    def ask(asked):
        if "Berlin" in asked["question"]:
            raise TimeoutError("too slow")
        return "A."

    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        sheets = answer_sheets({"good": ECHO, "bad": RunnableLambda(ask)}, SAMPLES)
    assert [sheet.answer is None for sheet in sheets] == [False, False, False, True]
    assert sheets[3].metadata == {"split": "test", "model": "bad", "error": "TimeoutError: too slow"}
    assert caplog.messages == ["1 of 4 answers failed; the first, b@bad: TimeoutError: too slow"]

    report = evaluate(iter(sheets), rubric(OfflineJudge()), progress=False)
    assert [row.sample.id for row, _ in report.failures()] == ["b@bad"]


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ({"contexts": ["A."]}, "the chain returned no answer"),
        ({}, f"SampleError: the chain returned no answer in []: {RETURN}"),
        (3, f"TypeError: the chain returned int: {RETURN}"),
    ],
)
def test_a_chain_without_an_answer_has_failed(output, problem, caplog):
    (sheet,) = answer_sheets({"m": RunnableLambda(lambda _: output)}, SAMPLES[:1])
    assert (SAMPLES[0].answer, sheet.answer) == ("old", None)
    assert caplog.messages == [f"1 of 1 answers failed; the first, {sheet.id}: {problem}"]


def test_a_key_in_the_error_of_a_model_is_redacted(caplog, monkeypatch):
    from langchain_openai import ChatOpenAI

    def refuse(*_, **__):
        raise PermissionError("wrong key sk-very-secret")

    monkeypatch.setattr(ChatOpenAI, "_generate", refuse)
    (sheet,) = answer_sheets({"m": ChatOpenAI(model="m", api_key="sk-very-secret")}, SAMPLES[:1])
    assert sheet.metadata["error"] == "PermissionError: wrong key ***"
    assert "secret" not in caplog.text


async def test_chains_run_in_a_limited_number_of_threads_inside_an_event_loop():
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2, timeout=PATIENCE)

    def ask(_):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return "A."

    sheets = answer_sheets({"one": RunnableLambda(ask), "two": RunnableLambda(ask)}, SAMPLES, max_concurrency=2)
    assert {sheet.answer for sheet in sheets} == {"A."}
    assert most == 2


def test_samples_may_come_from_a_file(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"question": "Q?", "context": "C."}\n', encoding="utf-8")
    (sheet,) = answer_sheets({"m": ECHO}, path)
    assert (sheet.answer, sheet.contexts) == ("Ответ: Q?", ["C."])
    path.write_text('{"question": "Q?"}\n{"queston": "Q?"}\n', encoding="utf-8")
    with pytest.raises(SampleError, match="lacks a question"):
        answer_sheets({"m": ECHO}, path)


@each(
    ("models", "samples", "most", "told"),
    [
        ({}, SAMPLES, 8, "models must be a mapping"),
        ([ECHO], SAMPLES, 8, "models must be a mapping"),
        ({"m": str}, SAMPLES, 8, "models must map names to chains or chat models, got 'm': type"),
        ({" ": ECHO}, SAMPLES, 8, "models must map names"),
        ({"m": ECHO}, SAMPLES[0], 8, "samples must be a collection"),
        *(({"m": ECHO}, SAMPLES, most, "max_concurrency must be a whole number of at least 1") for most in (0, 1.5)),
    ],
)
def test_invalid_arguments_raise(models, samples, most, told):
    with pytest.raises(ConfigError, match=told):
        answer_sheets(models, samples, max_concurrency=most)


# leaderboard: ranking, comparison of neighbours, and invalid input


def score(value, metric="rubric", grade=None, **more):
    findings = [] if grade is None else [Finding(kind="criterion", number=1, text="tone", verdict=str(grade))]
    more |= {"aspect": "answer", "findings": findings}
    return failed(metric, **more) if value is None else scored(value, metric, **more)


def report_of(**values):
    """A report of each model's values, question by question; None failed."""
    rows = []
    for model, own in values.items():
        for number, value in enumerate(own):
            given = value if isinstance(value, Score) else score(value)
            rows.append(row(len(rows), given, id=f"q{number}@{model}", question="?", metadata={"model": model}))
    return Report(rows)


GOOD, FAIR, POOR = [0.9] * 10, [0.8, 0.7, 0.7, 0.6] * 2 + [0.7, 0.8], [0.1] * 10


def test_models_are_ranked_best_first_with_mean_and_interval():
    board = leaderboard(report_of(poor=POOR, good=GOOD, fair=FAIR))
    assert list(board) == ["good", "fair", "poor"]
    assert [(standing.model, standing.place) for standing in board.rows] == [("good", 1), ("fair", 2), ("poor", 3)]
    assert board["fair"].mean == pytest.approx(sum(FAIR) / 10)
    assert (board["fair"].low, board["fair"].high) == bounded_mean_interval(FAIR)
    assert (board["good"].difference, board["good"].p_value, board["good"].tied) == (None, None, False)


def test_the_difference_to_the_model_above_comes_from_the_paired_test():
    board = leaderboard(report_of(good=GOOD, fair=FAIR))
    differences = [own - above for own, above in zip(FAIR, GOOD, strict=True)]
    fair = board["fair"]
    assert fair.difference == pytest.approx(sum(differences) / 10)
    expected = paired_difference(differences)
    assert (fair.difference_low, fair.difference_high) == (expected.low, expected.high)
    assert fair.p_value == expected.p_value < 0.05
    assert (fair.pairs, fair.tied) == (10, False)


def test_p_values_are_adjusted_for_several_comparisons():
    alone = leaderboard(report_of(good=GOOD, fair=FAIR))["fair"].p_value
    board = leaderboard(report_of(good=GOOD, fair=FAIR, poor=POOR))
    assert board["fair"].p_value == alone
    differences = [own - above for own, above in zip(POOR, FAIR, strict=True)]
    assert board["poor"].p_value == pytest.approx(2 * paired_difference(differences).p_value)


def test_models_without_a_significant_difference_are_tied():
    board = leaderboard(report_of(one=[1.0, 0.0] * 5, other=[0.0, 1.0] * 5, poor=[0.0] * 10))
    assert (board["other"].tied, board["other"].p_value) == (True, 1.0)
    assert board["poor"].tied is True  # 5 of 10 differ: p = 0.0625
    assert "1.000, tied" in str(board)


def test_with_too_few_questions_models_are_tied():
    board = leaderboard(report_of(one=[1.0] * 3, other=[0.0] * 3))
    assert (board["other"].tied, board["other"].p_value, board["other"].difference) == (True, None, -1.0)
    assert "too few pairs" in str(board["other"])


def test_only_questions_that_both_have_a_value_for_are_compared():
    board = leaderboard(report_of(one=[1.0] * 10, other=[None, *[0.0] * 9]))
    assert (board["other"].pairs, board["other"].scored, board["other"].failed) == (9, 9, 1)
    assert "9 of 10 answers" in str(board["other"])
    assert board.notes == ["other: 1 of 10 answers have no value; the mean is of the rest."]


def test_a_model_with_nothing_scored_is_last_and_has_no_mean():
    board = leaderboard(report_of(none=[None, None], some=[0.0, 0.0]))
    assert list(board) == ["some", "none"]
    assert (board["none"].mean, board["none"].difference, board["none"].pairs) == (None, None, 0)
    assert str(board["none"]) == "2. none – – (0 of 2 answers)"


def test_models_with_different_questions_are_ranked_but_not_compared():
    report = report_of(one=[1.0, 1.0], other=[0.5, 0.5])
    rows = [r.model_copy(update={"sample": r.sample.model_copy(update={"id": f"x{r.index}"})}) for r in report.rows]
    board = leaderboard(rows)
    assert list(board) == ["one", "other"]
    assert board["other"].tied
    assert board.notes[0].startswith("No sample is in both reports.")


def test_where_lower_is_better_the_lowest_mean_is_first():
    values = {name: [score(value, "harmfulness", direction="lower")] * 8 for name, value in (("a", 1.0), ("b", 0.0))}
    board = leaderboard(report_of(**values))
    assert list(board) == ["b", "a"]
    assert "lower is better" in str(board)


def test_mean_grades_of_a_rubric_are_shown():
    board = leaderboard(report_of(one=[score(1.0, grade=3), score(0.5, grade=2)], other=[score(0.0, grade=0)] * 2))
    assert (board["one"].grades, board["other"].grades) == ({"tone": 2.5}, {"tone": 0.0})
    assert "<th>tone</th>" in board._repr_html_()
    assert "<td>2.50</td>" in board._repr_html_()
    assert list(board.to_pandas()["grade.tone"]) == [2.5, 0.0]


def test_different_instruments_are_noted():
    board = leaderboard(report_of(a=[score(1.0, instrument="x")] * 2, b=[score(0.0, instrument="y")] * 2))
    assert board.notes[0].startswith("Different instruments")


def test_the_metric_is_the_rubric_or_the_only_one_or_named():
    rows = report_of(a=[1.0], b=[0.0]).rows
    both = [r.model_copy(update={"scores": {**r.scores, "tone": score(1 - float(r.scores["rubric"]))}}) for r in rows]
    assert list(leaderboard(Report(both))) == ["a", "b"]
    assert list(leaderboard(Report(both), "tone")) == ["b", "a"]
    others = [r.model_copy(update={"scores": {name: score(1.0) for name in ("x", "y")}}) for r in rows]
    with pytest.raises(ConfigError, match="name the metric; the report has x, y"):
        leaderboard(Report(others))
    with pytest.raises(ConfigError, match="no metric 'z'; it has x, y"):
        leaderboard(Report(others), "z")


def test_samples_without_a_model_are_left_out_and_counted():
    report = report_of(a=[1.0])
    nameless = report.rows[0].model_copy(update={"sample": Sample(question="?")})
    assert leaderboard([*report.rows, nameless]).notes == ["Left out: 1 sample without the name of a model."]
    with pytest.raises(ConfigError, match="no sample names its model"):
        leaderboard([nameless])
