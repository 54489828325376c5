"""The generator: exact counts and calls, every branch driven, failures that stop nothing, the same set twice."""

import asyncio
import random
import time
from math import inf

import pytest
from helpers.each import each, error_of
from helpers.stored import assert_stored, plain
from helpers.texts import corpus
from helpers.writers import Killed, Ring, Writer, documents, dying, generator, offline, rejecting, undecided

from langchain_rageval import Budget, ConfigError, HashingEmbeddings, OfflineJudge
from langchain_rageval.errors import JournalError
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.run.journal import Journal
from langchain_rageval.testset import Docstore, TestsetGenerator, conditional, reasoning, simple, unanswerable
from langchain_rageval.testset.evolutions import EVOLUTIONS

NO = {"feedback": "нет", "standalone": False, "answerable": True}


def in_thread(given, docs, **options):
    return asyncio.to_thread(given.generate, docs, **options)


@pytest.fixture(params=[in_thread, TestsetGenerator.agenerate])
def made(request):
    """Generate by either door."""
    return request.param


# Counts and calls


async def test_an_unanswerable_row_has_no_reference_in_its_sample(made):
    writer = undecided()
    testset = await made(generator(writer, {unanswerable: 1}), documents(9), size=2)
    assert [row.reference for row in testset] == ["В документах этого нет."] * 2
    assert [sample.references for sample in testset.to_samples()] == [[], []]
    assert writer.total == 2 * 7


@pytest.mark.parametrize("count", [20, 2_000])
async def test_the_cost_does_not_depend_on_the_size_of_the_corpus_and_the_closed_book_takes_one_more(made, count):
    writer, embeddings = Writer(), Ring()
    shares = {"simple": 2, "reasoning": 2, "multi_context": 1}
    given = generator(writer, shares, embeddings=embeddings, closed_book=writer.model)
    await made(given, documents(count), size=10)
    assert (writer.total, writer.calls["DegradedAnswer"]) == (4 * 8 + 6 * 12, 10)
    assert sum(embeddings.batches) == 10  # the questions, to find duplicates


async def test_passages_are_embedded_in_batches_if_a_second_one_is_needed_and_no_entity_leads_to_it(made):
    writer, embeddings = Writer(Entities=lambda *_: {"entities": []}), Ring()
    await made(generator(writer, {"multi_context": 1}, embeddings=embeddings), documents(200), size=3)
    assert (sum(embeddings.batches), max(embeddings.batches) <= 64, len(embeddings.batches) <= 6) == (203, True, True)


async def test_passages_are_not_embedded_if_entities_lead_to_a_second_one(made):
    writer, embeddings = Writer(), Ring()
    testset = await made(generator(writer, {"multi_context": 1}, embeddings=embeddings), documents(200), size=3)
    assert sum(embeddings.batches) == 3  # the questions, to find duplicates
    once = ("PassageGrades", "Keyphrases", "Entities", "NeededPassages", "ReferenceAnswer", "Verdicts")
    assert writer.calls == {**dict.fromkeys(once, 3), "Question": 9, "QuestionReview": 6}
    for row in testset:
        (first, *others), bridge = row.contexts, row.metadata["bridge"]
        assert len(bridge) == len(others) > 0
        assert all(entity in first and entity in other for entity, other in zip(bridge, others, strict=True))


def test_shares_need_not_add_up_to_one_and_names_may_be_composed():
    writer = Writer()
    given = generator(writer, {"simple": 2, "reasoning+conditional": 1, reasoning | conditional: 1}, dedupe=1)
    assert given.dedupe == 1  # the largest cosine
    assert given.distribution == {simple: 0.5, reasoning | conditional: 0.5}
    assert given.generate(documents(9), size=4).counts == {"simple": 2, "reasoning+conditional": 2}


# What is rejected


