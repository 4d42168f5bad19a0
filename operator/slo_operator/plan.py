"""From what was seen to what shall be done: the tuner's decision per server, in the order of priority."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slo_operator.act.apply import Applier
from slo_operator.act.carry_out import Done, Task
from slo_operator.act.children import ControlKeys, prune
from slo_operator.act.events import Subject as EventSubject
from slo_operator.api.names import ANNOTATION_CONFIG_HASH, pool_of
from slo_operator.api.resource import InferenceSLO
from slo_operator.api.spec import Server, Workload
from slo_operator.api.to_tuner import policy_of
from slo_operator.config import OperatorConfig
from slo_operator.kube import Kube, KubeError
from slo_operator.observe.cluster import Cluster
from slo_operator.observe.ledger import Ledger
from slo_operator.observe.observer import Round, Subject
from slo_operator.observe.records import DeploymentRecord
from slo_operator.observe.snapshot import Observed, server_view
from slo_operator.outcome import ServerOutcome
from slo_operator.render.context import Observed as ObservedTimes
from slo_operator.render.context import ServerContext
from slo_operator.render.deployment import config_hash
from slo_operator.render.stage_pool import PoolContext
from slo_operator.state import MemoryStore
from slo_tuner.decision import Decision, Reason
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.snapshot import PoolView, ServerView

log = logging.getLogger(__name__)

Decide = Callable[[ServerView, PoolView, ServerMemory, Policy, float], Decision]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server's tick up to the point where something is done. `task` None: nothing may be written."""

    subject: Subject
    seen: Observed
    view: ServerView | None
    decision: Decision | None
    task: Task | None
    config_hash: str
    error: str = ""
    since_unavailable: float | None = None

    @property
    def event_subject(self) -> EventSubject:
        r = self.subject.resource
        return EventSubject(r.namespace, r.name, r.uid)

    @property
    def keeps_pool(self) -> bool:
        """Whether a pool that is there stays: one is declared and nothing says that it is empty, or a stage has yet
        to come back from it."""
        if self.subject.server.preprocess_pool is None:
            return self._forwards
        pool = self.task.pool if self.task is not None else None
        return pool is None or pool.replicas > 0

    @property
    def _forwards(self) -> bool:
        """Whether a pod may still ask the pool. One that serves or ends and does not say what it runs may."""
        if self.decision is None or self.view is None:
            return True
        stable = self.decision.stable.values()
        pods = [p.settings for p in self.view.pods if p.ready or p.terminating]
        runs = [s for settings in pods for s in settings.values()]
        return not all(pods) or any(s.remote is not None for s in (*stable, *runs))

    def outcome(self, done: Done | None, cluster: Cluster) -> ServerOutcome:
        """With what became of it; the Deployment is read again, since acting may have changed it."""
        name = self.subject.deployment_name
        deployment = cluster.deployments.get(self.subject.resource.namespace, name)
        if deployment is not None and self.subject.server.managed:
            deployment = deployment if deployment.meta.owner == self.subject.resource.uid else None
        open_control = not self.subject.server.managed and any(
            live.configs
            for key, live in self.seen.live.items()
            if key in {p.meta.key for p in self.seen.pods}
        )
        return ServerOutcome(
            server=self.subject.server,
            deployment=deployment,
            view=self.view,
            decision=self.decision,
            config_hash=self.config_hash,
            stalled=done.stalled if done else "",
            error=self.error or (done.error if done else ""),
            problem=(done.problem if done else "") or _silent(self.seen),
            contested=done.contested if done else (),
            control_open=open_control,
            since_unavailable=self.since_unavailable,
        )


