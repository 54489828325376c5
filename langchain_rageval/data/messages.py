"""Reading of conversation messages in the forms of LangChain, OpenAI, Anthropic, ragas and DeepEval.

Messages, documents and their parts are recognised by their attributes or keys, without importing any library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any, NamedTuple

from langchain_rageval.data.tables import parse_literal

CONTEXT_SOURCES = "context_sources"
"""Name in the metadata of a sample: the `source` of each context, or the tool that returned it, with the id of its
call; in the order of the contexts, None for a context without one."""

SPANS = "context_spans"
"""Name in the metadata of a sample: source and offsets of each context in its document, in their order; None for a
context whose place is unknown."""

CONTEXTS_FROM = "contexts_from"
"""Name in the metadata of a sample: where its contexts are from. "prompt": they are in the prompt of the model that
wrote the answer; else "output": the chain states them; "retriever": retrievers or tools returned them, or they passed
between steps; "given": they are in the inputs of the chain."""

NO_CONTEXTS = "no_contexts"
"""Name in the metadata of a sample: why a chain that answered has no contexts."""

CONTEXT_NOTES = (CONTEXT_SOURCES, SPANS, CONTEXTS_FROM, NO_CONTEXTS)
"""Names in the metadata of a sample that are about its contexts, which another chain replaces."""

TOOL_CALLS = "tool_calls"
"""Name in the metadata of a sample: the tool calls of the assistant between question and answer."""

EARLIER_MESSAGES = "earlier_messages"
"""Name in the metadata of a sample: texts of the assistant between question and answer that are not the answer."""

ROLES = {
    **dict.fromkeys(("human", "user"), "human"),
    **dict.fromkeys(("ai", "assistant", "bot", "model", "chatbot"), "ai"),
    **dict.fromkeys(("tool", "function"), "tool"),
    **dict.fromkeys(("system", "developer"), "system"),
}
"""Names of the roles of messages, and what `role_of` returns for each."""

_TURN_ROLES = {"human": "user", "ai": "assistant"}
_CONTEXT_KEYS = ("retrieval_context", "retrieved_contexts", "contexts", "context", "documents", "source_documents")
_TEXT_BLOCKS = ("text", "input_text", "output_text")
_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    **dict.fromkeys(("file", "input_file", "document", "media", "video"), "file"),
}
_CHUNK_TEXTS = ("page_content", "text", "content", "chunk", "passage")
_SPEAKERS = {
    **dict.fromkeys(("user", "human", "customer", "client", "question", "q"), "user"),
    **dict.fromkeys(("пользователь", "клиент", "человек", "вопрос", "юзер"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "chatbot", "answer", "a", "agent", "system answer"), "assistant"),
    **dict.fromkeys(("ассистент", "бот", "ответ", "оператор", "помощник", "модель"), "assistant"),
}
_LINE_OF_SPEAKER = re.compile(
    rf"^[ \t>*_\-–—]*({'|'.join(map(re.escape, _SPEAKERS))})[*_]*\s*:[*_]*[ \t]*", re.IGNORECASE | re.MULTILINE
)


class MessageExchange(NamedTuple):
    """Message of the user, with the messages that follow until the user's next message.

    Attributes:
        question: message of the user.
        following: later messages of the assistant and of tools.
        history: turns before the question, as mappings of role and text, oldest first.
    """

    question: Any
    following: Sequence[Any]
    history: Sequence[dict[str, str]]

    @property
    def has_answer(self) -> bool:
        """True if the assistant wrote a text after the question."""
        return any(map(_is_spoken, self.following))

    def fields(self) -> dict[str, Any]:
        """Return the fields of a sample: question, history, answer, contexts and metadata."""
        spoken = [message for message in self.following if _is_spoken(message)]
        result = {"question": self.question, "answer": spoken[-1] if spoken else None, **_contexts(self.following)}
        calls = [call for message in self.following for call in tool_calls(message)]
        earlier = [unwrap_text(message) for message in spoken[:-1]]
        metadata = {**result.pop("metadata", {}), TOOL_CALLS: calls, EARLIER_MESSAGES: earlier}
        metadata = {name: value for name, value in metadata.items() if value}
        result |= {"history": list(self.history), "metadata": metadata}
        return {name: value for name, value in result.items() if value is not None and (value or name == "contexts")}


def exchanges(messages: Sequence[Any]) -> list[MessageExchange]:
    """Return each message of the user with the messages after it, oldest first; `[]` if the user wrote nothing.

    Args:
        messages: messages as `messages_in` returns them. Messages of the assistant before the first question are in the
            history of the first exchange.
    """
    starts = [place for place, message in enumerate(messages) if role_of(message) == "human"]
    result = []
    history = list(_turns(messages[: starts[0]])) if starts else []
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=False):
        following = messages[start + 1 : end]
        result.append(MessageExchange(messages[start], following, tuple(history)))
        history += [*_turns([messages[start]]), *_turns(following)]
    return result


def read_turns(value: Any) -> Any:
    """Return the turns in a chat history as mappings of role and text; return any other value unchanged.

    Args:
        value: list of messages, of turns, of (role, text) pairs or of (question, answer) pairs, an object with such a
            list under `messages`, or a transcript with a speaker before each message, such as "User:" or "Бот:".
    """
    if not isinstance(value, str | list | tuple):  # an object, such as a ChatMessageHistory
        lists = (get(value, name) for name in ("messages", "turns"))
        value = next((items for items in lists if isinstance(items, list | tuple)), value)
    if isinstance(value, str):
        parts = _LINE_OF_SPEAKER.split(value)
        if parts[0].strip():  # it does not begin with a speaker
            return value
        turns = zip(parts[1::2], parts[2::2], strict=True)
        return [{"role": _SPEAKERS[who.lower()], "text": said.strip()} for who, said in turns if said.strip()]
    if not isinstance(value, list | tuple):
        return value
    messages = messages_in(list(value)) or _paired_messages(value)
    return list(_turns(messages)) if messages else value


def messages_in(value: Any) -> list[Any]:
    """Return the messages in a list; [] if the value is no list or the list has an item that is no message.

    At least one message must have a known role, such as "user" or "assistant" (a key of `ROLES`); [] otherwise.
    """
    messages = list(chain.from_iterable(map(_completed, value))) if isinstance(value, list) else []
    return messages if all(map(_is_message, messages)) and any(map(role_of, messages)) else []


def unwrap_text(value: Any) -> Any:
    """Return the text of a document or a message; return any other value unchanged."""
    if isinstance(value, str):
        return value
    if is_document(value):
        return get(value, "page_content")
    content = get(value, "content") if role_of(value) else value
    if content is value or isinstance(content, str):
        return content
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return "".join(get(block, "text") or "" for block in blocks if get(block, "type") in _TEXT_BLOCKS)


def get(value: Any, name: str) -> Any:
    """Return the item of a mapping, or the attribute of another object, with this name; None if there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_document(value: Any) -> bool:
    """Return True for a document of LangChain, and for a mapping with its `page_content`."""
    return isinstance(get(value, "page_content"), str)


