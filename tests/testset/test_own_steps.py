"""LCEL in the generator: evolutions as Runnables, own evolutions and own steps, graph, trace, stream and journal."""

import json
from operator import itemgetter
from pathlib import Path
from threading import Event

import pytest
from helpers.each import each, error_of
from helpers.scripted import scripted
from helpers.texts import corpus
from helpers.writers import Ring, Writer, documents, generator, offline, passage
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_rageval import Budget, Candidate, ConfigError, OfflineJudge, answered_by, faithfulness, scored_by
from langchain_rageval.errors import EmptyTestsetError
from langchain_rageval.steps import Question
from langchain_rageval.testset import Docstore, conditional, multi_context, question_filter, reasoning, simple
from langchain_rageval.testset.generator_steps import STEP_NAMES
from langchain_rageval.testset.user_step import user_step

FIXTURES = Path(__file__).parents[1] / "fixtures"
ASKED = Candidate(passages=[passage(0)]).with_question("Что такое поле?", "seed")


def louder(candidate):
    return candidate.replace(question=candidate.question.upper())


class Trace(BaseCallbackHandler):
    """Names of the runs, each with the names of its parents before it."""

    raise_error = True

    def __init__(self):
        self.paths, self.ended, self.failed = {}, {}, {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, name=None, **_):
        self.paths[run_id] = [*self.paths.get(parent_run_id, []), name]

    def on_chain_end(self, outputs, *, run_id, **_):
        self.ended[run_id] = outputs

    def on_chain_error(self, error, *, run_id, **_):
        self.failed[run_id] = str(error)

    @property
    def names(self):
        return [path[-1] for path in self.paths.values()]


# Evolutions are Runnables


def test_evolutions_compose_to_named_sequences_with_runnables_and_functions():
    own = RunnableLambda(louder)
    assert repr(reasoning | louder) == "reasoning\n| louder"
    assert repr(generator(Writer(), {reasoning | louder: 1})).endswith("reasoning+louder=1)")
    assert (reasoning | (louder | conditional)).name == "reasoning+louder+conditional"
    assert (reasoning | own) == (reasoning | louder)
    assert {reasoning | own: 1}[reasoning | louder] == 1
    error = error_of(ConfigError, lambda: reasoning | 5)
    assert str(error) == "a step must be a Runnable or a function from Candidate to Candidate, got int"


@each(
    ("branch", "path", "calls"),
    [
        (reasoning, "reasoning", 11),
        (multi_context, "multi_context", 11),
        ("conversational", "conversational", 9),
        (reasoning | conditional, "reasoning+conditional", 15),
        (reasoning | RunnableLambda(louder), "reasoning+louder", 11),
        (reasoning | louder | conditional, "reasoning+louder+conditional", 15),
        (louder, "louder", 7),
        (RunnableLambda(louder).with_config(run_name="shout"), "shout", 7),
        (reasoning.with_retry(), "reasoning", 11),
        (RunnableBranch((lambda candidate: len(candidate.question) > 1, reasoning), conditional), "reasoning", 11),
        ("conversational+reasoning", "conversational+reasoning", 13),
    ],
)
async def test_a_distribution_is_a_list_of_shares_and_runnables(branch, path, calls):
    writer = Writer()
    testset = generator(writer, [(1, branch)]).generate(documents(9), size=2)
    assert (testset.counts, testset.complete) == ({path: 2}, True)
    assert testset.yields == {"attempts": 2, "rejected": {}}
    assert writer.total == 2 * calls
    assert (await generator(writer, [(1, branch)]).agenerate(documents(9), size=2)).rows == testset.rows


@each(
    ("change", "count"),
    [
        (lambda given: given.replace(keyphrase="x"), 0),
        (lambda given: given.replace(question="Что?"), 1),
        (lambda given: given.with_question("Что?", "mine"), 1),
        (lambda given: given.replace(question="Что?").reject("no"), 0),
        (lambda given: given.replace(question=" ").reject("no"), 0),
    ],
    ids=["same", "other", "own trial", "rejected", "rejected without a question"],
)
def test_a_changed_question_is_in_the_history_once(change, count):
    assert len(user_step(change).invoke(ASKED).history) == 1 + count


