"""Which member of a pipeline does what, found out from the ensemble's graph and where the time goes.

The member with the most compute is the forward pass (among those on a GPU, when any is); what feeds
it is preprocessing, what it feeds is postprocessing. Roles that people wrote in `stages` stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from slo_tuner.snapshot import EnsembleStep, ModelConfig, Pipeline

_BEFORE: Final = re.compile(r"pre[-_]?proc|tokeni[sz]e|^pre([-_]|$)|encode", re.IGNORECASE)
_AFTER: Final = re.compile(r"post[-_]?proc|de[-_]?tokeni[sz]e|^post([-_]|$)|decode", re.IGNORECASE)


def with_roles(
    pipeline: Pipeline, models: Mapping[str, ModelConfig], compute_s: Mapping[str, float]
) -> Pipeline:
    """The pipeline with every member in a role.

    compute_s: mean compute seconds per request by model; members without traffic are left out, and as
    long as nothing is known at all only a GPU tells the forward pass.
    """
    steps = _flat(pipeline.model, models)
    if not steps:
        return pipeline if pipeline.forward else replace(pipeline, forward=(pipeline.model,))
    named = {*pipeline.preprocess, *pipeline.forward, *pipeline.postprocess}
    members = [s.model for s in steps]
    forward = next((m for m in members if m in pipeline.forward), None) or _heaviest(
        [m for m in members if m not in named], models, compute_s
    )
    if forward is None:
        return pipeline
    before, after = _reach(forward, steps, up=True), _reach(forward, steps, up=False)
    roles: dict[str, list[str]] = {
        "preprocess": list(pipeline.preprocess),
        "forward": list(pipeline.forward),
        "postprocess": list(pipeline.postprocess),
    }
    for member in dict.fromkeys(members):
        if member in named:
            continue
        if member == forward or (_on_gpu(member, models) and member not in before | after):
            roles["forward"].append(member)
        elif member in after:
            roles["postprocess"].append(member)
        else:  # feeds the forward pass, or runs beside it on the CPU
            roles["preprocess"].append(member)
    return replace(
        pipeline,
        preprocess=tuple(roles["preprocess"]),
        forward=tuple(roles["forward"]),
        postprocess=tuple(roles["postprocess"]),
    )


def with_gpu_users(
    models: Mapping[str, ModelConfig], pipelines: Sequence[Pipeline]
) -> dict[str, ModelConfig]:
    """The models of pods that hold GPUs, with forward stages counted as users of these.

    An instance group's kind does not tell: Python backends place their tensors themselves, under KIND_CPU or
    KIND_MODEL as well.
    """
    forward = {name for pipeline in pipelines for name in pipeline.forward}
    return {
        name: replace(config, uses_gpu=True) if name in forward and not config.is_ensemble else config
        for name, config in models.items()
    }


def place_of(model: str) -> int:
    """Where a model stands by its name: before (−1) or after (1) the forward pass; 0 for what may be it."""
    if _AFTER.search(model):
        return 1
    return -1 if _BEFORE.search(model) else 0


def _flat(model: str, models: Mapping[str, ModelConfig], depth: int = 0) -> list[EnsembleStep]:
    """Steps with nested ensembles opened (their tensors keep the outer names' prefix)."""
    config = models.get(model)
    if config is None or depth > 8:
        return []
    out: list[EnsembleStep] = []
    for index, step in enumerate(config.steps):
        inner = _flat(step.model, models, depth + 1)
        if not inner:
            out.append(step)
            continue
        # An inner graph hangs on the outer step's tensors at both ends.
        prefix = f"{step.model}#{index}/"
        made = {name for s in inner for name in s.outputs}
        used = {name for s in inner for name in s.inputs}
        for s in inner:
            inputs = tuple(prefix + n for n in s.inputs if n in made)
            outputs = tuple(prefix + n for n in s.outputs)
            first, last = any(n not in made for n in s.inputs), any(n not in used for n in s.outputs)
            out.append(
                EnsembleStep(
                    s.model,
                    inputs + (step.inputs if first else ()),
                    outputs + (step.outputs if last else ()),
                )
            )
    return out


def _heaviest(
    members: list[str], models: Mapping[str, ModelConfig], compute_s: Mapping[str, float]
) -> str | None:
    on_gpu = [m for m in members if _on_gpu(m, models)]
    candidates = on_gpu or members
    timed = [m for m in candidates if compute_s.get(m, 0.0) > 0]
    if timed and len(timed) == len(candidates):
        return max(timed, key=lambda m: compute_s[m])
    if timed:  # one whose time is not known may be the heaviest: only its name is left to go by
        unnamed = [m for m in candidates if place_of(m) == 0]
        return unnamed[0] if len(unnamed) == 1 else None
    return on_gpu[-1] if on_gpu else None


def _on_gpu(model: str, models: Mapping[str, ModelConfig]) -> bool:
    config = models.get(model)
    return config is not None and config.uses_gpu


def _reach(model: str, steps: list[EnsembleStep], *, up: bool) -> set[str]:
    """Models that feed this one (up), or that it feeds, directly or through others."""
    found: set[str] = set()
    frontier = [s for s in steps if s.model == model]
    while frontier:
        step = frontier.pop()
        tensors = set(step.inputs if up else step.outputs)
        for other in steps:
            ends = other.outputs if up else other.inputs
            if other.model not in found and other.model != model and tensors & set(ends):
                found.add(other.model)
                frontier.append(other)
    return found
