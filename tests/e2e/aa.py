"""A/A canaries: the product's comparison over real pods of which nothing was changed.

The server's scrapes of some minutes are recorded by Prometheus and cut into the same blocks as in the operator.
Canaries with settings equal to those before are then held against them: on either pod, from several moments on,
each looked at as often as a real one would be.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from slo_operator.observe import catalogue
from slo_operator.observe.blocks import BlockStore
from slo_operator.observe.prometheus import Prometheus
from slo_tuner.canary import MAX_LOOKS, SETTLE_S, Comparison, Finding, blocks_per_look, compare
from slo_tuner.memory import Change, Phase
from slo_tuner.policy import Policy
from slo_tuner.settings import ModelSettings
from slo_tuner.snapshot import LatencyBlock, PodView, ServerView
from tests.e2e.serving import Serving
from tests.e2e.small_server import MODEL, PREPROCESSING
from tests.e2e.waiting import until

POLICY = Policy(min_samples=30, analysis_s=20.0)
#: what a canary has of the time before it, and how far apart two canaries on the same pod begin
BEFORE_S, APART_S = 60.0, 40.0
CANARIES_PER_POD = 3
#: a canary of so many looks, with a block to spare at either end
NEEDED_S = (
    BEFORE_S + (CANARIES_PER_POD - 1) * APART_S + SETTLE_S + 10.0 * (MAX_LOOKS * blocks_per_look(POLICY) + 2)
)
MEAN_TARGET_S = 0.3
UNCHANGED = {PREPROCESSING: ModelSettings(instances=1, max_batch_size=16)}


@dataclass(frozen=True)
class Recorder:
    """The blocks of a server since `start` (Unix seconds)."""

    serving: Serving
    start: float
    pods: tuple[str, ...]
    prometheus: Prometheus

    @classmethod
    def begin(cls, serving: Serving) -> "Recorder":
        """From now on, over the pods that are ready now."""
        service = json.loads(
            serving.cluster.kubectl("-n", "monitoring", "get", "service", "prometheus", "-o", "json")
        )
        source = Prometheus(f"http://{service['spec']['clusterIP']}:9090", timeout_s=10)
        return cls(serving, time.time(), tuple(pod.name for pod in serving.pods()), source)

    def blocks(self) -> tuple[LatencyBlock, ...]:
        """All of them until now, oldest first."""
        at = time.time()
        expression = catalogue.fill(
            catalogue.BLOCKS,
            scope=catalogue.matcher("namespace", (self.serving.namespace,)),
            pods=catalogue.alternatives(self.pods),
            models=catalogue.alternatives((MODEL,)),
            window=f"{at - self.start:.0f}s",
        )
        store = BlockStore()
        store.add(self.prometheus.matrix(expression, at), at)
        return store.blocks(self.serving.namespace, self.pods, {MODEL: MEAN_TARGET_S}, at)

    def wait_for_blocks(self) -> tuple[LatencyBlock, ...]:
        """Enough of them for every canary."""

        def enough() -> tuple[LatencyBlock, ...] | None:
            found = self.blocks()
            return found if found and found[-1].start - found[0].start >= NEEDED_S else None

        return until("the recording", enough, NEEDED_S + 60, pause=5)


def looks(blocks: tuple[LatencyBlock, ...], count: int) -> list[Finding]:
    """The first `count` verdicts: a canary ends with its last look, or with the first that is better or worse."""
    found: list[Finding] = []
    for canary, started in _canaries(blocks):
        found += _watched(blocks, canary, started)
    return found[:count]


def _canaries(blocks: tuple[LatencyBlock, ...]) -> Iterator[tuple[str, float]]:
    first = blocks[0].start + BEFORE_S
    for number in range(CANARIES_PER_POD):
        for pod in sorted({block.pod for block in blocks}):
            yield pod, first + number * APART_S


def _watched(blocks: tuple[LatencyBlock, ...], canary: str, started: float) -> Iterator[Finding]:
    """One canary, asked anew with every further block as the operator does with every tick."""
    change = Change(
        id="unchanged",
        lever="none",
        settings=UNCHANGED,
        before=UNCHANGED,
        pods=(canary,),
        phase=Phase.ANALYSE,
        since=started,
        started=started,
        live=True,
    )
    for end in sorted({block.start + block.seconds for block in blocks if block.start >= started}):
        seen = tuple(block for block in blocks if block.start + block.seconds <= end)
        finding = compare(_view(seen), change, POLICY, end)
        if finding.comparison is Comparison.EARLY:
            continue
        yield finding
        if finding.final or finding.comparison is not Comparison.INCONCLUSIVE:
            return
        change = replace(change, looks=finding.looks)


def _view(blocks: tuple[LatencyBlock, ...]) -> ServerView:
    pods = tuple(
        PodView(name=name, ready=True, terminating=False, started=0.0)
        for name in sorted({block.pod for block in blocks})
    )
    return ServerView(
        namespace="",
        resource="",
        name="",
        pool="",
        gpus_per_replica=0,
        min_replicas=len(pods),
        max_replicas=len(pods),
        desired_replicas=len(pods),
        managed=True,
        pods=pods,
        models={},
        pipelines=(),
        blocks=blocks,
    )
