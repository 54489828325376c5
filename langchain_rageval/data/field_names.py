"""Reading of sample fields under the names that other libraries use; ids of documents and chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from langchain_rageval._internal.page import shortened
from langchain_rageval.data.foreign_records import flatten_record, from_serialized, retrieved_by_children
from langchain_rageval.data.messages import (
    MessageExchange,
    exchanges,
    get,
    messages_in,
    one_text,
    read_turns,
    unwrap_text,
    without_score,
)
from langchain_rageval.data.tables import number_to_text, parse_literal
from langchain_rageval.data.vocabulary import (
    CONTAINERS,
    CONVERSATIONS,
    DEEPEVAL,
    FIELDS_BY_NAME,
    LIST_FIELDS,
    NAMES,
    ONE_TEXT,
    TEXT_FIELDS,
    competing_names,
    folded,
    known_name,
    likely_field,
    metadata_name,
    numbered_name,
    reading_of,
)
from langchain_rageval.errors import ConfigError, SampleError, list_choices

_KEYS = ("chunk_id", "id", "_id", "doc_id")  # metadata under which stores and data sets keep the id of a chunk


def chunk_id(chunk: Any) -> Any:
    """Return the id of a chunk: its own `id`, else `chunk_id`, `id`, `_id` or `doc_id` of its metadata; None if none.

    Args:
        chunk: a Document, an object or a mapping.
    """
    own = _get(chunk, "id")
    own = _get(chunk, "id_") if own is None else own  # a node of LlamaIndex
    metadata = _get(chunk, "metadata")
    if own is not None or not isinstance(metadata, Mapping):
        return own
    return next((metadata[key] for key in _KEYS if isinstance(metadata.get(key), str | int)), None)


def _get(chunk: Any, name: str) -> Any:
    value = get(chunk, name)
    return None if callable(value) else value


_NAME_SETS = {field: frozenset(names) for field, names in NAMES.items()}
_IDS_OF = {"contexts": "context_ids", "retrieved": "retrieved_ids", "reference_contexts": "reference_context_ids"}
_AS_REFERENCE = {"answer": "references", "contexts": "reference_contexts", "context_ids": "reference_context_ids"}
_LOG = logging.getLogger("langchain_rageval")
_UNREAD_HISTORY = (
    "the chat history under %r is kept as metadata and not judged: expected messages with a role and a text, "
    "(question, answer) pairs or a transcript that begins with a speaker such as 'User:'; got %s"
)
_WHOLE_CONVERSATIONS = CONVERSATIONS - {"messages", "user_input"}
_ANY_HISTORY = frozenset({"history", "история"})  # names of a text or a mapping that may not be about a chat
_COMPARED = {"answer", *LIST_FIELDS}  # fields of which a record may have only one value
_EXCERPT = 80  # characters


def read_fields(obj: Any, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read the keyword arguments of a `Sample` from an object of another library.

    Args:
        obj: a mapping, or an object with attributes: a pandas row, a dataclass, a LangSmith Run or Example.
        fields: fields of `Sample` mapped to the name or dotted path of their value in `obj`; takes precedence over the
            names in `NAMES`, which lists the names of each field in this and other libraries.

    Returns:
        The fields found in `obj`. `metadata` is always present. It holds all values under names of no field. If two
        names stand for one field, the field has the value of the name that comes first in `NAMES`, and `metadata` holds
        the other value.

    Raises:
        SampleError: if `obj` has no fields at all, has a str where a list of str is expected, or has different answers
            or different lists under two names of one field.
        ConfigError: if a key of `fields` is not a field of `Sample`, or a value is not a str.
    """
    return explain_fields(obj, fields)[0]


