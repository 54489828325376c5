import pytest
from helpers.each import each
from helpers.scripted import absent, contradicted, scripted, statements, supported, verdict, verdicts
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Sample, context_recall
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.context_metrics import recalled_share

SAMPLE = Sample(question="Where?", references=["There."], contexts=["Here. There.", "Nowhere."])


def scored(*replies, sample=SAMPLE, **changes):
    return context_recall(scripted(*replies)).invoke(sample.model_copy(update=changes))


def value_of(labels, question="Where?"):
    found = [Finding(kind="reference_statement", number=n, text=f"s{n}.", verdict=v) for n, v in enumerate(labels, 1)]
    return recalled_share({"sample": SAMPLE.model_copy(update={"question": question}), "reference_verdicts": found})


# Arithmetic


def test_it_is_the_share_of_the_references_statements_that_the_contexts_support():
    score = scored(statements("a", "b", "c", "d"), verdicts(supported(1), absent(2), contradicted(3), supported(4)))
    assert score.value == 0.5
    assert (score.metric, score.aspect, score.direction) == ("context_recall", "context", "higher")
    assert score.usage.calls == 2


labels = st.lists(st.sampled_from(["supported", "contradicted", "absent"]), min_size=1, max_size=40)


@given(labels, st.randoms())
def test_it_is_from_0_to_1_in_any_order_and_1_only_when_all_are_supported(given_labels, random):
    number = value_of(given_labels).number
    assert number == given_labels.count("supported") / len(given_labels)
    assert (number == 1.0) is (set(given_labels) == {"supported"})
    assert value_of(random.sample(given_labels, len(given_labels))).number == number


# Edges


@each("contexts", [[], [""], [" ", "\n"]])
def test_nothing_retrieved_is_zero_without_a_call(contexts):
    score = scored(contexts=contexts)
    assert (score.value, score.usage.calls, score.reason) == (0.0, 0, "Nothing was retrieved.")


def test_a_reference_without_facts_is_unscored_after_one_call():
    score = scored(statements())
    assert (score.value, score.unscored, score.usage.calls) == (None, "the reference states no facts", 1)


def test_blank_references_are_unscored_without_a_call():
    score = scored(references=["", " \n"])
    assert (score.unscored, score.usage.calls) == ("the reference states no facts", 0)


def test_no_answer_is_needed():
    assert SAMPLE.answer is None
    assert context_recall(scripted()).reads == {"question", "references", "contexts"}


def test_several_references_count_as_the_union_of_their_statements():
    judge = scripted(statements("a", "b"), statements("b", "c"), verdicts(supported(1), absent(2), supported(3)))
    score = context_recall(judge).invoke(SAMPLE.model_copy(update={"references": ["One.", "Two."]}))
    assert judge.inputs[2]["statements"] == [
        {"statement": n, "text": text} for n, text in enumerate("abc", 1)
    ]  # fmt: skip
    assert (score.value, score.usage.calls) == (pytest.approx(2 / 3), 3)


def test_equal_references_are_extracted_once():
    score = scored(statements("a"), verdicts(supported(1)), references=["There.", "There."])
    assert (score.value, score.usage.calls) == (1.0, 2)


# What it tells


def test_findings_are_the_references_statements_with_their_evidence():
    score = scored(statements("a", "b"), verdicts(absent(2), verdict(1, "supported", "1.2", "[2.1]", reason="said")))
    assert [(f.kind, f.number, f.text, f.verdict, f.reason, f.cites) for f in score.findings] == [
        ("reference_statement", 1, "a", "supported", "said", ["1.2", "2.1"]),
        ("reference_statement", 2, "b", "absent", "because", []),
    ]


@pytest.mark.parametrize(
    ("question", "given_labels", "reason"),
    [
        ("Where?", ["supported", "absent"], "The contexts support 1 of 2 statements; not found: «s2»."),
        ("Где?", ["supported", "contradicted"], "Контексты подтверждают 1 из 2 утверждений; противоречит: «s2»."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, given_labels, reason):
    assert value_of(given_labels, question).reason == reason


@pytest.mark.parametrize(("question", "reason"), [("Where?", "Nothing was retrieved."), ("Где?", "Ничего не найдено.")])
def test_that_nothing_was_retrieved_is_told_in_the_language_of_the_question(question, reason):
    assert scored(question=question, contexts=[]).reason == reason
