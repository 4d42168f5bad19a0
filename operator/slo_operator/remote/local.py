"""The stage itself, in this process: for when the pool does not answer."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_BYTE = 1


class Local:
    """The model's own Python file, loaded when it is first needed.

    `lock` is a file shared by all instances of the pod and `at_once` how many of them may compute at the same time:
    there are many more instances than the host has cores for, since they usually just wait for the pool.
    """

    def __init__(self, file: Path, arguments: dict[str, str], lock: Path, at_once: int):
        self._file = file
        self._arguments = arguments
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._at_once = max(1, at_once)
        self._model: Any = None

    def execute(self, request: Any) -> Any:
        """The model's response. Raises what the model raises."""
        with self._turn():
            if self._model is None:
                self._model = self._load()
            responses: Any = self._model.execute([request])
            if inspect.isawaitable(responses):
                responses = asyncio.run(_result(responses))
            return _only(responses)

    def close(self) -> None:
        if self._model is not None and hasattr(self._model, "finalize"):
            self._model.finalize()
        self._model = None
        os.close(self._lock)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        place = self._place()
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, _BYTE, place)

    def _place(self) -> int:
        for place in range(self._at_once):
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, _BYTE, place)
            except OSError:
                continue
            return place
        place = os.getpid() % self._at_once
        fcntl.lockf(self._lock, fcntl.LOCK_EX, _BYTE, place)
        return place

    def _load(self) -> Any:
        spec = importlib.util.spec_from_file_location(f"local_{self._file.stem}", self._file)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(self._file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.TritonPythonModel()
        if hasattr(model, "initialize"):
            model.initialize(dict(self._arguments))
        return model


async def _result(awaitable: Any) -> Any:
    return await awaitable


def _only(responses: Sequence[Any] | None) -> Any:
    if responses is None or len(responses) != 1:
        raise RuntimeError("the model gave no response: decoupled models cannot be forwarded")
    return responses[0]
