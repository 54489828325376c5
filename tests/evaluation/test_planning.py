"""plan says what a run costs, and costs nothing itself."""

import json
from itertools import islice

import pytest
from helpers.each import each
from helpers.offline import METRICS, UNJUDGED, offline, own_metric, six_metrics
from helpers.reports import report_of, scored
from helpers.samples import town
from helpers.scripted import PairScores
from helpers.stored import assert_stored, plain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from pydantic import create_model

from langchain_rageval import (
    Audit,
    ConfigError,
    Decided,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Prompt,
    Sample,
    SampleError,
    Step,
    Value,
    answer_similarity,
    context_precision,
    context_recall,
    evaluate,
    faithfulness,
    jury,
    plan,
    suite,
)
from langchain_rageval.data.notes import Note, code_of
from langchain_rageval.evaluation.batched_evaluation import round_sizes
from langchain_rageval.evaluation.options import Batch
from langchain_rageval.evaluation.planning import Plan, PlannedMetric, plan_table
from langchain_rageval.evaluation.until import Precise
from langchain_rageval.run.journal import Journal
from langchain_rageval.statistics.sequential import ConfidenceSequence


def edges():
    """Samples with every edge, none sharing a text with another."""
    number = iter(range(10_000))

    def one(**more):
        n = f"{next(number):04}"
        whole = {
            "question": f"When was town {n} founded?",
            "answer": f"Town {n} was founded in 1158. Its river {n} is the Isar.",
            "contexts": [f"Town {n} was founded in 1158 by Henry.", f"The river {n} is the Isar. Bread {n} is good."],
            "references": [f"Henry founded town {n} in 1158."],
        }
        return whole | {field: made(n) if callable(made) else made for field, made in more.items()}

    yield one()
    yield one(contexts=[])
    yield one(contexts=lambda n: ["", f"Town {n} is old.", "  "])
    yield one(contexts=["", " "])
    yield one(answer="")
    yield one(answer="  ")
    yield one(answer="I do not know.")
    yield one(answer=lambda n: f"Is town {n} old? It is not specified.")
    yield one(references=lambda n: [f"Henry founded town {n}.", f"Town {n} was founded in 1158.", f"It is {n} old."])
    yield one(references=lambda n: ["", f"Town {n} was founded in 1158."])
    yield one(references=[""])
    yield one(answer=lambda n: " ".join(f"Fact {part} of town {n} is true." for part in range(25)))
    yield one(references=lambda n: [" ".join(f"Fact {part} of town {n} is right." for part in range(12))])
    yield one(contexts=lambda n: [" ".join(f"Sentence {part} about town {n} is here." for part in range(40))])
    yield one(contexts=lambda n: [f"Chunk {part} of town {n} says so." for part in range(30)])
    yield one(question=lambda n: f"Когда основан город {n}?", answer=lambda n: f"Город {n} основан в 1158 году.")


EDGES = list(edges())


class Unasked(OfflineJudge):
    """A judge that nobody may ask."""

    def _generate(self, *_, **__):
        raise AssertionError("the judge was asked")

    async def _agenerate(self, *_, **__):
        raise AssertionError("the judge was asked")


class NoEmbeddings(Embeddings):
    def embed_documents(self, texts):
        raise AssertionError("texts were embedded")

    def embed_query(self, text):
        raise AssertionError("a text was embedded")


def paid(samples, metrics):
    """What a real run pays for each metric, one sample after the other."""
    summary = evaluate(samples, metrics, progress=False).summary()
    return {
        name: (told.calls, told.input_tokens or 0, told.output_tokens or 0, told.usage.embedded)
        for name, told in summary.items()
    }


def planned(samples, metrics, **options):
    told = plan(samples, metrics, **options)
    return {name: (m.calls, m.input_tokens, m.output_tokens, m.embedded) for name, m in told.items()}


