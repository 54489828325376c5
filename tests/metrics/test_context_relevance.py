import pytest
from helpers.each import each
from helpers.scripted import needed, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, Sample, context_relevance, split_sentences
from langchain_rageval.data.schema import Finding
from langchain_rageval.metrics.context_metrics import needed_share

SAMPLE = Sample(question="Where?", contexts=["First. Second. Third.", "Fourth."])


def scored(*replies, **changes):
    return context_relevance(scripted(*replies)).invoke(SAMPLE.model_copy(update=changes))


# Arithmetic


@each(
    ("numbers", "value"),
    [([], 0.0), (["1.2"], 0.25), (["2.1", "1.1"], 0.5), (["1.1", "1.2", "1.3", "2.1"], 1.0), (["1.1", "[1.1]"], 0.25)],
)
def test_it_is_the_share_of_the_sentences_that_are_needed(numbers, value):
    score = scored(needed(*numbers))
    assert (score.value, score.usage.calls) == (value, 1)
    assert (score.metric, score.aspect, score.direction) == ("context_relevance", "context", "higher")


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.randoms())
def test_it_is_from_0_to_1_in_any_order_and_1_only_when_all_are_needed(wanted, random):
    def value_of(flags):
        found = [
            Finding(kind="sentence", number=n, text="s", verdict="needed" if flag else "not needed", cites=[f"1.{n}"])
            for n, flag in enumerate(flags, 1)
        ]
        return needed_share({"sample": SAMPLE, "context_sentences": found}).number

    assert value_of(wanted) == sum(wanted) / len(wanted)
    assert (value_of(wanted) == 1.0) is all(wanted)
    assert value_of(random.sample(wanted, len(wanted))) == value_of(wanted)


def test_the_denominator_is_what_our_own_splitter_counts():
    contexts = ["Это стоит 5 тыс. руб. в год, т.е. немного. Так сказал г. Иванов!", "- один\n- два"]
    count = sum(len(split_sentences(text)) for text in contexts)
    assert scored(needed("1.1"), contexts=contexts).value == 1 / count
    assert count == 4


# Edges


@each("contexts", [[], [""], [" ", "\n"]])
def test_nothing_retrieved_is_zero_without_a_call(contexts):
    score = scored(contexts=contexts)
    assert (score.value, score.usage.calls, score.findings) == (0.0, 0, [])


def test_a_blank_chunk_adds_no_sentence():
    assert scored(needed("2.1"), contexts=[" ", "Only."]).value == 1.0


def test_votes_decide_sentence_by_sentence():
    judge = scripted(needed("1.1"), needed("1.1", "1.2"), needed("1.2", "2.1"))
    score = context_relevance(Judge(judge, draws=3)).invoke(SAMPLE)
    assert score.value == 0.5
    assert [finding.verdict for finding in score.findings if finding.kind == "agreement"] == [
        "0.67", "0.67", "1.00", "0.67",
    ]  # fmt: skip


# What it tells


def test_findings_are_the_sentences_in_order_each_under_its_number():
    score = scored(needed("2.1", reason="tells where"))
    assert [(f.kind, f.number, f.text, f.verdict, f.cites) for f in score.findings] == [
        ("sentence", 1, "First.", "not needed", ["1.1"]),
        ("sentence", 2, "Second.", "not needed", ["1.2"]),
        ("sentence", 3, "Third.", "not needed", ["1.3"]),
        ("sentence", 4, "Fourth.", "needed", ["2.1"]),
    ]
    assert [finding.reason for finding in score.findings] == ["", "", "", "tells where"]


@each(
    ("question", "numbers", "reason"),
    [
        ("Where?", ["2.1", "1.2"], "Needed sentences: 2 of 4 (1.2, 2.1)."),
        ("Where?", [], "Needed sentences: 0 of 4."),
        ("Где?", ["2.1", "1.2"], "Нужных предложений: 2 из 4 (1.2, 2.1)."),
        ("Где?", [], "Нужных предложений: 0 из 4."),
    ],
)
def test_the_reason_is_in_russian_or_else_in_english(question, numbers, reason):
    assert scored(needed(*numbers), question=question).reason == reason


def test_of_many_needed_sentences_ten_are_named():
    numbers = [f"1.{n}" for n in range(1, 13)]
    score = scored(needed(*numbers), contexts=["Yes. " * 12])
    assert score.reason == f"Needed sentences: 12 of 12 ({', '.join(numbers[:10])}, …)."


@pytest.mark.parametrize(("question", "reason"), [("Where?", "Nothing was retrieved."), ("Где?", "Ничего не найдено.")])
def test_that_nothing_was_retrieved_is_told_in_the_language_of_the_question(question, reason):
    assert scored(question=question, contexts=[]).reason == reason