async def test_the_models_of_an_evolution_come_from_the_config():
    writer = scripted(Question(question="Почему поле?"), Question(question="Почему поле?"))
    config = {"configurable": {"writer": writer}}
    made = reasoning.invoke(ASKED, config)
    bound = reasoning(scripted(Question(question="Почему поле?")))
    assert (made.question, made.evolution) == ("Почему поле?", "reasoning")
    assert await reasoning.ainvoke(ASKED, config) == made == bound.invoke(ASKED)
    assert simple.invoke(ASKED) == ASKED
    assert reasoning.invoke(ASKED.reject("no")) == ASKED.reject("no")
    assert str(error_of(ConfigError, reasoning.invoke, ASKED)) == (
        "reasoning needs a writer: bind one with reasoning(writer), or pass the config "
        '{"configurable": {"writer": model}}; a TestsetGenerator does so'
    )


def test_with_a_critic_in_the_config_or_bound_the_filters_follow():
    writer, bound = Writer(), Writer()
    config = {"configurable": {"writer": writer.model, "critic": writer.model}}
    made = (reasoning | louder | conditional).invoke(ASKED, config)
    assert made.evolution == "reasoning+louder+conditional"
    assert writer.calls == {"Question": 4, "QuestionReview": 2, "QuestionComparison": 2}
    assert (reasoning | louder | conditional)(bound.model, critic=bound.model).invoke(ASKED) == made
    store = Docstore(["Поле.", "Щавель."], splitter=False, embeddings=Ring())
    start = Candidate(passages=[store.passages[0]]).with_question("Что?", "seed")
    config["configurable"]["docstore"] = store
    assert len(multi_context.invoke(start, config).passages) == 2


def test_a_runnable_finds_the_models_of_the_generator_in_its_config():
    def paraphrase(candidate, config):
        given = config["configurable"]
        assert {"writer", "critic", "docstore", "question_filter"} <= given.keys()
        return reasoning(given["writer"]).invoke(candidate, config)

    writer = Writer()
    assert generator(writer, {paraphrase: 1}).generate(documents(9), size=2).counts == {"reasoning": 2}
    assert writer.total == 2 * 8


# Own steps


@each("name", STEP_NAMES)
def test_every_step_can_be_replaced(name):
    def mine(candidate):
        changes = {"keyphrase": "поле", "question": f"Что в {candidate.drawn_text[:25]}?", "reference": "Да."}
        field = {"keyphrases": "keyphrase", "seed_question": "question", "answer": "reference"}.get(name)
        return candidate.replace(**{field: changes[field]}) if field else candidate

    writer, trace = Writer(), Trace()
    given = generator(writer, {"reasoning": 1}, size=2, steps={name: mine})
    testset = given.invoke(documents(9), {"callbacks": [trace]})
    uses = 4 if name == "question_filter" else 2
    assert (testset.counts, trace.names.count("mine")) == ({"reasoning": 2}, uses)
    assert writer.total == 22 if name == "closed_book_filter" else writer.total == 22 - uses


def test_a_step_is_left_out_with_a_passthrough():
    writer = Writer()
    assert len(generator(writer, steps={"passage_filter": RunnablePassthrough()}).generate(documents(9), size=2)) == 2
    assert "PassageGrades" not in writer.calls
    unanswered = generator(Writer(), steps={"answer": RunnablePassthrough()}).generate(documents(9), size=2)
    assert [row.reference for row in unanswered] == ["", ""]
    assert all(used.calls for name, used in unanswered.usage_by_step.items() if name != "embed")
    assert [sample.references for sample in unanswered.to_samples()] == [[], []]
    unwritten = generator(Writer(), steps={"seed_question": RunnablePassthrough()}).generate(documents(2), size=1)
    assert unwritten.yields["rejected"].keys() <= {"blank question", "no key phrase left"}
    assert len(unwritten) == 0


def test_a_packaged_step_with_other_options_replaces_one():
    critic = Writer()
    given = generator(Writer(), steps={"question_filter": question_filter(critic.model)})
    given.generate(documents(9), size=2)
    assert critic.calls == {"QuestionReview": 2}