JUDGES = {
    "plain": lambda model: model(),
    "draws": lambda model: Judge(model(), draws=3),
    "slices": lambda model: Judge(model(), max_statements=3),
    "windows": lambda model: Judge(model(), max_context_tokens=40),
    "all of them": lambda model: Judge(model(), draws=3, max_statements=4, max_context_tokens=60, language="ru"),
    "jury": lambda model: jury(
        [Judge(model(), layout=layout) for layout in ("contexts_first", "instruction_first")]
        + [Judge(model(), draws=3, max_context_tokens=50)]
    ),
    "shared_instructions": lambda model: Judge(model(), layout="shared_instructions"),
}


# As the real run


@pytest.mark.gate
@each("name", METRICS)
@each("kind", JUDGES)
def test_the_figures_of_every_metric_are_those_of_the_real_run_with_every_kind_of_judge(name, kind):
    real = METRICS[name](JUDGES[kind](OfflineJudge), HashingEmbeddings())
    told = planned(EDGES, METRICS[name](JUDGES[kind](Unasked), NoEmbeddings()))
    assert told == paid(EDGES, real)
    assert name in UNJUDGED or told[name][0] > len(EDGES) / 2


def test_all_metrics_together_share_what_the_run_shares():
    judge, embeddings = OfflineJudge(), HashingEmbeddings()
    real = [build(judge, embeddings) for build in METRICS.values()]
    told, found = plan(EDGES, real), paid(EDGES, real)
    assert list(told) == list(METRICS)
    assert told.calls == sum(calls for calls, *_ in found.values())
    assert told.tokens == sum(read + written for _, read, written, _ in found.values())
    assert told.embedded == sum(embedded for *_, embedded in found.values())
    alone = sum(plan(EDGES, metric).calls for metric in real)
    assert told.calls < alone - len(EDGES) / 2
    assert (told.samples, told.rehearsed, told.notes) == (len(EDGES), len(EDGES), [])


def test_a_cross_encoder_costs_no_text_to_embed():
    unasked = PairScores(lambda *_: pytest.fail("pairs were rated"))
    assert planned(EDGES, answer_similarity(unasked)) == {"answer_similarity": (0, 0, 0, 0)}


@each("mode", ["json_schema", "function_calling", "json_mode", "prompt"])
def test_over_http_the_figures_are_what_the_endpoint_is_asked(openai_server, chat_openai, mode):
    server = openai_server(offline)
    metric = faithfulness(Judge(chat_openai(server), mode=mode))
    told = plan(EDGES, metric)
    assert server.calls == 0
    report = evaluate(EDGES, metric, progress=False)
    assert report.failures() == []
    assert told.calls == server.calls
    schema = 0 if mode != "function_calling" else 150 * server.calls  # this server does not count the tools
    assert told["faithfulness"].input_tokens == pytest.approx(server.tokens["prompt_tokens"] + schema, rel=0.1)
    assert told["faithfulness"].input_tokens >= server.tokens["prompt_tokens"]


# Nothing happens


def learned(judge):
    known = judge._endpoint.capabilities
    return known.mode, known.probed, set(known.warned)


def test_the_judge_finds_nothing_out_and_keeps_what_it_has_found_out():
    members = [Judge(Unasked()) for _ in range(3)]
    plan(EDGES, [faithfulness(members[0]), faithfulness(jury(members), name="jury")])
    assert list(map(learned, members)) == [(None, False, set())] * 3
    judge = Judge(OfflineJudge())
    evaluate(EDGES[:1], faithfulness(judge), progress=False)
    before = learned(judge)
    plan(EDGES, faithfulness(judge))
    assert learned(judge) == before != (None, False, set())


def test_what_wraps_a_model_is_not_called():
    def asked(_):
        raise AssertionError("the function was asked")

    for judge in (asked, RunnableLambda(asked), Unasked().with_retry(), Unasked().with_fallbacks([Unasked()])):
        assert plan(EDGES, faithfulness(judge)).calls == plan(EDGES, faithfulness(Unasked())).calls


class Listener(BaseCallbackHandler):
    run_inline = True

    def __init__(self):
        self.record = []

    def on_chain_start(self, serialized, inputs, **more):
        self.record.append(more.get("name"))

    def on_chat_model_start(self, serialized, messages, **more):
        self.record.append("a model")


