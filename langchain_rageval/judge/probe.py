"""What the endpoint of a judge was found to be able to do: `rageval probe` writes it, `Judge(probe=...)` reads it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from langchain_rageval._version import __version__
from langchain_rageval.errors import ConfigError

_KEY = "rageval_probe"
_SMALL_WINDOW = 32_768  # tokens; larger windows rarely need a limit


@dataclass(frozen=True, kw_only=True)
class EndpointProbe:
    """What an endpoint can do, by a few small requests.

    Attributes:
        judge: class, name and settings of the model.
        mode: way of requesting structured output that gave a valid reply.
        narrowed: True if it takes a schema that allows only what is possible for the request.
        grammar: True if such a schema, new for each request, costs no time.
        context_window: number of tokens that the model accepts, as the server or the model's profile states it; None if
            neither does.
        prefix_cache: True if a request reused the beginning of the last one; None if the server does not report it.
        log_probabilities: True if replies have the log-probabilities of their tokens.
        requests_per_minute: limit that the headers of a reply state; None if they state none.
        tokens_per_minute: likewise.
        requests: number of requests that the probe took.
    """

    judge: str
    mode: str
    narrowed: bool = False
    grammar: bool = False
    context_window: int | None = None
    prefix_cache: bool | None = None
    log_probabilities: bool = False
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    requests: int = 0

    @classmethod
    def load(cls, path: str | Path) -> EndpointProbe:
        """Read a probe from a file.

        Raises:
            ConfigError: if the file cannot be read, or is not a probe.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            known = {field.name for field in fields(cls)}
            return cls(**{name: value for name, value in content[_KEY].items() if name in known})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is not a probe ({error}): write one with `rageval probe --out FILE`") from None

    def to_json(self, path: str | Path) -> None:
        """Write the probe to a file."""
        content = {_KEY: asdict(self), "version": __version__}
        Path(path).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @property
    def options(self) -> dict[str, Any]:
        """Options of `Judge` that fit the endpoint, besides `probe`."""
        window = self.context_window
        limit = {"max_context_tokens": window // 2} if window is not None and window <= _SMALL_WINDOW else {}
        return {"mode": self.mode, "grammar": self.grammar, **limit}