class Planner:
    """Prepares subjects, asks the tuner, and turns its answers into tasks."""

    def __init__(
        self,
        decide: Decide,
        kube: Kube,
        cluster: Cluster,
        keys: ControlKeys,
        memory: MemoryStore,
        applier: Applier,
        config: OperatorConfig,
        clock: Callable[[], float],
    ):
        self._decide = decide
        self._kube = kube
        self._cluster = cluster
        self._keys = keys
        self._memory = memory
        self._applier = applier
        self._config = config
        self._clock = clock
        self._wished: dict[tuple[str, str], int] = {}
        self._blind_since: dict[tuple[str, str], float] = {}

    def subjects(self, resources: Sequence[InferenceSLO]) -> list[Subject]:
        """Every server of every resource, who goes first in front: online before batch, then priority."""
        out = [self._subject(r, s) for r in resources for s in r.spec.servers]
        return sorted(
            out,
            key=lambda s: (
                s.server.workload is Workload.BATCH,
                -s.resource.spec.priority,
                s.resource.namespace,
                s.resource.name,
                s.server.name,
            ),
        )

    def plan(
        self, subjects: Sequence[Subject], seen: Round, ledger: Ledger
    ) -> dict[tuple[str, str], ServerPlan]:
        """Decide for each in turn; what earlier ones were promised is gone for later ones."""
        return {s.id: self._plan(s, seen.seen[s.id], ledger, subjects, seen) for s in subjects}

    def prune(self, resource: InferenceSLO, plans: Sequence[ServerPlan]) -> None:
        """Remove what belongs to servers that left the spec, and pools in which nothing runs. Raises KubeError."""
        if resource.spec.suspend:
            return
        subject = EventSubject(resource.namespace, resource.name, resource.uid)
        wanted = {s.name for s in resource.spec.servers}
        wanted |= {pool_of(plan.subject.server.name) for plan in plans if plan.keeps_pool}
        for gone in prune(self._kube, self._cluster, self._applier, subject, wanted):
            log.info("%s/%s: deleted %s: it is not wanted any more", resource.namespace, resource.name, gone)

    def _subject(self, resource: InferenceSLO, server: Server) -> Subject:
        if not server.managed:
            return Subject(resource, server, ServerMemory(), {}, "")
        context = self._context(resource, server, server.replicas.min)
        where = (resource.namespace, resource.name, server.name, resource.uid)
        try:
            key = self._keys.read(resource.namespace, context.names.secret)
        except KubeError as error:
            log.warning("%s/%s: control key: %s", resource.namespace, resource.name, error)
            key = ""
        memory = self._memory.load(*where, config_hash(context))
        return Subject(resource, server, memory, self._memory.tuned(*where), key)

    def _plan(
        self, subject: Subject, seen: Observed, ledger: Ledger, subjects: Sequence[Subject], whole: Round
    ) -> ServerPlan:
        server, resource = subject.server, subject.resource
        digest = config_hash(self._context(resource, server, 1)) if server.managed else ""
        rolling = server.managed and _rolling(seen.deployment, digest)
        view = decision = None
        error = ""
        pool = PoolView(subject.pool.name, 0, 0)
        try:
            view = server_view(seen)
            ours = {p.meta.key for s in subjects if _same_pool(s, subject) for p in whole.seen[s.id].pods}
            pool = ledger.pool(subject.pool.name, subject.pool.node_selector, subject.pool.max_gpus, ours)
            policy = policy_of(resource.spec, self._config.interval)
            if rolling:  # old and new pods are no picture of either: watch, and touch nothing
                decision = self._watch(view, pool, subject.memory, policy)
            else:
                decision = self._decide(view, pool, subject.memory, policy, self._clock())
        except Exception as failure:
            log.exception("%s/%s %s: no decision", resource.namespace, resource.name, server.name)
            error = f"no decision: {type(failure).__name__}: {failure}"
        task = None
        if server.managed and not resource.spec.suspend:
            task = self._task(subject, seen, decision, pool, digest, rolling)
            held = sum(p.gpus for p in seen.pods)
            ledger.promise(subject.pool.node_selector, task.context.replicas * server.accelerator.gpus - held)
        return ServerPlan(subject, seen, view, decision, task, digest, error, self._blind(subject, decision))

    def _watch(self, view: ServerView, pool: PoolView, memory: ServerMemory, policy: Policy) -> Decision:
        """What is seen while a rollout is under way; nothing is tuned, and nothing in flight is undone."""
        seen = self._decide(view, pool, memory, replace(policy, suspend=True), self._clock())
        return replace(
            seen,
            reason=Reason.WAITING,
            message="a rollout is under way: tuning waits until every pod runs the declared configuration",
            memory=memory,
            settings={},
            replicas=None,
            acted=False,
        )

    def _task(
        self,
        subject: Subject,
        seen: Observed,
        decision: Decision | None,
        pool: PoolView,
        digest: str,
        rolling: bool,
    ) -> Task:
        server, resource = subject.server, subject.resource
        replicas = self._replicas(subject, seen.deployment, decision)
        deployment = seen.deployment
        # Room for one more than is wanted, whatever runs now: so a rollout ends the way it began.
        surge = pool.limit_gpus >= (replicas + 1) * server.accelerator.gpus
        context = replace(
            self._context(resource, server, replicas), gpu_free=surge, observed=_times(decision)
        )
        live = {p.meta.key: seen.live[p.meta.key] for p in seen.pods if p.ready and p.meta.key in seen.live}
        return Task(
            subject=EventSubject(resource.namespace, resource.name, resource.uid),
            context=context,
            config_hash=digest,
            deployment=deployment,
            decision=decision,
            tuned=subject.tuned,
            live=live,
            remember=not rolling,
            pool=_pool(context, decision),
        )

    def _replicas(
        self, subject: Subject, deployment: DeploymentRecord | None, decision: Decision | None
    ) -> int:
        """The wish: decided, remembered, else what is there when the operator first sees it."""
        bounds = subject.server.replicas
        wish = decision.replicas if decision is not None else None
        if wish is None:
            wish = subject.memory.replicas
        if wish is None:
            wish = self._wished.get(subject.id)
        if wish is None:
            wish = deployment.replicas if deployment is not None else bounds.min
        wish = max(bounds.min, min(bounds.max, wish))
        self._wished[subject.id] = wish
        return wish

    def _context(self, resource: InferenceSLO, server: Server, replicas: int) -> ServerContext:
        traces = self._config.traces
        return ServerContext(
            namespace=resource.namespace,
            resource=resource.name,
            uid=resource.uid,
            server=server,
            pool=resource.spec.pool(server.pool),
            replicas=replicas,
            overlay_image=self._config.overlay_image,
            trace_url=traces.url if traces.enabled else None,
        )

    def _blind(self, subject: Subject, decision: Decision | None) -> float | None:
        """Since when nothing can be measured; None while it can."""
        if decision is None or decision.assessment.metrics_available:
            self._blind_since.pop(subject.id, None)
            return None
        return self._blind_since.setdefault(subject.id, self._clock())


