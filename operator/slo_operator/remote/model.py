"""The Triton model that stands in for a stage: it forwards each request to the pool, and computes it itself when the
pool does not answer.

Environment: INFERENCESLO_POOL, `host:port` of the pool's headless Service (without it everything is computed here).
Parameters of the configuration: `inferenceslo_timeout_ms`, how long the pool may take for one request;
`inferenceslo_local_instances`, how many requests are computed here at the same time; `inferenceslo_local_file`, the
stage's own Python file; `inferenceslo_long_bytes` and `inferenceslo_long_members`, from which size on a request is
long, and how many members are for long ones only.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from .board import Board
from .lanes import LongLane, size_class
from .local import Local
from .names import Names
from .pool import Answer, Pool, PoolUnavailable
from .tensors import Tensor, can_send, encode

#: what all instances of the pod share
SHARED = Path("/dev/shm")  # noqa: S108
#: parameters of requests that are Triton's own
_RESERVED = ("sequence_", "priority", "timeout", "headers", "binary_data_output", "triton_")


class TritonPythonModel:
    """One instance, a process of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config.get("parameters", {}).items()}
        self._name = name = args["model_name"]
        self._trouble = ""
        folder = Path(args["model_repository"]) / args["model_version"]
        self._local = Local(
            folder / parameters.get("inferenceslo_local_file", "model.py"),
            args,
            SHARED / f"inferenceslo-{name}-local",
            int(parameters.get("inferenceslo_local_instances", "1")),
        )
        self._pool: Pool | None = None
        self._board: Board | None = None
        host, _, port = os.environ.get("INFERENCESLO_POOL", "").rpartition(":")
        if host and port.isdecimal():
            self._board = Board(SHARED / f"inferenceslo-{name}-pool")
            timeout_s = int(parameters.get("inferenceslo_timeout_ms", "1000")) / 1e3
            self._pool = Pool(
                name, int(port), Names(host).addresses, self._board, timeout_s, _lane(parameters)
            )
        self._types = _types(config)
        self._results = _Results(name)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._one(request) for request in requests]

    def finalize(self) -> None:
        self._local.close()
        if self._pool is not None:
            self._pool.close()
        if self._board is not None:
            self._board.close()

    def _one(self, request: Any) -> Any:
        inputs = [Tensor(t.name(), self._types[t.name()], t.as_numpy()) for t in request.inputs()]
        refused: tuple[str, ...] = ()
        if self._pool is not None and all(map(can_send, inputs)):
            body = encode(inputs, request.requested_output_names(), _parameters(request))
            try:
                answer = self._pool.infer(body)
            except PoolUnavailable as error:
                refused = error.refused_by
                self._say(f"computed here: {error}")
            else:
                self._say("")
                self._results.pool(answer, body.size)
                tensors = [pb_utils.Tensor(t.name, t.array) for t in answer.tensors]
                return pb_utils.InferenceResponse(output_tensors=tensors)
        response = self._local.execute(request)
        self._results.local()
        if self._pool is not None and not response.has_error():
            for member in refused:  # the request was in order, so the member is not
                self._pool.give_up(member)
        return response

    def _say(self, trouble: str) -> None:
        """Once when it begins, once when it is over."""
        if trouble and not self._trouble:
            pb_utils.Logger.log_warn(f"{self._name}: {trouble}")
        elif self._trouble and not trouble:
            pb_utils.Logger.log_info(f"{self._name}: the pool answers again")
        self._trouble = trouble


def _types(config: dict[str, Any]) -> dict[str, str]:
    """Input → the protocol's name of its type."""
    found = {i["name"]: i["data_type"].removeprefix("TYPE_") for i in config["input"]}
    return {name: "BYTES" if kind == "STRING" else kind for name, kind in found.items()}


def _lane(parameters: dict[str, str]) -> LongLane | None:
    members = int(parameters.get("inferenceslo_long_members", "0"))
    return LongLane(int(parameters["inferenceslo_long_bytes"]), members) if members else None


def _parameters(request: Any) -> dict[str, Any]:
    """What the client passed along for the model."""
    given: dict[str, Any] = json.loads(request.parameters() or "{}")
    return {k: v for k, v in given.items() if not k.startswith(_RESERVED)}


class _Results:
    """Where requests were computed, and how long the pool took by their size, on the server's metrics page."""

    def __init__(self, model: str):
        requests = pb_utils.MetricFamily(
            name="inferenceslo_pool_requests_total",
            description="Requests of a moved stage: answered by the pool at once, by another of its members, or here",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        #: bytes: the size of the request, below that; found: what it met there, an idle member or not
        self._answers = pb_utils.MetricFamily(
            name="inferenceslo_pool_answers_total",
            description="Requests that the pool answered",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self._seconds = pb_utils.MetricFamily(
            name="inferenceslo_pool_seconds_total",
            description="Seconds from sending a request to the pool until its answer, of those that it answered",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self._model = model
        self._requests = requests
        self._by_size: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._at_once, self._retried, self._local = (
            requests.Metric(labels={"model": model, "result": result})
            for result in ("pool", "retried", "local")
        )

    def pool(self, answer: Answer, size: int) -> None:
        (self._at_once if answer.attempt == 1 else self._retried).increment(1)
        answers, seconds = self._of(size_class(size), "idle" if answer.idle else "busy")
        answers.increment(1)
        seconds.increment(answer.seconds)

    def _of(self, size: str, found: str) -> tuple[Any, Any]:
        key = (size, found)
        if key not in self._by_size:
            labels = {"model": self._model, "bytes": size, "found": found}
            self._by_size[key] = (self._answers.Metric(labels=labels), self._seconds.Metric(labels=labels))
        return self._by_size[key]

    def local(self) -> None:
        self._local.increment(1)
