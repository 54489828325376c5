"""Build HTML fragments for pages and notebooks, and write the pages for review and labelling."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args

from langchain_rageval._internal.files import load_yaml
from langchain_rageval.errors import ConfigError, check_choice

_MAX_CHARACTERS = 2_000
_MAX_ITEMS = 50


def text(content: str) -> str:
    """Return plain text as escaped HTML; a very long text is cut."""
    length = f" [{len(content):,} characters]" if len(content) > _MAX_CHARACTERS else ""
    return f"<bdi>{escape(shortened(content, _MAX_CHARACTERS) + length)}</bdi>".replace("\n", "<br>")


def shortened(text: str, most: int) -> str:
    """Return a text cut to `most` characters; "…" replaces the rest."""
    return text if len(text) <= most else f"{text[:most]}…"


def bold(content: str) -> str:
    """Return a text as bold HTML."""
    return f"<b>{text(content)}</b>"


def paragraph(*parts: str) -> str:
    """Return HTML parts as one paragraph; empty parts are left out."""
    return f"<p>{' '.join(filter(None, parts))}</p>"


def item_list(items: Sequence[str], *, numbered: bool = False) -> str:
    """Return HTML items as an HTML list; only the first 50 items are shown."""
    tag = "ol" if numbered else "ul"
    lines = "".join(f"<li>{item}</li>" for item in items[:_MAX_ITEMS])
    return f"<{tag}>{lines}</{tag}>" + _more(len(items))


def table(head: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    """Return a table of HTML cells with plain text headings; only the first 50 rows are shown."""
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in head)
    lines = "".join(
        "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in row) + "</tr>"
        for row in rows[:_MAX_ITEMS]
    )
    return f"<table><tr>{heads}</tr>{lines}</table>" + _more(len(rows))


def details(title: str, body: str) -> str:
    """Return an HTML body that is collapsed under a plain text title."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def pluralize(count: int, noun: str) -> str:
    """Return a count and a noun, such as "1 context" or "2 contexts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _more(count: int) -> str:
    return paragraph(f"… and {count - _MAX_ITEMS:,} more") if count > _MAX_ITEMS else ""


PageLanguage = Literal["auto", "en", "ru"]

_LONGEST = 200_000
"""Most characters of one text; a longer text is cut and its length appended."""


def check_page_language(language: str) -> None:
    """Check the language of a page.

    Raises:
        ConfigError: if the language is not one of `PageLanguage`.
    """
    check_choice("language", language, get_args(PageLanguage))


def cut(text: str) -> str:
    """Return a text cut to 200,000 characters; "…" and the length of the whole text replace the rest."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,}]"


def pack(value: Any) -> str:
    """Return a value as JSON, compressed with gzip and encoded in base64."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def content_policy(script: str, style: str) -> str:
    """Return a Content-Security-Policy that allows only one script and one style, identified by their hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def read_page_file(name: str) -> str:
    """Return the text of a file that all pages share, such as "page.css"."""
    return (files("langchain_rageval._internal") / "page_files" / name).read_text(encoding="utf-8")


def write_review_page(path: str | Path, data: Mapping[str, Any], language: str, **title_fields: str) -> None:
    """Write the HTML page on which a person reviews the rows of a test set, or labels the rows of a report.

    Args:
        path: path of the page.
        data: content of the page: `kind` ("testset" or "labels"), `file` (name of the file that the page saves),
            `items` (one mapping for each row). For "testset" also what the saved file repeats: `mark` (key of the
            file's first line), `yields` (numbers of attempts and rejections), `rejected` (rejected questions, each as
            JSON text), `header` (other facts of the run, as JSON text) and `reason` (recorded for rows that the person
            drops). For "labels" also `verdicts` (possible labels, each with the `key` to press and the `value`) and
            `instruction` (what the person decides, by language). In a browser, pages with equal data share decisions.
        language: language in which the page opens, "en" or "ru".
        **title_fields: values for the title of the page: `metric` for "labels", none for "testset".

    Raises:
        ConfigError: if the file cannot be written.
    """
    words = load_yaml(read_page_file("review_words.yaml"))
    titles = {code: texts[f"title_{data['kind']}"].format(**title_fields) for code, texts in words.items()}
    content = json.dumps(data, sort_keys=True).encode()
    key = hashlib.blake2b(content, digest_size=12).hexdigest()
    style = read_page_file("page.css") + read_page_file("review.css")
    script = read_page_file("page.js") + read_page_file("review.js")
    page = Template(read_page_file("review.html")).substitute(
        language=language,
        policy=content_policy(script, style),
        title=escape(titles[language]),
        style=style,
        script=script,
        **{name: escape(words[language][name]) for name in ("skip", "loading", "noscript")},
        words=pack(words),
        data=pack({**data, "key": key, "language": language, "title": titles}),
    )
    try:
        Path(path).write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another path") from None


_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text on one line, without control characters and marks of the writing direction."""
    return printable_lines(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return a text with U+FFFD for control characters except line feeds, and without writing-direction marks."""
    return _CONTROL.sub("\ufffd", _INVISIBLE.sub("", text))


def printable_json(document: str) -> str:
    """Return an equivalent JSON document in which control characters and direction marks are JSON escapes."""
    return re.sub(f"{_CONTROL.pattern}|{_INVISIBLE.pattern}", lambda match: json.dumps(match[0])[1:-1], document)
