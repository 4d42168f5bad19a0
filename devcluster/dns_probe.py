"""One question to a name server: the only way to know that pods, Services and names work together."""

import random
import socket
import struct
from ipaddress import IPv4Address

_TYPE_A, _CLASS_IN = 1, 1
_HEADER = struct.Struct("!6H")


def query(name: str, identity: int) -> bytes:
    """A question for the IPv4 address of `name`, as RFC 1035 has it."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split("."))
    return (
        _HEADER.pack(identity, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", _TYPE_A, _CLASS_IN)
    )


def answers_with(reply: bytes, identity: int, address: IPv4Address) -> bool:
    """Whether a reply to the question `identity` is an answer without error that ends in `address`."""
    if len(reply) < _HEADER.size:
        return False
    found, flags, _, answers, _, _ = _HEADER.unpack_from(reply)
    is_answer = found == identity and bool(flags & 0x8000) and flags & 0x000F == 0 and answers > 0
    return is_answer and struct.pack("!H", 4) + address.packed in reply


def resolves(server: IPv4Address, name: str, address: IPv4Address) -> bool:
    """Whether `server` gives `address` for `name` within 2 s."""
    identity = random.randrange(1 << 16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(2.0)
        try:
            asked.sendto(query(name, identity), (str(server), 53))
            return answers_with(asked.recv(4096), identity, address)
        except OSError:
            return False
