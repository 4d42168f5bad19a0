"""The control loop: one for the whole cluster. Observe → decide → act → status, at every tick anew.

Blocking calls run in threads with deadlines. A resource whose acting takes longer than a tick (a model
that loads for a minute) is left alone until it is done; the others go on. One bad resource never stops
the rest: its error becomes its condition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from slo_operator.act.carry_out import Actor
from slo_operator.api.resource import InferenceSLO, SpecError
from slo_operator.health import Health, Metrics
from slo_operator.kube import KubeError
from slo_operator.observe.cluster import Cluster
from slo_operator.observe.ledger import Ledger
from slo_operator.observe.observer import Observer
from slo_operator.plan import Planner, ServerPlan
from slo_operator.publish import Publisher
from slo_tuner.snapshot import Refusal

log = logging.getLogger(__name__)

#: after a wake-up, ticks are at least this far apart
MIN_GAP_S = 2.0
Body = Mapping[str, Any]
_Id = tuple[str, str]


@dataclass(slots=True)
class Parts:
    """What the loop is made of; each part is replaceable in tests."""

    cluster: Cluster
    observer: Observer
    planner: Planner
    actor: Actor
    publisher: Publisher
    health: Health
    metrics: Metrics


class Loop:
    """`resources` returns the bodies of all InferenceSLOs as last seen, None before all were seen once."""

    def __init__(
        self,
        parts: Parts,
        resources: Callable[[], Sequence[Body] | None],
        interval_s: float,
        clock: Callable[[], float],
        workers: ThreadPoolExecutor,
    ):
        self._parts = parts
        self._resources = resources
        self._interval_s = interval_s
        self._clock = clock
        self._workers = workers
        self._wake = threading.Event()
        self._acting: dict[str, Future[None]] = {}
        self._refusals: dict[_Id, tuple[Refusal, ...]] = {}

    def wake(self) -> None:
        """Something relevant changed: tick soon."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Tick until `stop`, every interval or when woken. Never raises."""
        while not stop.is_set():
            began = self._clock()
            self._wake.clear()
            try:
                bodies = self._resources() if self._parts.cluster.synced else None
                if bodies is None:
                    log.info("waiting for the first complete lists of resources, pods, nodes and children")
                    stop.wait(1.0)
                    continue
                self.tick(bodies)
            except Exception:
                if stop.is_set():
                    log.info("the last tick was cut short")
                    return
                self._parts.metrics.tick_failures.inc()
                log.exception("a tick failed; the next one begins afresh")
            spent = self._clock() - began
            stop.wait(max(0.0, min(MIN_GAP_S, self._interval_s) - spent))
            self._wake.wait(max(0.0, self._interval_s - max(spent, MIN_GAP_S)))

    def finish(self, seconds: float) -> bool:
        """Wait for what ticks began; whether all of it is done by then."""
        return not wait(list(self._acting.values()), timeout=seconds).not_done

    def tick(self, bodies: Sequence[Body]) -> None:
        """One round over every resource."""
        began = self._clock()
        parts = self._parts
        resources = self._idle_resources(bodies)
        state = parts.cluster.state()
        subjects = parts.planner.subjects(resources)
        refusals = {s.id: self._refusals.pop(s.id) for s in subjects if s.id in self._refusals}
        seen = parts.observer.observe(subjects, state, refusals)
        plans = parts.planner.plan(subjects, seen, Ledger(state))
        begun = {}
        for resource in resources:
            mine = [plans[s.id] for s in subjects if s.resource.uid == resource.uid]
            begun[resource.uid] = self._workers.submit(self._act, resource, mine)
        self._acting |= begun
        wait(list(begun.values()), timeout=self._interval_s)
        parts.metrics.observe_tick(self._clock() - began, seen.measured.failure is None)
        parts.health.ticked(self._clock())

    def _idle_resources(self, bodies: Sequence[Body]) -> list[InferenceSLO]:
        """Resources that can be read and are not being acted on; what cannot be read is reported."""
        uids = {str(b.get("metadata", {}).get("uid", "")) for b in bodies}
        self._acting = {uid: f for uid, f in self._acting.items() if not f.done()}
        self._refusals = {key: r for key, r in self._refusals.items() if key[0] in uids}
        self._parts.publisher.forget_all_but(uids)
        self._parts.metrics.forget_all_but(uids)
        out = []
        for body in bodies:
            if "deletionTimestamp" in body.get("metadata", {}):
                continue
            try:
                resource = InferenceSLO.parse(body)
            except SpecError as error:
                self._parts.publisher.invalid(body, error.problems)
                continue
            if resource.uid not in self._acting:
                out.append(resource)
        return out

    def _act(self, resource: InferenceSLO, plans: Sequence[ServerPlan]) -> None:
        """One resource, in a thread of its own. Never raises."""
        parts = self._parts
        try:
            outcomes = []
            for plan in plans:
                done = parts.actor.carry_out(plan.task) if plan.task is not None else None
                if done is not None and done.refusals:
                    self._refusals[plan.subject.id] = done.refusals
                if done is not None and plan.decision is not None:
                    parts.actor.announce(
                        plan.event_subject, plan.subject.server.name, plan.decision, done.refusals
                    )
                    parts.metrics.count_loads(done.loads, len(done.refusals))
                outcomes.append(plan.outcome(done, parts.cluster))
            parts.metrics.record(resource, outcomes)
            parts.publisher.publish(resource, outcomes)
            parts.planner.prune(resource, plans)
        except KubeError as error:  # the next tick tries again
            log.warning("%s/%s: %s", resource.namespace, resource.name, error)
        except Exception as error:
            log.exception("%s/%s: acting failed", resource.namespace, resource.name)
            parts.publisher.failed(resource, error)
