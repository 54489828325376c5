"""qualify_judge: good judges are fit; bad judges are unfit, each for its own reason."""

import json
from itertools import count
from random import Random
from threading import Lock

import pytest
from helpers.each import each
from helpers.labelled import answer, coins, oracle, truth, yes
from helpers.offline import offline
from helpers.scripted import Vectors, answering, human_of
from langchain_core.caches import InMemoryCache
from langchain_core.embeddings import Embeddings

from langchain_rageval import ConfigError, HashingEmbeddings, Judge, OfflineJudge, RetryPolicy, jury, qualify_judge
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.trust.fitness import STEPS_OF
from langchain_rageval.trust.items import labelled_items

JUDGED = ("faithfulness", "context_precision", "context_recall", "context_relevance")
"""Metrics that depend on the judge alone."""

OF_TEXTS = ("context_entity_recall", "abstention", "rubric", "aspect_critique", "llm_grader")
"""Metrics and a grader whose labelled items were written for this project."""


class Knowing(Embeddings):
    """Embeddings that know which texts of the labelled triples belong together."""

    def __init__(self):
        triples = [item for language in ("ru", "en") for item in labelled_items(language) if item.text]
        self.pairs = {item.near: item.text for item in triples}
        self.places = {text: place for place, text in enumerate(self.pairs.values(), 1)}

    def embed_documents(self, texts):
        """One direction for each text and what belongs to it, another for all others."""
        directions = [self.places.get(self.pairs.get(text, text), 0) for text in texts]
        return [[float(one == direction) for one in range(len(self.places) + 1)] for direction in directions]

    def embed_query(self, text):
        """Not for us."""
        raise AssertionError(text)


def qualified(judge, embeddings=None, language="ru", **options):
    return qualify_judge(judge, embeddings, language, progress=False, **{"retry": RetryPolicy(attempts=1), **options})


@pytest.mark.gate
@pytest.mark.parametrize("language", ["ru", "en"])
def test_a_judge_that_is_always_right_is_fit_for_all_that_is_labelled(language):
    found = qualified(oracle(), Knowing(), language)
    assert found.verdict == dict.fromkeys(STEPS_OF, "fit")
    for step in found.steps.values():
        assert step.right.hits == step.right.of >= 24, step.step
        assert {share.value for share in step.right_by_kind.values()} == {1.0}, step.step
        assert step.answered.value == 1.0
        assert step.error == ""
    verified = found.steps["verify_statements"]
    assert (verified.citations.precision.value, verified.citations.recall.value) == (1.0, 1.0)
    assert (verified.valid.value, verified.flips.value, verified.rung) == (1.0, 0.0, "prompt")
    assert (verified.order_bias.value, verified.length_bias.value) == (0.0, 0.0)


@pytest.mark.gate
@pytest.mark.parametrize("language", [pytest.param("ru", marks=pytest.mark.gate), "en"])
def test_a_judge_that_always_says_yes_is_unfit_because_it_always_says_the_same(language):
    found = qualified(oracle(yes), language=language)
    for metric in (*JUDGED, *OF_TEXTS):
        assert found.verdict[metric] == "unfit"
        assert "every verdict was" in found.reasons[metric]
    assert found.steps["grade_contexts"].said == {"useful": 72}
    assert found.steps["grade_contexts"].right.hits == 24
    assert found.steps["verify_statements"].flips.value == 0.0


@pytest.mark.gate
def test_a_judge_that_always_cites_the_first_chunk_is_unfit_because_of_what_it_cites():
    found = qualified(oracle(cites="1.1"))
    assert {metric: found.verdict[metric] for metric in JUDGED} == {
        "faithfulness": "unfit",
        "context_precision": "fit",
        "context_recall": "unfit",
        "context_relevance": "fit",
    }
    assert "relevant citations" in found.reasons["faithfulness"]
    assert "100% are of the first chunk" in found.reasons["faithfulness"]
    verified = found.steps["verify_statements"]
    assert verified.right.value == 1.0
    assert verified.citations.first.value == 1.0
    assert verified.citations.precision.high < 0.5


@pytest.mark.gate
def test_a_judge_that_flips_coins_is_unfit_because_it_flips():
    found = qualified(oracle(coins(7)))
    for metric in JUDGED:
        assert found.verdict[metric] == "unfit", metric
        assert "verdicts unchanged when asked again" in found.reasons[metric]
    for metric in OF_TEXTS:  # 24 items a step: coins that fall well may leave it open
        assert found.verdict[metric] in ("unfit", "cannot tell"), metric
    graded = found.steps["grade_contexts"]
    assert 0.3 < graded.flips.value < 0.7
    assert 0.3 < graded.order_bias.value < 0.7


