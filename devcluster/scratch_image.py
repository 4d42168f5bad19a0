"""Container images from static binaries: a docker-archive without a base image, a registry or a build tool."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

NOBODY = "65532:65532"


def write_scratch_image(
    archive: Path,
    reference: str,
    files: Mapping[str, Path],
    entrypoint: Sequence[str],
    *,
    user: str = NOBODY,
) -> Path:
    """Write an image that holds `files` (path in the image → file here, all executable) and runs `entrypoint`.

    The archive is what `docker save` would write, for `load-image`. The same inputs give the same bytes. It appears
    under its name only when it is whole. Returns `archive`.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        layer = Path(scratch) / "layer.tar"
        _write_layer(layer, files)
        with layer.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": list(entrypoint), "User": user, "WorkingDir": "/"},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created_by": "static binary", "created": "1970-01-01T00:00:00Z"}],
            },
            sort_keys=True,
        ).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        layer_name = f"{digest}/layer.tar"
        manifest = json.dumps(
            [{"Config": config_name, "RepoTags": [reference], "Layers": [layer_name]}]
        ).encode()
        whole = Path(scratch) / "image.tar"
        with tarfile.open(whole, "w", format=tarfile.GNU_FORMAT) as tar:
            _add_bytes(tar, "manifest.json", manifest)
            _add_bytes(tar, config_name, config)
            _add_file(tar, layer_name, layer, 0o644)
        whole.replace(archive)
    return archive


def _write_layer(path: Path, files: Mapping[str, Path]) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        made: set[str] = set()
        tmp = _entry("tmp", 0o1777)
        tmp.type = tarfile.DIRTYPE
        tar.addfile(tmp)
        for target, source in sorted(files.items()):
            name = target.lstrip("/")
            for parent in reversed(Path(name).parents[:-1]):
                if str(parent) not in made and str(parent) != "tmp":
                    made.add(str(parent))
                    folder = _entry(str(parent), 0o755)
                    folder.type = tarfile.DIRTYPE
                    tar.addfile(folder)
            _add_file(tar, name, source, 0o755)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode = mode
    return entry


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _entry(name, 0o644)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _add_file(tar: tarfile.TarFile, name: str, source: Path, mode: int) -> None:
    entry = _entry(name, mode)
    entry.size = source.stat().st_size
    with source.open("rb") as handle:
        tar.addfile(entry, handle)
