"""Where a server's model repository is: in its own image, or on a volume. It is only ever read."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from slo_operator.api.base import ApiModel
from slo_operator.api.rules import Rule, validations

_Path = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
_ONE_VOLUME = "exactly one of persistentVolumeClaim, nfs, csi, hostPath"


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim of the resource's namespace."""

    claim_name: Annotated[str, StringConstraints(min_length=1, max_length=253)]


class NFSVolume(ApiModel):
    """An NFS export."""

    server: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    path: _Path


class CSIVolume(ApiModel):
    """An inline CSI volume, such as an object store's."""

    driver: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    volume_attributes: Annotated[
        dict[
            Annotated[str, StringConstraints(max_length=253)],
            Annotated[str, StringConstraints(max_length=1024)],
        ],
        Field(max_length=32),
    ] = Field(default_factory=dict)


class HostPathVolume(ApiModel):
    """A folder of the node."""

    path: _Path


class Volume(ApiModel):
    """A volume that holds the repository; mounted read-only."""

    persistent_volume_claim: ClaimVolume | None = None
    nfs: NFSVolume | None = None
    csi: CSIVolume | None = None
    host_path: HostPathVolume | None = None

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "[has(self.persistentVolumeClaim), has(self.nfs), has(self.csi), has(self.hostPath)]"
                ".filter(x, x).size() == 1",
                _ONE_VOLUME,
            )
        )
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(_ONE_VOLUME)
        return self

    def source(self) -> dict[str, Any]:
        """The volume source of a pod, read-only where the kind can say so."""
        out = self.to_json()
        for kind in ("persistentVolumeClaim", "nfs", "csi"):
            if kind in out:
                out[kind]["readOnly"] = True
        return out


class Repository(ApiModel):
    """A model repository in Triton's layout."""

    volume: Volume | None = None
    """Absent: the repository is part of the server's image."""
    path: _Path
    """Folder that holds one folder per model: within the volume, or absolute within the image."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            Rule(
                "has(self.volume) || self.path.startsWith('/')",
                "an absolute path within the image, such as /models",
                field=".path",
            ),
            Rule("!self.path.split('/').exists(p, p == '..')", "a path without '..'", field=".path"),
        )
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.volume is None and not self.path.startswith("/"):
            raise ValueError("path: an absolute path within the image, such as /models")
        if ".." in self.path.split("/"):
            raise ValueError("path: a path without '..'")
        return self
