"""Names that libraries and people use for the fields of a sample, and rules for names with two meanings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from langchain_rageval.errors import SampleError

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "example_id", "query_id", "идентификатор"),
    "question": (
        *("question", "user_input", "input", "inputs", "query", "request", "messages"),
        *("turns", "conversation", "dialogue", "диалог", "переписка"),
        *("вопрос", "вопрос пользователя", "текст вопроса", "запрос", "запрос пользователя"),
    ),
    "history": (
        *("history", "chat_history", "message_history", "conversation_history"),
        *("история", "история чата", "история диалога", "история сообщений"),
    ),
    "answer": (
        *("answer", "response", "actual_output", "result", "output", "outputs", "messages"),
        *("ответ", "ответ модели", "ответ системы", "ответ бота", "ответ ассистента", "сгенерированный ответ"),
        *("полученный ответ", "текст ответа", "prediction", "completion"),
    ),
    "contexts": (
        *("contexts", "retrieved_contexts", "retrieval_context", "retrieved_context", "messages", "context"),
        *("source_documents", "documents", "source_nodes", "outputs", "retrieved_docs", "retrieved_documents"),
        *("retrieved_chunks", "контексты", "контекст", "найденные контексты", "найденный контекст"),
        *("извлечённые контексты", "извлечённый контекст", "фрагменты", "найденные фрагменты"),
        *("извлечённые фрагменты", "документы", "найденные документы"),
    ),
    "retrieved": ("retrieved",),
    "references": (
        *("references", "reference", "ground_truths", "ground_truth", "reference_outputs", "expectations"),
        *("expected_output", "expected_response", "expected_answer", "reference_answer", "correct_answer"),
        *("gold_answer", "ideal", "эталон", "эталоны", "эталонный ответ", "эталонные ответы", "правильный ответ"),
        *("правильные ответы", "верный ответ", "ожидаемый ответ", "идеальный ответ", "образец ответа", "референс"),
    ),
    "reference_contexts": (
        *("reference_contexts", "reference_context", "expected_chunks", "expected_retrieved_context"),
        *(
            "эталонные контексты",
            "эталонный контекст",
            "эталонные фрагменты",
            "эталонные документы",
            "правильный контекст",
        ),
    ),
    "context_ids": ("context_ids", "retrieved_context_ids", "id контекстов", "id фрагментов", "id документов"),
    "retrieved_ids": ("retrieved_ids",),
    "reference_context_ids": ("reference_context_ids", "id эталонных контекстов", "id эталонных фрагментов"),
    "relevance": ("relevance",),
    "metadata": ("metadata", "additional_metadata", "метаданные"),
}
"""Fields of `Sample` and the names under which they are found, in order of precedence."""

FIELDS_BY_NAME = {name: field for field in reversed(NAMES) for name in NAMES[field]}
"""Names and the field that a plain value under the name belongs to: the first field in `NAMES` that lists the name."""

LIST_FIELDS = frozenset(
    {"contexts", "retrieved", "references", "reference_contexts"}
    | {"context_ids", "retrieved_ids", "reference_context_ids"}
)
"""Fields that hold lists."""

TEXT_FIELDS = frozenset({"question", "answer", "contexts", "retrieved", "references", "reference_contexts"})
"""Fields that hold texts."""

CONTAINERS = frozenset(
    {"inputs", "outputs", "reference_outputs", "expectations", "request", "response", "input", "output"}
)
"""Names whose value may be a mapping that holds several fields."""

ONE_TEXT = frozenset({"context", "контекст", "найденный контекст", "извлечённый контекст", "retrieved_context"}) | {
    name for name in NAMES["reference_contexts"] if name.endswith(("контекст", "reference_context"))
}
"""Names of lists under which a text is one item; under the other names of contexts a text is an error."""

CONVERSATIONS = frozenset({"messages", "user_input", "turns", "conversation", "dialogue", "диалог", "переписка"})
"""Names whose value may be the messages of a whole conversation: of question, answer, contexts and history."""

_ANSWER_WORD = re.compile("answer|response|output|prediction|completion|generation|reply|text|ответ|вывод")
_SYSTEM_WORD = re.compile(
    "model|llm|gpt|chatgpt|gigachat|giga|chat|yandex|claude|gemini|mistral|deepseek|llama|qwen|bot|chatbot|assistant|"
    "agent|ai|rag|chain|system|pipeline|our|my|generated|predicted|actual|candidate|final|new|модел[иь]|ллм|ии|"
    "(чат)?бота|ассистента|агента|системы|нейросет[иь]|сгенерированный|полученный|предсказанный|фактический|наш"
)
_SOURCES = frozenset({"источник", "источники"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_NUMBERED = re.compile(r"(.*?)[\s_.\-№#]*(\d+)", re.DOTALL)


class Reading(NamedTuple):
    """Meaning of names that depends on the other names of a record.

    Attributes:
        library: the library that uses the names so.
        fields: name to field, where it differs from `FIELDS_BY_NAME`.
    """

    library: str
    fields: Mapping[str, str]


DEEPEVAL = Reading("DeepEval", {"context": "reference_contexts"})
_RAGAS_TESTSET = Reading("a test set of ragas 0.1", {"contexts": "reference_contexts"})
USUAL = Reading("", {})
"""Meaning of the names of most records."""


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """Return a name in lower case, without spaces, punctuation and the dots of ё."""
    return _NOT_IN_NAMES.sub("", unicodedata.normalize("NFKC", name).casefold().replace("ё", "е"))


_BY_FOLDED = {folded(name): name for name in FIELDS_BY_NAME} | {folded(name): "source" for name in _SOURCES}


@lru_cache(maxsize=4096)
def known_name(name: str) -> str | None:
    """Return the name in `FIELDS_BY_NAME` that a name means, in any letter case and spelling, or None.

    "Источник" means "source", a name of metadata.
    """
    return name if name in FIELDS_BY_NAME else _BY_FOLDED.get(folded(name))


@lru_cache(maxsize=4096)
def is_likely_answer(name: str) -> bool:
    """Return True for an unknown name that says it is the answer of a system, such as `llm_answer` or `botReply`."""
    words = [word.casefold().replace("ё", "е") for word in _WORD.findall(unicodedata.normalize("NFKC", name))]
    answers = [word for word in words if _ANSWER_WORD.fullmatch(word)]
    of_system = [word for word in words if _SYSTEM_WORD.fullmatch(word)]
    return bool(answers and of_system) and len(answers) + len(of_system) == len(words) and known_name(name) is None


@lru_cache(maxsize=4096)
def numbered_name(name: str) -> tuple[str, int] | None:
    """Return the known name of a list and the number after it, as in `context_2` or `Контекст 2`; None for others."""
    match = _NUMBERED.fullmatch(name.strip())
    known = known_name(match[1]) if match else None
    return (known, int(match[2])) if match and known and FIELDS_BY_NAME.get(known) in LIST_FIELDS else None


def reading_of(names: Collection[str], mapped: Collection[str]) -> Reading:
    """Return the meaning of the names of a record that depends on its other names.

    Args:
        names: known names of the record and all its unknown names, also of missing values.
        mapped: names that the user assigned to a field.

    Raises:
        SampleError: if a name has two meanings; the message gives both, and the way to choose.
    """
    return _reading_of(frozenset(names), frozenset(mapped))


@lru_cache(maxsize=1024)
def _reading_of(all_names: frozenset[str], all_mapped: frozenset[str]) -> Reading:
    names = {known_name(name) or folded(name) for name in all_names}
    mapped = {known_name(name) or folded(name) for name in all_mapped}
    if {"evolutiontype", "episodedone"} <= names:
        if "contexts" in names and names & set(NAMES["answer"]) and "contexts" not in mapped:
            raise two_readings(
                "contexts",
                "contexts",
                ("contexts", "the retrieved chunks of the answer"),
                ("reference_contexts", f"the passages of the reference, as in {_RAGAS_TESTSET.library}"),
            )
        return _RAGAS_TESTSET
    if names & {"actual_output", "retrieval_context"}:
        return DEEPEVAL
    if "expected_output" in names:
        if "context" in names and "context" not in mapped and names & {"answer", "response", "output", "result"}:
            raise two_readings(
                "context",
                "context",
                ("contexts", "the retrieved chunks"),
                ("reference_contexts", "the gold context, as in DeepEval, which also uses the name 'expected_output'"),
            )
        return DEEPEVAL
    return USUAL


def two_readings(name: str, path: str, *readings: tuple[str, str]) -> SampleError:
    """Return the error of a name with two meanings.

    Args:
        name: the name.
        path: the name or dotted path to map.
        readings: field and meaning of each reading.
    """
    meanings = " or ".join(
        f"{meaning} (fields={{{field!r}: {path!r}}}; in the shell, --fields {field}={path})"
        for field, meaning in readings
    )
    return SampleError(f"{name!r} can be {meanings}: choose one", readings[0][0])


def competing_names(field: str, names: Sequence[str]) -> SampleError:
    """Return the error of names in one record that could all be one field.

    Args:
        field: field of `Sample`.
        names: two or more names whose values differ.
    """
    what = {"answer": "the answer", "references": "the reference"}.get(field, field)
    other = {"answer": "references", "contexts": "retrieved"}.get(field)
    one, other = sorted(names[:2], key=lambda name: known_name(name) in ("answer", "ответ"))
    beside = {"answer": "references", "contexts": "retrieved"}.get(field)
    first = {} if known_name(one) == "messages" else {field: one}  # messages are the question, too
    choices = [first | ({beside: other} if beside else {}), {field: other}]
    typed = ",".join(f"{role}={name}" for role, name in choices[0].items())
    typed = f'"{typed}"' if " " in typed else typed
    remedy = f"write fields={choices[0]} or fields={choices[1]}; in the shell, --fields {typed}"
    return SampleError(f"{' and '.join(map(repr, names))} could both be {what}: {remedy}", field)
