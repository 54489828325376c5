"""Records whose fields are not at the top, or have other meanings: exports of programs and rows of data sets.

`flatten_record` converts each to a mapping with the names of `NAMES`. Records are recognised by their keys; the
libraries are not imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_rageval.data.messages import concatenated, get
from langchain_rageval.data.vocabulary import NAMES, folded, two_readings

Record = Mapping[str, Any]

EXAMPLE_KEYS = frozenset({"dataset_id", "dataset_name", "source_run_id", "modified_at", "dataset_split"})
"""Keys that only an example of a LangSmith data set has; its outputs are the reference."""

RUN_KEYS = frozenset({"run_type", "trace_id", "dotted_order", "session_id", "parent_run_id"})
"""Keys that only a LangSmith run has; its outputs are the answer."""

_MARKS = frozenset(
    {"scores", "item", "datasource_item", "info", "spans", "trace", "record_id", "inputs", "evolution", "observations"}
    | {"supporting_facts", "answers", "expected", "expectedOutput", "vars", "retriever_resources"}
)
_EXPECTATIONS = {folded(name) for name in (*NAMES["references"], "guidelines", "expected_facts")}
_SPAN_TEXTS = ("mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs")
_RETRIEVED = "ai.observability.retrieval.retrieved_contexts"
_RETRIEVER_METHODS = ("retrieve", "_retrieve", "get_relevant_documents", "_get_relevant_documents")
_OPENAI_ITEMS = ("item", "datasource_item")

_TESTSET_NAMES = {
    "contexts": "reference_contexts",
    "passage_ids": "reference_context_ids",
    **dict.fromkeys(("spans", "history")),
}
_TRULENS_NAMES = {
    "record_id": "id",
    "main_input": "input",
    "main_output": "output",
    "ground_truth_output": "reference",
    **dict.fromkeys(("record_json", "app_json", "cost_json", "perf_json", "calls", "events")),
}
"""Name in a record to that in `NAMES`; None for what is left out."""


def flatten_record(record: Record) -> Record:
    """Return the fields of a record of another program at the top level; return any other record unchanged."""
    has_marks = not record.keys().isdisjoint(_MARKS) or any("." in name for name in record)
    if not has_marks and not any(isinstance(value, Mapping) for value in record.values()):
        return record
    for matches, convert in _CONVERSIONS:
        if matches(record):
            return convert(record)
    return record


def is_example(record: Record) -> bool:
    """Return True for an example of a LangSmith data set as a mapping, whose outputs are the reference."""
    metadata = record.get("metadata")
    keys = record.keys() | (metadata.keys() & {"dataset_split"} if isinstance(metadata, Mapping) else set())
    return "inputs" in record and not keys & (RUN_KEYS - {"source_run_id"}) and bool(keys & EXAMPLE_KEYS)


def from_serialized(value: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    """Return the fields of an object that `langchain_core.load.dumpd` wrote, such as a Document; None for others."""
    kwargs, path = value.get("kwargs"), value.get("id")
    if value.get("lc") != 1 or not isinstance(kwargs, Mapping) or not isinstance(path, list) or not path:
        return None
    kind = str(path[-1]).removesuffix("Chunk")
    return {"type": kind.removesuffix("Message").lower(), **kwargs} if kind.endswith("Message") else kwargs


def _from_run(record: Record) -> Record:
    """Add the documents of the outermost retrievers among the child runs of a LangSmith run."""
    documents = concatenated(retrieved_by_children(record))
    return record if documents is None else {**record, "retrieved_docs": documents}


def retrieved_by_children(run: Any) -> Iterator[list[Any]]:
    """Yield the documents of each outermost retriever among the child runs of a LangSmith run, object or record."""
    children = _decoded(get(run, "child_runs"))
    for child in children if isinstance(children, list | tuple) else ():
        outputs = _mapping(get(child, "outputs"))
        documents = outputs.get("documents", outputs.get("output"))
        if get(child, "run_type") != "retriever":
            yield from retrieved_by_children(child)
        elif isinstance(documents, list):
            yield documents


def _renamed(record: Record, names: Mapping[str, str | None]) -> dict[str, Any]:
    """Return a record with other names for some of its fields, and without those whose other name is None."""
    renamed = ((names.get(name, name), value) for name, value in record.items())
    return {name: value for name, value in renamed if name is not None}


def _from_testset_row(record: Record) -> Record:
    """Convert a row of a test set of this package, whose contexts are those of the reference."""
    result = _renamed(record, _TESTSET_NAMES)
    metadata: dict[str, Any] = {name: result.pop(name) for name in ("evolution", "answerable") if name in result}
    if tree := result.pop("tree_id", ""):
        metadata["tree_id"] = tree
    if record.get("spans") and metadata.get("answerable") is not False:
        metadata["spans"] = record["spans"]
    result["metadata"] = {**_mapping(record.get("metadata")), **metadata}
    if metadata.get("answerable") is False:
        result |= {"reference": None, "reference_contexts": [], "reference_context_ids": []}
    return {name: value for name, value in result.items() if value is not None}


def _from_columns(record: Record) -> Record:
    """Convert the columns of LangSmith's tables: `inputs.question`, `outputs.answer`, `reference.answer`."""
    groups: dict[str, dict[str, Any]] = {}
    result: dict[str, Any] = {}
    for name, value in record.items():
        head, _, rest = name.partition(".")
        target = _COLUMN_HEADS.get(head) if rest else None
        if target and isinstance(record.get(target, {}), Mapping):
            groups.setdefault(target, {})[rest] = value
        else:
            result[name] = value
    result |= {target: {**record.get(target, {}), **group} for target, group in groups.items()}
    if "example_id" in result:
        result.pop("id", None)  # of the run: another one for each experiment
    return result