def explain_fields(obj: Any, fields: Mapping[str, str] | None = None) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the keyword arguments of a `Sample`, as `read_fields` does, and the origin of each field.

    Returns:
        A tuple of two mappings. The first maps each field to its value. The second maps each field to the list of the
        names in `obj` from which the field was read: one name, or several for numbered names, such as `context_1` and
        `context_2`. The second mapping lacks `metadata`.
    """
    fields = fields or {}
    check_fields(fields)
    attributes = _values(obj)
    values = _without_none(attributes)
    paths = {field: _path_in(values, path) for field, path in fields.items()}
    mapped = {field: _fields_in(field, path, _follow(values, path)).get(field) for field, path in paths.items()}
    rest = flatten_record(_without_paths(values, paths.values()))
    meanings = reading_of(frozenset([*map(str, attributes), *rest]), frozenset(paths.values()))
    if meanings is DEEPEVAL:  # whose CSV and JSON lines files hold lists joined with `|`
        lists = ("context", "retrieval_context")
        joined = {name: value for name, value in rest.items() if known_name(name) in lists and isinstance(value, str)}
        rest = {**rest, **{name: value.split("|") for name, value in joined.items()}}
    _check_competition(rest, paths.keys(), meanings)
    likely = _likely_names(rest, paths.keys())
    rest = {likely.get(name, name): value for name, value in rest.items()}
    result, origins = _read(rest, mapped, meanings)
    numbered = ((numbered_name(str(name)), value) for name, value in attributes.items())
    columns = [value for known, value in numbered if known and FIELDS_BY_NAME[known[0]] == "contexts"]
    if columns and "contexts" not in result and not any(value for value in columns if value != "[]"):
        result["contexts"] = []
    values = as_sample_fields(result)
    if origins.get("history", "history") != "history":
        values["history"] = _before_question(values)
    found = {field: path for field, path in paths.items() if mapped[field] is not None}
    groups = {**_numbered_groups(rest), **{field: [name] for name, field in likely.items()}}
    return values, {field: groups.get(name, [name]) for field, name in (origins | found).items()}


def _likely_names(values: Mapping[str, Any], mapped: Collection[str]) -> dict[str, str]:
    """Return the first likely name of answer and reference, each with its field, unless a known name has it."""
    likely: dict[str | None, str] = {}
    for name, value in values.items():
        if name not in FIELDS_BY_NAME:
            likely.setdefault(likely_field(name, value), name)
    wanted = [field for field in ("answer", "references") if field in likely and field not in mapped]
    known = {known_name(name) for name in values} if wanted else set()
    return {likely[field]: field for field in wanted if _NAME_SETS[field].isdisjoint(known)}


def _check_competition(values: Mapping[str, Any], mapped: Collection[str], meanings: Mapping[str, str]) -> None:
    """Check that no two names of one field have different values.

    The answers in a conversation, and in a mapping that holds several fields, such as the outputs of a chain, count,
    too, but not those in a conversation beside a question of its own, which are earlier ones. A number under a likely
    name, which may be a score, does not compete with a text.

    Raises:
        SampleError: if two have; the message names both and the `fields` that decide.
    """
    by_field: dict[str, dict[str, Any]] = {}
    asked = not set(map(known_name, values)).isdisjoint(_NAME_SETS["question"] - CONVERSATIONS - CONTAINERS)
    for name, value in values.items():
        known, named = known_name(name) or name, {name: value}
        field = meanings.get(known) or likely_field(name, value) or ""
        is_chat = known in CONVERSATIONS and not asked and messages_in(_turns_in_transcript(name, value))
        if known == "messages" or is_chat:
            field = "answer"
        elif known in CONTAINERS and isinstance(value, Mapping):
            names = [own for own in value if known_name(str(own)) in _NAME_SETS["answer"]]
            named = {f"{name}.{own}": value[own] for own in names} or named
            field = field if field == "answer" and len(values) > 1 else ""  # the outputs of a chain come alone
        if field in _COMPARED and field not in mapped:
            by_field.setdefault(field, {}).update(named)
    for field, named in by_field.items():
        if len(named) > 1:
            contents = {name: _content(_fields_in(field, name, value).get(field)) for name, value in named.items()}
            first: dict[str, str] = {}
            for name, content in sorted(contents.items(), key=lambda pair: known_name(pair[0]) is None):
                is_score = known_name(name) is None and _is_number(content) and not all(map(_is_number, first))
                if content and not is_score:
                    first.setdefault(content, name)
            if len(first) > 1:
                raise competing_names(field, sorted(first.values(), key=[*named].index))


def _is_number(content: str) -> bool:
    return content.replace(".", "", 1).replace(",", "", 1).removeprefix("-").isdigit()


def _content(value: Any) -> str:
    """Return the texts of a value without white space, so that a list and its joined text are equal."""
    texts = [str(_chunk_to_text(item)) for item in (value if isinstance(value, list) else [value]) if item is not None]
    return "".join("".join(texts).split())


def read_run(run: Any, example: Any = None) -> dict[str, Any]:
    """Read the keyword arguments of a `Sample` from a LangSmith run and its example.

    Args:
        run: source of the answer and the contexts; the contexts come from its outputs, otherwise from its retrievers.
        example: source of the question, the references and the id; the run provides the values that the example lacks.

    Returns:
        The fields, as `read_fields` returns them; metadata of the example takes precedence over metadata of the run.
    """
    from_run, _ = _read(_without_none(_values(run)), {})
    from_example = _read(_without_none(_values(example)), {})[0] if example is not None else {"metadata": {}}
    preferred = {field: from_example[field] for field in ("id", "question", "references") if field in from_example}
    metadata = from_run["metadata"] | from_example["metadata"]
    return as_sample_fields(from_example | from_run | preferred | {"metadata": metadata})


def plain_items(items: Iterable[Any]) -> list[Any]:
    """Convert items to built-in types: a message or another object becomes a mapping of its attributes."""
    return [_plain(item) for item in items]


def conversation_in(obj: Any) -> list[Any]:
    """Return an object's list of messages or turns under a name such as `messages` or `dialogue`; `[]` if none."""
    values = flatten_record(_without_none(_values(obj)))
    for name in ("inputs", "outputs"):  # outputs of a chat repeat the messages of the inputs
        if isinstance(inner := values.get(name), Mapping):
            values = {**values, **inner}
    lists = (_turns_in_transcript(own, value) for own, value in values.items() if known_name(own) in CONVERSATIONS)
    return next((value for value in lists if isinstance(value, list) and value), [])


