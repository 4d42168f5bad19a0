"""One request: chosen pod, kept-alive connection, time limit from the scheduled moment, one outcome."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType

import aiohttp

from devcluster.gateway.balancing import LeastOutstanding

BAD_GATEWAY, UNAVAILABLE, TIMEOUT = 502, 503, 504


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended; `status` is 502, 503 or 504 when no server's answer arrived."""

    status: int
    pod: str
    sent: float
    ended: float
    retries: int = 0
    error: str = ""


class Sender:
    """Posts bodies to the pods of a balancer. Nothing is ever sent twice: another pod is tried only
    when a connection was refused, so that no byte of the request had left.
    """

    def __init__(self, balancer: LeastOutstanding, timeout_s: float = 10.0) -> None:
        self._balancer = balancer
        self._timeout_s = timeout_s
        # Idle connections are dropped after 30 s, before servers do it; so end those of vanished pods.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=30.0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": "application/json"},
        )

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def post(self, path: str, body: bytes, deadline: float) -> Outcome:
        """Send `body`; `deadline` is in the event loop's time (scheduled time + time limit)."""
        pod, sent, refused = "", time.time(), set[str]()
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    chosen = self._balancer.acquire(avoid=refused)
                    if chosen is None:
                        cause = f"refused by {len(refused)} pods" if refused else "no pod to send to"
                        return Outcome(UNAVAILABLE, pod, sent, time.time(), len(refused), cause)
                    pod = chosen
                    try:
                        async with self._session.post(f"http://{pod}{path}", data=body) as answer:
                            text = await answer.read()
                            error = "" if answer.status == 200 else text[:200].decode(errors="replace")
                            return Outcome(answer.status, pod, sent, time.time(), len(refused), error)
                    except aiohttp.ClientConnectorError as failure:
                        if not isinstance(failure.os_error, ConnectionRefusedError):
                            raise
                        refused.add(pod)
                    finally:
                        self._balancer.release(pod)
        except TimeoutError:
            limit = f"no answer within {self._timeout_s:g} s"
            return Outcome(TIMEOUT, pod, sent, time.time(), len(refused), limit)
        except (aiohttp.ClientError, OSError) as failure:
            cause = f"{type(failure).__name__}: {failure}"
            return Outcome(BAD_GATEWAY, pod, sent, time.time(), len(refused), cause)
