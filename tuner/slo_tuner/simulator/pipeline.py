"""Discrete events: two or more pods, each preprocess → forward (batches) → postprocess.

Arrivals are open-loop Poisson with periodic bursts; a gateway routes by least outstanding requests or
at random. Settings may change while requests are in flight, as they do on a live server: running
executions finish, the queue stays. Executions on one pod's GPUs slow each other once their busy
shares add up to more than its GPUs, processes once they outnumber the pod's cores. A stage that was
moved is computed by the processes of the pool, which all pods share.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from slo_tuner.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class SimModel:
    """Time of a batch: base_s + per_item_s × batch, times 1 ± jitter; `gpu_share` of one GPU while it runs."""

    name: str
    base_s: float
    per_item_s: float = 0.0
    jitter: float = 0.0
    gpu_share: float = 0.0


@dataclass(frozen=True, slots=True)
class SimPipeline:
    """One client-facing model: its members in order and its share of the traffic."""

    model: str
    members: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that stays: models, pipelines, bursts, hosts. `burst_factor` × the mean for `burst_s`
    in every `period_s`; `routing` is "least" (outstanding) or "random". `other_cores` is what else the host
    does. `pool_limit`: most replicas of the pool, 0 for none declared.
    """

    models: tuple[SimModel, ...]
    pipelines: tuple[SimPipeline, ...]
    start: dict[str, ModelSettings]
    pods: tuple[str, ...] = ("pod-a", "pod-b")
    gpus_per_pod: int = 2
    cores_per_pod: float = 16.0
    burst_factor: float = 1.6
    burst_s: float = 5.0
    period_s: float = 20.0
    routing: str = "least"
    other_cores: float = 0.0
    pool_limit: int = 0
    pool_processes: int = 2
    pool_network_s: float = 0.002


