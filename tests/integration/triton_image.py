"""A tritonserver out of the project's image, without a container engine: its root file system, read-only, another user."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tritonclient.grpc as triton_grpc

from devcluster import images
from devcluster.layout import cache_folder
from slo_operator.overlay import merge
from slo_operator.render.pod import OVERLAY_SCRIPT
from tests.integration.leash import LEASH

KEY = "sesame"
GRPC_KEY = {"triton-grpc-protocol-admin-key": KEY}
GPUS = ("GPU-a", "GPU-b")
_CONTROL = "model-repository,model-config,trace,logging"

#: where `overlay_of` lays a repository, as the server sees it
OVERLAY = "/tmp/overlay"

# Runs in mount and pid namespaces of its own: all of the root is read-only but /dev/shm and /tmp. The server is the
# first process in them, so its model processes die with it.
_ENTER = """
set -eu
root=$1; overlay=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
if [ -n "$overlay" ]; then mkdir "$root/tmp/overlay"; mount --bind "$overlay" "$root/tmp/overlay"; fi
mount -t tmpfs tmpfs "$root/dev"
mkdir -m 1777 "$root/dev/shm"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
exec chroot "$root" env -i "$@"
"""


@dataclass(frozen=True)
class Server:
    """A running server: ports on loopback, and the process that holds it."""

    http: int
    grpc: int
    metrics: int
    process: subprocess.Popen[bytes]
    log: Path

    def client(self) -> Any:
        return triton_grpc.InferenceServerClient(f"127.0.0.1:{self.grpc}")

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, str]:
        """Status and body of an HTTP request to the clients' port."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}", body, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, variant: str, prompt: str) -> tuple[int, str]:
        """One request of a client."""
        prompts = {"name": "PROMPT", "datatype": "BYTES", "shape": [1, 1], "data": [prompt]}
        return self.get(
            f"/v2/models/assistant-{variant}/infer", body=json.dumps({"inputs": [prompts]}).encode()
        )

    def config(self, model: str) -> dict[str, Any]:
        config: dict[str, Any] = self.client().get_model_config(model, headers=GRPC_KEY, as_json=True)[
            "config"
        ]
        return config

    def load(self, model: str, **changes: Any) -> dict[str, Any]:
        """Load a model with its own configuration changed; what the server has afterwards."""
        config = self.config(model) | changes
        self.client().load_model(model, headers=GRPC_KEY, config=json.dumps(config), client_timeout=120)
        return self.config(model)

    def account(self) -> dict[str, Any]:
        """What the emulated cores and GPUs did, as of now; the metrics page follows it by up to a quarter of a second."""
        query = {"name": "QUERY", "datatype": "BYTES", "shape": [1], "data": ["account"]}
        status, body = self.get(
            "/v2/models/emulated-host/infer", body=json.dumps({"inputs": [query]}).encode()
        )
        assert status == 200, body
        account: dict[str, Any] = json.loads(json.loads(body)["outputs"][0]["data"][0])
        return account

    def gpu_busy(self) -> float:
        """Busy seconds of all emulated GPUs."""
        return float(sum(self.account()["gpu_busy_seconds"].values()))

    def gpu_memory(self) -> list[int]:
        """MiB taken on each emulated GPU."""
        return list(self.account()["gpu_memory_mib"].values())

    def metric(self, name: str, **labels: str) -> float:
        """The only series of a family with these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        (line,) = [
            line
            for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(w in line for w in wanted)
        ]
        return float(line.rpartition(" ")[2])


def overlay_of(folder: Path) -> Path:
    """The image's model repository laid over as a pod's init containers do it, in a new folder of the host's."""
    overlay = folder / "overlay"
    overlay.mkdir()
    script = OVERLAY_SCRIPT.replace("/overlay/", f"{OVERLAY}/")
    subprocess.run([*_inside(overlay), "/bin/sh", "-c", script, "overlay", "/models"], check=True)
    merge(folder / "nothing tuned", overlay, len(GPUS), movable=True)
    return overlay


def _inside(overlay: Path | None) -> list[str]:
    """How a command is run in the image's root."""
    shared = str(overlay) if overlay is not None else ""
    return [
        *(*LEASH, "unshare", "--mount", "--pid", "--fork", "--kill-child"),
        *("sh", "-c", _ENTER, "enter", str(root_folder()), shared),
    ]


@contextlib.contextmanager
def running_server(
    folder: Path,
    environment: Mapping[str, str],
    *arguments: str,
    overlay: Path | None = None,
    models: Sequence[str] = ("*",),
    http: int | None = None,
) -> Iterator[Server]:
    """A server with the image's model repository, or an overlay of it, ready; ended with the block."""
    grpc, metrics, free = free_ports(3)
    http = free if http is None else http
    command = [
        "tritonserver",
        *(f"--model-repository={OVERLAY if overlay else '/models'}", "--model-control-mode=explicit"),
        *(f"--load-model={model}" for model in models),
        *("--strict-readiness=true", "--metrics-interval-ms=1000", "--exit-timeout-secs=5"),
        *("--metrics-config", "summary_latencies=true"),
        *(
            "--metrics-config",
            "summary_quantiles=0.5:0.05,0.9:0.01,0.95:0.005,0.98:0.002,0.99:0.001,0.995:0.001,0.999:0.0005",
        ),
        *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"),
        *(f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"),
        *(
            f"--grpc-restricted-protocol={_CONTROL}:admin-key={KEY}",
            f"--http-restricted-api={_CONTROL}:admin-key={KEY}",
        ),
        *arguments,
    ]
    variables = image_environment() | {"NVIDIA_VISIBLE_DEVICES": ",".join(GPUS), "EMULATED_CPU_CORES": "8"}
    variables |= environment
    # The change of user takes the leash off the server, so it is put on again after that.
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", *LEASH[1:]]
    log = folder / "tritonserver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_inside(overlay), *(f"{name}={value}" for name, value in variables.items()), *user, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(http, grpc, metrics, process, log)
    try:
        _await_ready(server)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGKILL)  # the namespace's first process goes, and all in it
        process.wait(timeout=30)


def _await_ready(server: Server, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.process.poll() is None:
        with contextlib.suppress(OSError):
            if server.get("/v2/health/ready")[0] == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"tritonserver is not ready:\n{server.log.read_text(errors='replace')[-4000:]}")


def root_folder() -> Path:
    """The image's root file system, unpacked once for each build."""
    archive = images.archive_of("triton")
    folder = cache_folder() / "rootfs" / archive.stem
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(archive) as whole:
            for layer in _manifest(whole)["Layers"]:
                with tarfile.open(fileobj=whole.extractfile(layer)) as files:
                    files.extractall(partial, filter="fully_trusted")
        for name in ("proc", "tmp", "dev"):
            (partial / name).mkdir(exist_ok=True)
        for old in folder.parent.glob("triton-*"):
            if old != partial:
                shutil.rmtree(old, ignore_errors=True)
        partial.rename(folder)
    return folder


def image_environment() -> dict[str, str]:
    """The image's ENV."""
    with tarfile.open(images.archive_of("triton")) as whole:
        handle = whole.extractfile(_manifest(whole)["Config"])
        assert handle is not None
        pairs = json.load(handle)["config"]["Env"]
    return dict(pair.split("=", 1) for pair in pairs)


def _manifest(whole: tarfile.TarFile) -> dict[str, Any]:
    handle = whole.extractfile("manifest.json")
    assert handle is not None
    manifest: dict[str, Any] = json.load(handle)[0]
    return manifest


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
