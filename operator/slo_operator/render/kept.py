"""The parts of a pod that follow from observation, and keep their value until a rollout is due anyway.

Latency and load times drift, and the operator's own image changes with every release. If such values went
straight into the pod template, a slow minute or an upgrade would restart every GPU pod. So they are written
beside the Deployment, and taken anew only when something that people asked for changes the template.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from slo_operator.api.names import ANNOTATION_CONFIG_HASH, ANNOTATION_KEPT
from slo_operator.render.context import Observed

#: seconds for a stopped pod to leave the lists of proxies and gateways before its server stops accepting
PRE_STOP_S: Final = 10
#: requests in flight get this multiple of the p99, and at least this long
DRAIN_FACTOR: Final = 3.0
MIN_DRAIN_S: Final = 30
#: a pod may take this multiple of the longest start seen, and at least this long
START_FACTOR: Final = 3.0
MIN_START_S: Final = 600
#: between the server's own exit time-out and the kubelet's kill
KILL_MARGIN_S: Final = 5
_STEP_S: Final = 30


@dataclass(frozen=True, slots=True)
class Kept:
    """Whole seconds, but for the image of the init container that merges tuned settings."""

    overlay_image: str
    grace_s: int
    start_s: int

    @property
    def exit_timeout_s(self) -> int:
        """How long the server waits for requests in flight after its stop signal."""
        return self.grace_s - PRE_STOP_S - KILL_MARGIN_S

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def fresh(overlay_image: str, observed: Observed) -> Kept:
    """What a rollout that begins now should use; times are rounded up to half minutes."""
    drain = max(MIN_DRAIN_S, DRAIN_FACTOR * (observed.p99_s or 0.0))
    start = max(MIN_START_S, START_FACTOR * (observed.load_s or 0.0))
    return Kept(overlay_image, _stepped(PRE_STOP_S + drain + KILL_MARGIN_S), _stepped(start))


def kept_or_fresh(live: Mapping[str, Any] | None, config_hash: str, wanted: Kept) -> Kept:
    """The values of the live Deployment while its configuration is the wanted one, else `wanted`."""
    if live is None:
        return wanted
    annotations = live.get("metadata", {}).get("annotations") or {}
    if annotations.get(ANNOTATION_CONFIG_HASH) != config_hash:
        return wanted
    try:
        data = json.loads(annotations.get(ANNOTATION_KEPT, ""))
        kept = Kept(str(data["overlay_image"]), int(data["grace_s"]), int(data["start_s"]))
    except (ValueError, KeyError, TypeError):
        return wanted
    return kept if kept.exit_timeout_s > 0 and kept.start_s > 0 and kept.overlay_image else wanted


def _stepped(seconds: float) -> int:
    return math.ceil(seconds / _STEP_S) * _STEP_S
