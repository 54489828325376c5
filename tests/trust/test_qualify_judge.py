"""qualify_judge: good judges are fit; bad judges are unfit, each for its own reason."""

import json
from random import Random
from threading import Lock

import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.item_checks import COMPLETE
from helpers.item_oracle import answer, coins, find_item, oracle, truth, yes
from helpers.offline import offline
from helpers.scripted import Vectors, answering, human_of
from langchain_core.caches import InMemoryCache

from langchain_rageval import ConfigError, HashingEmbeddings, Judge, OfflineJudge, RetryPolicy, jury, qualify_judge
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.trust.fitness import STEPS_OF
from langchain_rageval.trust.items import labelled_items, read_items

HARD = "context_precision"
"""Metric that depends on one step, whose items are a few hundred short questions."""


def items_of(*steps, language="en", half=None):
    """Return the packaged items of some steps, of one half or both."""
    return [i for i in labelled_items(language) if i.step in steps and half in (None, i.half)]


def knowing():
    """Return embeddings with one direction for each labelled text and what belongs to it, another for all others."""
    pairs = {item.near: item.text for language in ("ru", "en") for item in labelled_items(language) if item.text}
    places = {text: place for place, text in enumerate(pairs.values(), 1)}
    return Vectors(answer=lambda text: np.eye(len(places) + 1)[places.get(pairs.get(text, text), 0)].tolist())


def qualified(judge, embeddings=None, language="en", **options):
    return qualify_judge(judge, embeddings, language, progress=False, **{"retry": RetryPolicy(attempts=1), **options})


def changing(change):
    """Return a judge that replies what a function of the right reply and the request returns."""
    return answering(lambda messages: json.dumps(change(answer(human_of(messages)), human_of(messages))))


def graded(judge, **options):
    """Return the qualification of a judge by the items of `grade_contexts` alone, once each."""
    return qualified(judge, **{"items": items_of("grade_contexts"), "repeats": 1, **options})


@pytest.mark.gate
@pytest.mark.parametrize("language", COMPLETE)
def test_a_judge_that_is_always_right_is_fit_for_all_that_is_labelled(language):
    found = qualified(oracle(), knowing(), language, repeats=1)
    assert found.verdict == dict.fromkeys(STEPS_OF, "fit"), found
    for step in found.steps.values():
        assert step.right.hits == step.right.of >= 24, step.step
        assert {share.value for share in step.right_by_kind.values()} == {1.0}, step.step
        assert (step.answered.value, step.error) == (1.0, "")
    verified = found.steps["verify_statements"]
    assert (verified.citations.precision.value, verified.citations.recall.value) == (1.0, 1.0)
    assert (verified.valid.value, verified.order_bias.value, verified.length_bias.value) == (1.0, 0.0, 0.0)


@pytest.mark.gate
@pytest.mark.parametrize("language", COMPLETE)
def test_a_judge_that_always_says_the_same_is_unfit_for_all_that_is_labelled(language):
    found = qualified(oracle(yes), language=language, repeats=1)
    asked = {metric for metric, steps in STEPS_OF.items() if {*steps} <= found.steps.keys()}
    assert {found.verdict[metric] for metric in asked} == {"unfit"}
    assert "every verdict was 'useful', no better on hard items than without reading" in found.reasons[HARD]
    assert found.steps["grade_contexts"].hard.value == pytest.approx(0.5, abs=0.05)


def test_a_judge_that_is_right_on_plain_items_and_guesses_on_pairs_is_unfit():
    def simple(messages):
        human = human_of(messages)
        item = find_item("ContextVerdicts", {*read_inputs(human).values()})
        return json.dumps(answer(human, truth if item.half == "plain" else yes))

    found = graded(answering(simple))
    assert (found.steps["grade_contexts"].plain.value, found.verdict[HARD]) == (1.0, "unfit")
    assert found.steps["grade_contexts"].lead["constant"][0] == pytest.approx(0, abs=0.05)


def test_a_judge_that_always_cites_the_first_chunk_is_unfit_because_of_what_it_cites():
    found = qualified(oracle(cites="1.1"), items=items_of("verify_statements"), repeats=1)
    verified = found.steps["verify_statements"]
    assert (verified.verdict, verified.right.value, verified.citations.first.value) == ("unfit", 1.0, 1.0)
    assert "100% are of the first chunk" in found.reasons["faithfulness"]
    assert verified.citations.precision.high < 0.5


def test_replies_that_are_no_json_lower_the_valid_rate():
    random, lock = Random(3), Lock()

    def broken(messages):
        with lock:
            breaks = len(messages) == 2 and random.random() < 0.4
        made = json.dumps(answer(human_of(messages)), ensure_ascii=False)
        return made[: len(made) // 2] if breaks else made

    found = graded(answering(broken))
    step = found.steps["grade_contexts"]
    assert 0.5 < step.valid.value < 0.7
    assert step.answered.value == step.right.value == 1.0
    assert found.verdict[HARD] == "fit with care"
    assert "replies valid at once" in found.reasons[HARD]
    assert step.calls > 250


def test_a_judge_that_never_answers_has_no_verdicts_and_is_unfit():
    items = items_of("grade_contexts")[:40]
    found = graded(Judge(answering(lambda _: "I would rather not."), attempts=2), items=items)
    step = found.steps["grade_contexts"]
    assert (step.verdict, step.output_mode) == ("unfit", None)
    assert step.right.of == step.answered.hits == step.valid.hits == 0
    assert f"questions answered 0 of {3 * len(items)}" in found.reasons[HARD]


def test_repeats_bypass_the_cache_and_call_a_function_again():
    judge, choose = oracle(coins(1)).model_copy(update={"cache": InMemoryCache()}), coins(2)
    options = {"items": items_of("grade_contexts")[:80], "repeats": 2}
    flips = [graded(judge, **options).steps["grade_contexts"].flips.value]
    calls = len(judge.asked)
    flips.append(graded(judge, **options).steps["grade_contexts"].flips.value)
    assert len(judge.asked) - calls < calls / 2  # the first asks and the variants are there already
    found = graded(lambda messages: json.dumps(answer(human_of(messages), choose)), **options)
    assert min(*flips, found.steps["grade_contexts"].flips.value) > 0.3


def test_position_bias_and_length_bias_are_measured():
    items, padding = items_of("grade_contexts", half="plain"), "The pool lends out towels."
    items = [item.model_copy(update={"padding": padding}) for item in items]

    def judge(is_useful):
        def useful(made, human):
            return {"verdicts": [one | {"useful": is_useful(one, human)} for one in made["verdicts"]]}

        return qualified(changing(useful), items=items, repeats=1)

    vain = judge(lambda verdict, _human: verdict["context"] == 1)
    step = vain.steps["grade_contexts"]
    assert step.order_bias.value > 0.5
    assert (step.length_bias.value, vain.verdict[HARD]) == (0.0, "unfit")
    assert "in reverse order" in vain.reasons[HARD]
    wordy = judge(lambda verdict, human: verdict["useful"] or padding in human).steps["grade_contexts"]
    assert wordy.length_bias.value > 0.5
    assert wordy.order_bias.value == 0.0


def test_extractions_that_invent_lose_or_merge_facts_are_not_right():
    changes = {
        "facts, numbers made up": lambda statements: [*statements, "In 4711."] if statements else [],
        "facts, numbers lost": lambda statements: ["Something."] if statements else [],
        "facts, not taken apart": lambda statements: [" ".join(statements)] if statements else [],
    }
    items = items_of("extract_statements", half="plain")
    facts = sum(item.labels[0].accepted == ("facts",) for item in items)
    for name, change in changes.items():
        judge = changing(lambda made, _human, change=change: {"statements": change(made["statements"])})
        said = qualified(judge, items=items, repeats=1).steps["extract_statements"].verdicts
        assert said[name] > facts / 2
        assert sum(count for verdict, count in said.items() if verdict.startswith("facts")) == facts


def test_a_jury_and_several_draws_are_examined_as_one_judge_that_is_not_changed():
    model = oracle()
    judge, items = Judge(model, draws=3), items_of("grade_contexts")
    found, drawn = graded(jury([oracle(), oracle(), oracle(coins(5))])), graded(judge, items=items[:40])
    for one, asked in ((found, len(items)), (drawn, 40)):
        assert one.steps["grade_contexts"].calls == 3 * 3 * asked
    assert (found.verdict[HARD], found.steps["grade_contexts"].valid.value) == ("fit", 1.0)
    assert drawn.steps["grade_contexts"].flips.value is None
    assert (judge.model, judge.draws, model.cache) == (model, 3, None)


# Items: a third of them, and own ones


def test_quick_asks_a_third_of_the_pairs_of_each_half_and_says_so():
    found, everything = graded(oracle(), quick=True), items_of("grade_contexts")
    step = found.steps["grade_contexts"]
    for half, share in (("plain", step.plain), ("hard", step.hard)):
        assert share.units == -(-len({item.pair for item in everything if item.half == half}) // 3)
    asked = step.calls // 3
    assert found.notes == [f"A third of the labelled items was asked, {asked} of {len(everything)}."]
    assert step.hard.units * 2 < asked < len(everything) / 2


OWN = {
    "pair": "own",
    "step": "grade_contexts",
    "kind": "another year",
    "contexts": ["In 2024 a ticket costs 5 euros.", "A ticket costs 6 euros in 2025."],
    "a": {"question": "What does a ticket cost in 2024?", "gold": {"1": "useful", "2": "not useful"}},
    "b": {"question": "What does a ticket cost in 2025?", "gold": {"1": "not useful", "2": "useful"}},
}


def test_own_items_replace_the_packaged_ones(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps(OWN) + "\n", encoding="utf-8")
    judge = oracle(items=read_items([OWN], "own"))
    for items in ([OWN], str(file), file):
        found = qualified(judge, items=items, repeats=1)
        step = found.steps["grade_contexts"]
        assert ([*found.steps], step.right.hits, step.hard.of) == (["grade_contexts"], 4, 4)
        assert (found.verdict[HARD], found.notes) == ("cannot tell", [])
        assert "perhaps no better on hard items than word overlap" in found.reasons[HARD]


# Embeddings


def test_without_embeddings_metrics_that_compare_cannot_be_judged():
    found = qualified(oracle(), items=items_of("regenerate_questions", "measure_similarity", half="plain"), repeats=1)
    assert [*found.steps] == ["regenerate_questions"]
    for metric in ("answer_relevance", "answer_similarity", "answer_correctness"):
        assert found.verdict[metric] == "cannot tell"
        assert "no embeddings were examined" in found.reasons[metric]


def test_embeddings_that_know_are_fit_and_those_that_give_equal_vectors_are_unfit():
    items = items_of("measure_similarity")
    assert qualified(oracle(), knowing(), items=items, repeats=1).verdict["answer_similarity"] == "fit"
    found = qualified(oracle(), Vectors(answer=lambda _: [1.0, 0.0]), items=items, repeats=1)
    assert found.steps["measure_similarity"].verdicts == {"as near": 40}
    assert {found.verdict[metric] for metric in STEPS_OF if "answer" in metric} == {"unfit"}


# Unreachable judges and invalid options


def test_a_judge_or_embeddings_that_are_down_are_an_error_and_not_unfit():
    calls = []

    def down(messages):
        calls.append(messages)
        raise ConnectionError("nobody there")

    with pytest.raises(ConfigError, match="the first call to the judge failed: ConnectionError: nobody there"):
        qualified(answering(down))
    assert len(calls) == 1
    with pytest.raises(ConfigError, match="the first call to the embeddings failed: ConnectionError: nobody there"):
        qualified(oracle(), Vectors(answer=down), repeats=1)


LAYOUTS = "layouts must be a list of contexts_first, instruction_first, shared_instructions, got "


@each(
    ("options", "told"),
    [
        ({"language": "zh"}, "labelled items come in en, ru, got language='zh'"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1"),
        ({"max_concurrency": True}, "max_concurrency must be a whole number of at least 1"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"retry": 3}, "retry must be a RetryPolicy"),
        ({"embeddings": "offline"}, "embeddings must be LangChain Embeddings, got str"),
        ({"items": []}, "there are no labelled items"),
        ({"items": [{**OWN, "step": "beautify"}]}, "no step is named beautify; the steps are extract_statements, "),
        ({"items": [{"id": "x"}]}, "items: record 1 is no labelled item"),
        ({"items": "nowhere.jsonl"}, "nowhere.jsonl: labelled items could not be read"),
        *(({"layouts": bad}, f"{LAYOUTS}{bad!r}") for bad in ([], "shared_instructions", ["auto"], [1])),
    ],
)
def test_invalid_options_and_items_raise_before_any_call(options, told):
    judge = oracle()
    assert told in str(error_of(ConfigError, qualified, judge, **options))
    assert judge.asked == []


# Output


def test_every_judge_is_shown_beside_three_baselines():
    items = items_of("grade_contexts", "measure_similarity")
    offline_found = qualified(OfflineJudge(), HashingEmbeddings(), items=items, repeats=1)
    found = qualified(oracle(), knowing(), items=items, repeats=1)
    step, other = found.steps["grade_contexts"], offline_found.steps["grade_contexts"]
    assert (step.word_overlap, step.rules, step.constant) == (other.word_overlap, other.rules, other.constant)
    assert other.words == other.hard.value
    assert offline_found.verdict[HARD] == "unfit"
    assert "no better on hard items than word overlap" in offline_found.reasons[HARD]
    assert offline_found.notes[0].startswith("Judged offline by word overlap")


def test_output_as_text_html_and_json(tmp_path):
    items = items_of("grade_contexts", "verify_statements", half="plain")
    found = qualified(OfflineJudge(), HashingEmbeddings(), items=items, repeats=1)
    title = "OfflineJudge(), HashingEmbeddings(size=512) in 'en', each question asked once, layout contexts_first"
    assert str(found).startswith(f"{title}\n")
    assert "context_precision: unfit. grade_contexts: " in str(found)
    kind, right = found.steps["verify_statements"].weakest_kinds[0]
    cells = [f"{right.hits:.0f}/{right.of}", right.percent]
    assert f"verify_statements: {kind} {right}" in str(found)
    assert ["verify_statements", kind, *cells] in [row[:4] for row in found.kind_cells()]
    shown = found._repr_html_()
    assert "".join(f"<td>{cell}</td>" for cell in (kind, *cells)) in shown
    assert shown.count("<table>") == 4
    assert "<td>grade_contexts</td><td>unfit</td>" in shown
    found.to_json(tmp_path / "q.json")
    read = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))
    assert read == json.loads(json.dumps(found.to_dict()))
    assert read["verdict"]["context_precision"] == "unfit"
    assert read["steps"]["verify_statements"]["right_by_kind"][kind]["hits"] == right.hits
    assert read["steps"]["verify_statements"]["lead"].keys() == {"constant", "word_overlap", "rules"}


