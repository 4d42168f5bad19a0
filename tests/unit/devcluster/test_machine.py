"""What the driver does to files and processes, and what it says about a machine that will not do."""

import datetime
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from devcluster import cgroups, dns_probe, golang, images_load, preflight
from devcluster.__main__ import main
from devcluster.api import fresh
from devcluster.cluster import Cluster
from devcluster.layout import Layout
from devcluster.processes import Component, Supervisor, end, marked, start_time
from devcluster.scratch_image import write_scratch_image
from devcluster.shell import ClusterError, write

pytestmark = pytest.mark.unit

DEBIAN = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}

# -- the machine -------------------------------------------------------------------------------------------------------


def test_a_debian_12_with_root_will_do() -> None:
    assert preflight.check_system("Linux", "x86_64", DEBIAN, user=0) is None


@pytest.mark.parametrize(
    ("system", "machine", "release", "user", "says"),
    [
        ("Darwin", "arm64", {}, 0, "needs Linux (this is Darwin)"),
        ("Linux", "aarch64", DEBIAN, 0, "needs an x86_64 machine (this is aarch64)"),
        (
            "Linux",
            "x86_64",
            {"ID": "ubuntu", "PRETTY_NAME": "Ubuntu 24.04"},
            0,
            "needs Debian 12 (this is Ubuntu 24.04)",
        ),
        ("Linux", "x86_64", DEBIAN, 1000, "needs root"),
    ],
)
def test_any_other_machine_gets_one_line(
    system: str, machine: str, release: dict[str, str], user: int, says: str
) -> None:
    found = preflight.check_system(system, machine, release, user)
    assert found is not None
    assert says in found
    assert "\n" not in found


def test_a_full_disk_is_named_with_what_is_missing() -> None:
    assert preflight.check_disk(Path("/data"), free_bytes=12_000_000_000, needed_gb=12) is None
    found = preflight.check_disk(Path("/data"), free_bytes=11_940_000_000, needed_gb=12)
    assert found is not None
    assert found.startswith("/data: 11.9 GB free, 12 GB needed")


def test_os_release_is_read_with_and_without_quotes(tmp_path: Path) -> None:
    file = tmp_path / "os-release"
    file.write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n\nVERSION_ID="12"\n')
    assert preflight.read_os_release(file) == DEBIAN
    assert preflight.read_os_release(tmp_path / "none") == {}


def test_the_limit_of_watchers_is_raised_and_never_lowered(tmp_path: Path) -> None:
    limit, said = tmp_path / "limit", list[str]()
    limit.write_text("128\n")
    preflight.raise_watch_limit(limit, said.append)
    assert limit.read_text() == "2048"
    limit.write_text("8192\n")
    preflight.raise_watch_limit(limit, said.append)
    assert limit.read_text() == "8192\n"
    assert said == ["fs.inotify.max_user_instances: 128 → 2048, until the next boot"]


# -- control groups ----------------------------------------------------------------------------------------------------


def test_trees_of_both_versions_are_found() -> None:
    text = (
        "25 20 0:21 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
        "26 20 0:22 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
        "27 20 8:1 / / rw,relatime - ext4 /dev/vda rw\n"
    )
    assert cgroups.mount_points(text) == [
        ("cgroup", Path("/sys/fs/cgroup/cpu")),
        ("cgroup2", Path("/sys/fs/cgroup/unified")),
    ]


def test_a_version_1_cpuset_gets_its_parents_cores_and_memory(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "cluster", tmp_path / "cluster" / "node"):
        folder.mkdir(exist_ok=True)
        for name, value in (("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")):
            (folder / name).write_text(value if folder == tmp_path else "\n")
    cgroups.create_in("cgroup", tmp_path, "/cluster/node")
    assert (tmp_path / "cluster" / "node" / "cpuset.cpus").read_text() == "0-1\n"
    assert (tmp_path / "cluster" / "node" / "cpuset.mems").read_text() == "0\n"


