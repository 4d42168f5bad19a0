"""kopf's wiring, and nothing else: our own resources, wake-ups, start and end of the process.

No finalizers and no annotations: children go by owner references, also while the operator is down.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import kopf

from slo_operator.api.names import GROUP, PLURAL, VERSION
from slo_operator.app import Operator
from slo_operator.specs import Bodies, Specs


def register(registry: kopf.OperatorRegistry, operator: Operator, specs: Specs) -> None:
    """Put the handlers into kopf's registry."""
    stop = threading.Event()

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **indices: Any) -> None:
        configure(settings)
        specs.attach(asyncio.get_running_loop(), lambda: _copy(indices["bodies"]))
        operator.start()
        threading.Thread(target=specs.watch, args=(stop,), name="specs", daemon=True).start()

    @kopf.index(GROUP, VERSION, PLURAL, registry=registry, id="bodies")
    async def bodies(body: kopf.Body, namespace: str | None, name: str, **_: Any) -> Any:
        return {(namespace or "", name): dict(body)}

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(type: str | None, meta: kopf.Meta, **_: Any) -> None:  # noqa: A002
        # Our own status writes come back here as well; they are no reason for another round.
        if specs.is_news(meta.get("uid", ""), meta.get("generation"), gone=type == "DELETED"):
            operator.loop.wake()

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        stop.set()
        await asyncio.to_thread(operator.stop)


def configure(settings: kopf.OperatorSettings) -> None:
    """One replica with Recreate is the only one: no peering. Watches end by themselves, so a dead one ends too."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


def _copy(index: kopf.Index[Any, Any]) -> Bodies:
    """A plain copy; the last body of each key."""
    return {key: list(bodies)[-1] for key, bodies in index.items() if len(bodies)}
