"""Where CPU stages go when the GPU hosts have no CPU left for them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt, StringConstraints

from slo_operator.api.base import ApiModel, LabelKey, LabelValue
from slo_operator.api.rules import Rule, validations

_QUANTITY = "^[1-9][0-9]{0,5}(Mi|Gi)$"
_QUANTITY_MESSAGE = "an amount of memory in Mi or Gi, such as 4Gi"

#: an amount of memory, as Kubernetes writes it
Memory = Annotated[
    str,
    StringConstraints(min_length=1, max_length=16, pattern=_QUANTITY),
    Field(json_schema_extra=validations(Rule(f"self.matches('{_QUANTITY}')", _QUANTITY_MESSAGE))),
]


class PoolResources(ApiModel):
    """What one replica of the pool holds; requested, and its limit."""

    cpu: Annotated[StrictInt, Field(ge=1, le=256)] = 2
    """Whole cores; a stage runs as many processes."""
    memory: Memory = "4Gi"
    """Memory, such as 4Gi."""


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
