"""The spec of an InferenceSLO: pools, servers, and how careful changes have to be.

Every rule stands twice: as CEL for the API server and as a validator for offline use; the
integration tests hold each pair together.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StringConstraints, model_validator

from slo_operator.api.base import ApiModel, LabelKey, LabelValue, Name, PositiveInt
from slo_operator.api.model import ServedModel
from slo_operator.api.names import pool_of
from slo_operator.api.repository import Repository
from slo_operator.api.rules import Rule, list_map, validations
from slo_operator.api.stage_pool import PreprocessPool
from slo_operator.api.template import PodTemplate
from slo_operator.api.types import DURATION_PATTERN, Percentage, PositiveDuration
from slo_tuner.policy import Mode


class MIGPolicy(StrEnum):
    """Whether the loop may change the MIG geometry of a pool's nodes."""

    NEVER = "Never"
    LAST_RESORT = "LastResort"


class Workload(StrEnum):
    """Online and batch load never share a server."""

    ONLINE = "Online"
    BATCH = "Batch"


class Engine(StrEnum):
    """What runs the forward pass, where that decides how settings are changed."""

    GENERIC = "Generic"
    TENSORRT_LLM = "TensorRTLLM"


class MIG(ApiModel):
    """MIG geometry of a pool."""

    policy: MIGPolicy = MIGPolicy.NEVER
    """Never, or LastResort: only for proven interference, after every other lever."""


class Pool(ApiModel):
    """A set of GPU nodes and how many of their GPUs this resource may hold."""

    name: Name
    """Name by which servers refer to the pool."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=16)]
    """Labels of the pool's nodes, such as nvidia.com/gpu.product."""
    max_gpus: Annotated[PositiveInt, Field(alias="maxGPUs")]
    """GPUs held at any instant, by running, pending and terminating pods together."""
    mig: MIG = MIG()


class Target(ApiModel):
    """A Deployment that someone else owns: observed and advised on, never changed."""

    deployment: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Name of the Deployment in the resource's namespace."""


class Accelerator(ApiModel):
    """What one replica holds."""

    gpus: Annotated[StrictInt, Field(ge=0, le=64)] = 1
    """Whole GPUs per replica."""


class Replicas(ApiModel):
    """Bounds of the replica count."""

    min: PositiveInt = 1
    max: PositiveInt = 1

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule("self.min <= self.max", "replicas.min must not be above replicas.max", field=".min")
        )
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"replicas.min must not be above replicas.max (got {self.min} and {self.max})")
        return self


_POOL_WITH_IMAGE = "preprocessPool belongs to image: a target is never changed"
_ONE_SOURCE = "either image (with repository) or target, and not both"


class Server(ApiModel):
    """One Triton Deployment: rendered from an image, or adopted by name."""

    name: Name
    pool: Name
    """A name of spec.pools."""
    workload: Workload = Workload.ONLINE
    engine: Engine = Engine.GENERIC
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Image with tritonserver on its path and a shell; its model repository is never written."""
    repository: Repository | None = None
    target: Target | None = None
    accelerator: Accelerator = Accelerator()
    template: PodTemplate | None = None
    """Merged into the rendered pod as kubectl would: tolerations, service account, environment, volumes,
    labels, resources, further arguments. Fields that the operator owns are refused by name."""
    replicas: Replicas = Replicas()
    preprocess_pool: PreprocessPool | None = None
    """Where preprocessing may move; absent: it stays in the server's pods."""
    models: Annotated[
        list[ServedModel], Field(min_length=1, max_length=16, json_schema_extra=list_map("name"))
    ]
    """The models that clients call; members of ensembles are discovered."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule("has(self.image) != has(self.target)", _ONE_SOURCE),
            Rule(
                "has(self.image) == has(self.repository)",
                "image and repository belong together: give both, or target alone",
            ),
            Rule(
                "!has(self.target) || !has(self.template)",
                "template belongs to image: a target is never re-rendered",
                field=".template",
            ),
            Rule("!has(self.target) || !has(self.preprocessPool)", _POOL_WITH_IMAGE, field=".preprocessPool"),
        )
    )

    @property
    def managed(self) -> bool:
        """Whether the operator renders this server (image) or only watches it (target)."""
        return self.target is None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.image is None) == (self.target is None):
            raise ValueError(_ONE_SOURCE)
        if (self.image is None) != (self.repository is None):
            raise ValueError("image and repository belong together: give both, or target alone")
        if self.target is not None and self.template is not None:
            raise ValueError("template belongs to image: a target is never re-rendered")
        if self.target is not None and self.preprocess_pool is not None:
            raise ValueError(_POOL_WITH_IMAGE)
        _unique((m.name for m in self.models), "models")
        return self


class Rollout(ApiModel):
    """How carefully a change is compared before it spreads."""

    min_samples: Annotated[StrictInt, Field(ge=10, le=1_000_000)] = 500
    """Requests on each side before a verdict."""
    analysis: PositiveDuration = PositiveDuration("2m")
    """Shortest time that a change is watched on one pod; at least 10s."""
    max_extra_misses: Percentage = Percentage("1%")
    """Percentage points of requests over the target that a change may cost and still count as equal."""
    reloads_per_hour: Annotated[StrictInt, Field(ge=1, le=1000)] = 12
    """Budget of model loads per pod: loads can leak memory."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                f"!self.analysis.matches('{DURATION_PATTERN}') || duration(self.analysis) >= duration('10s')",
                "rollout.analysis must be at least 10s",
                field=".analysis",
            )
        )
    )

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.analysis.seconds < 10:
            raise ValueError(f"rollout.analysis must be at least 10s (got {self.analysis})")
        return self