def version_2(root: Path, inner: str) -> Path:
    """A version 2 tree as the kernel would show it, where the groups below the root have the controllers `inner`."""
    node = root / "cluster" / "node"
    node.mkdir(parents=True)
    for folder in (root, node.parent, node):
        (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n" if folder == root else inner)
        (folder / "cgroup.subtree_control").write_text("")
    return node


def test_version_2_controllers_are_handed_down(tmp_path: Path) -> None:
    node = version_2(tmp_path, "cpuset cpu io memory pids\n")
    cgroups.create_in("cgroup2", tmp_path, "/cluster/node")
    # A file keeps the last word only; the kernel would have taken each.
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+io"
    assert (node / "cgroup.subtree_control").read_text() == "+io"


def test_a_version_2_controller_that_cannot_be_handed_down_is_named(tmp_path: Path) -> None:
    version_2(tmp_path, "cpu memory\n")
    with pytest.raises(ClusterError, match="the controllers cpuset, pids cannot be delegated"):
        cgroups.create_in("cgroup2", tmp_path, "/cluster/node")


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    found = Supervisor(Layout.of(tmp_path / "state"))
    yield found
    for name in found.names():
        found.stop(name, seconds=0)


SLEEPER = Component("sleeper", ("sleep", "600"))


def test_a_component_is_started_once_and_found_again(supervisor: Supervisor, tmp_path: Path) -> None:
    assert supervisor.ensure(SLEEPER)
    first = supervisor.find("sleeper")
    assert first is not None
    assert not supervisor.ensure(SLEEPER)
    again = Supervisor(Layout.of(tmp_path / "state"))
    assert again.find("sleeper") == first
    key, deadline = Layout.of(tmp_path / "state").key, time.monotonic() + 10
    while (mine := marked(key)) != [first.pid]:  # what wrote the pid file may still be on its way out
        assert first.pid in mine
        assert time.monotonic() < deadline, mine


def test_a_component_that_changed_is_started_anew(supervisor: Supervisor) -> None:
    supervisor.ensure(SLEEPER)
    first = supervisor.find("sleeper")
    assert supervisor.ensure(replace(SLEEPER, argv=("sleep", "601")))
    second = supervisor.find("sleeper")
    assert first is not None
    assert second is not None
    assert start_time(first.pid) != first.start
    assert second.pid != first.pid


def test_a_stranger_with_the_same_pid_is_left_alone(supervisor: Supervisor, tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        start = start_time(stranger.pid)
        assert start is not None
        pid_file = Layout.of(tmp_path / "state").pids / "old.pid"
        pid_file.parent.mkdir(parents=True)
        pid_file.write_text(f"{stranger.pid} {start - 1} fingerprint\n")
        assert supervisor.find("old") is None
        supervisor.stop("old")
        end(stranger.pid, start - 1, seconds=0)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_one_that_does_not_listen_is_forced(supervisor: Supervisor) -> None:
    deaf = Component("deaf", ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"))
    supervisor.ensure(deaf)
    supervisor.wait_ready(replace(deaf, ready=lambda: "up" in supervisor.log_file("deaf").read_text()))
    supervisor.stop("deaf", seconds=0.2)
    assert supervisor.find("deaf") is None
    assert supervisor.names() == []


def test_one_that_ends_while_starting_is_reported_with_its_last_words(supervisor: Supervisor) -> None:
    broken = Component("broken", ("sh", "-c", "echo no such certificate >&2; exit 1"), ready=lambda: False)
    supervisor.ensure(broken)
    with pytest.raises(ClusterError, match="broken: ended while starting: no such certificate"):
        supervisor.wait_ready(broken)


# -- files, images, names ----------------------------------------------------------------------------------------------


def test_a_file_that_already_says_so_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "config"
    write(file, "one", 0o600)
    before = file.stat()
    write(file, "one", 0o600)
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    write(file, "two", 0o600)
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_scratch_image_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_bytes(b"\x7fELF")
    files = {"/opt/bin/server": binary}
    first = write_scratch_image(
        tmp_path / "a.tar", "example/server:1", files, ["/opt/bin/server"]
    ).read_bytes()
    binary.touch()
    second = write_scratch_image(
        tmp_path / "b.tar", "example/server:1", files, ["/opt/bin/server"]
    ).read_bytes()
    assert first == second
    with tarfile.open(tmp_path / "a.tar") as image:
        layer = image.extractfile(next(name for name in image.getnames() if name.endswith("/layer.tar")))
        with tarfile.open(fileobj=layer) as inside:
            found = {member.name: member.mode for member in inside}
    assert found == {"tmp": 0o1777, "opt": 0o755, "opt/bin": 0o755, "opt/bin/server": 0o755}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("inferenceslo/operator:dev", "docker.io/inferenceslo/operator:dev"),
        ("localhost/a/b", "localhost/a/b:latest"),
        ("example.org:5000/a:1", "example.org:5000/a:1"),
        ("quay.io/a/b@sha256:00", "quay.io/a/b@sha256:00"),
    ],
)
def test_image_names_are_spelled_as_the_kubelet_does(short: str, full: str) -> None:
    assert images_load.full_reference(short) == full


def test_a_program_is_built_anew_when_its_sources_or_flags_change_and_not_for_tests(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module m\n")
    (tmp_path / "main.go").write_text("package main\n")
    program = golang.Program("m", tmp_path)
    before = program.key()
    (tmp_path / "main_test.go").write_text("package main\n")
    (tmp_path / "notes.txt").write_text("no source\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "go.mod").write_text("module other\n")
    (tmp_path / "other" / "main.go").write_text("package main\n")
    assert program.key() == before
    assert replace(program, tags=("netgo",)).key() != before
    (tmp_path / "main.go").write_text("package main // changed\n")
    assert program.key() != before


def test_the_builds_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCESLO_CACHE", str(tmp_path / "cache"))
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho built >"$3"\n')  # go build -o BINARY
    go.chmod(0o755)
    monkeypatch.setattr(golang, "go_tool", lambda _: go)
    module = tmp_path / "module"
    module.mkdir()

    def build(content: str, second: int) -> Path:
        (module / "main.go").write_text(content)
        binary = golang.build(golang.Program("m", module), lambda _: None)
        os.utime(binary, (second, second))
        return binary

    other = golang.build(golang.Program("other", module), lambda _: None)
    first, second, third = (build(content, at) for at, content in enumerate(("a", "b", "c")))
    golang.build(golang.Program("m", module), lambda _: None)  # c again
    build("a", 10)
    fourth = build("d", 11)
    assert [path.exists() for path in (first, second, third, fourth, other)] == [
        True,
        False,
        True,
        True,
        True,
    ]
    assert not second.parent.exists()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/amd64", (1, 27, 0)),
        ("", ()),
    ],
)
def test_go_says_its_version(text: str, version: tuple[int, ...]) -> None:
    assert golang.parse_version(text) == version
    assert (version >= golang.MINIMUM) == bool(version)


def test_a_reply_counts_only_when_it_is_ours_and_has_the_address() -> None:
    address = IPv4Address("10.96.0.1")
    question = dns_probe.query("a.b", 7)
    assert question[12:] == b"\x01a\x01b\x00\x00\x01\x00\x01"
    record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04" + address.packed
    reply = b"\x00\x07\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question[12:] + record
    assert dns_probe.answers_with(reply, 7, address)
    assert not dns_probe.answers_with(reply, 8, address)
    assert not dns_probe.answers_with(reply, 7, IPv4Address("10.96.0.2"))
    refused = reply[:3] + b"\x85" + reply[4:]
    assert not dns_probe.answers_with(refused, 7, address)
    assert not dns_probe.answers_with(b"", 7, address)


def test_a_lease_is_fresh_for_as_long_as_its_kubelet_lives() -> None:
    now = datetime.datetime(2026, 1, 1, 12, 0, 30, tzinfo=datetime.UTC)
    lease = {"spec": {"renewTime": "2026-01-01T12:00:15.000000Z"}}
    assert fresh(lease, now, seconds=20)
    assert not fresh(lease, now, seconds=15)
    assert not fresh(None, now, seconds=20)


# -- the command line --------------------------------------------------------------------------------------------------


def test_a_folder_without_a_cluster_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubeconfig", "--state", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err
        == f"devcluster: {tmp_path}: no cluster here; `python -m devcluster up` makes one\n"
    )
    assert main(["status", "--state", str(tmp_path)]) == 1
    assert main(["logs", "etcd", "--state", str(tmp_path)]) == 1
    assert f"etcd: no such process in {tmp_path}; there are: none yet" in capsys.readouterr().err


@pytest.mark.parametrize("nodes", [0, 17])
def test_a_number_of_nodes_that_has_no_addresses_is_refused(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(ClusterError, match="must be 1 to 16"):
        Cluster(tmp_path / "state").up(nodes=nodes)


def test_clusters_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    one, other = Layout.of(tmp_path / "one"), Layout.of(tmp_path / "other")
    assert one == Layout.of(f"{tmp_path}/two/../one")
    assert one.name != other.name
    assert len(one.link) <= 15