def test_a_plan_triggers_no_callbacks():
    listener = Listener()
    within = RunnableLambda(lambda _: plan(EDGES[:3], METRICS["answer_correctness"](Unasked(), NoEmbeddings())).calls)
    assert within.with_config(run_name="mine").invoke(None, {"callbacks": [listener]}) > 3
    assert listener.record == ["mine"]


# What cannot be known


def test_a_metric_whose_dry_run_fails_is_named_with_the_error():
    prompt = Prompt(instruction="Say which colour it is.", examples=[])
    colour = create_model("Colour", __doc__="What colour a text has.", colour=str)
    step = Step(colour, prompts=prompt, inputs=lambda sample: {"shade": object()})(Unasked())
    mine = own_metric(lambda _: Value(1.0), "mine", reads={"question"}, steps=step)
    told = plan(EDGES[:3], [mine, faithfulness(Unasked())])
    assert told["mine"].calls <= 3
    assert told.notes == ["mine costs more: its dry run ended with TypeError: object cannot be written as JSON."]
    assert told["faithfulness"] == plan(EDGES[:3], faithfulness(Unasked()))["faithfulness"]


def test_a_function_among_the_steps_is_not_called():
    def called(_):
        raise AssertionError("the step was called")

    steps = faithfulness(Unasked()).steps | RunnableLambda(called)
    both = own_metric(lambda _: Value(1.0), "both", reads={"question"}, steps=steps)
    told = plan(EDGES[:3], both)
    assert dict(told) == {}
    assert told.notes == ["both cannot be planned: the model calls are unknown."]
    assert dict(plan(EDGES[:3], faithfulness(Unasked(), name="both").with_fallbacks([both]))) == {}


def test_runnables_and_chains_are_named_and_not_called():
    def called(_):
        raise AssertionError("it was called")

    own = RunnableLambda(called, name="own")
    chain = RunnableLambda(called) | faithfulness(Unasked())
    told = plan(EDGES[:3], [own, chain, context_recall(Unasked())])
    assert list(told) == ["context_recall"]
    assert told.notes == ["own, faithfulness cannot be planned: the model calls are unknown."]


def test_wrapped_metrics_and_suites_are_planned():
    told = plan(EDGES, suite(faithfulness(Unasked()), context_recall(Unasked())))
    assert list(told) == ["faithfulness", "context_recall"]
    wrapped = faithfulness(Unasked()).with_retry().with_config(tags=["x"])
    assert plan(EDGES, wrapped)["faithfulness"] == told["faithfulness"]
    either = faithfulness(Unasked()).with_fallbacks([faithfulness(OfflineJudge())])
    assert plan(EDGES, either)["faithfulness"] == told["faithfulness"]


# Of many samples, some


@pytest.mark.gate
def test_each_sample_is_as_likely_as_any_other_to_be_rehearsed():
    """Half of the samples are dear, and stand at the end, at the start, or everywhere."""
    dear, free = {**EDGES[0]}, {**EDGES[0], "answer": ""}
    judge = faithfulness(Unasked())
    for given in ([free] * 500 + [dear] * 500, [dear] * 500 + [free] * 500, [free, dear] * 500):
        told = plan(given, judge, rehearsed=400)
        assert told.calls == pytest.approx(1000, rel=0.12)  # two standard deviations and a half


# What it reads


def test_a_journal_s_scores_cost_nothing(tmp_path):
    journal, metric = tmp_path / "run.db", faithfulness(OfflineJudge())
    assert plan(EDGES, metric, journal=journal).calls == plan(EDGES, metric).calls
    assert not journal.exists()
    evaluate(EDGES[:6], metric, progress=False, journal=journal)
    rest = plan(EDGES[6:], metric).calls
    for given in (journal, str(journal), Journal(journal)):
        assert plan(EDGES, metric, journal=given).calls == rest > 0
    evaluate(EDGES, metric, progress=False, journal=journal)
    assert plan(EDGES, metric, journal=journal).calls == 0


def test_a_file_with_bad_lines_is_planned_without_them(tmp_path):
    path = tmp_path / "samples.jsonl"
    lines = [json.dumps(EDGES[0]), "{oops", json.dumps({"answer": "a"}), json.dumps({"question": "Q?"})]
    path.write_text("\n".join(lines))
    told = plan(path, faithfulness(Unasked()))
    assert (told.samples, told.calls, told.notes) == (4, 2, [])
    assert plan(str(path), faithfulness(Unasked())).calls == 2


