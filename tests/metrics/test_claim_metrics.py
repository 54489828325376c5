"""Claim metrics: their numbers by RAGChecker's definitions, what they cost, share and make of one sample."""

import threading

import pytest
from helpers.doors import ENTRY_POINTS, scores_by
from helpers.each import each
from helpers.labelled import CONTEXTS, FIRE, FLOOD, METEOR, SAMPLE, THEFT, WAR, World, ragchecker
from helpers.scripted import answering, classification, human_of
from helpers.waiting import PATIENCE
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import (
    Budget,
    ConfigError,
    Finding,
    Judge,
    OfflineJudge,
    Sample,
    Score,
    answer_correctness,
    citations,
    claim_metrics,
    context_recall,
    conversation_metrics,
    evaluate,
    faithfulness,
    noise_sensitivity,
    suite,
)
from langchain_rageval.data.notes import explain
from langchain_rageval.metrics import SCORES
from langchain_rageval.metrics.claim_graph import FORMULAS, Claim, ClaimGraph
from langchain_rageval.metrics.claim_metrics import _state_from_findings, claim_value
from langchain_rageval.prompts.layout import read_inputs

NAMES = SCORES["claim_metrics"]
MODES = ("relevant", "irrelevant")
UNCITED = "a verdict cites no context sentence"
BY_CHUNK = {"context_precision", "context_utilization", "noise_relevant", "noise_irrelevant"}
EXPECTED = {
    "claim_precision": 1 / 4,
    "claim_recall": 1 / 2,
    "claim_f1": 1 / 3,
    "claim_context_recall": 1 / 2,
    "claim_context_precision": 2 / 3,
    "claim_context_utilization": 1.0,
    "claim_noise_relevant": 1 / 4,
    "claim_noise_irrelevant": 1 / 4,
    "claim_hallucination": 1 / 4,
    "claim_self_knowledge": 0.0,
    "claim_faithfulness": 3 / 4,
    "claim_contradiction": 0.0,
}


def values(scores):
    return {name: score.value for name, score in scores.items()}


def paid(scores):
    return sum(score.usage.calls for score in scores.values())


def scores_of(report):
    (row,) = report.rows
    return row.scores


def what_was_found(scores):
    return {name: score.model_dump(exclude={"usage"}) for name, score in scores.items()}


# What it says and what it costs


def test_twelve_scores_for_five_calls():
    judge = World().judge()
    scores = claim_metrics(judge).invoke(SAMPLE)
    assert values(scores) == pytest.approx(EXPECTED)
    assert (len(judge.asked), paid(scores)) == (5, 5)
    assert list(scores) == list(NAMES)


FIRE_AND_KEYS = "Страховка бани покрывает пожар и потерю ключей."


def saying_more(*references):
    """The scores of an answer with one statement that says more than the reference, and a wrong one."""

    def reply(messages):
        inputs = read_inputs(human_of(messages))
        if "reference_statements" not in inputs:
            return World().reply(messages)
        contained = [item["reference"] for item in inputs["reference_statements"] if item["text"] == FIRE]
        return classification(extra={1: contained}, fp=[2], fn=[] if contained else [1])

    sample = SAMPLE.model_copy(update={"answer": f"{FIRE_AND_KEYS}\n{METEOR}", "references": list(references)})
    report = evaluate([sample], claim_metrics(answering(reply)), progress=False)
    return report.rows[0].scores


