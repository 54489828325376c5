"""Text of files in UTF-8, UTF-16, Windows-1251 and other single-byte encodings."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from langchain_rageval.errors import ConfigError

_LOG = logging.getLogger("langchain_rageval")
_LEGACY = ("cp1251", "cp1252", "koi8_r", "cp866")
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\f\r")
_RUSSIAN_WORD = re.compile(rb"[\xa8\xb8\xc0-\xff]{3,}")
_HEAD_BYTES = 4096
_SAMPLE_LINES, _SAMPLE_BYTES = 500, 65_536
_SURE = 8  # bytes beyond ASCII that are valid UTF-8 by chance in no text of another encoding


def read_lines(path: Path, *, strict: bool = True) -> Iterator[str]:
    """Yield the lines of a text file with their ends; see `decode_lines` for the encodings, to which UTF-16 is added.

    Raises:
        ConfigError: if the text cannot be decoded.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(0)
        if encoding := wide_encoding(head):
            yield from _wide_lines(file, encoding, path.name)
        else:
            yield from decode_lines(file, path.name, strict=strict)


def decode_lines(lines: Iterable[bytes], name: str, *, strict: bool = True) -> Iterator[str]:
    """Decode lines as UTF-8, or if the first line beyond ASCII is not, in the encoding that its letters suggest.

    A warning in the log "langchain_rageval" names an encoding other than UTF-8.

    Args:
        lines: lines of a file or a stream.
        name: name of the file, for messages.
        strict: False to replace invalid characters in a UTF-8 file, with a warning, instead of raising.

    Raises:
        ConfigError: if lines are in different encodings and `strict` is True.
    """
    rest, encoding = iter(lines), "utf-8"
    number, has_utf8 = 0, False
    while (line := next(rest, None)) is not None:
        number += 1
        if encoding != "utf-8":
            if _is_surely_utf8(line):
                raise ConfigError(
                    f"{name}, line {number} is UTF-8, earlier lines are {encoding}; save the file as UTF-8"
                )
            yield line.decode(encoding, errors="replace")
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            if has_utf8 and not strict:
                _LOG.warning("%s, line %d is not valid UTF-8; invalid characters are replaced", name, number)
                yield line.decode("utf-8", errors="replace")
                continue
            if has_utf8:
                raise ConfigError(f"{name}, line {number} is not valid UTF-8; save the file as UTF-8") from error
            sample = [line, *islice(rest, _SAMPLE_LINES)]
            encoding = guess_encoding(b"".join(part for part in sample if not part.isascii()))
            _LOG.warning("%s is not UTF-8; read as %s", name, encoding)
            rest, number = chain(sample, rest), number - 1
            continue
        has_utf8 = has_utf8 or not line.isascii()
        yield text


def decode_text(content: bytes, name: str) -> str:
    """Return the text of a file's content; a warning names an encoding other than UTF-8 and UTF-16."""
    if encoding := wide_encoding(content[:_HEAD_BYTES]):
        return content.decode(encoding, errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        encoding = guess_encoding(b"".join(line for line in content.splitlines(True) if not line.isascii()))
        _LOG.warning("%s is not UTF-8; read as %s", name, encoding)
        return content.decode(encoding, errors="replace")


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of a file that begins with these bytes if it is UTF-16 or UTF-32, else None."""
    for mark, encoding in _WIDE:
        if head.startswith(mark):
            return encoding
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 50 < len(head) or min(even, odd):
        return None
    return "utf-16-le" if odd else "utf-16-be"


def guess_encoding(content: bytes) -> str:
    """Return the single-byte encoding that the letters of a text suggest, Russian or Western.

    Raises:
        ConfigError: if the content is no text.
    """
    from charset_normalizer import from_bytes

    if len(content) - len(content.translate(None, _CONTROLS)) > len(content) // 100:
        raise ConfigError("not a text in UTF-8, UTF-16 or a single-byte encoding; save the file as UTF-8")
    best = from_bytes(content[:_SAMPLE_BYTES], cp_isolation=[*_LEGACY]).best()
    if best is None or best.encoding not in _LEGACY or _looks_russian(content):
        return "cp1251"
    return best.encoding


def _looks_russian(content: bytes) -> bool:
    """Return True if the bytes beyond ASCII are lower-case Russian words in Windows-1251, upper case in KOI8-R."""
    beyond = bytes(byte for byte in content if byte > 127)
    lower = sum(byte >= 0xE0 for byte in beyond)  # а to я
    words = sum(len(word) for word in _RUSSIAN_WORD.findall(content))
    return lower > 0.7 * len(beyond) and words > 0.7 * len(beyond)


def _wide_lines(file: io.BufferedReader, encoding: str, name: str) -> Iterator[str]:
    with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
        try:
            for number, line in enumerate(text):
                yield line.removeprefix("\ufeff") if number == 0 else line
        except UnicodeError as error:
            raise ConfigError(f"{name} is not valid {encoding.upper()} ({error}); save the file as UTF-8") from error


def is_utf8(content: bytes) -> bool:
    """Return True if the bytes are valid UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_surely_utf8(line: bytes) -> bool:
    return sum(byte > 127 for byte in line) >= _SURE and is_utf8(line)
