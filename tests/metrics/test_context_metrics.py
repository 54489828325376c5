"""Context precision, recall, relevance and entity recall: arithmetic, edges, and what is judged."""

import logging
from functools import partial

import pytest
from helpers.each import each
from helpers.scripted import (
    absent,
    answering,
    contradicted,
    entities,
    found_in,
    grades,
    human_of,
    needed,
    scripted,
    statements,
    supported,
    verdicts,
)
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import (
    HashingEmbeddings,
    Sample,
    aevaluate,
    answer_similarity,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    split_sentences,
)
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.context_metrics import found_share, needed_share, recalled_share
from langchain_rageval.metrics.faithfulness import supported_share

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
    by_rank, by_number = scored(*useful), scored(*useful, weighting="plain")
    assert (by_rank.value, by_number.value) == (pytest.approx(rank), pytest.approx(plain))
    assert (by_rank.aspect, by_number.aspect, by_rank.direction) == ("ranking", "context", "higher")


# Edges


PLAIN = partial(context_precision, weighting="plain")


@each("contexts", [[], [""], [" ", "\n"]])
@each("build", [context_precision, PLAIN, context_recall, context_relevance])
def test_nothing_retrieved_is_zero_without_a_call(build, contexts):
    for question, reason in (("Where?", "Nothing was retrieved."), ("Где?", "Ничего не найдено.")):
        sample = SAMPLE.model_copy(update={"question": question, "contexts": contexts})
        score = build(scripted()).invoke(sample)
        assert (score.value, score.usage.calls) == (0.0, 0)
        assert contexts or score.reason == reason


@each("weighting", ["rank", "plain"])
def test_a_blank_chunk_counts_as_a_useless_one(weighting):
    sample = SAMPLE.model_copy(update={"contexts": [" ", "B."]})
    assert context_precision(scripted(grades({2: True})), weighting=weighting).invoke(sample).value == 0.5


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


# What it tells