def test_a_list_is_checked():
    with pytest.raises(SampleError, match=r"faithfulness reads .*lacks"):
        plan([{"question": "Q?"}], faithfulness(Unasked()))


async def endless():
    yield EDGES[0]


@each("samples", [iter(EDGES), (given for given in EDGES), map(dict, EDGES), endless()])
def test_an_iterator_is_refused_and_not_used_up(samples):
    with pytest.raises(ConfigError, match="plan would consume an iterator; pass a list, a path or a data set"):
        plan(samples, faithfulness(Unasked()))
    if hasattr(samples, "__next__"):
        assert dict(next(samples)) == EDGES[0]


@each(
    ("options", "mend"),
    [
        ({"rehearsed": 0}, r"rehearsed \(samples to estimate from\) must be a whole number of at least 1, got 0"),
        ({"pilot": 0}, r"pilot \(samples to score\) must be a whole number of at least 1, got 0"),
        ({"anchors": -1}, "anchors must be a whole number of at least 0, got -1"),
        ({"until": 0.8}, r"^until must be Decided\(...\) or Precise\(...\), got float$"),
        ({"batch": True}, r"^batch must be Batch\(\), got bool$"),
        ({"audit": OfflineJudge()}, r"^audit must be Audit\(judge, share=0.1\), got OfflineJudge$"),
        ({"journal": 5}, "journal must be the path of a file, got 5"),
        ({"no_worse": 0}, r"no_worse \(margin of a comparison\) must be a number between 0 and 1, got 0"),
        ({"no_worse": 1}, r"no_worse \(margin of a comparison\) must be a number between 0 and 1, got 1"),
    ],
)
def test_invalid_options_are_refused(options, mend):
    with pytest.raises(ConfigError, match=mend):
        plan(EDGES, faithfulness(Unasked()), **options)


# What it says


# with a stopping rule, a batch API, an audit and a pilot


def town_samples(count=20, supported=lambda n: True):
    return [town(n) if supported(n) else town(n, answer="Nobody knows anything of it.") for n in range(count)]


def test_six_metrics_need_three_waves(monkeypatch):
    judge = Judge(OfflineJudge(), language="en")
    planned = plan(town_samples(), six_metrics(judge), batch=Batch())
    assert planned.waves == 3
    assert planned.title == "Plan for 20 samples, in 3 waves"
    assert plan(town_samples(), context_precision(judge), batch=Batch()).waves == 1
    assert plan(town_samples(), context_precision(judge)).waves is None
    monkeypatch.setattr("langchain_rageval.evaluation.batched_evaluation._MOST_SAMPLES", 8)
    assert plan(town_samples(), context_precision(judge), batch=Batch()).waves == 3  # 8, 8 and 4 samples at a time


def test_a_pilot_estimates_when_a_run_stops_from_real_scores():
    samples = town_samples(500, supported=lambda n: n % 10 != 0)
    metric = faithfulness(OfflineJudge())
    far = plan(samples, metric, until=Decided({"faithfulness": 0.3}), pilot=20, batch=Batch())
    near = plan(samples, metric, until=Decided({"faithfulness": 0.88}), pilot=20)
    assert far.asked < 150 < near.asked <= 500
    assert far.calls == pytest.approx(2 * far.asked, abs=2)
    assert far.waves in (2, 4)
    assert far.notes[0] == "The stopping rule was simulated with the scores of 20 samples."
    assert far.title == f"Plan for 500 samples, of which about {far.asked} are asked about, in {far.waves} waves, " + (
        "estimated from 20 of them"
    )


def test_a_pilot_measures_what_repeated_requests_cost_and_stores_its_scores(tmp_path):
    calls = []

    def reply(messages):
        calls.append(messages)
        return OfflineJudge().invoke(messages) if len(messages) > 2 else "not readable"

    judge = Judge(RunnableLambda(reply), version="1", mode="prompt")
    journal = tmp_path / "run.db"
    metric = context_precision(judge)
    planned = plan(town_samples(100), metric, pilot=10, journal=journal)
    assert (planned.calls, len(calls)) == (200, 20)
    evaluate(town_samples(100), metric, journal=journal, progress=False)
    assert len(calls) == 200


