"""What a tick came to for one server and for one resource: the input of its status."""

from __future__ import annotations

from dataclasses import dataclass

from slo_operator.api.spec import Server
from slo_operator.observe.records import DeploymentRecord
from slo_tuner.decision import Decision
from slo_tuner.snapshot import ServerView


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """`stalled` is what people have to put right; `error` what the loop itself could not do this time."""

    server: Server
    deployment: DeploymentRecord | None = None
    view: ServerView | None = None
    decision: Decision | None = None
    config_hash: str = ""
    stalled: str = ""
    error: str = ""
    problem: str = ""
    contested: tuple[str, ...] = ()
    control_open: bool = False
    since_unavailable: float | None = None


@dataclass(frozen=True, slots=True)
class ResourceOutcome:
    """All servers of a resource; `invalid` are the lines of a spec that cannot be read."""

    generation: int
    suspend: bool = False
    servers: tuple[ServerOutcome, ...] = ()
    invalid: tuple[str, ...] = ()
