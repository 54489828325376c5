"""What every step about numbered items holds to: votes, repeated questions, numbers, attempts."""

import asyncio
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from helpers import scripted as replies
from helpers.each import each, error_of
from helpers.scripted import answering, scripted

from langchain_rageval import Judge, answer_correctness, context_precision, faithfulness, jury, llm_grader, ndcg_at
from langchain_rageval.data.schema import Sample, Turn
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.prompts.answer_schemas import RubricGrade, RubricGrades
from langchain_rageval.prompts.criteria import Criterion
from langchain_rageval.steps.check_turns import check_needs, check_user_facts
from langchain_rageval.steps.detect import critique_aspect, detect_abstention, detect_answerable
from langchain_rageval.steps.entities import find_entities
from langchain_rageval.steps.grade_contexts import grade_contexts, grade_relevance, select_sentences
from langchain_rageval.steps.grade_rubric import grade_rubric
from langchain_rageval.steps.verify_statements import verify_statements

# Chunks in the order of their hashes, in which they are graded.
SAMPLE = Sample(
    question="What?",
    answer="So.",
    contexts=sorted(["First.", "Second.", "Third."], key=lambda text: sha256(text.encode()).digest()),
    history=[Turn(role="user", text="I ask."), Turn(role="assistant", text="I tell.")],
)
SAID = [(1, text) for text in "abc"]
STATE = {"sample": SAMPLE, "answer_statements": [*"abc"], "reference_entities": [*"abc"]}
STATE["turn_facts"] = replies.turn_facts(facts=SAID, needs=SAID)
CRITERIA = {"en": [Criterion(name, "What it says.") for name in "abc"]}


class Case(NamedTuple):
    """A step, two of its labels, and what replies with a label for each number; `names` tells that items are listed."""

    step: Callable[[Any], Any]
    key: str
    labels: tuple[str, str]
    reply: Callable[[list[tuple[int, str]]], Any]
    items: str = ""


def turn_verdicts(reply):
    """Return what replies with verdicts on facts or needs, whose reasons repeat label and number."""

    def replying(given):
        parts = [reply((n, label, [4]), reason=f"{label} {n}") for n, label in given]
        return type(parts[0])(verdicts=[verdict for part in parts for verdict in part.verdicts])

    return replying


def rubric_grades(given):
    return RubricGrades(
        grades=[RubricGrade(criterion="?abc"[n], reason=f"{label} {n}", grade=int(label)) for n, label in given]
    )


def single(reply, label):
    return lambda given: reply(given[0][1] == label, f"{given[0][1]} 1")


CASES = {
    "verify_statements": Case(
        lambda judge: verify_statements(judge, of="answer"),
        "answer_verdicts",
        ("supported", "contradicted"),
        lambda given: replies.verdicts(
            *(replies.verdict(n, label, "1.1", reason=f"{label} {n}") for n, label in given)
        ),
        "statements",
    ),
    "grade_contexts": Case(
        lambda judge: grade_contexts(judge, against=lambda sample: "so"),
        "context_verdicts",
        ("useful", "not useful"),
        lambda given: doubled(
            replies.grades({}), [replies.grades({n: label == "useful"}) for n, label in given], given
        ),
        "chunks",
    ),
    "grade_relevance": Case(
        llm_grader,
        "grades",
        ("3", "1"),
        lambda given: doubled(replies.relevance({}), [replies.relevance({n: int(label)}) for n, label in given], given),
        "chunks",
    ),
    "check_user_facts": Case(
        check_user_facts, "fact_verdicts", ("ignored", "kept"), turn_verdicts(replies.fact_verdicts), "facts"
    ),
    "check_needs": Case(check_needs, "need_verdicts", ("met", "unmet"), turn_verdicts(replies.need_verdicts), "needs"),
    "grade_rubric": Case(
        lambda judge: grade_rubric(judge, CRITERIA, (0, 3), with_examples=False),
        "rubric_grades",
        ("3", "1"),
        rubric_grades,
    ),
    "find_entities": Case(
        find_entities,
        "entity_verdicts",
        ("found", "not found"),
        lambda given: replies.found_in({n: ["1.1"] for n, label in given if label == "found"}),
    ),
    "select_sentences": Case(
        select_sentences,
        "context_sentences",
        ("needed", "not needed"),
        lambda given: replies.needed(*(f"{n}.1" for n, label in given if label == "needed")),
    ),
    "critique_aspect": Case(
        lambda judge: critique_aspect(judge, "tone", definition="It is kind."),
        "aspect_verdict",
        ("yes", "no"),
        single(replies.critique, "yes"),
    ),
    "detect_abstention": Case(
        lambda judge: detect_abstention(judge, of="answer"),
        "answer_abstention",
        ("abstains", "answers"),
        single(replies.abstains, "abstains"),
    ),
    "detect_answerable": Case(
        detect_answerable, "answerable", ("answer", "do not answer"), single(replies.answerable, "answer")
    ),
}
LISTED = {name: case for name, case in CASES.items() if case.items}
every_case = each(("name", "case"), CASES.items(), ids=CASES)
every_listed_case = each(("name", "case"), LISTED.items(), ids=LISTED)