@pytest.mark.gate
async def test_a_model_over_http_uses_its_best_rung(endpoint):
    items = items_of("grade_contexts", "verify_statements", "grade_relevance", half="plain")
    found = qualified(endpoint.model(endpoint.server(offline)), items=items, repeats=1)
    best = {"openai": "json_schema", "gigachat": "function_calling"}[endpoint.name]
    assert {step.output_mode for step in found.steps.values()} == {best}
    expected = qualified(OfflineJudge(), items=items, repeats=1)
    for name, step in found.steps.items():
        assert (step.right, step.citations) == (expected.steps[name].right, expected.steps[name].citations)
        assert step.valid.value == 1.0
        assert step.tokens > 0
    assert found.verdict == expected.verdict


def test_layouts_are_compared_and_each_qualification_names_its_own():
    items = items_of("verify_statements", half="plain")
    compared = qualified(OfflineJudge(), items=items, repeats=1, layouts=["shared_instructions", "contexts_first"])
    assert list(compared) == ["shared_instructions", "contexts_first"]
    for layout, qualification in compared.items():
        assert qualification.layout == layout
        assert qualification.title == f"OfflineJudge() in 'en', each question asked once, layout {layout}"
    assert str(compared).startswith("OfflineJudge() in 'en', layouts shared_instructions, contexts_first\n")
    assert len([*compared.cells()]) == 2 * len(compared["shared_instructions"].steps)
    shared, first = (one.steps["verify_statements"].tokens for one in compared.values())
    assert shared > first
    assert "<td>shared_instructions</td>" in compared._repr_html_()
    assert compared.to_dict()["shared_instructions"]["layout"] == "shared_instructions"
    other = Judge(OfflineJudge(), layout="instruction_first")
    assert qualified(other, items=items, repeats=1).layout == "instruction_first"
