"""Redaction: removal of secrets from texts that leave the process, such as messages, logs and reports.

The secrets are collected from the objects that hold them: models, clients, bound options, headers, addresses and
closures. A server may repeat any of these secrets in an error message.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from pydantic import SecretBytes, SecretStr

from langchain_rageval._internal.code_identity import named_globals
from langchain_rageval._internal.object_parts import attributes, named_parts
from langchain_rageval.errors import ADDRESS, mask_keys, message_of, redact_addresses

_SECRET_NAME = re.compile(
    r"key$|key_id$|secret|passw|pwd$|credential|token$|token_provider$|authorization|(?:^|[_-])auth$|cookie"
    r"|signature$|(?:^|[_-])sig$|bearer",
    re.IGNORECASE,
)
_POSSIBLE_SECRET_NAME = re.compile(
    r"pass$|pwd|auth$|^auth(?!ors?$)|jwt|session_?id|csrf|otp$|pin$|api_?keys?", re.IGNORECASE
)
_CERTAIN_SECRET_NAME = re.compile(
    r"(?:api|access|secret|private|subscription|account)[_-]?key|secret|passw|pwd|credential|authorization|bearer"
    r"|(?:access|api|auth|refresh|session|bot)[_-]?token|token_provider",
    re.IGNORECASE,
)
_NO_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|stop|special)[_-]token$"
    r"|(?:^|[_-])(?:sort|text|input|output|content|messages?|prompt|question|answer|contexts?|memory|metadata|document"
    r"|doc|label|score|reference|column|cache|partition)[_-]key$",
    re.IGNORECASE,
)
_PERSONAL_NAMES = {
    *("user", "username", "user_id", "login", "email", "organization", "openai_organization", "openai-organization"),
    *("openai-project", "safety_identifier"),
}
_CARRIER_NAME = re.compile(r"headers?$|query$|cookies$", re.IGNORECASE)
_PATH_SEGMENT = re.compile(r"(?<=[^/:]/)[^/?#\s'\"]+")
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{12,}|[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|hf|gsk|ghp|gho|glpat|xox[abps]|AKIA|AIza|eyJ|github_pat)[\w.~+/=-]{12,}")
_MOST_NAMES = 4096  # of fields, whose meaning is kept: each is met many times in a run
MODEL_NAMES = {"model", "model_name", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id"}
"""Fields with the name or path of a model, which may look random."""
FREE_OPTIONS = {"extra_body", "model_kwargs", "kwargs", "client_kwargs", "default_request_options"}
"""Fields with options under names that the user chooses."""


@lru_cache(_MOST_NAMES)
def is_secret_name(name: str) -> bool:
    """Return True if a field of this name may hold a secret: usually, as `token`, or sometimes, as `session_id`."""
    return is_usual_secret_name(name) or _POSSIBLE_SECRET_NAME.search(name) is not None


@lru_cache(_MOST_NAMES)
def is_usual_secret_name(name: str) -> bool:
    """Return True if a field of this name usually holds a secret, such as `token` or `key`."""
    return _SECRET_NAME.search(name) is not None and _NO_SECRET_NAME.search(name) is None


@lru_cache(_MOST_NAMES)
def is_certain_secret_name(name: str) -> bool:
    """Return True if a field of this name always holds a secret, such as `api_key`."""
    return _CERTAIN_SECRET_NAME.search(name) is not None


def is_personal_name(name: str) -> bool:
    """Return True if a field of this name holds the name of a user or an organization."""
    return name.lower() in _PERSONAL_NAMES


@lru_cache(_MOST_NAMES)
def is_carrier_name(name: str) -> bool:
    """Return True if a field of this name holds headers, cookies or a query; their values may be secrets."""
    return _CARRIER_NAME.search(name) is not None


def has_key_form(text: str) -> bool:
    """Return True if a text begins like an API key of a well-known provider."""
    return _KEY_PREFIX.fullmatch(text) is not None


def has_random_part(text: str) -> bool:
    """Return True if a part of a text looks like a key: a UUID, or a mixture of at least 12 letters and digits."""
    return _RANDOM.search(text) is not None


def mask_random_segments(text: str, mask: Callable[[str], str]) -> str:
    """Return a text in which path segments of addresses are replaced if a segment looks like a key.

    `mask` takes the segment and returns the replacement.
    """
    if "://" not in text:
        return text
    return _PATH_SEGMENT.sub(lambda part: mask(part[0]) if has_random_part(part[0]) else part[0], text)


def mask_data(value: Any, name: str = "") -> Any:
    """Return nested data in which secrets are masked: texts under the name of a secret, and well-known forms of keys.

    `name` is the key of `value`, if `value` is an entry of a mapping. Other texts are kept, such as the name of a user
    under the key `user`, or the host of an address.
    """
    if isinstance(value, Mapping):
        return {key: mask_data(part, str(key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [mask_data(part, name) for part in value]
    if not isinstance(value, str):
        return value
    is_key = " " not in value and (has_key_form(value) or (is_usual_secret_name(name) and has_random_part(value)))
    if is_key or is_certain_secret_name(name):
        return "***"
    return mask_keys(value, lambda match: match[0])


_Kind = Literal["secret", "carried", "personal", "option", "plain"]
"""Place of a value: under the name of a secret; in headers, cookies or a query; under the name of a person or account;
among free options, closures and globals; elsewhere."""

_SKIPPED_NAMES = {"tools", "functions", "response_format", "format", "stop", "messages", "prompts"}
_SKIPPED_PACKAGES = {
    *("asyncio", "concurrent", "logging", "ssl", "_ssl", "threading", "_thread", "weakref", "queue", "socket", "_io"),
    *("numpy", "torch", "pandas", "transformers", "tokenizers", "pyarrow", "sqlite3"),
}
_PLUMBING = ("langgraph.", "langchain_core.runnables.", "langchain_rageval.")
_CLIENT_MEMBERS = {
    *("base_url", "url", "endpoint", "host", "headers", "session", "client", "http_client", "request", "post", "send")
}
_LONGEST_WORD = 20
_SKIPPED_MODULES = ("langchain_rageval.prompts", "langchain_rageval.data", "langchain_rageval.run")
_ORDINARY_HEADERS = re.compile(
    r"accept.*|connection|content-.*|cache-control|host|user-agent|referer|http-referer|origin|x-title|date|x-stainless-.*"
    r"|openai-beta|anthropic-version|api-version|version|transfer-encoding",
    re.IGNORECASE,
)
_ORDINARY_VALUE = re.compile(
    r"[A-Za-z]{1,10}|[\d.,:+-]*|v?\d[\w.-]{0,9}|true|false|none|[a-z]+/[\w.+*-]+(?:\s*[;,].*)?", re.IGNORECASE
)
_WORD = re.compile(r"[^\W\d_]+")
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Key|Digest)\s+(\S+)", re.IGNORECASE)
HIDDEN = "***"
"""Replacement of a secret."""

LONGEST_MESSAGE = 2_000
"""Most characters of an error message in a score, report or log: a proxy may answer with a page."""

_MIN_LENGTH = 6
_MOST_PARTS = 5_000
_MOST_OF_ONE = 1_000


def redact_secrets(text: str, *owners: Any) -> str:
    """Return a text in which secrets of the given objects, and secrets in addresses, are replaced by `***`.

    These are secrets: SecretStr values; values under the name of a secret, at any depth; values of headers, cookies and
    queries; names of users and organizations in options; passwords and keys in addresses; and texts that look like keys
    in `extra_body`, `model_kwargs`, bound options and closures. Ordinary text is kept: a value shorter than 6
    characters is no secret, and neither are short words, numbers, media types, and headers such as Accept and
    User-Agent.

    Args:
        text: text that may quote secrets, such as an error message.
        owners: models, metrics or other objects that hold secrets. All objects that they refer to are searched, too.
    """
    return _replace_secrets(text, _secrets_of(owners))


def _secrets_of(owners: Iterable[Any]) -> set[str]:
    return set[str]().union(*map(find_secrets, owners))


def _replace_secrets(text: str, secrets: Set[str]) -> str:
    """Return a text without some secrets, and without those in addresses and in values of Authorization."""
    spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
    for spelling in sorted(spellings, key=len, reverse=True):
        if spelling in text:
            is_word = _WORD.fullmatch(spelling)
            text = re.sub(rf"\b{spelling}\b", HIDDEN, text) if is_word else text.replace(spelling, HIDDEN)
    return redact_addresses(text)


def redact_exception(error: BaseException, *owners: Any) -> None:
    """Remove the secrets of the given objects from an exception and from its causes, in place.

    The message, the attributes and the texts in the attributes are changed, such as the body of a response. A cause
    whose message cannot be changed is dropped.
    """
    secrets, seen = _secrets_of(owners), set[int]()
    parts = [error]
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        _clean_exception(part, secrets)
        for name in ("__cause__", "__context__"):
            inner = getattr(part, name)
            if inner is not None and not _clean_exception(inner, secrets):
                setattr(part, name, None)
            elif inner is not None:
                parts.append(inner)
        parts += getattr(part, "exceptions", ())  # of an exception group


def _clean_exception(error: BaseException, secrets: Set[str]) -> bool:
    """Remove secrets from an exception in place; return False if its message cannot be changed."""
    args = _clean(error.args, secrets)
    if args != error.args:
        error.args = args
    for name, value in list(vars(error).items()):
        if (clean := _clean(value, secrets)) != value:
            vars(error)[name] = clean
    message = message_of(error)
    if (text := _replace_secrets(message, secrets)) != message:  # made of something else than the attributes
        kind = type(error)
        with suppress(TypeError):  # of a class in C or Rust
            error.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__str__": lambda _: text})
        message = message_of(error)  # which may append an address
        return _replace_secrets(message, secrets) == message
    return True


def _clean(value: Any, secrets: Set[str]) -> Any:
    """Return a text, or a nested value with the texts in it, without secrets; other objects are returned unchanged."""
    match value:
        case str():
            return _replace_secrets(value, secrets)
        case dict():
            return {key: _clean(part, secrets) for key, part in value.items()}
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(_clean(part, secrets) for part in value)
    return value


def redact_message(error: BaseException, *owners: Any) -> str:
    """Return the message of an error without the secrets of `owners`, cut to 2,000 characters.

    If the message is empty or cannot be read, the class name of the error is returned.
    """
    return cut_middle(redact_secrets(message_of(error), *owners), LONGEST_MESSAGE)


def cut_middle(text: str, most: int) -> str:
    """Return a text with " … " in place of its middle part if the text has more than `most` characters.

    Remove secrets before calling this function, because half a secret would not be recognised.
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


