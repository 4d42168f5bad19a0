"""A small Prometheus client: instant queries with a deadline, no hidden retries, checked answers.

prometheus-api-client was tried: no time-out by default, retries that turn one second into ten, and
warnings dropped. What is needed is one POST and a check of what comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import requests
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError


class PrometheusError(Exception):
    """No usable answer: unreachable, too slow, refused, or not what was asked for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an instant vector. The value may be NaN or infinite: the reader judges."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class RawSeries:
    """The scraped samples of one series within a range, (timestamp, value), oldest first."""

    labels: dict[str, str]
    samples: tuple[tuple[float, float], ...]


_T = TypeVar("_T")


class Querier(Protocol):
    """What the observer asks; tests answer from recorded pages."""

    def vector(self, expression: str, at: float) -> list[Sample]: ...

    def matrix(self, expression: str, at: float) -> list[RawSeries]: ...


def _pair(value: object) -> object:
    """[seconds, "text"] as Prometheus writes a sample."""
    if isinstance(value, list) and len(value) == 2:
        return (float(value[0]), float(value[1]))
    raise ValueError("expected [time, value]")


_Point = Annotated[tuple[float, float], BeforeValidator(_pair)]


class _VectorItem(BaseModel):
    metric: dict[str, str]
    value: _Point


class _MatrixItem(BaseModel):
    metric: dict[str, str]
    values: list[_Point]


class _Vector(BaseModel):
    result_type: Literal["vector"] = Field(alias="resultType")
    result: list[_VectorItem]


class _Matrix(BaseModel):
    result_type: Literal["matrix"] = Field(alias="resultType")
    result: list[_MatrixItem]


_VECTOR: TypeAdapter[_Vector] = TypeAdapter(_Vector)
_MATRIX: TypeAdapter[_Matrix] = TypeAdapter(_Matrix)


class Prometheus:
    """`Querier` over Prometheus's HTTP API. Used by several threads; one session, as requests allows."""

    def __init__(self, url: str, timeout_s: float, token_file: Path | None = None):
        self._url = url.rstrip("/") + "/api/v1/query"
        self._timeout_s = timeout_s
        self._token_file = token_file
        self._session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(max_retries=0, pool_maxsize=16)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def vector(self, expression: str, at: float) -> list[Sample]:
        """Evaluate at `at` (seconds since the epoch). Raises PrometheusError."""
        data = self._query(expression, at, _VECTOR)
        return [Sample(item.metric, item.value[1]) for item in data.result]

    def matrix(self, expression: str, at: float) -> list[RawSeries]:
        """A range selector's raw samples up to `at`. Raises PrometheusError."""
        data = self._query(expression, at, _MATRIX)
        return [RawSeries(item.metric, tuple(item.values)) for item in data.result]

    def _query(self, expression: str, at: float, adapter: TypeAdapter[_T]) -> _T:
        headers = {}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"
        form = {"query": expression, "time": f"{at:.3f}", "timeout": f"{self._timeout_s:g}s"}
        try:
            response = self._session.post(self._url, data=form, headers=headers, timeout=self._timeout_s)
            body: Any = response.json()
        except (requests.RequestException, ValueError) as error:
            raise PrometheusError(f"{self._url}: {error}") from error
        if not isinstance(body, dict) or body.get("status") != "success":
            text = body.get("error") if isinstance(body, dict) else "not a JSON object"
            raise PrometheusError(f"{self._url}: HTTP {response.status_code}: {text} (query: {expression})")
        try:
            return adapter.validate_python(body.get("data"))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise PrometheusError(f"{self._url}: unexpected answer at {where}: {first['msg']}") from error
