"""Where the pods are: a fixed list, or the A records of a headless Service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

Resolve = Callable[[], Awaitable[frozenset[str]]]


def fixed(targets: Sequence[str], port: int) -> Resolve:
    """`targets` as given, with `port` where they name none."""
    addresses = frozenset(target if ":" in target else f"{target}:{port}" for target in targets)

    async def resolve() -> frozenset[str]:
        return addresses

    return resolve


def headless(name: str, port: int, nameserver: str | None = None) -> Resolve:
    """The pods behind the headless Service `name` (a DNS name).

    `nameserver` asks that server instead of the system's: from the host, the address of the
    cluster's DNS Service.     Resolving raises OSError when the name has no records.
    """

    async def by_system() -> frozenset[str]:
        found = await asyncio.get_running_loop().getaddrinfo(
            name, port, family=socket.AF_INET, type=socket.SOCK_STREAM
        )
        return frozenset(f"{address[4][0]}:{port}" for address in found)

    async def by_server() -> frozenset[str]:
        import dns.asyncresolver
        import dns.exception

        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = [nameserver or ""]
        try:
            answer = await resolver.resolve(name, "A", lifetime=2.0)
        except dns.exception.DNSException as error:
            raise OSError(f"{name} at {nameserver}: {error}") from error
        return frozenset(f"{record.address}:{port}" for record in answer)

    return by_server if nameserver else by_system
