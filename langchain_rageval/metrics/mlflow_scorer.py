"""MLflow scorer: a metric or suite for `mlflow.genai.evaluate(scorers=[...])`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.structure import ScorerGroup, collect_scores, metrics_in

if TYPE_CHECKING:
    from mlflow.entities import Feedback, Trace
    from mlflow.genai.scorers import Scorer

_RETRIEVER = "RETRIEVER"
_REFUSED = re.compile(r"[^\w.\- ]")
_LONGEST_NAME = 200  # MLflow takes 250 characters, a prefix and "/output_tokens" among them


def mlflow_scorer(metric: ScorerGroup, name: str) -> Scorer:
    """Return a metric or suite as an MLflow scorer.

    Args:
        metric: metric or suite.
        name: name of the scorer.

    Raises:
        ConfigError: if MLflow is not installed.
    """
    try:
        from mlflow.genai.scorers import scorer
    except ImportError:
        raise ConfigError('MLflow is not installed: pip install "langchain-rageval[mlflow]"') from None

    computed = {part.name for part in metrics_in(metric) if not part.models}

    def score(
        inputs: Any = None, outputs: Any = None, expectations: Any = None, trace: Trace | None = None
    ) -> list[Feedback]:
        sample = Sample.parse(_fields(inputs, outputs, expectations, trace))
        return [_feedback(one, one.metric in computed) for one in collect_scores(metric, sample).values()]

    return scorer(name=mlflow_key(name))(score)


def mlflow_key(name: str) -> str:
    """Return a metric's name as a valid MLflow key: "@" becomes "_at_", any other invalid character "_"."""
    key = _REFUSED.sub("_", name.replace("@", "_at_")).strip(". ")[:_LONGEST_NAME]
    return key or "_"


def _fields(inputs: Any, outputs: Any, expectations: Any, trace: Trace | None) -> dict[str, Any]:
    """Return the arguments of a scorer as a record; contexts are also read from the retriever spans of the trace."""
    fields = {"inputs": inputs, "outputs": outputs, **_references(expectations)}
    fields = {name: value for name, value in fields.items() if value is not None}
    has_contexts = Sample.parse({"question": "", "answer": "", "references": []} | fields).contexts
    documents = [] if has_contexts or trace is None else list(_retrieved(trace))
    return fields | ({"contexts": documents} if documents else {})


def _references(expectations: Any) -> dict[str, Any]:
    """Return expectations as fields. MLflow's `expected_retrieved_context` lists documents by `doc_uri`."""
    if not isinstance(expectations, Mapping):
        return {"reference_outputs": expectations}
    rest = dict(expectations)
    expected = rest.pop("expected_retrieved_context", None)
    ids = [one["doc_uri"] for one in expected or () if isinstance(one, Mapping) and one.get("doc_uri")]
    texts = [one["content"] for one in expected or () if isinstance(one, Mapping) and one.get("content")]
    found = {"reference_context_ids": ids or None, "reference_contexts": texts or None}
    return {"reference_outputs": rest or None, **found}


def _retrieved(trace: Trace) -> Iterator[Any]:
    """Yield the documents of the retriever spans that are not inside another retriever span."""
    spans = {span.span_id: span for span in trace.data.spans}
    for span in spans.values():
        parent = spans.get(span.parent_id or "")
        while parent is not None and parent.span_type != _RETRIEVER:
            parent = spans.get(parent.parent_id or "")
        if span.span_type == _RETRIEVER and parent is None and isinstance(span.outputs, list):
            yield from map(_with_id, span.outputs)


def _with_id(document: Any) -> Any:
    """Return a document with the id by which MLflow's expectations name it."""
    uri = document.get("metadata", {}).get("doc_uri") if isinstance(document, Mapping) else None
    return document if uri is None else {**document, "id": uri}


def _feedback(score: Score, is_computed: bool) -> Feedback:
    """Return a score as an assessment: the value with its rationale, or the error of the judge."""
    from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback

    metadata = {"aspect": score.aspect, "direction": score.direction, "instrument": score.instrument}
    error = None
    if score.failure is not None:
        error = AssessmentError(error_code=score.failure.error, error_message=score.failure.message)
    kind = AssessmentSourceType.CODE if is_computed else AssessmentSourceType.LLM_JUDGE
    return Feedback(
        name=mlflow_key(score.metric),
        value=score.value,
        error=error,
        rationale=score.comment,
        source=AssessmentSource(source_type=kind, source_id="langchain-rageval"),
        metadata={name: value for name, value in metadata.items() if value},
    )
