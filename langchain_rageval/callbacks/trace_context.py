"""Current span of OpenTelemetry: links the scores of a run to its trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

TRACE_ID = "trace_id"
SPAN_ID = "span_id"


def current_span() -> dict[str, str]:
    """Return `trace_id` and `span_id` of the current span as hexadecimal digits; {} if there is no span.

    Libraries that trace a chain with OpenTelemetry have imported it, so it is not imported here.
    """
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace is not None else None
    if trace is None or context is None or not context.is_valid:
        return {}
    return {TRACE_ID: trace.format_trace_id(context.trace_id), SPAN_ID: trace.format_span_id(context.span_id)}


def span_in(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return those of `trace_id` and `span_id` that are in the metadata of a run."""
    return {name: str(metadata[name]) for name in (TRACE_ID, SPAN_ID) if metadata.get(name)}