async def test_rejected_candidates_do_not_reach_own_steps():
    seen = []

    def first(candidate):
        return candidate if "номер 1" in candidate.passages[0].text else candidate.reject("not number 1")

    def later(candidate):
        seen.append(candidate.rejected)
        return candidate.replace(question=candidate.question + "!")

    given = generator(Writer(), {reasoning | later: 1}, steps={"passage_filter": first, "answer": later})
    testset = given.generate(documents(9), size=1)
    assert len(testset) == 1
    assert testset.yields["rejected"] == {"not number 1": testset.yields["attempts"] - 1}
    assert seen == [None, None]
    lost = ASKED.reject("no")
    assert (reasoning | later).invoke(lost) == await (reasoning | later).ainvoke(lost) == lost


def _raise(_candidate):
    raise ValueError("my mistake")


EXPECTED = (
    "mine must return the Candidate or a changed copy, such as candidate.replace(question=...) or "
    "candidate.reject(reason)"
)
OR_STR = f"{EXPECTED}, or the new question as a str; it returned "
UNKNOWN = "mine returned an invalid Candidate: questoin: Extra inputs are not permitted"
BLANK = "mine returned a blank question; to drop it, return candidate.reject(reason)"


@each(
    ("result", "in_branch", "in_step"),
    [
        (lambda _: None, f"{OR_STR}NoneType", f"{EXPECTED}; it returned NoneType"),
        (lambda _: AIMessage("?"), f"{OR_STR}AIMessage; add | StrOutputParser()", f"{EXPECTED}; it returned AIMessage"),
        (lambda candidate: candidate.question, None, f"{EXPECTED}; it returned str"),
        (lambda candidate: candidate.replace(questoin="?"), UNKNOWN, UNKNOWN),
        (lambda candidate: candidate.replace(question=" "), BLANK, BLANK),
    ],
)
async def test_a_wrong_return_is_an_error_at_the_first_row(result, in_branch, in_step):
    def mine(candidate):
        return result(candidate)

    places = {"distribution": {reasoning | mine: 1}}, {"steps": {"question_filter": mine}}
    for options, message in zip(places, (in_branch, in_step), strict=True):
        writer = Writer()
        given = generator(writer, max_concurrency=1, **options)
        if message is None:
            assert len(given.generate(documents(9), size=2)) == 2
            continue
        assert str(error_of(ConfigError, given.generate, documents(9), size=5)) == message
        assert writer.total <= 5 * 8  # the first attempts of the five rows, not all
        with pytest.raises(ConfigError):
            await given.agenerate(documents(9), size=5)


def answered(_question):
    return {"answer": "yes", "contexts": ["c"]}


async def test_a_set_without_rows_is_an_error_that_holds_it_unless_that_is_allowed():
    given = generator(Writer(), {louder: 1}, steps={"find_passages": _raise}, allow_empty=False)
    testset = given.generate(documents(9), size=1, allow_empty=True)
    assert testset.yields == {"attempts": 5, "rejected": {"failed: ValueError": 5}}
    assert testset.notes[0] == "The first failure: ValueError: my mistake"
    with pytest.raises(EmptyTestsetError, match="The first failure: ValueError: my mistake") as caught:
        given.generate(documents(9), size=1)
    assert caught.value.testset.rejected == testset.rejected
    chain = given | answered_by(answered, progress=False) | scored_by(faithfulness(OfflineJudge()))
    for run in (given.agenerate, chain.ainvoke):
        with pytest.raises(EmptyTestsetError):
            await run(documents(9))
    error_of(EmptyTestsetError, next, given.stream(documents(9)))


def test_the_notes_of_a_test_set_are_in_its_report():
    given = offline(size=2)
    scored = scored_by(faithfulness(OfflineJudge()), progress=False)
    report = (given | answered_by(answered, progress=False) | scored).invoke(corpus("ru_wiki")[:3])
    assert report.notes[0] == given.generate(corpus("ru_wiki")[:3]).notes[0]


