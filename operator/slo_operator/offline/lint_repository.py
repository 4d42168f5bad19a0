"""What is wrong between the files of a model repository: names, versions, and what an ensemble is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelEnsembling

from slo_operator.offline.lint import ERROR, WARNING, Finding, Parsed, lint, parse
from slo_operator.render.model_config import CONFIG_FILE
from slo_operator.render.pod import SHM_PER_INSTANCE_MIB


def lint_files(
    files: Sequence[Path],
    target_s: float | None = None,
    cpus: float | None = None,
    shm_mib: float | None = None,
) -> list[Finding]:
    """Findings about these files and what lies beside them, in their order. `cpus` and `shm_mib` of one server."""
    found: list[Finding] = []
    parsed: list[tuple[Path, Parsed]] = []
    for file in files:
        one = parse(str(file), file.read_text("utf-8", errors="replace"))
        if isinstance(one, Finding):
            found.append(one)
        else:
            parsed.append((file, one))
    models = {p.config.name or file.parent.name: p.config for file, p in parsed}
    whole = len(files) > 1
    for file, one in parsed:
        found += lint(one, target_s)
        found += _folder(file, one)
        if one.config.HasField("ensemble_scheduling"):
            found += _ensemble(one, models, whole=whole)
        found += _host(one, cpus)
    found += _shared_memory([p for _, p in parsed], shm_mib)
    order = {str(file): number for number, file in enumerate(files)}
    return sorted(found, key=lambda f: (order.get(f.file, -1), f.line or 0))


def _folder(file: Path, one: Parsed) -> Iterator[Finding]:
    folder = file.parent
    if file.name != CONFIG_FILE or not folder.name:
        return
    name = one.config.name
    if name and name != folder.name:
        words = f"the model is called {name}, its folder {folder.name}: a server refuses that"
        yield one.finding("name", ERROR, "name-differs", words, f'name: "{folder.name}"')
    if not any(child.is_dir() and child.name.isdecimal() for child in folder.iterdir()):
        words = "there is no version folder (1, 2, …) beside it: a server has nothing to load"
        yield Finding(one.file, None, None, ERROR, "no-version", words, f"mkdir {folder / '1'}")


def _ensemble(one: Parsed, models: Mapping[str, ModelConfig], whole: bool) -> Iterator[Finding]:
    config = one.config
    types = _tensors(config, models)
    for step in config.ensemble_scheduling.step:
        member = models.get(step.model_name)
        if member is not None:
            yield from _step(one, step, member, types)
            yield from _batch(one, step.model_name, member)
        elif whole:
            words = f"the step {step.model_name} is no model here; there are {', '.join(sorted(models))}"
            yield one.finding("ensemble_scheduling.step.model_name", ERROR, "unknown-step", words)
    for output in config.output:
        if output.name not in types:
            words = f"no step makes the output {output.name}; there are {', '.join(sorted(types))}"
            yield one.finding("output", ERROR, "output-not-made", words)


def _tensors(config: ModelConfig, models: Mapping[str, ModelConfig]) -> dict[str, int]:
    """Type of every tensor of the ensemble, TYPE_INVALID where it is not known. Steps may stand in any order."""
    types: dict[str, int] = {i.name: i.data_type for i in config.input}
    for step in config.ensemble_scheduling.step:
        member = models.get(step.model_name)
        made = {o.name: o.data_type for o in member.output} if member is not None else {}
        types |= {tensor: made.get(own, DataType.TYPE_INVALID) for own, tensor in step.output_map.items()}
    return types


def _batch(one: Parsed, name: str, member: ModelConfig) -> Iterator[Finding]:
    most, its = one.config.max_batch_size, member.max_batch_size
    if its < most:
        words = f"the ensemble takes batches of {most}, its step {name} of {its}: a server refuses that"
        yield one.finding("max_batch_size", ERROR, "member-batch-below", words, f"max_batch_size: {its}")


def _step(
    one: Parsed, step: ModelEnsembling.Step, member: ModelConfig, types: Mapping[str, int]
) -> Iterator[Finding]:
    """Names and types at one step."""
    name, into, out_of = (
        step.model_name,
        "ensemble_scheduling.step.input_map",
        "ensemble_scheduling.step.output_map",
    )
    inputs = {i.name: i.data_type for i in member.input}
    outputs = {o.name for o in member.output}
    for own, tensor in sorted(step.input_map.items()):
        if inputs and own not in inputs:
            words = f"{name} has no input {own}; it has {', '.join(sorted(inputs))}"
            yield one.finding(into, ERROR, "no-such-tensor", words)
        elif tensor not in types:
            words = f"{tensor}, which {name} takes as {own}, is no input of the ensemble and made by no step"
            yield one.finding(into, ERROR, "tensor-not-made", words)
        elif _differ(types[tensor], inputs.get(own, DataType.TYPE_INVALID)):
            is_, wants = DataType.Name(types[tensor]), DataType.Name(inputs[own])
            yield one.finding(
                into, ERROR, "type-differs", f"{tensor} is {is_}, {own} of {name} wants {wants}"
            )
    missing = sorted(own for own in inputs if own not in step.input_map and not _optional(member, own))
    if missing:
        yield one.finding(into, ERROR, "input-missing", f"nothing goes to {', '.join(missing)} of {name}")
    for own in sorted(step.output_map):
        if outputs and own not in outputs:
            words = f"{name} has no output {own}; it has {', '.join(sorted(outputs))}"
            yield one.finding(out_of, ERROR, "no-such-tensor", words)


def _differ(one: int, other: int) -> bool:
    """Whether two types are known and not the same."""
    return one != other and DataType.TYPE_INVALID not in (one, other)


def _optional(member: ModelConfig, name: str) -> bool:
    return any(i.name == name and i.optional for i in member.input)


def _python_instances(config: ModelConfig) -> int:
    """Processes on the CPU: a group without a count is one."""
    if config.backend != "python":
        return 0
    return sum(max(1, group.count) for group in config.instance_group) or 1


def _host(one: Parsed, cpus: float | None) -> Iterator[Finding]:
    count = _python_instances(one.config)
    if cpus is not None and count > cpus:
        words = f"{count} Python processes on {cpus:g} cores: they slow each other, and throughput may fall"
        yield one.finding(
            "instance_group",
            WARNING,
            "more-processes-than-cores",
            words,
            f"at most {max(1, int(cpus))} instances",
        )


def _shared_memory(parsed: Sequence[Parsed], shm_mib: float | None) -> Iterator[Finding]:
    needed = SHM_PER_INSTANCE_MIB * sum(_python_instances(one.config) for one in parsed)
    if shm_mib is not None and needed > shm_mib:
        words = f"the Python instances of all models need {needed} MiB of /dev/shm, there are {shm_mib:g}: loads fail"
        one = max(parsed, key=lambda p: _python_instances(p.config))
        yield one.finding(
            "instance_group",
            ERROR,
            "shared-memory",
            words,
            f"a memory-backed volume of {needed} MiB at /dev/shm",
        )
