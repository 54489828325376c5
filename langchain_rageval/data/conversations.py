"""Samples of a conversation, one for each answer of the assistant; and selection of each conversation's last sample."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

from pydantic import ValidationError

from langchain_rageval.data.field_names import as_sample_fields, conversation_in, plain_items, read_fields
from langchain_rageval.data.messages import (
    CONTEXT_SOURCES,
    EARLIER_MESSAGES,
    ROLES,
    TOOL_CALLS,
    MessageExchange,
    exchanges,
    get,
    media_of,
    messages_in,
    read_turns,
    role_of,
    tool_calls,
    unwrap_text,
)
from langchain_rageval.data.schema import Sample, Turn, encode_turn, id_of
from langchain_rageval.errors import SampleError

CONVERSATION = "conversation"
"""Name in the metadata of a sample: the id of its conversation."""

TURN = "turn"
"""Name in the metadata of a sample: the number of its turn in the conversation, from 1."""

Fields = dict[str, Any]
"""Keyword arguments of a `Sample`."""

CONVERSATION_IDS = (CONVERSATION, "conversation_id", "thread_id", "session_id")
"""Names in metadata and configurable values that may hold the id of a conversation."""

_OF_ONE_TURN = frozenset({CONTEXT_SOURCES, TOOL_CALLS, EARLIER_MESSAGES})
_OF_A_QUESTION = frozenset({"id", "question", "history", "metadata"})
_LOG = logging.getLogger("langchain_rageval")
_NO_CONVERSATION = (
    "expected a conversation: a list of messages, an object with messages or a chat history, or a transcript that "
    "begins with a speaker such as 'User:'; got {}"
)
_NO_MESSAGES = (
    "expected the messages of a conversation under a name such as 'messages', 'dialogue' or 'chat_history', the record "
    "has {}: rename the one that holds them"
)
_KNOWN_ROLES = f"known roles: {', '.join(ROLES)}"
_NO_QUESTION = "expected a conversation with a message of the user, got none: pass its messages, oldest first"


def samples_of(conversation: Any) -> list[Sample]:
    """Return a sample for each answer of the assistant in a conversation, with the turns before it as history.

    Consecutive messages of the assistant without a tool call between them are one answer. A message of the user that is
    only an image or a file gives no sample; the history of later samples has "[image]" or "[file]" in its place. The
    contexts of a sample come from the messages after its question: documents in the artifacts of tools, else the list
    in a field of an assistant's message such as `contexts` or `documents`, else the texts of tools. Messages of the
    system and a question without an answer give no sample; the log "langchain_rageval" gets a message about such cases.

    Args:
        conversation: messages of LangChain, OpenAI or Anthropic, (role, text) pairs or (question, answer) pairs, oldest
            first; a LangGraph state, or its snapshot, whose thread names the conversation; a MultiTurnSample of ragas;
            a ConversationalTestCase of DeepEval; the runs of a LangSmith thread; a transcript with a speaker before
            each message, such as "User:"; or a record or sample with a chat history.

    Returns:
        The samples, oldest first. Their `metadata` has `conversation`, the id of the conversation, and `turn`, the
        number of the turn (question with its answer) from 1. The id of the conversation is the id of the record or of
        its thread, such as "c7"; the ids of the samples are then "c7:1", "c7:2" and so on. Without such an id, the id
        of a sample is a hash of its history and question, so that a changed answer does not change the id, and the
        conversation has the id of its last sample. References of a record belong to its last sample.

    Raises:
        SampleError: if there is no message of the user, or a field has the wrong type.
    """
    return read_conversation(conversation, {})


def read_conversation(conversation: Any, fields: Mapping[str, str]) -> list[Sample]:
    """Return a sample for each answer of the assistant in a conversation, oldest first.

    The turns before an answer are the sample's history. A question without an answer gives no sample.

    Args:
        conversation: list of messages, transcript as text, or record with a chat history; `samples_of` lists
            all forms.
        fields: fields of `Sample` mapped to the names of their values in a record; `{}` for the usual names.

    Raises:
        SampleError: if there is no message of the user, or a field has the wrong type.
    """
    if not (turns := _turns_of(conversation, fields)):
        return []
    last = turns[-1].get("metadata", {})
    name = turns[-1].get("id") or next((last[key] for key in CONVERSATION_IDS if last.get(key) is not None), None)
    samples = []
    for number, (turn, (history, encoded)) in enumerate(zip(turns, _histories(turns), strict=True), start=1):
        sample = Sample.parse({**turn, "history": [], "id": "" if name is None else f"{name}:{number}"})
        update = {"id": id_of(sample.question, encoded) if name is None else sample.id, "history": history}
        samples.append(sample.model_copy(update=update))
    name = samples[-1].id if name is None else name
    return [
        sample.model_copy(update={"metadata": {**sample.metadata, CONVERSATION: str(name), TURN: number}})
        for number, sample in enumerate(samples, start=1)
    ]


def last_answer_in(record: Any, sample: Sample, fields: Mapping[str, str]) -> Sample:
    """Return the sample of the last answer if a conversation ends with a mere message of the user, such as "Thanks".

    Args:
        record: the record of the conversation.
        sample: the sample that `Sample.parse` read from the record; it is returned for any other record.
        fields: as in `read_conversation`.
    """
    is_mere_question = sample.model_fields_set <= _OF_A_QUESTION and sample.history and not isinstance(record, Sample)
    turns = _turns_of(record, fields) if is_mere_question and conversation_in(record) else []
    return Sample.parse(turns[-1]) if turns else sample


def _histories(samples: Iterable[Fields]) -> Iterator[tuple[list[Turn], list[str]]]:
    """Yield the history of each sample of a conversation, and its turns as text; each turn is validated once.

    Args:
        samples: fields of the samples, oldest first.

    Raises:
        SampleError: if a field holds no list of turns.
    """
    known, turns, encoded = list[Any](), list[Turn](), list[str]()
    for fields in samples:
        items = fields.get("history") or []
        try:
            if items[: len(known)] != known:
                known, turns, encoded = [], [], []
            added = [Turn.model_validate(item) for item in items[len(known) :]]
        except (ValidationError, TypeError):
            parsed = Sample.parse(fields).history  # which raises an error that names the field
            yield parsed, [*map(encode_turn, parsed)]
            continue
        spoken = [turn for turn in added if turn.text.strip()]
        known, turns, encoded = items, [*turns, *spoken], [*encoded, *map(encode_turn, spoken)]
        yield turns, encoded


def read_history(messages: Sequence[Any], question: str) -> list[dict[str, str]]:
    """Return the turns in the messages of a chat before a question, as mappings of role and text, oldest first.

    Args:
        messages: messages of LangChain; they may include the question and later messages.
        question: the question, which is not part of its history.
    """
    found = exchanges(messages_in(list(messages)))
    if found and unwrap_text(found[-1].question).strip() == question.strip() and not found[-1].has_answer:
        return list(found[-1].history)
    return list(read_turns(list(messages))) if found else []


def turn_number(history: Sequence[Turn]) -> int:
    """Return the number of the question that follows a history: 1 plus the number of answered questions before it."""
    return 1 + sum(pair == ("user", "assistant") for pair in pairwise(turn.role for turn in history))


def _turns_of(conversation: Any, fields: Mapping[str, str]) -> list[Fields]:
    """Return the fields of the sample of each answered question, oldest first."""
    if isinstance(conversation, str):
        conversation = read_turns(conversation)
    if conversation is None or isinstance(conversation, str | bytes | int | float):
        raise SampleError(_NO_CONVERSATION.format(type(conversation).__name__))
    if isinstance(state := getattr(conversation, "values", None), Mapping):  # a StateSnapshot of LangGraph
        thread = get(get(get(conversation, "config"), "configurable"), "thread_id")
        conversation = state if thread is None else {**state, "thread_id": thread}
    if isinstance(conversation, list | tuple):
        if not conversation:
            raise SampleError(_NO_QUESTION)
        items = plain_items(conversation)
        are_pairs = all(isinstance(item, list | tuple) and len(item) == 2 for item in items)
        messages = messages_in(items) or (messages_in(read_turns(items)) if are_pairs else [])
        return _answered(messages) if messages else _turns_of_records(list(conversation))
    record = read_fields(conversation, fields)
    metadata = {name: value for name, value in record["metadata"].items() if name not in _OF_ONE_TURN}
    listed = conversation_in(conversation)
    messages = messages_in(listed)
    if listed and not messages:  # turns that are records, as in DeepEval's earlier versions
        if roles := {str(role) for item in listed if (role := get(item, "role"))}:
            raise SampleError(f"no message has a known role, got {', '.join(sorted(roles))}; {_KNOWN_ROLES}")
        turns = _turns_of_records(listed)
    elif not messages and record.keys().isdisjoint({"question", "history"}):
        raise SampleError(_NO_MESSAGES.format(sorted(map(str, [*(record.keys() - {"metadata"}), *record["metadata"]]))))
    else:
        turns = _answered(messages or messages_in(list(_messages_of(record))))
        if turns and "answer" in record:
            turns[-1] = record
    shared = {"id": record["id"]} if "id" in record else {}
    return [{**shared, **turn, "metadata": {**metadata, **turn.get("metadata", {})}} for turn in turns]


def _answered(messages: Sequence[Any]) -> list[Fields]:
    """Return the fields of each question that has an answer, and report the messages that are in no sample."""
    if not (found := exchanges(messages)):
        raise SampleError(_NO_QUESTION)
    if systems := sum(role_of(message) == "system" for message in messages):
        _LOG.info("messages of the system are no turns of a conversation and are not judged: %d", systems)
    unknown = {str(get(message, "role") or get(message, "type")) for message in messages if role_of(message) is None}
    if unknown:
        names = ", ".join(sorted(unknown))
        _LOG.warning("messages with an unknown role are left out of their conversation: %s; %s", names, _KNOWN_ROLES)
    answered = []
    for exchange in found:
        question = unwrap_text(exchange.question)
        if not question.strip():
            media = media_of(exchange.question)
            what = f"a message of the user without a text{f', {media},' if media else ''}"
            _LOG.warning("%s gives no sample of its conversation", what)
        elif not exchange.has_answer:
            _LOG.warning("a question without an answer gives no sample of its conversation: %r", question[:200])
        else:
            values = exchange.fields()
            history = values.pop("history", [])
            answered.append({**as_sample_fields(values), "history": history, **_split_answer(exchange, values)})
    return answered


def _split_answer(exchange: MessageExchange, values: Fields) -> Fields:
    """Return answer and metadata if the assistant wrote its answer in several messages in a row; else nothing.

    A message before a call of a tool, and one of another assistant, is no part of the answer.
    """
    speaker = get(exchange.following[-1], "name")
    last_messages = takewhile(
        lambda one: role_of(one) == "ai" and get(one, "name") == speaker and not tool_calls(one),
        reversed(exchange.following),
    )
    parts = [part for part in map(unwrap_text, last_messages) if part.strip()][::-1]
    if len(parts) < 2:
        return {}
    _LOG.info("messages of the assistant in a row are one answer: %d", len(parts))
    earlier = values["metadata"][EARLIER_MESSAGES][: -(len(parts) - 1)]
    metadata = {name: value for name, value in values["metadata"].items() if name != EARLIER_MESSAGES}
    return {"answer": "\n\n".join(parts), "metadata": metadata | ({EARLIER_MESSAGES: earlier} if earlier else {})}


def _turns_of_records(records: Sequence[Any]) -> list[Fields]:
    """Return the fields of records of one turn each, such as the runs of a thread; each has the earlier as history."""
    times = [get(record, "start_time") for record in records]
    if records and None not in times:
        records = [record for _, record in sorted(zip(times, records, strict=True), key=lambda pair: pair[0])]
    turns: list[Fields] = []
    said: list[Any] = []
    for record in records:
        turn = read_fields(record)
        if not turn.get("history") and said:
            turn["history"] = list(said)
        turn["metadata"] = {**turn["metadata"], **({"id": turn["id"]} if "id" in turn else {})}
        turns.append({name: value for name, value in turn.items() if name != "id"})
        said = [*turn.get("history", []), *_messages_of({**turn, "history": []})]
    return turns


def _messages_of(fields: Fields) -> Iterator[Fields]:
    """Yield the turns of a sample: its history, its question and its answer."""
    yield from fields.get("history", [])
    for role, name in (("user", "question"), ("assistant", "answer")):
        if fields.get(name) is not None:
            yield {"role": role, "text": fields[name]}


def last_turns(samples: Iterable[Sample]) -> list[Sample]:
    """Return the last sample of each conversation; its history, question and answer are the whole conversation.

    Args:
        samples: samples in any order; `metadata.conversation` names the conversation of each, and `metadata.turn` the
            turn. If samples have no turn, the last sample in the input counts as the last one.

    Returns:
        The samples in the order of the first sample of each conversation. A sample without a conversation is returned,
        too.

    Raises:
        SampleError: if an item is not a Sample.
    """
    last: dict[object, Sample] = {}
    for place, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            raise SampleError(
                f"last_turns expected samples, got {type(sample).__name__} at index {place}: pass those of "
                "samples_of(conversation) or load_samples(path, each_turn=True), or Sample.parse(record)"
            )
        name = sample.metadata.get(CONVERSATION)
        key: object = ("", place) if name is None else str(name)
        if key not in last or _turn(sample) >= _turn(last[key]):
            last[key] = sample
    return list(last.values())


def _turn(sample: Sample) -> float:
    """Return the number of a turn; the length of the history if the sample has none."""
    try:
        return float(sample.metadata[TURN])
    except (KeyError, TypeError, ValueError):
        return len(sample.history) / 2 + 1
