import logging

import pytest
from helpers.each import each
from helpers.scripted import answering, grades, human_of, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    Judge,
    Sample,
    aevaluate,
    answer_similarity,
    context_precision,
    evaluate,
)
from langchain_rageval.statistics.ranking import average_precision

SAMPLE = Sample(question="Where?", answer="There.", references=["Here."], contexts=["A.", "B.", "C."])
ALL_USEFUL = grades({1: True, 2: True, 3: True})


def scored(*useful, sample=SAMPLE, **options):
    contexts = [f"{n}." for n, _ in enumerate(useful, 1)]
    judge = scripted(grades(dict(enumerate(useful, 1))))
    return context_precision(judge, **options).invoke(sample.model_copy(update={"contexts": contexts}))


# Arithmetic

Y, N = True, False


@each(
    ("useful", "rank", "plain"),
    [
        ([Y], 1.0, 1.0),
        ([N], 0.0, 0.0),
        ([Y, N], 1.0, 0.5),
        ([N, Y], 0.5, 0.5),
        ([Y, N, Y], (1 + 2 / 3) / 2, 2 / 3),
        ([N, Y, Y], (1 / 2 + 2 / 3) / 2, 2 / 3),
        ([N, N, Y], 1 / 3, 1 / 3),
        ([N, N, N], 0.0, 0.0),
        ([Y] * 7, 1.0, 1.0),
        ([N, Y, N, Y, N], (1 / 2 + 2 / 4) / 2, 0.4),
        ([Y, *[N] * 9], 1.0, 0.1),
    ],
)
def test_precision_by_rank_and_plain(useful, rank, plain):
    assert scored(*useful).value == pytest.approx(rank)
    assert scored(*useful, weighting="plain").value == pytest.approx(plain)


def test_weighting_by_rank_is_of_the_ranking_and_plain_of_the_context():
    metrics = [context_precision(scripted(), weighting=weighting) for weighting in ("rank", "plain")]
    aspects = [(metric.name, metric.aspect, metric.direction) for metric in metrics]
    assert aspects == [("context_precision", "ranking", "higher"), ("context_precision", "context", "higher")]


def summed(useful):
    """The formula as it stands in the contract, step by step."""
    hits, total = 0, 0.0
    for rank, here in enumerate(useful, 1):
        if here:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


rankings = st.lists(st.booleans(), min_size=1, max_size=40)


@given(rankings)
def test_average_precision_is_the_sum_over_the_useful_ranks(useful):
    number = average_precision(useful)
    assert number == pytest.approx(summed(useful), abs=1e-12)
    assert 0.0 <= number <= 1.0
    assert (number == 0.0) is not any(useful)
    assert (number == 1.0) is (any(useful) and useful == sorted(useful, reverse=True))


@given(rankings, st.data())
def test_a_useful_chunk_that_moves_up_past_a_useless_one_raises_it(useful, data):
    swaps = [at for at in range(1, len(useful)) if useful[at] and not useful[at - 1]]
    if swaps:
        at = data.draw(st.sampled_from(swaps))
        better = [*useful[: at - 1], True, False, *useful[at + 1 :]]
        assert average_precision(better) > average_precision(useful)


@given(st.integers(1, 300), st.integers(0, 300))
def test_a_perfect_ranking_is_exactly_one_whatever_comes_after(first, rest):
    assert average_precision([True] * first + [False] * rest) == 1.0


@given(rankings, st.randoms())
def test_plain_precision_knows_no_order(useful, random):
    shuffled = random.sample(useful, len(useful))
    assert (
        scored(*shuffled, weighting="plain").value
        == scored(*useful, weighting="plain").value
        == sum(useful) / len(useful)
    )


# Edges


@each("contexts", [[], [""], [" ", "\n"]])
@each("weighting", ["rank", "plain"])
def test_nothing_retrieved_is_zero_without_a_call(contexts, weighting):
    metric = context_precision(scripted(), weighting=weighting)
    score = metric.invoke(SAMPLE.model_copy(update={"contexts": contexts}))
    assert (score.value, score.usage.calls) == (0.0, 0)


def test_a_blank_chunk_counts_as_a_useless_one():
    sample = SAMPLE.model_copy(update={"contexts": [" ", "B."]})
    assert context_precision(scripted(grades({2: True}))).invoke(sample).value == 0.5
    assert context_precision(scripted(grades({1: True, 2: True})), weighting="plain").invoke(sample).value == 0.5


@pytest.mark.parametrize("against", ["auto", "question"])
def test_neither_answer_nor_reference_is_needed_for_the_question(against):
    sample = Sample(question="Where?", contexts=["A."])
    assert context_precision(scripted(grades({1: True})), against=against).invoke(sample).value == 1.0


def test_votes_decide_chunk_by_chunk():
    judge = scripted(grades({1: Y, 2: N, 3: N}), grades({1: Y, 2: Y, 3: N}), grades({1: N, 2: Y, 3: N}))
    score = context_precision(Judge(judge, draws=3), against="question").invoke(SAMPLE)
    assert score.value == 1.0
    verdicts = [finding.verdict for finding in score.findings if finding.kind != "criterion"]
    assert verdicts == ["useful", "useful", "not useful", "0.67", "0.67", "1.00"]


# What is judged against


