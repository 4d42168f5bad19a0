"""The HTTP end of the trace receiver: POST /v1/traces with OTLP/JSON, bounded in size and threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import socket
from typing import Any

from slo_operator.observe.traces import TraceBuffer, TraceFormatError

PATH = "/v1/traces"
MAX_BODY = 16 << 20
READ_TIMEOUT_S = 10.0


class TraceReceiver(HTTPServer):
    """Serves in a thread of its own; `pod_of` turns a sender's address into a pod's name ("" if unknown)."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, buffer: TraceBuffer, pod_of: Callable[[str], str], host: str = ""):
        self.buffer = buffer
        self.pod_of = pod_of
        self._workers = ThreadPoolExecutor(8, thread_name_prefix="otlp")
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.serve_forever, name="otlp", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self.shutdown()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """In one of a few workers: many pods sending at once queue up instead of taking a thread each."""
        self._workers.submit(self._serve, request, client_address)

    def _serve(self, request: socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the sender went away; it sends again or it does not
        finally:
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    server: TraceReceiver
    timeout = READ_TIMEOUT_S

    def do_POST(self) -> None:
        """200 when taken in, else 4xx with one line that says why."""
        if self.path != PATH:
            return self._answer(404, f"post to {PATH}")
        if "json" not in self.headers.get("Content-Type", "application/json"):
            return self._answer(415, "OTLP as JSON only (OTEL_EXPORTER_OTLP_PROTOCOL=http/json)")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            return self._answer(411, "a Content-Length is needed")
        if int(length) > MAX_BODY:
            return self._answer(413, f"{length} bytes; at most {MAX_BODY}")
        try:
            body = json.loads(self.rfile.read(int(length)))
            self.server.buffer.add(body, self.server.pod_of(self.client_address[0]))
        except (TraceFormatError, ValueError, TypeError, RecursionError) as error:
            return self._answer(400, str(error)[:200])
        return self._answer(200, "")

    def _answer(self, status: int, error: str) -> None:
        data = json.dumps({"message": error} if error else {}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet: one line per request would drown the log."""