def test_a_statement_that_says_more_is_right_once_and_wrong_once():
    scores = saying_more(FIRE)
    found = {name.removeprefix("claim_"): score.value for name, score in scores.items()}
    assert (found["precision"], found["recall"]) == (pytest.approx(1 / 3), 1)
    assert found["f1"] == pytest.approx(0.5)
    assert (found["hallucination"], found["self_knowledge"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert found["noise_relevant"] + found["noise_irrelevant"] + found["hallucination"] == pytest.approx(2 / 3)
    assert found["faithfulness"] == 0.5
    assert [f.verdict for f in scores["claim_precision"].findings] == ["extra", "FP", "TP"]


def test_of_several_references_the_one_that_a_statement_contains_counts():
    marks = [(f.kind, f.verdict, f.cites) for f in saying_more(FLOOD, FIRE)["claim_precision"].findings]
    assert marks[:2] == [("statement", "extra", ["2"]), ("statement", "FP", [])]
    assert marks[2:] == [("reference_statement", "FN", []), ("reference_statement", "TP", [])]


IN_TURN = ("evaluate", {"max_concurrency": 1})


@each(("entry_point", "options"), [*((door, {}) for door in ENTRY_POINTS if "batch" not in door), IN_TURN])
async def test_with_the_metrics_that_take_the_same_steps_it_is_still_five(entry_point, options):
    judge = World().judge()
    metrics = [claim_metrics(judge), faithfulness(judge), context_recall(judge)]
    metrics += [answer_correctness(judge, weights=(1, 0)), *(noise_sensitivity(judge, m) for m in MODES)]
    (scores,) = await scores_by(entry_point, [SAMPLE], metrics, **options)
    assert (len(judge.asked), paid(scores), len(scores)) == (5, 5, 17)
    assert {name: scores[name].value for name in NAMES} == pytest.approx(EXPECTED)
    for name in ("faithfulness", "context_recall"):
        assert scores[name].value == scores[f"claim_{name}"].value
    for mode in MODES:
        assert scores[f"noise_sensitivity_{mode}"].value == scores[f"claim_noise_{mode}"].value


# Chunk by chunk


def test_per_chunk_each_chunk_is_asked_about_alone():
    judge = World().judge()
    scores = claim_metrics(judge, attribution="per_chunk").invoke(SAMPLE)
    assert values(scores) == pytest.approx(EXPECTED)
    assert len(judge.asked) == 2 + 2 * len(CONTEXTS) + 1
    blocks = [messages[-1].text for messages in judge.asked if "statements" in read_inputs(messages[-1].text)]
    assert all(sum(f"[{n}.1] " in block for n in (1, 2, 3)) == 1 for block in blocks)
    (fire, *_) = scores["claim_faithfulness"].findings
    assert (fire.verdict, fire.cites) == ("supported", ["1.1", "2.1"])


@pytest.mark.parametrize("world", [World(cites=0), World({FIRE: [1]}, {WAR: [2]}, cites=0)])
def test_a_verdict_that_cites_nothing_leaves_chunks_unscored_but_not_when_each_was_shown_alone(world):
    scores = claim_metrics(world.judge()).invoke(SAMPLE)
    assert {name for name, score in scores.items() if score.unscored == UNCITED} == {f"claim_{n}" for n in BY_CHUNK}
    alone = claim_metrics(world.judge(), attribution="per_chunk").invoke(SAMPLE)
    assert not any(score.unscored for score in alone.values())
    assert next(iter(alone["claim_faithfulness"].findings)).cites


@pytest.mark.parametrize("attribution", ["cited", "per_chunk"])
def test_draws_are_told_and_per_chunk_of_the_chunk_they_agree_on_least(attribution):
    judge = Judge(World().judge(), draws=3)
    scores = claim_metrics(judge, attribution=attribution).invoke(SAMPLE)
    assert values(scores) == pytest.approx(EXPECTED)
    agreed = [f for f in scores["claim_faithfulness"].findings if f.kind == "agreement"]
    assert [(f.number, f.verdict) for f in agreed] == [(n, "1.00") for n in (1, 2, 3, 4)]
    assert {f.reason for f in agreed} == {"3 of 3 draws" if attribution == "cited" else "[1] 3 of 3 draws"}


# Edges


@pytest.mark.parametrize("attribution", ["cited", "per_chunk"])
def test_nothing_retrieved_takes_three_calls_and_all_that_is_wrong_is_made_up(attribution):
    judge = World().judge()
    scores = claim_metrics(judge, attribution=attribution).invoke(SAMPLE.model_copy(update={"contexts": []}))
    assert len(judge.asked) == 3
    assert (scores["claim_hallucination"].value, scores["claim_self_knowledge"].value) == (0.75, 0.25)


def test_a_blank_answer_takes_the_two_calls_of_the_reference():
    judge = World().judge()
    scores = claim_metrics(judge).invoke(SAMPLE.model_copy(update={"answer": " "}))
    found = values(scores)
    assert len(judge.asked) == 2
    assert (found["claim_recall"], found["claim_f1"]) == (0.0, 0.0)
    assert (found["claim_context_recall"], found["claim_context_utilization"]) == (0.5, 0.0)
    assert scores["claim_faithfulness"].unscored == "the answer states no facts"
    report = evaluate([SAMPLE.model_copy(update={"answer": " "})], claim_metrics(judge), progress=False)
    told = {name: metric.abstained for name, metric in report.summary().items()}
    blind = {"claim_context_recall", "claim_context_precision"}  # they do not look at the answer
    assert told == {name: None if name in blind else 1 for name in NAMES}


def test_of_several_references_what_any_says_is_right_and_their_statements_are_united():
    sample = SAMPLE.model_copy(update={"references": ["\n".join([FIRE, FLOOD]), "\n".join([THEFT, FIRE, WAR]), " "]})
    judge = World().judge()
    scores = claim_metrics(judge).invoke(sample)
    assert len(judge.asked) == 1 + 2 + 2 + 2
    assert values(scores)["claim_precision"] == 3 / 4
    assert values(scores)["claim_recall"] == values(scores)["claim_context_utilization"] * 3 / 4 == 3 / 4
    of_references = [f for f in scores["claim_recall"].findings if f.kind == "reference_statement"]
    marks = [(f.number, f.text, f.verdict) for f in of_references]
    assert marks == [(1, FIRE, "TP"), (2, FLOOD, "FN"), (3, THEFT, "TP"), (4, WAR, "TP")]


def test_one_worker_takes_all_twelve_so_that_the_others_ask_for_the_next_samples():
    together = threading.Barrier(2)  # broken when only the first sample is asked about

    def reply(messages):
        if read_inputs(messages[1].text).get("text") in (FIRE, WAR):
            together.wait(timeout=PATIENCE)
        return World().reply(messages)

    samples = [Sample(**{**SAMPLE.model_dump(exclude={"id"}), "answer": text}) for text in (FIRE, WAR)]
    report = evaluate(samples, claim_metrics(answering(reply)), progress=False, max_concurrency=2)
    assert report.failures() == []


# When a judge fails


def stuck(step):
    """A judge whose every answer to one step is prose."""

    def reply(messages):
        return "I would rather not." if step in read_inputs(messages[1].text) else World().reply(messages)

    return answering(reply)


@each("concurrency", [1, 16])
@each(
    ("step", "scored"),
    [
        ("answer_statements", {"context_recall", "context_precision", "faithfulness", "contradiction"}),
        ("statements", {"precision", "recall", "f1"}),
        ("text", set()),
    ],
)
def test_a_step_that_fails_takes_only_those_with_it_that_need_it_and_is_not_asked_for_each(step, scored, concurrency):
    judge = stuck(step)
    report = evaluate([SAMPLE], claim_metrics(judge), progress=False, max_concurrency=concurrency)
    found = scores_of(report)
    assert {name for name, score in found.items() if score.failure is None} == {f"claim_{name}" for name in scored}
    asked = sum(step in inputs for inputs in judge.inputs)
    attempts = Judge(judge).attempts
    assert asked <= attempts * {"answer_statements": 1, "statements": 2, "text": 3}[step]
    assert paid(found) == len(judge.asked)


# Journal, resume, rescore, plan, budget


def test_a_journal_keeps_each_score_and_nothing_is_paid_for_twice(tmp_path):
    judge = World().judge()
    whole = scores_of(evaluate([SAMPLE], claim_metrics(judge), progress=False))
    first = evaluate([SAMPLE], faithfulness(judge), progress=False, journal=tmp_path / "j", budget=Budget(calls=100))
    assert first.complete
    partly = evaluate([SAMPLE], claim_metrics(judge).metrics[:4], progress=False, journal=tmp_path / "j")
    asked = len(judge.asked)
    again = scores_of(evaluate([SAMPLE], claim_metrics(judge), progress=False, journal=tmp_path / "j"))
    assert what_was_found(again) == what_was_found(whole)
    assert {name: again[name] for name in NAMES[:4]} == scores_of(partly)
    assert len(judge.asked) > asked
    asked = len(judge.asked)
    assert scores_of(evaluate([SAMPLE], claim_metrics(judge), progress=False, journal=tmp_path / "j")) == again
    assert len(judge.asked) == asked


def test_one_mode_of_noise_is_had_from_the_other_and_faithfulness_from_either():
    nobody = answering(lambda _: pytest.fail("rescoring asks nobody"))
    judge = World().judge()
    report = evaluate([SAMPLE], noise_sensitivity(judge), progress=False)
    other = report.rescore(noise_sensitivity(nobody, "irrelevant")).rows[0].scores["noise_sensitivity_irrelevant"]
    assert other.value == EXPECTED["claim_noise_irrelevant"]
    faithful = evaluate([SAMPLE], faithfulness(judge), progress=False)
    part = next(metric for metric in claim_metrics(nobody).metrics if metric.name == "claim_faithfulness")
    assert faithful.rescore(part).rows[0].scores["claim_faithfulness"].value == EXPECTED["claim_faithfulness"]
    with pytest.raises(ConfigError, match="claim_f1 cannot be computed from the findings of faithfulness"):
        faithful.rescore(next(metric for metric in claim_metrics(nobody).metrics if metric.name == "claim_f1"))


def test_the_best_reference_of_answer_correctness_does_not_tell_of_all():
    sample = SAMPLE.model_copy(update={"references": [FIRE, FLOOD]})
    judge = World().judge()
    report = evaluate([sample], answer_correctness(judge, weights=(1, 0)), progress=False)
    with pytest.raises(ConfigError, match="cannot be computed"):
        report.rescore(claim_metrics(judge).metrics[0])
    one = evaluate([SAMPLE], answer_correctness(judge, weights=(1, 0)), progress=False)
    assert one.rescore(claim_metrics(judge).metrics[0]).rows[0].scores["claim_precision"].value == 0.25


# Doors


def test_the_table_of_names_is_that_of_the_metrics():
    builders = (claim_metrics, citations, conversation_metrics, noise_sensitivity)
    assert {build.__name__: tuple(build(OfflineJudge()).feedback_keys) for build in builders} == dict(SCORES)


def test_findings_of_one_section_make_no_state_for_a_formula_that_reads_two():
    sample = Sample(question="Q?", answer="A.", contexts=["C."], references=["R."])
    alone = Finding(kind="statement", number=1, text="A.", verdict="supported", reason="")
    score = Score(metric="m", aspect="grounding", unscored="no facts", findings=[alone])
    assert _state_from_findings(sample, score, formula="f1") is None
    foreign = score.model_copy(update={"findings": [alone.model_copy(update={"verdict": "useful"})]})
    assert _state_from_findings(sample, foreign, formula="f1") is None
    nothing = Score(metric="m", aspect="grounding", unscored="no facts")
    assert _state_from_findings(sample, nothing, formula="f1") is not None


def test_a_classification_holds_no_verdicts_of_the_contexts_but_shows_which_side_is_empty():
    kind_of = {"answer": "statement", "reference": "reference_statement"}
    for missing in (["answer", "reference"], ["answer"], ["reference"]):
        marks = [Finding(kind=kind_of[side], number=1, text="A.", verdict="FN") for side in missing]
        score = Score(metric="m", aspect="grounding", value=0.0, findings=marks)
        for formula, side in (("faithfulness", "answer"), ("context_recall", "reference"), ("f1", "")):
            assert (_state_from_findings(SAMPLE, score, formula=formula) is None) is (side in missing)


def test_equal_statements_of_the_reference_count_once_and_those_of_the_answer_each():
    def finding(kind, number, text, verdict):
        return Finding(kind=kind, number=number, text=text, verdict=verdict, reason=f"{kind} {number}")

    answers = [finding("statement", 1, "A.", "TP"), finding("statement", 2, "A.", "FP")]
    single = [*answers, finding("reference_statement", 1, "B.", "FN"), finding("reference_statement", 2, "C.", "TP")]
    for marks, recall in ((single, 0.5), ([*single, finding("reference_statement", 3, "B.", "TP")], 1.0)):
        state = {"sample": SAMPLE, "classifications": [marks]}
        assert claim_value(state, formula="precision").number == 0.5
        value = claim_value(state, formula="recall")
        assert (value.number, [f.text for f in value.findings]) == (recall, ["A.", "A.", "B.", "C."])
    assert claim_value({"sample": SAMPLE, "classifications": [single]}, formula="recall").findings == single


def test_both_attributions_stand_side_by_side_under_two_names():
    judge = World().judge()
    both = [claim_metrics(judge), claim_metrics(judge, attribution="per_chunk", name="chunkwise")]
    scores = suite(*both).invoke(SAMPLE)
    assert scores["claim_f1"].instrument != scores["chunkwise_f1"].instrument
    assert len(judge.asked) == 5 + 2 * len(CONTEXTS)


# The twelve numbers against RAGChecker's own definitions, written out once more with loops over plain tables


NO_FACTS = "the answer states no facts"
NO_REFERENCE_FACTS = "the reference states no facts"
NOTHING_RECALLED = "the contexts support nothing of the reference"


def claims(rows, shared):
    """Claims with the chunks in which a row of the table says that they are."""
    made = []
    for row, is_shared in zip(rows, shared, strict=True):
        cited = frozenset(chunk + 1 for chunk, held in enumerate(row) if held)
        made.append(Claim("c", "supported" if cited else "absent", cited, is_shared))
    return made


def values_of(graph):
    return {name: formula.value(graph) for name, formula in FORMULAS.items()}


@st.composite
def tables(draw):
    chunks = draw(st.integers(0, 5))
    row = st.lists(st.booleans(), min_size=chunks, max_size=chunks)
    sides = [draw(st.lists(row, min_size=1, max_size=6)) for _ in range(2)]
    shared = [draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))) for rows in sides]
    return *sides, *shared, chunks