def find_secrets(owner: Any) -> set[str]:
    """Return the secrets in an object and in everything that it refers to; each has at least 6 characters."""
    secrets, model_names = set[str](), set[str]()
    parts: deque[tuple[Any, _Kind]] = deque([(owner, "plain")])
    seen: set[tuple[int, _Kind]] = set()
    kept = []  # keeps the objects alive, so that ids are not reused
    while parts and len(seen) < _MOST_PARTS:
        value, kind = parts.popleft()
        if isinstance(value, bytes | bytearray):
            value = bytes(value).decode("utf-8", "ignore")
        if isinstance(value, SecretStr | SecretBytes):
            parts.appendleft((value.get_secret_value(), "secret"))
        elif isinstance(value, str):
            secrets.update(_secrets_in(value, kind))
        elif isinstance(value, int) and kind == "secret" and not isinstance(value, bool):
            secrets.add(str(value))
        elif not _is_opaque(value) and (id(value), kind) not in seen:
            seen.add((id(value), kind))
            kept.append(value)
            for name, part in _parts_of(value):
                if name in MODEL_NAMES and isinstance(part, str):
                    model_names.add(part)
                if kind == "secret" or name not in _SKIPPED_NAMES:
                    is_query = type(part).__name__ == "QueryParams"  # of a client of HTTP
                    is_ordinary = kind in ("plain", "option") and _is_ordinary_key(value, name, part)
                    own = kind if is_ordinary else _kind_of(name, kind)
                    parts.append((part, "carried" if is_query else own))
    return {secret for secret in secrets - model_names if len(secret) >= _MIN_LENGTH}


