"""Which names of fields hold secrets or personal data, and removal of keys from texts and addresses."""

from __future__ import annotations

import re
from collections.abc import Callable

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
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY_KEY = re.compile(
    r"""([?&;][\w.-]*(?:key|secret|passw\w*|pwd|credentials?|token|sig|signature|auth)=)[^&\s'"]+""", re.IGNORECASE
)
_PATH_KEY = re.compile(  # a segment of an address that looks random
    r"(?<=[^/:]/)(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}(?=[/?#\s'\"]|$)"
)
_PATH_SEGMENT = re.compile(r"(?<=[^/:]/)[^/?#\s'\"]+")
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{12,}|[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}")
_KEY_PREFIX = re.compile(r"(?:sk|pk|rk|hf|gsk|ghp|gho|glpat|xox[abps]|AKIA|AIza|eyJ|github_pat)[\w.~+/=-]{12,}")
_MODEL_NAMES = {"model", "model_name", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id"}
_FREE_OPTIONS = {"extra_body", "model_kwargs", "kwargs", "client_kwargs", "default_request_options"}
_KEY = re.compile(
    r"\b(?:sk|hf|ghp|glpat|xox[abp])[-_][\w-]{16,}|(?<=\bBearer )[\w.~+/=-]{6,}|(?<=\bBasic )[\w+/=-]{6,}"
)


def is_secret_name(name: str) -> bool:
    """Return True if a field of this name usually or possibly holds a secret."""
    return is_usual_secret_name(name) or _POSSIBLE_SECRET_NAME.search(name) is not None


def is_usual_secret_name(name: str) -> bool:
    """Return True if a field of this name usually holds a secret, such as `token` or `key`."""
    return _SECRET_NAME.search(name) is not None and _NO_SECRET_NAME.search(name) is None


def is_certain_secret_name(name: str) -> bool:
    """Return True if a field of this name always holds a secret, such as `api_key`."""
    return _CERTAIN_SECRET_NAME.search(name) is not None


def is_personal_name(name: str) -> bool:
    """Return True if a field of this name holds the name of a user or an organization."""
    return name.lower() in _PERSONAL_NAMES


def is_carrier_name(name: str) -> bool:
    """Return True if a field of this name holds headers, cookies or a query, whose values may be secrets."""
    return _CARRIER_NAME.search(name) is not None


def is_free_option(name: str) -> bool:
    """Return True if a field of this name holds options under names that the user chooses."""
    return name in _FREE_OPTIONS


def is_model_name(name: str) -> bool:
    """Return True if a field of this name holds the name or path of a model, which may look random."""
    return name in _MODEL_NAMES


def has_key_form(text: str) -> bool:
    """Return True if a text begins as the keys of a well-known provider do."""
    return _KEY_PREFIX.fullmatch(text) is not None


def has_random_part(text: str) -> bool:
    """Return True if a part of a text looks random, as keys do: letters and digits, at least 12, or a UUID."""
    return _RANDOM.search(text) is not None


def mask_random_segments(text: str, mask: Callable[[str], str]) -> str:
    """Return the text in which `mask` replaces the segments of addresses that have a random part."""
    if "://" not in text:
        return text
    return _PATH_SEGMENT.sub(lambda part: mask(part[0]) if has_random_part(part[0]) else part[0], text)


def without_keys(text: str) -> str:
    """Return the text without user names, passwords and keys in addresses, and without keys of well-known forms."""
    return mask_keys(text, lambda _: "***")


def mask_keys(text: str, mask: Callable[[re.Match[str]], str]) -> str:
    """Return the text without keys as `without_keys` does; `mask` gives what replaces a segment that looks random."""
    text = _KEY.sub("***", _QUERY_KEY.sub(r"\1***", _USERINFO.sub("//", text)))
    return _PATH_KEY.sub(mask, text) if "://" in text else text