def doubled(empty, replies, given):
    """Return one reply with the items of several, whose reasons repeat label and number."""
    (field,) = type(empty).model_fields
    items = [item for reply in replies for item in getattr(reply, field)]
    own = [item.model_copy(update={"reason": f"{label} {n}"}) for item, (n, label) in zip(items, given, strict=True)]
    return type(empty)(**{field: own})


def found(case, judge):
    return case.step(judge).invoke(STATE)[case.key]


def labels_of(findings):
    return [finding.verdict for finding in findings if finding.kind != "agreement"]


def asked_about(request):
    """The texts of the items of a request, whose numbers count from 1."""
    inputs = request.inputs
    for name, number in (("statements", "statement"), ("facts", "fact"), ("needs", "need")):
        if name in inputs:
            assert [item[number] for item in inputs[name]] == list(range(1, len(inputs[name]) + 1))
            return [item["text"] for item in inputs[name]]
    lines = request.human.split("\n\n")[0].splitlines()[1:]
    assert lines[::2] == [f"[{n}]" for n in range(1, len(lines) // 2 + 1)]
    return [line.partition(" ")[2] for line in lines[1::2]]


@every_case
def test_the_majority_of_the_draws_or_of_a_jury_decides_and_the_agreement_is_told(name, case):
    strong, weak = case.labels
    replies = [case.reply([(1, label), (2, weak), (3, weak)]) for label in (strong, weak, strong)]
    judge = scripted(*replies)
    findings = found(case, Judge(judge, draws=3))
    items = labels_of(findings)
    assert items == [strong, weak, weak][: len(items)]
    assert [(f.number, f.text, f.verdict) for f in findings[len(items) :]] == [
        (f.number, f.text, rate) for f, rate in zip(findings, ["0.67", "1.00", "1.00"], strict=False)
    ][: len(items)]
    assert len(judge.asked) == 3
    for order in permutations(replies):
        voted = found(case, jury([scripted(reply) for reply in order]))
        assert labels_of(voted) == items
        assert "; " in voted[len(items)].reason


@every_case
def test_sync_and_async_find_the_same(name, case):
    reply = case.reply([(n, case.labels[0]) for n in (1, 2, 3)])
    step = case.step(Judge(answering(lambda _: reply), draws=3))
    assert asyncio.run(step.ainvoke(STATE)) == step.invoke(STATE)


@every_case
def test_a_judge_that_never_replies_as_asked_fails_after_its_attempts_with_its_last_reply(name, case):
    judge = scripted("yes", "no")
    error = error_of(JudgeOutputError, found, case, Judge(judge, attempts=2))
    assert (error.step, error.raw_output, len(judge.asked)) == (name, "no", 2)


@every_listed_case
def test_items_without_one_verdict_are_asked_about_again_alone_and_keep_their_own(name, case):
    strong, weak = case.labels
    texts = SAMPLE.contexts if case.items == "chunks" else [*"abc"]
    for first, again in (
        ([(2, strong), (9, strong)], [0, 2]),  # two items are missing, a number is unknown
        ([(3, strong), (2, weak), (2, strong), (1, weak), (1, weak)], [1]),  # one is judged twice, in two ways
    ):
        judge = scripted(case.reply(first), case.reply([(n, weak) for n in range(len(again), 0, -1)]))
        findings = found(case, judge)
        given = {n - 1: label for n, label in first}
        assert labels_of(findings) == [weak if n in again else given[n] for n in range(3)]
        assert findings[again[-1]].reason == f"{weak} {len(again)}"
        assert list(map(asked_about, judge.requests)) == [texts, [texts[n] for n in again]]
        assert [[message.type for message in messages] for messages in judge.asked] == [["system", "human"]] * 2
        assert judge.asked[0][0] == judge.asked[1][0]
        heads = {request.human.rpartition("\n{")[0] for request in judge.requests}
        assert len(heads) == 1 or case.items == "chunks"


@every_listed_case
def test_the_order_of_a_reply_and_verdicts_of_other_items_change_nothing(name, case):
    strong, weak = case.labels
    for order in permutations([(1, strong), (2, weak), (3, strong), (7, weak), (8, strong)]):
        assert labels_of(found(case, scripted(case.reply(list(order))))) == [strong, weak, strong]


@each("name", [*(name for name, case in CASES.items() if case.items), "find_entities"])
def test_an_item_0_is_dropped_if_the_last_item_is_there(name):
    case = CASES[name]
    strong, weak = case.labels
    judge = scripted(case.reply([(0, strong), (1, strong), (2, weak), (3, strong)]))
    assert labels_of(found(case, judge)) == [strong, weak, strong]


OPTIONS = [
    (CASES["critique_aspect"].step, {"contexts": "windows"}),
    (CASES["grade_rubric"].step, {"contexts": "windows"}),
    (lambda judge: verify_statements(judge, of="answer", by_chunk=True), {"by_chunk": True}),
    (lambda judge: grade_relevance(judge, scale=(1, 5), pointwise=True), {"scale": (1, 5), "pointwise": True}),
]


@each(("step", "entries"), OPTIONS)
def test_the_instrument_holds_the_options_beside_judge_prompts_and_schema(step, entries):
    instrument = step(scripted()).instrument
    assert {name: instrument[name] for name in entries} == entries
    assert {"step", "judge", "prompts", "own_prompt", "schema"} <= instrument.keys()


@every_listed_case
def test_every_call_counts_and_what_is_missing_after_the_last_is_named(name, case):
    strong, weak = case.labels
    replies = ["no JSON", case.reply([(1, strong)]), case.reply([(1, weak)]), case.reply([(1, strong)])]
    assert labels_of(found(case, Judge(scripted(*replies), attempts=4))) == [strong, weak, strong]
    with pytest.raises(JudgeOutputError, match=r"no single (verdict|grade) .*\[3\]") as caught:
        found(case, Judge(scripted(*replies), attempts=3))
    assert caught.value.raw_output == replies[2].model_dump_json()


UNREAD = {
    "verify_statements": ["absent"] * 3,
    "find_entities": ["not found"] * 3,
    "detect_answerable": ["do not answer"],
    "select_sentences": [],
    "grade_contexts": "not useful",  # each chunk
    "grade_relevance": "0",
}


@each("contexts", [[], [""], [" ", "\n"]])
@each("name", UNREAD)
@each("draws", [1, 3])
def test_without_a_sentence_in_the_contexts_each_item_has_its_last_label_and_no_call_is_made(name, contexts, draws):
    case, sample = CASES[name], SAMPLE.model_copy(update={"contexts": contexts})
    findings = case.step(Judge(scripted(), draws=draws)).invoke({**STATE, "sample": sample})[case.key]
    labels = UNREAD[name] if isinstance(UNREAD[name], list) else [UNREAD[name]] * len(contexts)
    assert [finding.verdict for finding in findings] == labels


SAMPLE_OF_ITEM_NUMBERS = {
    "question": "Где что стоит?",
    "answer": "Мюнхен стоит на Изаре. Париж стоит на Сене. Рим стоит на Тибре.",
    "contexts": ["Слон.", "Париж стоит на Сене.", "Рим стоит на Тибре."],
    "references": ["Мюнхен стоит на Изаре. Рим стоит на Тибре."],
}
TEXTS = ("Мюнхен стоит на Изаре.", "Париж стоит на Сене.", "Рим стоит на Тибре.")


CASES_OF_ITEM_NUMBERS = {
    "verify_statements": (
        faithfulness,
        [replies.statements(*TEXTS)],
        lambda n: replies.verdicts(replies.absent(n), replies.supported(n + 1, "2.1"), replies.supported(n + 2, "3.1")),
    ),
    "classify_statements": (
        partial(answer_correctness, weights=(1, 0)),
        [replies.statements(*TEXTS), replies.statements(TEXTS[0], TEXTS[2])],
        lambda n: replies.classification(tp={n: [n], n + 2: [n + 1]}, fp=[n + 1]),
    ),
    "grade_contexts": (
        partial(context_precision, against="question"),
        [],
        lambda n: replies.grades({n: False, n + 1: True, n + 2: True}),
    ),
    "grade_relevance": (
        lambda judge: ndcg_at(3, llm_grader(judge)),
        [],
        lambda n: replies.relevance({n: 0, n + 1: 3, n + 2: 1}),
    ),
}


@each(("build", "before", "reply"), CASES_OF_ITEM_NUMBERS.values(), ids=CASES_OF_ITEM_NUMBERS)
def test_a_reply_that_numbers_from_0_is_asked_for_again_as_a_whole(build, before, reply):
    judge = scripted(*before, reply(0), reply(1))
    score = build(judge).invoke(SAMPLE_OF_ITEM_NUMBERS)
    assert score.value == build(scripted(*before, reply(1))).invoke(SAMPLE_OF_ITEM_NUMBERS).value
    assert judge.inputs[-1] == judge.inputs[-2]
    assert "there is no item 0: use the numbers of the input, which count from 1" in judge.asked[-1][-1].text
