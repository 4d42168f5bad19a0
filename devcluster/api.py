"""The little that the driver itself asks the API server and the parts' health endpoints, over verified TLS."""

import datetime
import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devcluster.pki import Pair


class Api:
    """GET requests to one address, with a client certificate."""

    def __init__(self, host: str, port: int, authority: Path, client: Pair) -> None:
        self._host, self._port = host, port
        self._authority, self._client = authority, client

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body). `OSError` or `http.client.HTTPException` when there is no answer within 5 s."""
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(self._client.certificate, self._client.key)
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=5.0, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def healthy(self, path: str) -> bool:
        """Whether a GET is answered with 200."""
        try:
            return self.get(path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def object(self, path: str) -> dict[str, Any] | None:
        """A JSON object, or None when the answer is anything else."""
        try:
            status, body = self.get(path)
        except (OSError, http.client.HTTPException):
            return None
        found = json.loads(body) if status == 200 else None
        return found if isinstance(found, dict) else None


def condition_true(found: dict[str, Any] | None, kind: str) -> bool:
    """Whether an object's status has the condition `kind` with the value True."""
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def fresh(lease: dict[str, Any] | None, now: datetime.datetime, seconds: float) -> bool:
    """Whether a Lease was renewed within the last `seconds`: what a dead kubelet last said may still read Ready."""
    renewed = (lease or {}).get("spec", {}).get("renewTime")
    return bool(renewed) and (now - datetime.datetime.fromisoformat(renewed)).total_seconds() < seconds


def plain_health(host: str, port: int, path: str = "/healthz") -> Callable[[], bool]:
    """A check of a health endpoint without TLS (the kubelet's and kube-proxy's have none)."""

    def healthy() -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=5.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return healthy
