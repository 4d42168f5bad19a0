"""Carries out a parsed command line: read, judge, print."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from slo_operator.api.resource import InferenceSLO
from slo_operator.api.status import ConditionStatus, ModelStatus
from slo_operator.cli import source
from slo_operator.cli.main import NO, OK
from slo_operator.cli.source import SourceError

#: width of tables that go into a file or a pipe, where no terminal tells its own
_PIPE_WIDTH = 120


def run(options: argparse.Namespace) -> int:
    """Carry out one command and return its exit code. Raise SourceError when nothing can be read."""
    if options.command == "top":
        return _top(options)
    resource = _one(options)
    if options.command == "history":
        decisions = resource.status.history[: options.limit]
        _print(
            options.output,
            [d.to_json() for d in reversed(decisions)],
            lambda now: _history(resource, options.limit, now),
        )
        return OK
    models = _models_of(resource, options.model)
    _print(options.output, _explanation(resource, models), lambda now: _explain(resource, models, now))
    return verdict(models)


def verdict(models: Sequence[ModelStatus]) -> int:
    """1 when an objective of these models is missed. What is unknown is not a no: it stays 0."""
    missed = any(objective.met is ConditionStatus.FALSE for model in models for objective in model.slo)
    return NO if missed else OK


def _top(options: argparse.Namespace) -> int:
    from slo_operator.cli.top import rows, table

    while True:
        found = _read(options)
        lines = rows(found)
        if options.watch:
            # home and clear, so that a terminal shows one table and a pipe one after the other
            sys.stdout.write("\x1b[H\x1b[2J" if sys.stdout.isatty() else "")
        _print(options.output, [line.to_json() for line in lines], lambda now, lines=lines: [table(lines)])
        if not options.watch:
            return verdict([model for resource in found for model in resource.status.models])
        sys.stdout.flush()
        time.sleep(options.watch)


def _read(options: argparse.Namespace) -> list[InferenceSLO]:
    everywhere = bool(getattr(options, "all_namespaces", False))
    wish = source.wanted(options.resource, options.namespace, all_namespaces=everywhere)
    if options.file:
        return source.from_file(options.file, wish)
    return source.from_cluster(
        wish, kubeconfig=options.kubeconfig, context=options.context, all_namespaces=everywhere
    )


def _one(options: argparse.Namespace) -> InferenceSLO:
    if options.resource is None and not options.file:
        raise SourceError(f"name a resource: slo {options.command} NAME; `slo top -A` lists what there is")
    found = _read(options)
    if len(found) > 1:
        names = ", ".join(f"{r.namespace}/{r.name}" for r in found)
        raise SourceError(f"{options.file} has several resources; name one of {names}")
    return found[0]


def _models_of(resource: InferenceSLO, name: str | None) -> list[ModelStatus]:
    models = [model for model in resource.status.models if name in {None, model.name}]
    if name and not models:
        declared = ", ".join(m.name for server in resource.spec.servers for m in server.models)
        raise SourceError(
            f"{resource.namespace}/{resource.name} has no model {name!r} in its status; it declares {declared}"
        )
    return models


def _explanation(resource: InferenceSLO, models: Sequence[ModelStatus]) -> dict[str, Any]:
    status = resource.status.to_json()
    return {
        "namespace": resource.namespace,
        "name": resource.name,
        "mode": resource.spec.mode.value,
        "suspend": resource.spec.suspend,
        **status,
        "models": [model.to_json() for model in models],
    }


def _explain(resource: InferenceSLO, models: Sequence[ModelStatus], now: datetime) -> list[Any]:
    from slo_operator.cli.explain import explain

    return explain(resource, models, now)


def _history(resource: InferenceSLO, limit: int, now: datetime) -> list[Any]:
    from slo_operator.cli.history import history

    return history(resource.status.history[:limit], now)


def _print(form: str, data: Any, render: Any) -> None:
    if form == "json":
        import json

        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    if form == "yaml":
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")
        return
    from rich.console import Console

    console = Console(
        width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, emoji=False, markup=False
    )
    for renderable in render(datetime.now(UTC)):
        console.print(renderable)
