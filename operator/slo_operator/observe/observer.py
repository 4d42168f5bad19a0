"""Gathering: one round of questions for all resources together, then one picture per server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slo_operator.api.names import pool_of
from slo_operator.api.resource import InferenceSLO
from slo_operator.api.spec import Pool, Server
from slo_operator.config import GatewayHistogramConfig
from slo_operator.observe.blocks import HISTORY_S, BlockStore
from slo_operator.observe.cluster import ClusterState
from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.measure import FIRST_WINDOW_S, Scope, measure, next_window
from slo_operator.observe.measured import Measurements, PodKey
from slo_operator.observe.misses import GatewayStore, TracedMisses
from slo_operator.observe.prometheus import Querier
from slo_operator.observe.records import DeploymentRecord, PodRecord
from slo_operator.observe.snapshot import Observed
from slo_operator.observe.traces import TraceBuffer
from slo_operator.render.context import child_names
from slo_tuner.memory import ServerMemory
from slo_tuner.settings import PodSettings
from slo_tuner.snapshot import Refusal

#: distinct SLO windows that are asked of gateways in one tick
MAX_SLO_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """One server of one resource, with what is remembered of it and the key to its control."""

    resource: InferenceSLO
    server: Server
    memory: ServerMemory
    tuned: PodSettings
    key: str

    @property
    def id(self) -> tuple[str, str]:
        return self.resource.uid, self.server.name

    @property
    def pool(self) -> Pool:
        return self.resource.spec.pool(self.server.pool)

    @property
    def deployment_name(self) -> str:
        if self.server.target is not None:
            return self.server.target.deployment
        return child_names(self.resource.name, self.server.name).deployment


@dataclass(frozen=True, slots=True)
class Round:
    """What one tick saw: `seen` per server, `live` per pod, and the measurements behind both."""

    seen: Mapping[tuple[str, str], Observed]
    live: Mapping[PodKey, LivePod]
    measured: Measurements


class Observer:
    """Asks pods and Prometheus. Keeps only what a restart may lose: the rate window and raw scrapes."""

    def __init__(
        self,
        querier: Querier,
        reader: LiveReader,
        traces: TraceBuffer,
        gateways: Sequence[GatewayHistogramConfig],
        workers: ThreadPoolExecutor | None,
        clock: Callable[[], float],
    ):
        self._querier = querier
        self._reader = reader
        self._traces = traces
        self._gateways = tuple(gateways)
        self._workers = workers
        self._clock = clock
        self._window_s = FIRST_WINDOW_S
        self._store = BlockStore()
        self._answered = GatewayStore(HISTORY_S)

    def observe(
        self,
        subjects: Sequence[Subject],
        state: ClusterState,
        refusals: Mapping[tuple[str, str], tuple[Refusal, ...]],
    ) -> Round:
        """One round. Never raises over a pod or a Prometheus that does not answer."""
        deployments = {s.id: _deployment(s, state) for s in subjects}
        pods = {s.id: state.pods_of(d) if (d := deployments[s.id]) else [] for s in subjects}
        live = self._reader.read(
            [(p, s.key) for s in subjects for p in pods[s.id]], self._clock(), state.pods.keys()
        )
        now = self._clock()
        members = {s.id: _members(s.server, [live.get(p.meta.key) for p in pods[s.id]]) for s in subjects}
        measured = self._measure(subjects, pods, members, now)
        traces = self._traces.by_pod(now)
        seen = {}
        for subject in subjects:
            names = [p.meta.name for p in pods[subject.id]]
            mine = tuple(t for name in names for t in traces.get(name, ()))
            addresses = {p.meta.name: p.ip for p in pods[subject.id]}
            answered = self._answered.of(subject.resource.namespace, addresses)
            stage_pool = _stage_pool(subject, state)
            seen[subject.id] = Observed(
                namespace=subject.resource.namespace,
                resource=subject.resource.name,
                server=subject.server,
                pool=subject.pool,
                deployment=deployments[subject.id],
                pods=pods[subject.id],
                nodes=state.nodes,
                live=live,
                measured=measured,
                blocks=self._store.blocks(
                    subject.resource.namespace,
                    names,
                    _targets(subject.server),
                    now,
                    members=members[subject.id],
                    sources=(answered, TracedMisses(mine)),
                ),
                traces=mine,
                refusals=refusals.get(subject.id, ()),
                tuned=subject.tuned,
                canaries=frozenset(subject.memory.change.pods if subject.memory.change else ()),
                last_action=subject.memory.last_action,
                stage_pool=stage_pool,
                pool_pods=state.pods_of(stage_pool) if stage_pool else (),
            )
        return Round(seen, live, measured)

    def _measure(
        self,
        subjects: Sequence[Subject],
        pods: Mapping[tuple[str, str], Sequence[PodRecord]],
        members: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]],
        now: float,
    ) -> Measurements:
        if not subjects:
            return Measurements(now, self._window_s, failure="nothing is served")
        keys = [p.meta.key for s in subjects for p in pods[s.id] if p.ready]
        scope = Scope(
            namespaces=tuple(sorted({s.resource.namespace for s in subjects})),
            probes=tuple(sorted({s.server.models[0].name for s in subjects})),
            slo_windows_s=tuple(
                sorted({m.slo.window.seconds for s in subjects for m in s.server.models})[:MAX_SLO_WINDOWS]
            ),
            block_pods=tuple(sorted({name for _, name in keys})),
            block_models=tuple(
                sorted(
                    {m.name for s in subjects for m in s.server.models}
                    | {name for one in members.values() for parts in one.values() for name in parts}
                )
            ),
            block_seconds=self._store.seconds_to_ask(keys, now),
            targets_s=tuple(sorted({t for s in subjects for t in _targets(s.server).values()})),
            miss_seconds=self._answered.seconds_to_ask(now),
        )
        measured = measure(self._querier, scope, self._window_s, now, self._gateways, self._workers)
        self._store.add(measured.blocks, now)
        for config, series in measured.misses:
            self._answered.add(config, series, now)
        if measured.coverage:
            self._window_s = next_window(measured.coverage.values())
        return measured


def _deployment(subject: Subject, state: ClusterState) -> DeploymentRecord | None:
    found = state.deployments.get((subject.resource.namespace, subject.deployment_name))
    return _ours(subject, found) if subject.server.managed else found


def _stage_pool(subject: Subject, state: ClusterState) -> DeploymentRecord | None:
    if subject.server.preprocess_pool is None:
        return None
    name = child_names(subject.resource.name, pool_of(subject.server.name)).deployment
    return _ours(subject, state.deployments.get((subject.resource.namespace, name)))


def _ours(subject: Subject, found: DeploymentRecord | None) -> DeploymentRecord | None:
    """None for somebody else's of the same name."""
    return found if found is not None and found.meta.owner == subject.resource.uid else None


def _members(server: Server, live: Sequence[LivePod | None]) -> dict[str, tuple[str, ...]]:
    """Client-facing model → the models of its ensemble, as some pod that answers has it."""
    known = next((pod.models for pod in live if pod is not None and pod.models), {})
    return {
        m.name: tuple(dict.fromkeys(step.model for step in known[m.name].steps))
        for m in server.models
        if m.name in known
    }


def _targets(server: Server) -> dict[str, float]:
    """Client-facing model → the target that its misses are counted against: of its highest quantile."""
    targets = {}
    for model in server.models:
        latency = model.slo.latency
        strictest = latency.p99 or latency.p95 or latency.p90 or latency.p50 or latency.mean
        if strictest is not None:
            targets[model.name] = strictest.seconds
    return targets