@dataclass(slots=True)
class SimRequest:
    """One request and, per member, (waited, computed, batch)."""

    pod: str
    model: str
    members: tuple[str, ...]
    start: float
    end: float = 0.0
    step: int = 0
    queued: float = 0.0
    stages: dict[str, tuple[float, float, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Queue:
    model: SimModel
    settings: ModelSettings
    waiting: deque[SimRequest] = field(default_factory=deque)
    running: int = 0


@dataclass(slots=True)
class _PoolQueue:
    """Batches that wait for a process of the pool: (pod, batch, since when the pod waits)."""

    waiting: deque[tuple[str, list[SimRequest], float]] = field(default_factory=deque)
    running: int = 0


class Simulation:
    """Run with `run_until`; change `rate_rps` and call `apply` between runs. All randomness is seeded."""

    def __init__(self, scenario: Scenario, rate_rps: float, seed: int) -> None:
        self.scenario = scenario
        self.rate_rps = rate_rps
        self.now = 0.0
        self.done: list[SimRequest] = []
        self.executions: list[tuple[float, str, str, int, float]] = []  # end, pod, model, batch, seconds
        self._random = random.Random(seed)  # noqa: S311 - reproducible arrivals, no secrets
        self._ids = itertools.count()
        self._events: list[tuple[float, int, str, tuple[Any, ...]]] = []
        self._models = {m.name: m for m in scenario.models}
        self._queues: dict[tuple[str, str], _Queue] = {}
        self.outstanding: dict[str, int] = {}
        self.pool_replicas = 0
        self.pool_stages: tuple[str, ...] = ()
        self.pool_executions: list[tuple[float, str, float]] = []  # end, model, seconds
        self._pool_queues: dict[str, _PoolQueue] = {}
        for pod in scenario.pods:
            self.add_pod(pod, scenario.start)
        self._push(0.0, "arrival", ())

    def add_pod(self, pod: str, settings: dict[str, ModelSettings]) -> None:
        self.outstanding[pod] = 0
        for name, model in self._models.items():
            self._queues[pod, name] = _Queue(model, settings[name])

    def settings(self, pod: str) -> dict[str, ModelSettings]:
        return {name: self._queues[pod, name].settings for name in self._models}

    def apply(self, pod: str, settings: dict[str, ModelSettings]) -> bool:
        """Load settings on one pod, in place; True when anything changed."""
        changed = False
        for name, wanted in settings.items():
            queue = self._queues.get((pod, name))
            if queue is not None and queue.settings != wanted:
                queue.settings = wanted
                changed = True
                self._start_work(pod, name)
        return changed

    def set_pool(self, replicas: int, stages: tuple[str, ...]) -> None:
        """The pool's size; a replica serves at once."""
        self.pool_replicas, self.pool_stages = replicas, stages
        for name in self._pool_queues:
            self._start_pool(name)

    def forget(self, before: float) -> None:
        """Drop executions that ended before this time; requests are kept, they are the result."""
        self.executions = [e for e in self.executions if e[0] >= before]
        self.pool_executions = [e for e in self.pool_executions if e[0] >= before]

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, kind, payload = heapq.heappop(self._events)
            if kind == "arrival":
                self._arrive()
            elif kind == "wake":
                self._start_work(*payload)
            elif kind == "pool":
                self._finish_in_pool(*payload)
            else:
                self._finish(*payload)
        self.now = end

    def rate_at(self, t: float) -> float:
        """Arrival rate of the moment: bursts of `burst_factor` × the mean, the rest of the period below it."""
        s = self.scenario
        share = s.burst_s / s.period_s
        quiet = (1.0 - share * s.burst_factor) / (1.0 - share)
        return self.rate_rps * (s.burst_factor if t % s.period_s < s.burst_s else quiet)

    def _push(self, t: float, kind: str, payload: tuple[Any, ...]) -> None:
        heapq.heappush(self._events, (t, next(self._ids), kind, payload))

    def _arrive(self) -> None:
        # thinning: candidates at the highest rate, kept in proportion to the rate of the moment
        highest = self.rate_rps * max(1.0, self.scenario.burst_factor)
        if self._random.random() * highest <= self.rate_at(self.now):
            pipeline = self._pick_pipeline()
            pod = self._route()
            self.outstanding[pod] += 1
            self._enqueue(SimRequest(pod, pipeline.model, pipeline.members, self.now))
        self._push(self.now + self._random.expovariate(highest), "arrival", ())

    def _pick_pipeline(self) -> SimPipeline:
        weights = [p.share for p in self.scenario.pipelines]
        return self._random.choices(self.scenario.pipelines, weights)[0]

    def _route(self) -> str:
        pods = list(self.outstanding)
        if self.scenario.routing == "random":
            return self._random.choice(pods)
        least = min(self.outstanding.values())
        return self._random.choice([p for p in pods if self.outstanding[p] == least])

    def _enqueue(self, request: SimRequest) -> None:
        name = request.members[request.step]
        request.queued = self.now
        queue = self._queues[request.pod, name]
        queue.waiting.append(request)
        self._start_work(request.pod, name)

    def _start_work(self, pod: str, name: str) -> None:
        queue = self._queues[pod, name]
        settings = queue.settings
        while queue.waiting and queue.running < settings.instances:
            size = 1
            if settings.batching is not None and settings.max_batch_size > 1:
                size = min(len(queue.waiting), settings.max_batch_size)
                ready_at = queue.waiting[0].queued + settings.batching.delay_us / 1e6
                if (
                    size < settings.max_batch_size
                    and size not in settings.batching.preferred_sizes
                    and self.now < ready_at - 1e-9
                ):
                    self._push(ready_at, "wake", (pod, name))
                    return
            batch = [queue.waiting.popleft() for _ in range(size)]
            self._execute(pod, queue, batch)

    def _execute(self, pod: str, queue: _Queue, batch: list[SimRequest]) -> None:
        model = queue.model
        queue.running += 1
        if queue.settings.remote is not None and self.pool_replicas and model.name in self.pool_stages:
            self._pool_queues.setdefault(model.name, _PoolQueue()).waiting.append((pod, batch, self.now))
            self._start_pool(model.name)
            return
        seconds = self._seconds(model, len(batch)) * self._contention(pod, model)
        self._push(self.now + seconds, "finish", (pod, model.name, batch, self.now))

    def _seconds(self, model: SimModel, size: int) -> float:
        seconds = model.base_s + model.per_item_s * size
        if model.jitter > 0.0:
            seconds *= self._random.lognormvariate(-0.5 * model.jitter**2, model.jitter)
        return seconds

    def _start_pool(self, name: str) -> None:
        queue = self._pool_queues[name]
        while queue.waiting and queue.running < self.pool_replicas * self.scenario.pool_processes:
            pod, batch, since = queue.waiting.popleft()
            queue.running += 1
            seconds = self._seconds(self._models[name], len(batch))
            self.pool_executions.append((self.now + seconds, name, seconds))
            self._push(self.now + seconds + self.scenario.pool_network_s, "pool", (pod, name, batch, since))

    def _finish_in_pool(self, pod: str, name: str, batch: list[SimRequest], since: float) -> None:
        self._pool_queues[name].running -= 1
        self._finish(pod, name, batch, since)
        self._start_pool(name)

    def _contention(self, pod: str, model: SimModel) -> float:
        running = [q for (p, _), q in self._queues.items() if p == pod and q.running > 0]
        if model.gpu_share > 0.0:
            asked = sum(q.running * q.model.gpu_share for q in running)
            return max(1.0, asked / self.scenario.gpus_per_pod)
        here = [q for q in running if q.model.gpu_share == 0.0 and q.settings.remote is None]
        processes = sum(q.running for q in here) + self.scenario.other_cores
        return max(1.0, processes / self.scenario.cores_per_pod)

    def _finish(self, pod: str, name: str, batch: list[SimRequest], started: float) -> None:
        queue = self._queues[pod, name]
        queue.running -= 1
        self.executions.append((self.now, pod, name, len(batch), self.now - started))
        for request in batch:
            request.stages[name] = (started - request.queued, self.now - started, len(batch))
            request.step += 1
            if request.step < len(request.members):
                self._enqueue(request)
            else:
                request.end = self.now
                self.outstanding[pod] -= 1
                self.done.append(request)
        self._start_work(pod, name)