_POOL_NAME = "the name of a server with preprocessPool, and -pool behind it, is the pool's: no other server may have it"
_POOL_EXISTS = "every server's pool must be a name of spec.pools"
_FITS = (
    "the servers' minimums must fit into the pool:"
    " the sum of replicas.min × accelerator.gpus must not be above maxGPUs"
)


class InferenceSLOSpec(ApiModel):
    """Models, their objectives and the GPUs they may use."""

    mode: Mode = Mode.OBSERVE
    """Observe: diagnose. Recommend: publish the plan. Auto: carry it out. Governs tuning only."""
    suspend: StrictBool = False
    """Stop every write but status; keep observing."""
    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Who gets GPUs first when they are short; higher wins."""
    pools: Annotated[list[Pool], Field(min_length=1, max_length=8, json_schema_extra=list_map("name"))]
    servers: Annotated[list[Server], Field(min_length=1, max_length=8, json_schema_extra=list_map("name"))]
    rollout: Rollout = Rollout()

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "self.servers.all(s, self.pools.exists(p, p.name == s.pool))",
                _POOL_EXISTS,
                field=".servers",
            ),
            Rule(
                "self.pools.all(p, self.servers.filter(s, s.pool == p.name)"
                ".map(s, s.replicas.min * s.accelerator.gpus).sum() <= p.maxGPUs)",
                _FITS,
                field=".pools",
            ),
            Rule(
                "self.servers.all(s, !has(s.preprocessPool)"
                " || !self.servers.exists(o, o.name == s.name + '-pool'))",
                _POOL_NAME,
                field=".servers",
            ),
        )
    )

    def pool(self, name: str) -> Pool:
        """The pool of that name; the validator has seen to it that a server's exists."""
        return next(p for p in self.pools if p.name == name)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _unique((p.name for p in self.pools), "pools")
        _unique((s.name for s in self.servers), "servers")
        names = {s.name for s in self.servers}
        for server in self.servers:
            if server.preprocess_pool is not None and pool_of(server.name) in names:
                raise ValueError(f"{_POOL_NAME} ({pool_of(server.name)})")
        pools = {p.name: p.max_gpus for p in self.pools}
        needed: Counter[str] = Counter()
        for server in self.servers:
            if server.pool not in pools:
                raise ValueError(f"server {server.name}: pool {server.pool} is not a name of spec.pools")
            for key in _moved(server, self.pool(server.pool)):
                raise ValueError(
                    f"server {server.name}: template.spec.nodeSelector[{key}] is the pool's: it may only be narrowed"
                )
            needed[server.pool] += server.replicas.min * server.accelerator.gpus
        for name, gpus in needed.items():
            if gpus > pools[name]:
                raise ValueError(f"{_FITS} (pool {name}: {gpus} > {pools[name]})")
        return self


def _moved(server: Server, pool: Pool) -> list[str]:
    """Labels by which the template would leave the pool's nodes."""
    template = server.template
    chosen = (template.get("spec") or {}).get("nodeSelector") or {} if template else {}
    return [key for key, value in pool.node_selector.items() if chosen.get(key, value) != value]


def _unique(names: object, field: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]  # type: ignore[call-overload]
    if twice:
        raise ValueError(f"{field}: the name {twice[0]} occurs more than once")
