"""Load begins when the gateway knows where to send it."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from demo.gateway_client import GatewayClient

pytestmark = pytest.mark.unit


async def test_no_request_is_sent_before_the_gateway_has_found_the_pods() -> None:
    asked: list[str] = []

    async def status(_: web.Request) -> web.Response:
        asked.append("status")
        found = ["10.0.0.1:8000"] if len(asked) > 2 else []
        return web.json_response({"total": 0, "endpoints": found})

    async def phase(_: web.Request) -> web.Response:
        asked.append("phase")
        return web.json_response({"started": 5.0})

    app = web.Application()
    app.add_routes([web.get("/status", status), web.post("/phase", phase)])
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = GatewayClient(session, f"http://{server.host}:{server.port}")
        assert await client.start("load", 40.0, seed=1) == 5.0
    assert asked.index("phase") >= 3
