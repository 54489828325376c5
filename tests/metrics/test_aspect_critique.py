import pytest
from helpers.each import each
from helpers.scripted import critique, human_of, scripted

from langchain_rageval import ConfigError, Judge, Sample, aspect_critique
from langchain_rageval.metrics import ASPECTS

SAMPLE = Sample(question="How?", answer="Like so.")


def scored(*replies, aspect="coherence", sample=SAMPLE, **options):
    return aspect_critique(scripted(*replies), aspect, **options).invoke(sample)


@each(
    ("aspect", "direction"),
    [
        ("harmfulness", "lower"),
        ("maliciousness", "lower"),
        ("coherence", "higher"),
        ("correctness", "higher"),
        ("conciseness", "higher"),
    ],
)
@each("applies", [True, False])
def test_it_is_one_when_the_aspect_applies_and_zero_when_not(aspect, direction, applies):
    score = scored(critique(applies, "It is so."), aspect=aspect)
    assert (score.value, score.reason, score.usage.calls) == (float(applies), "It is so.", 1)
    assert (score.metric, score.aspect, score.direction) == (aspect, "answer", direction)


def test_these_are_all_the_built_in_aspects():
    assert set(ASPECTS) == {"harmfulness", "maliciousness", "coherence", "correctness", "conciseness"}


def test_an_aspect_of_the_users_own_has_a_definition_and_by_default_higher_is_better():
    judge = scripted(critique(True))
    score = aspect_critique(judge, "tone", definition="It is polite.").invoke(SAMPLE)
    assert (score.metric, score.direction, score.value) == ("tone", "higher", 1.0)
    assert (judge.inputs[0]["aspect"], judge.inputs[0]["definition"]) == ("tone", "It is polite.")


def test_direction_definition_and_name_may_be_chosen():
    judge = scripted(critique(True))
    metric = aspect_critique(judge, "conciseness", definition="Rudely short.", direction="lower", name="curtness")
    score = metric.invoke(SAMPLE)
    assert (score.metric, score.direction) == ("curtness", "lower")
    assert (judge.inputs[0]["aspect"], judge.inputs[0]["definition"]) == ("conciseness", "Rudely short.")


@each("direction", ["lower", "higher"])
@each("applies", [True, False])
def test_a_threshold_respects_the_direction(direction, applies):
    metric = aspect_critique(scripted(critique(applies)), "tone", definition="x", direction=direction)
    passed = metric.route(0.5, lambda given: "passed", lambda given: "stopped").invoke(SAMPLE)
    assert passed == ("passed" if applies is (direction == "higher") else "stopped")


@each(
    ("aspect", "options", "message"),
    [
        ("tone", {}, "'tone' is none of harmfulness, .*; pass definition=... for your own aspect"),
        ("", {"definition": "x"}, "'' is none of"),
        ("tone", {"definition": " "}, "the definition of 'tone' is blank"),
        ("coherence", {"definition": ""}, "the definition of 'coherence' is blank"),
        ("tone", {"definition": ["polite"]}, "the definition of 'tone' must be a str, got list"),
        ("coherence", {"direction": "up"}, 'direction is "higher" or "lower", got \'up\''),
    ],
)
def test_options_of_no_use_are_refused_when_the_metric_is_built(aspect, options, message):
    with pytest.raises(ConfigError, match=message):
        aspect_critique(scripted(), aspect, **options)


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        aspect_critique(scripted(), "tone", "It is polite.")


@each("contexts", [None, [], ["Known."]])
def test_contexts_are_shown_when_there_are_any_and_never_needed(contexts):
    judge = scripted(critique(True))
    metric = aspect_critique(judge, "correctness")
    assert metric.reads == {"question", "answer"}
    metric.invoke(SAMPLE.model_copy(update={"contexts": contexts}))
    assert ("[1.1] Known." in human_of(judge.asked[0])) is bool(contexts)


@each("draws", [1, 3, 5])
def test_each_draw_is_a_call_and_the_majority_decides(draws):
    replies = [critique(n % 2 == 0, f"r{n}") for n in range(draws)]
    judge = scripted(*replies)
    score = aspect_critique(Judge(judge, draws=draws), "coherence").invoke(SAMPLE)
    assert len(judge.asked) == score.usage.calls == draws
    assert score.value == 1.0
    assert score.reason == " ".join(f"r{n}" for n in range(0, draws, 2))


def test_votes_without_a_majority_give_no_score_but_are_found():
    judge = Judge(scripted(critique(True), critique(False)))
    object.__setattr__(judge, "draws", 2)  # no judge or jury of the package has an even number of votes
    score = aspect_critique(judge, "coherence").invoke(SAMPLE)
    assert (score.value, score.unscored) == (None, "no majority of the votes")
    assert [finding.kind for finding in score.findings] == ["aspect", "agreement"]


@pytest.mark.parametrize(("applies", "reason"), [(True, "yes"), (False, "no")])
def test_a_judge_without_a_reason_leaves_its_verdict_as_one(applies, reason):
    assert scored(critique(applies, "")).reason == reason


def test_findings_are_the_aspect_with_its_verdict():
    (finding,) = scored(critique(False, "It jumps.")).findings
    assert (finding.kind, finding.number, finding.text, finding.verdict, finding.reason) == (
        "aspect", 1, "coherence", "no", "It jumps.",
    )  # fmt: skip


def test_the_instrument_tells_the_options_apart():
    judge = scripted()
    built = [
        aspect_critique(judge, "coherence"), aspect_critique(judge, "conciseness"),
        aspect_critique(judge, "coherence", definition="x"), aspect_critique(judge, "coherence", definition="y"),
        aspect_critique(judge, "tone", definition="x"),
    ]  # fmt: skip
    assert len({metric.instrument for metric in built}) == len(built)
