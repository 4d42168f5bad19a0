"""Whatever is seen: a decision, the same one each time, within the pool, with one change in flight at most."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import settings as config
from hypothesis import strategies as st

from slo_tuner.codec import memory_from_json, memory_to_json
from slo_tuner.decide import decide
from slo_tuner.decision import Reason
from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Mode, Policy
from slo_tuner.settings import Batching, ModelSettings
from slo_tuner.signal import Idle, Unknown, Value
from slo_tuner.snapshot import (
    BatchTime,
    GatewayHistogram,
    LatencyBlock,
    ModelRow,
    PodView,
    PoolView,
    Refusal,
    RequestTrace,
    ServerView,
    StageTime,
)
from tests.unit.tuner.builders import PIPELINE, SETTINGS, calm_rows, configs, histogram, server, starved_rows

NOW = 5_000.0
wild = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.0, 1e4)
signals = st.one_of(st.builds(Value, wild), st.just(Idle()), st.just(Unknown("gone")))
pod_names = st.sampled_from(["a", "b", "c"])
models = st.sampled_from([*SETTINGS, "ghost"])
model_settings = st.builds(
    ModelSettings,
    st.integers(0, 8),
    st.integers(0, 32),
    st.none() | st.builds(Batching, st.integers(0, 20_000)),
)
pod_settings = st.just(SETTINGS) | st.dictionaries(models, model_settings, max_size=4)
rows = st.builds(
    ModelRow, pod_names, models, wild, signals, signals, signals, signals, signals, signals, signals, signals, signals,
    pending=signals, waited=signals, computed=signals,
    quantiles=st.dictionaries(st.sampled_from([0.5, 0.9, 0.99, 0.999]), wild, max_size=3),
    compute_quantiles=st.dictionaries(st.sampled_from([0.5, 0.99]), wild, max_size=2),
    batches=st.lists(st.builds(BatchTime, st.integers(0, 20), st.integers(-1, 50), wild), max_size=3).map(tuple),
)  # fmt: skip
pods = st.builds(
    PodView, pod_names, st.booleans(), st.booleans(), st.sampled_from([0.0, NOW - 5.0]), gpus=st.integers(0, 4),
    settings=pod_settings, gpu_busy=st.dictionaries(st.just("g"), signals, max_size=1),
    gpu_memory_used_mib=st.dictionaries(st.just("g"), signals, max_size=1),
    gpu_memory_total_mib=st.dictionaries(st.just("g"), signals, max_size=1),
    cpu_used_cores=signals, cpu_limit_cores=signals,
)  # fmt: skip
blocks = st.builds(
    LatencyBlock, pod_names, st.just("chat"), wild, wild, wild, wild, wild, st.none() | wild,
    st.dictionaries(models, wild, max_size=2),
)  # fmt: skip
traces = st.builds(
    RequestTrace,
    pod_names,
    st.just("chat"),
    wild,
    wild,
    st.dictionaries(models, st.builds(StageTime, wild, wild), max_size=2),
)
gateways = st.builds(
    GatewayHistogram,
    st.just("chat"),
    wild,
    st.lists(st.tuples(wild, wild), max_size=4).map(tuple),
    wild,
    st.just("g"),
)
refusals = st.builds(Refusal, pod_names, models, model_settings, st.just("no"))
policies = st.builds(Policy, st.sampled_from(Mode), st.booleans(), reloads_per_hour=st.integers(0, 12))
views = st.builds(
    ServerView,
    namespace=st.just("n"),
    resource=st.just("r"),
    name=st.just("s"),
    pool=st.just("p"),
    gpus_per_replica=st.integers(0, 4),
    min_replicas=st.integers(0, 2),
    max_replicas=st.integers(2, 5),
    desired_replicas=st.integers(0, 5),
    managed=st.booleans(),
    pods=st.lists(pods, max_size=3, unique_by=lambda p: p.name).map(tuple),
    models=st.just(configs()) | st.just({}),
    pipelines=st.just((PIPELINE,)) | st.just(()),
    rows=st.lists(rows, max_size=6).map(tuple),
    traces=st.lists(traces, max_size=3).map(tuple),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    gateway=st.lists(gateways, max_size=1).map(tuple),
    refusals=st.lists(refusals, max_size=1).map(tuple),
    arrivals_rps=st.dictionaries(st.just("chat"), signals, max_size=1),
)
pools = st.builds(PoolView, st.just("p"), st.integers(0, 8), st.integers(0, 8))


@config(max_examples=60)
@given(view=views, pool=pools, policy=policies)
def test_decide_is_total_and_deterministic(view: ServerView, pool: PoolView, policy: Policy) -> None:
    memory = ServerMemory()
    for step in range(3):
        now = NOW + 15.0 * step
        first, second = (decide(view, pool, memory, policy, now) for _ in range(2))
        assert first == second
        assert memory_from_json(memory_to_json(first.memory)) == first.memory
        memory = first.memory
        for breakdown in first.assessment.breakdowns:
            assert math.isclose(sum(s.mean_s for s in breakdown.stages), breakdown.mean_s, rel_tol=1e-6)


@config(max_examples=60)
@given(view=views, pool=pools, policy=policies)
def test_what_it_wants_is_within_limits_and_leave(view: ServerView, pool: PoolView, policy: Policy) -> None:
    done = decide(view, pool, ServerMemory(), policy, NOW)
    if not policy.may_act or not view.managed:
        assert done.settings == {}
        assert done.replicas is None
    if done.replicas is not None:
        assert done.replicas <= view.max_replicas
        grown = max(0, done.replicas - view.desired_replicas)
        assert grown * view.gpus_per_replica <= pool.free_gpus
    assert set(done.settings) <= {p.name for p in view.ready_pods}
    changed = {name for name, s in done.settings.items() if dict(s) != {**done.memory.stable}}
    assert len(changed) <= 1, "a new setting is on one pod first"


def _hide(r: ModelRow, field: str, metric: Unknown | Value) -> ModelRow:
    return replace(r, **{field: metric})  # type: ignore[arg-type]


reasons_unknown = st.sampled_from(["requests", "request_s", "queue_s", "compute_infer_s"])


@given(
    field=reasons_unknown,
    which=pod_names,
    started=st.floats(0.0, NOW),
    metric=st.sampled_from([Unknown("x"), Value(math.nan)]),
)
def test_unknown_never_scales_down(field: str, which: str, started: float, metric: Unknown | Value) -> None:
    hidden = tuple(
        _hide(r, field, metric) if r.model == "chat" and which in (r.pod, "c") else r
        for p in ("a", "b")
        for r in calm_rows(p, 60.0)
    )
    view = server(rows=hidden, gateway=(histogram(5000, 5000),), arrivals_rps={"chat": Value(2.0)})
    memory = ServerMemory(stable=SETTINGS, calm_since=started)
    done = decide(view, PoolView("p", 4, 4), memory, Policy(Mode.AUTO), NOW)
    assert done.reason is not Reason.SCALED_DOWN
    assert done.replicas is None


@config(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["starved", "calm", "dark", "restart", "refuse", "follow"]),
            st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.OBSERVE]),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_never_two_changes_in_flight(story: list[tuple[str, Mode]]) -> None:
    """Whatever happens between ticks: at most one lever's settings differ from the stable ones, on its pods only."""
    memory, now = ServerMemory(), NOW
    live = {"a": dict(SETTINGS), "b": dict(SETTINGS)}
    started = {"a": 0.0, "b": 0.0}
    for event, mode in story:
        now += 15.0
        if event == "restart":
            live["a"], started["a"] = dict(memory.stable) or dict(SETTINGS), now - 1.0
        base = server()
        pods_now = tuple(replace(p, settings=live[p.name], started=started[p.name]) for p in base.pods)
        rows_now = {"dark": (), "calm": (*calm_rows("a"), *calm_rows("b"))}.get(
            event, (*starved_rows("a"), *starved_rows("b"))
        )
        view = replace(base, pods=pods_now, rows=rows_now)
        if event == "refuse" and memory.change is not None:
            name, want = next(iter(memory.change.settings.items()))
            view = replace(view, refusals=(Refusal(memory.change.pods[0], name, want, "no"),))
        before = memory.change
        done = decide(view, PoolView("p", 4, 4), memory, Policy(mode), now)
        memory = memory_from_json(memory_to_json(done.memory))
        if before is not None and memory.change is not None:
            assert memory.change.id == before.id, "a change ends before the next begins"
        for name, wanted in done.settings.items():
            differing = {m for m, s in wanted.items() if memory.stable[m] != s}
            assert differing <= set(memory.change.settings if memory.change else ())
            live[name] = dict(wanted)
