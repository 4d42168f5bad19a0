"""Pods to look at a cluster from inside: a shell, a small web server, and kubectl as a client that verifies TLS."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import golang
from devcluster.cluster import Cluster
from devcluster.scratch_image import write_scratch_image
from devcluster.shell import ClusterError
from tests.e2e.waiting import eventually

IMAGE = "inferenceslo/probe:dev"
_BUSYBOX = Path("/bin/busybox")


def probe_archive() -> Path:
    """An image with a shell, and with the cluster's own binary as `/bin/kubectl`."""
    binary = golang.kubernetes().binary()
    archive = binary.with_name("inferenceslo_probe_dev.tar")
    if not archive.exists():
        files = {"/bin/busybox": _BUSYBOX, "/bin/sh": _BUSYBOX, "/bin/kubectl": binary}
        write_scratch_image(archive, IMAGE, files, ["/bin/sh"])
    return archive


@dataclass(frozen=True)
class Bench:
    """A namespace of a cluster to run probes in."""

    cluster: Cluster
    namespace: str

    def open(self) -> None:
        self.cluster.load_image(probe_archive())
        self.cluster.kubectl("create", "namespace", self.namespace)
        eventually("a service account", lambda: self._has("serviceaccount", "default"))

    def close(self) -> None:
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait", timeout=120)

    def _has(self, kind: str, name: str) -> bool:
        try:
            self.kubectl("get", kind, name)
        except ClusterError:
            return False
        return True

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "--output=json"))
        return found

    def start(self, name: str, script: str, node: str | None = None) -> None:
        """A pod that runs a shell script, with the label `app: <name>`."""
        container = {
            "name": "probe",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
        }
        spec: dict[str, Any] = {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": node} if node else {}),
        }
        meta = {"name": name, "labels": {"app": name}}
        self.kubectl(
            "apply",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}),
        )
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def serve(self, name: str, node: str | None = None) -> None:
        """A pod that answers HTTP on port 8000 with its own name, behind a Service of that name."""
        script = (
            f"mkdir /tmp/www; echo {name} >/tmp/www/index.html; exec busybox httpd -f -p 8000 -h /tmp/www"
        )
        self.start(name, script, node)
        self.kubectl("expose", f"pod/{name}", "--port=8000")

    def reaches(self, pod: str, address: str, page: str) -> None:
        """Pass once the pod gets that page from `address` (`http://host:port`).

        Not at the first try: DNS and kube-proxy learn of a new Service a moment after the API server did.
        """
        # kubectl is the HTTP client here: busybox's ends with a segmentation fault when it resolves a name.
        script = f"kubectl --server={address} --request-timeout=5s get --raw /index.html 2>&1 || true"
        got = ""

        def same() -> bool:
            nonlocal got
            got = self.run(pod, script)
            return got.strip() == page

        eventually(lambda: f"{pod} gets {page!r} from {address}, last {got!r}", same)

    def run(self, pod: str, script: str) -> str:
        """Run a shell script in a pod; its standard output. `ClusterError` when it fails."""
        return self.kubectl("exec", pod, "--", "/bin/sh", "-c", script)
