"""Notes of a report in the language of the page, with models by their names and without internal addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_IDENTITY = re.compile(r"\b[A-Z]\w*\(\w+=(?:[^()'\"]|'[^'\n]*'|\"[^\"\n]*\")*\)")
"""Class and settings of a model, as `model_identity` gives them."""
_NAME = re.compile(r"\b(?:model|model_name|deployment_name)='([^']+)'")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>),;]+", re.IGNORECASE)
_FIELD = re.compile(r"\\\{(\w+)\\\}")
_SEPARATORS = ("; ", ", ")  # of the parts of a field, and of the parts of these


@dataclass(frozen=True)
class PageNotes:
    """Translator of notes.

    Args:
        templates: the English notes with `{fields}`, and under the code of each other language the translation;
            "important" marks a note that limits what the scores mean, and "parts" has templates of the parts of fields,
            which stand between semicolons or, in parts of parts, between commas.
        language: code of the language of the page.
    """

    templates: Sequence[Mapping[str, Any]]
    language: str

    def translate(self, note: str) -> str:
        """Return a note in the language of the page; in English if there is no translation."""
        return self._translate(without_addresses(note), self.templates, [*_SEPARATORS])

    def important(self, notes: Iterable[str]) -> list[str]:
        """Return the translations of the notes that limit what the scores mean."""
        return [self.translate(note) for note in notes if self._is_important(note)]

    def others(self, notes: Iterable[str]) -> list[str]:
        """Return the translations of the other notes."""
        return [self.translate(note) for note in notes if not self._is_important(note)]

    def _translate(self, text: str, templates: Sequence[Mapping[str, Any]], separators: Sequence[str]) -> str:
        for template in templates:
            if match := re.fullmatch(_pattern(template["en"]), text, re.DOTALL):
                parts = template.get("parts", ())
                fields = {name: self._parts(value, parts, separators) for name, value in match.groupdict().items()}
                return str(template.get(self.language, template["en"])).format(**fields)
        return text

    def _parts(self, text: str, templates: Sequence[Mapping[str, Any]], separators: Sequence[str]) -> str:
        """Return a field with its parts translated."""
        if not templates:
            return text
        separator, *others = separators
        return separator.join(self._translate(part, templates, others) for part in text.split(separator))

    def _is_important(self, note: str) -> bool:
        plain = without_addresses(note)
        known = (one for one in self.templates if re.fullmatch(_pattern(one["en"]), plain, re.DOTALL))
        template = next(known, None)
        return template is None or bool(template.get("important"))


def without_addresses(text: str) -> str:
    """Return a text with descriptions of models replaced by their names, and internet addresses by "…"."""
    return _ADDRESS.sub("…", _IDENTITY.sub(_short_identity, text))


def _short_identity(match: re.Match[str]) -> str:
    name = _NAME.search(match[0])
    return name[1] if name else match[0].partition("(")[0]


def _pattern(template: str) -> str:
    return _FIELD.sub(r"(?P<\1>.+?)", re.escape(template))