_COLUMN_HEADS = {
    **dict.fromkeys(("input", "inputs"), "inputs"),
    **dict.fromkeys(("output", "outputs"), "outputs"),
    **dict.fromkeys(("reference", "reference_outputs"), "reference_outputs"),
    "expectations": "expectations",
}


def _has_columns(record: Record) -> bool:
    heads = {name.partition(".")[0] for name in record if "." in name}
    return bool(heads & {"input", "inputs", "outputs"})


def _from_openai_item(record: Record) -> Record:
    """Convert an output item of OpenAI's evals API: the fields of the item, and the text that was sampled."""
    item = _mapping(record.get("item") or record.get("datasource_item"))
    sample: Record = record["sample"]
    text = sample.get("output_text", sample.get("output"))
    answer = text if isinstance(text, str) else {"messages": text}
    return {**_expected(item), "output": answer} if text is not None else item


def _expected(item: Record) -> dict[str, Any]:
    """Return the fields of a test case, whose answer is the reference."""
    return _renamed(item, dict.fromkeys(NAMES["answer"], "reference"))


def _from_phoenix(record: Record) -> Record:
    """Convert a row of Phoenix: a span, or a question with its answer, where `reference` is what was retrieved."""
    found = _decoded(record.get("attributes.retrieval.documents"))
    documents = [_phoenix_document(item) for item in _mappings(found)] if found is not None else record.get("reference")
    result: dict[str, Any] = {
        "id": record.get("context.span_id"),
        "input": record.get("attributes.input.value", record.get("input")),
        "output": record.get("attributes.output.value", record.get("output")),
        "contexts": [documents] if isinstance(documents, str) else documents,
    }
    result = {name: value for name, value in result.items() if value is not None}
    used = ("context.span_id", "reference", "input", "output", "attributes.retrieval.documents")
    return {**{name: record[name] for name in record if name not in used and "attributes." not in name}, **result}


def _phoenix_document(item: Record) -> dict[str, Any]:
    inner = {name.removeprefix("document."): value for name, value in (_mapping(item.get("document")) or item).items()}
    return {
        "page_content": inner.get("content", ""),
        "id": inner.get("id"),
        "metadata": _mapping(inner.get("metadata")),
    }


