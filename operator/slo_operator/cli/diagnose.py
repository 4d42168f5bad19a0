"""`slo diagnose`: reads pages and repository, asks for the diagnosis, prints it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import urlopen

from slo_operator.cli.main import BAD_INPUT, NO, OK
from slo_operator.cli.words import seconds_of
from slo_operator.offline.diagnose import diagnose, missed, together
from slo_operator.offline.exposition import Page, read
from slo_operator.offline.pages import Pair, Remark, measurements, models_of, wanted
from slo_operator.offline.view import Question
from slo_tuner.objectives import Objective

_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "mean": None}
_METRICS: Final = {
    "latency": "latency",
    "ttft": "timeToFirstToken",
    "timeToFirstToken": "timeToFirstToken",
    "itl": "interTokenLatency",
    "interTokenLatency": "interTokenLatency",
}
#: a metrics page that takes longer than this does not come
FETCH_S: Final = 10.0
#: between two looks at a running server
WINDOW_S: Final = 60.0


class InputError(Exception):
    """Input that nothing can be said about; the message names it and says what is right."""


def run(options: argparse.Namespace) -> int:
    """Carry out the command; return its exit code."""
    try:
        found = together([diagnose(question) for question in _questions(options)])
    except InputError as error:
        print(f"slo diagnose: {error}", file=sys.stderr)
        return BAD_INPUT
    _print(found, options.output)
    return NO if missed(found) else OK


def _questions(options: argparse.Namespace) -> list[Question]:
    sources = [bool(options.before or options.after), bool(options.url), options.prometheus is not None]
    if sum(sources) > 1:
        raise InputError("--before and --after, --url, and --prometheus do not go together: give one of them")
    if options.prometheus is not None:
        return _scraped(options)
    for name in ("namespace", "at", "config", "token_file"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with --prometheus only")
    return [_question(options)]


def _scraped(options: argparse.Namespace) -> list[Question]:
    """What Prometheus knows: a question for each server of the namespace."""
    # pydantic and an HTTP client: loaded when they are needed
    from slo_operator.config import ConfigError, OperatorConfig, load_config
    from slo_operator.observe.prometheus import Prometheus, PrometheusError
    from slo_operator.offline.prometheus import Asked, NothingServedError, questions

    if options.seconds is not None:
        raise InputError("--seconds goes with saved pages; the time that Prometheus looks back is --window")
    if urlsplit(options.prometheus).scheme not in ("http", "https"):
        raise InputError(f"--prometheus {options.prometheus}: an address such as http://HOST:9090 is needed")
    if not options.namespace:
        raise InputError("--namespace is missing: where the servers run")
    objectives = tuple(objective(text) for text in options.slo)
    at = time.time() if options.at is None else options.at
    token_file = None if options.token_file is None else Path(options.token_file)
    try:
        config = OperatorConfig() if options.config is None else load_config(Path(options.config))
        asked = Asked(options.namespace, at, options.window, tuple(config.gateway_histograms))
        found = questions(Prometheus(options.prometheus, FETCH_S, token_file), asked)
    except ConfigError as error:
        raise InputError(f"--config {error}") from None
    except (PrometheusError, NothingServedError) as error:
        raise InputError(f"--prometheus: {error}") from None
    except OSError as error:
        raise InputError(f"--token-file {options.token_file}: {error.strerror}") from None
    names = sorted({name for question in found for name in question.names})
    if options.model is not None and options.model not in names:
        raise InputError(
            f"--model {options.model}: the servers in {options.namespace} have {', '.join(names)}"
        )
    whole = []
    for question in found:
        if options.model is not None and options.model not in question.names:
            continue
        gpus = question.gpus if options.gpus is None else options.gpus
        models, broken = _configurations(options, gpus)
        whole.append(
            replace(
                question,
                warnings=(*question.warnings, *broken),
                models=models,
                objectives=objectives,
                only=options.model,
                gpus=gpus,
            )
        )
    return whole


def _configurations(options: argparse.Namespace, gpus: int) -> tuple[dict[str, Any] | None, list[Remark]]:
    return (None, []) if options.repository is None else _repository(Path(options.repository), gpus)


def _question(options: argparse.Namespace) -> Question:
    objectives = tuple(objective(text) for text in options.slo)
    pairs, seconds = _live(options) if options.url else _saved(options)
    gpus = 1 if options.gpus is None else options.gpus
    measured, remarks = measurements(pairs, seconds)
    names = models_of(pairs)
    if options.model is not None and options.model not in names:
        raise InputError(f"--model {options.model}: the second page has {', '.join(names)}")
    models, broken = _configurations(options, gpus)
    warnings = (*remarks, *broken)
    return Question(
        measured, [p.pod for p in pairs], names, warnings, models, objectives, options.model, gpus
    )


def _saved(options: argparse.Namespace) -> tuple[list[Pair], float]:
    if not options.before and not options.after:
        raise InputError(
            "give two saved pages (--before, --after, --seconds), --url, or --prometheus with --namespace"
        )
    if len(options.before) != len(options.after):
        raise InputError(
            f"{len(options.before)} --before and {len(options.after)} --after: give them in pairs"
        )
    if options.seconds is None:
        raise InputError("--seconds is missing: how much later the second page was taken")
    several = zip(options.before, options.after, strict=True)
    pairs = [Pair(f"pod-{n}", _file(first), _file(second)) for n, (first, second) in enumerate(several, 1)]
    return pairs, options.seconds


def _live(options: argparse.Namespace) -> tuple[list[Pair], float]:
    """Every URL twice, `window` seconds apart; the time that lay between is measured."""
    if options.seconds is not None:
        raise InputError("--seconds goes with saved pages; the time between two looks is --window")
    began = time.monotonic()
    first = [_fetched(url) for url in options.url]
    time.sleep(max(0.0, (options.window or WINDOW_S) - (time.monotonic() - began)))
    again = time.monotonic()
    second = [_fetched(url) for url in options.url]
    pairs = [Pair(urlsplit(u).netloc, a, b) for u, a, b in zip(options.url, first, second, strict=True)]
    return pairs, again - began


def objective(text: str) -> Objective:
    """`latency.p99=300ms`. Raises InputError that says what is right."""
    name, _, target = text.partition("=")
    metric, _, level = name.partition(".")
    target_s = seconds_of(target)
    if metric not in _METRICS or level not in _LEVELS:
        raise InputError(
            f"--slo {text}: the name is latency, ttft or itl, with .p50, .p90, .p95, .p99 or .mean"
        )
    if not target_s:
        raise InputError(f"--slo {text}: the target is a time such as 300ms, 1.5s or 800us")
    return Objective(_METRICS[metric], _LEVELS[level], target_s)


def _file(name: str) -> Page:
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as lines:
            return _page(name, lines)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None


def _fetched(url: str) -> Page:
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"--url {url}: an address such as http://HOST:8002/metrics is needed")
    try:
        with urlopen(url, timeout=FETCH_S) as answer:  # noqa: S310 - http or https, checked above
            return _page(url, (line.decode("utf-8", "replace") for line in answer))
    except (OSError, HTTPException, ValueError) as error:
        raise InputError(f"--url {url}: {error}") from None


def _page(name: str, lines: Iterable[str]) -> Page:
    page = read(lines, wanted)
    if not page.samples:
        what = (
            f"{page.odd_lines} of its {page.lines} lines are no samples"
            if page.odd_lines
            else "other families"
        )
        raise InputError(f"{name}: no nv_inference_… counters of Triton in it ({what})")
    return page


def _repository(folder: Path, gpus: int) -> tuple[dict[str, Any], list[Remark]]:
    # Triton's schema comes with its client, which takes a while to load
    from slo_operator.offline.repository import read_repository

    try:
        found = read_repository(folder, gpus)
    except OSError as error:
        raise InputError(f"--repository {folder}: {error.strerror}") from None
    if not found.models and not found.broken:
        raise InputError(f"--repository {folder}: no folder in it has a config.pbtxt")
    broken = [
        Remark("BrokenConfiguration", f"{file}: {why}", file.parent.name)
        for file, why in found.broken.items()
    ]
    return dict(found.models), broken


def _print(found: dict[str, Any], form: str) -> None:
    if form == "json":
        print(json.dumps(found, indent=1))
    elif form == "yaml":
        import yaml

        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="")
    else:
        from slo_operator.cli.diagnosis_table import show

        show(found)
