"""The plan of a generation: calls and tokens by step without a model call."""

import re
from types import SimpleNamespace

import pytest
from helpers.each import each
from helpers.scripted import Scripted
from helpers.texts import corpus
from helpers.writers import Ring, Writer, documents, generator, offline, rejecting, undecided
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_rageval import ConfigError, Docstore
from langchain_rageval.testset import reasoning
from langchain_rageval.testset.plan import generation_table

DEFAULT = {"simple": 0.5, "reasoning": 0.25, "conditional": 0.15, "multi_context": 0.1}


@pytest.mark.gate
@each("closed_book", [False, True])
@each(
    ("distribution", "tree"),
    [
        (DEFAULT, False),
        (DEFAULT, True),
        ({"unanswerable": 1}, False),
        ({"follow_up": 1, "misspelt": 1, "multi_context": 1, "follow_up+voice": 1}, False),
    ],
)
def test_the_expected_calls_are_those_of_a_critic_that_rejects_nothing(distribution, tree, closed_book):
    writer = undecided() if "unanswerable" in distribution else rejecting()
    given = generator(writer, distribution, tree=tree, closed_book=writer.model if closed_book else None, dedupe=None)
    estimate = given.plan(documents(40), 8)
    assert writer.total == 0
    if tree:  # the rule-based writer repeats itself in a tree, so the calls are counted by hand
        assert estimate.calls == 2 * 4 + 8 * (3 + closed_book) + 6 * 4
        return
    testset = given.generate(documents(40), size=8)
    calls = {step: usage.calls for step, usage in testset.usage_by_step.items() if usage.calls}
    assert {step: planned.calls for step, planned in estimate.items() if planned.calls} == calls
    assert estimate.embedded == testset.usage.embedded


def test_the_upper_bound_counts_every_attempt_rewrite_and_second_try():
    estimate = generator(Writer(), {"reasoning": 1}, max_rewrites=1).plan(documents(20), 2)
    assert {step: (planned.calls, planned.most_calls) for step, planned in estimate.items() if planned.calls} == {
        "grade_passage": (2, 16),
        "extract_keyphrases": (2, 16),
        "write_question": (2, 16),
        "review_question": (2, 48),
        "reasoning": (8, 192),
        "find_passages": (2, 16),
        "write_answer": (2, 16),
        "check_answer": (2, 16),
    }
    assert (estimate.calls, estimate.most_calls) == (22, 336)
    assert estimate.tokens < estimate.most_tokens


@each("shares", [{"question": 0.6}, {"evolution": 0.8}, {"needed": 0.6}])
def test_no_critic_costs_more_than_the_upper_bound(shares):
    writer = rejecting(**shares)
    given = generator(writer, DEFAULT)
    estimate = given.plan(documents(60), 12)
    testset = given.generate(documents(60), size=12)
    assert estimate.calls < testset.usage.calls <= estimate.most_calls


def test_tokens_are_those_of_the_offline_writer_on_the_same_passages():
    docs = corpus("ru_wiki")
    for evolution, error in (("simple", 0.01), ("thematic", 0.05)):
        given = offline({evolution: 1})
        estimate = given.plan(docs, size=8)
        usage = given.generate(docs, size=8).usage
        assert estimate.calls == usage.calls
        assert estimate.tokens == pytest.approx(usage.input_tokens + usage.output_tokens, rel=error)


def test_own_steps_are_not_called_and_noted():
    def shout(candidate):
        raise AssertionError("a plan must not call the steps of the user")

    given = generator(Writer(), {reasoning | shout: 1}, steps={"question_filter": shout})
    estimate = given.plan(documents(9), 2)
    assert estimate.calls == 2 * (6 + 3)
    assert estimate.notes == [
        "question_filter cannot be planned: the model calls of your own step are unknown.",
        "shout cannot be planned: the model calls of your own step are unknown.",
        "Rejected questions cost more; a critic that rejects 20% at each filter costs up to 1.5 times as much.",
        "Repeated requests after an invalid reply or a lost call are not included.",
    ]


