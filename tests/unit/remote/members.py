"""Members of a pool on loopback addresses, each with its own way to behave."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable

from slo_operator.remote.tensors import Body

Behaviour = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


def answer(handler: http.server.BaseHTTPRequestHandler, body: Body, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Inference-Header-Content-Length", str(body.header_length))
    handler.send_header("Content-Length", str(len(body.content)))
    handler.end_headers()
    handler.wfile.write(body.content)


def echo(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    """The inputs come back as outputs."""
    length = int(handler.headers["Inference-Header-Content-Length"])
    header = json.dumps({"outputs": json.loads(content[:length])["inputs"]}).encode()
    answer(handler, Body(header + content[length:], len(header)))


def close_afterwards(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    """Closes the connection after its answer, without having said so."""
    echo(handler, content)
    handler.close_connection = True


def refuse(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    text = b'{"error": "not today"}'
    answer(handler, Body(text, len(text)), 400)


def garbage(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    answer(handler, Body(b"<html>", 6))


def hang_up(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    """Gone in mid-request, without a word."""
    handler.close_connection = True
    handler.connection.close()


def slow(seconds: float) -> Behaviour:
    def behave(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        time.sleep(seconds)
        echo(handler, content)

    return behave


class Member:
    """A server on a loopback address; `seen` counts requests, `connections` who connected."""

    def __init__(self, address: str, behaviour: Behaviour = echo, port: int = 0):
        self.address = address
        self.behaviour = behaviour
        self.seen = 0
        self.connections = 0
        member = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                member.connections += 1

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                member.seen += 1
                member.behaviour(self, content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
                pass

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up, that is the test
        self.port = int(self.server.server_port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