def _from_langfuse(record: Record) -> Record:
    """Convert a trace of Langfuse with its observations, or an item of a data set with its expected output."""
    observations = _mappings(record.get("observations"))
    inner = {one.get("id") for one in observations if str(one.get("type")).upper() == "RETRIEVER"}
    contexts = [
        _retrieved_by(one.get("output"))
        for one in observations
        if one.get("id") in inner and one.get("parentObservationId") not in inner
    ]
    result = _renamed(record, {"expectedOutput": "reference", "observations": None, "scores": None})
    return result | {name: _decoded(result[name]) for name in ("input", "output") if name in result} | _if_any(contexts)


def _retrieved_by(output: Any) -> Any:
    decoded = _decoded(output)
    return decoded.get("documents", decoded.get("contexts")) if isinstance(decoded, Mapping) else decoded


def _if_any(contexts: Iterable[Any]) -> dict[str, Any]:
    found = concatenated(iter([item if isinstance(item, list) else [item] for item in contexts if item is not None]))
    return {} if found is None else {"contexts": found}


def _from_braintrust(record: Record) -> Record:
    """Convert a row of a Braintrust experiment: `expected` is the reference, and the metadata may hold the contexts."""
    metadata = _mapping(record.get("metadata"))
    contexts = next((metadata[name] for name in metadata if name in NAMES["contexts"]), None)
    return _renamed(record, {"expected": "reference", "scores": None}) | _if_any([contexts])


def _from_dify(record: Record) -> Record:
    """Convert a message of Dify: the resources of the retriever, which a reply of its API has in its metadata."""
    resources = record.get("retriever_resources") or _mapping(record.get("metadata")).get("retriever_resources")
    contexts = [str(one.get("content", "")) for one in _mappings(resources)]
    return _renamed(record, {"retriever_resources": None}) | {"contexts": contexts}


def _from_haystack(record: Record) -> Record:
    """Convert the output of a pipeline of Haystack: replies or built answers, and the documents of its components."""
    parts = [part for part in record.values() if isinstance(part, Mapping)]
    answers = [one for part in parts for one in part.get("answers") or () if isinstance(one, Mapping)]
    replies = [one for part in parts for one in part.get("replies") or ()]
    documents = [part["documents"] for part in parts if part.get("documents") is not None]
    built: Record = answers[0] if answers else {}
    reply = built.get("data", replies[0] if replies else None)
    answer = reply if isinstance(reply, str) else _mapping(reply).get("text") or _haystack_text(_mapping(reply))
    found = built.get("documents") or (documents[-1] if documents else None)
    result = {name: value for name, value in record.items() if not isinstance(value, Mapping)} | {"answer": answer}
    return ({"question": built["query"]} if built.get("query") else {}) | result | _if_any([found])


def _haystack_text(message: Record) -> str:
    """Return the text of a chat message of Haystack as a mapping."""
    parts = message.get("content", message.get("_content"))
    return parts if isinstance(parts, str) else "".join(str(part.get("text", "")) for part in _mappings(parts))


def _is_haystack(record: Record) -> bool:
    parts = [part for part in record.values() if isinstance(part, Mapping)]
    return any(
        isinstance(part.get("replies"), list)
        or (isinstance(part.get("answers"), list) and has_any(part["answers"], "data", "query"))
        for part in parts
    )


def has_any(items: Iterable[Any], *names: str) -> bool:
    """Return True if an item is a mapping with one of the names."""
    return any(isinstance(item, Mapping) and not item.keys().isdisjoint(names) for item in items)


def _from_promptfoo(record: Record) -> Record:
    """Convert a result of promptfoo: its variables, whose answer is the reference, and the output of the provider."""
    output = _mapping(record.get("response")).get("output")
    return _expected(record["vars"]) | ({} if output is None else {"output": output})


def _from_squad(record: Record) -> Record:
    """Convert a row of SQuAD, SberQuAD or HotpotQA, whose answers and contexts are those of the reference."""
    answers, context = record.get("answers"), record.get("context")
    references = answers["text"] if isinstance(answers, Mapping) else record.get("answer")
    contexts = [context] if isinstance(context, str) else _hotpot_passages(record)
    result = _renamed(record, dict.fromkeys(("answers", "context", "supporting_facts")))
    if not isinstance(answers, Mapping):
        result.pop("answer", None)
    return result | {"references": references, "reference_contexts": contexts}


