"""What is wrong between the files of a model repository: names, versions, ensembles, and what the host has for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from slo_operator.offline.lint import ERROR, WARNING, Finding, Parsed, lint, parse
from slo_operator.offline.lint_ensemble import lint_ensemble
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
            found += lint_ensemble(one, models, whole=whole)
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
