"""Notes: remarks about a run, a comparison or a gate (requirement on a run), with texts in English and Russian.

A note is stored with its code and its values. The text in either language is rendered from the code and the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Self

from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.page import pluralize
from langchain_rageval.text.language import detect_language

_FILES = ("notes.yaml", "reasons.yaml")


class Note(str):
    """Remark as English text (a `str`), with the code and the values from which other languages are rendered.

    Args:
        code: what the remark is about, such as "budget-spent"; a key of `notes.yaml` or `reasons.yaml`.
        metric: name of the metric that the note is about; "" for a run as a whole.
        fields: value of each placeholder in the text template of `code`, as keyword arguments. A value is a number, a
            text, another note or a list of these.

    Attributes:
        code, metric, fields: the arguments; `fields` maps each placeholder to its value. Compare notes by their code,
            not by their text.
    """

    code: str
    metric: str
    fields: Mapping[str, Any]

    def __new__(cls, code: str, /, *, metric: str = "", **fields: Any) -> Self:
        """Create a note with the English text of its code."""
        plain = {name: _plain(value) for name, value in fields.items()}
        return cls._made(_render(code, "en", {"metric": metric, **plain}), code, metric, plain)

    @classmethod
    def _made(cls, text: str, code: str, metric: str, fields: Mapping[str, Any]) -> Self:
        note = super().__new__(cls, text)
        note.code, note.metric, note.fields = code, metric, fields
        return note

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to restore the note from a pickle."""
        return Note._made, (str(self), self.code, self.metric, self.fields)

    @property
    def is_important(self) -> bool:
        """True if scores must not be read without the note, as after an interrupted run.

        The HTML pages of reports show such a note at the top.
        """
        return bool(_templates().get(self.code, {}).get("important"))

    def in_language(self, language: str) -> str:
        """Return the text of the note in a language; in English if there is no translation."""
        known = self.code in _templates()
        return _render(self.code, language, {"metric": self.metric, **self.fields}) if known else str(self)

    def to_json(self) -> dict[str, Any]:
        """Return the note as JSON data, which `note_of` reads."""
        fields = {name: _as_json(value) for name, value in self.fields.items()}
        return {"code": self.code, "metric": self.metric, "fields": fields, "text": str(self)}


def note_of(value: Any) -> str:
    """Return the `Note` (a `str`) that `Note.to_json` converted to a mapping; return a plain text unchanged.

    Reports of earlier versions contain notes as plain texts.
    """
    return _from_json(value) if isinstance(value, Mapping) else str(value)


def code_of(note: str) -> str:
    """Return the attribute `code` of a `Note` (a `str` with a code), such as "budget-spent"; "" for a plain `str`.

    Reports of earlier versions contain notes as plain texts.
    """
    return getattr(note, "code", "")


def is_important(note: str) -> bool:
    """Return True if scores must not be read without a note (`Note.is_important`); True for any plain text."""
    return not isinstance(note, Note) or note.is_important


def translate(text: str, language: str) -> str:
    """Return a note in a language, in English if it has no translation; return a text that is no note unchanged.

    Args:
        text: a `Note`, or a plain `str`. A plain `str` is translated only if it equals the English text of a note whose
            text has no placeholders.
        language: code of the language, such as "ru".
    """
    if not isinstance(text, Note) and (code := _codes_by_text().get(text)) is not None:
        return _render(code, language, {})
    return text.in_language(language) if isinstance(text, Note) else text


def explain(text: str, *parts: str, end: str = ".") -> str:
    """Join notes and texts to the reason of a score; notes are in Russian if `text` is Russian, else in English.

    Args:
        text: text that decides the language, such as the question.
        parts: parts of the reason, which are joined with "; "; empty ones are left out.
        end: end of the reason.
    """
    language = detect_language(text)
    if language != "en":  # a note is its own English text
        parts = tuple(part.in_language(language) if isinstance(part, Note) else part for part in parts)
    return "; ".join(filter(None, parts)) + end


def notes_as_json(notes: Iterable[str]) -> list[Any]:
    """Return notes as JSON data: a `Note` as the dict of `Note.to_json`, and a plain `str` unchanged."""
    return [note.to_json() if isinstance(note, Note) else note for note in notes]


class _Field:
    """Value of a placeholder in a template, which joins lists, counts nouns, and translates notes when it is formatted.

    Args:
        value: number, text, note or list of these.
        language: code of the language of notes.
    """

    def __init__(self, value: Any, language: str) -> None:
        self._value, self._language = value, language

    def __repr__(self) -> str:
        return repr(self._value)

    def __format__(self, format_spec: str) -> str:
        value = self._value
        one, divider, several = format_spec.partition("|")
        if divider and isinstance(value, list):
            return f"{one if len(value) == 1 else several} {', '.join(value)}"
        if divider:
            is_one = value % 10 == 1 and value % 100 != 11 if self._language == "ru" else value == 1
            return f"{value} {one if is_one else several}"
        if isinstance(value, list):
            return (format_spec or ", ").join(format(_Field(part, self._language)) for part in value)
        if isinstance(value, Note):
            return value.in_language(self._language)
        if isinstance(value, int) and len(format_spec) > 1 and format_spec.isalpha():
            return pluralize(value, format_spec)
        return format(value, format_spec)


def _render(code: str, language: str, fields: Mapping[str, Any]) -> str:
    template = _templates()[code]
    shown = {name: _Field(value, language) for name, value in fields.items()}
    return str(template.get(language, template["en"])).format_map(shown)


def _plain(value: Any) -> Any:
    """Return a field as a number, text, note or list of these."""
    if isinstance(value, str | int | float):
        return value
    return list(map(_plain, value)) if isinstance(value, Iterable) else str(value)


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_as_json, value))
    return value.to_json() if isinstance(value, Note) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_from_json, value))
    if not isinstance(value, Mapping):
        return value
    fields = {name: _from_json(field) for name, field in value.get("fields", {}).items()}
    return Note._made(str(value.get("text", "")), str(value.get("code", "")), str(value.get("metric", "")), fields)


@lru_cache(maxsize=1)
def _templates() -> Mapping[str, Mapping[str, Any]]:
    texts = [(files("langchain_rageval.data") / name).read_text(encoding="utf-8") for name in _FILES]
    return {code: template for text in texts for code, template in load_yaml(text).items()}


@lru_cache(maxsize=1)
def _codes_by_text() -> Mapping[str, str]:
    return {template["en"]: code for code, template in _templates().items() if "{" not in template["en"]}
