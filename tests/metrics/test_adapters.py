"""Entry points of a metric: LCEL, events and callbacks, LangGraph, openevals, thresholds."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, TypedDict

import pytest
from helpers.each import each, error_of
from helpers.offline import offline, unfaithfulness
from helpers.samples import ANSWER, CONTEXTS, DOCUMENTS, QUESTION, REFUSAL, SAMPLE, TRUE_SAMPLE, rag_chain, sequence
from helpers.scripted import absent, answering, broken_judge, human_of, recording_judge, scripted, supported, verdicts
from helpers.servers.chat import Faults
from langchain_core.load import dumpd, dumps
from langchain_core.messages import AIMessage
from langchain_core.runnables import ConfigurableField, RunnableGenerator, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.config import ensure_config
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_gigachat import GigaChat
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from openevals.exact import exact_match

from langchain_rageval import ConfigError, Judge, OfflineJudge, SampleError, Score, evaluate, faithfulness, suite
from langchain_rageval.errors import BelowThreshold
from langchain_rageval.metrics.structure import ascore_sample, score_sample
from langchain_rageval.prompts.answer_schemas import Statements, Verdict
from langchain_rageval.run.run import Run

metric = faithfulness(OfflineJudge())
broken = faithfulness(broken_judge())


def says(verdict: Verdict) -> Any:
    """A judge who finds one statement, and always gives the same verdict on it."""
    statements, answer = Statements(statements=["a"]), verdicts(verdict)
    return answering(lambda messages: statements if '"title": "Statements"' in human_of(messages) else answer)


# LCEL

SPOKEN = [ANSWER[:10], ANSWER[10:25], ANSWER[25:]]


def speak(_: Any) -> Iterator[str]:
    """The answer as a model streams it."""
    yield from SPOKEN


async def aspeak(_: Any) -> AsyncIterator[str]:
    for part in SPOKEN:
        yield part


async def test_a_chain_that_streams_its_answer_is_scored_once_it_is_whole():
    retrieval = RunnablePassthrough.assign(context=lambda _: DOCUMENTS).assign(answer=RunnableGenerator(speak, aspeak))
    asked = {"input": QUESTION}
    for scored in (metric, suite(metric) | (lambda scores: scores["faithfulness"])):
        assert [score.value for score in (retrieval | scored).stream(asked)] == [0.5]
        assert [score.value async for score in (retrieval | scored).astream(asked)] == [0.5]
    assert [given["answer"] for given in (retrieval | metric.require(0.5)).stream(asked)] == [ANSWER]
    chunks = list(retrieval.assign(faithfulness=metric).stream(asked))
    assert [chunk["answer"] for chunk in chunks if "answer" in chunk] == SPOKEN
    assert [chunk["faithfulness"].value for chunk in chunks if "faithfulness" in chunk] == [0.5]


async def test_with_retry_tries_a_lost_call_again():
    replies = [ConnectionError("reset by peer"), Statements(statements=["a"]), verdicts(supported(1))]
    for call in ("invoke", "ainvoke"):
        judge = scripted(*replies)
        retried = faithfulness(judge).with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
        score = retried.invoke(SAMPLE) if call == "invoke" else await retried.ainvoke(SAMPLE)
        assert (score.value, len(judge.asked)) == (1.0, 3)


async def test_with_fallbacks_another_judge_scores():
    dead = broken_judge(OSError("dead")).with_fallbacks([OfflineJudge()])
    for entry_point in (broken.with_fallbacks([faithfulness(OfflineJudge())]), faithfulness(dead)):
        assert entry_point.invoke(SAMPLE).value == 0.5
        assert (await entry_point.ainvoke(SAMPLE)).value == 0.5


def configurable_judge() -> Any:
    kind, strict = says(supported(1)), says(absent(1))
    return kind.configurable_alternatives(ConfigurableField(id="llm"), default_key="kind", strict=strict)


async def test_a_config_chooses_the_model_of_a_configurable_judge():
    chosen = faithfulness(configurable_judge())
    strict = chosen.with_config(configurable={"llm": "strict"})
    assert (chosen.invoke(SAMPLE).value, strict.invoke(SAMPLE).value) == (1.0, 0.0)
    assert (await strict.ainvoke(SAMPLE)).value == 0.0
    config = {"configurable": {"llm": "strict"}}
    assert chosen.invoke(SAMPLE, config).value == 0.0
    whole = ensure_config(config)
    for untraced in (True, False):
        assert score_sample(chosen, SAMPLE, Run(), whole, untraced=untraced)["faithfulness"].value == 0.0
        scores = await ascore_sample(chosen, SAMPLE, Run(), whole, untraced=untraced)
        assert scores["faithfulness"].value == 0.0


# Events and callbacks


def runs_of(run: Any) -> list[Any]:
    """Return a traced run and the runs below it."""
    return [run, *(inner for child in run.child_runs for inner in runs_of(child))]


class Recorder(RunCollectorCallbackHandler):
    """Keeps the runs of a call."""

    @property
    def runs(self) -> list[Any]:
        return [run for root in self.traced_runs for run in runs_of(root)]

    @property
    def tree(self) -> list[tuple[str, str | None]]:
        """Each run with its parent, by name; a model is named "model"."""
        names = {run.id: run.name if run.run_type == "chain" else "model" for run in self.runs}
        return [(names[run.id], names.get(run.parent_run_id)) for run in self.runs]

    @property
    def ended(self) -> dict[str, int]:
        """Numbers of ended runs by their kind, "chain" or "model", and whether they failed."""
        kinds = (("chain" if run.run_type == "chain" else "model", run.error) for run in self.runs if run.end_time)
        return dict(Counter(f"{kind} error" if error else kind for kind, error in kinds))


async def recordings(runnable: Any, given: Any = SAMPLE, **config: Any) -> list[Recorder]:
    """Return what a handler sees of a run by `invoke`, and of one by `ainvoke`."""
    sync, other = Recorder(), Recorder()
    runnable.invoke(given, {"callbacks": [sync], **config})
    await runnable.ainvoke(given, {"callbacks": [other], **config})
    return [sync, other]


BY_STEP = [("extract_statements", "faithfulness"), ("model", "extract_statements")]
BY_STEP += [("verify_statements", "faithfulness"), ("model", "verify_statements")]
ONE_CALL_A_STEP = [("faithfulness", None), *BY_STEP]
OF_A_SUITE = [("Suite", None), ("faithfulness", "Suite"), ("other", "Suite")]
OTHER = [(name, parent and parent.replace("faithfulness", "other")) for name, parent in BY_STEP if name != "model"]


@each(
    ("runnable", "runs", "models"),
    [
        (metric, ONE_CALL_A_STEP, 2),
        (faithfulness(recording_judge()), ONE_CALL_A_STEP, 2),  # which has sync methods only
        (faithfulness(Judge(OfflineJudge(), draws=3)), [*ONE_CALL_A_STEP, *[("model", "verify_statements")] * 2], 4),
        (metric.require(0.5), [("require_faithfulness", None), ("faithfulness", "require_faithfulness"), *BY_STEP], 2),
        (suite(metric, faithfulness(metric.judges[0], name="other")), [*OF_A_SUITE, *BY_STEP, *OTHER], 2),
    ],
)
async def test_a_callback_handler_sees_one_run_per_metric_step_and_call(runnable, runs, models):
    for seen in await recordings(runnable, tags=["mine"]):
        assert Counter(seen.tree) == Counter(runs)
        assert seen.ended == {"chain": len(runs) - models, "model": models}
        assert all("mine" in run.tags for run in seen.runs)


async def test_a_handler_sees_where_a_judge_failed():
    for call in ("invoke", "ainvoke"):
        seen, lost = Recorder(), faithfulness(broken_judge(ConnectionError("reset")))
        config = {"callbacks": [seen]}
        with pytest.raises(ConnectionError):
            lost.invoke(SAMPLE, config) if call == "invoke" else await lost.ainvoke(SAMPLE, config)
        assert (seen.tree, seen.ended) == (ONE_CALL_A_STEP[:3], {"chain error": 2, "model error": 1})


async def test_events_name_the_metric_and_its_steps_and_calls_stay_whole(openai_server, chat_openai):
    server = openai_server(offline)
    chain = rag_chain() | faithfulness(chat_openai(server, streaming=True))
    events = [(event["event"], event["name"]) async for event in chain.astream_events(QUESTION, version="v2")]
    named = [name for event, name in events if event == "on_chain_start" and not name.startswith("Runnable")]
    assert named == ["faithfulness", "extract_statements", "verify_statements"]
    kinds = [event for event, _ in events]
    assert kinds.count("on_chat_model_start") == kinds.count("on_chat_model_end") == server.calls == 2
    assert not server.refused
    assert not any(request.body.get("stream") for request in server.requests)


# LangGraph


class Answered(TypedDict, total=False):
    question: str
    answer: str
    contexts: list[str]
    faithfulness: Score
    other: Score
    judgement: Any


async def test_a_route_is_a_conditional_edge():
    def guarded(answer: str) -> Any:
        graph = StateGraph(Answered)
        graph.add_node("write", lambda _: {"answer": answer})
        graph.add_node("abstain", lambda _: {"answer": REFUSAL["answer"]})
        graph.add_edge(START, "write")
        guard = metric.route(0.8, lambda _: END, lambda _: "abstain", missing="pass")
        graph.add_conditional_edges("write", guard, ["abstain", END])
        return graph.compile()

    for answer, left in {TRUE_SAMPLE["answer"]: TRUE_SAMPLE["answer"], ANSWER: REFUSAL["answer"]}.items():
        assert guarded(answer).invoke({**SAMPLE, "answer": ""})["answer"] == left
        assert (await guarded(answer).ainvoke({**SAMPLE, "answer": ""}))["answer"] == left


def test_a_checkpoint_gives_the_score_back(caplog):
    scores = JsonPlusSerializer(allowed_msgpack_modules=[Score])  # LangGraph warns of every type it is not told of
    graph = sequence(Answered, {"judge": metric.as_node()}, InMemorySaver(serde=scores))
    config = {"configurable": {"thread_id": "1"}}
    written = graph.invoke(SAMPLE, config)["faithfulness"]
    assert graph.get_state(config).values["faithfulness"] == written
    assert not caplog.records


# openevals


@each(
    "given",
    [
        {"inputs": QUESTION, "outputs": ANSWER, "context": CONTEXTS},
        {"inputs": {"question": QUESTION}, "outputs": {"answer": ANSWER}, "context": DOCUMENTS},
        {"inputs": {"input": QUESTION}, "outputs": {"answer": ANSWER, "context": DOCUMENTS}},
        {"inputs": QUESTION, "outputs": AIMessage(ANSWER), "context": CONTEXTS, "reference_outputs": "1158"},
    ],
    ids=["texts", "dicts", "context in the outputs", "message"],
)
def test_a_metric_is_called_as_an_openevals_evaluator(given):
    feedback = metric(**given)
    theirs = exact_match(outputs=given["outputs"] if isinstance(given["outputs"], str) else "a", reference_outputs="a")
    assert feedback.keys() == theirs.keys()
    assert (feedback["key"], feedback["score"]) == ("faithfulness", 0.5)
    assert feedback["comment"].startswith("The contexts support 1 of 2 statements")
    assert [finding["verdict"] for finding in feedback["metadata"]["findings"]] == ["supported", "absent"]


def test_openevals_feedback_without_a_value_says_why():
    refused = metric(inputs=QUESTION, outputs=REFUSAL["answer"], context=CONTEXTS)
    assert (refused["score"], refused["comment"]) == (None, "the answer states no facts")
    failed = broken(inputs=QUESTION, outputs=ANSWER, context=CONTEXTS)
    assert failed["metadata"]["failure"]["error"] == "JudgeOutputError"


def test_a_call_without_what_the_metric_reads_raises():
    with pytest.raises(SampleError, match=r"lacks \['contexts'\]"):
        metric(inputs=QUESTION, outputs=ANSWER)
    with pytest.raises(SampleError, match=r"lacks \['answer'\]"):
        metric(inputs=QUESTION, outptus=ANSWER, context=CONTEXTS)


# Failing, and telling


SECRET = "sk-secret-0123456789"
HEADERS = {"Authorization": f"Bearer {SECRET}"}


def test_nothing_that_a_metric_shows_of_itself_holds_a_secret():
    options = {"api_key": SECRET, "base_url": f"https://user:{SECRET}@host/v1", "extra_body": {"api_key": SECRET}}
    openai = ChatOpenAI(model="m", default_headers=HEADERS, **options)
    gigachat = GigaChat(credentials=SECRET, password=SECRET, access_token=SECRET, model="GigaChat-2")
    bound = openai.bind(api_key=SECRET, extra_headers=HEADERS, extra_body={"auth": {"token": SECRET}})
    for model in (openai, gigachat, bound, openai.with_retry(), gigachat.with_fallbacks([openai])):
        judge = Judge(model)
        scored = faithfulness(judge)
        both = suite(scored, faithfulness(judge, name="other"))
        shown = [judge, judge.instrument, scored, scored.steps, both, scored.with_retry(), scored.require(0.5)]
        texts = [text for thing in shown for text in (repr(thing), str(thing))]
        texts += [dumps(scored), dumps(both), str(dumpd(scored)), str(scored.get_graph().to_json())]
        assert not [text for text in texts if SECRET in text]
        assert "ChatOpenAI(model='m'" in repr(scored) or "GigaChat(model='GigaChat-2'" in repr(scored)


def test_a_failure_does_not_repeat_the_key_that_a_server_quotes(openai_server, chat_openai):
    server = openai_server(offline, faults=Faults.script(["unauthorized"] * 9))
    feedback = faithfulness(chat_openai(server, api_key=SECRET))(inputs=QUESTION, outputs=ANSWER, context=CONTEXTS)
    assert feedback["score"] is None
    assert "Incorrect credentials provided" in feedback["comment"]
    assert SECRET not in str(feedback)


def test_two_choices_of_one_configurable_judge_do_not_share_their_answers():
    judge = configurable_judge()
    kind = faithfulness(judge, name="kind")
    strict = faithfulness(judge, name="strict").with_config(configurable={"llm": "strict"})
    scores = evaluate([SAMPLE], [kind, strict], progress=False).rows[0].scores
    assert {name: score.value for name, score in scores.items()} == {"kind": 1.0, "strict": 0.0}


KEEP = RunnableLambda(lambda given: ("kept", given), name="keep")
DROP = RunnableLambda(lambda given: ("dropped", given), name="drop")


async def test_require_passes_its_input_on_or_says_what_is_required():
    assert await metric.require(0.5).ainvoke(SAMPLE) is SAMPLE
    gate = metric.require(0.51)
    with pytest.raises(BelowThreshold) as caught:
        gate.invoke(SAMPLE)
    with pytest.raises(BelowThreshold):
        await gate.ainvoke(SAMPLE)
    score = caught.value.score
    assert (score.value, caught.value.threshold) == (0.5, 0.51)
    assert str(caught.value) == f"faithfulness is 0.500, at least 0.51 is required: {score.reason}"


async def test_when_lower_is_better_the_threshold_is_a_ceiling():
    lower = unfaithfulness(OfflineJudge())
    assert lower.require(0.5).invoke(SAMPLE) is SAMPLE
    assert await lower.require(0.6).ainvoke(SAMPLE) is SAMPLE
    with pytest.raises(BelowThreshold, match=r"unfaithfulness is 0\.500, at most 0\.4 is required"):
        lower.require(0.4).invoke(SAMPLE)
    assert lower.route(0.4, KEEP, DROP).invoke(SAMPLE) == ("dropped", SAMPLE)


@pytest.mark.parametrize(
    ("judged", "sample", "cause"),
    [(metric, REFUSAL, "the answer states no facts"), (broken, SAMPLE, "JudgeOutputError: extract_statements")],
    ids=["unscored", "failed"],
)
async def test_without_a_value_missing_decides(judged, sample, cause):
    for gate in (judged.require(0.5), judged.route(0.5, KEEP, DROP)):
        with pytest.raises(BelowThreshold, match=rf"faithfulness has no value \({cause}.*at least 0.5"):
            gate.invoke(sample)
        with pytest.raises(BelowThreshold, match="has no value"):
            await gate.ainvoke(sample)
    assert judged.require(0.5, missing="pass").invoke(sample) is sample
    assert await judged.require(0.5, missing="pass").ainvoke(sample) is sample
    assert judged.route(0.5, KEEP, DROP, missing="pass").invoke(sample) == ("kept", sample)


async def test_route_gives_the_original_input_to_one_of_two_branches():
    ways = metric.route(0.8, KEEP, lambda given: f"dropped {given['answer']}")
    expected = [f"dropped {ANSWER}", ("kept", TRUE_SAMPLE)]
    assert ways.batch([SAMPLE, TRUE_SAMPLE]) == await ways.abatch([SAMPLE, TRUE_SAMPLE]) == expected


async def test_only_the_chosen_branch_runs_and_it_may_be_async():
    ran: list[str] = []

    def branch(name: str) -> RunnableLambda[Any, str]:
        async def arun(_: Any) -> str:
            ran.append(name)
            return name

        return RunnableLambda(arun)

    assert await metric.route(0.8, branch("then"), branch("otherwise")).ainvoke(SAMPLE) == "otherwise"
    assert ran == ["otherwise"]


def test_a_gate_has_the_name_of_its_metric_and_shows_the_steps_in_the_graph():
    for gate, name in ((metric.require(0.5), "require"), (metric.route(0.5, KEEP, DROP), "route")):
        assert gate.get_name() == f"{name}_faithfulness"
        drawn = (rag_chain() | gate).get_graph().draw_mermaid()
        assert "extract_statements --> verify_statements" in drawn
        assert "verify_statements --> supported_share" in drawn


def test_a_sample_that_lacks_a_field_is_no_missing_value():
    lacking, gate = {"question": QUESTION, "answer": ANSWER}, metric.require(0.5, missing="pass")
    error = error_of(SampleError, gate.invoke, lacking)
    assert re.search(r"^faithfulness reads .* lacks \['contexts'\]: fill it in or drop the metric$", str(error))
    with pytest.raises(SampleError, match=r"the metric, or map one of \['Найдено'\] with fields={\.\.\.} or --fields$"):
        metric.invoke({**lacking, "Найдено": "Статья"})
    error = error_of(SampleError, metric.invoke, {"question": QUESTION, "d": "1", "b": "2", "a": "3", "c": "4"})
    assert re.search(r"lacks \['answer', 'contexts'\]: .* one of \['a', 'b', 'c', 'd'\] with", str(error))
    assert error.field == "answer"


@each(
    ("options", "message"),
    [
        *(({"missing": word}, f"missing must be 'raise' or 'pass', got {word!r}") for word in ("skip", None)),
        *(({"threshold": t}, f"threshold must be a finite number, got {t!r}") for t in ("0.8", None, float("nan"))),
    ],
)
def test_an_invalid_option_is_refused_at_once(options, message):
    for gate in (metric.require, partial(metric.route, then=KEEP, otherwise=DROP)):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            gate(**{"threshold": 0.5, **options})