def source_of(document: Any) -> str | None:
    """Return the `source` in the metadata of a document; None if there is none."""
    metadata = get(document, "metadata")
    source = metadata.get("source") if isinstance(metadata, Mapping) else None
    return None if source is None else str(source)


def without_score(item: Any) -> Any:
    """Return the document of a (document, score) pair; return any other value unchanged."""
    is_pair = isinstance(item, list | tuple) and len(item) == 2 and is_document(item[0]) and not is_document(item[1])
    return item[0] if is_pair else item


def role_of(value: Any) -> str | None:
    """Return "human", "ai", "tool" or "system" if the value is a message with one of these roles, else None."""
    return ROLES.get(_role_name(value).lower().removesuffix("messagechunk")) if _is_message(value) else None


def media_of(message: Any) -> str:
    """Return the kinds of media in a message without a text, such as "[image]" or "[image] [file]"; "" if none."""
    content = get(message, "content")
    kinds = [get(block, "type") for block in content] if isinstance(content, list | tuple) else []
    return " ".join(f"[{_MEDIA[kind]}]" for kind in kinds if kind in _MEDIA)


def concatenated(lists: Iterable[list[Any]]) -> list[Any] | None:
    """Concatenate lists; return None if there are no lists."""
    parts = list(lists)
    return list(chain.from_iterable(parts)) if parts else None


