"""Where CPU stages go when the GPU hosts have no CPU left for them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt, StringConstraints

from slo_operator.api.base import ApiModel, LabelKey, LabelValue
from slo_operator.api.rules import Rule, validations

_MEMORY = "^[1-9][0-9]{0,5}(Mi|Gi)$"
_MEMORY_MESSAGE = "an amount of memory in Mi or Gi, such as 4Gi"
_CPU = "^([1-9][0-9]{0,2}|[1-9][0-9]{0,5}m)$"
_CPU_MESSAGE = "a number of cores, such as 4, or of thousandths of one, such as 500m"

Memory = Annotated[
    str,
    StringConstraints(min_length=1, max_length=16, pattern=_MEMORY),
    Field(json_schema_extra=validations(Rule(f"self.matches('{_MEMORY}')", _MEMORY_MESSAGE))),
]
CPU = Annotated[
    str,
    StringConstraints(min_length=1, max_length=16, pattern=_CPU),
    Field(json_schema_extra=validations(Rule(f"self.matches('{_CPU}')", _CPU_MESSAGE))),
]


class PoolRequests(ApiModel):
    """What the scheduler sets aside for one replica; what is absent is as its limit."""

    cpu: CPU | None = None
    memory: Memory | None = None


class PoolLimits(ApiModel):
    """The most that one replica may use."""

    cpu: CPU = "2"
    """A stage runs a process for each whole core."""
    memory: Memory = "4Gi"


class PoolResources(ApiModel):
    """What one replica of the pool holds."""

    requests: PoolRequests = PoolRequests()
    limits: PoolLimits = PoolLimits()

    @property
    def processes(self) -> int:
        """Of each stage in one replica."""
        cpu = self.limits.cpu
        return max(1, int(cpu[:-1]) // 1000 if cpu.endswith("m") else int(cpu))

    def container(self) -> dict[str, dict[str, str]]:
        """As a container has them."""
        limits = {"cpu": self.limits.cpu, "memory": self.limits.memory}
        asked = {"cpu": self.requests.cpu, "memory": self.requests.memory}
        return {"requests": {k: v or limits[k] for k, v in asked.items()}, "limits": limits}


class PreprocessPool(ApiModel):
    """Servers without GPUs that preprocessing stages may be moved to, once more processes in the GPU servers' pods find
    no CPU. The operator starts, sizes and removes it."""

    max_replicas: Annotated[StrictInt, Field(ge=1, le=256)]
    """The most that the operator may start."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels of the nodes with CPU to spare; without any, wherever the scheduler finds room."""
    resources: PoolResources = PoolResources()
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Another image than the server's, with the same models; absent: the server's."""
