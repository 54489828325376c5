"""Context precision, recall, relevance and entity recall: arithmetic, edges, what is judged; and windows."""

import logging
from functools import partial

import pytest
from helpers.each import each
from helpers.offline import METRICS as BY_SCORE
from helpers.offline import UNJUDGED, own_metric
from helpers.scripted import (
    absent,
    answering,
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
from pydantic import BaseModel

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Prompt,
    Sample,
    Step,
    Value,
    abstention,
    answer_similarity,
    citations,
    claim_metrics,
    context_entity_recall,
    context_precision,
    context_recall,
    context_relevance,
    evaluate,
    llm_grader,
    ndcg_at,
    split_sentences,
)
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.context_metrics import found_share, needed_share, recalled_share
from langchain_rageval.metrics.faithfulness import supported_share
from langchain_rageval.prompts.layout import NumberedContexts

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
    [([N], 0.0, 0.0), ([Y] * 7, 1.0, 1.0), ([Y, N], 1.0, 0.5), ([N, Y, N, Y, N], (1 / 2 + 2 / 4) / 2, 0.4)],
)
def test_precision_by_rank_and_plain(useful, rank, plain):
    by_rank, by_number = scored(*useful), scored(*useful, weighting="plain")
    assert (by_rank.value, by_number.value) == (pytest.approx(rank), pytest.approx(plain))
    assert (by_rank.aspect, by_number.aspect) == ("ranking", "context")


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
        ("reference", {"references": [" "]}, "", "question"),
        ("answer", {"answer": "\n"}, "", "question"),
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
    SAMPLE.model_copy(update={"id": name, **changes})
    for name, changes in {"1": {}, "2": {"references": []}, "3": {"question": "Why?"}}.items()
]
NOTE = (
    "context_precision judged 2 against the reference, 1 against the answer: its mean mixes different measures; "
    "set against=... to use one of them."
)


@pytest.mark.parametrize(
    ("samples", "against", "told"),
    [(MIXED, "auto", [NOTE]), (MIXED[:1] * 2, "auto", []), (MIXED, "question", [])],
    ids=["two choices", "one choice", "no choice"],
)
def test_a_run_in_which_auto_chooses_differently_says_so_in_its_notes_and_in_the_log(samples, against, told, caplog):
    with caplog.at_level(logging.WARNING, "langchain_rageval"):
        report = evaluate(samples, context_precision(answering(useful_all), against=against), progress=False)
    assert [note for note in report.notes if "against" in note] == told
    assert [record.message for record in caplog.records if "against" in record.message] == told


def test_a_text_that_reads_like_a_choice_is_none():
    texts = {"references": ["against"], "contexts": ["against"]}
    samples = [Sample(id=answer, question="Where?", answer=answer, **texts) for answer in ("against", "else")]
    metrics = [answer_similarity(HashingEmbeddings()), context_precision(answering(useful_all), against="question")]
    report = evaluate(samples, metrics, progress=False)
    assert [row.scores["answer_similarity"].value for row in report.rows] == [1.0, 0.0]
    assert not any("against" in note for note in report.notes)


# What it tells


@each(
    ("question", "useful", "against", "reason"),
    [
        ("Where?", [N], "question", "Useful chunks: 0 of 1, judged against the question."),
        ("Где?", [N, Y, Y], "answer", "Полезных фрагментов: 2 из 3 (2, 3); основание — ответ."),
        ("Где?", [N], "question", "Полезных фрагментов: 0 из 1; основание — вопрос."),
    ],
)
def test_the_reason_names_the_useful_chunks_and_the_text(question, useful, against, reason):
    assert scored(*useful, sample=SAMPLE.model_copy(update={"question": question}), against=against).reason == reason


SAID = Sample(question="Where?", references=["There."], contexts=["Here. There.", "Nowhere."])


def test_references_without_facts_are_unscored_after_a_call_for_each_that_is_not_blank():
    for references, calls in ((["There."], 1), (["", " \n"], 0)):
        score = context_recall(scripted(statements())).invoke(SAID.model_copy(update={"references": references}))
        assert (score.value, score.unscored, score.usage.calls) == (None, "the reference states no facts", calls)


def test_several_references_count_as_the_union_of_their_statements():
    judge = scripted(statements("a", "b"), statements("b", "c"), verdicts(supported(1), absent(2), supported(3)))
    score = context_recall(judge).invoke(SAID.model_copy(update={"references": ["One.", "Two."]}))
    assert judge.inputs[2]["statements"] == [{"statement": n, "text": text} for n, text in enumerate("abc", 1)]
    assert (score.value, score.usage.calls) == (pytest.approx(2 / 3), 3)


SENTENCES = Sample(question="Where?", contexts=["First. Second. Third.", "Fourth."])


def relevant(*replies, **changes):
    return context_relevance(scripted(*replies)).invoke(SENTENCES.model_copy(update=changes))


# Relevance and entity recall


@each(
    ("numbers", "value"),
    [([], 0.0), (["1.2"], 0.25), (["2.1", "1.1"], 0.5), (["1.1", "1.2", "1.3", "2.1"], 1.0), (["1.1", "[1.1]"], 0.25)],
)
def test_it_is_the_share_of_the_sentences_that_are_needed(numbers, value):
    score = relevant(needed(*numbers))
    assert (score.value, score.usage.calls) == (value, 1)


def test_the_denominator_is_what_our_own_splitter_counts():
    contexts = ["Это стоит 5 тыс. руб. в год, т.е. немного. Так сказал г. Иванов!", "- один\n- два"]
    count = sum(len(split_sentences(text)) for text in contexts)
    assert relevant(needed("1.1"), contexts=contexts).value == 1 / count
    assert count == 4