def _completed(item: Any) -> list[Any]:
    """Return the messages in an item of a list: mostly the item itself.

    A (role, text) pair, a Turn, and an item of OpenAI's Responses become messages, a mere tool call gets an empty text,
    and the results of tools in a message of the user, as Anthropic's have them, become messages of tools before it.
    """
    match item:
        case {"type": str() as role, "data": {"content": _} as message}:  # as `messages_to_dict` writes it
            return [{"type": role, **message}]
        case {"type": "function_call", "call_id": str() as call, "name": str()}:
            return [{"role": "assistant", "content": "", "tool_calls": [{**item, "id": call}]}]
        case {"type": "function_call_output", "call_id": str() as call, "output": str() | list() as output}:
            return [{"role": "tool", "content": output, "tool_call_id": call}]
        case {"type": "reasoning", "summary": _}:
            return []
        case [str() as role, str() as content]:
            return [{"role": role, "content": content}]
        case {"role": str(), "content": None} | {"role": str(), "tool_calls": _} | {"role": str(), "function_call": _}:
            return [{**item, "content": item.get("content") or ""}]
        case {"role": str(), "text": str() as content}:
            return [{**item, "content": content}]
        case {"role": "user", "content": list() as blocks} if any(map(_is_tool_result, blocks)):
            results = [_tool_message(block) for block in blocks if _is_tool_result(block)]
            others = [block for block in blocks if not _is_tool_result(block)]
            return [*results, {**item, "content": others}] if others else results
    if isinstance(get(item, "role"), str) and isinstance(get(item, "text"), str) and get(item, "content") is None:
        return [{"role": get(item, "role"), "content": get(item, "text")}]  # a Turn
    return [item]


def _is_tool_result(block: Any) -> bool:
    return bool(get(block, "type") == "tool_result")


def _tool_message(block: Any) -> dict[str, Any]:
    status = "error" if get(block, "is_error") else "success"
    content = get(block, "content") or ""
    return {"role": "tool", "content": content, "tool_call_id": get(block, "tool_use_id"), "status": status}


def _is_message(value: Any) -> bool:
    """Return True for a LangChain message, and for a mapping with a role or type and a content."""
    return isinstance(_role_name(value), str) and isinstance(get(value, "content"), str | list)


def _role_name(value: Any) -> Any:
    return get(value, "role") or get(value, "type")


def _is_spoken(message: Any) -> bool:
    """Return True for a message of the assistant with a text."""
    return role_of(message) == "ai" and bool(unwrap_text(message).strip())


def _turns(messages: Iterable[Any]) -> Iterator[dict[str, str]]:
    """Yield the turns of messages: texts of the user, and of the assistant those that do not announce a tool call."""
    group = list(messages)
    for place, message in enumerate(group):
        role, text = _TURN_ROLES.get(role_of(message) or ""), unwrap_text(message)
        if role == "user":
            text = text if text.strip() else media_of(message)
        if not role or not text.strip():
            continue
        later = takewhile(lambda one: role_of(one) != "human", group[place + 1 :])
        is_step = role == "assistant" and tool_calls(message) and any(map(_is_spoken, later))
        if not is_step:
            yield {"role": role, "text": text}


def tool_calls(message: Any) -> list[Any]:
    """Return the tool calls in a message of the assistant."""
    if role_of(message) != "ai":
        return []
    calls = get(message, "tool_calls") or get(message, "tools_called") or _calls_in_content(message)
    return list(calls) if isinstance(calls, list | tuple) else []


