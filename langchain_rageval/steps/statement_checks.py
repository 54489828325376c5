"""Check extracted statements without a model: find repeats, placeholders, copied examples and unmentioned content.

The content units of a text are the stems of its content words, and its numbers. In scripts without spaces between
words, single characters take the place of stems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.text.language import FUNCTION_WORDS, WORDS
from langchain_rageval.text.sentences import assertions, split_sentences
from langchain_rageval.text.words import UNSPACED, normalize_text, stem_of, tokens_of

_SHORTEST_CONTENT_WORD = 4  # letters
_SAID = 0.6  # share of a statement's content units that a text must contain to say it

_LIST_MARK = re.compile(r"^\s*(?:[-*+•◦▪‣·–—]|\(?\d{1,3}[.)](?=\s))\s*")
_NUMBERED = re.compile(r"^\s*\(?(\d{1,3})[.)]\s+(?=\S)")
_BULLET = re.compile(r"^\s*[-*+•◦▪‣·–—]\s+(?=\S)")
_SEPARATOR = re.compile(r"[\"'«»“”„‘’`\[\](){}…!?;:。！？；：、，]|[.,](?!\d)|(?<!\S)[-–—](?=\s|$)")
_ARTICLE = re.compile(r"\b(?:an|the)\b ")  # "a" may be a name, as in "plan A"
_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_ADVICE = re.compile(
    r"\b(?:(?:contact|ask|consult) (?:your|our|the|an?)|обратитесь|спросите|уточните|проконсультируйтесь)\b",
    re.IGNORECASE,
)
_ONE_CHARACTER = re.compile(f"[{UNSPACED}]")

_NO_ANSWER = frozenset(
    [
        *("n/a", "n.a", "n/d", "n.d", "nil", "null", "tbd", "not applicable", "н/д", "не применимо", "неприменимо"),
        *("不适用", "해당없음", "해당 없음", "non applicabile"),
    ]
)
"""Words that fill an empty field, normalized as by `statement_key`."""

_STATES_NOTHING = re.compile("|".join(chain(*WORDS["nothing"].values())))


@lru_cache(maxsize=4096)
def statement_key(statement: str) -> str:
    """Return a key that is equal for statements that are near-verbatim repeats of each other.

    Case, punctuation, quotation marks, list marks, white space, English articles and the difference of ё and е are
    removed. Words, their order, numbers, signs and units are kept.
    """
    text = normalize_text(_LIST_MARK.sub("", statement))
    return " ".join(_ARTICLE.sub("", _SEPARATOR.sub(" ", text)).split())


def without_list_marks(statements: Sequence[str]) -> list[str]:
    """Return statements without list marks: "- " at the beginning, or "1. " if all statements are numbered."""
    numbers = [_NUMBERED.match(statement) for statement in statements]
    counted = [int(match[1]) for match in numbers if match]
    if len(counted) > 1 and counted == list(range(counted[0], counted[0] + len(statements))):
        return [_NUMBERED.sub("", statement) for statement in statements]
    return [_BULLET.sub("", statement) for statement in statements]


def is_placeholder(statement: str, text: str) -> bool:
    """Return True if a statement only says that there are no statements, such as "No statements.", "-" or "N/A".

    A sentence that the text itself contains, such as "No claims were made.", is not a placeholder.
    """
    key = statement_key(statement)
    if key in _NO_ANSWER:
        return True
    if any(map(str.isalnum, key)):
        return bool(_STATES_NOTHING.fullmatch(key)) and key not in map(statement_key, [text, *split_sentences(text)])
    return statement.strip() not in [text.strip(), *split_sentences(text)]


def content_units(text: str) -> set[str]:
    """Return the stems of the content words of a text, and its numbers, except the numbers of list items."""
    lines = [_LIST_MARK.sub("", line) for line in text.splitlines()]
    return {stem_of(token) for token in tokens_of(normalize_text("\n".join(lines))) if _is_content(token)}


@lru_cache(maxsize=65_536)
def _is_content(token: str) -> bool:
    if any(map(str.isdigit, token)) or _ONE_CHARACTER.fullmatch(token):
        return True
    return len(token) >= _SHORTEST_CONTENT_WORD and token not in _FUNCTION_WORDS


def unmentioned_units(text: str, statements: Iterable[str]) -> tuple[int, int]:
    """Return how many content units (word stems and numbers) of a text no statement mentions, and how many it has.

    Sentences that state nothing are left out: questions, "the documents do not say" and advice to ask somebody else.
    """
    units = content_units("\n".join(sentence for sentence in assertions(text) if not _ADVICE.search(sentence)))
    return len(units - content_units("\n".join(statements))), len(units)


def copied_statement(statements: Sequence[str], prompt: Prompt, question: str, text: str) -> str | None:
    """Return a statement that was copied from an example of the prompt, or None if there is none.

    A statement whose content is in the question or the text is not a copy.
    """
    examples = _example_keys(prompt)
    for statement in statements:
        key = statement_key(statement)
        if any(key in shown and statement_key(text) != example_text for example_text, shown in examples):
            units = content_units(statement)
            if len(units & content_units(f"{question}\n{text}")) < _SAID * len(units):
                return statement
    return None


@lru_cache(maxsize=64)
def _example_keys(prompt: Prompt) -> list[tuple[str, frozenset[str]]]:
    """Return the keys of the text and of the statements of each example."""
    return [
        (
            statement_key(str(example.input.get("text", ""))),
            frozenset(map(statement_key, example.output.get("statements", []))),
        )
        for example in prompt.examples
    ]