def _hotpot_passages(record: Record) -> list[str]:
    """Return the passages of a row of HotpotQA that support its answer, as a mapping of columns or as pairs."""

    def pairs(value: Any, second: str) -> list[Any]:
        return [*zip(value["title"], value[second], strict=True)] if isinstance(value, Mapping) else value or []

    supporting = {title for title, _ in pairs(record["supporting_facts"], "sent_id")}
    passages = pairs(record.get("context"), "sentences")
    return ["".join(sentences) for title, sentences in passages if title in supporting]


def _from_mlflow(record: Record) -> Record:
    """Convert an MLflow trace: data of the root span, documents of the outermost retrievers, expectations."""
    trace = _mapping(record.get("trace", record))
    spans = [_mlflow_span(span) for span in _mappings((_mapping(trace.get("data")) or record).get("spans"))]
    root: dict[str, Any] = next((span for span in spans if span["parent"] is None), {})
    info = _mapping(trace.get("info"))
    result: dict[str, Any] = {
        "id": info.get("trace_id") or info.get("request_id") or record.get("trace_id") or record.get("request_id"),
        "inputs": root.get("inputs", _decoded(record.get("request"))),
        "outputs": root.get("outputs", _decoded(record.get("response"))),
        "retrieved_docs": concatenated(_retrieved(spans)),
        "expectations": dict(_expectations(_mappings(record.get("assessments") or info.get("assessments")))) or None,
        "metadata": info.get("tags") or record.get("tags"),
    }
    given = {name: value for name, value in record.items() if folded(name) in _EXPECTATIONS}
    return given | {name: value for name, value in result.items() if value is not None}


def _is_mlflow(record: Record) -> bool:
    if has_mappings(record, "info", "data"):
        return "spans" in record["data"]
    names = record.keys()
    return {"trace_id", "spans"} <= names or ("trace" in names and bool({"request", "trace_id", "inputs"} & names))


def _mlflow_span(span: Record) -> dict[str, Any]:
    attributes = _mapping(span.get("attributes"))
    kind, inputs, outputs = (_decoded(attributes.get(name)) for name in _SPAN_TEXTS)
    parent = span.get("parent_span_id") or span.get("parent_id")
    return {
        "id": str(span.get("span_id") or _mapping(span.get("context")).get("span_id")),
        "parent": None if parent is None else str(parent),
        "kind": kind or span.get("span_type"),
        "inputs": span.get("inputs") if inputs is None else inputs,
        "outputs": span.get("outputs") if outputs is None else outputs,
    }


