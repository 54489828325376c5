"""Destinations of the rows that `RagEvalCallback` scores. Any callable that takes one `Row` is a sink, too."""

from langchain_rageval.callbacks.sinks import (
    JsonlSink,
    LangfuseSink,
    LangSmithSink,
    LoggingSink,
    OpenTelemetrySink,
    SqliteSink,
)

__all__ = ["JsonlSink", "LangSmithSink", "LangfuseSink", "LoggingSink", "OpenTelemetrySink", "SqliteSink"]
