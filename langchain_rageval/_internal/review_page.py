"""HTML page on which a person decides about rows one by one; the decisions stay in the browser until they are saved.

The page needs no server and no network. `review.js` describes the data that it reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import yaml

from langchain_rageval._internal.page import content_policy, pack, read_page_file
from langchain_rageval.errors import ConfigError


def write_review_page(path: str | Path, data: Mapping[str, Any], language: str, **title_fields: str) -> None:
    """Write the page.

    Args:
        path: path of the file.
        data: `kind` ("testset" or "labels"), `file` (name of the file that the page saves), `items`, and what the kind
            needs. Equal data have their decisions in the same place of the browser.
        language: "en" or "ru", the language in which the page opens.
        **title_fields: values for the title of the page.

    Raises:
        ConfigError: if the file cannot be written.
    """
    words = yaml.safe_load(read_page_file("review_words.yaml"))
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
