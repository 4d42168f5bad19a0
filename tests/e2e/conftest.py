"""One cluster for all end-to-end tests of a session.

`DEVCLUSTER_STATE` names its state folder. A cluster that was up before stays up; one that the session made is taken
down at its end, unless `KEEP=1`.
"""

import asyncio
import os
from collections.abc import Generator, Iterator

import pytest

from demo import setup
from devcluster.cluster import Cluster
from tests.e2e.noise import Noise, excuse

NOISE = pytest.StashKey[Noise]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOISE] = Noise()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[NOISE].stop()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("loop"):
        item.config.stash[NOISE].start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test of the loop is skipped as inconclusive when the machine was too noisy meanwhile."""
    report = yield
    if not item.get_closest_marker("loop"):
        return report
    late = item.config.stash[NOISE].note(item.path.name, call.start, call.stop)
    why = excuse(late)
    if report.failed and why:
        report.sections.append(("failure", str(report.longrepr)))
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, why)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for module, late in terminalreporter.config.stash[NOISE].latest.items():
        terminalreporter.write_line(
            f"{module}: a sleeping probe woke up {late:.0f} ms late (p99 of the worst test)"
        )


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
