"""Address ranges: cluster number 0 … 7 on this machine gets ranges that overlap with no other's."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

MAX_CLUSTERS = 8
MAX_NODES = 16


@dataclass(frozen=True)
class Ranges:
    """The addresses of cluster `index`: the link to the host, Services, and pods (a /24 for each node)."""

    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < MAX_CLUSTERS:
            raise ValueError(f"cluster index {self.index}: must be 0 to {MAX_CLUSTERS - 1}")

    @property
    def link(self) -> IPv4Network:
        return IPv4Network(f"10.255.{self.index}.0/24")

    @property
    def services(self) -> IPv4Network:
        return IPv4Network(f"10.{96 + self.index}.0.0/16")

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network(f"10.{240 + self.index}.0.0/16")

    @property
    def host(self) -> IPv4Address:
        """The host's end of the link; pods reach the host here."""
        return self.link[1]

    @property
    def api_server(self) -> IPv4Address:
        """The API server listens on the first node's address."""
        return self.node(0)

    @property
    def api_service(self) -> IPv4Address:
        """The ClusterIP of `kubernetes.default`: always the first of the range."""
        return self.services[1]

    @property
    def dns(self) -> IPv4Address:
        return self.services[10]

    def node(self, index: int) -> IPv4Address:
        """The address of node `index` on the link."""
        if not 0 <= index < MAX_NODES:
            raise ValueError(f"node index {index}: must be 0 to {MAX_NODES - 1}")
        return self.link[2 + index]

    def node_pods(self, index: int) -> IPv4Network:
        """The pod range of node `index`."""
        return IPv4Network((int(self.pods.network_address) + 256 * self.node_offset(index), 24))

    def node_offset(self, index: int) -> int:
        """Node 0 has 10.x.1.0/24, so that no pod address looks like the network's own."""
        self.node(index)
        return index + 1

    def overlaps(self, networks: Iterable[IPv4Network]) -> IPv4Network | None:
        """The first of `networks` that shares an address with this cluster's ranges; default routes do not count."""
        mine = (self.link, self.services, self.pods)
        return next((n for n in networks if n.prefixlen > 0 and any(n.overlaps(own) for own in mine)), None)
