"""`slo diagnose`: reads pages and repository, asks for the diagnosis, prints it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
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
#: by name, None without a repository; and what is broken of it
Configurations = tuple[dict[str, Any] | None, list[Remark]]
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
    """What was measured, one question for each server, with all that the options add."""
    sources = [bool(options.before or options.after), bool(options.url), options.prometheus is not None]
    if sum(sources) > 1:
        raise InputError("--before and --after, --url, and --prometheus do not go together: give one of them")
    objectives = tuple(objective(text) for text in options.slo)
    if options.prometheus is not None:
        found, where = _scraped(options), f"the servers in {options.namespace} have"
    else:
        found, where = [_paged(options)], "the second page has"
    # in the order in which they were met
    names = dict.fromkeys(name for question in found for name in question.names)
    if options.model is not None and options.model not in names:
        raise InputError(f"--model {options.model}: {where} {', '.join(names)}")
    # a repository's instances are counted by GPU
    configurations = cache(lambda gpus: _configurations(options.repository, gpus))
    return [
        _completed(question, options, objectives, configurations)
        for question in found
        if options.model is None or options.model in question.names
    ]


def _completed(
    question: Question,
    options: argparse.Namespace,
    objectives: tuple[Objective, ...],
    configurations: Callable[[int], Configurations],
) -> Question:
    gpus = question.gpus if options.gpus is None else options.gpus
    models, broken = configurations(gpus)
    return replace(
        question,
        warnings=(*question.warnings, *broken),
        models=models,
        objectives=objectives,
        only=options.model,
        gpus=gpus,
    )


def _configurations(repository: str | None, gpus: int) -> Configurations:
    return (None, []) if repository is None else _repository(Path(repository), gpus)


def _scraped(options: argparse.Namespace) -> list[Question]:
    """What Prometheus knows of the namespace's servers."""
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
    at = time.time() if options.at is None else options.at
    token_file = None if options.token_file is None else Path(options.token_file)
    try:
        config = OperatorConfig() if options.config is None else load_config(Path(options.config))
        asked = Asked(options.namespace, at, options.window, tuple(config.gateway_histograms))
        return questions(Prometheus(options.prometheus, FETCH_S, token_file), asked)
    except ConfigError as error:
        raise InputError(f"--config {error}") from None
    except (PrometheusError, NothingServedError) as error:
        raise InputError(f"--prometheus: {error}") from None
    except OSError as error:
        raise InputError(f"--token-file {options.token_file}: {error.strerror}") from None


def _paged(options: argparse.Namespace) -> Question:
    """What two pages of one server's pods say."""
    for name in ("namespace", "at", "config", "token_file"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} goes with --prometheus only")
    pairs, seconds = _live(options) if options.url else _saved(options)
    measured, remarks = measurements(pairs, seconds)
    return Question(measured, [p.pod for p in pairs], models_of(pairs), remarks)


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