@given(tables())
def test_they_are_ragcheckers_numbers(given_tables):
    answer, reference, correct, covered, chunks = given_tables
    found = values_of(ClaimGraph(claims(answer, correct), claims(reference, covered), chunks))
    expected = ragchecker(*given_tables)
    for name, number in expected.items():
        if name == "context_utilization" and number is None:
            assert found[name] == NOTHING_RECALLED
        elif name == "context_precision" and number is None:
            assert found[name] == 0.0  # nothing was retrieved
        else:
            assert found[name] == pytest.approx(number, abs=1e-12), name
    assert found.keys() - expected.keys() == {"contradiction"}


# Edges of the formulas


def wrong(count=2):
    return [Claim("c", "supported", frozenset({1})), Claim("c", "absent")][:count]


def test_an_answer_without_facts_has_no_precision_but_misses_what_the_reference_says():
    found = values_of(ClaimGraph([], [Claim("c", "supported", frozenset({1})), Claim("c", "absent")], 2))
    numbers = {"recall": 0.0, "f1": 0.0, "context_recall": 0.5, "context_precision": 0.5, "context_utilization": 0.0}
    assert found == {name: numbers.get(name, NO_FACTS) for name in FORMULAS}


def test_a_reference_without_facts_leaves_the_recall_side_unscored():
    found = values_of(ClaimGraph(wrong(), [], 2))
    unscored = {"recall", "f1", "context_recall", "context_precision", "context_utilization"}
    assert {name for name, value in found.items() if value == NO_REFERENCE_FACTS} == unscored
    half = {"noise_irrelevant", "hallucination", "faithfulness"}
    zero = {"precision", "noise_relevant", "self_knowledge", "contradiction"}
    assert {name: value for name, value in found.items() if name not in unscored} == {
        **dict.fromkeys(half, 0.5),
        **dict.fromkeys(zero, 0.0),
    }


