"""Processes that belong to a node beside containerd and kubelet: those that emulate its GPUs."""

from devcluster import configs, emulation
from devcluster.api import plain_health
from devcluster.node import Node
from devcluster.processes import Component


def components(node: Node) -> list[Component]:
    """The node's further processes; they run in its namespaces, so that /var/lib/kubelet is the kubelet's."""
    return [_device_plugin(node), _exporter(node)]


def _device_plugin(node: Node) -> Component:
    """Ready when the scheduler may count on the GPUs, so that `up` ends with all of them there."""
    gpus = emulation.NODE
    api = node.plane.api()

    def counted() -> bool:
        seen = api.object(f"/api/v1/nodes/{node.name}") or {}
        return bool(seen.get("status", {}).get("allocatable", {}).get(gpus.resource) == str(gpus.count))

    argv = (str(node.plane.binary), *gpus.device_plugin(node.name))
    return Component(f"gpu-device-plugin-{node.name}", argv, node.namespaces, ready=counted)


def _exporter(node: Node) -> Component:
    argv = emulation.NODE.exporter(
        node.name,
        node.address,
        kubeconfig=str(node.layout.folder / "kubelet.kubeconfig"),
        pod_resources=f"{configs.KUBELET_ROOT}/pod-resources/kubelet.sock",
    )
    ready = plain_health(node.address, emulation.EXPORTER_PORT)
    return Component(
        f"emulated-exporter-{node.name}", (str(node.plane.binary), *argv), node.namespaces, ready=ready
    )
