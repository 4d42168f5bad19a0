"""report.json: the figures by the keys of the goals, with what they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from demo.goals import (
    Figures,
    Result,
    by_variant,
    latency_ms,
    levers_used,
    quantile_ms,
    within,
)
from demo.run_data import Run, Sample
from devcluster.gateway.records import Record


def report(run: Run, found: Figures, results: Sequence[Result], verdict: str) -> dict[str, object]:
    """The report as JSON values: a dot in a key is nesting; times are RFC 3339 and seconds since the start."""
    document: dict[str, object] = {
        "verdict": verdict,
        "scenario": run.scenario,
        "started": _time(run.started),
        "seconds": round(run.ended - run.started, 1),
        "gateway_histogram": run.gateway_histogram,
    }
    if run.unfinished:
        document["unfinished"] = run.unfinished
    for key, value in found.items():
        _put(document, key, round(value, 2) if isinstance(value, float) else value)
    for name, window in run.windows.items():
        records = within(run.records, window)
        _put(document, f"{name.value}.window", _window(run, window.start, window.end))
        _put(document, f"{name.value}.requests", len(records))
        _put(document, f"{name.value}.repeated", window.repeated)
        _put(
            document,
            f"{name.value}.variants",
            {m: _quantiles(some) for m, some in by_variant(records).items()},
        )
    document["levers_used"] = list(levers_used(run.decisions))
    document["machine"] = asdict(run.machine)
    document["requests"] = len(run.records)
    document["failures"] = [asdict(record) for record in run.records if record.failed][:50]
    document["connect_retries"] = sum(record.retries for record in run.records)
    document["marks"] = {"auto": _since(run, run.auto_at), "step": _since(run, run.step_at)}
    document["goals"] = [
        {"key": one.goal.key, "must_be": one.goal.wanted, "measured": _rounded(one.measured), "met": one.met}
        for one in results
    ]
    document["bottlenecks"] = [
        {"seconds": _since(run, at), "reason": reason} for at, reason in run.bottlenecks
    ]
    document["decisions"] = [
        {**asdict(decision), "time": _time(decision.time), "seconds": _since(run, decision.time)}
        for decision in run.decisions
    ]
    document["samples"] = [_sample(run, sample) for sample in run.samples]
    return document


def _put(document: dict[str, object], key: str, value: object) -> None:
    head, _, rest = key.partition(".")
    if not rest:
        document[head] = value
        return
    inner = document.setdefault(head, {})
    assert isinstance(inner, dict)
    _put(inner, rest, value)


def _quantiles(records: Sequence[Record]) -> Mapping[str, object]:
    quantiles = {f"p{q}_ms": _rounded(quantile_ms(records, q / 100)) for q in (50, 90, 95, 99)}
    mean = sum(map(latency_ms, records)) / len(records)
    return {"requests": len(records), "mean_ms": round(mean, 2), **quantiles}


def _sample(run: Run, sample: Sample) -> dict[str, object]:
    return {**asdict(sample), "time": _since(run, sample.time)}


def _window(run: Run, start: float, end: float) -> list[float | None]:
    return [_since(run, start), _since(run, end)]


def _since(run: Run, at: float | None) -> float | None:
    return None if at is None else round(at - run.started, 1)


def _rounded(value: float | str | None) -> float | str | None:
    return round(value, 2) if isinstance(value, float) else value


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
