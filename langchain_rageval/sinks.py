"""Destinations of the rows that `RagEvalCallback` scores. Any callable that takes one `Row` is a sink, too."""

from langchain_rageval.callbacks.sinks.files import JsonlSink, LoggingSink, SqliteSink
from langchain_rageval.callbacks.sinks.traces import LangfuseSink, LangSmithSink, OpenTelemetrySink

__all__ = ["JsonlSink", "LangSmithSink", "LangfuseSink", "LoggingSink", "OpenTelemetrySink", "SqliteSink"]
