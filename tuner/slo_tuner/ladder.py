"""The cheapest lever that is predicted to help, and the memory of what was tried.

A new lever is one module in `levers/` and one line in LEVERS.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slo_tuner.capacity.server import ServerModel
from slo_tuner.decision import LeverAdvice, Verdict
from slo_tuner.levers.base import MIN_GAIN, Context, Lever, Proposal, effect
from slo_tuner.levers.batching import DynamicBatching
from slo_tuner.levers.instances import ForwardInstances
from slo_tuner.levers.mig import MigGeometry
from slo_tuner.levers.preprocess import PreprocessInstances
from slo_tuner.levers.preprocess_pool import PreprocessPool
from slo_tuner.levers.replicas import Replicas
from slo_tuner.memory import ServerMemory, Tried
from slo_tuner.settings import PodSettings

LEVERS: tuple[Lever, ...] = (
    PreprocessInstances(),
    PreprocessPool(),
    DynamicBatching(),
    ForwardInstances(),
    Replicas(),
    MigGeometry(),
)

BETTER, WORSE, INCONCLUSIVE, REFUSED = "better", "worse", "inconclusive", "refused"
OVERLOAD = 0.95  # busy in bursts
RELIEF = 0.2
MAX_REFUSALS = 2
FORGET_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Rung:
    """One lever's word and, when it would do something, its proposal and the fingerprint of the evidence."""

    advice: LeverAdvice
    proposal: Proposal | None = None
    fingerprint: str = ""


def climb(
    ctx: Context, memory: ServerMemory, needed: bool, now: float, *, scaling: bool = True
) -> tuple[Rung, ...]:
    """Every lever's word, cheapest first; the first one that is predicted to help is Recommended when `needed`.

    Without `scaling` none that takes more GPUs is.
    """
    rungs: list[Rung] = []
    chosen = not needed
    for lever in sorted(LEVERS, key=lambda one: one.price):
        rung = _ask(ctx, lever, memory, now)
        if (
            not chosen
            and rung.proposal is not None
            and (scaling or rung.proposal.replicas is None)
            and rung.advice.verdict is Verdict.ELIGIBLE
            and _helps(ctx, rung)
        ):
            a = rung.advice
            rung = Rung(
                replace(a, verdict=Verdict.RECOMMENDED),
                rung.proposal,
                rung.fingerprint,
            )
            chosen = True
        rungs.append(rung)
    return tuple(rungs)


def recommended(rungs: Sequence[Rung]) -> Rung | None:
    return next((r for r in rungs if r.advice.verdict is Verdict.RECOMMENDED), None)


def _ask(ctx: Context, lever: Lever, memory: ServerMemory, now: float) -> Rung:
    why_not = lever.eligible(ctx)
    if why_not is not None:
        return Rung(LeverAdvice(lever.name, Verdict.INELIGIBLE, why_not))
    proposal = lever.propose(ctx)
    if proposal is None:
        return Rung(
            LeverAdvice(
                lever.name, Verdict.INELIGIBLE, "nothing to gain: the present setting is what it would choose"
            )
        )
    key = fingerprint(ctx, lever.name, proposal)
    past = exhausted(memory, lever.name, key, now)
    if past is not None:
        return Rung(
            LeverAdvice(
                lever.name, Verdict.EXHAUSTED, f"tried under the same load: {past.outcome}", proposal.settings
            )
        )
    predictions = effect(ctx, proposal)
    predicted = None
    if predictions is not None:
        predicted = round(max(p.quantile_s for p in predictions.values()) - proposal.saves_s, 2)
    advice = LeverAdvice(
        lever.name,
        Verdict.ELIGIBLE,
        proposal.why,
        proposal.settings,
        proposal.replicas,
        predicted,
        proposal.pool_replicas,
    )
    return Rung(advice, proposal, key)


def _helps(ctx: Context, rung: Rung) -> bool:
    """Predicted: the worst pipeline gets at least 3 % closer to its target, or some mean falls by 3 % while none that
    is over its target gets worse.
    """
    if rung.proposal is None:
        return False
    if isinstance(ctx.model, str):
        return rung.proposal.replicas is not None and ctx.stuck() > 0
    model: ServerModel = ctx.model
    before = model.predict()
    if rung.proposal.saves_s > 0:
        return rung.proposal.saves_s >= MIN_GAIN * max(p.quantile_s for p in before.values())
    after = model.predict(rung.proposal.settings, rung.proposal.replicas)
    worst = model.worst_ratio(before)
    if model.worst_ratio(after) <= worst * (1.0 - MIN_GAIN):
        return True
    if _relieves(model, rung.proposal):
        return True
    gains = any(after[m].mean_s <= before[m].mean_s * (1.0 - MIN_GAIN) for m in before)
    return gains and model.worst_ratio(after) <= worst * (1.0 + MIN_GAIN)


def _relieves(model: ServerModel, proposal: Proposal) -> bool:
    """Whether it takes a stage out of overload. With two stages overloaded no single lever shortens the whole, and
    still each has to be turned."""
    return any(
        (before := model.busy_at_peak(m)) >= OVERLOAD
        and model.busy_at_peak(m, proposal.settings, proposal.replicas) <= before * (1.0 - RELIEF)
        for m in model.loads
    )


def fingerprint(ctx: Context, lever: str, proposal: Proposal) -> str:
    """The evidence under which a lever is tried: load band (half an octave), what it would set, and all other settings.

    The same setting is worth another try when the load is another one or other levers have moved.
    """
    total = 0.0 if isinstance(ctx.model, str) else sum(p.rate_rps for p in ctx.model.pipelines)
    band = 0 if total <= 0 else round(2.0 * math.log2(total))
    return f"{lever}|{band}|{digest(proposal.settings)}|{proposal.replicas or 0}|{digest(ctx.stable)}"


def digest(settings: PodSettings) -> str:
    text = ";".join(f"{name}={settings[name]!r}" for name in sorted(settings))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def exhausted(memory: ServerMemory, lever: str, key: str, now: float) -> Tried | None:
    """The try that rules a lever out under this evidence. Half an octave has a blurred edge: neighbours count too.

    Refusals count whatever the lever would set and whatever the load: a server that refused four processes twice
    must not be asked for five when there is a little more to do.
    """
    refusals = 0
    for t in reversed(memory.tried):
        if t.lever != lever or now - t.at > FORGET_S:
            continue
        if t.outcome in (WORSE, INCONCLUSIVE) and _same_evidence(t.fingerprint, key):
            return t
        if t.outcome == REFUSED and _stable(t.fingerprint) == _stable(key):
            refusals += 1
            if refusals >= MAX_REFUSALS:
                return t
    return None


def _same_evidence(a: str, b: str) -> bool:
    """Whether two fingerprints speak of the same load, proposal and settings."""
    pa, pb = a.split("|"), b.split("|")
    if len(pa) != len(pb) or len(pa) < 2 or pa[0] != pb[0] or pa[2:] != pb[2:]:
        return False
    try:
        return abs(int(pa[1]) - int(pb[1])) <= 1
    except ValueError:
        return False


def _stable(fingerprint: str) -> str:
    """The part of a fingerprint that stands for the settings of record."""
    return fingerprint.rpartition("|")[2]
