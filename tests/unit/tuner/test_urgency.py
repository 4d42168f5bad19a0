"""When the margin under a target is used up: from the gateway's histogram, or else from request traces."""

from __future__ import annotations

import pytest

from slo_tuner.memory import ServerMemory
from slo_tuner.policy import Policy
from slo_tuner.snapshot import GatewayHistogram, RequestTrace, ServerView
from slo_tuner.urgency import tight
from tests.unit.tuner.builders import server

NOW = 1000.0
LONG_AGO = ServerMemory(last_action=0.0)


def seen(bound_s: float, within: float, window_s: float = 60.0, total: float = 1000.0) -> ServerView:
    """A gateway's histogram with one bound beside the target of 300 ms, which all requests meet."""
    buckets = ((bound_s, within), (0.3, total), (float("inf"), total))
    return server(gateway=(GatewayHistogram("chat", window_s, buckets, 0.0, "gateway"),))


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (980, True),  # p99 is over 270 ms: 2 % of 1,000 are
        (998, False),  # 0.2 % are
        (990, False),  # as likely as not: no reason to turn a lever
    ],
)
def test_a_p99_in_the_last_tenth_below_its_target_is_tight(within: float, expected: bool) -> None:
    assert tight(seen(0.27, within), LONG_AGO, Policy(), NOW) is expected


@pytest.mark.parametrize("bound_s", [0.25, 0.269])
def test_a_histogram_without_a_bound_within_the_margin_cannot_tell(bound_s: float) -> None:
    assert not tight(seen(bound_s, 500), LONG_AGO, Policy(), NOW)


def test_a_window_that_reaches_back_before_the_last_action_is_no_evidence() -> None:
    view = seen(0.27, 900, window_s=300.0)
    assert not tight(view, ServerMemory(last_action=NOW - 299.0), Policy(), NOW)
    assert tight(view, ServerMemory(last_action=NOW - 301.0), Policy(), NOW)


def test_few_requests_are_no_evidence() -> None:
    assert not tight(seen(0.27, 250, total=299), LONG_AGO, Policy(), NOW)


def test_without_a_gateway_request_traces_tell() -> None:
    def traced(slow: int) -> ServerView:
        times = [0.28] * slow + [0.2] * (1000 - slow)
        traces = tuple(RequestTrace("a", "chat", NOW - 60.0 + i * 0.05, t, {}) for i, t in enumerate(times))
        return server(gateway=(), traces=traces)

    assert tight(traced(slow=20), LONG_AGO, Policy(), NOW)
    assert not tight(traced(slow=2), LONG_AGO, Policy(), NOW)
