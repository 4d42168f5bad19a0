"""A server to be rendered."""

from __future__ import annotations

from typing import Any

import pytest

from slo_operator.api.resource import parse_spec
from slo_operator.render.context import Observed, ServerContext

SERVER: dict[str, Any] = {
    "name": "chat",
    "pool": "a100",
    "image": "triton:1",
    "repository": {"volume": {"persistentVolumeClaim": {"claimName": "models"}}, "path": "chat/"},
    "accelerator": {"gpus": 2},
    "replicas": {"min": 2, "max": 2},
    "models": [
        {
            "name": "pipe",
            "stages": {"preprocess": ["tok"], "forward": ["fwd"], "postprocess": ["detok"]},
            "slo": {"latency": {"p99": "300ms"}},
            "limits": {"preprocessInstances": {"max": 6}},
        }
    ],
}


def make_context(
    *,
    observed: Observed = Observed(),  # noqa: B008 - frozen
    overlay_image: str = "operator:1",
    gpu_free: bool = False,
    replicas: int = 2,
    **server: Any,
) -> ServerContext:
    """The server above with `server`'s fields replaced; None takes a field away."""
    fields = {key: value for key, value in (SERVER | server).items() if value is not None}
    spec = parse_spec(
        {
            "pools": [{"name": "a100", "nodeSelector": {"gpu": "a100"}, "maxGPUs": 4}],
            "servers": [fields],
        }
    )
    return ServerContext(
        namespace="serving",
        resource="assistant",
        uid="u-1",
        server=spec.servers[0],
        pool=spec.pools[0],
        replicas=replicas,
        overlay_image=overlay_image,
        trace_url="http://operator:4318/v1/traces",
        gpu_free=gpu_free,
        observed=observed,
    )


@pytest.fixture
def context() -> ServerContext:
    return make_context()
