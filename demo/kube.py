"""Reading the cluster: objects over HTTPS, changes through kubectl as a user makes them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from demo.metrics import Series

JSON = Mapping[str, Any]


class KubectlError(Exception):
    """kubectl said no; the message has the command and its words."""


class Kubectl:
    """kubectl against one cluster."""

    def __init__(self, kubeconfig: Path, program: str = "kubectl") -> None:
        self._base = (program, f"--kubeconfig={kubeconfig}")
        self.kubeconfig = kubeconfig

    async def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Its output. Raises KubectlError when it fails, unless check=False (then output and errors)."""
        process = await asyncio.create_subprocess_exec(
            *self._base,
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode() if stdin is not None else None)
        if process.returncode and check:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {err.decode(errors='replace').strip()}")
        return out.decode(errors="replace") + ("" if check else err.decode(errors="replace"))


class Kube:
    """GET of API objects. Raises aiohttp.ClientError or TimeoutError when there is no answer in 5 s."""

    def __init__(self, session: aiohttp.ClientSession, server: str, tls: ssl.SSLContext) -> None:
        self._session, self._server, self._tls = session, server, tls

    async def get(self, path: str) -> JSON | None:
        """The object at an API path; None when there is none."""
        async with self._session.get(
            self._server + path, ssl=self._tls, timeout=aiohttp.ClientTimeout(total=5)
        ) as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            found: JSON = await answer.json()
            return found

    async def items(self, path: str) -> Sequence[JSON]:
        """The items of a list; empty when the kind or namespace does not exist."""
        found = await self.get(path)
        return found["items"] if found else []


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[tuple[Kube, aiohttp.ClientSession]]:
    """A reader for the kubeconfig's current context, and the HTTP session that it uses."""
    server, tls = _access(kubeconfig)
    async with aiohttp.ClientSession() as session:
        yield Kube(session, server, tls), session


def _access(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    folder = kubeconfig.parent
    tls = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority", folder))
    with tempfile.TemporaryDirectory() as temporary:
        certificate = Path(temporary, "client.pem")
        certificate.touch(mode=0o600)
        pair = [_pem(user, "client-certificate", folder), _pem(user, "client-key", folder)]
        certificate.write_text("\n".join(pair), encoding="ascii")
        tls.load_cert_chain(certificate)
    return str(cluster["server"]).rstrip("/"), tls


def _named(entries: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _pem(entry: dict[str, str], key: str, folder: Path) -> str:
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(data).decode("ascii")
    return (folder / entry[key]).read_text(encoding="ascii")


class Prometheus:
    """Instant queries. Raises aiohttp.ClientError or TimeoutError when there is no answer in 5 s."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def query(self, promql: str) -> list[Series]:
        """The instant vector that the query gives now."""
        async with self._session.post(
            f"{self._url}/api/v1/query", data={"query": promql}, timeout=aiohttp.ClientTimeout(total=5)
        ) as answer:
            answer.raise_for_status()
            found = (await answer.json())["data"]["result"]
        return [_series(one["metric"], one["value"][1]) for one in found]


def _series(labels: Mapping[str, str], value: str) -> Series:
    name, pod, model = labels.get("__name__", ""), labels.get("pod", ""), labels.get("model", "")
    return Series(name, pod, model, labels.get("quantile", ""), float(value))