def test_without_facts_on_either_side_nothing_is_scored():
    found = values_of(ClaimGraph([], [], 2))
    assert (found["precision"], found["recall"]) == (NO_FACTS, NO_REFERENCE_FACTS)
    assert found["f1"] == f"{NO_FACTS}, nor does the reference"
    assert all(isinstance(value, str) for value in found.values())


def test_nothing_retrieved_is_zero_and_what_is_wrong_is_made_up():
    found = values_of(ClaimGraph([Claim("c", "absent", shared=True), Claim("c", "absent")], [Claim("c", "absent")], 0))
    zero = {"faithfulness", "context_recall", "context_precision", "noise_relevant", "noise_irrelevant"}
    assert {name: found[name] for name in zero} == dict.fromkeys(zero, 0.0)
    assert found["hallucination"] == 1 - found["precision"] == 0.5
    assert found["context_utilization"] == NOTHING_RECALLED


def test_nothing_shared_is_an_f1_of_zero():
    assert values_of(ClaimGraph(wrong(), [Claim("c", "absent")], 1))["f1"] == 0.0


@each("verdict", ["supported", "contradicted"])
@each("side", ["answer", "reference"])
def test_a_verdict_that_cites_nothing_leaves_unscored_what_rests_on_chunks(side, verdict):
    sides = {"answer": wrong(), "reference": [Claim("c", "supported", frozenset({2}))]}
    sides[side] = [*sides[side], Claim("c", verdict)]
    found = values_of(ClaimGraph(**sides, chunks=2))
    assert {name for name, value in found.items() if value == UNCITED} == BY_CHUNK
    assert not any(isinstance(value, str) for name, value in found.items() if name not in BY_CHUNK)


def test_a_contradicted_statement_is_neither_supported_nor_anybodys_source():
    contradicted = Claim("c", "contradicted", frozenset({1}))
    found = values_of(ClaimGraph([contradicted], [contradicted], 1))
    assert (found["contradiction"], found["faithfulness"], found["hallucination"]) == (1.0, 0.0, 1.0)
    assert (found["context_recall"], found["context_precision"], found["noise_irrelevant"]) == (0.0, 0.0, 0.0)


# What the formulas tell


def test_three_statements_are_named_and_the_others_counted():
    notes = FORMULAS["hallucination"].reasons(ClaimGraph([Claim("c", "absent")] * 5, [], 0), "hallucination")
    assert explain("What?", *notes).endswith(": «c», «c», «c», and 2 more.")
    assert explain("Что?", *notes).endswith(": «c», «c», «c», и ещё 2.")
