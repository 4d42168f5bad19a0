"""The demo's side of the gateway's control API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from devcluster.gateway.records import Record, from_row

#: names of pods that became ready appear in DNS within its cache time
RESOLVE_S = 30.0


class GatewayClient:
    """Drives the load; `records` grows with each `fetch`.

    Raises aiohttp.ClientError when the gateway does not answer, or refuses.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self._next = 0
        self.records: list[Record] = []

    async def start(self, name: str, rate_rps: float, seed: int) -> float:
        """Begin an endless phase with the demo's bursts and mix; returns the Unix time of its 0 s.

        Waits until the gateway has resolved the Service: a request before that has nowhere to go. Raises
        TimeoutError after 30 s.
        """
        async with asyncio.timeout(RESOLVE_S):
            while not (await self.status())["endpoints"]:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.2)
        self._next = int((await self.status())["total"])  # what an earlier run sent is not this one's
        found = await self._post("/phase", {"name": name, "rate": rate_rps, "seed": seed})
        return float(found["started"])

    async def set_rate(self, rate_rps: float) -> float:
        """Change the rate; returns the Unix time of the change."""
        return float((await self._post("/rate", {"rate": rate_rps}))["changed"])

    async def drain(self) -> None:
        """Send nothing more, wait until every request has ended (each has its time limit), fetch the rest."""
        await self._post("/stop", {})
        while (await self.status())["outstanding"]:  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.5)
        await self.fetch()

    async def status(self) -> Mapping[str, Any]:
        async with self._session.get(f"{self._url}/status", timeout=_SOON) as answer:
            answer.raise_for_status()
            found: Mapping[str, Any] = await answer.json()
            return found

    async def fetch(self) -> None:
        """Fetch what ended since the last call, in order."""
        while True:
            url = f"{self._url}/records?since={self._next}"
            async with self._session.get(url, timeout=_SOON) as answer:
                answer.raise_for_status()
                found = await answer.json()
            self.records.extend(from_row(row) for row in found["records"])
            if found["next"] == self._next or not found["records"]:
                return
            self._next = found["next"]

    async def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, Any]:
        async with self._session.post(self._url + path, json=body, timeout=_SOON) as answer:
            found: Mapping[str, Any] = await answer.json()
            if answer.status != 200:
                raise aiohttp.ClientError(f"gateway: {path}: {found.get('error', answer.status)}")
            return found


_SOON = aiohttp.ClientTimeout(total=5)
