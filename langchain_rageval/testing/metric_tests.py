"""MetricTests: the standard test suite for metrics, also for custom ones.

A metric that passes can be used in a chain, a graph, a LangSmith experiment and `evaluate`, with any sample content.
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
from collections.abc import Callable, Coroutine, Sequence
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
from langchain_rageval.metrics.structure import metrics_in, names_of, scores_by_name
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.testing.hostile_judges import HOSTILE, SAMPLE, insert_everywhere, list_vocabularies, vary_sample

AnyMetric = Metric | Suite
AnySample = dict[str, Any] | Sample
Fields = dict[str, Any]

_TIMEOUT = 60.0  # seconds that a sample waits for later ones


class MetricTests:
    """Tests for a metric; subclass it in a test module and define `metric` as a property or a fixture.

        class TestPoliteness(MetricTests):
            @property
            def metric(self):
                return aspect_critique(OfflineJudge(), "politeness", definition="The answer is polite.")

    The metric is called many times, with different samples, from threads and from new event loops, and must return
    equal scores for equal samples: use a deterministic judge such as OfflineJudge, a function of the messages, or
    `ScriptedJudge(..., repeat=True)`. The metrics of a suite are tested together. To skip a test, override it.

    Attributes:
        metric: the metric or suite under test.
        sample: the sample that it scores; by default one with every field.
    """

    @property
    def metric(self) -> AnyMetric:
        """The metric under test; define it in the subclass."""
        raise NotImplementedError(f"{type(self).__name__} must define `metric` as a property or a fixture")

    @property
    def sample(self) -> AnySample:
        """The sample that the metric scores."""
        return SAMPLE

    # pytest collects fixtures in alphabetical order: with the underscore, a subclass's own fixtures override these.

    @pytest.fixture(name="metric")
    def _default_metric(self) -> AnyMetric:
        return self.metric

    @pytest.fixture(name="sample")
    def _default_sample(self) -> AnySample:
        return self.sample

    @pytest.fixture
    def fields(self, sample: AnySample) -> Fields:
        """Return the fields of the sample that have a value, without id and metadata."""
        values = Sample.parse(sample).model_dump(exclude={"id", "metadata"})
        return {name: value for name, value in values.items() if value is not None and value != []}

    # Interface

    def test_it_is_a_runnable_and_an_evaluator(self, metric: AnyMetric) -> None:
        """Check that the metric is a LangChain Runnable and a LangSmith evaluator."""
        assert isinstance(metric, Runnable)
        assert isinstance(metric, RunEvaluator)
        assert callable(metric)
        assert metric.feedback_keys == names_of(metric)
        assert len(set(metric.feedback_keys)) == len(metric.feedback_keys)

    def test_it_tells_its_name_aspect_direction_and_fields(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that a score has the name, aspect, direction and configuration hash that its metric states."""
        for part, score in zip(metrics_in(metric), scores_by_name(metric.invoke(fields)).values(), strict=True):
            assert (score.metric, score.aspect, score.direction) == (part.name, part.aspect, part.direction)
            assert score.instrument == part.instrument != ""
            assert part.reads <= set(Sample.model_fields)
            assert part.get_name() == part.name

    def test_it_has_schemas_and_a_graph(self, metric: AnyMetric) -> None:
        """Check that input and output schemas and the graph can be generated."""
        assert metric.get_input_jsonschema()["title"]
        assert metric.get_output_jsonschema()["title"]
        assert metric.get_graph().draw_mermaid()

    def test_its_score_is_a_number_with_a_reason_and_survives_being_written(
        self, metric: AnyMetric, fields: Fields
    ) -> None:
        """Check that a score survives JSON and pickle, that it has a reason, and that feedback is never NaN."""
        for score in scores_by_name(metric.invoke(fields)).values():
            assert score.failure is None, f"the metric failed on its own sample: {score.comment}"
            assert score.value is None or math.isfinite(score.value)
            assert score.comment, "a score must give its reason in one sentence"
            assert Score.model_validate_json(score.model_dump_json()) == score
            assert pickle.loads(pickle.dumps(score)) == score
            feedback = json.loads(json.dumps(score.feedback("q-1"), allow_nan=False))
            assert (feedback["key"], feedback["score"]) == (score.metric, score.value)

    # Ways of calling

    def test_every_way_of_calling_gives_the_same_score(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that invoke, batch, stream and their asynchronous forms return equal scores."""
        expected = _content(metric.invoke(fields))
        both = [expected, expected]

        async def awaited() -> None:
            assert _content(await metric.ainvoke(fields)) == expected
            assert [*map(_content, await metric.abatch([fields, fields]))] == both
            assert [_content(score) async for score in metric.astream(fields)] == [expected]
            assert [_content(score) async for _, score in metric.abatch_as_completed([fields, fields])] == both

        asyncio.run(awaited())
        assert [*map(_content, metric.batch([fields, fields]))] == both
        assert [*map(_content, metric.stream(fields))] == [expected]
        assert [_content(score) for _, score in metric.batch_as_completed([fields, fields])] == both
        assert [*map(_content, metric.transform(iter([fields])))] == [expected]

    @pytest.mark.parametrize("entry_point", ["batch", "abatch"])
    def test_scores_keep_the_order_of_the_samples_when_the_first_takes_longest(
        self, metric: AnyMetric, fields: Fields, entry_point: str
    ) -> None:
        """Check that batches return scores in the order of the samples, not of completion."""
        samples = list(vary_sample(fields))
        expected = [_content(metric.invoke(sample)) for sample in samples]
        if all(one == expected[0] for one in expected):
            pytest.skip("all samples have equal scores, so their order cannot be tested")
        ended, finished = [threading.Event() for _ in samples], list[int]()
        handlers = [_WaitForLater(number, ended, finished) for number in range(len(samples))]
        configs: list[RunnableConfig] = [{"callbacks": [handler]} for handler in handlers]
        batch = metric.batch if entry_point == "batch" else _awaited(metric.abatch)
        scores = batch(samples, configs)
        assert finished == [*reversed(range(len(samples)))]
        assert [*map(_content, scores)] == expected

    @pytest.mark.parametrize("entry_point", ["batch", "abatch"])
    def test_two_bad_samples_in_a_batch_do_not_affect_a_third(
        self, metric: AnyMetric, fields: Fields, entry_point: str
    ) -> None:
        """Check that a batch with `return_exceptions=True` returns errors for bad samples and the third's score."""
        samples: list[Any] = [{"answer": "No question."}, fields, "no sample"]
        batch = metric.batch if entry_point == "batch" else _awaited(metric.abatch)
        results = batch(samples, return_exceptions=True)
        assert isinstance(results[0], SampleError)
        assert isinstance(results[2], SampleError)
        assert _content(results[1]) == _content(metric.invoke(fields))

    def test_every_door_gives_the_same_score(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that chains, wrappers, parallel runs, suites, graph nodes and `evaluate` return the same score."""
        expected = _content(metric.invoke(fields))
        chain: Runnable[Any, Any] = RunnableLambda(lambda _: fields)
        itself: Runnable[Any, Any] = metric
        for entry_point in (
            chain | metric,
            chain | metric.with_retry(),
            chain | itself.with_fallbacks([itself]),
            chain | metric.with_config(tags=["mine"]),
            chain | RunnablePassthrough.assign(mine=metric) | itemgetter("mine"),
            chain | RunnableParallel(mine=metric, other=metric) | itemgetter("mine"),
            chain | suite(metric),
            chain | metric.as_node(),
        ):
            assert _content(entry_point.invoke("?")) == expected
            assert _content(asyncio.run(entry_point.ainvoke("?"))) == expected
        assert _content(evaluate([fields], metric, progress=False).rows[0].scores) == expected
        assert _content(asyncio.run(aevaluate([fields], metric, progress=False)).rows[0].scores) == expected

    def test_a_node_writes_under_the_key_it_was_given(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that a graph node returns a state update; LangGraph would read a bare score's fields as updates."""
        update = metric.as_node("judgement").invoke(fields)
        assert update.keys() == {"judgement"}
        assert _content(update["judgement"]) == _content(metric.invoke(fields))

    def test_a_threshold_lets_pass_what_reaches_it(self, metric: AnyMetric, fields: Fields) -> None:
        """Check the methods `require` and `route` of a metric, which compare a score with a threshold.

        `require` returns its input or raises BelowThreshold; `route` runs one of two Runnables. A value equal to the
        threshold must pass; with a slightly stricter threshold, it must not pass. If the score has no value, `require`
        must raise BelowThreshold by default, and return its input with the option `missing="pass"`.
        """
        for part in metrics_in(metric):
            value = part.invoke(fields).value
            if value is None:
                assert part.require(0.5, missing="pass").invoke(fields) == fields
                with pytest.raises(BelowThreshold):
                    part.require(0.5).invoke(fields)
                continue
            beyond = math.nextafter(value, math.inf if part.direction == "higher" else -math.inf)
            assert part.require(value).invoke(fields) == fields
            with pytest.raises(BelowThreshold, match=part.name):
                part.require(beyond).invoke(fields)
            for limit, way in ((value, "then"), (beyond, "otherwise")):
                routed = part.route(limit, lambda _: "then", lambda _: "otherwise")
                assert routed.invoke(fields) == way
                assert asyncio.run(routed.ainvoke(fields)) == way

    def test_feedback_is_the_same_through_openevals_and_langsmith(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that openevals and LangSmith receive the same key, score and comment."""
        expected = {name: (score.value, score.comment) for name, score in scores_by_name(metric.invoke(fields)).items()}
        inputs = {"question": fields["question"]}
        rest = {name: value for name, value in fields.items() if name not in ("question", "answer", "references")}
        outputs = {"answer": fields.get("answer")} | rest
        references = {"references": fields["references"]} if "references" in fields else None

        feedback = metric(inputs=inputs, outputs=outputs, reference_outputs=references)
        parts = feedback if isinstance(feedback, list) else [feedback]
        assert {part["key"]: (part["score"], part["comment"]) for part in parts} == expected

        run = RunTree(name="rag", inputs=inputs, outputs=outputs, client=None)
        example = Example(
            id=uuid4(), dataset_id=uuid4(), inputs=inputs, outputs=references, created_at=datetime.now(UTC)
        )
        for result in (metric.evaluate_run(run, example), asyncio.run(metric.aevaluate_run(run, example))):  # type: ignore[arg-type]
            results = result["results"] if isinstance(result, dict) else [result]
            assert {part.key: (part.score, part.comment) for part in results} == expected

    # Inputs

    def test_every_vocabulary_is_understood(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that samples with field names of ragas, retrieval chains, openevals and LangGraph are scored."""
        expected = {name: score.value for name, score in scores_by_name(metric.invoke(fields)).items()}
        read = frozenset[str]().union(*(part.reads for part in metrics_in(metric)))
        for vocabulary, sample in list_vocabularies(fields):
            if read <= Sample.parse(sample).model_fields_set:
                values = {name: score.value for name, score in scores_by_name(metric.invoke(sample)).items()}
                assert values == expected, f"in the vocabulary of {vocabulary}"

    def test_a_missing_field_raises_before_any_call_and_says_what_to_do(
        self, metric: AnyMetric, fields: Fields
    ) -> None:
        """Check that a sample without a required field raises before any call, with a message that says what to do."""
        for part in metrics_in(metric):
            for field in sorted(part.reads - {"question", "history"}):
                lacking = {name: value for name, value in fields.items() if name != field}
                for method in (part.invoke, _awaited(part.ainvoke)):
                    recorder = _StepRecorder()
                    with pytest.raises(SampleError, match="fill it in or drop the metric") as caught:
                        method(lacking, {"callbacks": [recorder]})
                    assert caught.value.field == field
                    assert recorder.children == [], "a step had started"

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
    def test_hostile_content_stays_data(self, metric: AnyMetric, fields: Fields, text: str) -> None:
        """Check that braces, control characters, injections and forged numbers in fields do not disturb the metric."""
        sample = insert_everywhere(text, fields)
        recorder = _StepRecorder()
        scored = metric.invoke(sample, {"callbacks": [recorder]})
        assert _content(asyncio.run(metric.ainvoke(sample))) == _content(scored)
        for score in scores_by_name(scored).values():
            assert Score.model_validate_json(score.model_dump_json()) == score
            assert json.dumps(score.feedback(text), allow_nan=False)
        for message in recorder.messages:
            assert message.type != "system" or text not in message.text

    # Side effects

    def test_the_users_sample_is_not_changed(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that scoring changes neither the sample's mapping nor a Document in the mapping."""
        documents = [Document(text, metadata={"a": 1}) for text in fields.get("contexts", [])]
        sample = fields | ({"contexts": documents} if documents else {})
        before = copy.deepcopy(sample)
        metric.invoke(sample)
        asyncio.run(metric.ainvoke(sample))
        assert sample == before

    def test_nothing_is_kept_between_calls(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that scores do not depend on earlier calls, and that the metric's attributes do not change."""
        attributes = {name: id(value) for name, value in vars(metric).items()}
        first = _content(metric.invoke(fields))
        for sample in vary_sample(fields):
            metric.invoke(sample)
        assert _content(metric.invoke(fields)) == first
        assert {name: id(value) for name, value in vars(metric).items()} == attributes

    def test_the_process_stays_as_it_was(self, metric: AnyMetric, fields: Fields) -> None:
        """Check that scoring changes no environment variable, working directory or global random state."""
        before = (dict(os.environ), os.getcwd(), random.getstate(), str(np.random.get_state()))
        metric.invoke(fields)
        asyncio.run(metric.ainvoke(fields))
        after = (dict(os.environ), os.getcwd(), random.getstate(), str(np.random.get_state()))
        assert after == before

    @pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle"])
    def test_a_copy_scores_the_same_under_the_same_instrument(
        self, metric: AnyMetric, fields: Fields, way: str
    ) -> None:
        """Check that copies of the metric, as Ray and process pools make them, give the same score."""
        expected = metric.invoke(fields)
        copies: dict[str, Any] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": _pickle_copy}
        twin = copies[way](metric)
        assert _content(twin.invoke(fields)) == _content(expected)
        assert [part.instrument for part in metrics_in(twin)] == [part.instrument for part in metrics_in(metric)]


class _StepRecorder(BaseCallbackHandler):
    """Callback handler that records the child runs of a metric's run, and the messages sent to models."""

    run_inline = True

    def __init__(self) -> None:
        self.children: list[UUID] = []
        self.messages: list[BaseMessage] = []

    def on_chain_start(self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Record the run of a step."""
        if parent_run_id is not None:
            self.children.append(run_id)

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **_: Any
    ) -> None:
        """Record a model call and its messages."""
        self.children.append(run_id)
        self.messages += [message for batch in messages for message in batch]


class _WaitForLater(BaseCallbackHandler):
    """Callback handler that delays the start of one sample until the next one has finished.

    LangChain calls it in a separate thread, so it does not block an event loop.

    Args:
        number: place of the sample.
        ended: an event for each sample, which is set when it has finished.
        finished: places of the finished samples, in order, to which this one is added.
    """

    raise_error = True

    def __init__(self, number: int, ended: Sequence[threading.Event], finished: list[int]) -> None:
        self.number, self.ended, self.finished = number, ended, finished

    def on_chain_start(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Wait until the next sample has finished."""
        if parent_run_id is None:
            for event in self.ended[self.number + 1 : self.number + 2]:
                event.wait(_TIMEOUT)

    def on_chain_end(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        """Let the previous sample continue."""
        if parent_run_id is None:
            self.finished.append(self.number)
            self.ended[self.number].set()


def _awaited(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Return an async function as one that runs on an event loop of its own."""
    return lambda *given, **options: asyncio.run(function(*given, **options))


def _content(result: Any) -> dict[str, Any]:
    """Return the scores by name as dictionaries, without usage."""
    return {name: score.model_dump(exclude={"usage"}) for name, score in scores_by_name(result).items()}


def _pickle_copy(metric: Any) -> Any:
    try:
        pickled = pickle.dumps(metric)
    except Exception as error:
        message = "the metric cannot be pickled: define its functions at the top level of a module"
        if "<lambda>" in str(error) or "<locals>" in str(error):  # which no other process can import
            pytest.skip(f"{message}, if it is to be used in a process pool ({error})")
        raise AssertionError(f"{message} ({error})") from error
    return pickle.loads(pickled)