def test_a_plan_embeds_nothing_and_takes_a_docstore():
    embeddings = Ring()
    given = generator(Writer(), {"multi_context": 1}, embeddings=embeddings)
    estimate = given.plan(Docstore(documents(9), splitter=False, embeddings=embeddings), 2)
    assert (embeddings.batches, estimate["embed"].embedded) == ([], 11)


def test_documents_without_text_and_impossible_sizes_are_refused():
    given = generator(Writer(), DEFAULT)
    for call, nothing in ((given.plan, [""]), (given.generate, []), (given.generate, [Document(" ")])):
        with pytest.raises(ConfigError, match=r"^the documents hold no text to ask about$"):
            call(nothing)
    with pytest.raises(ConfigError, match=r"^size must be a whole number of at least 1, got 0$"):
        given.plan(documents(2), 0)


UNLIKE = [Document(text) for text in ("Поле.", "Щавель.", "Кирпич.")]


@each(
    ("distribution", "docs", "options", "embedded"),
    [
        ({"simple": 1}, documents(40), {}, 8),
        ({"simple": 1}, documents(40), {"dedupe": None}, 0),
        ({"unanswerable": 1}, documents(40), {}, 8 + 40 + 8),
        ({"unanswerable": 1, "simple": 1}, documents(40), {"dedupe": None}, 40 + 4),
        ({"unanswerable": 1}, documents(40), {"vectorstore": InMemoryVectorStore(Ring())}, 8),
        ({"multi_context": 1}, documents(40), {}, 8),
        ({"multi_context": 1, "simple": 1}, UNLIKE, {}, 8 + 3),
        ({"reasoning": 1, "simple": 1}, UNLIKE, {}, 8),
    ],
)
def test_passages_are_planned_to_be_embedded_only_for_evolutions_that_search_for_them(
    distribution, docs, options, embedded
):
    assert generator(Writer(), distribution, **options).plan(docs, 8).embedded == embedded


def test_money_is_planned_for_the_models_that_have_a_price_and_shown():
    class Cheap(Scripted):
        pass

    cheap = SimpleNamespace(model=Cheap())
    estimate = generator(cheap, critic=Scripted(), price={"Cheap": (10.0, 20.0)}).plan(documents(9), 3)
    assert [name for name, step in estimate.items() if step.money] == [*ANSWERED[:3]]
    step = estimate["write_answer"]
    assert step.output_tokens == 30 * step.calls
    assert step.money == pytest.approx((10 * step.input_tokens + 20 * step.output_tokens) / 1e6, rel=0.01)
    tokens_of_calls = 30 * step.most_calls
    most = 10 * (step.most_tokens - tokens_of_calls) + 20 * tokens_of_calls
    assert step.most_money == pytest.approx(most / 1e6, rel=0.01)
    assert (estimate.total.money, estimate.total.most_money) == (None, None)
    assert sum("Scripted" in note for note in estimate.notes) == 1
    assert "<td" in estimate._repr_html_()
    assert re.search(r"\ngrade_passage 3 calls, [\d,]+ tokens, 0 texts to embed, at most 24 calls, ", repr(estimate))
    headings, lines = generation_table(estimate)
    assert headings[-2:] == ("money", "at most")
    assert [line[-2:] == ("–", "–") for line in lines] == [line[0] not in ANSWERED for line in lines]


ANSWERED = ("extract_keyphrases", "write_question", "write_answer", "embed")


def test_a_plan_keeps_to_the_focus():
    topics = [Document(d.page_content * (1 + n), metadata={"topic": n}) for n, d in enumerate(documents(2))]
    tokens = [generator(Writer(), {"simple": 1}, focus={"topic": n}).plan(topics, 1).tokens for n in (0, 1)]
    assert tokens[0] < tokens[1]
    with pytest.raises(ConfigError, match=re.escape("focus: no passage has the topic 2; there are '0', '1'")):
        generator(Writer(), DEFAULT, focus={"topic": 2}).plan(topics)
