"""From nothing to a served pipeline: cluster, images, manifests, the resource in Observe, the gateway in front."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from demo.kube import Kubectl, KubectlError
from devcluster.cluster import Cluster
from devcluster.layout import REPOSITORY
from devcluster.monitoring import prometheus_image

Say = Callable[[str], None]

NAMESPACE, RESOURCE, SERVER = "serving", "assistant", "chat"
IMAGES = ("inferenceslo/triton-cpu:dev", "inferenceslo/operator:dev", "inferenceslo/gateway:dev")
SAMPLE = REPOSITORY / "manifests" / "samples" / "assistant.yaml"
GATEWAY = REPOSITORY / "demo" / "gateway.yaml"
READY_WITHIN_S = 300.0


class SetupError(Exception):
    """The demo could not begin; the message says at what."""


async def bring_up(cluster: Cluster, say: Say) -> Kubectl:
    """The cluster with the project's images in it; both are built when they are missing."""
    archives = [await asyncio.to_thread(prometheus_image, say), *await build_images(say)]
    await asyncio.to_thread(cluster.up)
    for archive in archives:
        await asyncio.to_thread(cluster.load_image, archive)
    return Kubectl(cluster.layout.kubeconfig, str(cluster.layout.kubectl))


async def build_images(say: Say) -> list[Path]:
    """The archives of the project's images; the build tells its progress on standard error."""
    say("building the images that are not in the cache")
    building = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "devcluster.images", "build", cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await building.communicate()
    if building.returncode:
        raise SetupError("python -m devcluster.images build failed: see above")
    built = dict(line.split(maxsplit=1) for line in said.decode().splitlines())
    missing = [image for image in IMAGES if image not in built]
    if missing:
        raise SetupError(f"python -m devcluster.images build made no {', '.join(missing)}: {said.decode()}")
    return [Path(built[image]) for image in IMAGES]


async def install(kubectl: Kubectl, say: Say) -> None:
    """Monitoring and the operator, as a user installs them; anything of an earlier run goes first."""
    for namespace in (
        NAMESPACE,
        "inferenceslo-system",
    ):  # the operator too: the same tag may be another image now
        await kubectl.run("delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=180s")
    for folder in ("manifests/monitoring/dev", "manifests/dev"):
        say(f"kubectl apply -k {folder}")
        await apply_folder(kubectl, REPOSITORY / folder)
    await rollout(kubectl, "monitoring", "prometheus")
    await rollout(kubectl, "inferenceslo-system", "inferenceslo-operator")
    say("Prometheus and the operator are ready")


async def apply_folder(kubectl: Kubectl, folder: Path) -> None:
    """`kubectl apply -k`, once more after a moment when a kind that it brings is not served yet."""
    try:
        await kubectl.run("apply", "-k", str(folder))
    except KubectlError:
        await asyncio.sleep(3)
        await kubectl.run("apply", "-k", str(folder))


async def serve(kubectl: Kubectl, say: Say, *, histogram: bool) -> None:
    """The resource in Observe (the operator deploys the pipeline as found), and the gateway; waits for both."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
    say(f"kubectl apply -f {SAMPLE.relative_to(REPOSITORY)} (mode: Observe)")
    await kubectl.run("apply", "-f", "-", stdin=resource_manifest(SAMPLE.read_text("utf-8"), "Observe"))
    await kubectl.run("apply", "-f", "-", stdin=gateway_manifest(GATEWAY.read_text("utf-8"), histogram))
    await appears(kubectl, f"deployment/{RESOURCE}-{SERVER}")
    await rollout(kubectl, NAMESPACE, f"{RESOURCE}-{SERVER}")
    await rollout(kubectl, NAMESPACE, "gateway")
    limit = f"--timeout={READY_WITHIN_S:.0f}s"
    await kubectl.run("wait", "-n", NAMESPACE, "--for=condition=Ready", f"inferenceslo/{RESOURCE}", limit)
    say("the pipeline and the gateway are ready")


def resource_manifest(text: str, mode: str) -> str:
    """The sample's documents with the InferenceSLO's mode set."""
    documents = [document for document in yaml.safe_load_all(text) if document]
    for document in documents:
        if document["kind"] == "InferenceSLO":
            document["spec"]["mode"] = mode
    return yaml.safe_dump_all(documents, sort_keys=False)


def gateway_manifest(text: str, histogram: bool) -> str:
    """The gateway's manifest, with or without the latency histogram that it publishes."""
    documents = list(yaml.safe_load_all(text))
    if not histogram:
        for document in documents:
            document["spec"]["template"]["spec"]["containers"][0]["args"].append("--no-histogram")
    return yaml.safe_dump_all(documents, sort_keys=False)


async def rollout(kubectl: Kubectl, namespace: str, deployment: str) -> None:
    """Wait until all pods of a Deployment are ready; tells what its pods say when they are not in time."""
    try:
        limit = f"--timeout={READY_WITHIN_S:.0f}s"
        await kubectl.run("rollout", "status", "-n", namespace, f"deployment/{deployment}", limit)
    except KubectlError as error:
        pods = await kubectl.run("get", "pods,events", "-n", namespace, check=False)
        raise SetupError(f"{error}\n{pods[-3000:]}") from error


async def appears(kubectl: Kubectl, name: str, within_s: float = 60.0) -> None:
    """Wait until the operator has made an object in the demo's namespace."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            await kubectl.run("get", "-n", NAMESPACE, name)
        except KubectlError:
            await asyncio.sleep(1)
        else:
            return
    words = await kubectl.run(
        "logs", "-n", "inferenceslo-system", "deployment/inferenceslo-operator", check=False
    )
    raise SetupError(f"the operator made no {name} within {within_s:.0f} s; its log ends:\n{words[-3000:]}")


async def switch_to_auto(kubectl: Kubectl) -> float:
    """Let the operator act; returns the Unix time just before the switch."""
    now = time.time()
    patch = '{"spec":{"mode":"Auto"}}'
    await kubectl.run("patch", "-n", NAMESPACE, "inferenceslo", RESOURCE, "--type=merge", "-p", patch)
    return now


async def collect(kubectl: Kubectl, folder: Path) -> None:
    """What kubectl has to say at the end, into files of a folder that exists."""
    name = ("-n", NAMESPACE, "inferenceslo", RESOURCE)
    wanted = {
        "get.txt": ("get", "-n", NAMESPACE, "inferenceslo"),
        "describe.txt": ("describe", *name),
        "inferenceslo.yaml": ("get", *name, "-o", "yaml"),
        "objects.txt": ("get", "-n", NAMESPACE, "all,configmap,pdb,networkpolicy", "-o", "wide"),
        "events.txt": ("get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp"),
        "operator.log": (
            "logs",
            "-n",
            "inferenceslo-system",
            "deployment/inferenceslo-operator",
            "--tail=-1",
        ),
    }
    for file, arguments in wanted.items():
        text = await kubectl.run(*arguments, check=False)
        await asyncio.to_thread((folder / file).write_text, text, encoding="utf-8")
