"""The command line of tritonserver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slo_operator.api.names import ADMIN_KEY, GRPC_PORT, HTTP_PORT, METRICS_PORT
from slo_operator.render.kept import Kept

OVERLAY_PATH: Final = "/overlay"

#: level: allowed error of the rank. Close enough around 0.99 that an attainment between two levels is a narrow bound
SUMMARY_QUANTILES: Final = "0.5:0.05,0.9:0.01,0.95:0.005,0.98:0.002,0.99:0.001,0.995:0.0005,0.999:0.0001"

#: what loads code, changes or reveals a server: only with the key
RESTRICTED: Final = "model-repository,model-config,trace,logging"

#: connections are closed after this time, so that new pods get their share of long-lived ones
CONNECTION_AGE_S: Final = 300

#: one request in so many is traced once tracing is switched on; while the level is OFF nothing is
TRACE_RATE: Final = 1000


def server_arguments(kept: Kept, trace_url: str | None) -> list[str]:
    """Arguments that the operator owns, in a fixed order.

    `--exit-on-error=true`: with false, a server that cannot read one model's configuration says it is ready and answers
    requests for that model with errors (measured on 2.51; strict readiness counts loaded models only). So a pod that
    lacks a model ends, shows it, and never gets traffic.
    """
    arguments = [
        *common_arguments(("*",), kept.exit_timeout_s),
        f"--grpc-max-connection-age={CONNECTION_AGE_S * 1000}",
        f"--grpc-max-connection-age-grace={kept.grace_s * 1000}",
    ]
    if trace_url is not None:
        arguments += [
            "--trace-config=mode=opentelemetry",
            f"--trace-config=opentelemetry,url={trace_url}",
            "--trace-config=opentelemetry,resource=k8s.pod.name=$(POD_NAME)",
            # the defaults (5 s, 2048 spans) drop spans silently above about 50 requests/s
            "--trace-config=opentelemetry,bsp_schedule_delay=1000",
            "--trace-config=opentelemetry,bsp_max_queue_size=8192",
            "--trace-config=level=OFF",
            f"--trace-config=rate={TRACE_RATE}",
        ]
    return arguments


def common_arguments(models: Sequence[str], exit_timeout_s: int) -> list[str]:
    """Those of every server, whichever models it loads."""
    restricted = f"{RESTRICTED}:{ADMIN_KEY}=$(ADMIN_KEY)"
    return [
        f"--model-repository={OVERLAY_PATH}",
        "--model-control-mode=explicit",
        *(f"--load-model={model}" for model in models),
        "--strict-readiness=true",
        "--exit-on-error=true",
        f"--exit-timeout-secs={exit_timeout_s}",
        f"--http-port={HTTP_PORT}",
        f"--grpc-port={GRPC_PORT}",
        f"--metrics-port={METRICS_PORT}",
        "--metrics-interval-ms=1000",
        "--metrics-config=summary_latencies=true",
        f"--metrics-config=summary_quantiles={SUMMARY_QUANTILES}",
        f"--grpc-restricted-protocol={restricted}",
        f"--http-restricted-api={restricted}",
    ]