def _retrieved(spans: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield the documents of each retriever span that is not within another retriever span."""
    by_id = {span["id"]: span for span in spans}
    for span in spans:
        parent, left = by_id.get(span["parent"]), len(spans)  # a trace that was cut may lead in a circle
        while parent and parent["kind"] != "RETRIEVER" and left:
            parent, left = by_id.get(parent["parent"]), left - 1
        documents = span["outputs"]
        if isinstance(documents, Mapping):
            documents = documents.get("documents")
        if span["kind"] == "RETRIEVER" and not (parent and left) and isinstance(documents, list):
            yield documents


def _expectations(assessments: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for assessment in assessments:
        expectation = assessment.get("expectation")
        if isinstance(expectation, Mapping) and "value" in expectation:
            yield str(assessment.get("assessment_name") or assessment.get("name")), expectation["value"]


def _from_trulens(record: Record) -> Record:
    """Convert a TruLens record: input and output, and the contexts that its retriever returned."""
    details = _mapping(record.get("record_json"))
    calls = details.get("calls") or record.get("calls") or ()
    retrieved = [*_trulens_calls(_mappings(calls)), *_trulens_events(_mappings(record.get("events")))]
    result = _renamed(record, _TRULENS_NAMES)
    contexts = concatenated(retrieved)
    return result if contexts is None else {"retrieved_contexts": contexts, **result}


def _trulens_calls(calls: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield what retrievers returned in the calls of a TruLens record."""
    for call in calls:
        stack = _mappings(call.get("stack")) or [{}]
        method = _mapping(stack[-1].get("method")).get("name")
        returned = call.get("rets")
        if method in _RETRIEVER_METHODS and isinstance(returned, list):
            yield returned


def _trulens_events(events: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the retrieved contexts in the spans of a TruLens record."""
    for event in events:
        attributes = _mapping(event.get("record_attributes") or event.get("attributes"))
        if isinstance(contexts := _decoded(attributes.get(_RETRIEVED)), list):
            yield contexts


def _is_trulens(record: Record) -> bool:
    return "record_id" in record and bool(record.keys() & {"input", "main_input"})


def _mapping(value: Any) -> Record:
    """Return a mapping, or that in a JSON text; an empty one for anything else."""
    decoded = _decoded(value)
    return decoded if isinstance(decoded, Mapping) else {}


def _mappings(value: Any) -> list[Any]:
    """Return the mappings in a list, or in the JSON text of one; [] for anything else."""
    items = _decoded(value)
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _decoded(value: Any) -> Any:
    """Return the content of a JSON text; return any other value unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def has_mappings(record: Record, *names: str) -> bool:
    """Return True if the values under all names are mappings."""
    return all(isinstance(record.get(name), Mapping) for name in names)


_CONVERSIONS: Collection[tuple[Callable[[Record], bool], Callable[[Record], Record]]] = (
    (
        lambda record: has_mappings(record, "sample", "scores") and "question" in record["sample"],
        lambda record: record["sample"],
    ),
    (lambda record: any(has_mappings(record, "sample", name) for name in _OPENAI_ITEMS), _from_openai_item),
    (_is_mlflow, _from_mlflow),
    (_is_trulens, _from_trulens),
    (lambda record: "run_type" in record and "inputs" in record, _from_run),
    (lambda record: record.keys() >= {"evolution", "passage_ids", "spans"}, _from_testset_row),
    (is_example, partial(_renamed, names={"outputs": "reference_outputs"})),
    (lambda record: "context.span_id" in record or "attributes.retrieval.documents" in record, _from_phoenix),
    (lambda record: "input" in record and record.keys() & {"observations", "expectedOutput"} != set(), _from_langfuse),
    (lambda record: record.keys() >= {"input", "expected"}, _from_braintrust),
    (lambda record: "retriever_resources" in {*record, *_mapping(record.get("metadata"))}, _from_dify),
    (lambda record: has_mappings(record, "vars") and "question" in record["vars"], _from_promptfoo),
    (lambda record: has_mappings(record, "answers") and isinstance(record["answers"].get("text"), list), _from_squad),
    (lambda record: record.keys() >= {"supporting_facts", "context"}, _from_squad),
    (_is_haystack, _from_haystack),
    (_has_columns, _from_columns),
)
"""Recognition and conversion of each kind of record; the first that matches is used."""


def check_outputs_are_clear(record: Any, mapped: Collection[str]) -> None:
    """Check that a record of a file says whether its outputs are the answer or the reference.

    Args:
        record: a record of a file.
        mapped: names and dotted paths that the user assigned to fields.

    Raises:
        SampleError: if both are possible, as in `{"inputs": …, "outputs": …}`, which LangSmith's runs and data sets
            have in common.
    """
    if not isinstance(record, Mapping) or not {"inputs", "outputs"} <= record.keys() or is_example(record):
        return
    keys = {folded(str(name)) for name in record}
    outputs = record["outputs"]
    own = {folded(str(name)) for name in outputs} if isinstance(outputs, Mapping) else set()
    decided = keys & (_EXPECTATIONS | _RETRIEVED_NAMES | {folded(key) for key in RUN_KEYS}) or own & _RETRIEVED_NAMES
    if outputs is None or decided or any(path.partition(".")[0] == "outputs" for path in mapped):
        return
    texts = [str(name) for name, value in outputs.items() if isinstance(value, str)] if own else []
    path = f"outputs.{texts[0]}" if texts else "outputs"
    answer = ("answer", "the answer, as in a run of LangSmith")
    raise two_readings("outputs", path, answer, ("references", "the reference, as in a data set of LangSmith"))


_RETRIEVED_NAMES = {folded(name) for name in NAMES["contexts"] if name != "outputs"}
