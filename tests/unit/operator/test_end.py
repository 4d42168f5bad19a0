"""The end of the process: what is under way is finished, nothing new is begun, and nothing is called a failure."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from slo_operator.app import Operator, Outside
from slo_tuner.decide import decide
from tests.unit.operator.world import World


def test_a_stop_in_mid_tick_lets_the_tick_finish(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    deciding, stopped = threading.Event(), threading.Event()

    def brain(*args: Any) -> Any:
        deciding.set()
        assert stopped.wait(10.0)
        return decide(*args)

    outside = Outside(world.kube, world.prometheus, lambda *_: world.tritons[""], brain, world.clock)
    operator = Operator(world.config, outside, lambda: [world.body])
    for reflector in operator.cluster._all:
        reflector.relist()
    operator._looping.start()
    assert deciding.wait(10.0)
    ending = threading.Thread(target=operator.stop)
    ending.start()
    assert operator._stop.wait(10.0)
    stopped.set()
    ending.join(30.0)
    assert not ending.is_alive()
    assert not operator._looping.is_alive()
    assert world.status["conditions"], "what the tick decided was carried out and published"
    assert operator.metrics.tick_failures._value.get() == 0
    assert [r for r in caplog.records if r.levelname == "ERROR"] == []
