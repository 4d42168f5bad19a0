"""Tensors as a KServe v2 request with binary data, and back.

A body is a JSON header followed by the raw tensors in the header's order; the length of the header goes into
`Inference-Header-Content-Length`. Source: KServe's open inference protocol v2, binary tensor data extension.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_TYPES: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
_LENGTH = struct.Struct("<I")


class Tensor(NamedTuple):
    """A named array; `datatype` is the protocol's name (`BYTES` for strings: an object array of bytes)."""

    name: str
    datatype: str
    array: np.ndarray[Any, Any]


class Body(NamedTuple):
    """What goes over the wire, and how many bytes of it are the JSON header."""

    content: bytes
    header_length: int

    @property
    def size(self) -> int:
        """Bytes of the tensors alone."""
        return len(self.content) - self.header_length


def can_send(tensor: Tensor) -> bool:
    """Whether the protocol has a form for it that numpy can hold (bfloat16 has none)."""
    return tensor.datatype == "BYTES" or tensor.datatype in _TYPES


def encode(
    inputs: Sequence[Tensor], outputs: Sequence[str], parameters: Mapping[str, Any] | None = None
) -> Body:
    """A request for these outputs. Raises ValueError for a type that cannot be sent."""
    described, blobs = [], []
    for tensor in inputs:
        if not can_send(tensor):
            raise ValueError(f"{tensor.name}: {tensor.datatype} cannot be sent as binary data")
        blob = _pack(tensor)
        blobs.append(blob)
        described.append(
            {
                "name": tensor.name,
                "shape": list(tensor.array.shape),
                "datatype": tensor.datatype,
                "parameters": {"binary_data_size": len(blob)},
            }
        )
    request: dict[str, Any] = {
        "inputs": described,
        "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in outputs],
    }
    if parameters:
        request["parameters"] = dict(parameters)
    header = json.dumps(request, separators=(",", ":")).encode()
    return Body(b"".join((header, *blobs)), len(header))


def decode(body: Body) -> list[Tensor]:
    """The outputs of an answer. Raises ValueError when it is not one."""
    try:
        outputs = json.loads(body.content[: body.header_length])["outputs"]
        found, at = [], body.header_length
        for output in outputs:
            size = int(output["parameters"]["binary_data_size"])
            blob = body.content[at : at + size]
            if len(blob) != size:
                raise ValueError(f"{output['name']}: {len(blob)} of {size} bytes are there")
            found.append(_unpack(output["name"], output["datatype"], output["shape"], blob))
            at += size
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"not an answer of the protocol: {error!r}") from None
    return found


def _pack(tensor: Tensor) -> bytes:
    if tensor.datatype != "BYTES":
        return np.ascontiguousarray(tensor.array, dtype=_TYPES[tensor.datatype]).tobytes()
    parts = []
    for item in tensor.array.ravel():
        text = item if isinstance(item, bytes) else str(item).encode()
        parts += [_LENGTH.pack(len(text)), text]
    return b"".join(parts)


def _unpack(name: str, datatype: str, shape: Sequence[int], blob: bytes) -> Tensor:
    if datatype == "BYTES":
        items = _strings(name, blob)
        array = np.empty(len(items), dtype=np.object_)
        array[:] = items
    elif datatype in _TYPES:
        array = np.frombuffer(blob, dtype=_TYPES[datatype])
    else:
        raise ValueError(f"{name}: the datatype {datatype} is not known")
    if math.prod(shape) != array.size:
        raise ValueError(f"{name}: {array.size} elements do not fill the shape {list(shape)}")
    return Tensor(name, datatype, array.reshape(shape))


def _strings(name: str, blob: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(blob):
        if at + _LENGTH.size > len(blob):
            raise ValueError(f"{name}: a string's length is cut off")
        (length,) = _LENGTH.unpack_from(blob, at)
        at += _LENGTH.size
        if at + length > len(blob):
            raise ValueError(f"{name}: a string is cut off")
        found.append(blob[at : at + length])
        at += length
    return found