def test_the_strong_judge_scores_all_samples_of_a_pilot():
    strong = Judge(OfflineJudge(), max_statements=5)
    planned = plan(town_samples(100), faithfulness(OfflineJudge()), audit=Audit(strong, share=0.1), pilot=10)
    assert (planned["faithfulness"].calls, planned.audit["faithfulness"].calls) == (200, 40)


def test_a_plan_says_how_many_samples_no_worse_takes():
    found = plan(EDGES, faithfulness(Unasked()), no_worse=0.02)
    same = report_of(*[scored(1.0)] * found.no_worse)
    fewer = report_of(*[scored(1.0)] * (found.no_worse - 1))
    assert same.compare(same, margin=0.02)["faithfulness"].verdict == "no worse"
    assert fewer.compare(fewer, margin=0.02)["faithfulness"].verdict == "inconclusive"
    assert code_of(found.notes[-1]) == "no-worse-takes"
    assert plan(EDGES, faithfulness(Unasked())).no_worse is None


def test_plans_are_as_stored():
    metrics = [build(OfflineJudge(), HashingEmbeddings()) for build in METRICS.values()]
    audit = Audit(Unasked())
    given = {"edges": plan(EDGES, metrics), "some": plan(EDGES * 9, metrics, rehearsed=7)}
    given["priced"] = plan(EDGES, metrics[:3], price=(1.0, 2.0), audit=audit, until=Precise(0.1))
    given["none"] = plan([], metrics[:3])
    assert_stored("plans.txt", "\n".join(f"# {name}\n{one}\n{plain(one)}\n" for name, one in given.items()))


def test_the_figures_grow_with_the_samples_and_with_the_anchors_of_a_baseline():
    given, metric = [Sample.parse(EDGES[0])] * 30, faithfulness(Unasked())
    one = plan(given[:1], metric, price=(1.0, 2.0))
    for rehearsed, anchors, times in ((30, 0, 30), (5, 0, 30), (29, 15, 45), (3, 7, 37)):
        audit = Audit(Unasked(), share=0.8) if rehearsed == 3 else None
        found = plan(given, metric, rehearsed=rehearsed, anchors=anchors, audit=audit, price=(1.0, 2.0))
        assert found["faithfulness"].calls == times * one.calls
        assert [part.calls for part in found.audit.values()] == ([24 * one.calls] if audit else [])
        times += 24 * bool(audit)
        assert found.total.calls == times * one.calls
        assert (found.total.tokens, found.money) == pytest.approx((times * one.tokens, times * one.money))
        assert (found.samples, found.rehearsed, found.asked) == (30, rehearsed, 30)
        assert ("estimated from" in found.title) == (rehearsed < 30)
        assert [note for note in found.notes if code_of(note) == "anchors-planned"] == (
            [Note("anchors-planned", count=anchors)] if anchors else []
        )


@each(("count", "waves"), [(0, 0), (1, 1), (50, 1), (51, 2), (150, 2), (151, 3)])
def test_a_stopping_rule_asks_about_twice_as_many_samples_in_each_wave(count, waves):
    given, rule = [Sample.parse(EDGES[0])] * count, Decided({"context_precision": 0.5})
    assert plan(given, context_precision(Unasked()), batch=Batch(), until=rule, rehearsed=1).waves == waves


def test_samples_are_scored_in_groups_that_double_up_to_the_most():
    assert [*islice(round_sizes(stops=True), 12)] == [*(50 * 2**n for n in range(9)), 20_000, 20_000, 20_000]
    assert [*islice(round_sizes(stops=False), 2)] == [20_000, 20_000]


