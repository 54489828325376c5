"""Names that libraries and people use for the fields of a sample, and rules for names with two meanings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from langchain_rageval._internal.files import load_yaml
from langchain_rageval.errors import SampleError

NAMES: dict[str, tuple[str, ...]] = {
    field: tuple(names)
    for field, names in load_yaml((Path(__file__).parent / "names.yaml").read_text(encoding="utf-8")).items()
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

_ANSWER_WORD = re.compile("answers?|responses?|outputs?|completions?|text|ответы?|вывод|результат|решение")
_SAID_WORD = re.compile(
    "generated|generations?|pred|preds|predict|predicted|predictions?|hyp|hypothes[ie]s|decoded|inference"
    "|reply|replies|генерация|сгенерирован\\w+|предсказани[ея]|предсказанный|реплика"
)
_SYSTEM_WORD = re.compile(
    "model|llm|gpt|chatgpt|gigachat|giga|chat|yandex|claude|gemini|mistral|deepseek|llama|qwen|bot|chatbot|assistant|"
    "agent|ai|rag|chain|system|pipeline|our|my|candidate|actual|final|new|student|second|third|v|модел[иь]|ллм|ии|раг|"
    "(чат)?бота|ассистента|агента|системы|нейросет[иь]|полученный|итоговый|фактический|наш|второй|студента"
)
_MODEL = re.compile(
    "(?:candidate|actual|llm|chatgpt|gpt|gigachat|yandexgpt|claude|gemini|mistral|deepseek|llama|qwen|bot|chatbot|assistant|ai|ии"
    "|нейросеть|бот|чатбот|ассистент)(?:\\d.*|max|pro|lite|mini|turbo|plus)?"
)
_GOLD_WORD = re.compile(
    "gold|golden|gt|ref|reference|expected|ideal|ground|truth|target|correct|right|true|human"
    "|эталон|эталонный|правильный|верный|золотой|ожидаемый|ответа"
)
_GOLD_ALONE = re.compile("gold|golden|gt|expected")
_CHUNK_WORD = re.compile("chunks|passages|snippets|ctxs|чанки|пассажи|отрывки")
_SENTENCE = re.compile(r"(?:\S+\s+){4}\S|(?:\S+\s+){2}.*[.!?…]$", re.DOTALL)
_WORD = re.compile(r"[A-ZА-ЯЁ]+(?![a-zа-яё])|[A-ZА-ЯЁ]?[a-zа-яё]+|[^\W\d_]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_NUMBERED = re.compile(r"(.*?)[\s_.\-№#]*(\d+)", re.DOTALL)


DEEPEVAL = {**FIELDS_BY_NAME, "context": "reference_contexts"}
"""Names in the records of DeepEval and their fields; `FIELDS_BY_NAME` is for most other records."""
_RAGAS_TESTSET = {**FIELDS_BY_NAME, "contexts": "reference_contexts"}


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """Return a name in lower case, without spaces, punctuation and the dots of ё."""
    return _NOT_IN_NAMES.sub("", unicodedata.normalize("NFKC", name).casefold().replace("ё", "е"))


_BY_FOLDED = {folded(name): name for name in FIELDS_BY_NAME} | dict.fromkeys(("источник", "источники"), "source")


@lru_cache(maxsize=4096)
def known_name(name: str) -> str | None:
    """Return the known name of a field (a key of `FIELDS_BY_NAME`, such as "user_input") that equals a name, or None.

    Letter case, spaces, punctuation and the dots of ё make no difference: "User Input" equals "user_input". For
    "Источник", the result is "source", a name of metadata.
    """
    return name if name in FIELDS_BY_NAME else _BY_FOLDED.get(folded(name))


def metadata_name(name: str) -> str:
    """Return the name under which `Sample.metadata` holds a value whose name is no field.

    The result is "source" for "источник" and "источники" in any letter case, and the name itself for any other name.
    """
    return "source" if known_name(name) == "source" else name


def likely_field(name: str, value: Any) -> str | None:
    """Return the field that an unknown name seems to mean, such as "answer" for `llm_answer`; None if it means none.

    Texts may be answers and references; lists may be references and contexts. The name of a model, such as `gpt4`,
    means an answer if the value is a sentence. A word such as `gold` means a reference if the value has several words.
    """
    if not isinstance(value, str | list):
        return None
    field = _likely_field(name)
    if field == "model":
        return "answer" if isinstance(value, str) and _SENTENCE.match(value.strip()) else None
    if field == "gold":
        return "references" if isinstance(value, str) and " " in value.strip() else None
    return field if isinstance(value, str) != (field == "contexts") or field == "references" else None


@lru_cache(maxsize=4096)
def _likely_field(name: str) -> str | None:
    if known_name(name) is not None or numbered_name(name) is not None:
        return None
    plain = unicodedata.normalize("NFKC", name)
    words = [word.casefold().replace("ё", "е") for word in _WORD.findall(plain)]
    patterns = (_ANSWER_WORD, _SAID_WORD, _SYSTEM_WORD, _GOLD_WORD)
    answers, said, system, gold = ([word for word in words if pattern.fullmatch(word)] for pattern in patterns)
    if words and gold and all(word in gold or word in answers for word in words):
        return "references" if answers or len(gold) > 1 else "gold" if _GOLD_ALONE.fullmatch(words[0]) else None
    if any(map(_CHUNK_WORD.fullmatch, words)):
        return "contexts"
    if words and set(words) == {*answers, *said, *system} != {"text"}:
        is_numbered = answers and plain[-1].isdigit()
        if said or (answers and system) or len(answers) > 1 or is_numbered:
            return "answer"
    return "model" if _MODEL.fullmatch(folded(name)) else None


@lru_cache(maxsize=4096)
def numbered_name(name: str) -> tuple[str, int] | None:
    """Return the known name of a list field and the number after it, as `("context", 2)` for `Context 2`; else None."""
    match = _NUMBERED.fullmatch(name.strip())
    known = known_name(match[1]) if match else None
    return (known, int(match[2])) if match and known and FIELDS_BY_NAME.get(known) in LIST_FIELDS else None


@lru_cache(maxsize=1024)
def reading_of(all_names: frozenset[str], all_mapped: frozenset[str]) -> Mapping[str, str]:
    """Return the field of `Sample` that each known name means in a record.

    The meanings are those in `FIELDS_BY_NAME`. If another name in the record shows which library wrote it, the
    meanings of this library win: beside `actual_output`, the name `context` means the reference contexts, as in
    DeepEval.

    Args:
        all_names: all names in the record, known and unknown, including names of missing values.
        all_mapped: names that the user assigned to a field.

    Raises:
        SampleError: if a name has two meanings; the message gives both meanings, and the way to choose.
    """
    names = {known_name(name) or folded(name) for name in all_names}
    mapped = {known_name(name) or folded(name) for name in all_mapped}
    if {"evolutiontype", "episodedone"} <= names:
        if "contexts" in names and names & set(NAMES["answer"]) and "contexts" not in mapped:
            gold = "the passages of the reference, as in a test set of ragas 0.1"
            chunks = ("contexts", "the retrieved chunks of the answer")
            raise two_readings("contexts", "contexts", chunks, ("reference_contexts", gold))
        return _RAGAS_TESTSET
    if names & {"actual_output", "retrieval_context"}:
        return DEEPEVAL
    if "expected_output" in names:
        if "context" in names and "context" not in mapped and names & {"answer", "response", "output", "result"}:
            gold = "the gold context, as in DeepEval, which also uses the name 'expected_output'"
            chunks = ("contexts", "the retrieved chunks")
            raise two_readings("context", "context", chunks, ("reference_contexts", gold))
        return DEEPEVAL
    return FIELDS_BY_NAME


def two_readings(name: str, path: str, *readings: tuple[str, str]) -> SampleError:
    """Return the error of a name with two meanings.

    Args:
        name: the name in the record.
        path: the name or dotted path that the message proposes as value of the user's option `fields`.
        readings: for each meaning of the name, a pair of the field of `Sample` and the meaning in words.
    """
    meanings = " or ".join(
        f"{meaning} (fields={{{field!r}: {path!r}}}; in the shell, --fields {field}={path})"
        for field, meaning in readings
    )
    return SampleError(f"{name!r} can be {meanings}: choose one", readings[0][0])


def competing_names(field: str, names: Sequence[str]) -> SampleError:
    """Return the error for a record in which several names could be the same field.

    Args:
        field: field of `Sample`.
        names: two or more names whose values differ.
    """
    what = {"answer": "the answer", "references": "the reference"}.get(field, field)
    one, other = sorted(names[:2], key=lambda name: known_name(name) in ("answer", "ответ"))
    is_gold = known_name(other) in ("answer", "ответ")  # beside another answer, it may be the reference
    beside = {"answer": "references" if is_gold else None, "contexts": "retrieved"}.get(field)
    first = {} if known_name(one) == "messages" else {field: one}  # messages are the question, too
    choices = [first | ({beside: other} if beside else {}), {field: other}]
    typed = ",".join(f"{role}={name}" for role, name in choices[0].items())
    typed = f'"{typed}"' if " " in typed else typed
    remedy = f"write fields={choices[0]} or fields={choices[1]}; in the shell, --fields {typed}"
    return SampleError(f"{' and '.join(map(repr, names))} could both be {what}: {remedy}", field)
