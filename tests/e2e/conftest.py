"""One cluster for all end-to-end tests of a session.

`DEVCLUSTER_STATE` names its state folder. A cluster that was up before stays up; one that the session made is taken
down at its end, unless `KEEP=1`.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest

from demo import setup
from devcluster.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The session's cluster, with every node and the name server Ready."""
    if os.geteuid() != 0:
        pytest.skip("a development cluster needs root")
    shared = Cluster()
    was_there = shared.layout.record.exists()
    shared.up()
    yield shared
    if not was_there and os.environ.get("KEEP", "0") in ("", "0"):
        shared.down()


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with the images as they are built now, Prometheus, and the operator: installed as a user does."""

    async def install() -> None:
        kubectl = await setup.bring_up(cluster, print)
        await setup.install(kubectl, print)

    asyncio.run(install())
    return cluster