@each(
    ("question", "useful", "options", "reason"),
    [
        ("Where?", [N, Y, Y], {}, "Useful chunks: 2 of 3 (2, 3), judged against the reference."),
        ("Where?", [N], {"against": "answer"}, "Useful chunks: 0 of 1, judged against the answer."),
        ("Где?", [N, Y, Y], {}, "Полезных фрагментов: 2 из 3 (2, 3); основание — эталонный ответ."),
        ("Где?", [Y], {"against": "answer"}, "Полезных фрагментов: 1 из 1 (1); основание — ответ."),
        ("Где?", [N], {"against": "question"}, "Полезных фрагментов: 0 из 1; основание — вопрос."),
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


SAID = Sample(question="Where?", references=["There."], contexts=["Here. There.", "Nowhere."])


def recalled(*replies, sample=SAID, **changes):
    return context_recall(scripted(*replies)).invoke(sample.model_copy(update=changes))


# Arithmetic


def test_it_is_the_share_of_the_references_statements_that_the_contexts_support():
    score = recalled(statements("a", "b", "c", "d"), verdicts(supported(1), absent(2), contradicted(3), supported(4)))
    assert score.value == 0.5
    assert (score.metric, score.aspect, score.direction) == ("context_recall", "context", "higher")
    assert score.usage.calls == 2


# Edges


def test_a_reference_without_facts_is_unscored_after_one_call():
    score = recalled(statements())
    assert (score.value, score.unscored, score.usage.calls) == (None, "the reference states no facts", 1)


def test_blank_references_are_unscored_without_a_call():
    score = recalled(references=["", " \n"])
    assert (score.unscored, score.usage.calls) == ("the reference states no facts", 0)


def test_several_references_count_as_the_union_of_their_statements():
    judge = scripted(statements("a", "b"), statements("b", "c"), verdicts(supported(1), absent(2), supported(3)))
    score = context_recall(judge).invoke(SAID.model_copy(update={"references": ["One.", "Two."]}))
    assert judge.inputs[2]["statements"] == [
        {"statement": n, "text": text} for n, text in enumerate("abc", 1)
    ]  # fmt: skip
    assert (score.value, score.usage.calls) == (pytest.approx(2 / 3), 3)


SENTENCES = Sample(question="Where?", contexts=["First. Second. Third.", "Fourth."])


def relevant(*replies, **changes):
    return context_relevance(scripted(*replies)).invoke(SENTENCES.model_copy(update=changes))


# Arithmetic


@each(
    ("numbers", "value"),
    [([], 0.0), (["1.2"], 0.25), (["2.1", "1.1"], 0.5), (["1.1", "1.2", "1.3", "2.1"], 1.0), (["1.1", "[1.1]"], 0.25)],
)
def test_it_is_the_share_of_the_sentences_that_are_needed(numbers, value):
    score = relevant(needed(*numbers))
    assert (score.value, score.usage.calls) == (value, 1)
    assert (score.metric, score.aspect, score.direction) == ("context_relevance", "context", "higher")


def test_the_denominator_is_what_our_own_splitter_counts():
    contexts = ["Это стоит 5 тыс. руб. в год, т.е. немного. Так сказал г. Иванов!", "- один\n- два"]
    count = sum(len(split_sentences(text)) for text in contexts)
    assert relevant(needed("1.1"), contexts=contexts).value == 1 / count
    assert count == 4


def test_a_blank_chunk_adds_no_sentence():
    assert relevant(needed("2.1"), contexts=[" ", "Only."]).value == 1.0


# What it tells


@each(
    ("question", "numbers", "reason"),
    [
        ("Where?", ["2.1", "1.2"], "Needed sentences: 2 of 4 (1.2, 2.1)."),
        ("Where?", [], "Needed sentences: 0 of 4."),
        ("Где?", ["2.1", "1.2"], "Нужных предложений: 2 из 4 (1.2, 2.1)."),
        ("Где?", [], "Нужных предложений: 0 из 4."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english_of_context_relevance(question, numbers, reason):
    assert relevant(needed(*numbers), question=question).reason == reason


@each(("count", "more"), [(9, ""), (10, ""), (11, ", …"), (12, ", …")])
def test_of_many_needed_sentences_ten_are_named(count, more):
    numbers = [f"1.{n}" for n in range(1, count + 1)]
    score = relevant(needed(*numbers), contexts=["Yes. " * 12])
    assert score.reason == f"Needed sentences: {count} of 12 ({', '.join(numbers[:10])}{more})."


MUNICH = Sample(
    question="Who founded Munich?",
    answer="Henry.",
    contexts=["Henry the Lion founded it.", "It was in 1158."],
    references=["Henry the Lion, in 1158, on the Isar."],
)
NAMED = entities("Henry the Lion", "1158", "Isar")
RUSSIAN = {"question": "Кто основал Мюнхен?"}


def test_the_share_of_entities_that_the_contexts_name():
    judge = scripted(NAMED, found_in({1: ["1.1"], 2: ["2.1"]}))
    score = context_entity_recall(judge).invoke(MUNICH)
    assert score.value == 2 / 3
    assert score.reason == "The contexts name 2 of 3 entities of the reference; not found: «Isar»."
    assert [(f.kind, f.text, f.verdict, f.cites) for f in score.findings] == [
        ("entity", "Henry the Lion", "found", ["1.1"]),
        ("entity", "1158", "found", ["2.1"]),
        ("entity", "Isar", "not found", []),
    ]
    assert score.usage.calls == 2


@each(("names", "more"), [("абвгде", ""), ("абвгдежз", " и ещё 2")])
def test_the_reason_is_in_the_language_of_the_sample(names, more):
    count = len(names)
    judge = scripted(entities(*names), found_in({count: ["1.1"]}))
    score = context_entity_recall(judge).invoke(MUNICH.model_copy(update=RUSSIAN))
    told = f"В контекстах названо 1 из {count} сущностей эталона; не найдено: «а», «б», «в», «г», «д»{more}."
    assert score.reason == told
    whole = scripted(entities("a"), found_in({1: ["1.1"]}))
    assert context_entity_recall(whole).invoke(MUNICH).reason == "The contexts name 1 of 1 entity of the reference."


@each("references", [["r"], ["r", "s"], ["r", " "], [" "]])
def test_references_that_name_nothing_leave_it_unscored(references):
    judge = scripted(entities(), entities(" "))
    score = context_entity_recall(judge).invoke(MUNICH.model_copy(update={"references": references}))
    assert (score.value, score.unscored, score.findings) == (None, "the reference names no entities", [])
    assert score.usage.calls == sum(map(bool, map(str.strip, references)))


@each("contexts", [[], [""], [" "]])
def test_nothing_retrieved_is_zero_when_there_was_something_to_find(contexts):
    nothing = MUNICH.model_copy(update={"contexts": contexts})
    score = context_entity_recall(scripted(NAMED)).invoke(nothing)
    assert (score.value, score.usage.calls, len(score.findings)) == (0.0, 1, 3)
    assert context_entity_recall(scripted(entities())).invoke(nothing).value is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "The contexts name 12 of 12 entities of the reference; surplus entities of the judge dropped: 988."),
        (RUSSIAN, "В контекстах названо 12 из 12 сущностей эталона; отброшено лишних сущностей из ответа судьи: 988."),
    ],
)
def test_the_reason_says_how_many_surplus_entities_were_dropped(change, reason):
    found = found_in({number: ["1.1"] for number in range(1, 13)})
    judge = scripted(entities(*(f"entity {number}" for number in range(1_000))), found, found)
    score = context_entity_recall(judge).invoke(MUNICH.model_copy(update=change))
    assert (score.value, score.reason, score.usage.calls) == (1.0, reason, 3)


# The share of each of them, and of faithfulness

SHARES = {
    "faithfulness": (supported_share, "statement", "answer_verdicts", ["supported", "contradicted", "absent"]),
    "recall": (recalled_share, "reference_statement", "reference_verdicts", ["supported", "contradicted", "absent"]),
    "relevance": (needed_share, "sentence", "context_sentences", ["needed", "not needed"]),
    "entity recall": (found_share, "entity", "entity_verdicts", ["found", "not found"]),
}


@pytest.mark.parametrize("name", SHARES)
@given(data=st.data())
def test_a_share_counts_the_best_label_and_no_agreement_in_any_order(name, data):
    share, kind, under, labels = SHARES[name]
    given_labels = data.draw(st.lists(st.sampled_from(labels), min_size=1, max_size=49))
    agreement = Finding(kind="agreement", number=1, text="s", verdict="1.00")
    for order in (given_labels, data.draw(st.permutations(given_labels))):
        found = [
            Finding(kind=kind, number=n, text="s", verdict=label, cites=[f"1.{n}"]) for n, label in enumerate(order, 1)
        ]
        number = share({"sample": SAMPLE, under: [*found, agreement]}).number
        assert number == given_labels.count(labels[0]) / len(given_labels)
        assert (number == 1.0) is (set(given_labels) == {labels[0]})
