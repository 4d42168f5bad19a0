"""The whole operator over the fakes, one tick at a time."""

from __future__ import annotations

from typing import Any

from slo_operator.app import Operator, Outside
from slo_operator.config import OperatorConfig, parse_config
from slo_tuner.decide import decide
from tests.unit.operator.fakes import Clock, FakeKube, FakePrometheus, FakeTriton, Load, node, pod, resource

CONFIG = parse_config({"interval": "5s", "traces": {"enabled": True}}, "test")


class World:
    """`body` is the resource as its owner wrote it; `step` lets time pass and ticks."""

    def __init__(self, body: dict[str, Any] | None = None, config: OperatorConfig = CONFIG, brain: Any = decide):
        self.clock = Clock()
        self.kube = FakeKube()
        self.prometheus = FakePrometheus()
        self.tritons: dict[str, FakeTriton] = {}
        self.config = config
        self.brain = brain
        self.kube.put(node())
        self.kube.put(body or resource())
        self.restart()

    def restart(self) -> None:
        """A new process: nothing is left but the cluster."""
        outside = Outside(
            self.kube, self.prometheus, lambda name, address, key: self.tritons[name], self.brain, self.clock
        )
        self.operator = Operator(self.config, outside, lambda: None)

    @property
    def body(self) -> dict[str, Any]:
        return self.kube.objects["InferenceSLO", "serving", "assistant"]

    @property
    def status(self) -> dict[str, Any]:
        return self.body.get("status", {})

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    def child(self, kind: str, name: str) -> dict[str, Any]:
        return self.kube.objects[kind, "serving", name]

    def step(self, seconds: float = 5.0, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.clock.now += seconds
            for reflector in self.operator.cluster._all:
                reflector.relist()
            self.operator.loop.tick([self.body] if ("InferenceSLO", "serving", "assistant") in self.kube.objects else [])

    def roll_out(self) -> None:
        """What the Deployment's controller and the kubelet do: make pods and report them."""
        deployment = self.child("Deployment", "assistant-chat")
        replicas = deployment["spec"]["replicas"]
        for i in range(replicas):
            name = f"assistant-chat-{i}"
            self.kube.put(pod(deployment, name, f"10.0.0.{i + 1}"))
            self.tritons.setdefault(name, FakeTriton())
        deployment["status"] = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
        }

    def serve(self, latency: float = 0.2, preprocess_queue: float = 0.02, rps: float = 20.0) -> None:
        """Steady traffic on every pod."""
        for name in self.tritons:
            self.prometheus.loads |= {
                (name, "assistant"): Load(rps, latency, infer=latency - preprocess_queue),
                (name, "preprocessing"): Load(rps, preprocess_queue + 0.03, preprocess_queue, 0.03),
                (name, "forward"): Load(rps, 0.13, 0.01, 0.12),
                (name, "postprocessing"): Load(rps, 0.002, 0.0, 0.002),
                (name, "emulated-host"): Load(0.0),
            }
