"""Tuner's settings into a Triton model configuration, and back.

The same functions make the `config=` of a load over gRPC and the files that pods come up with, so a pod
that restarts runs what its peers were told. A load *replaces* the configuration: what comes in is the
whole one, read from the server or the file, and everything that is not a setting stays as it was.

Counting: `ModelSettings.instances` counts a model's instances in one pod. An instance group of KIND_GPU
says its count per GPU (of its list, or of all GPUs of the pod), every other kind in total. A group without a kind
(KIND_AUTO) is what the server makes of it: on GPUs when the pod has some and the backend uses them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from slo_operator.render.remote import remote_of, set_remote
from slo_tuner import snapshot
from slo_tuner.settings import Batching, ModelSettings

#: in every model's folder
CONFIG_FILE: Final = "config.pbtxt"
#: backends whose instances run on the CPU unless the file says otherwise
_CPU_BACKENDS: Final = frozenset({"python", "tensorrtllm", "openvino"})
_MAX_INSTANCES: Final = 1024
_MAX_DELAY_US: Final = 10_000_000
_MAX_TIMEOUT_MS: Final = 600_000


def apply_settings(config: ModelConfig, settings: ModelSettings, gpus: int = 0) -> ModelConfig:
    """A copy of `config` that runs `settings`; `gpus` are the GPUs of one pod.

    For an ensemble only `max_batch_size` counts: it has no instances and no queue of its own.
    Left-overs that the new batch size makes invalid (warm-up samples, CUDA graphs) are brought within it.
    Raises ValueError naming model and field when a server would refuse the result.
    """
    check_settings(config, settings)
    out = ModelConfig()
    out.CopyFrom(config)
    out.max_batch_size = settings.max_batch_size
    if not is_ensemble(config):
        _set_instances(out, settings.instances, gpus)
        _set_batching(out, settings.batching)
        set_remote(out, settings.remote)
    _clamp_leftovers(out)
    return out


def settings_of(config: ModelConfig, gpus: int = 0) -> ModelSettings:
    """The settings that a configuration runs; an ensemble reads as one instance without batching."""
    if is_ensemble(config):
        return ModelSettings(instances=1, max_batch_size=config.max_batch_size)
    batching = None
    if config.HasField("dynamic_batching"):
        dynamic = config.dynamic_batching
        batching = Batching(
            delay_us=dynamic.max_queue_delay_microseconds, preferred_sizes=tuple(dynamic.preferred_batch_size)
        )
    instances = sum(_total(group, gpus) for group in _groups(config, gpus))
    return ModelSettings(instances, config.max_batch_size, batching, remote_of(config))


def model_of(config: ModelConfig, gpus: int) -> snapshot.ModelConfig:
    """A server's configuration in the tuner's terms; `gpus` of the pod."""
    steps = tuple(
        snapshot.EnsembleStep(
            step.model_name, tuple(sorted(step.input_map.values())), tuple(sorted(step.output_map.values()))
        )
        for step in config.ensemble_scheduling.step
    )
    return snapshot.ModelConfig(
        name=config.name,
        settings=settings_of(config, gpus),
        steps=steps,
        uses_gpu=any(g.kind == ModelInstanceGroup.KIND_GPU for g in config.instance_group),
        decoupled=config.model_transaction_policy.decoupled,
        sequence_batching=config.HasField("sequence_batching"),
    )


def check_settings(config: ModelConfig, settings: ModelSettings) -> None:
    """Raise ValueError naming model and field when `settings` cannot run on this model."""

    def refuse(field: str, value: object, why: str) -> None:
        raise ValueError(f"{config.name}.{field} = {value}: {why}")

    if settings.max_batch_size < 0:
        refuse("max_batch_size", settings.max_batch_size, "0 (the model cannot batch) or more")
    if is_ensemble(config):
        return
    if not 1 <= settings.instances <= _MAX_INSTANCES:
        refuse("instances", settings.instances, f"from 1 to {_MAX_INSTANCES}")
    if (config.max_batch_size == 0) != (settings.max_batch_size == 0):
        refuse(
            "max_batch_size",
            settings.max_batch_size,
            f"the model's is {config.max_batch_size}, 0 meaning that it cannot batch",
        )
    if settings.remote is not None and not 1 <= settings.remote.timeout_ms <= _MAX_TIMEOUT_MS:
        refuse("remote.timeout_ms", settings.remote.timeout_ms, f"from 1 to {_MAX_TIMEOUT_MS}")
    lane = settings.remote.lane if settings.remote is not None else None
    if lane is not None and min(lane.from_bytes, lane.members) < 1:
        refuse("remote.lane", lane, "a size and a number of members of at least 1")
    batching = settings.batching
    if batching is None:
        return
    if settings.max_batch_size == 0:
        refuse("batching", batching, "a model with max_batch_size 0 cannot batch")
    if config.HasField("sequence_batching"):
        refuse("batching", batching, "the model batches sequences, which excludes dynamic batching")
    if not 0 <= batching.delay_us <= _MAX_DELAY_US:
        refuse("batching.delay_us", batching.delay_us, f"from 0 to {_MAX_DELAY_US}")
    for size in batching.preferred_sizes:
        if not 1 <= size <= settings.max_batch_size:
            refuse("batching.preferred_sizes", size, f"from 1 to max_batch_size, {settings.max_batch_size}")


def is_ensemble(config: ModelConfig) -> bool:
    """Whether the model is a graph of others."""
    return bool(config.HasField("ensemble_scheduling"))


def to_json(config: ModelConfig) -> str:
    """For `load_model(name, config=…)`; stable text."""
    return json.dumps(_plain(config), sort_keys=True)


def from_json(text: str) -> ModelConfig:
    """What /v2/models/M/config answers. Fields of a newer server that this release does not know are dropped."""
    return json_format.Parse(text, ModelConfig(), ignore_unknown_fields=True)


def to_text(config: ModelConfig) -> str:
    """The content of a config.pbtxt."""
    return text_format.MessageToString(config)


class ConfigError(ValueError):
    """A text that is no configuration; `line` is where, `why` what the parser says."""

    def __init__(self, line: int | None, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line, self.why = line, why


def from_text(text: str) -> ModelConfig:
    """Read a config.pbtxt. Raises ConfigError."""
    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        raise ConfigError(error.GetLine(), str(error).split(" : ", 1)[-1]) from None


def _plain(config: ModelConfig) -> dict[str, Any]:
    out: dict[str, Any] = json_format.MessageToDict(config, preserving_proto_field_name=True)
    return out


def _set_instances(config: ModelConfig, wanted: int, gpus: int) -> None:
    """Keep the first group's kind and traits. What does not divide by the GPUs is dealt out from the first GPU on."""
    groups = _groups(config, gpus)
    if config.instance_group and sum(_total(group, gpus) for group in groups) == wanted:
        return
    kinds = {group.kind for group in groups}
    if len(kinds) > 1:
        names = ", ".join(sorted(ModelInstanceGroup.Kind.Name(kind) for kind in kinds))
        raise ValueError(
            f"{config.name}.instances = {wanted}: the model has instance groups of several kinds ({names});"
            " only people can say which one to change"
        )
    pattern = groups[0]
    passive = [group for group in config.instance_group if group.passive]
    per_device = _per_device(pattern, wanted, gpus)
    del config.instance_group[:]
    for number, (count, devices) in enumerate(per_device):
        group = config.instance_group.add()
        group.CopyFrom(pattern)
        group.count = count
        if number and group.name:
            group.name = f"{group.name}_{number}"
        del group.gpus[:]
        group.gpus.extend(devices)
    config.instance_group.extend(passive)


def _per_device(pattern: ModelInstanceGroup, wanted: int, gpus: int) -> list[tuple[int, list[int]]]:
    """(count, GPUs) per group so that the counts come to `wanted`."""
    if pattern.kind != ModelInstanceGroup.KIND_GPU:
        return [(wanted, list(pattern.gpus))]
    devices = list(pattern.gpus) or list(range(gpus))
    each, more = divmod(wanted, max(1, len(devices)))
    if not more:
        return [(each, list(pattern.gpus))]
    out = [(each + 1, devices[:more])]
    return [*out, (each, devices[more:])] if each else out


def _total(group: ModelInstanceGroup, gpus: int) -> int:
    return max(1, int(group.count)) * _devices(group, gpus)


def _devices(group: ModelInstanceGroup, gpus: int) -> int:
    return max(1, len(group.gpus) or gpus) if group.kind == ModelInstanceGroup.KIND_GPU else 1


def _groups(config: ModelConfig, gpus: int) -> list[ModelInstanceGroup]:
    """Copies of the active groups with their kind resolved; without any, the one that Triton assumes."""
    cpu = config.backend in _CPU_BACKENDS or gpus == 0
    out = []
    for group in [g for g in config.instance_group if not g.passive] or [ModelInstanceGroup(count=1)]:
        copy = ModelInstanceGroup()
        copy.CopyFrom(group)
        if copy.kind == ModelInstanceGroup.KIND_AUTO:
            on_gpu = bool(copy.gpus) or not cpu
            copy.kind = ModelInstanceGroup.KIND_GPU if on_gpu else ModelInstanceGroup.KIND_CPU
        out.append(copy)
    return out


def _set_batching(config: ModelConfig, batching: Batching | None) -> None:
    """Turn dynamic batching on, off or over; its other options (queue policy, order, priorities) stay."""
    if batching is None:
        config.ClearField("dynamic_batching")
        return
    config.dynamic_batching.SetInParent()
    config.dynamic_batching.max_queue_delay_microseconds = batching.delay_us
    del config.dynamic_batching.preferred_batch_size[:]
    config.dynamic_batching.preferred_batch_size.extend(batching.preferred_sizes)


def _clamp_leftovers(config: ModelConfig) -> None:
    limit = config.max_batch_size
    if limit == 0:
        return
    for sample in config.model_warmup:
        sample.batch_size = min(sample.batch_size, limit)
    cuda = config.optimization.cuda if config.HasField("optimization") else None
    if cuda is not None:
        kept = [spec for spec in cuda.graph_spec if spec.batch_size <= limit]
        if len(kept) < len(cuda.graph_spec):
            del cuda.graph_spec[:]
            cuda.graph_spec.extend(kept)


def describe(settings: Mapping[str, ModelSettings]) -> str:
    """One line for messages: preprocessing 4 × batch 8; forward 2 × batch 16, delay 5ms."""
    return "; ".join(_describe(model, settings[model]) for model in sorted(settings))


def _describe(model: str, settings: ModelSettings) -> str:
    batching = settings.batching
    tail = "" if batching is None else f", delay {batching.delay_us / 1000:g}ms"
    if batching is not None and batching.preferred_sizes:
        tail += f", preferred {'/'.join(map(str, batching.preferred_sizes))}"
    if settings.remote is not None:
        tail += f", in the pool within {settings.remote.timeout_ms}ms"
        if settings.remote.lane is not None:
            tail += (
                f", from {settings.remote.lane.from_bytes} bytes on in {settings.remote.lane.members} of it"
            )
    return f"{model} {settings.instances} × batch {settings.max_batch_size}{tail}"
