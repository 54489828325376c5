"""Sinks: where the rows of a watched chain go. Any callable that takes one Row is one."""

from langchain_rageval.sinks.jsonl import JsonlSink
from langchain_rageval.sinks.langsmith import LangSmithSink
from langchain_rageval.sinks.logs import LoggingSink
from langchain_rageval.sinks.opentelemetry import OpenTelemetrySink
from langchain_rageval.sinks.sqlite import SqliteSink

__all__ = ["JsonlSink", "LangSmithSink", "LoggingSink", "OpenTelemetrySink", "SqliteSink"]
