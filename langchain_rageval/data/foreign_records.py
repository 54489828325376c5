"""Records of other programs and data sets, in which fields are nested or have other meanings.

`flatten_record` converts each record to a flat mapping, which has each field of `Sample` under one of the field's names
in `NAMES`, such as `input` for `question`. Records are recognised by their keys; the libraries are not imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from langchain_rageval.data.messages import concatenated, get
from langchain_rageval.data.tables import number_to_text, parse_literal
from langchain_rageval.data.vocabulary import (
    CONTAINERS,
    CONVERSATIONS,
    FIELDS_BY_NAME,
    LIST_FIELDS,
    NAMES,
    TEXT_FIELDS,
    folded,
    known_name,
    numbered_name,
    two_readings,
)
from langchain_rageval.errors import SampleError

Record = Mapping[str, Any]

EXAMPLE_KEYS = frozenset({"dataset_id", "dataset_name", "source_run_id", "modified_at", "dataset_split"})
"""Keys that only an example of a LangSmith data set has; its outputs are the reference."""

RUN_KEYS = frozenset({"run_type", "trace_id", "dotted_order", "session_id", "parent_run_id"})
"""Keys that only a LangSmith run has; its outputs are the answer."""

_EXPECTATIONS = {folded(name) for name in (*NAMES["references"], "guidelines", "expected_facts")}
_RETRIEVED_NAMES = {folded(name) for name in NAMES["contexts"] if name != "outputs"}
_RETRIEVER_METHODS = ("retrieve", "_retrieve", "get_relevant_documents", "_get_relevant_documents")


def flatten_record(record: Record) -> Record:
    """Return a record of another program with its nested fields moved to the top level; any other record unchanged."""
    if (convert := _converter_of(record)) is None:
        return record
    return {name: value for name, value in convert(record).items() if value is not None}


def _converter_of(record: Record) -> Callable[[Record], Record] | None:
    """Return the function that converts a record of another program; None for any other record."""
    has_marks = not record.keys().isdisjoint(_MARKS) or any("." in name for name in record)
    programs = _PROGRAMS if has_marks or any(isinstance(value, Mapping) for value in record.values()) else ()
    return next((convert for when, convert in programs if _matches(record, when)), None)


def _matches(record: Record, when: str | Callable[[Record], Any]) -> bool:
    """Return True if a record has what a program writes: values at all paths, at one of those with `|` between them.

    `{}` or `[]` after a path demands a mapping or a list.
    """
    if not isinstance(when, str):
        return bool(when(record))
    return all(any(_has(record, path) for path in one.split("|")) for one in when.split())


def _has(record: Record, path: str) -> bool:
    kind = {"{}": Mapping, "[]": list}.get(path[-2:], object)
    value = _follow(record, path.rstrip("{}[]"))
    return value is not None and isinstance(value, kind)


def decode_row(row: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of a table in which cells with the text of a list or mapping are decoded.

    In a record of another program, all such cells are decoded. In any other row, a cell is decoded only in three
    kinds of columns: fields of `Sample` that are lists or mappings, such as `contexts` or `metadata`; columns of
    messages; and columns such as `outputs`, in which a mapping may hold several fields of `Sample`.

    Args:
        row: mapping of each column name to its cell.
        fields: fields of `Sample` mapped to names of columns.

    Raises:
        SampleError: if a cell begins like a list of texts but is not a list, for example because the text was cut off.
    """
    nested = {name: parse_literal(cell.strip()) for name, cell in row.items() if _may_be_literal(cell)}
    decoded = {name: cell if nested.get(name) is None else nested[name] for name, cell in row.items()}
    if any(nested.values()) and _converter_of(decoded):
        return decoded
    meaning = {name.partition(".")[0]: field for field, name in fields.items()}
    return {name: _decoded_cell(name, cell, nested.get(name), meaning.get(name)) for name, cell in row.items()}


def _may_be_literal(cell: Any) -> bool:
    return isinstance(cell, str) and cell.lstrip().startswith(("[", "(", "{"))


