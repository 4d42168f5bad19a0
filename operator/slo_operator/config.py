"""The operator's own configuration: one YAML file, owned by the administrator, not by tenants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from slo_operator.api.types import Duration

DEFAULT_PATH = Path("/etc/inferenceslo/config.yaml")


class ConfigError(Exception):
    """The configuration file cannot be used; the message names file, field and what would be right."""


def _seconds(value: object) -> object:
    """`15s`, `500ms`, or a number of seconds."""
    if isinstance(value, str):
        try:
            return Duration(value.strip()).seconds
        except ValueError:
            text = f"{value!r} is not a duration; write a number with a unit, such as 15s or 500ms"
            raise ValueError(text) from None
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class PrometheusConfig(_Section):
    """Where the measurements are. Prometheus itself, Thanos, Mimir or VictoriaMetrics."""

    url: str = Field(default="http://prometheus.monitoring.svc:9090", pattern=r"^https?://")
    timeout: Seconds = Field(default=5.0, gt=0, le=60)
    bearer_token_file: Path | None = None


class TracesConfig(_Section):
    """Request traces that Triton sends on demand. `rate`: one request in so many is traced.

    Off unless asked for: Triton's tracing can crash the server, see docs/operations.md.
    """

    enabled: bool = False
    url: str = "http://inferenceslo-operator.inferenceslo-system.svc:4318/v1/traces"
    rate: int = Field(default=1, ge=1, le=1_000_000)
    port: int = Field(default=4318, ge=0, le=65535)
    max_requests: int = Field(default=50_000, ge=100, le=1_000_000)


class GatewayHistogramConfig(_Section):
    """A client-side latency histogram, by the family's name without `_bucket`.

    namespace_label names the label with the namespace of the served workload; without it (empty) the
    family is taken for all of them. Requests whose status_label does not match success are failures.
    pod_label names the label with the pod that answered, by its name or its address (with or without
    port); empty: the family does not tell.
    """

    family: str = Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
    model_label: str = Field(default="model", pattern=r"^[a-zA-Z_]\w*$")
    namespace_label: str = Field(default="target_namespace", pattern=r"^([a-zA-Z_]\w*)?$")
    status_label: str = Field(default="status", pattern=r"^([a-zA-Z_]\w*)?$")
    pod_label: str = Field(default="", pattern=r"^([a-zA-Z_]\w*)?$")
    success: str = r"2\d\d|OK|0"
    unit: Literal["seconds", "milliseconds"] = "seconds"
    match_labels: dict[str, str] = Field(default_factory=dict)


class OperatorConfig(_Section):
    """Everything the operator is told at its start."""

    prometheus: PrometheusConfig = PrometheusConfig()
    interval: Seconds = Field(default=15.0, ge=1, le=300)
    overlay_image: str = "inferenceslo/operator:dev"
    traces: TracesConfig = TracesConfig()
    gateway_histograms: list[GatewayHistogramConfig] = Field(default_factory=list, max_length=8)
    http_port: int = Field(default=8080, ge=0, le=65535)
    namespace: str = "inferenceslo-system"


def load_config(path: Path) -> OperatorConfig:
    """Read and check the file; ConfigError says which field is wrong and why."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    return parse_config(data, str(path))


def parse_config(data: object, origin: str) -> OperatorConfig:
    """Check parsed YAML; `origin` is named in errors."""
    if data is None:
        return OperatorConfig()
    if not isinstance(data, dict):
        got = type(data).__name__
        raise ConfigError(f"{origin}: expected a mapping with prometheus, interval, …; got {got}")
    try:
        return OperatorConfig.model_validate(data)
    except ValidationError as error:
        lines = [
            f"{origin}: {'.'.join(str(p) for p in e['loc'])}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from error
