"""What a lever can set on one model of a server, in the serving engine's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batching:
    """Dynamic batching: requests wait at most `delay_us` for company."""

    delay_us: int = 0
    preferred_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LongLane:
    """Requests of `from_bytes` and more have `members` of the pool for themselves, and no others."""

    from_bytes: int
    members: int


@dataclass(frozen=True, slots=True)
class Remote:
    """A stage that a pool of other servers computes. It has `timeout_ms` for a request; then the request is computed
    here after all, of which at most `local_instances` are at the same time. `lane`: None while all requests go to all
    members.
    """

    timeout_ms: int
    local_instances: int = 1
    lane: LongLane | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The tunable part of one model's configuration.

    instances: execution instances of the model in one pod (all its GPUs together).
    max_batch_size: largest batch in items; 0 means that the model cannot batch.
    batching: None when dynamic batching is off.
    remote: None when the model runs in this server; else an instance is a request that waits for the pool.
    """

    instances: int
    max_batch_size: int
    batching: Batching | None = None
    remote: Remote | None = None

    def __post_init__(self) -> None:
        """One form for what is the same: a server that is given no preferred size fills in the largest batch."""
        if self.batching is not None and self.batching.preferred_sizes == (self.max_batch_size,):
            object.__setattr__(self, "batching", Batching(self.batching.delay_us))


#: model name → settings, for one pod
PodSettings = Mapping[str, ModelSettings]