PROMPT = ChatPromptTemplate.from_messages([("system", "Rewrite."), ("human", "{question} {passages}")])
MODEL = RunnableLambda(lambda value: AIMessage(f"Как связано с рекой: {value.to_messages()[-1].content[:20]}?"))
TO_STR = PROMPT | MODEL | StrOutputParser()
FROM_FIELDS = {"question": itemgetter("question"), "passages": itemgetter("passages")} | TO_STR


ASKS = PromptTemplate.from_template("{question}") | RunnableLambda(lambda value: f"Где {value.to_string()[:40]}?")
STORE = InMemoryVectorStore.from_texts(["Река.", "Поле."], Ring())
CONTEXT = STORE.as_retriever(search_kwargs={"k": 1}) | (lambda found: found[0].page_content)
LISTED = [f"Как связано с рекой {n}?" for n in range(9)]


def put_back(given):
    return given["c"].replace(question=given["q"])


@each(
    ("evolution", "name"),
    [
        (TO_STR.with_config(run_name="river"), "river"),
        (TO_STR.with_retry(), "RunnableSequence"),
        (TO_STR | RunnableLambda(str.upper, name="loud"), "loud"),
        ({"question": lambda c: c.question, "passages": lambda c: c.passages[0].text} | TO_STR, "RunnableSequence"),
        (RunnableParallel(c=RunnablePassthrough(), q=FROM_FIELDS) | put_back, "put_back"),
        (reasoning | {"c": RunnablePassthrough(), "q": FROM_FIELDS} | RunnableLambda(put_back), "reasoning+put_back"),
        (TO_STR | reasoning, "RunnableSequence+reasoning"),
        (RunnablePassthrough.assign(q=TO_STR) | itemgetter("q"), "RunnableSequence"),
        (FROM_FIELDS.with_fallbacks([RunnableLambda(louder)]), "RunnableWithFallbacks"),
        (RunnableBranch((lambda c: True, FROM_FIELDS), louder), "RunnableBranch"),
        (ChatPromptTemplate.from_template("{x}") | MODEL | StrOutputParser(), "RunnableSequence"),
        (PromptTemplate.from_template("{context} {question}") | MODEL | StrOutputParser(), "RunnableSequence"),
        (RunnableLambda(lambda c: f"{c.question} Почему?"), "RunnableLambda"),
        ({"context": CONTEXT, "question": RunnablePassthrough()} | ASKS, "RunnableSequence"),
        (RunnableParallel(one=TO_STR, other=ASKS) | itemgetter("one"), "RunnableSequence"),
        (RunnableParallel(q=ASKS).pick("q"), "RunnableSequence"),
        (PromptTemplate.from_template("{question}") | FakeListLLM(responses=LISTED), "RunnableSequence"),
        (FakeListChatModel(responses=LISTED) | StrOutputParser(), "RunnableSequence"),
        (PROMPT.pipe(FakeListChatModel(responses=LISTED).bind(stop=["!"]), StrOutputParser()), "RunnableSequence"),
        (
            ChatPromptTemplate.from_messages([MessagesPlaceholder("chat_history"), ("human", "{input}")])
            | MODEL
            | StrOutputParser(),
            "RunnableSequence",
        ),
    ],
)
def test_a_chain_from_candidate_to_candidate_or_str_is_an_evolution(evolution, name):
    testset = generator(Writer(), [(1, evolution)], size=2, allow_empty=False).generate(documents(9))
    branch = next(iter(generator(Writer(), [(1, evolution)]).distribution))
    assert branch.get_name() == name
    assert [row.evolution for row in testset] == [name] * 2
    assert all(row.history[-1].question == row.question for row in testset)
    assert not any("passages=" in row.question for row in testset)


def test_two_evolutions_without_a_name_in_one_distribution_are_refused():
    one, other = lambda c: c.question + "!", lambda c: c.question + "?"
    error = error_of(ConfigError, generator, Writer(), [(1, one), (1, RunnableLambda(other))])
    assert str(error).startswith("two evolutions of the distribution have no name, so their rows cannot be told apart")
    named = [(1, RunnableLambda(one, name="one")), (1, RunnableLambda(other).with_config(run_name="other"))]
    assert [branch.get_name() for branch in generator(Writer(), named).distribution] == ["one", "other"]