def test_a_blank_chunk_adds_no_sentence():
    assert relevant(needed("2.1"), contexts=[" ", "Only."]).value == 1.0


@each(("count", "told"), [(0, ""), (10, " ({})"), (11, " ({}, …)")])
def test_of_many_needed_sentences_ten_are_named_in_the_order_of_the_contexts(count, told):
    numbers = [f"1.{n}" for n in range(1, count + 1)]
    reasons = {"Where?": "Needed sentences: {} of 12{}.", "Где?": "Нужных предложений: {} из 12{}."}
    for question, reason in reasons.items():
        score = relevant(needed(*numbers[::-1]), contexts=["Yes. " * 12], question=question)
        assert score.reason == reason.format(count, told.format(", ".join(numbers[:10])))


SOURCES = {"contexts": ["Henry the Lion founded it.", "It was in 1158."]}
SOURCES["references"] = ["Henry the Lion, in 1158, on the Isar."]
MUNICH = Sample(question="Who founded Munich?", answer="Henry.", **SOURCES)
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
def test_five_missing_entities_are_named(names, more):
    count = len(names)
    judge = scripted(entities(*names), found_in({count: ["1.1"]}))
    score = context_entity_recall(judge).invoke(MUNICH.model_copy(update=RUSSIAN))
    told = f"В контекстах названо 1 из {count} сущностей эталона; не найдено: «а», «б», «в», «г», «д»{more}."
    assert score.reason == told


@each("references", [["r"], ["r", "s"], ["r", " "], [" "]])
def test_references_that_name_nothing_leave_it_unscored(references):
    judge = scripted(entities(), entities(" "))
    score = context_entity_recall(judge).invoke(MUNICH.model_copy(update={"references": references}))
    assert (score.value, score.unscored, score.findings) == (None, "the reference names no entities", [])
    assert score.usage.calls == sum(map(bool, map(str.strip, references)))


def test_nothing_retrieved_is_zero_when_there_was_something_to_find():
    nothing = MUNICH.model_copy(update={"contexts": [" "]})
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
        marks = [{"number": n, "verdict": label, "cites": [f"1.{n}"]} for n, label in enumerate(order, 1)]
        found = [Finding(kind=kind, text="s", **mark) for mark in marks]
        number = share({"sample": SAMPLE, under: [*found, agreement]}).number
        assert number == given_labels.count(labels[0]) / len(given_labels)
        assert (number == 1.0) is (set(given_labels) == {labels[0]})


# Contexts beyond `max_context_tokens`: a metric reads them all, or score and report say what was not read


FILLER = [f"Пункт {n} говорит о другом предмете и ничего не решает." for n in range(120)]
FOUNDED = Sample(
    question="Когда основан Мюнхен?",
    answer="Мюнхен основан в 1158 году [121].",
    contexts=[*FILLER, "Мюнхен основан в 1158 году."],
    references=["Мюнхен основан в 1158 году."],
)
OTHERS = {*UNJUDGED, "answer_relevance", "answer_completeness", "claim_f1", "ndcg@5"}
METRICS = {
    **{name: build for name, build in BY_SCORE.items() if name not in OTHERS},
    "claim_metrics": claim_metrics,
    "citations": citations,
    "abstention": partial(abstention, given="contexts"),
    "ndcg@200": lambda judge: ndcg_at(200, llm_grader(judge)),
}


def noted(report):
    return {note.metric for note in report.notes if getattr(note, "code", "").startswith("contexts-")}


@pytest.mark.parametrize("name", METRICS)
def test_a_value_does_not_depend_on_the_window_or_the_report_says_so(name):
    def scored(limit):
        return evaluate([FOUNDED], METRICS[name](Judge(OfflineJudge(), max_context_tokens=limit)), progress=False)

    whole = scored(None)
    for limit in (500, 1000, 1500):
        windowed = scored(limit)
        for metric, score in windowed.rows[0].scores.items():
            expected = whole.rows[0].scores[metric]
            assert (score.value, score.unscored) == (expected.value, expected.unscored), (metric, limit)
        assert noted(windowed) == ({name} if name in ("rubric", "conciseness") else set())
    assert noted(whole) == set()


class Points(BaseModel):
    """Points that the contexts confirm."""

    confirmed: int


PROMPT = Prompt(instruction="Count the confirmed points.")


def confirmed(state):
    return Value(float(state["points"].confirmed))


def test_a_step_of_ones_own_is_asked_about_each_window():
    def scored(limit, **options):
        judge = Judge(OfflineJudge(), max_context_tokens=limit)
        options = {"prompts": PROMPT, "reads": ("answer", "contexts"), **options}
        step = Step(Points, offline=lambda _: Points(confirmed=1), **options)
        metric = own_metric(confirmed, "points", reads={"contexts"}, range=(0, 99), steps=step(judge))
        return evaluate([FOUNDED], metric, progress=False)

    assert scored(500).rows[0].scores["points"].value == 1
    assert noted(scored(500)) == {"points"}
    summed = scored(500, windows=lambda answers: Points(confirmed=sum(answer.confirmed for answer in answers)))
    score = summed.rows[0].scores["points"]
    assert score.value == score.usage.calls == len(NumberedContexts.of(FOUNDED.contexts).windows(500)) > 2
    assert noted(summed) == set()
    one = scored(None, windows=len)
    assert one.rows[0].scores["points"].value == 1
    assert one.rows[0].scores["points"].instrument != scored(None).rows[0].scores["points"].instrument
    failure = scored(500, windows=len).rows[0].scores["points"].failure
    assert failure.error == "ConfigError"
    assert failure.message == "windows returned int: it must return one Points for a list of them"
