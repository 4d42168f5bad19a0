"""The whole operator over the fakes, one tick at a time."""

from __future__ import annotations

from typing import Any

from slo_operator.app import Operator, Outside
from slo_operator.config import OperatorConfig, parse_config
from slo_tuner.decide import decide
from slo_tuner.snapshot import RequestTrace, StageTime
from tests.unit.operator.brain import canary_brain
from tests.unit.operator.fake_prometheus import FakePrometheus, Load
from tests.unit.operator.fakes import Clock, FakeKube, FakeTriton, node, pod, resource

CONFIG = parse_config({"interval": "5s", "traces": {"enabled": True}}, "test")


class World:
    """`body` is the resource as its owner wrote it; `step` lets time pass and ticks."""

    def __init__(
        self, body: dict[str, Any] | None = None, config: OperatorConfig = CONFIG, brain: Any = decide
    ):
        self.clock = Clock()
        self.kube = FakeKube()
        self.prometheus = FakePrometheus()
        self.tritons: dict[str, FakeTriton] = {}
        self.config = config
        self.brain = brain
        self.traced = False
        self.slow_share: dict[str, float] = {}
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
        found: dict[str, Any] = self.body.get("status", {})
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    @property
    def memory(self) -> str:
        """What the tuner remembers of the server, as written."""
        return str(self.child("ConfigMap", "assistant-chat-state")["data"]["memory.json"])

    @property
    def reasons(self) -> list[str]:
        """The reasons of all events, each once."""
        return list(dict.fromkeys(e["reason"] for e in self.kube.events))

    def child(self, kind: str, name: str) -> dict[str, Any]:
        return self.kube.objects[kind, "serving", name]

    def step(self, seconds: float = 5.0, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.clock.now += seconds
            if self.traced:
                self.trace(seconds)
            self._controllers()
            for reflector in self.operator.cluster._all:
                reflector.relist()
            self.operator.loop.tick(
                [self.body] if ("InferenceSLO", "serving", "assistant") in self.kube.objects else []
            )

    def _controllers(self) -> None:
        """The Deployment's controller has seen the latest generation."""
        for (kind, _, _), body in self.kube.objects.items():
            if kind == "Deployment" and "status" in body:
                body["status"]["observedGeneration"] = body["metadata"].get("generation", 1)

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

    def trace(self, seconds: float) -> None:
        """Every request of the last `seconds` as its server would have traced it, evenly spaced; of each
        pod's requests the share `slow_share` takes a second."""
        for name in self.tritons:
            load = self.prometheus.loads.get((name, "assistant"))
            count = round(load.rps * seconds) if load else 0
            slow = round(count * self.slow_share.get(name, 0.0))
            for i in range(count):
                latency = 1.0 if i < slow else 0.2
                start = self.clock.now - seconds + (i + 0.5) * seconds / count - latency
                stages = {
                    "preprocessing": StageTime(latency - 0.17, 0.03),
                    "forward": StageTime(0.01, 0.12),
                    "postprocessing": StageTime(0.0, 0.002),
                }
                self.operator.traces._done.append(RequestTrace(name, "assistant", start, latency, stages))


def canary() -> World:
    """A world whose tuner puts four preprocessing processes on one pod, and waits."""
    world = running(brain=canary_brain, started=False)
    world.step()
    assert world.status["lastDecision"]["reason"] == "CanaryStarted"
    return world


def running(
    body: dict[str, Any] | None = None, *, missing: float = 0.0, started: bool = True, **kwargs: Any
) -> World:
    """Both pods up and under steady traffic, every request traced; `missing` of them over the target."""
    world = World(body, **kwargs)
    world.step()
    world.roll_out()
    world.serve()
    world.traced = True
    world.slow_share = dict.fromkeys(world.tritons, missing)
    if started:
        world.step(ticks=4)
    return world