def _is_ordinary_key(owner: Any, name: str, part: Any) -> bool:
    """Return True for the attribute `key` of a graph's channel, of a Runnable or of an object of this package.

    Also for words in the attribute `key` of an object that is neither a model nor a client.
    """
    if name != "key" or type(owner).__module__.startswith(_PLUMBING):
        return name == "key"
    if isinstance(owner, Mapping | FunctionType | tuple | BaseLanguageModel | Embeddings | BaseCrossEncoder):
        return False
    words = re.split("[ _]", part) if isinstance(part, str) else [""]
    if not all(word.isalpha() and len(word) <= _LONGEST_WORD and word[1:].lower() == word[1:] for word in words):
        return False
    return _CLIENT_MEMBERS.isdisjoint([*dir(type(owner)), *(member for member, _ in attributes(owner))])


def is_private_name(name: str) -> bool:
    """Return True if an option of this name holds a secret, headers, a query, or a user's or organization's name."""
    return is_secret_name(name) or is_carrier_name(name) or is_personal_name(name)


def _kind_of(name: str, parent: _Kind) -> _Kind:
    """Return how to treat an attribute or option, given its name and how the object that holds it is treated."""
    plain_name = name.lstrip("_")
    if parent == "secret" or (is_secret_name(plain_name) and plain_name != "auth_url"):  # the address of a token
        return "secret"
    if parent == "carried":
        return "plain" if _ORDINARY_HEADERS.fullmatch(plain_name) else "carried"
    if is_carrier_name(plain_name):
        return "carried"
    if is_personal_name(plain_name):
        return "personal"
    return "option" if parent == "option" or plain_name in FREE_OPTIONS else "plain"