@each(("gate", "judges", "count"), [("f", 1, 8), ("f", 2, 16), (None, 2, 0)])
def test_the_canaries_of_a_gate_are_noted(gate, judges, count):
    metrics = [faithfulness(Judge(RunnableLambda(str), version=name), name=name) for name in "fg"[:judges]]
    rule = Precise(0.1) if gate is None else Decided({gate: 0.5})
    notes = [note for note in plan(EDGES[:2], metrics, until=rule).notes if code_of(note) == "canaries-planned"]
    assert notes == [Note("canaries-planned", count=count)] * bool(count)


def steps_to(decided, size, value=1.0, **options):
    """Return the number of equal values after which a confidence sequence decides."""
    sequence = ConfidenceSequence(size, **options)
    for number in range(1, size + 1):
        sequence.add(value)
        if decided(sequence):
            return number
    return size


def test_a_pilot_of_equal_scores_stops_where_the_rule_stops(monkeypatch):
    monkeypatch.setattr("langchain_rageval.evaluation.planning._SIMULATIONS", 2)
    metric, size = faithfulness(OfflineJudge()), 50
    given = [Sample.parse(one) for one in town_samples(size)]
    gate = steps_to(lambda one: one.exceeds(0.6), size, watched=[0.6])
    precise = steps_to(lambda one: one.interval[0] >= 0.7, size, error=0.025)
    never = steps_to(lambda one: False, size)
    cases = ((Decided({"faithfulness": 0.6}), gate), (Precise(0.15), precise), (Precise(0.0001), never))
    for rule, expected in cases:
        found = plan(given, metric, until=rule, pilot=3)
        assert (found.asked, found.calls, found.rehearsed) == (expected, 2 * expected, 3)
    assert gate < precise < size == never
    assert plan([], metric, until=cases[0][0], pilot=3).asked == 0
    monkeypatch.setattr("langchain_rageval.evaluation.planning._LONGEST", gate)
    for rule, _ in cases:  # a simulation that is cut off before the end counts as one of all samples
        assert plan(given, metric, until=rule, pilot=3).asked == size


def test_a_simulated_run_with_an_audit_counts_the_strong_judge_for_its_share_only(monkeypatch):
    """Corrected values are -1 with the strong judge and 1 without: more samples are needed than if all were -1."""
    monkeypatch.setattr("langchain_rageval.evaluation.planning._SIMULATIONS", 2)

    def refuse(messages):
        return OfflineJudge().invoke(messages).text.replace('"supported"', '"absent"')

    audit = Audit(Judge(RunnableLambda(refuse), version="strict"), share=0.5)
    given = [Sample.parse(one) for one in town_samples(200)]
    rule = Decided({"faithfulness": 0.2})
    found = plan(given, faithfulness(OfflineJudge()), until=rule, audit=audit, pilot=3)
    least = steps_to(lambda one: one.stays_below(0.2), 200, value=-1.0, low=-1.0, high=2.0, watched=[0.2])
    assert 3 * least < found.asked <= 200


def test_the_total_of_a_plan_adds_metrics_and_audit_and_money_that_is_known_of_all():
    def of(name, factor, money):
        return PlannedMetric(name, factor, 10 * factor, 100 * factor, 1000 * factor, money)

    both = Plan([of("a", 1, 0.5), of("b", 2, 0.25)], 4, 4, ["n"], audit=[of("a", 4, 2.0)], waves=1)
    assert both.total == of("total", 7, 2.75)
    assert [line.metric for line in both.lines] == ["a", "b", "audit of a", "total"]
    assert (both.calls, both.tokens, both.embedded, both.money) == (7, 770, 7000, 2.75)
    assert both.title == "Plan for 4 samples, in 1 wave"
    headings, cells = plan_table(both)
    assert (headings[-1], cells[2]) == ("money", ("audit of a", "4", "40", "400", "4,000", "2.0000"))
    partly = Plan([of("a", 1, 0.5), of("b", 2, None)], 4, 2, [], asked=3)
    assert (partly.money, plan_table(partly)[1][1][-1]) == (None, "–")
    assert partly.title == "Plan for 4 samples, of which about 3 are asked about, estimated from 2 of them"
    free = Plan([of("a", 1, None)], 1, 1, [])
    assert (free.money, plan_table(free)[0][-1]) == (None, "texts to embed")
    assert Plan([], 0, 0, []).total == of("total", 0, 0)
