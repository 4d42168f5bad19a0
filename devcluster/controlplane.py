"""etcd, API server, controller manager and scheduler, each with certificates of its own."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster import configs, network, pki
from devcluster.api import Api, plain_health
from devcluster.layout import Layout
from devcluster.processes import Component
from devcluster.ranges import Ranges
from devcluster.shell import write

API_PORT = 6443
_ETCD = "https://127.0.0.1:2379"
_ETCD_PEER = "https://127.0.0.1:2380"
_ISSUER = "https://kubernetes.default.svc.cluster.local"

# kube-proxy trusts an endpoint's chain that it finds at its start, even one that its predecessor had emptied and was
# about to delete: the Service then leads nowhere for good. (The API server's own endpoint goes and comes with it.)
_WITHOUT_OLD_RULES = """
for family in ip ip6; do nft "add table $family kube-proxy; delete table $family kube-proxy"; done
exec "$@"
"""


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of one cluster: certificates, kubeconfigs and the processes to run."""

    layout: Layout
    ranges: Ranges
    binary: Path

    @property
    def server(self) -> str:
        return f"https://{self.ranges.api_server}:{API_PORT}"

    def api(self, port: int = API_PORT) -> Api:
        """A client with the administrator's certificate, of the API server or of another port beside it."""
        return Api(str(self.ranges.api_server), port, self.layout.pki / "ca.crt", self._pair("admin"))

    def write_files(self) -> None:
        """Make certificates and kubeconfigs that are missing."""
        folder = self.layout.pki
        authorities = pki.ensure_authorities(folder)
        for identity in pki.cluster_identities(self.ranges):
            pki.ensure_certificate(folder, authorities.cluster, identity)
        front_proxy = pki.Identity("front-proxy-client", "front-proxy-client")
        pki.ensure_certificate(folder, authorities.front_proxy, front_proxy)
        for identity in pki.etcd_identities():
            pki.ensure_certificate(folder, authorities.etcd, identity)
        for name in ("controller-manager", "scheduler", "kube-proxy"):
            self.write_kubeconfig(self.layout.config / f"{name}.kubeconfig", name)
        self.write_kubeconfig(self.layout.kubeconfig, "admin")
        script = f'#!/bin/sh\nexec "{self.binary}" kubectl --kubeconfig "{self.layout.kubeconfig}" "$@"\n'
        write(self.layout.kubectl, script, 0o755)

    def write_kubeconfig(self, path: Path, name: str) -> None:
        """Write the kubeconfig of the identity whose certificate is called `name`."""
        text = configs.kubeconfig(self.server, self.layout.pki / "ca.crt", self._pair(name), name)
        write(path, text, 0o600)

    def _pair(self, name: str) -> pki.Pair:
        return pki.Pair.named(self.layout.pki, name)

    def _component(self, name: str, arguments: list[str], check: tuple[int, str] | None) -> Component:
        healthy = partial(self.api(check[0]).healthy, check[1]) if check is not None else None
        argv = (str(self.binary), name, *arguments)
        return Component(name, argv, self._namespaces(), ready=healthy)

    def etcd(self) -> Component:
        """The store, without fsync: a power cut may lose a development cluster, a killed process loses nothing."""
        folder = self.layout.pki
        return self._component(
            "etcd",
            [
                f"--data-dir={self.layout.state}/etcd",
                f"--listen-client-urls={_ETCD}",
                f"--advertise-client-urls={_ETCD}",
                f"--listen-peer-urls={_ETCD_PEER}",
                f"--initial-advertise-peer-urls={_ETCD_PEER}",
                f"--initial-cluster=default={_ETCD_PEER}",
                *(f"--{peer}cert-file={folder}/etcd.crt" for peer in ("", "peer-")),
                *(f"--{peer}key-file={folder}/etcd.key" for peer in ("", "peer-")),
                *(f"--{peer}trusted-ca-file={folder}/etcd-ca.crt" for peer in ("", "peer-")),
                *(f"--{peer}client-cert-auth=true" for peer in ("", "peer-")),
                "--unsafe-no-fsync",
                "--auto-compaction-retention=1h",
                "--log-level=warn",
            ],
            None,
        )

    def api_server(self) -> Component:
        folder = self.layout.pki
        return self._component(
            "kube-apiserver",
            [
                f"--bind-address={self.ranges.api_server}",
                f"--advertise-address={self.ranges.api_server}",
                f"--secure-port={API_PORT}",
                f"--service-cluster-ip-range={self.ranges.services}",
                f"--etcd-servers={_ETCD}",
                f"--etcd-cafile={folder}/etcd-ca.crt",
                f"--etcd-certfile={folder}/apiserver-etcd-client.crt",
                f"--etcd-keyfile={folder}/apiserver-etcd-client.key",
                f"--tls-cert-file={folder}/apiserver.crt",
                f"--tls-private-key-file={folder}/apiserver.key",
                f"--client-ca-file={folder}/ca.crt",
                "--anonymous-auth=false",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                f"--kubelet-certificate-authority={folder}/ca.crt",
                f"--kubelet-client-certificate={folder}/apiserver-kubelet-client.crt",
                f"--kubelet-client-key={folder}/apiserver-kubelet-client.key",
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-account-issuer={_ISSUER}",
                f"--service-account-key-file={folder}/sa.pub",
                f"--service-account-signing-key-file={folder}/sa.key",
                f"--requestheader-client-ca-file={folder}/front-proxy-ca.crt",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
                f"--proxy-client-cert-file={folder}/front-proxy-client.crt",
                f"--proxy-client-key-file={folder}/front-proxy-client.key",
                "--allow-privileged=true",
                "--profiling=false",
            ],
            (API_PORT, "/readyz"),
        )

    def controller_manager(self) -> Component:
        folder = self.layout.pki
        return self._component(
            "kube-controller-manager",
            [
                *self._client_arguments("controller-manager"),
                f"--root-ca-file={folder}/ca.crt",
                f"--service-account-private-key-file={folder}/sa.key",
                "--use-service-account-credentials=true",
                f"--cluster-signing-cert-file={folder}/ca.crt",
                f"--cluster-signing-key-file={folder}/ca.key",
            ],
            (10257, "/healthz"),
        )

    def scheduler(self) -> Component:
        return self._component("kube-scheduler", self._client_arguments("scheduler"), (10259, "/healthz"))

    def _client_arguments(self, name: str) -> list[str]:
        folder = self.layout.pki
        config = self.layout.config / f"{name}.kubeconfig"
        return [
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--client-ca-file={folder}/ca.crt",
            f"--requestheader-client-ca-file={folder}/front-proxy-ca.crt",
            f"--bind-address={self.ranges.api_server}",
            f"--tls-cert-file={folder}/{name}.crt",
            f"--tls-private-key-file={folder}/{name}.key",
            "--leader-elect=false",
            "--profiling=false",
        ]

    def proxy(self, node_name: str) -> Component:
        """One kube-proxy for the cluster: all nodes share the network namespace that it programs."""
        config = self.layout.config / "kube-proxy.yaml"
        kubeconfig = self.layout.config / "kube-proxy.kubeconfig"
        write(config, configs.kube_proxy(kubeconfig, node_name, self.ranges))
        argv = (
            "/bin/sh",
            "-c",
            _WITHOUT_OLD_RULES,
            "sh",
            str(self.binary),
            "kube-proxy",
            f"--config={config}",
        )
        ready = plain_health(str(self.ranges.node(0)), configs.PROXY_HEALTH_PORT)
        return Component("kube-proxy", argv, self._namespaces(), files=(config,), ready=ready)

    def _namespaces(self) -> tuple[str, ...]:
        return tuple(network.inside(self.layout)[1:])
