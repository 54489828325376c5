"""Parts that the HTML pages share: packed data, the Content-Security-Policy, and the files of the pages.

A page is one file that works offline and is safe against hostile content. Its data is embedded as gzip in base64; its
script unpacks them and writes texts as text only, never as HTML.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from typing import Any, Literal, get_args

from langchain_rageval.errors import ConfigError

PageLanguage = Literal["auto", "en", "ru"]

_LONGEST = 200_000
"""Most characters of one text; a longer text is cut and its length appended."""


def check_page_language(language: str) -> None:
    """Check the language of a page.

    Raises:
        ConfigError: if it is not one of `PageLanguage`.
    """
    if language not in get_args(PageLanguage):
        raise ConfigError(f"language must be one of {', '.join(get_args(PageLanguage))}, got {language!r}")


def cut(text: str) -> str:
    """Return a text without the part beyond 200,000 characters, in place of which stands its length."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,}]"


def pack(value: Any) -> str:
    """Return JSON data as gzip in base64."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def content_policy(script: str, style: str) -> str:
    """Return the Content-Security-Policy that allows one script and one style, identified by hashes, and no more."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def read_page_file(name: str) -> str:
    """Return the text of a file that pages share, such as "page.css"."""
    return (files("langchain_rageval._internal") / "page_files" / name).read_text(encoding="utf-8")