def _decoded_cell(name: str, cell: Any, value: Any, field: str | None) -> Any:
    """Return a cell, or the list or mapping in it if its name may have one."""
    numbered = numbered_name(name)
    known = known_name(name) or known_name(name.rpartition(".")[2]) or (numbered[0] if numbered else name)
    field = field or FIELDS_BY_NAME.get(known, "")
    if not _may_be_literal(cell):
        is_missing = isinstance(cell, str) and cell.strip().casefold() in ("none", "null")
        if field in LIST_FIELDS - {"references"} and is_missing:
            return None
        return number_to_text(cell) if field in TEXT_FIELDS else cell
    if known in CONVERSATIONS and field != "history":
        return value if _holds_messages(value) else cell
    if field in LIST_FIELDS:
        if not cell.lstrip().startswith("[") and known not in CONTAINERS | {"context"}:
            return cell
        if value is None and cell.lstrip().startswith(("['", '["', "[Document(", "[{")):
            problem = f"{name!r} begins like a list, but is none: it ends with {cell.strip()[-20:]!r}"
            raise SampleError(f"{problem}; if the cell was cut off, save the table as JSON lines", None)
    elif known not in CONTAINERS and field not in ("history", "relevance", "metadata"):
        return cell
    return value if isinstance(value, list | Mapping) else cell


def _holds_messages(value: Any) -> bool:
    items = value if isinstance(value, list) else []
    pairs = [
        isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item) for item in items
    ]
    return bool(items) and (all(pairs) or all(isinstance(item, Mapping) for item in items))


def _at(record: Any, paths: str) -> Any:
    """Return the first value that is not None at some paths, in which JSON texts are decoded on the way.

    Args:
        record: a mapping.
        paths: names of nested values with dots between them, where `[]` stands for the values of all mappings in a
            list, and `!` after a path decodes a JSON text at its end; several with `|` between them.
    """
    return next((found for path in paths.split(" | ") if (found := _follow(record, path)) is not None), None)


def _follow(value: Any, path: str) -> Any:
    if path.endswith("!"):
        return _decoded(_follow(value, path[:-1]))
    if isinstance(value, Mapping) and path in value:
        return value[path]
    name, _, rest = path.partition(".")
    if name.endswith("[]"):
        return [_follow(item, rest) for item in _mappings(_mapping(value).get(name[:-2]))] or None
    return _follow(_mapping(value).get(name), rest) if rest else _mapping(value).get(name)


def _reader(fields: Mapping[str, str | Callable[[Record], Any]], left_out: str = "") -> Callable[[Record], Record]:
    """Return a function that reads the records of a program by a table of paths.

    Args:
        fields: name of `NAMES` to the paths of its value in the record, or a function that finds it.
        left_out: names of the record that are left out, with those that are read; "*" leaves out all.
    """
    read = {path.rstrip("!") for paths in fields.values() if isinstance(paths, str) for path in paths.split(" | ")}
    dropped = read | {*left_out.split()}

    def convert(record: Record) -> Record:
        found = {name: _at(record, part) if isinstance(part, str) else part(record) for name, part in fields.items()}
        kept = {} if left_out == "*" else {name: value for name, value in record.items() if name not in dropped}
        return kept | {name: value for name, value in found.items() if value is not None}

    return convert


def is_example(record: Record) -> bool:
    """Return True for a mapping that is an example of a LangSmith data set; its outputs are then the reference."""
    metadata = record.get("metadata")
    keys = record.keys() | (metadata.keys() & {"dataset_split"} if isinstance(metadata, Mapping) else set())
    return "inputs" in record and not keys & (RUN_KEYS - {"source_run_id"}) and bool(keys & EXAMPLE_KEYS)


