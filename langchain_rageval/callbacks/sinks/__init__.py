"""Sinks: destinations of the rows that `RagEvalCallback` scores. Any callable that takes one `Row` is a sink."""

from langchain_rageval.callbacks.sinks.jsonl import JsonlSink
from langchain_rageval.callbacks.sinks.langfuse import LangfuseSink
from langchain_rageval.callbacks.sinks.langsmith import LangSmithSink
from langchain_rageval.callbacks.sinks.logs import LoggingSink
from langchain_rageval.callbacks.sinks.opentelemetry import OpenTelemetrySink
from langchain_rageval.callbacks.sinks.sqlite import SqliteSink

__all__ = ["JsonlSink", "LangSmithSink", "LangfuseSink", "LoggingSink", "OpenTelemetrySink", "SqliteSink"]
