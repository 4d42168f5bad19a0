"""Which image is built from what, and what a build borrows from its host."""

import configparser
from pathlib import Path

import pytest

from devcluster import images
from devcluster.images import IMAGES, Image, archive_of, host_certificates, pip_configuration
from devcluster.shell import ClusterError


@pytest.fixture
def image(tmp_path: Path) -> Image:
    (tmp_path / "models" / "chat").mkdir(parents=True)
    (tmp_path / "models" / "chat" / "config.pbtxt").write_text("max_batch_size: 8")
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    (tmp_path / "README").write_text("not an input")
    return Image("chat", "example/chat:dev", tmp_path, ("Dockerfile", "models"))


def test_an_image_is_rebuilt_when_an_input_changes_and_only_then(image: Image) -> None:
    before = image.key()
    (image.context / "README").write_text("changed")
    cache = image.context / "models" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"x")
    assert image.key() == before
    (image.context / "models" / "chat" / "config.pbtxt").write_text("max_batch_size: 16")
    assert image.key() != before


def test_moving_content_between_files_changes_the_key(image: Image) -> None:
    before = image.key()
    (image.context / "models" / "chat" / "config.pbtxt").rename(image.context / "models" / "config.pbtxt")
    assert image.key() != before


def test_a_built_image_is_not_built_again(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCESLO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(images.IMAGES, "chat", image)
    monkeypatch.setenv("PATH", "/nowhere")  # a build would fail
    image.archive().parent.mkdir(parents=True)
    image.archive().write_bytes(b"archive")
    for name in ("chat", "example/chat:dev", "docker.io/example/chat:dev"):
        assert archive_of(name) == image.archive()


def test_an_unknown_image_names_the_known_ones() -> None:
    with pytest.raises(ClusterError, match=r"example/other:dev: not an image .* inferenceslo/triton-cpu:dev"):
        archive_of("example/other:dev")


@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)
def test_every_input_of_an_image_exists_and_what_its_dockerfile_copies_is_one(image: Image) -> None:
    assert [name for name in image.inputs if not (image.context / name).exists()] == []
    copied = {
        source
        for line in (image.context / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    inputs = [image.context / name for name in image.inputs]
    assert copied
    for source in copied:
        assert any((image.context / source).is_relative_to(name) for name in inputs), source


def test_only_what_means_the_same_inside_a_build_is_lent() -> None:
    text = pip_configuration(
        {"index-url": "https://index.example/simple", "timeout": "60", "find-links": "/opt/x"}
    )
    parser = configparser.ConfigParser()
    parser.read_string(text)
    assert dict(parser["global"]) == {
        "cert": "/etc/ssl/certs/ca-certificates.crt",
        "disable-pip-version-check": "true",
        "index-url": "https://index.example/simple",
        "timeout": "60",
    }


def test_the_host_s_own_certificates_come_first(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    missing = str(tmp_path / "missing.pem")
    assert host_certificates({"PIP_CERT": missing, "SSL_CERT_FILE": str(bundle)}) == bundle
