"""The wire format: what goes out comes back, and what is not an answer is never taken for one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from slo_operator.remote.tensors import Body, Tensor, can_send, decode, encode

NUMBERS = {
    "BOOL": "?",
    "UINT8": "u1",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    name = draw(st.text(min_size=1, max_size=5))
    shape = draw(st_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
    kind = draw(st.sampled_from([*NUMBERS, "BYTES"]))
    if kind != "BYTES":
        return Tensor(name, kind, draw(st_numpy.arrays(NUMBERS[kind], shape)))
    items = draw(st.lists(st.binary(max_size=9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return Tensor(name, kind, array.reshape(shape))


def as_answer(body: Body) -> Body:
    """What a server that echoes its inputs would answer."""
    request = json.loads(body.content[: body.header_length])
    header = json.dumps({"model_name": "m", "outputs": request["inputs"]}).encode()
    return Body(header + body.content[body.header_length :], len(header))


@given(st.lists(tensors(), max_size=3))
def test_what_goes_out_comes_back(sent: list[Tensor]) -> None:
    got = decode(as_answer(encode(sent, ["OUT"])))
    assert [(t.name, t.datatype, t.array.shape) for t in got] == [
        (t.name, t.datatype, t.array.shape) for t in sent
    ]
    for one, other in zip(sent, got, strict=True):
        np.testing.assert_array_equal(one.array, other.array)


def test_a_request_asks_for_its_outputs_as_binary_data_and_carries_its_parameters() -> None:
    """Text goes out as its length in four bytes, little end first, and its UTF-8."""
    prompt = Tensor("PROMPT", "BYTES", np.array([["hé".encode(), b""]], dtype=np.object_))
    body = encode([prompt], ["IDS"], {"tenant": "a"})
    assert json.loads(body.content[: body.header_length]) == {
        "inputs": [
            {"name": "PROMPT", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": 11}}
        ],
        "outputs": [{"name": "IDS", "parameters": {"binary_data": True}}],
        "parameters": {"tenant": "a"},
    }
    assert body.content[body.header_length :] == b"\x03\0\0\0h\xc3\xa9\0\0\0\0"


def test_a_type_without_a_form_is_refused_before_anything_is_sent() -> None:
    odd = Tensor("X", "BF16", np.zeros(1, dtype="u2"))
    assert not can_send(odd)
    with pytest.raises(ValueError, match="X: BF16 cannot be sent"):
        encode([odd], [])


ONE: dict[str, Any] = {"name": "X", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}


@pytest.mark.parametrize(
    ("outputs", "blob", "words"),
    [
        ([ONE], b"1234", "X: 4 of 8 bytes are there"),
        ([ONE | {"shape": [3]}], b"12345678", r"X: 2 elements do not fill the shape \[3\]"),
        ([ONE | {"datatype": "INT5"}], b"12345678", "X: the datatype INT5 is not known"),
        ([ONE | {"datatype": "BYTES"}], b"\x05\0\0\0abcd", "X: a string is cut off"),
        (
            [ONE | {"datatype": "BYTES", "parameters": {"binary_data_size": 2}}],
            b"ab",
            "X: a string's length is cut",
        ),
        ([{"name": "X"}], b"", "not an answer"),
        (None, b"", "not an answer"),
    ],
)
def test_a_broken_answer_is_named(outputs: Any, blob: bytes, words: str) -> None:
    header = json.dumps({"outputs": outputs}).encode()
    with pytest.raises(ValueError, match=words):
        decode(Body(header + blob, len(header)))


@given(st.binary(max_size=40), st.integers(0, 50))
def test_garbage_is_never_an_answer_and_never_another_error(content: bytes, length: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(Body(content, length))
