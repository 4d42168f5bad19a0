"""What the development cluster emulates. This is the one place that decides it.

Real: the Kubernetes API server, scheduler, controllers, kubelets, containerd and runc, Prometheus, Triton
with its Python backend, every request and every metric of Triton's own, and the tokenizer's work.

Emulated, because the machine has no GPU:

* **The GPUs themselves.** Each node advertises `nvidia.com/gpu` through a device plugin of ours, with a
  stable identity per device. Who gets which is decided and remembered by the real kubelet. No container
  gets a device file.
* **The node's labels** (product, count, memory, …), as NVIDIA's GPU feature discovery would set them.
* **The forward pass.** The models hold each execution for the time that an A100 would take at that batch
  size, and keep accounts of GPU time and GPU memory.
* **The host.** Preprocessing holds its process until the slower emulated host would be done; a container's
  CPU limit is its number of emulated cores, and what else keeps them busy is a number too (EMULATED_OTHER_CORES).
  The kubelets set no CPU quotas: the real cores are this machine's.
* **GPU and CPU metrics.** An exporter on each node serves those accounts under the names of DCGM and
  cAdvisor. A GPU whose pod cannot be asked has no activity at all; it is not reported as idle.

Not emulated yet: MIG. The nodes say so (`nvidia.com/mig.capable=false`), and there is no resource
`nvidia.com/mig-*`.
"""

from dataclasses import dataclass

EXPORTER_PORT = 9400


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU. Memory in MiB; `reserved_mib` is what the driver keeps of it."""

    product: str
    family: str
    compute_capability: tuple[int, int]
    memory_mib: int
    reserved_mib: int

    @property
    def model_name(self) -> str:
        """The name in DCGM's label `modelName`: the product label's, in the driver's spelling."""
        return self.product.replace("NVIDIA-", "NVIDIA ", 1)


@dataclass(frozen=True)
class EmulatedNode:
    """The GPUs of a node, and the extended resource that they are advertised as."""

    gpu: Gpu
    count: int
    resource: str

    def labels(self) -> dict[str, str]:
        """The node's labels, by the names of NVIDIA's GPU feature discovery."""
        major, minor = self.gpu.compute_capability
        return {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": self.gpu.product,
            "nvidia.com/gpu.family": self.gpu.family,
            "nvidia.com/gpu.compute.major": str(major),
            "nvidia.com/gpu.compute.minor": str(minor),
            "nvidia.com/gpu.count": str(self.count),
            "nvidia.com/gpu.memory": str(self.gpu.memory_mib),
            "nvidia.com/gpu.replicas": "1",
            "nvidia.com/mig.capable": "false",
        }

    def device_plugin(self, node: str) -> list[str]:
        """The arguments of the cluster binary that advertise the GPUs, in the kubelet's mount namespace."""
        return [
            "gpu-device-plugin",
            f"--node={node}",
            f"--gpus={self.count}",
            f"--resource={self.resource}",
        ]

    def exporter(self, node: str, address: str, kubeconfig: str, pod_resources: str) -> list[str]:
        """The arguments of the cluster binary that report on the GPUs.

        `address` is where Prometheus finds the node, `kubeconfig` may list its pods, and `pod_resources` is
        the kubelet's socket (`pod-resources/kubelet.sock` below its root folder).
        """
        return [
            "emulated-exporter",
            f"--node={node}",
            f"--listen={address}:{EXPORTER_PORT}",
            f"--kubeconfig={kubeconfig}",
            f"--pod-resources={pod_resources}",
            f"--resource={self.resource}",
            f"--product={self.gpu.model_name}",
            f"--memory-mib={self.gpu.memory_mib}",
            f"--reserved-mib={self.gpu.reserved_mib}",
        ]


A100 = Gpu(
    product="NVIDIA-A100-SXM4-80GB",
    family="ampere",
    compute_capability=(8, 0),
    memory_mib=81920,
    reserved_mib=640,
)

NODE = EmulatedNode(gpu=A100, count=4, resource="nvidia.com/gpu")