def from_serialized(value: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    """Return the fields of an object, such as a Document, that `langchain_core.load.dumpd` wrote; else None."""
    kwargs, path = value.get("kwargs"), value.get("id")
    if value.get("lc") != 1 or not isinstance(kwargs, Mapping) or not isinstance(path, list) or not path:
        return None
    kind = str(path[-1]).removesuffix("Chunk")
    return {"type": kind.removesuffix("Message").lower(), **kwargs} if kind.endswith("Message") else kwargs


def retrieved_by_children(run: Any) -> list[Any] | None:
    """Return the documents of the outermost retrievers among the child runs of a LangSmith run; None if none ran."""
    children = _decoded(get(run, "child_runs"))
    found = []
    for child in children if isinstance(children, list | tuple) else ():
        is_retriever = get(child, "run_type") == "retriever"
        outputs = _at(get(child, "outputs"), "documents | output") if is_retriever else None
        found.append(outputs if is_retriever else retrieved_by_children(child))
    return concatenated(one for one in found if isinstance(one, list))


def _retrieved(spans: Iterable[Record], kind: str, identity: str, parent: str, outputs: str) -> list[Any] | None:
    """Return the documents of the retriever spans of a trace that are not within another retriever span.

    Args:
        spans: spans, as mappings.
        kind: paths of the kind of a span, which is "RETRIEVER" in any letter case.
        identity: paths of its id.
        parent: paths of the id of the span that it is within.
        outputs: paths of what it returned: documents, or a mapping that holds them.
    """
    by_id = {str(_at(span, identity)): span for span in spans}
    retrievers = {name for name, span in by_id.items() if str(_decoded(_at(span, kind))).upper() == "RETRIEVER"}
    found: list[Any] = []
    for name in [name for name in by_id if name in retrievers]:
        above, seen = str(_at(by_id[name], parent)), {name}  # a trace that was cut may lead in a circle
        while above in by_id and above not in retrievers | seen:
            seen.add(above)
            above = str(_at(by_id[above], parent))
        output = _decoded(_at(by_id[name], outputs))
        documents = _at(output, "documents | contexts") if isinstance(output, Mapping) else output
        if above not in retrievers - seen and documents is not None:
            found.append(documents if isinstance(documents, list) else [documents])
    return concatenated(found)


def _from_testset_row(record: Record) -> Record:
    """Convert a row of a test set of this package, whose contexts are those of the reference."""
    metadata = {name: record[name] for name in ("evolution", "answerable") if name in record}
    answerable = str(metadata.get("answerable", True)).casefold() != "false"
    metadata |= {"answerable": answerable} if "answerable" in metadata else {}
    metadata |= {
        name: record[name] for name in ("tree_id", "spans") if record.get(name) and (answerable or name[0] == "t")
    }
    named = {"contexts": "reference_contexts", "passage_ids": "reference_context_ids"}
    skipped = {"evolution", "answerable", "tree_id", "spans", "history", "evidence"}
    result = {named.get(name, name): value for name, value in record.items() if name not in skipped}
    result["metadata"] = {**_mapping(record.get("metadata")), **metadata}
    if not answerable:
        result |= {"reference": None, "reference_contexts": [], "reference_context_ids": []}
    return result


_COLUMN_HEADS = {
    **dict.fromkeys(("input", "inputs"), "inputs"),
    **dict.fromkeys(("output", "outputs"), "outputs"),
    **dict.fromkeys(("reference", "reference_outputs"), "reference_outputs"),
    "expectations": "expectations",
}


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


def _expected(item: Record) -> dict[str, Any]:
    """Return the fields of a test case, whose answer is the reference."""
    return {"reference" if name in NAMES["answer"] else name: value for name, value in item.items()}


def _from_openai_item(record: Record) -> Record:
    """Convert an output item of OpenAI's evals API: the fields of the item, and the text that was sampled."""
    text = _at(record, "sample.output_text | sample.output")
    answer = {} if text is None else {"output": text if isinstance(text, str) else {"messages": text}}
    item = _at(record, "item | datasource_item")
    return {**_expected(item), **answer} if answer else item


def _phoenix_documents(record: Record) -> Any:
    """Return what was retrieved in a row of Phoenix: the documents of a span, or what it calls the reference."""
    if (found := _decoded(record.get("attributes.retrieval.documents"))) is None:
        reference = record.get("reference")
        return [reference] if isinstance(reference, str) else reference
    documents = []
    for item in _mappings(found):
        inner = _mapping(item.get("document")) or item
        part = {name.removeprefix("document."): value for name, value in inner.items()}
        chunk = {"page_content": part.get("content", ""), "id": part.get("id")}
        documents.append(chunk | {"metadata": _mapping(part.get("metadata"))})
    return documents


def _from_phoenix(record: Record) -> Record:
    read = {"id": "context.span_id"} | {name: f"attributes.{name}.value | {name}" for name in ("output", "input")}
    found = _reader({**read, "contexts": _phoenix_documents}, "reference attributes.retrieval.documents")(record)
    return {name: value for name, value in found.items() if "attributes." not in name}


def _dify_contexts(record: Record) -> Any:
    return _at(record, "retriever_resources[].content | metadata.retriever_resources[].content") or []


def _braintrust_contexts(record: Record) -> Any:
    metadata = _mapping(record.get("metadata"))
    found = next((metadata[name] for name in metadata if name in NAMES["contexts"]), None)
    return [found] if isinstance(found, str) else found


def _from_haystack(record: Record) -> Record:
    """Convert the output of a pipeline of Haystack: replies or built answers, and the documents of its components."""
    parts = [part for part in record.values() if isinstance(part, Mapping)]
    answers = [one for part in parts for one in part.get("answers") or () if isinstance(one, Mapping)]
    replies = [one for part in parts for one in part.get("replies") or ()]
    documents = [part["documents"] for part in parts if part.get("documents") is not None]
    built: Record = answers[0] if answers else {}
    reply = built.get("data", replies[0] if replies else None)
    if isinstance(reply, Mapping):  # a chat message
        content = _at(reply, "text | content | _content")
        reply = content if isinstance(content, str) else "".join(str(one.get("text", "")) for one in _mappings(content))
    result = {name: value for name, value in record.items() if not isinstance(value, Mapping)}
    contexts = built.get("documents") or (documents[-1] if documents else None)
    return {"question": built.get("query") or None} | result | {"answer": reply, "contexts": contexts}


def _is_haystack(record: Record) -> bool:
    parts = [part for part in record.values() if isinstance(part, Mapping)]
    answers = [one for part in parts for one in _mappings(part.get("answers"))]
    has_replies = any(isinstance(part.get("replies"), list) for part in parts)
    return has_replies or any({"data", "query"} & one.keys() for one in answers)


def _supporting_passages(record: Record) -> Any:
    """Return the passages of a row of HotpotQA that support its answer, as a mapping of columns or as pairs."""
    if isinstance(context := record.get("context"), str):
        return [context]

    def pairs(value: Any, second: str) -> list[Any]:
        return [*zip(value["title"], value[second], strict=True)] if isinstance(value, Mapping) else value or []

    try:
        supporting = {title for title, _ in pairs(record["supporting_facts"], "sent_id")}
        return ["".join(sentences) for title, sentences in pairs(context, "sentences") if title in supporting]
    except (KeyError, TypeError, ValueError):  # of another shape: they stay unknown
        return None


def _from_mlflow(record: Record) -> Record:
    """Convert an MLflow trace: data of the root span, documents of the outermost retrievers, expectations."""
    spans = _mappings(_at(record, "trace.data.spans | data.spans | spans"))
    root: Record = next((span for span in spans if _at(span, "parent_span_id | parent_id") is None), {})
    expected = {
        str(_at(one, "assessment_name | name")): _at(one, "expectation.value")
        for one in _mappings(_at(record, "assessments | trace.info.assessments | info.assessments"))
        if "value" in _mapping(one.get("expectation"))
    }
    names = _SPAN_KIND, "span_id | context.span_id", "parent_span_id | parent_id", _SPAN_OUTPUTS
    result = {
        "id": _at(record, "trace.info.trace_id | trace.info.request_id | info.trace_id | trace_id | request_id"),
        "metadata": _at(record, "trace.info.tags | info.tags | tags"),
        "retrieved_docs": _retrieved(spans, *names),
        "expectations": expected or None,
        "inputs": _at(root, "attributes.mlflow.spanInputs! | inputs!") or _at(record, "request!"),
        "outputs": _at(root, _SPAN_OUTPUTS) or _at(record, "response!"),
    }
    given = {name: value for name, value in record.items() if folded(name) in _EXPECTATIONS}
    return given | {name: value for name, value in result.items() if value is not None}


_SPAN_KIND = "attributes.mlflow.spanType! | span_type"
_SPAN_OUTPUTS = "attributes.mlflow.spanOutputs! | outputs!"


def _is_mlflow(record: Record) -> bool:
    """Return True for a trace, also one whose spans are None because they were not stored."""
    if all(isinstance(record.get(name), Mapping) for name in ("info", "data")):
        return "spans" in record["data"]
    names = record.keys()
    return {"trace_id", "spans"} <= names or ("trace" in names and bool({"request", "trace_id", "inputs"} & names))


def _trulens_contexts(record: Record) -> list[Any] | None:
    """Return what retrievers returned in the calls of a TruLens record, and the contexts in its spans."""
    found = []
    for call in _mappings(_at(record, "record_json.calls | calls")):
        stack = _mappings(call.get("stack")) or [{}]
        if _at(stack[-1], "method.name") in _RETRIEVER_METHODS:
            found.append(call.get("rets"))
    for event in _mappings(record.get("events")):
        attributes = _mapping(_at(event, "record_attributes | attributes"))
        found.append(_decoded(attributes.get("ai.observability.retrieval.retrieved_contexts")))
    return concatenated(one for one in found if isinstance(one, list))


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


_PROGRAMS: Collection[tuple[str | Callable[[Record], Any], Callable[[Record], Record]]] = (
    ("sample{} scores{} sample.question", lambda record: record["sample"]),  # a row of a report of this package
    ("sample{} item{}|datasource_item{}", _from_openai_item),
    (_is_mlflow, _from_mlflow),
    (
        "record_id input|main_input",
        _reader(
            {
                "id": "record_id",
                "input": "main_input | input",
                "output": "main_output | output",
                "reference": "ground_truth_output | reference",
                "retrieved_contexts": _trulens_contexts,
            },
            "record_json app_json cost_json perf_json calls events",
        ),
    ),
    ("run_type inputs", _reader({"retrieved_docs": retrieved_by_children}, "child_runs run_type")),
    ("evolution passage_ids spans", _from_testset_row),
    (is_example, _reader({"reference_outputs": "outputs"})),
    (lambda record: "context.span_id" in record or "attributes.retrieval.documents" in record, _from_phoenix),
    (
        "input observations|expectedOutput",
        _reader(
            {
                "reference": "expectedOutput | reference",
                "input": "input!",
                "output": "output!",
                "contexts": lambda record: _retrieved(
                    _mappings(record.get("observations")), "type", "id", "parentObservationId", "output"
                ),
            },
            "observations scores",
        ),
    ),
    ("input expected", _reader({"reference": "expected", "contexts": _braintrust_contexts}, "scores")),
    ("retriever_resources|metadata.retriever_resources", _reader({"contexts": _dify_contexts}, "retriever_resources")),
    (  # a result of promptfoo: its variables, whose answer is the reference, and the output of the provider
        "vars{} vars.question",
        lambda record: _expected(record["vars"]) | {"output": _at(record, "response.output")},
    ),
    (  # SQuAD and SberQuAD, whose answers and contexts are those of the reference
        "answers.text[]",
        _reader({"references": "answers.text", "reference_contexts": _supporting_passages}, "answers context"),
    ),
    (
        "supporting_facts context",
        _reader({"references": "answer", "reference_contexts": _supporting_passages}, "context supporting_facts"),
    ),
    (_is_haystack, _from_haystack),
    (
        lambda record: {name.partition(".")[0] for name in record if "." in name} & {"input", "inputs", "outputs"},
        _from_columns,
    ),
)
"""Recognition and conversion of the records of each program; the first that matches is used."""

_MARKS = frozenset(
    {"scores", "item", "datasource_item", "info", "spans", "trace", "record_id", "inputs", "evolution", "observations"}
    | {"supporting_facts", "answers", "expected", "expectedOutput", "vars", "retriever_resources"}
)
"""Names without which only a record with dots in its names, or with mappings, is of another program."""


def check_outputs_are_clear(record: Any, mapped: Collection[str]) -> None:
    """Check that the outputs of a record are clearly either the answer or the reference.

    Args:
        record: a record of a file.
        mapped: names and dotted paths that the user assigned to fields.

    Raises:
        SampleError: if both are possible, as in `{"inputs": …, "outputs": …}`: LangSmith's runs and data sets both have
            this form.
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