def check_fields(fields: Mapping[str, str]) -> None:
    """Check that `fields` maps fields of `Sample` to names.

    Raises:
        ConfigError: if `fields` is not a mapping, a key is not a field, or a value is not a str.
    """
    example = "fields maps fields of Sample to your names for them, as in {'question': 'q'}"
    for field in fields:
        if field not in NAMES:
            raise ConfigError(f"{example}; {field!r} is not a field: use one of {list_choices(field, NAMES)}")
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{example}; got {type(fields).__name__}")
    for field, name in fields.items():
        if not isinstance(name, str):
            raise ConfigError(f"{example}; got {name!r} for {field!r}")


def _read(
    values: Mapping[str, Any], mapped: Mapping[str, Any], meanings: Mapping[str, str] = FIELDS_BY_NAME
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read fields by known names; `mapped` fields take precedence.

    Returns:
        The fields, always with `metadata`; and field to the name that it was read from.
    """
    values = _with_numbered(values)
    spelled = _spellings(values, meanings)
    parts = {name: _fields_in(meanings[name], name, values[own]) for name, own in spelled.items()}
    result, origins = dict(mapped), {}
    found = {field for part in parts.values() for field in part}
    for field, names in NAMES.items():
        for name in names if field in found else ():
            if field in parts.get(name, {}) and field not in result:
                result[field], origins[field] = parts[name][field], spelled[name]
    unknown = values.keys() - set(spelled.values())
    metadata = {metadata_name(name): value for name, value in values.items() if name in unknown}
    for name, part in parts.items():
        metadata = part.get("metadata", {}) | metadata
        field = meanings[name]
        if part.get(field) is values[spelled[name]] is not result.get(field, part.get(field)):
            metadata[spelled[name]] = values[spelled[name]]
        origins = dict.fromkeys(part.keys() - result.keys(), spelled[name]) | origins
        result = part | result
    origins.pop("metadata", None)
    return result | {"metadata": metadata | (mapped.get("metadata") or {})}, origins


def _spellings(values: Iterable[str], meanings: Mapping[str, str]) -> dict[str, str]:
    """Return known name to the name in the record: the exact one, else the first in another letter case or spelling."""
    spelled: dict[str, str] = {}
    for own in values:
        name = own if own in meanings else known_name(own)
        if name and name in meanings and (name == own or name not in spelled):
            spelled[name] = own
    return spelled


def _with_numbered(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values with those of `context_1`, `context_2` and so on as one list, if the list itself is missing."""
    groups = _numbered_groups(values)
    used = {own for group in groups.values() for own in group}
    lists: dict[str, list[Any]] = {}
    for name, group in groups.items():
        parts = [values[own] for own in group if str(values[own]).strip() != "[]"]
        lists[name] = [number_to_text(item) for part in parts for item in (part if isinstance(part, list) else [part])]
    return {own: value for own, value in values.items() if own not in used} | lists if groups else values


def _numbered_groups(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the known name of each missing list to the names of its numbered items, by number."""
    if not any(own[-1:].isdigit() for own in values):
        return {}
    groups: dict[str, list[tuple[int, str]]] = {}
    for own, value in values.items():
        if (numbered := numbered_name(own)) and isinstance(value, str | int | float | list):
            groups.setdefault(numbered[0], []).append((numbered[1], own))
    present = {FIELDS_BY_NAME.get(known_name(name) or "") for name in values}
    missing = {name: group for name, group in groups.items() if FIELDS_BY_NAME[name] not in present}
    return {name: [own for _, own in sorted(group)] for name, group in missing.items()}


def _fields_in(field: str, name: str, value: Any) -> dict[str, Any]:
    """Return the Sample fields in a value found under `name`: `field`, or several of messages or a nested mapping."""
    if field == "metadata":
        return {field: value if isinstance(value, Mapping) else {name: value}}
    if field in ("question", "answer") and (messages := messages_in(_turns_in_transcript(name, value))):
        conversation = exchanges(messages)
        return (conversation[-1] if conversation else MessageExchange(None, messages, ())).fields()
    if known_name(name) in _WHOLE_CONVERSATIONS:
        return {"metadata": {name: value}}
    if field == "history":
        decoded = parse_literal(value) if isinstance(value, str) and value.lstrip().startswith("[") else None
        turns = read_turns(decoded if isinstance(decoded, list) else value)
        if isinstance(turns, list) and all(
            isinstance(one, Mapping) and {"role", "text"} <= one.keys() for one in turns
        ):
            return {field: turns}
        if isinstance(value, list):  # the trials of a test set are no earlier turns
            is_chat = not all(isinstance(item, Mapping) and "accepted" in item for item in value)
        else:
            is_chat = known_name(name) not in _ANY_HISTORY
        if value and is_chat:
            _LOG.warning(_UNREAD_HISTORY, name, shortened(repr(value), _EXCERPT))
        return {"metadata": {name: value}}
    if field in TEXT_FIELDS and isinstance(value, Mapping) and unwrap_text(value) is value:
        return _nested_fields(field, name, value)
    if isinstance(value, str) and field in LIST_FIELDS - {"references"} and known_name(name) not in ONE_TEXT:
        problem = f"{field}: expected a list of str, got str {value[:40]!r} under {name!r}"
        raise SampleError(f"{problem}: put it into a list (in CSV, write a JSON list)", field)
    return {field: value}


def _turns_in_transcript(name: str, value: Any) -> Any:
    """Return the turns of a transcript under a name of whole conversations; any other value unchanged, also an id."""
    if not isinstance(value, str) or known_name(name) not in _WHOLE_CONVERSATIONS:
        return value
    turns = read_turns(value)
    is_transcript = isinstance(turns, list) and {"user", "assistant"} <= {turn["role"] for turn in turns}
    return turns if is_transcript else value


def _nested_fields(field: str, name: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in a mapping found in the place of `field`; in the place of a reference, all are references."""
    values = _without_none(mapping)
    if len(values) == 1 and not any(map(known_name, values)):
        return _fields_in(field, name, *values.values())
    part, _ = _read(values, {})
    if part.keys() == {"metadata"} and name not in CONTAINERS:
        return {field: mapping}
    if field.startswith("reference"):
        return {_AS_REFERENCE.get(inner, inner): value for inner, value in part.items()}
    return part


def as_sample_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields to the types that `Sample` accepts, and add the ids of documents if all documents have ids."""
    result = {field: _normalized_value(field, value) for field, value in fields.items() if value is not None}
    for field, id_field in _IDS_OF.items():
        documents = fields.get(field)
        ids = [chunk_id(_chunk(document)) for document in documents] if isinstance(documents, list) else []
        if ids and None not in ids:
            result.setdefault(id_field, _normalized_value(id_field, ids))
    return result


def _normalized_value(field: str, value: Any) -> Any:
    """Replace documents, messages and numbers by their texts, convert ids to str, and put a single text into a list."""
    if field == "relevance" and isinstance(value, Mapping):
        return _without_none(value)  # Parquet adds the ids of all other rows to each row
    convert: Callable[[Any], Any] = _CONVERT.get(
        field, lambda value: str(value) if isinstance(value, UUID) else number_to_text(value)
    )
    if isinstance(value, list):
        return [convert(item) for item in value]
    converted = convert(value)
    return [converted] if field in LIST_FIELDS and isinstance(converted, str) else converted


def _before_question(fields: Mapping[str, Any]) -> list[Any]:
    """Return a chat history without the question, and without the answer after it, which some memories add."""
    history = list(fields["history"])
    said = [turn["text"] for turn in history]
    if said[-2:] == [fields.get("question"), fields.get("answer")]:
        return history[:-2]
    return history[:-1] if said[-1:] == [fields.get("question")] and history[-1]["role"] == "user" else history


def _chunk_to_text(value: Any) -> Any:
    """Return the text of a document, a message or a mapping with one text, such as `{"text": ..., "score": ...}`."""
    converted = unwrap_text(_chunk(value))
    if not isinstance(converted, Mapping):
        return converted
    text = one_text(_chunk(converted))
    return value if text is None else text


def _chunk(value: Any) -> Any:
    """Return the document of a (document, score) pair and the node of a LlamaIndex result; any other unchanged."""
    value = without_score(value)
    node = value.get("node") if isinstance(value, Mapping) else None
    return node if isinstance(node, Mapping) else value


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "question": unwrap_text,
    **dict.fromkeys(("answer", "references"), lambda value: unwrap_text(number_to_text(value))),
    **dict.fromkeys(("contexts", "retrieved", "reference_contexts"), _chunk_to_text),
}


def _values(obj: Any) -> Any:
    """Return the attributes of an object as built-in types."""
    attributes = _attributes(obj)
    if not attributes and not isinstance(obj, Mapping):
        expected = "expected a sample: a mapping, or an object with attributes such as question"
        raise SampleError(f"{expected}; got {type(obj).__name__}: pass one sample")
    return _plain(attributes)


def _attributes(obj: Any) -> Mapping[Any, Any]:
    """Return an object's public attributes, a mapping's or a pandas row's items, or the data of a Run or an Example."""
    if callable(getattr(obj, "items", None)):
        return dict(obj.items())
    if hasattr(obj, "_asdict"):
        return dict(obj._asdict())
    if hasattr(obj, "run_type") and hasattr(obj, "outputs"):
        data = {"id": obj.id, "metadata": (obj.extra or {}).get("metadata"), "inputs": obj.inputs}
        return data | {"outputs": obj.outputs, "retrieved_docs": retrieved_by_children(obj)}
    if hasattr(obj, "dataset_id") and hasattr(obj, "outputs"):
        data = {"id": get(obj, "id"), "metadata": obj.metadata, "inputs": obj.inputs}
        return data | {"reference_outputs": obj.outputs}
    own = [*getattr(obj, "__dict__", ()), *getattr(obj, "__dataclass_fields__", ())]
    known = _known_names(type(obj)) if isinstance(obj, BaseModel) else FIELDS_BY_NAME
    names = [*own, *(getattr(obj, "model_extra", None) or ()), *known]
    attributes = {name: getattr(obj, name) for name in names if not name.startswith("_") and hasattr(obj, name)}
    return {name: value for name, value in attributes.items() if name in own or not callable(value)}


@lru_cache(maxsize=1024)
def _known_names(kind: type[BaseModel]) -> tuple[str, ...]:
    """Return the known names that a model has beside its fields, as properties."""
    return tuple(name for name in FIELDS_BY_NAME if hasattr(kind, name))


def _plain(value: Any) -> Any:
    """Convert a value to built-in types: arrays to lists, models to dicts, NaN, NaT and NA to None."""
    if type(value) is str:
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    match value:
        case {"lc": 1} if (fields := from_serialized(value)) is not None:
            return _plain(fields)
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if value != value:
            return None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    is_record = hasattr(type(value), "model_fields") or hasattr(value, "__dataclass_fields__")
    return _plain(_attributes(value)) if is_record else value


def _without_none(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if value is not None}


def _path_in(values: Mapping[str, Any], path: str) -> str:
    """Return the path with the first name as the mapping spells it, if only letter case or punctuation differ."""
    if path in values or path.partition(".")[0] in values:
        return path
    return next((name for name in values if folded(name) == folded(path)), path)


def _without_paths(values: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any]:
    """Return the values without those that a user's names or dotted paths lead to; unknown names keep their parts."""
    for path in paths:
        head, _, tail = path.partition(".")
        if path in values:
            values = {name: value for name, value in values.items() if name != path}
        elif tail and known_name(head) and isinstance(inner := values.get(head), Mapping):
            values = {**values, head: _without_paths(inner, [tail])}
    return values


def _follow(values: Any, path: str) -> Any:
    """Return the value at a name or a dotted path through mappings and attributes; None if the path does not exist."""
    for name in [path] if path in values else path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else _attribute(values, name)
    return values


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute of an object; None for attributes of a str and for methods, which are never data."""
    attribute = None if isinstance(value, str) else getattr(value, name, None)
    return None if callable(attribute) else _plain(attribute)
