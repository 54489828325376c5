"""pairwise_agreement: what wins, what is unscored, how it runs; degrade: worse variants in the ways of WikiEval."""

import pytest
from helpers.scripted import scripted
from helpers.writers import Writer
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    Budget,
    ConfigError,
    Docstore,
    JudgeOutputError,
    OfflineJudge,
    Sample,
    SampleError,
    Score,
    aspect_critique,
    degrade,
    evaluate,
    faithfulness,
    pairwise_agreement,
    suite,
)
from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.steps import DegradedAnswer, PaddedContext
from langchain_rageval.testing.hostile_judges import KEY, HostileJudge


def sample(number, **more):
    return Sample(id=f"q-{number}", question="Когда основан Мюнхен?", **{"metadata": {"value": number}} | more)


def metric(direction="higher"):
    """Scores a sample with the value in its metadata; None is unscored, "down" fails."""

    def score(given):
        value = given.metadata["value"]
        if value == "down":
            raise TimeoutError("no answer in time")
        unscored = None if value is not None else "the answer states no facts"
        return Score(metric="known", aspect="answer", direction=direction, value=value, unscored=unscored)

    return RunnableLambda(score, name="known")


def judged(pairs, direction="higher", **options):
    made = [tuple(sample(1, metadata={"value": value}) for value in pair) for pair in pairs]
    return pairwise_agreement(metric(direction), made, progress=False, **options)


def test_wins_ties_and_losses_are_counted_and_ties_are_half():
    found = judged([(0.9, 0.1), (0.5, 0.5), (0.1, 0.9), (0.6, 0.4)])
    assert (found.wins, found.ties, found.losses, found.unscored, found.agreement) == (2, 1, 1, 0, 0.625)
    assert (found.low, found.high) == bounded_mean_interval([1.0, 0.5, 0.0, 1.0])
    assert found.outcomes == ["win", "tie", "loss", "win"]


def test_where_lower_is_better_the_lower_value_wins_and_rounding_errors_are_a_tie():
    found = judged([(0.1, 0.9), (0.9, 0.1), (0.1 + 0.2, 0.3)], "lower")
    assert found.outcomes == ["win", "loss", "tie"]


def test_a_side_without_a_value_leaves_the_pair_unscored_and_is_named():
    found = judged([(0.9, 0.1), (None, 0.1), (0.9, "down")])
    assert (found.wins, found.unscored, found.agreement) == (1, 2, 1.0)
    assert found.outcomes == ["win", "unscored", "unscored"]
    assert found.notes == [
        "2.better@q-1 has no value: the answer states no facts",
        "3.worse@q-1 has no value: TimeoutError: no answer in time",
    ]


def test_when_nothing_is_scored_there_is_no_agreement():
    found = judged([(None, 1.0)])
    assert (found.agreement, found.low, found.high) == (None, None, None)
    assert repr(found).startswith("known: –, 0 wins, 0 ties, 0 losses, 1 unscored")


def test_a_variant_with_the_same_id_is_kept_apart_from_its_sample():
    contexts = ["Мюнхен основан в 1158 году."]
    better = sample(1, answer="Мюнхен основан в 1158 году.", contexts=contexts)
    worse = sample(1, answer="Город придумали пингвины.", contexts=contexts)
    found = pairwise_agreement(faithfulness(OfflineJudge()), [(better, worse), [worse, better]], progress=False)
    assert found.outcomes == ["win", "loss"]
    assert [row.sample.id for row in found.report.rows][:2] == ["1.better@q-1", "1.worse@q-1"]
    assert "Judged offline" in found.notes[0]


def test_a_journal_pays_nothing_twice_and_a_spent_budget_leaves_pairs_unscored(tmp_path):
    contexts = ["Мюнхен основан в 1158 году."]
    pairs = [(sample(1, answer=contexts[0], contexts=contexts), sample(2, answer="Не там.", contexts=contexts))]
    judge = faithfulness(OfflineJudge())
    options = {"journal": tmp_path / "run.db", "progress": False}
    first = pairwise_agreement(judge, pairs, **options)
    again = pairwise_agreement(judge, pairs, budget=Budget(calls=0), **options)
    assert (again.outcomes, again.agreement) == (first.outcomes, first.agreement)
    poor = pairwise_agreement(judge, pairs, budget=Budget(calls=0), progress=False)
    assert poor.outcomes == ["unscored"]
    assert "1.better@q-1 has no value: it was left out" in poor.notes


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ConfigError, "at least one pair"),
        ([1], ConfigError, "pair 1: expected a better and a worse sample, got int"),
        ([(sample(1), sample(2)), (sample(1),)], ConfigError, "pair 2: expected a better and a worse sample"),
        ([(sample(1), {"answer": "да"})], SampleError, "lacks a question"),
        ([(sample(1), sample(2))], SampleError, "sample '1.better@q-1' lacks"),
    ],
)
def test_invalid_pairs_raise_before_any_call(given, error, message):
    with pytest.raises(error, match=message):
        pairwise_agreement(faithfulness(OfflineJudge()), given)