@each(
    ("against", "given_fields", "sent", "chosen"),
    [
        ("auto", {}, "Here.", "reference"),
        ("auto", {"references": ["Here.", "Or there."]}, "Here.\nOr there.", "reference"),
        ("auto", {"references": []}, "There.", "answer"),
        ("auto", {"references": [" "]}, "There.", "answer"),
        ("auto", {"references": [], "answer": None}, "", "question"),
        ("auto", {"references": [], "answer": " "}, "", "question"),
        ("reference", {}, "Here.", "reference"),
        ("answer", {}, "There.", "answer"),
        ("question", {}, "", "question"),
    ],
)
def test_chunks_are_judged_against_what_was_asked_for_or_the_best_there_is(against, given_fields, sent, chosen):
    judge = scripted(ALL_USEFUL)
    score = context_precision(judge, against=against).invoke(SAMPLE.model_copy(update=given_fields))
    assert judge.inputs == [{"question": "Where?", "answer": sent}]
    why = "chosen by auto" if against == "auto" else "set by the options"
    criteria = [(f.number, f.text, f.verdict, f.reason) for f in score.findings if f.kind == "criterion"]
    assert criteria == [(1, "against", chosen, why)]


def useful_all(messages):
    numbers = {int(line[1:-1]) for line in human_of(messages).splitlines() if line[1:-1].isdigit()}
    return grades(dict.fromkeys(numbers, True))


MIXED = [
    SAMPLE,
    SAMPLE.model_copy(update={"references": []}),
    SAMPLE.model_copy(update={"id": "x", "question": "Why?"}),
]
NOTE = (
    "context_precision judged 2 against the reference, 1 against the answer: its mean mixes different measures; "
    "set against=... to use one of them."
)


@pytest.mark.parametrize("entry_point", ["evaluate", "aevaluate"])
async def test_a_run_in_which_auto_chooses_differently_says_so_in_its_notes_and_in_the_log(entry_point, caplog):
    metric = context_precision(answering(useful_all))
    samples = [sample.model_copy(update={"id": str(n)}) for n, sample in enumerate(MIXED)]
    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        if entry_point == "evaluate":
            report = evaluate(samples, metric, progress=False)
        else:
            report = await aevaluate(samples, metric, progress=False)
    assert NOTE in report.notes
    assert [record.message for record in caplog.records if record.message == NOTE] == [NOTE]


@pytest.mark.parametrize("against", ["auto", "question"])
def test_a_run_in_which_it_chooses_one_says_nothing(against, caplog):
    samples = MIXED[:1] * 2 if against == "auto" else [s.model_copy(update={"id": str(n)}) for n, s in enumerate(MIXED)]
    report = evaluate(samples, context_precision(answering(useful_all), against=against), progress=False)
    assert not any("against" in note for note in report.notes)
    assert caplog.records == []


def test_a_text_that_reads_like_a_choice_is_none():
    samples = [
        Sample(id=answer, question="Where?", answer=answer, references=["against"], contexts=["against"])
        for answer in ("against", "else")
    ]
    metrics = [answer_similarity(HashingEmbeddings()), context_precision(answering(useful_all), against="question")]
    report = evaluate(samples, metrics, progress=False)
    assert [row.scores["answer_similarity"].value for row in report.rows] == [1.0, 0.0]
    assert not any("against" in note for note in report.notes)


# Options


@each(
    ("options", "message"),
    [
        ({"weighting": "ranked"}, "weighting must be one of rank, plain, got 'ranked'"),
        ({"weighting": None}, "weighting must be one of rank, plain, got None"),
        ({"against": "references"}, "against must be one of auto, reference, answer, question, got 'references'"),
    ],
)
def test_an_option_of_no_such_value_is_refused_when_the_metric_is_built(options, message):
    with pytest.raises(ConfigError, match=message):
        context_precision(scripted(), **options)


def test_the_instrument_tells_the_options_apart():
    judge = scripted()
    options = [{}, {"weighting": "plain"}, {"against": "reference"}, {"against": "answer"}, {"against": "question"}]
    assert len({context_precision(judge, **option).instrument for option in options}) == len(options)


# What it tells


def test_findings_are_the_chunks_in_retrieval_order():
    score = scored(N, Y, against="question")
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in score.findings] == [
        ("context", 1, "1.", "not useful", "r1"), ("context", 2, "2.", "useful", "r2"),
        ("criterion", 1, "against", "question", "set by the options"),
    ]  # fmt: skip


@each(
    ("question", "useful", "options", "reason"),
    [
        ("Where?", [N, Y, Y], {}, "Useful chunks: 2 of 3 (2, 3), judged against the reference."),
        ("Where?", [N], {"against": "answer"}, "Useful chunks: 0 of 1, judged against the answer."),
        ("Где?", [N, Y, Y], {}, "Полезных фрагментов: 2 из 3 (2, 3); основание — эталонный ответ."),
        ("Где?", [Y], {"against": "answer"}, "Полезных фрагментов: 1 из 1 (1); основание — ответ."),
        ("Где?", [N], {"against": "question"}, "Полезных фрагментов: 0 из 1; основание — вопрос."),
        ("Where?", [], {}, "Nothing was retrieved."),
        ("Где?", [], {}, "Ничего не найдено."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, useful, options, reason):
    assert scored(*useful, sample=SAMPLE.model_copy(update={"question": question}), **options).reason == reason


@pytest.mark.parametrize(("against", "blank"), [("reference", {"references": [" "]}), ("answer", {"answer": "\n"})])
def test_a_blank_text_leaves_the_question_alone_and_the_reason_says_so(against, blank):
    judge = scripted(ALL_USEFUL)
    score = context_precision(judge, against=against).invoke(SAMPLE.model_copy(update=blank))
    assert judge.inputs == [{"question": "Where?", "answer": ""}]
    assert score.reason.endswith("judged against the question.")
