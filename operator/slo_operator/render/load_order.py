"""In which order models are loaded so that no ensemble breaks on the way.

A member whose `max_batch_size` falls below its ensemble's makes every request of the ensemble fail until
that is put right (measured: all answered 400). So ensembles go down before their members and up after them.
"""

from __future__ import annotations

from collections.abc import Mapping

from slo_tuner.settings import ModelSettings, PodSettings
from slo_tuner.snapshot import ModelConfig


def load_order(
    current: PodSettings, wanted: PodSettings, configs: Mapping[str, ModelConfig]
) -> list[tuple[str, ModelSettings]]:
    """The loads that lead one pod from `current` to `wanted`; models that stay as they are get none.

    Ensembles that get a smaller batch come first (outer before inner), then plain models, then the other
    ensembles (inner before outer). Raises ValueError when `wanted` would leave an ensemble with a larger
    batch than a member, or names a model that the server does not have.
    """
    for model in wanted:
        if model not in configs:
            raise ValueError(
                f"{model}: the server has no model of that name, only {', '.join(sorted(configs))}"
            )
    check_ensembles({**current, **wanted}, configs)
    changed = [model for model in sorted(wanted) if wanted[model] != current.get(model)]
    ensembles = sorted((m for m in changed if configs[m].is_ensemble), key=lambda m: (_height(m, configs), m))
    lowered = [m for m in ensembles if m in current and wanted[m].max_batch_size < current[m].max_batch_size]
    plain = [m for m in changed if not configs[m].is_ensemble]
    raised = [m for m in ensembles if m not in lowered]
    return [(model, wanted[model]) for model in (*reversed(lowered), *plain, *raised)]


def check_ensembles(settings: PodSettings, configs: Mapping[str, ModelConfig]) -> None:
    """Raise ValueError when an ensemble's batch is larger than a member's.

    Models without settings count as they are configured.
    """

    def batch(model: str) -> int:
        found = settings.get(model)
        return found.max_batch_size if found is not None else configs[model].settings.max_batch_size

    for name, config in configs.items():
        for step in config.steps:
            if step.model in configs and batch(step.model) < batch(name):
                raise ValueError(
                    f"{step.model}.max_batch_size = {batch(step.model)}: the ensemble {name} sends batches of up to"
                    f" {batch(name)}; lower the ensemble first, or leave the member at {batch(name)} or more"
                )


def _height(model: str, configs: Mapping[str, ModelConfig], seen: frozenset[str] = frozenset()) -> int:
    """0 for a plain model; an ensemble is one higher than its highest member."""
    config = configs.get(model)
    if config is None or model in seen or not config.steps:
        return 0
    return 1 + max(_height(step.model, configs, seen | {model}) for step in config.steps)
