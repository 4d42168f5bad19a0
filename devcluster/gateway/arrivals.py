"""Arrival files: replaying recorded traffic instead of a schedule.

Read are CSV files with a header and JSON lines. The time is taken from the first of these fields:
`at_s` (seconds), `scheduled` (Unix seconds: this gateway's own records), `timestamp` (milliseconds, as in
the Mooncake traces) or `TIMESTAMP` (date and time, as in the Azure traces). A field `model` names the
model; without one, models are drawn from a mix.
"""

from __future__ import annotations

import csv
import datetime
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from devcluster.gateway.schedule import Arrival


def read_arrivals(
    path: Path, *, mix: Mapping[str, float], seed: int, speed: float = 1.0
) -> tuple[Arrival, ...]:
    """The arrivals of a file, sorted, the first at 0 s; `speed` 2 replays it in half the time.

    Raises ValueError with file and line for a row without a readable time.
    """
    if speed <= 0:
        raise ValueError(f"speed is {speed:g}: must be above 0")
    rng = random.Random(f"{seed}/models")
    names, weights = list(mix), list(mix.values())
    rows = []
    for line, row in _rows(path):
        model = row.get("model") or rng.choices(names, weights=weights)[0]
        rows.append((_time(row, f"{path}:{line}"), str(model)))
    rows.sort()
    first = rows[0][0] if rows else 0.0
    return tuple(Arrival((at - first) / speed, model) for at, model in rows)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if path.suffix == ".csv":
            yield from ((number, row) for number, row in enumerate(csv.DictReader(file), start=2))
            return
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}:{number}: not a JSON object: {error}") from error
                if not isinstance(row, dict):
                    raise ValueError(f"{path}:{number}: not a JSON object")
                yield number, row


def _date(text: str) -> float:
    head, _, fraction = text.partition(".")
    moment = datetime.datetime.fromisoformat(head)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp() + float(f"0.{fraction[:9] or 0}")


_FIELDS: Mapping[str, Callable[[str], float]] = {
    "at_s": float,
    "scheduled": float,
    "timestamp": lambda text: float(text) / 1000,
    "TIMESTAMP": _date,
}


def _time(row: Mapping[str, object], where: str) -> float:
    for name, read in _FIELDS.items():
        value = row.get(name)
        if value is not None:
            try:
                return read(str(value))
            except ValueError as error:
                raise ValueError(f"{where}: {name} is {value!r}: not a time ({error})") from error
    raise ValueError(f"{where}: no time: needs one of the fields {', '.join(_FIELDS)}")
