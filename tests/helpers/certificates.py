"""Certificates are loaded once: an HTTP client that nobody connects through https takes 20 ms for them otherwise."""

import ssl
from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Give all clients of the session one TLS context per set of arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield
