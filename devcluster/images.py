"""The project's container images, built without a container engine and without a registry.

`python -m devcluster.images build [triton|operator|all]` makes what is missing and prints where the archives are.
An archive's name carries a hash of all that went into it, so nothing is built twice and fresh clones are warm.

The base is a Debian root file system of our own, under the name that the Dockerfiles' FROM asks for: the same
Dockerfiles build on the official image elsewhere. What the host needs to reach its package index (certificates,
pip's configuration) is lent to the builds and does not stay in the images.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import monitoring
from devcluster.layout import REPOSITORY, cache_folder
from devcluster.preflight import install
from devcluster.shell import ClusterError, Progress, exclusive

BASE = "docker.io/library/python:3.11-slim-bookworm"
_SUITE = "bookworm"
# usr-is-merged, with the hook that merges /usr first, keeps usrmerge out, which would bring all of perl
_PACKAGES = ("ca-certificates", "libpython3.11", "python3", "python3-pip", "usr-is-merged")
_HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr"
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
_BASE_COMMANDS = (
    # what the official image is like: `python`, and a pip that installs into the system
    'ln -s python3 "$1/usr/bin/python"',
    'rm "$1/usr/lib/python3.11/EXTERNALLY-MANAGED"',
    # builds mount the host's over it; a mount point made on the way would stay in their layers
    'touch "$1/etc/pip.conf"',
    'rm -rf "$1/var/lib/apt/lists" "$1/var/cache/apt" "$1/var/cache/debconf" "$1"/var/log/*.log',
)
_KEPT_BUILDS = 3
_STAGE = re.compile(r"^FROM\s+\S+\s+AS\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_CACHED = "localhost/inferenceslo-stage"  # names of stages, in buildah's storage only
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
#: pip's settings that mean the same inside a build; paths and behaviour stay behind
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")


@dataclass(frozen=True)
class Image:
    """An image of this project: its reference, its Dockerfile's folder, and the inputs that its name hashes."""

    name: str
    reference: str
    context: Path
    inputs: tuple[str, ...]

    def key(self) -> str:
        """A hash of everything that decides what the build gives."""
        digest = hashlib.sha256(_base_key().encode())
        for path in _files(self.context, self.inputs):
            digest.update(f"\0{path.relative_to(self.context)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:16]

    def archive(self) -> Path:
        """Where the built image is, or will be."""
        return cache_folder() / "images" / f"{self.name}-{self.key()}.tar"


IMAGES = {
    image.name: image
    for image in (
        Image(
            name="triton",
            reference="inferenceslo/triton-cpu:dev",
            context=REPOSITORY / "devcluster" / "serving",
            inputs=("Dockerfile", "emulation", "models"),
        ),
        Image(
            name="operator",
            reference="inferenceslo/operator:dev",
            context=REPOSITORY,
            inputs=(
                *("Dockerfile", ".dockerignore", "requirements.lock"),
                *("operator/slo_operator", "tuner/slo_tuner"),
            ),
        ),
        Image(
            name="gateway",
            reference="inferenceslo/gateway:dev",
            context=REPOSITORY / "devcluster" / "gateway",
            inputs=(".",),
        ),
    )
}


def archive_of(reference: str) -> Path:
    """The archive of an image by its name (`triton`) or reference (`inferenceslo/triton-cpu:dev`), built if missing."""
    for image in IMAGES.values():
        if reference in (image.name, image.reference, f"docker.io/{image.reference}"):
            return build(image)
    prometheus = monitoring.IMAGE.removeprefix("docker.io/")  # a static binary: no Dockerfile, no buildah
    if reference in ("prometheus", prometheus, monitoring.IMAGE):
        return monitoring.prometheus_image(Progress())
    known = ", ".join([image.reference for image in IMAGES.values()] + [prometheus])
    raise ClusterError(f"{reference}: not an image of this project, which are {known}")


def build(image: Image, say: Progress | None = None) -> Path:
    """Build an image unless the cache has it; its archive."""
    say = say or Progress()
    archive = image.archive()
    if archive.is_file():
        with contextlib.suppress(OSError):  # a cache that only others may write
            os.utime(archive)  # `_prune` goes by the last use
        return archive
    install(missing_tools(), say)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(cache_folder() / "buildah.lock"):
        if archive.is_file():  # somebody else built it while we waited
            return archive
        _ensure_base(say)
        say(f"{image.reference}: building")
        _build_layers(image)
        _push(f"docker.io/{image.reference}", archive)
        _prune(archive, image.name)
        say(f"{image.reference}: {archive.stat().st_size / 1e6:.0f} MB in {archive}")
    return archive


def _build_layers(image: Image) -> None:
    """Build an image in buildah's storage, from the layers of its last build as far as nothing changed.

    A layer lives as long as a name leads to it, so the stages before the last have one, too.
    """
    stages = _STAGE.findall((image.context / "Dockerfile").read_text())
    builds = [("--target", stage, "--tag", f"{_CACHED}/{image.name}-{stage}") for stage in stages]
    with _borrowed_settings() as lent:
        for arguments in (*builds, ("--tag", f"docker.io/{image.reference}")):
            _buildah(
                *("bud", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers"),
                *(f"--volume={source}:{target}:ro" for source, target in lent.items()),
                *(*arguments, str(image.context)),
            )
    _buildah("rm", "--all")  # a build that failed or was killed leaves a container, which holds its layers
    _buildah("rmi", "--prune")


def _prune(archive: Path, name: str) -> None:
    """Drop the builds of an image that were not used for longest: each is some hundred megabytes."""
    builds = sorted(archive.parent.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
    for path in builds[:-_KEPT_BUILDS]:
        path.unlink(missing_ok=True)


def missing_tools() -> list[str]:
    """Debian packages that a build needs and this machine lacks."""
    return [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]


def _files(context: Path, inputs: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for name in inputs:
        path = context / name
        found += path.rglob("*") if path.is_dir() else [path]
    return sorted(
        path
        for path in found
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".pyo")
    )


def _base_key() -> str:
    recipe = json.dumps([BASE, _SUITE, _PACKAGES, _HOOKS, _LEFT_OUT, _BASE_COMMANDS])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _ensure_base(say: Progress) -> None:
    """Have the base image in buildah's storage."""
    marker = cache_folder() / "buildah" / f"base-{_base_key()}"
    if marker.is_file() and _has_image(BASE):
        return
    say(f"{BASE}: making it from {_SUITE}'s packages")
    with tempfile.TemporaryDirectory(prefix="base-", dir=cache_folder()) as scratch:
        root = Path(scratch) / "root.tar"
        _run(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join(_PACKAGES)}",
            f"--hook-dir={_HOOKS}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            *(f"--customize-hook={command}" for command in _BASE_COMMANDS),
            *(_SUITE, root),
        )
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", container, str(root), "/")
            _buildah("config", "--env", "LANG=C.UTF-8", "--cmd", '["python3"]', container)
            _buildah("commit", container, BASE)
        finally:
            _buildah("rm", container)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def _has_image(reference: str) -> bool:
    try:
        _buildah("inspect", "--type", "image", reference)
    except ClusterError:
        return False
    return True


def _push(reference: str, archive: Path) -> None:
    """Write the image's archive; it appears under its name only when it is whole."""
    with tempfile.TemporaryDirectory(prefix="push-", dir=archive.parent) as scratch:
        whole = Path(scratch) / "image.tar"
        _buildah("push", reference, f"docker-archive:{whole}:{reference}")
        whole.replace(archive)


@contextlib.contextmanager
def _borrowed_settings() -> Iterator[dict[str, str]]:
    """Files of the host for the time of a build: source → path in the build."""
    with tempfile.TemporaryDirectory(prefix="images-") as scratch:
        lent: dict[str, str] = {}
        certificates = host_certificates(os.environ)
        if certificates is not None:
            lent[str(certificates)] = _CERTIFICATES
        configuration = Path(scratch) / "pip.conf"
        configuration.write_text(pip_configuration(_pip_settings()))
        lent[str(configuration)] = "/etc/pip.conf"
        yield lent


def host_certificates(environment: Mapping[str, str]) -> Path | None:
    """The host's CA bundle: what its programs are told to use, else the system's."""
    named = [
        environment[name]
        for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
        if name in environment
    ]
    return next((Path(path) for path in (*named, _CERTIFICATES) if Path(path).is_file()), None)


def pip_configuration(settings: Mapping[str, str]) -> str:
    """A pip.conf for builds from the host's settings, as `pip config list` names them without their source."""
    lines = [f"{name} = {settings[name]}" for name in _PIP_SETTINGS if name in settings]
    return "\n".join(["[global]", f"cert = {_CERTIFICATES}", "disable-pip-version-check = true", *lines, ""])


def _pip_settings() -> dict[str, str]:
    """What pip on this host is configured with, by files and environment; empty when there is no pip."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():  # global.index-url='https://…', :env:.timeout='180'
        name, equals, value = line.partition("=")
        if equals:
            settings[name.rpartition(".")[2]] = value.strip("'\"").replace("\\n", "\n  ")
    return settings


def _buildah(*arguments: str) -> str:
    storage = cache_folder() / "buildah"
    return _run(
        *("buildah", "--root", storage / "storage", "--runroot", storage / "run"),
        *("--storage-driver", os.environ.get("INFERENCESLO_STORAGE_DRIVER", "overlay")),
        *arguments,
    )


def _run(*words: object) -> str:
    argv = [str(word) for word in words]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-12:]
        raise ClusterError("\n  ".join([f"{' '.join(argv[:12])} …: exit code {done.returncode}", *said]))
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when all is built."""
    parser = argparse.ArgumentParser(
        prog="python -m devcluster.images", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("command", choices=["build"])
    parser.add_argument("image", nargs="?", default="all", choices=[*IMAGES, "all"])
    chosen = parser.parse_args(arguments).image
    say = Progress()
    try:
        for image in IMAGES.values() if chosen == "all" else [IMAGES[chosen]]:
            print(f"{image.reference} {build(image, say)}")
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