def _pool(context: ServerContext, decision: Decision | None) -> PoolContext | None:
    """The pool that the decision wants; None where it wants nothing of it."""
    declared, wanted = context.server.preprocess_pool, decision.stage_pool if decision is not None else None
    if declared is None or decision is None or wanted is None:
        return None
    stages = {name: decision.stable[name] for name in wanted.stages if name in decision.stable}
    return PoolContext(context, declared, wanted.replicas if stages else 0, stages)


def _rolling(deployment: DeploymentRecord | None, digest: str) -> bool:
    """Whether pods of another configuration may still be there."""
    if deployment is None:
        return False
    if deployment.annotations.get(ANNOTATION_CONFIG_HASH) != digest:
        return True
    return deployment.observed_generation < deployment.generation or deployment.updated < min(
        deployment.total, deployment.replicas
    )


def _same_pool(one: Subject, other: Subject) -> bool:
    return one.resource.uid == other.resource.uid and one.server.pool == other.server.pool


def _times(decision: Decision | None) -> ObservedTimes:
    """Worst observed latency, for grace periods of pods that are rolled out anyway."""
    if decision is None:
        return ObservedTimes()
    seen = [o.observed_s for o in decision.assessment.objectives if o.observed_s is not None]
    return ObservedTimes(p99_s=max(seen, default=None))


def _silent(seen: Observed) -> str:
    """The first pod that is ready for clients and yet did not answer us."""
    for pod in seen.pods:
        live = seen.live.get(pod.meta.key)
        if pod.ready and not pod.meta.terminating and live is not None and live.error:
            return live.error
    return ""
