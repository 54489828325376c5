"""MetricTests: what holds for every metric, to be run on one of your own.

A metric that passes can stand in a chain, a graph, a LangSmith experiment and `evaluate`, and nothing that a sample
holds breaks it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import os
import pickle
import random
import threading
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough
from langsmith.evaluation.evaluator import RunEvaluator
from langsmith.run_trees import RunTree
from langsmith.schemas import Example

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import BelowThreshold, SampleError
from langchain_rageval.evaluation.api import aevaluate, evaluate
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.sample_scores import scores_by_name
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.testing.material import HOSTILE, SAMPLE, everywhere, numbered, vocabularies

_PATIENCE = 60.0  # seconds for which a sample lets others go first


class MetricTests:
    """Tests for a metric; subclass it in a test module and define `metric`, as a property or a fixture.

        class TestPoliteness(MetricTests):
            @property
            def metric(self):
                return aspect_critique(OfflineJudge(), "politeness", definition="The answer is polite.")

    The metric is called many times over, with different samples, from threads and from event loops of their own, and
    must say the same of the same: give it a deterministic judge such as OfflineJudge, a function of the messages, or
    `ScriptedJudge(..., repeat=True)`. A suite is tested as its metrics together. To leave a test out, override it.

    Attributes:
        metric: the metric.
        sample: what it scores, by default one that has every field.
    """

    @property
    def metric(self) -> Metric | Suite:
        """The metric; define it in the subclass."""
        raise NotImplementedError(f"{type(self).__name__} defines `metric`, as a property or a fixture")

    @property
    def sample(self) -> dict[str, Any] | Sample:
        """What the metric scores."""
        return SAMPLE

    # A subclass's own fixtures of these names come after these, by their place in the alphabet, and take their place.

    @pytest.fixture(name="metric")
    def _its_metric(self) -> Metric | Suite:
        return self.metric

    @pytest.fixture(name="sample")
    def _its_sample(self) -> dict[str, Any] | Sample:
        return self.sample

    @pytest.fixture
    def given(self, sample: dict[str, Any] | Sample) -> dict[str, Any]:
        """The sample's fields, those that it has."""
        fields = Sample.parse(sample).model_dump(exclude={"id", "metadata"})
        return {name: value for name, value in fields.items() if value is not None and value != []}

    # What it is

    def test_it_is_a_runnable_and_an_evaluator(self, metric: Metric | Suite) -> None:
        """It fits where LangChain takes a Runnable and LangSmith an evaluator."""
        assert isinstance(metric, Runnable)
        assert isinstance(metric, RunEvaluator)
        assert callable(metric)
        assert metric.feedback_keys == names_of(metric)
        assert len(set(metric.feedback_keys)) == len(metric.feedback_keys)

    def test_it_tells_its_name_aspect_direction_and_fields(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """Scores are stamped with what the metric tells of itself."""
        for part, score in zip(metrics_in(metric), _scores(metric.invoke(given)).values(), strict=True):
            assert (score.metric, score.aspect, score.direction) == (part.name, part.aspect, part.direction)
            assert score.instrument == part.instrument != ""
            assert part.reads <= set(Sample.model_fields)
            assert part.get_name() == part.name

    def test_it_has_schemas_and_a_graph(self, metric: Metric | Suite) -> None:
        """It can be drawn, served and described."""
        assert metric.get_input_jsonschema()["title"]
        assert metric.get_output_jsonschema()["title"]
        assert metric.get_graph().draw_mermaid()

    def test_its_score_is_a_number_with_a_reason_and_survives_being_written(
        self, metric: Metric | Suite, given: dict[str, Any]
    ) -> None:
        """JSON and pickle give the score back; what has no number says why; feedback is never NaN."""
        for score in _scores(metric.invoke(given)).values():
            assert score.failure is None, f"the metric failed on its own sample: {score.comment}"
            assert score.value is None or math.isfinite(score.value)
            assert score.comment, "a score says in one sentence how it came about"
            assert Score.model_validate_json(score.model_dump_json()) == score
            assert pickle.loads(pickle.dumps(score)) == score
            feedback = json.loads(json.dumps(score.feedback("q-1"), allow_nan=False))
            assert (feedback["key"], feedback["score"]) == (score.metric, score.value)

    # Ways of calling

    def test_every_way_of_calling_gives_the_same_score(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """Alone and in a batch, streamed and whole, with and without a loop."""
        expected = _found(metric.invoke(given))
        both = [expected, expected]

        async def awaited() -> None:
            assert _found(await metric.ainvoke(given)) == expected
            assert [*map(_found, await metric.abatch([given, given]))] == both
            assert [_found(score) async for score in metric.astream(given)] == [expected]
            assert [_found(score) async for _, score in metric.abatch_as_completed([given, given])] == both

        asyncio.run(awaited())
        assert [*map(_found, metric.batch([given, given]))] == both
        assert [*map(_found, metric.stream(given))] == [expected]
        assert [_found(score) for _, score in metric.batch_as_completed([given, given])] == both
        assert [*map(_found, metric.transform(iter([given])))] == [expected]

    @pytest.mark.parametrize("door", ["batch", "abatch"])
    def test_scores_keep_the_order_of_the_samples_when_the_first_takes_longest(
        self, metric: Metric | Suite, given: dict[str, Any], door: str
    ) -> None:
        """A batch gives each sample its own score, whoever is through first."""
        samples = list(numbered(given))
        expected = [_found(metric.invoke(sample)) for sample in samples]
        if all(one == expected[0] for one in expected):
            pytest.skip("the judge says the same of every sample, so their order cannot be seen")
        turn = LastFirst(len(samples))
        configs: list[RunnableConfig] = [{"callbacks": [turn.of(number)]} for number in range(len(samples))]
        scores: list[Any] = (
            metric.batch(samples, configs) if door == "batch" else asyncio.run(metric.abatch(samples, configs))
        )
        assert turn.finished == [*reversed(range(len(samples)))]
        assert [*map(_found, scores)] == expected

    @pytest.mark.parametrize("door", ["batch", "abatch"])
    def test_two_bad_samples_in_a_batch_do_not_affect_a_third(
        self, metric: Metric | Suite, given: dict[str, Any], door: str
    ) -> None:
        """Their errors stand in their places."""
        samples: list[Any] = [{"answer": "No question."}, given, "no sample"]
        if door == "batch":
            results: list[Any] = metric.batch(samples, return_exceptions=True)
        else:
            results = asyncio.run(metric.abatch(samples, return_exceptions=True))
        assert isinstance(results[0], SampleError)
        assert isinstance(results[2], SampleError)
        assert _found(results[1]) == _found(metric.invoke(given))

    def test_every_door_gives_the_same_score(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """In a chain, wrapped, side by side, in a suite, as a node of a graph, and under evaluate."""
        expected = _found(metric.invoke(given))
        chain: Runnable[Any, Any] = RunnableLambda(lambda _: given)
        itself: Runnable[Any, Any] = metric
        doors: list[Runnable[Any, Any]] = [
            chain | metric,
            chain | metric.with_retry(),
            chain | itself.with_fallbacks([itself]),
            chain | metric.with_config(tags=["mine"]),
            chain | RunnablePassthrough.assign(mine=metric) | itemgetter("mine"),
            chain | RunnableParallel(mine=metric, other=metric) | itemgetter("mine"),
            chain | suite(metric),
            chain | metric.as_node(),
        ]
        for door in doors:
            assert _found(door.invoke("?")) == expected
            assert _found(asyncio.run(door.ainvoke("?"))) == expected
        assert _found(evaluate([given], metric, progress=False).rows[0].scores) == expected
        assert _found(asyncio.run(aevaluate([given], metric, progress=False)).rows[0].scores) == expected

    def test_a_node_writes_under_the_key_it_was_given(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """LangGraph gets a state update, not a bare score, whose fields it would take for updates."""
        update = metric.as_node("judgement").invoke(given)
        assert update.keys() == {"judgement"}
        assert _found(update["judgement"]) == _found(metric.invoke(given))

    def test_a_threshold_lets_pass_what_reaches_it(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """`require` and `route` go by the value and the direction; without a value by what the user said."""
        for part in metrics_in(metric):
            value = part.invoke(given).value
            if value is None:
                assert part.require(0.5, missing="pass").invoke(given) == given
                with pytest.raises(BelowThreshold):
                    part.require(0.5).invoke(given)
                continue
            beyond = math.nextafter(value, math.inf if part.direction == "higher" else -math.inf)
            assert part.require(value).invoke(given) == given
            with pytest.raises(BelowThreshold, match=part.name):
                part.require(beyond).invoke(given)
            for limit, way in ((value, "then"), (beyond, "otherwise")):
                routed = part.route(limit, lambda _: "then", lambda _: "otherwise")
                assert routed.invoke(given) == way
                assert asyncio.run(routed.ainvoke(given)) == way

    def test_feedback_is_the_same_through_openevals_and_langsmith(
        self, metric: Metric | Suite, given: dict[str, Any]
    ) -> None:
        """Both get key, score, comment and metadata; the contexts come as an argument or in the outputs."""
        expected = {name: (score.value, score.comment) for name, score in _scores(metric.invoke(given)).items()}
        asked, told = {"question": given["question"]}, {"answer": given.get("answer")}
        rest = {name: value for name, value in given.items() if name not in ("question", "answer", "references")}
        right = {"references": given["references"]} if "references" in given else None

        feedback = metric(inputs=asked, outputs=told | rest, reference_outputs=right)
        several = feedback if isinstance(feedback, list) else [feedback]
        assert {part["key"]: (part["score"], part["comment"]) for part in several} == expected

        run = RunTree(name="rag", inputs=asked, outputs=told | rest, client=None)
        example = Example(id=uuid4(), dataset_id=uuid4(), inputs=asked, outputs=right, created_at=datetime.now(UTC))
        for result in (metric.evaluate_run(run, example), asyncio.run(metric.aevaluate_run(run, example))):  # type: ignore[arg-type]
            results = result["results"] if isinstance(result, dict) else [result]
            assert {part.key: (part.score, part.comment) for part in results} == expected

    # Inputs

    def test_every_vocabulary_is_understood(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """Ragas, retrieval chains with Documents and messages, openevals and LangGraph, as far as they say enough."""
        expected = {name: score.value for name, score in _scores(metric.invoke(given)).items()}
        read = frozenset[str]().union(*(part.reads for part in metrics_in(metric)))
        for words, said in vocabularies(given):
            if read <= Sample.parse(said).model_fields_set:
                got = {name: score.value for name, score in _scores(metric.invoke(said)).items()}
                assert got == expected, f"in the words of {words}"

    def test_a_missing_field_raises_before_any_call_and_says_what_to_do(
        self, metric: Metric | Suite, given: dict[str, Any]
    ) -> None:
        """Nothing is paid for a sample that cannot be scored."""
        for part in metrics_in(metric):
            for field in sorted(part.reads - {"question"}):
                lacking = {name: value for name, value in given.items() if name != field}
                for door in ("invoke", "ainvoke"):
                    seen = Steps()
                    config: RunnableConfig = {"callbacks": [seen]}
                    with pytest.raises(SampleError, match="fill it in or drop the metric") as caught:
                        part.invoke(lacking, config) if door == "invoke" else asyncio.run(part.ainvoke(lacking, config))
                    assert caught.value.field == field
                    assert seen.children == [], "a step had begun"

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
    def test_hostile_content_stays_data(self, metric: Metric | Suite, given: dict[str, Any], text: str) -> None:
        """Braces, control characters, injections and forged numbers, in every field, are text to be judged."""
        sample = everywhere(text, given)
        seen = Steps()
        scored = metric.invoke(sample, {"callbacks": [seen]})
        assert _found(asyncio.run(metric.ainvoke(sample))) == _found(scored)
        for score in _scores(scored).values():
            assert Score.model_validate_json(score.model_dump_json()) == score
            assert json.dumps(score.feedback(text), allow_nan=False)
        for message in seen.messages:
            assert message.type != "system" or text not in message.text

    # What is left behind

    def test_the_users_sample_is_not_changed(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """Neither a mapping nor a Document in it."""
        documents = [Document(text, metadata={"a": 1}) for text in given.get("contexts", [])]
        sample = given | ({"contexts": documents} if documents else {})
        before = copy.deepcopy(sample)
        metric.invoke(sample)
        asyncio.run(metric.ainvoke(sample))
        assert sample == before

    def test_nothing_is_kept_between_calls(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """A score does not depend on what was scored before, and the metric stays what it was."""
        held = {name: id(value) for name, value in vars(metric).items()}
        first = _found(metric.invoke(given))
        for sample in numbered(given):
            metric.invoke(sample)
        assert _found(metric.invoke(given)) == first
        assert {name: id(value) for name, value in vars(metric).items()} == held

    def test_the_process_stays_as_it_was(self, metric: Metric | Suite, given: dict[str, Any]) -> None:
        """No environment variable is set, no random number drawn from what everybody shares."""
        before = (dict(os.environ), os.getcwd(), random.getstate(), str(np.random.get_state()))
        metric.invoke(given)
        asyncio.run(metric.ainvoke(given))
        after = (dict(os.environ), os.getcwd(), random.getstate(), str(np.random.get_state()))
        assert after == before

    @pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle"])
    def test_a_copy_scores_the_same_under_the_same_instrument(
        self, metric: Metric | Suite, given: dict[str, Any], way: str
    ) -> None:
        """Ray and process pools send copies; a score must not depend on who made it."""
        expected = metric.invoke(given)
        copies: dict[str, Any] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": _pickled}
        twin = copies[way](metric)
        assert _found(twin.invoke(given)) == _found(expected)
        assert [part.instrument for part in metrics_in(twin)] == [part.instrument for part in metrics_in(metric)]


class Steps(BaseCallbackHandler):
    """Keeps the runs that began within a metric's own, and what models were sent."""

    run_inline = True

    def __init__(self) -> None:
        self.children: list[UUID] = []
        self.messages: list[BaseMessage] = []

    def on_chain_start(self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Keep a step."""
        if parent_run_id is not None:
            self.children.append(run_id)

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **_: Any
    ) -> None:
        """Keep a call and its messages."""
        self.children.append(run_id)
        self.messages += [message for batch in messages for message in batch]


class LastFirst:
    """Lets samples finish in the reverse of their order, whatever they are scored by.

    Args:
        count: of the samples.
    """

    def __init__(self, count: int) -> None:
        self.finished: list[int] = []
        self.count = count
        self.turn = threading.Condition()

    def of(self, number: int) -> BaseCallbackHandler:
        """The handler of one sample: it keeps the sample from beginning until all later ones are through."""
        return Waiting(self, number)


class Waiting(BaseCallbackHandler):
    """Holds up one sample's run; LangChain calls it in a thread of its own, so a loop goes on meanwhile."""

    raise_error = True

    def __init__(self, order: LastFirst, number: int) -> None:
        self.order, self.number = order, number

    def on_chain_start(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Wait for the later samples."""
        if parent_run_id is None:
            with self.order.turn:
                later = self.order.count - 1 - self.number
                self.order.turn.wait_for(lambda: len(self.order.finished) >= later, timeout=_PATIENCE)

    def on_chain_end(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Let the one before go."""
        if parent_run_id is None:
            with self.order.turn:
                self.order.finished.append(self.number)
                self.order.turn.notify_all()


def _scores(result: Any) -> dict[str, Score]:
    return scores_by_name(result)


def _found(result: Any) -> dict[str, Any]:
    """All that scores say but what they cost."""
    return {name: score.model_dump(exclude={"usage"}) for name, score in _scores(result).items()}


def _pickled(metric: Any) -> Any:
    try:
        packed = pickle.dumps(metric)
    except Exception as error:
        told = "the metric cannot go to another process: define its functions at the top of a module"
        raise AssertionError(f"{told} ({error})") from error
    return pickle.loads(packed)
