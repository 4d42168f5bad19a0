"""Who is in the pool, by DNS: looked up beside the requests, and believed for a while when nobody answers."""

from __future__ import annotations

import threading
import time

from slo_operator.remote.names import BELIEVED_S, FRESH_S, Names


class Dns:
    """Answers as told; None: no answer."""

    def __init__(self, *addresses: str):
        self.now: list[str] | None = list(addresses)
        self.asked = threading.Semaphore(0)

    def __call__(self, host: str) -> list[str]:
        assert host == "pool.serving.svc"
        self.asked.release()
        if self.now is None:
            raise OSError("timed out")
        return self.now


class Clock:
    time = 100.0

    def __call__(self) -> float:
        return self.time


def test_members_that_come_and_go_are_seen_a_second_later() -> None:
    dns, clock = Dns("10.0.0.1"), Clock()
    names = Names("pool.serving.svc", dns, clock)
    assert names.addresses() == ["10.0.0.1"]
    assert dns.asked.acquire(timeout=1.0)
    dns.now = ["10.0.0.2", "10.0.0.3"]
    clock.time += FRESH_S / 2
    assert names.addresses() == ["10.0.0.1"], "not asked at every request"
    for _ in range(100):
        clock.time += FRESH_S
        if names.addresses() == dns.now:
            break
        time.sleep(0.01)
    assert names.addresses() == ["10.0.0.2", "10.0.0.3"]
    dns.now = []
    clock.time += 2 * FRESH_S
    for _ in range(100):
        clock.time += 2 * FRESH_S
        if not names.addresses():
            break
        time.sleep(0.01)
    assert names.addresses() == [], "a pool without ready members is empty at once"


def test_a_dns_that_does_not_answer_leaves_the_members_as_they_were_for_half_a_minute() -> None:
    dns, clock = Dns("10.0.0.1"), Clock()
    names = Names("pool.serving.svc", dns, clock)
    names.addresses()
    dns.now = None
    clock.time += BELIEVED_S / 2
    names._look()
    assert names.addresses() == ["10.0.0.1"]
    clock.time += BELIEVED_S
    names._look()
    assert names.addresses() == []


def test_a_first_look_up_that_fails_is_an_empty_pool() -> None:
    dns = Dns()
    dns.now = None
    assert Names("pool.serving.svc", dns, Clock()).addresses() == []
