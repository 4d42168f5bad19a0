"""A partial pod template merged as kubectl would."""

from __future__ import annotations

from typing import Any

from slo_operator.render.merge import strategic_merge

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "triton",
                "image": "t",
                "args": ["--x"],
                "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"nvidia.com/gpu": "2"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
    },
}


def test_objects_merge_and_lists_merge_by_their_key() -> None:
    out = strategic_merge(
        BASE,
        {
            "metadata": {"labels": {"b": "2"}},
            "spec": {
                "priorityClassName": "high",
                "containers": [
                    {
                        "name": "triton",
                        "resources": {"limits": {"cpu": "8"}},
                        "volumeMounts": [{"name": "m", "mountPath": "/m"}],
                    },
                    {"name": "sidecar", "image": "s"},
                ],
            },
        },
    )
    assert out["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert out["spec"]["priorityClassName"] == "high"
    triton, sidecar = out["spec"]["containers"]
    assert triton["image"] == "t"
    assert triton["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "8"}
    assert [m["mountPath"] for m in triton["volumeMounts"]] == ["/dev/shm", "/m"]
    assert sidecar == {"name": "sidecar", "image": "s"}


def test_further_arguments_come_after_ours() -> None:
    out = strategic_merge(BASE, {"spec": {"containers": [{"name": "triton", "args": ["--log-verbose=1"]}]}})
    assert out["spec"]["containers"][0]["args"] == ["--x", "--log-verbose=1"]


def test_a_variable_is_replaced_whole_so_that_it_never_has_a_value_and_a_source() -> None:
    patch = {"spec": {"containers": [{"name": "triton", "env": [{"name": "POD_NAME", "value": "x"}]}]}}
    assert strategic_merge(BASE, patch)["spec"]["containers"][0]["env"] == [
        {"name": "POD_NAME", "value": "x"}
    ]


def test_neither_side_is_changed() -> None:
    patch: dict[str, Any] = {
        "spec": {"containers": [{"name": "triton", "args": ["--y"]}], "tolerations": [{"key": "k"}]}
    }
    out = strategic_merge(BASE, patch)
    out["spec"]["containers"][0]["args"].append("--z")
    out["spec"]["tolerations"][0]["key"] = "changed"
    assert BASE["spec"]["containers"][0]["args"] == ["--x"]
    assert patch["spec"]["containers"][0]["args"] == ["--y"]
    assert patch["spec"]["tolerations"][0]["key"] == "k"