@pytest.mark.gate
def test_replies_that_are_no_json_lower_the_valid_rate():
    random, lock = Random(3), Lock()

    def broken(messages):
        with lock:
            breaks = len(messages) == 2 and random.random() < 0.4
        made = json.dumps(answer(human_of(messages)), ensure_ascii=False)
        return made[: len(made) // 2] if breaks else made

    found = qualified(answering(broken))
    shares = [step.valid.value for step in found.steps.values()]
    assert 0.5 < sum(shares) / len(shares) < 0.7
    assert all(step.answered.value == step.right.value == 1.0 for step in found.steps.values())
    assert {found.verdict[metric] for metric in JUDGED} == {"fit with care"}
    assert "replies valid at once" in found.reasons["context_precision"]
    assert sum(step.calls for step in found.steps.values()) > 450


@pytest.mark.gate
def test_a_missing_verdict_that_was_requested_again_is_not_valid_at_once():
    def incomplete(messages):
        made = answer(human_of(messages))
        if "verdicts" in made and len(made["verdicts"]) > 1:
            made["verdicts"].pop()
        return json.dumps(made)

    steps = qualified(answering(incomplete), repeats=1).steps
    assert steps["verify_statements"].valid.value == 0.0
    assert steps["verify_statements"].right.value == 1.0
    assert steps["select_sentences"].valid.value == 1.0


@pytest.mark.gate
def test_slices_and_windows_do_not_count_as_repeated_requests():
    found = qualified(Judge(OfflineJudge(), max_statements=1, max_context_tokens=100), repeats=1)
    assert {step.valid.value for step in found.steps.values()} == {1.0}
    assert found.steps["verify_statements"].calls > 200


@pytest.mark.gate
def test_a_judge_that_never_answers_has_no_verdicts_and_is_unfit():
    found = qualified(Judge(answering(lambda _: "I would rather not."), attempts=2), repeats=1)
    graded = found.steps["grade_contexts"]
    assert (graded.verdict, graded.right.of, graded.answered.hits, graded.valid.hits) == ("unfit", 0, 0, 0)
    assert graded.rung is None
    assert "questions answered 0 of 72" in found.reasons["context_precision"]


@pytest.mark.gate
def test_repeats_bypass_the_cache():
    judge = oracle(coins(1)).model_copy(update={"cache": InMemoryCache()})
    assert qualified(judge).steps["grade_contexts"].flips.value > 0.3
    calls = len(judge.asked)
    found = qualified(judge)
    assert len(judge.asked) - calls < calls / 2  # the first asks and the variants are there already
    assert found.steps["grade_contexts"].flips.value > 0.3


@pytest.mark.gate
def test_repeats_call_a_function_again():
    choose = coins(2)
    found = qualified(lambda messages: json.dumps(answer(human_of(messages), choose)))
    assert found.steps["grade_contexts"].flips.value > 0.3


@pytest.mark.gate
def test_a_single_repeat_has_no_flip_rate():
    found = qualified(oracle(), repeats=1)
    assert found.steps["grade_contexts"].flips.value is None
    assert found.verdict["context_precision"] == "fit"
    assert found.steps["grade_contexts"].calls == 3 * 24


@pytest.mark.gate
def test_position_bias_and_length_bias_are_measured():
    def vain(messages):
        human = human_of(messages)
        made = answer(human)
        for verdict in made.get("verdicts", []):
            if "context" in verdict:
                verdict["useful"] = verdict["context"] == 1
        return made

    found = qualified(answering(lambda messages: json.dumps(vain(messages))), repeats=1)
    assert found.steps["grade_contexts"].order_bias.value == pytest.approx(2 / 3)
    assert found.steps["grade_contexts"].length_bias.value == 0.0
    assert found.verdict["context_precision"] == "unfit"
    assert "in reverse order" in found.reasons["context_precision"]

    def wordy(messages):
        human = human_of(messages)
        made = answer(human)
        padded = sum(item.padding in human for item in labelled_items("ru") if item.padding)
        for verdict in made.get("verdicts", []):
            if "context" in verdict and padded:
                verdict["useful"] = True
        return made

    graded = qualified(answering(lambda messages: json.dumps(wordy(messages))), repeats=1).steps["grade_contexts"]
    assert graded.length_bias.value == pytest.approx(2 / 3)
    assert graded.order_bias.value == 0.0


@pytest.mark.gate
def test_extractions_that_invent_lose_or_merge_facts_are_not_right():
    def judge(change):
        def changed(messages):
            made = answer(human_of(messages))
            return json.dumps({**made, "statements": change(made["statements"])} if "statements" in made else made)

        return answering(changed)

    changes = {
        "facts, numbers made up": lambda statements: [*statements, "In 4711."] if statements else [],
        "facts, numbers lost": lambda statements: ["Something."] if statements else [],
        "facts, not taken apart": lambda statements: [" ".join(statements)] if statements else [],
    }
    for name, change in changes.items():
        said = qualified(judge(change), repeats=1).steps["extract_statements"].said
        assert said[name] + said.get("facts", 0) == 32


@pytest.mark.gate
def test_a_jury_is_examined_as_one_judge():
    found = qualified(jury([oracle(), oracle(), oracle(coins(5))]), repeats=1)
    assert found.verdict["context_precision"] == "fit"
    assert found.steps["grade_contexts"].calls == 3 * 3 * 24
    assert found.steps["grade_contexts"].valid.value == 1.0


@pytest.mark.gate
def test_the_judge_itself_is_not_changed():
    model = oracle()
    judge = Judge(model, draws=3)
    found = qualified(judge, repeats=1)
    assert found.steps["grade_contexts"].calls == 3 * 72
    assert found.steps["extract_statements"].calls == 48
    assert (judge.model, judge.draws, model.cache) == (model, 3, None)


# Embeddings


@pytest.mark.gate
def test_without_embeddings_metrics_that_compare_cannot_be_judged():
    found = qualified(oracle(), repeats=1)
    assert "measure_similarity" not in found.steps
    for metric in ("answer_relevance", "answer_similarity", "answer_correctness"):
        assert found.verdict[metric] == "cannot tell"
        assert "no embeddings were examined" in found.reasons[metric]


@pytest.mark.gate
def test_embeddings_that_give_equal_vectors_are_unfit():
    found = qualified(oracle(), Vectors(answer=lambda _: [1.0, 0.0]), repeats=1)
    assert found.steps["measure_similarity"].said == {"as near": 40}
    assert {found.verdict[metric] for metric in STEPS_OF if "answer" in metric} == {"unfit"}


def test_unreachable_embeddings_are_an_error_and_not_unfit():
    def down(_text):
        raise ConnectionError("nobody there")

    with pytest.raises(ConfigError, match="the first call to the embeddings failed: ConnectionError: nobody there"):
        qualified(oracle(), Vectors(answer=down), repeats=1)


# Unreachable judges and invalid options


def test_a_judge_that_is_down_is_an_error_and_not_unfit():
    calls = []

    def down(messages):
        calls.append(messages)
        raise ConnectionError("nobody there")

    with pytest.raises(ConfigError, match="the first call to the judge failed: ConnectionError: nobody there"):
        qualified(answering(down))
    assert len(calls) == 1


@pytest.mark.gate
def test_a_judge_that_goes_down_midway_cannot_be_judged():
    calls = count(1)

    def fading(messages):
        if next(calls) > 80:
            raise ConnectionError("gone")
        return answer(human_of(messages))

    found = qualified(answering(lambda messages: json.dumps(fading(messages))), repeats=1)
    assert found.verdict["context_relevance"] == "cannot tell"
    assert "60 of 60 questions failed in transport: ConnectionError: gone" in found.reasons["context_relevance"]
    assert found.steps["extract_statements"].verdict == "fit"


@each(
    ("options", "told"),
    [
        ({"language": "zh"}, "labelled items come in en, ru"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1"),
        ({"max_concurrency": True}, "max_concurrency must be a whole number of at least 1"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"retry": 3}, "retry must be a RetryPolicy"),
        ({"embeddings": "offline"}, "embeddings must be LangChain Embeddings, got str"),
    ],
)
def test_invalid_options_raise_before_any_call(options, told):
    judge = oracle()
    with pytest.raises(ConfigError, match=told):
        qualified(judge, **options)
    assert judge.asked == []


# Output


@pytest.mark.gate
def test_every_judge_is_shown_beside_the_word_overlap_baseline():
    offline_found = qualified(OfflineJudge(), HashingEmbeddings())
    found = qualified(oracle(), Knowing(), repeats=1)
    for name, step in offline_found.steps.items():
        assert found.steps[name].words == step.words == step.right.value
    assert "fit" not in {offline_found.verdict[metric] for metric in JUDGED}
    assert offline_found.notes[0].startswith("Judged offline by word overlap")
    assert offline_found.notes[-1].startswith("The texts are public")


def test_output_as_text_html_and_json(tmp_path):
    found = qualified(OfflineJudge(), HashingEmbeddings(), "en", repeats=1)
    assert str(found).startswith(
        "OfflineJudge(), HashingEmbeddings(size=512) in 'en', each question asked once, layout contexts_first\n"
    )
    assert "context_precision: cannot tell. grade_contexts: right verdicts" in str(found)
    shown = found._repr_html_()
    assert shown.count("<table>") == 4
    assert "<td>grade_contexts</td><td>cannot tell</td>" in shown
    found.to_json(tmp_path / "q.json")
    read = json.loads((tmp_path / "q.json").read_text(encoding="utf-8"))
    assert read == found.to_dict()
    assert read["verdict"]["context_precision"] == "cannot tell"
    assert read["steps"]["verify_statements"]["citations"]["precision"]["value"] > 0.8


@pytest.mark.gate
async def test_a_model_over_http_uses_its_best_rung(endpoint):
    found = qualified(endpoint.model(endpoint.server(offline)), repeats=1)
    best = {"openai": "json_schema", "gigachat": "function_calling"}[endpoint.name]
    assert {step.rung for step in found.steps.values()} == {best}
    expected = qualified(OfflineJudge(), repeats=1)
    for name, step in found.steps.items():
        assert step.right == expected.steps[name].right
        assert step.citations == expected.steps[name].citations
        assert step.valid.value == 1.0
        assert step.tokens > 0
    assert found.verdict == expected.verdict


# Kinds of item


@pytest.mark.gate
@pytest.mark.parametrize("language", [pytest.param("ru", marks=pytest.mark.gate), "en"])
def test_a_judge_that_fails_on_tables_is_weak_on_tables_alone(language):
    tables = [context for item in labelled_items(language) if item.kind == "table" for context in item.contexts]

    def judge(messages):
        human = human_of(messages)
        shows_table = any(json.dumps(line)[1:-1] in json.dumps(human) for text in tables for line in text.splitlines())
        return json.dumps(answer(human, yes if shows_table and "statements" in read_inputs(human) else truth))

    found = qualified(answering(judge), language=language, repeats=1)
    verified = found.steps["verify_statements"]
    weak = [kind for kind, share in verified.right_by_kind.items() if share.value < 1.0]
    assert weak == ["table", "injection in answer"]  # one item of the second kind is about the same table
    assert (verified.right_by_kind["table"].hits, verified.right_by_kind["table"].of) == (2, 4)
    assert verified.weakest_kinds[0][0] == "table"
    others = [step for name, step in found.steps.items() if name != "verify_statements"]
    assert {share.value for step in others for share in step.right_by_kind.values()} == {1.0}
    assert "verify_statements: table 2 of 4 in 1 item, 50% [" in str(found)
    assert ["verify_statements", "table", "2/4", "50%"] in [cells[:4] for cells in found.kind_cells()]
    assert "<td>table</td><td>2/4</td><td>50%</td>" in found._repr_html_()
    assert found.to_dict()["steps"]["verify_statements"]["right_by_kind"]["table"]["hits"] == 2


# Layouts


@pytest.mark.gate
def test_layouts_are_compared_and_each_qualification_names_its_own():
    compared = qualified(OfflineJudge(), language="en", repeats=1, layouts=["handbook", "contexts_first"])
    assert list(compared) == ["handbook", "contexts_first"]
    for layout, qualification in compared.items():
        assert qualification.layout == layout
        assert qualification.title == f"OfflineJudge() in 'en', each question asked once, layout {layout}"
    assert str(compared).startswith("OfflineJudge() in 'en', layouts handbook, contexts_first\n")
    assert len([*compared.cells()]) == 2 * len(compared["handbook"].steps)
    assert (
        compared["handbook"].steps["verify_statements"].tokens
        > compared["contexts_first"].steps["verify_statements"].tokens
    )
    assert "<td>handbook</td>" in compared._repr_html_()
    assert compared.to_dict()["handbook"]["layout"] == "handbook"


@pytest.mark.gate
def test_without_layouts_the_judges_own_is_used_and_named():
    assert qualified(Judge(OfflineJudge(), layout="instruction_first"), repeats=1).layout == "instruction_first"


@pytest.mark.parametrize("layouts", [[], "handbook", ["auto"], [1]])
def test_unknown_layouts_raise_before_any_call(layouts):
    judge = oracle()
    with pytest.raises(ConfigError) as raised:
        qualified(judge, layouts=layouts)
    assert str(raised.value) == (
        f"layouts must be a list of contexts_first, instruction_first, handbook, got {layouts!r}"
    )
    assert judge.asked == []
