"""Carrying out one server's decision: memory first, then children, then pods.

Every step is a state to be reached, so a crash between two of them is finished by the next tick.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from slo_operator.act.apply import Applier, NotOursError
from slo_operator.act.children import ControlKeys, reconcile_children, reconcile_pool
from slo_operator.act.control import Controller, ControlResult
from slo_operator.act.events import EventRecorder, Subject
from slo_operator.act.tracing import set_traces, trace_rate
from slo_operator.config import TracesConfig
from slo_operator.kube import KubeError
from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.measured import PodKey
from slo_operator.observe.records import DeploymentRecord
from slo_operator.render.context import ServerContext
from slo_operator.render.stage_pool import PoolContext
from slo_operator.state import MemoryStore
from slo_tuner.decision import Decision, Reason
from slo_tuner.memory import ServerMemory
from slo_tuner.settings import PodSettings
from slo_tuner.signal import value_or_none
from slo_tuner.snapshot import Refusal

log = logging.getLogger(__name__)

_WARNINGS = {
    Reason.LOAD_REFUSED,
    Reason.ROLLED_BACK,
    Reason.NO_CAPACITY,
    Reason.INFEASIBLE,
    Reason.BUDGET_SPENT,
    Reason.CANARY_ABANDONED,
}


@dataclass(frozen=True, slots=True)
class Task:
    """One managed server's work in this tick. `decision` None: the children are still as declared."""

    subject: Subject
    context: ServerContext
    config_hash: str
    deployment: DeploymentRecord | None
    decision: Decision | None
    tuned: PodSettings
    live: Mapping[PodKey, LivePod]
    #: the decision stands on a picture that holds for this configuration
    remember: bool = True
    #: the pool as it should be; None leaves it alone, without replicas it is pruned
    pool: PoolContext | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What became of it. `stalled` needs people; `error` is tried again with the next tick."""

    stalled: str = ""
    error: str = ""
    problem: str = ""
    refusals: tuple[Refusal, ...] = ()
    loads: int = 0
    contested: tuple[str, ...] = ()


class Actor:
    """Does what decisions say; decides nothing."""

    def __init__(
        self,
        applier: Applier,
        keys: ControlKeys,
        memory: MemoryStore,
        controller: Controller,
        reader: LiveReader,
        events: EventRecorder,
        traces: TracesConfig,
    ):
        self._applier = applier
        self._keys = keys
        self._memory = memory
        self._controller = controller
        self._reader = reader
        self._events = events
        self._traces = traces

    def carry_out(self, task: Task) -> Done:
        """State, then children, then pods. Errors are returned, never raised: other servers go on."""
        context = task.context
        try:
            if task.decision is not None and task.remember:
                self._memory.save(task.subject, context, task.decision.memory, task.config_hash)
            tuned = tuned_settings(task)
            reconcile_children(self._applier, self._keys, task.subject, context, tuned, task.deployment)
            if task.pool is not None and task.pool.replicas:
                reconcile_pool(self._applier, task.subject, task.pool)
        except NotOursError as error:
            return Done(stalled=str(error))
        except KubeError as error:
            invalid = error.status in (400, 403, 422)
            return Done(stalled=str(error)) if invalid else Done(error=str(error))
        result = self._control(task)
        return Done(
            problem=result.problem,
            refusals=tuple(result.refusals),
            loads=result.loads,
            contested=tuple(c.message for c in self._applier.contests(context.namespace, _names(context))),
        )

    def _control(self, task: Task) -> ControlResult:
        decision, context = task.decision, task.context
        if decision is None:
            return ControlResult()
        rate = None
        if self._traces.enabled:
            rate = trace_rate(value_or_none(decision.assessment.arrivals_rps) or 0.0, self._traces.rate)
        # before the loads: a pod must not begin to batch while it is traced
        problem = set_traces(self._reader, task.live, decision.settings, rate)
        gpus = context.server.accelerator.gpus
        result = self._controller.carry_out(context.namespace, decision.settings, task.live, gpus)
        result.problem = result.problem or problem
        return result

    def announce(
        self, subject: Subject, server: str, decision: Decision, refusals: tuple[Refusal, ...]
    ) -> None:
        """An event for each thing that was begun or ended, and for each refused load."""
        if decision.acted:
            post = self._events.warning if decision.reason in _WARNINGS else self._events.normal
            post(subject, decision.reason.value, f"{server}: {decision.message}", "Tune")
        for r in refusals:
            self._events.warning(
                subject, Reason.LOAD_REFUSED.value, f"{server}: {r.pod} {r.model}: {r.message}"
            )


def tuned_settings(task: Task) -> PodSettings:
    """What pods that start now must come up with: the stable settings that differ from the repository's.

    Models that nobody tuned stay out, so that a new image's own configuration is not overridden by
    what an older one had.
    """
    decision = task.decision
    if decision is None or not task.remember or not decision.stable:
        return task.tuned
    memory: ServerMemory = decision.memory
    return {m: s for m, s in decision.stable.items() if memory.original.get(m) != s}


def _names(context: ServerContext) -> set[str]:
    n = context.names
    return {n.deployment, n.service, n.headless, n.tuned, n.budget, n.network_policy}
