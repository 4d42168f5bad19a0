"""What became of every request: kept in memory for the control API, and written to a file when asked."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class Record:
    """One request. Times are Unix seconds; latency counts from the *scheduled* time, so that a late
    sender does not hide queueing.

    status: the HTTP status; 502, 503 or 504 when the gateway itself had to answer (connection
        broken, no pod, no answer within the time limit), with the cause in `error`.
    pod: the address that answered or was asked last.
    retries: connections refused before anything was sent.
    """

    number: int
    phase: str
    model: str
    scheduled: float
    sent: float
    latency_s: float
    status: int
    pod: str
    retries: int = 0
    error: str = ""

    @property
    def failed(self) -> bool:
        return self.status != 200


FIELDS = tuple(field.name for field in fields(Record))


def as_row(record: Record) -> list[object]:
    """The record as a row in the order of FIELDS, times to the microsecond."""
    return [round(value, 6) if isinstance(value, float) else value for value in astuple(record)]


def from_row(row: Iterable[object]) -> Record:
    """The record of a row written by `as_row`."""
    return Record(*row)  # type: ignore[arg-type]


class Recorder:
    """The last `keep` records, numbered from 0 without gaps in the order in which they ended."""

    def __init__(self, path: Path | None = None, keep: int = 400_000) -> None:
        self._kept: deque[Record] = deque(maxlen=keep)
        self.total = 0
        self.failed = 0
        self.retries = 0
        self._file: IO[str] | None = None
        self._csv = path is not None and path.suffix == ".csv"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", newline="", buffering=1 << 16)
            if self._csv:
                csv.writer(self._file).writerow(FIELDS)

    def add(self, record: Record) -> None:
        """Keep a record; its number must be `total`."""
        if record.number != self.total:
            raise ValueError(f"record number {record.number}: must be {self.total}")
        self._kept.append(record)
        self.total += 1
        self.failed += record.failed
        self.retries += record.retries
        if self._file is not None:
            if self._csv:
                csv.writer(self._file).writerow(as_row(record))
            else:
                self._file.write(json.dumps(asdict(record)) + "\n")

    def since(self, number: int, limit: int = 20_000) -> list[Record]:
        """Records from `number` on, at most `limit`; those that are no longer kept are left out."""
        first = self.total - len(self._kept)
        begin = max(0, number - first)
        return [self._kept[at] for at in range(begin, min(begin + limit, len(self._kept)))]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
