"""Translation of the package's docstrings into reStructuredText.

The docstrings are plain text with names in backticks. Here the names become literals, all other characters that
reStructuredText would interpret are escaped, and an indented example becomes a block of code.
"""

import re
from typing import Any

from sphinx.application import Sphinx


def translate_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Replace the lines of a docstring, before napoleon reads its sections."""
    translated: list[str] = []
    last = ""  # the last line with text
    for line in _literals("\n".join(lines)).split("\n"):
        indented = line.startswith("    ")
        if indented and translated and not translated[-1] and last and not last.startswith((" ", "- ")):
            translated += ["::", ""]
        translated.append(line)
        last = line or last
    lines[:] = translated


def _literals(text: str) -> str:
    """Return a text with literals in place of words in backticks, and with every other markup character escaped."""
    parts = re.split(r"`+([^`]+)`+", re.sub(r"^( *)\* ", r"\1- ", text, flags=re.MULTILINE))
    for place, part in enumerate(parts):
        if place % 2:
            follows = parts[place + 1][:1]
            parts[place] = f"``{' '.join(part.split())}``" + ("\\ " if re.match(r"[\w\\]", follows) else "")
        else:
            parts[place] = re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part)
    return "".join(parts)
