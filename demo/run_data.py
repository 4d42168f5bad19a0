"""What a run of the demo has seen: requests, samples, windows, decisions.

Times are Unix seconds, latencies milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from devcluster.gateway.records import Record


class WindowName(StrEnum):
    """The windows whose figures count."""

    BASELINE = "baseline"
    TUNED = "tuned"
    DOUBLED = "doubled"


class Stage(StrEnum):
    """Where a request spends its time, in the order in which it does. `OTHER` is what the client saw beyond
    the server's stages: network, HTTP, and waiting in front of the ensemble.
    """

    PREPROCESS_WAIT = "waiting for preprocessing"
    PREPROCESS = "preprocessing"
    FORWARD_WAIT = "waiting for the GPU model"
    FORWARD = "forward pass"
    POSTPROCESS = "postprocessing"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Window:
    """A counted stretch of time: requests scheduled in [start, end).

    Lateness is that of the sleeping probe on the host, and of the gateway's sends: it sleeps until each is due, in a
    pod, whose share of a busy processor is smaller than the host's processes'.
    """

    start: float
    end: float
    probe_p99_ms: float = 0.0
    send_p99_ms: float = 0.0
    repeated: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def lateness_ms(self) -> float:
        """The worse of the two."""
        return max(self.probe_p99_ms, self.send_p99_ms)


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of the resource's history."""

    time: float
    reason: str
    message: str
    server: str = ""
    lever: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What could be seen at one moment.

    stages_ms: mean time of a request by stage over the last 20 s, weighted over the variants.
    forward_p50_ms, forward_p99_ms: by variant, of the worst pod, over the server's last 60 s.
    gpu_busy: mean share (0..1) of the GPUs' time in which they compute; None when unknown.
    gpus: GPUs requested by pods not yet gone.
    cpu: mean share (0..1) of their CPU limit that the pods with GPUs use; None when unknown.
    pool_replicas: servers without GPUs that preprocessing was moved to, and are ready.
    pool_network_ms: what a request takes beyond its time there; None when unknown.
    """

    time: float
    phase: str
    rate_rps: float = 0.0
    p99_20s_ms: float | None = None
    p99_60s_ms: float | None = None
    stages_ms: Mapping[Stage, float] = field(default_factory=dict)
    forward_p50_ms: Mapping[str, float] = field(default_factory=dict)
    forward_p99_ms: Mapping[str, float] = field(default_factory=dict)
    gpu_busy: float | None = None
    gpus: int = 0
    cpu: float | None = None
    pool_replicas: int = 0
    pool_network_ms: float | None = None
    bottleneck: str = ""
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the run took place, and how punctual its clock was."""

    cores: int
    memory_gib: float
    kernel: str
    probe_p99_ms: Mapping[str, float] = field(default_factory=dict)
    send_p99_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the report is made of.

    auto_at, step_at: when the resource was switched to Auto, when the traffic doubled; None if never.
    bottlenecks: (time, reason) whenever the reported bottleneck changed.
    mig_actions: changes of MIG geometry: labels of nodes, and decisions.
    settle_seconds: from step_at to the start of the first attempt at the doubled window.
    """

    scenario: str
    started: float
    ended: float
    machine: Machine
    records: tuple[Record, ...] = ()
    samples: tuple[Sample, ...] = ()
    windows: Mapping[WindowName, Window] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    bottlenecks: tuple[tuple[float, str], ...] = ()
    auto_at: float | None = None
    step_at: float | None = None
    settle_seconds: float | None = None
    mig_actions: int = 0
    gateway_histogram: bool = True
    unfinished: str = ""