def test_several_metrics_raise():
    both = suite(faithfulness(OfflineJudge()), aspect_critique(OfflineJudge(), "coherence"))
    with pytest.raises(ConfigError, match="takes one metric, got faithfulness, coherence"):
        pairwise_agreement(both, [(sample(1), sample(2))])


# degrade: worse variants of a sample


CONTEXTS, ANSWER = (
    ["Мюнхен основан в 1158 году.", "Его основал Генрих Лев."],
    "Мюнхен основан в 1158 году Генрихом Львом.",
)
SAMPLE = Sample(id="q", question="Когда основан Мюнхен?", answer=ANSWER, contexts=CONTEXTS)
FOREIGN = "Печь чистят раз в год."
RELATED = ["Берлин стоит на Шпрее. Он велик.", Document("Гамбург — порт. Там дождливо. Мюнхен основан в 1158 году.")]


def writer():
    return Writer(
        DegradedAnswer=lambda inputs, _: {"answer": "Мюнхен основан." if "answer" in inputs else "Давно."},
        PaddedContext=lambda *_: {"sentences": ["Погода хороша.", "Рынок открыт."]},
    ).model


async def test_each_variant_is_worse_in_one_way_and_the_answer_from_memory_sees_no_context():
    judge = writer()
    for made in (degrade(judge).invoke(SAMPLE), await degrade(judge).ainvoke(SAMPLE)):
        assert {"question": SAMPLE.question} in judge.inputs
        assert made.keys() == {"ungrounded", "incomplete", "padded"}
        assert all(sample.id == f"q@{name}" for name, sample in made.items())
        assert (made["ungrounded"].answer, made["incomplete"].answer) == ("Давно.", "Мюнхен основан.")
        assert made["ungrounded"].contexts == made["incomplete"].contexts == SAMPLE.contexts
        assert made["padded"].answer == SAMPLE.answer
        padded = ["Мюнхен основан в 1158 году. Погода хороша.", "Его основал Генрих Лев. Рынок открыт."]
        assert made["padded"].contexts == padded


def test_needless_sentences_come_from_related_documents_without_a_call():
    judge = writer()
    padded = degrade(judge, RELATED).invoke(SAMPLE)["padded"].contexts
    assert len(judge.asked) == 2
    added = [text.removeprefix(own).strip() for text, own in zip(padded, SAMPLE.contexts, strict=True)]
    assert all(sentence and sentence != SAMPLE.contexts[0] for sentence in added)
    assert padded == degrade(writer(), RELATED).invoke(SAMPLE)["padded"].contexts


def test_a_writer_that_adds_nothing_is_asked_again():
    answers = [DegradedAnswer(answer="Давно."), DegradedAnswer(answer="Да.")]
    judge = scripted(*answers, *[PaddedContext(sentences=[" "])] * 3)
    with pytest.raises(JudgeOutputError, match="there is no sentence"):
        degrade(judge).invoke(SAMPLE)


async def test_an_error_of_the_writer_names_the_step_and_shows_no_key():
    runnable = degrade(HostileJudge(judge=OfflineJudge(), behaviour="401 that repeats the API key"))
    results = runnable.batch([SAMPLE], return_exceptions=True)
    for error in (*results, *await runnable.abatch([SAMPLE], None, return_exceptions=True)):
        assert error.rageval_step == "degrade"
        assert KEY not in repr(error)


@pytest.mark.parametrize("lacking", ["answer", "contexts"])
def test_a_sample_without_answer_or_contexts_is_refused_before_a_call(lacking):
    judge = scripted()
    with pytest.raises(SampleError, match=lacking):
        degrade(judge).invoke(SAMPLE.model_copy(update={lacking: None}))
    assert judge.asked == []


def test_related_documents_come_in_every_form_in_which_users_have_them():
    for related in (FOREIGN, [FOREIGN], Document(FOREIGN), Docstore([FOREIGN]).passages):
        padded = degrade(writer(), related).invoke(SAMPLE)["padded"].contexts
        assert padded == [f"{SAMPLE.contexts[0]} {FOREIGN}", SAMPLE.contexts[1]]
    with pytest.raises(ConfigError, match=r"expected Documents, texts, .* got int"):
        degrade(scripted(), [5])


def test_the_offline_writer_makes_what_the_offline_judge_scores_lower():
    made = degrade(OfflineJudge()).invoke(SAMPLE)
    report = evaluate([SAMPLE, *made.values()], faithfulness(OfflineJudge()), progress=False)
    values = {row.sample.id: row.scores["faithfulness"].value for row in report.rows}
    assert values["q"] == 1.0
    assert values["q@ungrounded"] is None or values["q@ungrounded"] < 1