def _secrets_in(text: str, kind: _Kind) -> Iterator[str]:
    """Yield the secrets in a text."""
    for address in ADDRESS.findall(text):
        yield from _secrets_in_address(address)
    text = text.strip()
    if has_key_form(text) or (kind == "option" and " " not in text and has_random_part(text)):
        yield text
    elif kind == "secret" or (kind in ("carried", "personal") and not _is_ordinary(text)):
        yield from (text, *_SCHEME.findall(text))
        cookies = [field.partition("=")[2].strip() for field in text.split(";")]
        yield from (value for value in cookies if not _is_ordinary(value))


def _secrets_in_address(text: str) -> Iterator[str]:
    try:
        address = urlsplit(text)
        userinfo = address.netloc.rpartition("@")[0]
        yield from (unquote(part) for part in userinfo.split(":", 1))
        for name, value in parse_qsl(address.query):
            if is_secret_name(name) or has_random_part(value):
                yield value
        yield from (unquote(segment) for segment in address.path.split("/") if has_random_part(segment))
    except ValueError:  # no address
        return


def _is_ordinary(value: str) -> bool:
    return _ORDINARY_VALUE.fullmatch(value) is not None


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it may occur in a message: as it is, and quoted for an address, JSON or Python."""
    spellings = (secret, quote(secret, safe=""), quote(secret), unquote(secret), json.dumps(secret)[1:-1])
    yield from (spelling for spelling in (*spellings, repr(secret)[1:-1]) if len(spelling) >= _MIN_LENGTH)


def _is_opaque(value: Any) -> bool:
    """Return True for a value that is not searched, such as a number, a class, a lock or an array."""
    if value is None or isinstance(value, int | float | complex | type | ModuleType):
        return True
    module = type(value).__module__ or ""
    return module.partition(".")[0] in _SKIPPED_PACKAGES or module.startswith(_SKIPPED_MODULES)


def _parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return the first parts of a value with their names; nothing if it cannot be read."""
    try:
        parts = (
            (key.decode("latin-1") if isinstance(key, bytes) else "" if key is None else str(key), part)
            for key, part in _searched_parts(value)
            if part is not None and (key is not None or not isinstance(part, int | float))
        )
        return list(islice(parts, _MOST_OF_ONE))
    except Exception:  # of a foreign class, or a change by another thread
        return []


def _searched_parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a value; of a header, such as (b"x-auth", b"…"), only its value."""
    match value:
        case (str() | bytes() as name, *_, str() | bytes() as part) if isinstance(value, tuple) and len(value) < 4:
            yield name, part
            yield from attributes(value)
        case FunctionType():  # its closure and defaults, and the constants and globals of a function of the user
            parts, code = list(named_parts(value)), value.__code__
            package = (value.__module__ or "").partition(".")[0]
            is_installed = package in {__name__.partition(".")[0], *sys.stdlib_module_names}
            if not (is_installed or "site-packages" in code.co_filename):
                parts += named_globals(value)
                parts += (("", constant) for constant in code.co_consts if isinstance(constant, str | bytes))
            for name, part in parts:
                is_text = isinstance(part, str | bytes | list)
                yield ("kwargs", part) if is_text and not is_private_name(name) else (name, part)
        case _:
            yield from named_parts(value)