async def test_a_passage_that_is_no_good_gives_way_to_another(made):
    def grades(inputs, _):
        good = 3 if "номер 1" in inputs["passage"] else 1
        return {"reason": "", "clarity": good, "depth": good, "structure": good, "relevance": good}

    writer = Writer(PassageGrades=grades)
    testset = await made(generator(writer), documents(10), size=1)
    assert ["номер 1:" in row.contexts[0] for row in testset] == [True]
    assert testset.yields["attempts"] == 1 + testset.yields["rejected"].get("passage rejected", 0)


async def test_a_corpus_of_which_nothing_is_good_ends_with_the_reasons(made):
    writer = Writer(PassageGrades=lambda *_: {"reason": "", "clarity": 1, "depth": 1, "structure": 1, "relevance": 1})
    testset = await made(generator(writer), documents(5), size=3)
    assert (len(testset), testset.complete) == (0, False)
    assert testset.yields["rejected"] == {"passage rejected": testset.yields["attempts"]}
    assert testset.notes == ["0 of 3 rows were generated: see yields."]
    assert writer.total == 5


async def test_what_does_not_evolve_is_tried_from_another_question_and_then_from_another_passage(made):
    writer = Writer(QuestionComparison=lambda *_: {"reason": "", "deeper": False, "broader": False})
    testset = await made(generator(writer, {"reasoning": 1}), documents(20), size=1)
    assert testset.yields["rejected"] == {"not evolved": 8}
    assert writer.calls["PassageGrades"] == 4  # each passage twice, with another key phrase


class Scaled(Ring):
    """Vectors of another length."""

    def __init__(self, length, **options):
        super().__init__(**options)
        self.length = length

    def vector(self, text):
        return [self.length * number for number in super().vector(text)]


async def test_near_duplicates_are_found_by_their_embeddings_whatever_the_length_of_the_vectors(made):
    async def count(*length, dedupe=0.95, **options):
        given = generator(Writer(), embeddings=Scaled(*length, **options), dedupe=dedupe)
        return len(await made(given, documents(20), size=3))

    same = {"same": lambda text: text if text[-1] != "?" else "all questions are one"}
    assert [await count(length, **same) for length in (0.1, 1.0, 10.0)] == [1, 1, 1]
    assert [await count(length) for length in (0.1, 1.0, 0.0, inf)] == [3, 3, 3, 3]
    assert await count(1.0, **same, dedupe=None) == 3


async def test_more_rows_than_there_are_key_phrases_end_with_the_reason(made):
    testset = await made(generator(Writer()), documents(1), size=5)
    assert len(testset) == 3
    assert testset.yields["rejected"]["no key phrase left"] > 0
    remedy = "add documents, or pass TestsetGenerator(splitter=...) for shorter passages"
    assert testset.notes == [f"3 of 5 rows were generated: the key phrases of 1 passage are used up: {remedy}."]


async def test_few_documents_are_split_into_shorter_passages_for_many_rows(made):
    texts = [" ".join(f"{n}-й пункт правил {name} описан здесь подробно." for n in range(30)) for name in "абв"]
    given = generator(Writer(), dedupe=None, splitter=None)
    few, many = [await made(given, texts, size=size) for size in (9, 20)]
    assert {row.contexts[0] for row in few} == {*texts}
    assert (len(many), many.complete) == (20, True)
    assert all(len(row.contexts[0]) <= 3 * sum(map(len, texts)) // 20 for row in many)
    assert given.refresh(many, texts).changes["kept"] == [row.id for row in many]
    own = await made(generator(Writer(), splitter=False), texts, size=20)
    whole = await made(given, Docstore(texts, embeddings=Ring()), size=20)
    assert {row.contexts[0] for row in own} == {row.contexts[0] for row in whole} == {*texts}


# What fails


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_garbage_in_three_replies_of_ten_costs_calls_and_no_rows(made, seed):
    chance = random.Random(seed)
    garbage = {title: lambda *_: "{" if chance.random() < 0.3 else None for title in ("Question", "QuestionReview")}
    writer = Writer(**garbage)
    testset = await made(generator(writer, {"simple": 1, "reasoning": 1}), documents(40), size=10)
    assert testset.counts == {"simple": 5, "reasoning": 5}


async def test_a_step_that_fails_rejects_its_candidate_alone(made, caplog):
    writer = Writer(Keyphrases=lambda _, before: RuntimeError("lost") if before < 2 else None)
    testset = await made(generator(writer), documents(6), size=4)
    assert (len(testset), testset.yields) == (4, {"attempts": 6, "rejected": {"failed: RuntimeError": 2}})
    assert caplog.messages == ["extract_keyphrases: RuntimeError: lost"] * 2


@pytest.mark.parametrize(("size", "attempts"), [(1, 5), (3, 6), (20, 20)])
async def test_a_model_that_never_answers_ends_the_run_after_five_attempts_or_a_round(made, size, attempts):
    writer = Writer(PassageGrades=lambda *_: RuntimeError("no such model"))
    testset = await made(generator(writer, {"simple": 1}), documents(40), size=size)
    assert testset.yields == {"attempts": attempts, "rejected": {"failed: RuntimeError": attempts}}
    assert testset.notes == [
        "The first failure: RuntimeError: no such model",
        f"0 of {size} rows were generated: the last {attempts} attempts failed.",
    ]


async def test_an_accepted_question_ends_a_row_of_failures(made):
    writer = Writer(PassageGrades=lambda _, before: RuntimeError("lost") if before else None)
    testset = await made(generator(writer, max_concurrency=1), documents(40), size=2)
    assert testset.yields == {"attempts": 7, "rejected": {"failed: RuntimeError": 6}}
    assert testset.notes[-1] == "1 of 2 rows were generated: the last 5 attempts failed."


# The same set


def ordered(testset):
    return [(row.question, row.reference, row.evolution, row.passage_ids, row.history) for row in testset]


MIXED = {"simple": 0.4, "reasoning": 0.3, "multi_context": 0.3}


def whimsical():
    """Rejects here and there: a question for good, or its first wording."""

    def fickle(inputs, _):
        number = sum(map(ord, inputs["passages"][0]["text"]))
        return NO if number % 3 == 0 or (number % 3 == 1 and "точнее" not in inputs["question"]) else None

    return Writer(QuestionReview=fickle)


async def test_the_same_seed_gives_the_same_set_and_another_one_another(made):
    one = await made(generator(whimsical(), MIXED), documents(40), size=20, seed=7)
    other = await made(generator(whimsical(), MIXED), documents(40), size=20, seed=7)
    assert one == other
    assert sum(one.yields["rejected"].values()) > 0
    assert ordered(one) != ordered(await made(generator(whimsical(), MIXED), documents(40), size=20, seed=8))


async def test_doors_concurrency_and_the_order_in_which_answers_come_change_nothing():
    class Late(Writer):
        def answer(self, messages):
            time.sleep(random.random() / 200)
            return super().answer(messages)

    changed = rejecting(question=0.3, evolution=0.5, needed=0.2).changed
    given = [generator(Late(**changed), MIXED, max_concurrency=n, size=12, seed=3) for n in (1, 4, 32)]
    docs = documents(60)
    sets = [await in_thread(one, docs) for one in given]
    assert sets[0] == sets[1] == sets[2] == await given[1].agenerate(docs)
    assert sets[0].rejected
    assert given[1].invoke(docs) == await given[1].ainvoke(docs) == sets[0]
    assert sorted(given[2].stream(docs), key=sets[0].rows.index) == sets[0].rows


async def test_two_generators_with_different_models_do_not_meet():
    one, other = Writer(), Writer(Question=lambda *_: None)
    docs = documents(20)
    sets = await asyncio.gather(generator(one).agenerate(docs, size=5), generator(other).agenerate(docs, size=6))
    assert [len(made) for made in sets] == [5, 6]
    assert (one.total, other.total) == (35, 42)


def test_the_critic_may_be_another_model():
    writer, critic = Writer(), Writer()
    given = TestsetGenerator(writer.model, critic.model, Ring(), {"reasoning": 1}, splitter=False, progress=False)
    given.generate(documents(5), size=2)
    assert writer.calls.keys() == {"Keyphrases", "Question", "ReferenceAnswer"}
    checks = {"PassageGrades", "QuestionReview", "QuestionComparison", "NeededPassages", "Verdicts"}
    assert critic.calls.keys() == checks


# Journal and budget


async def test_what_a_journal_holds_is_not_paid_for_again(made, tmp_path):
    path = tmp_path / "run.db"
    clean = await made(generator(whimsical(), MIXED, max_rewrites=0), documents(40), size=12)
    undisturbed = whimsical()
    await made(generator(undisturbed, MIXED, max_rewrites=0), documents(40), size=12)

    writer = dying(whimsical(), 40)
    with pytest.raises((Killed, BaseExceptionGroup, asyncio.CancelledError)):
        await made(generator(writer, MIXED, max_rewrites=0, journal=path, max_concurrency=2), documents(40), size=12)
    spent = writer.total
    rest = dying(whimsical(), inf)
    assert await made(generator(rest, MIXED, max_rewrites=0, journal=path), documents(40), size=12) == clean
    # Four candidates were under way, each in a step of one call: what a step has asked is kept when the step is done.
    assert spent + rest.total <= undisturbed.total + 4
    again = dying(whimsical(), inf)
    assert await made(generator(again, MIXED, max_rewrites=0, journal=path), documents(40), size=12) == clean
    assert again.total == 0


async def test_a_journal_is_of_one_configuration_and_closed_unless_it_is_the_users(made, tmp_path, monkeypatch):
    writers, closed, path = (Writer(), Writer()), [], tmp_path / "run.db"
    monkeypatch.setattr(Journal, "close", lambda self: closed.append(self))
    for writer, journal, rewrites in zip(writers, (path, Journal(path)), (2, 1), strict=True):
        await made(generator(writer, journal=journal, max_rewrites=rewrites), documents(9), size=3)
    assert (writers[1].total > 0, len(closed)) == (True, 1)


async def test_a_journal_that_cannot_be_used_is_an_error(made, tmp_path):
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(JournalError, match="damaged or not a journal"):
        await made(generator(Writer(), journal=tmp_path / "text.db"), documents(9), size=3)


@each("most", [1, 16])
async def test_a_budget_ends_the_run_with_what_there_is(made, most):
    writer = Writer()
    testset = await made(generator(writer, budget=Budget(calls=20), max_concurrency=most), documents(30), size=10)
    assert len(testset) == 2
    assert writer.total == 14
    assert testset.yields["rejected"] == {"the budget is spent": 8}
    assert testset.notes == ["2 of 10 rows were generated: the budget is spent."]


@each(("calls", "count"), [(6, 5), (0, 0)])  # the seventh review is the first of the second round
def test_an_interrupted_run_gives_what_there_is(calls, count):
    def review(inputs, before):
        if before == calls:
            raise KeyboardInterrupt
        return NO if before == 0 else None

    given = generator(Writer(QuestionReview=review), max_rewrites=0, max_concurrency=1, allow_empty=False)
    testset = given.generate(documents(9), size=6)
    assert (len(testset), testset.complete, testset.broken_off) == (count, False, True)
    assert testset.notes == [f"{count} of 6 rows were generated: the run was interrupted."]


# Options


STEPS = (
    "passage_filter, keyphrases, seed_question, question_filter, compress, evolution_filter, find_passages, answer, "
    "check_answer, closed_book_filter"
)
OF_TREES = (
    "tree=True compares evolutions with the simple question about the same fact: the distribution needs 'simple' and "
    "at least one other evolution, got "
)


@each(
    ("options", "told"),
    [
        ({"distribution": {}}, "at least one evolution"),
        ({"distribution": {"clever": 1}}, "there is no evolution 'clever'; choose from simple, reasoning"),
        ({"distribution": {"simple": 0}}, "the share of simple must be a number above 0"),
        ({"distribution": {"simple": float("nan")}}, "above 0"),
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"size": 2.5}, "size must be a whole number of at least 1"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"dedupe": 0}, "dedupe must be a cosine above 0 and at most 1, or None, got 0"),
        ({"dedupe": 1.01}, "dedupe must be a cosine above 0 and at most 1, or None, got 1.01"),
        ({"max_rewrites": -1}, "max_rewrites"),
        ({"passage_threshold": 9}, "a number from 1 to 3"),
        ({"language": "tlh"}, "language must be one of auto, en, it, ko, ru, zh, got 'tlh'"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"journal": 5}, "journal must be the path"),
        ({"embeddings": "openai"}, "embeddings must be LangChain Embeddings, got str"),
        ({"tree": "yes"}, "tree must be True or False, got 'yes'"),
        ({"tree": True, "distribution": {"simple": 1}}, OF_TREES + "simple"),
        ({"tree": True, "distribution": {"reasoning": 1, "numbers": 1}}, OF_TREES + "reasoning, numbers"),
        ({"distribution": [reasoning]}, "distribution must be a mapping of evolutions to shares, or a list of pairs ("),
        ({"distribution": [(reasoning, 0.5)]}, "there is no evolution 0.5; choose from "),
        ({"distribution": [(0, reasoning | str)]}, "the share of reasoning+str must be a number above 0, got 0"),
        ({"steps": [str]}, "steps must map names to Runnables, got list: the steps are passage_filter, "),
        ({"steps": {"question_filer": str}}, f"steps has no step 'question_filer': the steps are {STEPS}"),
        (
            {"steps": {"question_filter": "strict"}},
            "steps['question_filter'] must be a Runnable or a function from Candidate to Candidate, got str",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_call(options, told):
    assert told in str(error_of(ConfigError, TestsetGenerator, Writer().model, **{"embeddings": Ring(), **options}))


# Real documents


async def test_real_clients_over_http(endpoint):
    server = endpoint.server(lambda request: answer_offline(request.schema_title, request.messages[-1]["content"]))
    model = endpoint.model(server)
    given = TestsetGenerator(model, embeddings=HashingEmbeddings(), distribution={"simple": 1}, progress=False)
    docs = corpus("ru_wiki")[:3]
    made = [await in_thread(one, docs, size=3) for one in (given, offline())] + [await given.agenerate(docs, size=3)]
    one, other, third = [[row.question for row in testset] for testset in made]
    assert one == other == third


def test_plans_are_as_stored():
    docs, three = corpus("ru_wiki")[:2], {"reasoning": 0.6, "multi_context": 0.3, "simple": 0.1}
    options = {"embeddings": HashingEmbeddings(), "distribution": three, "progress": False, "price": (1.0, 2.0)}
    plans = [TestsetGenerator(OfflineJudge(), tree=tree, **options).plan(docs, size=20) for tree in (False, True)]
    assert_stored("plans_of_a_set.txt", "".join(f"{one}\n{plain(one)}\n" for one in plans))


def test_a_set_of_all_evolutions_is_as_stored():
    even = dict.fromkeys(EVOLUTIONS, 1.0)
    testset = offline(even).generate(corpus("ru_wiki")[:4], size=15, seed=3)
    text = f"{testset.yields}\n{testset.notes}\n"
    for row in testset:
        ends = [[text[:40], text[-40:], *span] for text, span in zip(row.contexts, row.spans, strict=True)]
        text += f"\n{row.evolution}: {row.question}\n  {row.reference[:200]}\n  {ends}\n  {row.metadata}\n"
        text += "".join(f"  {one.kind} {one.accepted} {one.question} | {one.feedback}\n" for one in row.history)
    assert_stored("set.txt", text)