def _calls_in_content(message: Any) -> list[Any]:
    """Return the tool calls in the blocks of a message, as Anthropic's have them, or the only call of a function."""
    content, call = get(message, "content"), get(message, "function_call")
    blocks = content if isinstance(content, list) else []
    calls = [{**block} for block in blocks if isinstance(block, Mapping) and block.get("type") == "tool_use"]
    return calls or ([call] if call else [])


def _contexts(messages: Sequence[Any]) -> dict[str, Any]:
    """Return the contexts that messages carry, and in the metadata where each is from: the tool and its call.

    Documents in the artifacts of tools come first; if there are none, what the assistant's messages list; if there is
    nothing either, the texts of tools.
    """
    tools = [message for message in messages if role_of(message) == "tool" and get(message, "status") != "error"]
    artifacts = [(message, get(message, "artifact")) for message in tools]
    lists = [(message, [*map(without_score, items)]) for message, items in artifacts if isinstance(items, list)]
    found = [(message, items) for message, items in lists if all(map(is_document, items))]
    if not found:
        found = [(None, items) for message in messages if (items := _listed(message)) is not None]
    if not found:
        found = [(message, items) for message in tools if (items := _chunks(unwrap_text(message)))]
    if not found:
        return {}
    calls = [call for message in messages for call in tool_calls(message)]
    tools_by_call = ((get(call, "id"), get(call, "name") or get(get(call, "function"), "name")) for call in calls)
    names = {str(own_id): str(name) for own_id, name in tools_by_call if own_id and name}
    sources = [_source(item, message, names) for message, items in found for item in items]
    result: dict[str, Any] = {"contexts": concatenated(items for _, items in found)}
    return result | ({"metadata": {CONTEXT_SOURCES: sources}} if any(sources) else {})


def _listed(message: Any) -> list[Any] | None:
    """Return the contexts in a message of the assistant, as DeepEval's turns and logs of chats have them."""
    if role_of(message) != "ai":
        return None
    lists = (get(message, key) for key in _CONTEXT_KEYS)
    return next((list(items) for items in lists if isinstance(items, list | tuple)), None)


def _chunks(text: str) -> list[Any]:
    """Return the chunks in the text of a tool: of a list of documents or texts, else the text; `[]` if blank."""
    if not text.strip():
        return []
    items = parse_literal(text.strip()) if text.lstrip().startswith("[") else None
    if isinstance(items, list) and all(isinstance(item, str) or one_text(item) is not None for item in items):
        return [item if isinstance(item, str) else _document(item) for item in items]
    return [text]


def one_text(item: Any) -> str | None:
    """Return the text of a chunk that is a mapping, such as `{"text": …}`; None unless there is exactly one text."""
    texts = [item[key] for key in _CHUNK_TEXTS if isinstance(item.get(key), str)] if isinstance(item, Mapping) else []
    return texts[0] if len(texts) == 1 else None


def _document(item: Mapping[str, Any]) -> dict[str, Any]:
    metadata = item.get("metadata")
    source = metadata.get("source") if isinstance(metadata, Mapping) else item.get("source")
    return {"page_content": one_text(item), "id": item.get("id"), "metadata": {"source": source}}


def _source(item: Any, message: Any, names: Mapping[str, str]) -> str | None:
    """Return the source of a context, or the name of the tool that returned it with the id of the call, or None."""
    source = source_of(item)
    if source is not None or message is None:
        return source
    call = get(message, "tool_call_id")
    tool = get(message, "name") or names.get(str(call))
    return " ".join(str(part) for part in (tool, call) if part) or None


def _paired_messages(value: Sequence[Any]) -> list[Any]:
    """Return the messages of (question, answer) pairs, or of mappings of a question and an answer; [] for others."""
    messages: list[Any] = []
    for item in value:
        match item:
            case (
                [str() as question, str() | None as answer]
                | {"question": str() as question, "answer": str() | None as answer}
                | {"input": str() as question, "output": str() | None as answer}
                | {"user": str() as question, "assistant": str() | None as answer}
            ):
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer or ""}]
            case _:
                return []
    return messages