# Graph, trace, stream, schemas


def test_the_graph_shows_the_chain_with_a_branch_for_each_evolution():
    given = generator(Writer(), [(1, "simple"), (1, multi_context | louder)], steps={"answer": louder})
    mermaid = given.get_graph().draw_mermaid()
    edges = [line.strip().rstrip(";").split(" --> ") for line in mermaid.splitlines() if "-->" in line]
    assert edges == [
        ["TestsetGeneratorInput", "grade_passage"],
        ["grade_passage", "extract_keyphrases"],
        ["extract_keyphrases", "write_question"],
        ["write_question", "review_question_1"],
        ["evolve_multi_context", "compress_question"],
        ["compress_question", "review_question_2"],
        ["review_question_2", "compare_questions"],
        ["review_question_1", "evolve_multi_context"],
        ["compare_questions", "louder_1"],
        ["review_question_1", "find_passages"],
        ["louder_1", "find_passages"],
        ["find_passages", "louder_2"],
        ["louder_2", "check_answer"],
        ["check_answer", "TestsetGeneratorOutput"],
    ]


@pytest.mark.parametrize("call", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_trace_shows_each_step_once_under_its_own_name(call):
    trace = Trace()
    made = getattr(generator(Writer(), {reasoning | louder: 1}, size=1), call)(documents(5), {"callbacks": [trace]})
    if call == "astream":
        _ = [row async for row in made]
    else:
        list(await made if call == "ainvoke" else made)
    row = ["TestsetGenerator", "generate_row"]
    parts = ["evolve_reasoning", "compress_question", "review_question", "compare_questions"]
    before = ["grade_passage", "extract_keyphrases", "write_question", "review_question"]
    expected = [row[:1], row, *([*row, name] for name in before), [*row, "reasoning"]]
    expected += [[*row, "reasoning", name] for name in parts]
    expected += [[*row, name] for name in ("louder", "find_passages", "write_answer", "check_answer")]
    assert list(trace.paths.values()) == expected
    assert trace.ended.keys() == trace.paths.keys()
    assert len(next(iter(trace.ended[run] for run, path in trace.paths.items() if len(path) == 1))) == 1


@pytest.mark.parametrize("call", ["stream", "astream"])
async def test_a_row_is_delivered_while_later_ones_are_written(call):
    whole = generator(Writer(), {"reasoning": 1}, size=3).generate(documents(20))
    delivered, late, rows = Event(), [], []

    def grades(inputs, _):
        """Let the passages of other rows wait until the first row was delivered."""
        if inputs["passage"] != whole[0].contexts[0] and not delivered.wait(60):
            late.append(inputs["passage"])

    given = generator(Writer(PassageGrades=grades), {"reasoning": 1}, size=3)
    if call == "stream":
        for row in given.stream(documents(20)):
            rows.append(row)
            delivered.set()
    else:
        async for row in given.astream(documents(20)):
            rows.append(row)
            delivered.set()
    assert (rows, late) == (whole.rows, [])
    early = given.stream(documents(20), {"callbacks": [Trace()]})
    assert next(early) == rows[0]
    early.close()


async def test_a_trace_shows_the_error_that_ends_a_stream():
    given, sync, own = generator(Writer()), Trace(), Trace()
    with pytest.raises(ConfigError):
        list(given.stream([], {"callbacks": [sync]}))
    with pytest.raises(ConfigError):
        _ = [row async for row in given.astream([], {"callbacks": [own]})]
    message = "the documents hold no text to ask about"
    assert [[trace.names, *trace.failed.values()] for trace in (sync, own)] == [[["TestsetGenerator"], message]] * 2


async def test_the_next_step_of_a_streamed_chain_gets_the_whole_test_set():
    given = generator(Writer(), size=3)
    counted = RunnableLambda(lambda docs: docs) | given | RunnableLambda(len)
    assert list(counted.stream(documents(9))) == [3]
    assert [n async for n in counted.astream(documents(9))] == [3]


def test_input_and_output_schemas_are_those_of_documents_candidates_and_test_sets():
    given = generator(Writer())
    texts, text = given.get_input_jsonschema()["anyOf"][::-1]
    assert text == {"type": "string"}
    assert texts == {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Document"}, {"type": "string"}]}}
    docs = [Document("Поле."), "Щавель."]
    assert given.get_input_schema().model_validate(docs).root == docs
    store = Docstore(["Поле."], splitter=False)
    assert given.get_input_schema().model_validate(store).root is store
    assert given.get_output_jsonschema()["$ref"] == "#/$defs/Testset"
    for step in (reasoning, reasoning | conditional, reasoning(Writer().model), question_filter(Writer().model)):
        assert step.get_input_schema() == step.get_output_schema() == Candidate


# Journal


def counted(calls, version="1"):
    """Return an own evolution that counts its calls; the journal identifies it by its version."""

    def mine(candidate):
        calls.append(candidate.question)
        return candidate.replace(question=f"Подскажите: {candidate.question}")

    mine.version = version
    return mine


def test_the_result_of_an_own_step_is_taken_from_the_journal_until_the_step_changes(tmp_path):
    docs, calls, kept = corpus("ru_wiki")[:3], [], {"size": 2, "journal": tmp_path / "run.db"}
    first, again = (offline({reasoning | counted(calls): 1}, **kept).generate(docs) for _ in range(2))
    assert (again, len(first), len(calls)) == (first, 2, 2)
    resumed = offline({reasoning | counted(calls): 1}, budget=Budget(calls=1), **kept)
    assert resumed.generate(docs).rows == first.rows  # what is in the journal needs no room in the budget
    offline({reasoning | counted(calls, version="2"): 1}, **kept).generate(docs)
    assert len(calls) == 4


def test_a_step_that_cannot_be_identified_is_not_journalled_and_named_in_a_note(tmp_path):
    docs, calls, source = corpus("ru_wiki")[:3], [], (number for number in range(99))

    def mine(candidate):
        calls.append(next(source))
        return candidate

    given = offline({reasoning: 1}, size=2, journal=tmp_path / "run.db", steps={"question_filter": mine})
    first, again = given.generate(docs), given.generate(docs)
    assert (len(calls), first.rows) == (8, again.rows)
    assert first.notes[1:] == [
        f"A step is not in the journal, and a resumed run repeats it: the step {name} cannot be identified "
        "(func (closure).source is a builtins.generator, whose state cannot be read): "
        'give its function a text attribute `version`, such as "1".'
        for name in ("mine", "reasoning")
    ]
    assert len(offline(steps={"question_filter": mine}).generate(docs, size=1).notes) == 1


# The same set


@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.gate) for seed in (0, 42))])
async def test_the_packaged_evolutions_give_the_set_that_is_on_file(seed):
    stored = json.loads((FIXTURES / "testsets" / "ru_wiki.json").read_text(encoding="utf-8"))[str(seed)]
    distribution = {"simple": 1, reasoning | conditional: 1, "multi_context": 1, "conversational": 1, "unanswerable": 1}
    given = offline(distribution, size=10, seed=seed)
    for testset in (given.generate(corpus("ru_wiki")), await given.agenerate(corpus("ru_wiki"))):
        assert [[row.id, row.evolution, row.question, row.reference] for row in testset] == stored


@pytest.mark.parametrize("place", ["evolution", "chain", "step"])
async def test_an_async_function_is_refused_by_sync_methods_before_any_call_and_awaited_by_async_ones(place):
    async def quieter(candidate):
        return candidate.replace(question=candidate.question.lower())

    writer = Writer()
    options = {
        "evolution": {"distribution": [(1, quieter)]},
        "chain": {"distribution": [(1, RunnableLambda(quieter) | louder)]},
        "step": {"steps": {"compress": RunnableLambda(quieter) | louder}, "distribution": {"reasoning": 1}},
    }
    own = generator(writer, size=1, **options[place])
    for call in (own.generate, own.invoke, lambda given: list(own.stream(given))):
        assert str(error_of(ConfigError, call, documents(2))) == (
            "quieter is an async function: call an async method of the generator, such as agenerate or astream, or "
            "write a plain function"
        )
    assert writer.model.requests == []
    assert len(await own.agenerate(documents(2))) == 1
