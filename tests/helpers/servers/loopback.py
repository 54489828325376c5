"""A small HTTP server on 127.0.0.1 for tests: keep-alive, one daemon thread per connection, a log of requests."""

import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import parse_qsl


@dataclass(frozen=True)
class Received:
    """Received request: header names in lower case, `body` parsed (JSON or form; else None), `raw` as received."""

    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes = field(repr=False)


@dataclass(frozen=True)
class Response:
    status: int
    content: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Self:
        return cls(status, json.dumps(value, ensure_ascii=False).encode(), headers=headers or {})

    def encode(self) -> bytes:
        """Return head and body together, so that they are sent in one packet."""
        headers = {"Content-Type": self.content_type, "Content-Length": len(self.content), **self.headers}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + self.content


class Refused(Exception):
    """Raised by a route to answer with an error status; the server builds the body in the format of its API."""

    response: Response | None = None  # in place of the server's own

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


class ProxyPage(Refused):
    """Raised by a route to answer with a page of HTML."""

    response = Response(200, b"<html><body>Welcome to the proxy</body></html>", "text/html")

    def __init__(self) -> None:
        super().__init__(200, "a proxy")


class ResetConnection(Exception):
    """Raised by a route to close the connection abruptly: the client sees a reset and no reply."""


class Loopback:
    """Serves `routes` (path -> function from `Received` to `Response`) after `start()` or within `with`.

    Attributes:
        url: address of the server, without a slash at the end.
        requests: all requests on all paths, in order of arrival.
        calls: number of requests for a chat completion.
        refused: number of requests refused by the server's options, by name of the option or rung.
        faulted: number of requests with a planned fault, by name of the fault.
    """

    def __init__(self) -> None:
        self.routes: dict[str, Callable[[Received], Response]] = {}
        self.requests: list[Received] = []
        self.calls = 0
        self.refused: Counter[str] = Counter()
        self.faulted: Counter[str] = Counter()
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        # shutdown() waits for one turn of the poll, hence shorter than the default half second.
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Close every connection, hanging or idle.

        Raises:
            Exception: the first one that test code raised inside the server, such as a failed assertion in `reply`.
        """
        self._stopping.set()
        self._server.shutdown()
        self._server.disconnect()
        self._server.server_close()
        if self._errors:
            raise self._errors[0]

    def respond(self, received: Received) -> Response:
        """Return the response; raise `ResetConnection`, or `ConnectionError` to close without an answer."""
        with self._lock:
            self.requests.append(received)
        return self.routed(received)

    def routed(self, received: Received) -> Response:
        """Return the response of the route, or the refusal that it raised."""
        try:
            if received.path not in self.routes:
                raise Refused(404, f"No route {received.path}")
            return self.routes[received.path](received)
        except Refused as refused:
            return refused.response or Response.json(
                self.error_body(refused.status, refused.message), refused.status, refused.headers
            )

    def error_body(self, status: int, message: str) -> object:
        return {"status": status, "message": message}

    def count(self, counter: Counter[str], name: str) -> None:
        with self._lock:
            counter[name] += 1

    def record_error(self, error: BaseException) -> None:
        """Store an error of test code; it is raised in the test when the server stops."""
        self._errors.append(error)

    def pause(self, seconds: float) -> None:
        """Sleep; a stopping server ends the sleep and the connection."""
        if seconds > 0 and self._stopping.wait(seconds):
            raise ConnectionAbortedError("the server stops")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4096

    def __init__(self, loopback: Loopback):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.loopback = loopback
        self.connections: set[socket.socket] = set()

    def server_bind(self) -> None:
        """Bind without the reverse name lookup of `HTTPServer`."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def disconnect(self) -> None:
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by its own thread or by the client in the meantime

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a disconnected client is no error, and errors of test code are already recorded."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        expected = int(self.headers.get("Content-Length", 0))
        raw = self.rfile.read(expected)
        if len(raw) < expected:  # the client was killed while it sent
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, _parse(raw, headers.get("content-type", "")), raw)
        try:
            self.wfile.write(self.server.loopback.respond(received).encode())
        except ResetConnection:
            self.reset()
        except ConnectionError:
            self.close_connection = True
        except Exception as error:
            self.server.loopback.record_error(error)
            raise

    do_GET = do_PATCH = do_POST

    def reset(self) -> None:
        # With a linger time of zero, closing sends RST where it would send FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: `Loopback.requests` is the log."""


def _parse(raw: bytes, content_type: str) -> Any:
    if content_type.startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(raw.decode()))
    if content_type.startswith(("multipart/", "application/x-protobuf")):
        return None
    return json.loads(raw) if raw else None
