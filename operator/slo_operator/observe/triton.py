"""One pod's Triton over gRPC: read configurations and statistics, load models, switch traces.

Never the HTTP port: a load there blocks a client's request behind it for seconds. Every call has a
deadline. Control calls carry the server's key, since control is closed to everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from slo_operator.api.names import GRPC_ADMIN_HEADER

#: the server's model configuration message, tritonclient.grpc.model_config_pb2.ModelConfig
ConfigProto = Any

READ_TIMEOUT_S = 3.0
#: a large engine may take minutes to load
LOAD_TIMEOUT_S = 300.0


class TritonError(Exception):
    """The pod did not answer, or refused; `refused` tells the two apart."""

    def __init__(self, pod: str, call: str, message: str, refused: bool):
        super().__init__(f"{pod}: {call}: {message}")
        self.message = message
        self.refused = refused


@dataclass(frozen=True, slots=True)
class BatchStat:
    """Executions of one batch size since the server started, and their compute time in all."""

    executions: int
    total_s: float


#: model → batch size → statistics
Statistics = Mapping[str, Mapping[int, BatchStat]]


class Triton(Protocol):
    """What the operator asks of a pod; tests bring their own."""

    def models(self) -> list[str]: ...

    def config(self, model: str) -> ConfigProto: ...

    def statistics(self) -> Statistics: ...

    def ready(self, model: str) -> bool: ...

    def load(self, model: str, config: str) -> None: ...

    def trace_settings(self) -> dict[str, list[str]]: ...

    def set_trace_settings(self, settings: Mapping[str, list[str]]) -> dict[str, list[str]]: ...

    def close(self) -> None: ...


#: codes that mean "I heard you and will not", as against "nobody there"
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNKNOWN,
}


class TritonClient:
    """`Triton` for one pod at `address` (ip:port); `key` opens its control calls."""

    def __init__(self, pod: str, address: str, key: str = ""):
        self._pod = pod
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_retries", 0)]
        )
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._metadata = ((GRPC_ADMIN_HEADER, key),) if key else ()

    def models(self) -> list[str]:
        """Names of the loaded, ready models, in order."""
        reply = self._call("RepositoryIndex", service_pb2.RepositoryIndexRequest(ready=True))
        return sorted({m.name for m in reply.models if m.state == "READY"})

    def config(self, model: str) -> ConfigProto:
        """The effective configuration, with what the server filled in."""
        return self._call("ModelConfig", service_pb2.ModelConfigRequest(name=model)).config

    def statistics(self) -> Statistics:
        """Per model and batch size since the server's start; versions of a model together."""
        reply = self._call("ModelStatistics", service_pb2.ModelStatisticsRequest())
        out: dict[str, dict[int, BatchStat]] = {}
        for model in reply.model_stats:
            sizes = out.setdefault(model.name, {})
            for batch in model.batch_stats:
                ns = batch.compute_input.ns + batch.compute_infer.ns + batch.compute_output.ns
                size, old = int(batch.batch_size), sizes.get(int(batch.batch_size), BatchStat(0, 0.0))
                sizes[size] = BatchStat(
                    old.executions + int(batch.compute_infer.count), old.total_s + ns / 1e9
                )
        return out

    def ready(self, model: str) -> bool:
        """Whether the model answers requests now."""
        return bool(self._call("ModelReady", service_pb2.ModelReadyRequest(name=model)).ready)

    def load(self, model: str, config: str) -> None:
        """Load with a whole configuration (JSON; it replaces, never merges). Raises TritonError."""
        request = service_pb2.RepositoryModelLoadRequest(model_name=model)
        request.parameters["config"].string_param = config
        self._call("RepositoryModelLoad", request, LOAD_TIMEOUT_S)

    def trace_settings(self) -> dict[str, list[str]]:
        """The server's global trace settings."""
        return _settings(self._call("TraceSetting", service_pb2.TraceSettingRequest()))

    def set_trace_settings(self, settings: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Change global trace settings live; returns what is in force."""
        request = service_pb2.TraceSettingRequest()
        for name, values in settings.items():
            request.settings[name].value.extend(values)
        return _settings(self._call("TraceSetting", request))

    def close(self) -> None:
        self._channel.close()

    def _call(self, name: str, request: Any, timeout_s: float = READ_TIMEOUT_S) -> Any:
        try:
            return getattr(self._stub, name)(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            call = cast("grpc.Call", error)
            code, details = call.code(), call.details() or ""
            message = f"{code.name.lower().replace('_', ' ')}: {details}"
            raise TritonError(self._pod, name, message, code in _REFUSALS) from error
        except ValueError as error:  # grpc's word for a channel that was closed: the pod is gone
            raise TritonError(self._pod, name, str(error), refused=False) from error


def _settings(reply: Any) -> dict[str, list[str]]:
    return {name: list(value.value) for name, value in reply.settings.items()}
