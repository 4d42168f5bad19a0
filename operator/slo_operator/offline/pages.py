"""Two metrics pages of one server, some time apart, as the measurements that the loop would have made."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from slo_operator.observe.measured import (
    COMPUTE_SUMMARY,
    COUNTERS,
    MIN_SAMPLES,
    PENDING,
    REQUEST_SUMMARY,
    Coverage,
    Field,
    Measurements,
    RowKey,
)
from slo_operator.offline.exposition import Page, Series

#: there is none
NAMESPACE: Final = "offline"
_FIELD: Final = {family: name for name, family in COUNTERS.items()}
_QUANTILES: Final = {REQUEST_SUMMARY, COMPUTE_SUMMARY}
#: the moment of the second page: nothing was changed for long before it
LONG_AFTER: Final = 1e9
#: Triton counts in unsigned 64-bit numbers: what is up here has gone below zero on the way
UNDERFLOWN: Final = 2.0**53


@dataclass(frozen=True, slots=True)
class Pair:
    """One server's pages; `pod` is what to call it."""

    pod: str
    before: Page
    after: Page


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about the input that people should know."""

    code: str
    message: str
    model: str = ""


@dataclass(slots=True)
class _Found:
    rows: dict[RowKey, dict[Field, float]] = field(default_factory=lambda: defaultdict(dict))
    problems: dict[RowKey, str] = field(default_factory=dict)
    quantiles: dict[RowKey, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    compute: dict[RowKey, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    warnings: list[Remark] = field(default_factory=list)


def wanted(family: str) -> bool:
    """Whether a family of a page is looked at."""
    return family in _FIELD or family == PENDING or family in _QUANTILES


def measurements(pairs: Sequence[Pair], seconds: float) -> tuple[Measurements, tuple[Remark, ...]]:
    """What happened between the pages, `seconds` apart."""
    found = _Found()
    for pair in pairs:
        _page_warnings(pair, found)
        _compare(pair, found)
    measured = Measurements(
        at=LONG_AFTER,
        window_s=seconds,
        rows={key: row for key, row in found.rows.items() if key not in found.problems},
        coverage={(NAMESPACE, p.pod): Coverage(seconds, seconds, 0.0, MIN_SAMPLES) for p in pairs},
        quantiles=found.quantiles,
        compute_quantiles=found.compute,
        row_problems=found.problems,
    )
    return measured, tuple(dict.fromkeys(found.warnings))


def models_of(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Every model that a second page has a row of, in the page's order."""
    names = (dict(labels).get("model", "") for pair in pairs for _, labels in pair.after.samples)
    return tuple(dict.fromkeys(name for name in names if name))


def _compare(pair: Pair, found: _Found) -> None:
    known = {dict(labels).get("model") for _, labels in pair.before.samples}
    for series, value in pair.after.samples.items():
        family, labels = series[0], dict(series[1])
        model = labels.get("model", "")
        if not model:
            continue
        key = (NAMESPACE, pair.pod, model)
        if family in _QUANTILES:
            _quantile(found.quantiles if family == REQUEST_SUMMARY else found.compute, key, labels, value)
        elif family == PENDING:
            _pending(pair, series, key, value, found)
        else:
            if model not in known:
                words = f"{model} is on the second page only: its counters are taken to have begun between the pages"
                found.warnings.append(Remark("FirstScrape", words, model))
            _counter(pair, series, key, value, found)


def _counter(pair: Pair, series: Series, key: RowKey, value: float, found: _Found) -> None:
    before = pair.before.samples.get(series, 0.0)
    model, name = key[2], _FIELD[series[0]]
    code, why = "Implausible", ""
    if not (math.isfinite(value) and math.isfinite(before)):
        why = f"{series[0]} is {value:g}: not a number that can be counted with"
    elif max(value, before) >= UNDERFLOWN:
        why = f"{series[0]} is {max(value, before):.4g}: a counter that went below zero"
    elif value < before:
        code = "CounterReset"
        why = f"{series[0]} fell from {before:g} to {value:g}: the model was loaded anew between the pages"
    if why:
        found.problems.setdefault(key, why)
        found.warnings.append(Remark(code, f"{pair.pod}: {model}: {why}", model))
        return
    row = found.rows[key]
    row[name] = row.get(name, 0.0) + value - before


def _pending(pair: Pair, series: Series, key: RowKey, value: float, found: _Found) -> None:
    if not math.isfinite(value) or value < 0:
        return
    row = found.rows[key]
    row[Field.PENDING] = row.get(Field.PENDING, 0.0) + value
    before = pair.before.samples.get(series, 0.0)
    before = before if math.isfinite(before) else 0.0
    row[Field.PENDING_GROWTH] = row.get(Field.PENDING_GROWTH, 0.0) + value - before
    row[Field.PENDING_LEAST] = row.get(Field.PENDING_LEAST, 0.0) + max(0.0, min(value, before))


def _quantile(
    into: dict[RowKey, dict[float, float]], key: RowKey, labels: dict[str, str], value: float
) -> None:
    try:
        level = float(labels.get("quantile", ""))
    except ValueError:
        return
    # NaN: no request within the server's 60 s
    if 0 < level < 1 and math.isfinite(value) and value >= 0:
        into[key][level] = max(value / 1e6, into[key].get(level, 0.0))


def _page_warnings(pair: Pair, found: _Found) -> None:
    for name, page in (("first", pair.before), ("second", pair.after)):
        if page.odd_lines:
            number, text = page.odd[0]
            words = (
                f"{pair.pod}: {page.odd_lines} lines of the {name} page are no samples; line {number}: {text}"
            )
            found.warnings.append(Remark("OddLines", words))
        if page.cut_off:
            words = (
                f"{pair.pod}: the {name} page ends within a line, {page.cut_off!r}: the rest of it is missing"
            )
            found.warnings.append(Remark("CutOff", words))
        if page.doubled:
            example = _written(min(page.doubled))
            words = (
                f"{pair.pod}: {len(page.doubled)} series stand twice on the {name} page, such as {example}"
            )
            found.warnings.append(Remark("DuplicateSeries", f"{words}; the larger value counts"))


def _written(series: Series) -> str:
    return f"{series[0]}{{{','.join(f'{k}={v!r}' for k, v in series[1])}}}"
