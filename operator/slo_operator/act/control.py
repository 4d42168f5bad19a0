"""Bringing pods to the settings of a decision, over gRPC: in an order that never breaks an ensemble,
checked before, read back after, one pod at a time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slo_operator.observe.live import LivePod, LiveReader
from slo_operator.observe.measured import PodKey
from slo_operator.observe.triton import Triton, TritonError
from slo_operator.render.load_order import load_order
from slo_operator.render.model_config import apply_settings, describe, settings_of, to_json
from slo_tuner.settings import ModelSettings, PodSettings
from slo_tuner.snapshot import Refusal

log = logging.getLogger(__name__)

#: the same load on the same pod: failed loads may leak memory, so no hot loop
MAX_TRIES = 2
TRIES_WITHIN_S = 600.0
#: Between two loads of one model on one pod: after a reload the old copy unloads for 2–3 s, and a change of its
#: instances meanwhile has crashed servers (measured on Triton 2.51).
LOAD_GAP_S = 5.0


@dataclass(slots=True)
class ControlResult:
    """What became of a decision on the pods. `problem` is for people when nobody refused anything."""

    loads: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    problem: str = ""


class Controller:
    """Loads settings into pods; remembers failed tries of the last minutes only."""

    def __init__(self, reader: LiveReader, clock: Callable[[], float]):
        self._reader = reader
        self._clock = clock
        self._failed: dict[tuple[PodKey, str, ModelSettings], list[float]] = {}
        self._loaded_at: dict[tuple[PodKey, str], float] = {}

    def carry_out(
        self,
        namespace: str,
        wanted: Mapping[str, PodSettings],
        live: Mapping[PodKey, LivePod],
        gpus: int,
    ) -> ControlResult:
        """Load what differs, pod by pod in the order given. A pod that does not answer is left for the
        next tick, and so are the pods after the first trouble: a bad setting stays on one pod. So is a pod
        on which one of the models was loaded within the last five seconds.
        """
        result = ControlResult()
        settled = self._clock() - LOAD_GAP_S
        for stale in [k for k, t in list(self._loaded_at.items()) if t <= settled]:
            self._loaded_at.pop(stale, None)
        for pod, settings in wanted.items():
            key = (namespace, pod)
            state, client = live.get(key), self._reader.client(key)
            if state is None or client is None or state.error or not settings:
                continue
            try:
                loads = load_order(state.settings, settings, state.models)
            except ValueError as error:
                self._refuse(result, pod, settings, state, str(error))
                break
            if not loads:
                continue
            done = self._load_all(result, key, client, state, loads, gpus)
            self._reader.invalidate(key)
            if not done:
                break
        return result

    def _load_all(
        self,
        result: ControlResult,
        key: PodKey,
        client: Triton,
        state: LivePod,
        loads: list[tuple[str, ModelSettings]],
        gpus: int,
    ) -> bool:
        if any(self._clock() - self._loaded_at.get((key, m), -math.inf) < LOAD_GAP_S for m, _ in loads):
            return False
        for model, settings in loads:
            tries = [
                t for t in self._failed.get((key, model, settings), []) if t > self._clock() - TRIES_WITHIN_S
            ]
            if len(tries) >= MAX_TRIES:
                text = f"failed {len(tries)} times in {TRIES_WITHIN_S / 60:.0f} min, not tried again yet"
                result.refusals.append(Refusal(key[1], model, settings, text))
                return False
            try:
                config = to_json(apply_settings(state.configs[model], settings, gpus))
            except ValueError as error:
                result.refusals.append(Refusal(key[1], model, settings, f"not sent: {error}"))
                return False
            result.loads += 1
            failure = self._load(client, model, config, settings, gpus)
            if failure is None or not failure[1]:  # a refused load leaves the old copy in its place
                self._loaded_at[key, model] = self._clock()
            if failure is None:
                log.info("pod %s now runs %s", key[1], describe({model: settings}))
                continue
            message, heard = failure
            if not heard:
                result.problem = f"pod {key[1]}: {model}: {message}"
                return False
            self._failed[key, model, settings] = [*tries, self._clock()]
            result.refusals.append(Refusal(key[1], model, settings, message))
            return False
        return True

    @staticmethod
    def _load(
        client: Triton, model: str, config: str, settings: ModelSettings, gpus: int
    ) -> tuple[str, bool] | None:
        """None when the server now runs the settings; else (why not, whether it answered at all).

        What counts is the configuration read back, not the answer: servers have said yes to a
        configuration that they then did not use, and no while the text blames the wrong thing.
        """
        answer, refused = "", False
        try:
            client.load(model, config)
        except TritonError as error:
            answer, refused = error.message, error.refused
        try:
            runs, ready = settings_of(client.config(model), gpus), client.ready(model)
        except TritonError as error:
            return (answer or error.message), refused
        if runs == settings and ready:
            return None
        if not ready:
            return (answer or "the model is not ready after the load"), True
        return (
            answer
            or f"the server said yes, but runs {describe({model: runs})}, not {describe({model: settings})}"
        ), True

    @staticmethod
    def _refuse(result: ControlResult, pod: str, wanted: PodSettings, state: LivePod, message: str) -> None:
        """Settings that cannot be ordered are refused for every model that they would change."""
        for model, settings in wanted.items():
            if state.settings.get(model) != settings:
                result.refusals.append(Refusal(pod, model, settings, f"not sent: {message}"))
