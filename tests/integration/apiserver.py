"""A real API server with its etcd on loopback ports: no nodes, no root, certificates as in production."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client

from devcluster import pki
from devcluster.api import Api
from tests.integration.leash import LEASH

READY_SECONDS = 60


@dataclass(frozen=True)
class ApiServer:
    """Where it listens and who may come in."""

    url: str
    authority: Path
    admin: pki.Pair
    binary: Path
    folder: Path

    def client(self) -> client.ApiClient:
        """An administrator's client."""
        configuration = client.Configuration()
        configuration.host = self.url
        configuration.ssl_ca_cert = str(self.authority)
        configuration.cert_file = str(self.admin.certificate)
        configuration.key_file = str(self.admin.key)
        configuration.retries = 0
        return client.ApiClient(configuration)

    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator, for kubectl."""
        path = self.folder / "kubeconfig"
        path.write_text(
            f"""apiVersion: v1
kind: Config
current-context: it
clusters: [{{name: it, cluster: {{server: "{self.url}",
  certificate-authority: "{self.authority}"}}}}]
users: [{{name: it, user: {{client-certificate: "{self.admin.certificate}", client-key: "{self.admin.key}"}}}}]
contexts: [{{name: it, context: {{cluster: it, user: it}}}}]
"""
        )
        return path

    def kubectl(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl with `text` on standard input; the caller looks at the exit code."""
        program = shutil.which("kubectl")
        command = [program] if program else [str(self.binary), "kubectl"]
        command += [f"--kubeconfig={self.kubeconfig()}", *arguments]
        return subprocess.run(command, input=text, text=True, capture_output=True, timeout=60, check=False)


@contextmanager
def running(binary: Path, folder: Path, prepare: Callable[[ApiServer], None]) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver; stop both, in the order in which neither waits for the other.

    Also the controller manager's garbage collector and namespace controller, so that deletion is real. They
    come after `prepare` (which installs CRDs), since they look for new kinds only every half minute.
    """
    ports = _free_ports(4)
    certificates = folder / "pki"
    authorities = pki.ensure_authorities(certificates)
    local = ("localhost", "127.0.0.1")
    for identity in (
        pki.Identity("apiserver", "kube-apiserver", addresses=(*local, "10.0.0.1"), client=False),
        pki.Identity("admin", "integration-admin", "system:masters"),
    ):
        pki.ensure_certificate(certificates, authorities.cluster, identity)
    for name in ("etcd", "apiserver-etcd-client"):
        addresses = local if name == "etcd" else ()
        pki.ensure_certificate(certificates, authorities.etcd, pki.Identity(name, name, addresses=addresses))
    server = ApiServer(
        url=f"https://127.0.0.1:{ports[2]}",
        authority=certificates / "ca.crt",
        admin=pki.Pair.named(certificates, "admin"),
        binary=binary,
        folder=folder,
    )
    kubeconfig = server.kubeconfig()
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(binary, folder, "etcd", _etcd(folder, ports[0], ports[1])))
        started.append(_start(binary, folder, "kube-apiserver", _api_server(folder, ports[0], ports[2])))
        _wait_ready(server, started)
        prepare(server)
        manager = [
            f"--kubeconfig={kubeconfig}",
            "--controllers=garbage-collector-controller,namespace-controller",
            "--leader-elect=false",
            f"--secure-port={ports[3]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}/controller-manager",
        ]
        started.append(_start(binary, folder, "kube-controller-manager", manager))
        yield server
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _etcd(folder: Path, port: int, peer: int) -> list[str]:
    certificates = folder / "pki"
    out = [
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls=https://127.0.0.1:{port}",
        f"--advertise-client-urls=https://127.0.0.1:{port}",
        f"--listen-peer-urls=https://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=https://127.0.0.1:{peer}",
        f"--initial-cluster=default=https://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    for prefix in ("", "peer-"):
        out += [f"--{prefix}cert-file={certificates}/etcd.crt", f"--{prefix}key-file={certificates}/etcd.key"]
        out += [f"--{prefix}trusted-ca-file={certificates}/etcd-ca.crt", f"--{prefix}client-cert-auth=true"]
    return out


def _api_server(folder: Path, etcd: int, port: int) -> list[str]:
    certificates = folder / "pki"
    return [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--etcd-servers=https://127.0.0.1:{etcd}",
        f"--etcd-cafile={certificates}/etcd-ca.crt",
        f"--etcd-certfile={certificates}/apiserver-etcd-client.crt",
        f"--etcd-keyfile={certificates}/apiserver-etcd-client.key",
        f"--tls-cert-file={certificates}/apiserver.crt",
        f"--tls-private-key-file={certificates}/apiserver.key",
        f"--client-ca-file={certificates}/ca.crt",
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        # no controller makes service accounts here
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificates}/sa.pub",
        f"--service-account-signing-key-file={certificates}/sa.key",
        "--profiling=false",
    ]


def _start(binary: Path, folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        environment = os.environ | {"GOMAXPROCS": "2"}
        return subprocess.Popen(
            [*LEASH, binary, name, *arguments], stdout=log, stderr=log, cwd=folder, env=environment
        )


def _wait_ready(server: ApiServer, started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    api = Api("127.0.0.1", int(server.url.rsplit(":", 1)[1]), server.authority, server.admin)
    while not api.healthy("/readyz"):
        for process, name in zip(started, ("etcd", "kube-apiserver"), strict=True):
            if process.poll() is not None:
                raise RuntimeError(
                    f"{name} ended with {process.returncode}: {_tail(server.folder / f'{name}.log')}"
                )
        if time.monotonic() > deadline:
            raise RuntimeError(f"kube-apiserver not ready: {_tail(server.folder / 'kube-apiserver.log')}")
        time.sleep(0.2)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-8:])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [int(entry.getsockname()[1]) for entry in sockets]
    finally:
        for entry in sockets:
            entry.close()
