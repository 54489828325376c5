"""Scores on the traces of the runs: Langfuse's client, OpenTelemetry's events, OTLP and Prometheus."""

import asyncio
import importlib
import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from helpers import doors
from helpers.each import each, error_of
from helpers.samples import SAMPLE, row
from helpers.servers.loopback import Loopback, Response
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from langchain_rageval import ConfigError, OfflineJudge, RagEvalCallback, faithfulness
from langchain_rageval.sinks import LangfuseSink, OpenTelemetrySink

CHAIN = RunnableLambda(lambda question: {"answer": SAMPLE["answer"], "contexts": SAMPLE["contexts"]})
GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def watching(*sinks, **options):
    return RagEvalCallback(faithfulness(OfflineJudge()), sample_rate=1.0, sinks=sinks, **options)


@pytest.fixture
def spans():
    """A provider of spans of its own; nothing is global."""
    provider = TracerProvider()
    yield provider.get_tracer("app")
    provider.shutdown()


@pytest.fixture
def meters():
    """A meter, and a function that returns the data points of each instrument by its name."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def points():
        (resource,) = reader.get_metrics_data().resource_metrics
        return {metric.name: metric.data.data_points for metric in resource.scope_metrics[0].metrics}

    yield provider.get_meter("rag"), points
    provider.shutdown()


def ask_and_close(callback, chain_input=SAMPLE["question"], **config):
    """Call the chain, and wait until the callback has scored the call."""
    CHAIN.invoke(chain_input, {"callbacks": [callback], **config})
    assert callback.close()


# the span of a run


@pytest.mark.parametrize("door", [doors.invoke, doors.ainvoke, doors.batch])
async def test_a_row_names_the_span_in_which_the_chain_was_called(spans, door):
    rows = []
    callback = watching(rows.append)
    with spans.start_as_current_span("request") as span:
        await door(CHAIN, SAMPLE["question"], {"callbacks": [callback]})
    assert callback.close()
    context, metadata = span.get_span_context(), rows[0].sample.metadata
    expected = (format_trace_id(context.trace_id), format_span_id(context.span_id))
    assert (metadata["trace_id"], metadata["span_id"]) == expected


def test_metadata_of_the_call_names_another_trace(spans):
    rows = []
    with spans.start_as_current_span("request"):
        ask_and_close(watching(rows.append), metadata={"trace_id": "t-1", "span_id": "s-1"})
    ask_and_close(watching(rows.append))
    found = {(one.sample.metadata.get("trace_id"), one.sample.metadata.get("span_id")) for one in rows}
    assert found == {("t-1", "s-1"), (None, None)}


# Langfuse


def accept(received):
    return Response(200, b"", "application/x-protobuf")


def listed(body):
    return body if isinstance(body, list) else [body]


class LangfuseServer(Loopback):
    """What the client of Langfuse posts to."""

    def __init__(self):
        super().__init__()
        self.routes["/api/public/otel/v1/traces"] = accept
        self.routes["/api/public/scores"] = lambda sent: Response.json([{"id": one["id"]} for one in listed(sent.body)])
        self.routes["/api/public/ingestion"] = lambda received: Response.json({"successes": [], "errors": []}, 207)

    @property
    def scores(self):
        """Scores in the order of arrival, from each of the interfaces that versions of the client use."""
        found = []
        for request in self.requests:
            if request.path == "/api/public/scores":
                found += listed(request.body)
            elif request.path == "/api/public/ingestion":
                found += [event["body"] for event in request.body["batch"] if event["type"] == "score-create"]
        return found


@pytest.fixture
def langfuse():
    """A real client of Langfuse, and the server that it posts to."""
    package = pytest.importorskip("langfuse")
    with LangfuseServer() as server:
        provider = TracerProvider()
        key = f"pk-{uuid4()}"  # the client keeps one exporter for each key
        client = package.Langfuse(public_key=key, secret_key="sk-1", base_url=server.url, tracer_provider=provider)
        yield client, server, key
        client.shutdown()
        provider.shutdown()


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore")  # of Langfuse's own imports
def test_a_score_is_posted_to_the_trace_of_a_synchronous_chain_in_any_order_of_the_handlers(langfuse):
    client, server, key = langfuse
    langchain = importlib.import_module("langfuse.langchain")
    expected = []
    for is_first in (True, False):
        handler = langchain.CallbackHandler(public_key=key)
        callback = watching(LangfuseSink(client), tags={"version": "1.4"})
        handlers = [handler, callback] if is_first else [callback, handler]
        CHAIN.invoke({"question": SAMPLE["question"]}, {"callbacks": handlers})
        assert callback.close()
        expected.append(handler.last_trace_id)
    assert [score["traceId"] for score in server.scores] == expected
    score = server.scores[0]
    found = [score["name"], score["dataType"], score["metadata"]["version"], score["metadata"]["direction"]]
    assert found == ["faithfulness", "NUMERIC", "1.4", "higher"]
    assert 0 <= score["value"] <= 1
    assert len(score["observationId"]) == 16


@pytest.mark.gate
def test_a_score_is_posted_to_the_observation_around_an_asynchronous_chain(langfuse):
    client, server, _ = langfuse
    callback = watching(LangfuseSink(client))

    async def answer():
        with client.start_as_current_observation(name="answer") as observation:
            await CHAIN.ainvoke({"question": SAMPLE["question"]}, {"callbacks": [callback]})
            return observation

    observation = asyncio.run(answer())
    assert callback.close()
    (score,) = server.scores
    assert (score["traceId"], score["observationId"]) == (observation.trace_id, observation.id)


@pytest.mark.gate
def test_the_code_of_the_guide_posts_scores(langfuse, monkeypatch):
    client, server, _ = langfuse
    monkeypatch.setattr("langfuse.get_client", lambda: client)
    guide = (GUIDES / "dashboards.md").read_text(encoding="utf-8")
    code = re.search(r"^```py\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)[1]
    code = code.replace("sample_rate=0.1", "sample_rate=1.0")
    names = {"RagEvalCallback": RagEvalCallback, "faithfulness": faithfulness, "judge": OfflineJudge(), "chain": CHAIN}
    exec(code, names | {"question": {"question": SAMPLE["question"]}}, found := {})
    assert found["callback"].close()
    assert [score["name"] for score in server.scores] == ["faithfulness"]


@pytest.mark.gate
def test_a_score_posted_again_has_the_same_id_and_one_without_a_value_is_not_posted(langfuse):
    client, server, _ = langfuse
    sink = LangfuseSink(client)
    given = row(0.5, run_id="r-1", metadata={"trace_id": "0" * 31 + "1"})
    for one in (given, given, row(None, metadata={"trace_id": "0" * 31 + "2"})):
        sink(one)
    sink.close()
    first, second = server.scores
    assert first["id"] == second["id"]
    assert first["comment"] == "because"


@pytest.mark.gate
def test_a_run_without_a_trace_and_another_client_are_refused(langfuse):
    assert str(error_of(ConfigError, LangfuseSink(langfuse[0]), row(0.5, run_id="r-1"))) == (
        'run r-1 belongs to no trace: call the chain in `with client.start_as_current_observation(name="answer")`, or '
        'add {"metadata": {"trace_id": "..."}} to its config'
    )
    another = str(error_of(ConfigError, LangfuseSink, "http://localhost"))
    assert another == "LangfuseSink takes langfuse.get_client(), got str"
    assert repr(LangfuseSink(langfuse[0])) == "LangfuseSink()"


# OpenTelemetry


def test_scores_are_metrics_of_opentelemetry(meters):
    meter, points = meters
    sink = OpenTelemetrySink(meter)
    for value in (0.25, 0.35, 1.0, None):
        sink(row(value))
    found = points()
    (scores,) = found["rageval.score"]
    assert (scores.count, scores.sum) == (3, 1.6)
    assert dict(scores.attributes) == {"metric": "faithfulness", "aspect": "grounding", "direction": "higher"}
    assert scores.explicit_bounds == tuple(step / 10 for step in range(11))
    assert scores.bucket_counts[3:5] == (1, 1)
    (failed,), (unscored,) = found["rageval.failures"], found["rageval.unscored"]
    assert (failed.value, failed.attributes["error"]) == (1, "RateLimitError")
    assert (unscored.value, unscored.attributes["reason"]) == (1, "the answer states no facts")
    calls = {point.attributes["metric"]: point.value for point in found["rageval.judge.calls"]}
    assert calls == {"faithfulness": 8, "answer_relevance": 0}
    assert found["rageval.judge.tokens"][0].value == 440


def test_chosen_tags_are_attributes_with_a_bounded_number_of_values(meters):
    meter, points = meters
    sink = OpenTelemetrySink(meter, tags=["tenant", "version"])
    for number in range(102):
        sink(row(0.5).model_copy(update={"tags": {"tenant": f"t{number}", "secret": "s"}}))
    found = points()["rageval.score"]
    counts = {point.attributes["tenant"]: point.count for point in found}
    assert counts == {**{f"t{number}": 1 for number in range(100)}, "other": 2}
    assert {name for point in found for name in point.attributes} == {"metric", "aspect", "direction", "tenant"}


def test_each_score_is_an_event_on_the_span_of_its_run(spans, meters):
    exporter = InMemoryLogRecordExporter()
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    sink = OpenTelemetrySink(meters[0], logger=logs.get_logger("rag"))
    with spans.start_as_current_span("request") as span:
        ask_and_close(watching(sink), {"question": SAMPLE["question"]})
    sink(row(None, metadata={"trace_id": "not hexadecimal"}))
    scored, failed, unscored = (one.log_record for one in exporter.get_finished_logs())
    assert {one.event_name for one in (scored, failed, unscored)} == {"gen_ai.evaluation.result"}
    context = span.get_span_context()
    assert (scored.trace_id, scored.span_id) == (context.trace_id, context.span_id)
    assert scored.attributes["gen_ai.evaluation.name"] == "faithfulness"
    assert 0 <= scored.attributes["gen_ai.evaluation.score.value"] <= 1
    assert dict(failed.attributes) == {
        "gen_ai.evaluation.name": "faithfulness",
        "gen_ai.evaluation.explanation": "RateLimitError: too many",
        "error.type": "RateLimitError",
    }
    assert unscored.attributes["gen_ai.evaluation.explanation"] == "the answer states no facts"
    assert (failed.trace_id, failed.span_id) == (0, 0)
    logs.shutdown()


def test_another_logger_is_refused(meters):
    expected = "logger must be a logger of OpenTelemetry, got str; opentelemetry._logs.get_logger returns one"
    assert str(error_of(ConfigError, OpenTelemetrySink, meters[0], logger="rag")) == expected


@each("tags", ["version", ["version", 7]])
def test_tags_that_are_not_a_list_of_names_are_refused(meters, tags):
    expected = f'tags must be a list of names of tags, such as ["version"], got {tags!r}'
    assert str(error_of(ConfigError, OpenTelemetrySink, meters[0], tags)) == expected


# OTLP


@pytest.mark.gate
def test_metrics_and_events_arrive_by_otlp(spans):
    http = "opentelemetry.exporter.otlp.proto.http"
    exporters = (pytest.importorskip(f"{http}.{name}") for name in ("_log_exporter", "metric_exporter"))
    log_exporter, metric_exporter = exporters
    proto = "opentelemetry.proto.collector"
    log_requests = importlib.import_module(f"{proto}.logs.v1.logs_service_pb2").ExportLogsServiceRequest
    metric_requests = importlib.import_module(f"{proto}.metrics.v1.metrics_service_pb2").ExportMetricsServiceRequest
    with Loopback() as server:
        server.routes = dict.fromkeys(("/v1/metrics", "/v1/logs"), accept)
        exporter = metric_exporter.OTLPMetricExporter(f"{server.url}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
        meters, logs = MeterProvider([reader]), LoggerProvider()
        logs.add_log_record_processor(SimpleLogRecordProcessor(log_exporter.OTLPLogExporter(f"{server.url}/v1/logs")))
        sink = OpenTelemetrySink(meters.get_meter("rag"), logger=logs.get_logger("rag"))
        callback = watching(sink)
        with spans.start_as_current_span("request") as span:
            ask_and_close(callback)
        assert meters.force_flush()
        bodies = {request.path: request.raw for request in server.requests}
        meters.shutdown()
        logs.shutdown()
    sent = metric_requests.FromString(bodies["/v1/metrics"]).resource_metrics[0].scope_metrics[0].metrics
    assert {"rageval.score", "rageval.runs", "rageval.runs.open"} <= {metric.name for metric in sent}
    events = log_requests.FromString(bodies["/v1/logs"]).resource_logs[0].scope_logs[0].log_records
    assert [event.event_name for event in events] == ["gen_ai.evaluation.result"]
    assert events[0].trace_id == span.get_span_context().trace_id.to_bytes(16)


# Prometheus


@pytest.mark.gate
def test_prometheus_serves_every_series_and_label_of_the_dashboard():
    exporter = pytest.importorskip("opentelemetry.exporter.prometheus")
    client = importlib.import_module("prometheus_client")
    registry = client.CollectorRegistry()
    reader = exporter.PrometheusMetricReader()
    registry.register(reader._collector)
    meters = MeterProvider([reader])
    sink = OpenTelemetrySink(meters.get_meter("rag"))
    callback = watching(sink)
    ask_and_close(callback)
    sink(row(None))
    series = {}
    for line in client.generate_latest(registry).decode().splitlines():
        if found := re.match(r"(rageval_\w+)\{(.*)\} ", line):
            series.setdefault(found[1], set()).update(re.findall(r'(\w+)="', found[2]))
    dashboard = json.loads((GUIDES / "rageval-grafana.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in re.findall(r"rageval_\w+", expression)}
    assert used <= series.keys()
    for expression in expressions:
        for name, labels in re.findall(r"(rageval_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)=~?\"", labels)) <= series[name]
        grouped = {label.strip() for part in re.findall(r"by \(([^)]*)\)", expression) for label in part.split(",")}
        assert grouped <= set().union(*(series[name] for name in re.findall(r"rageval_\w+", expression)))
    meters.shutdown()


def test_counters_of_the_callback_are_observed(meters):
    meter, points = meters
    sink = OpenTelemetrySink(meter)
    callbacks = [watching(sink), watching(sink)]
    for callback in callbacks:
        ask_and_close(callback)
    found = points()
    outcomes = {point.attributes["outcome"]: point.value for point in found["rageval.runs"]}
    assert (outcomes["sampled"], outcomes["scored"], outcomes["dropped"]) == (2, 2, 0)
    states = {point.attributes["state"]: point.value for point in found["rageval.runs.open"]}
    assert states == {"pending": 0, "running": 0}
