"""What manifests/monitoring would give to a Prometheus, judged by Prometheus's own tool."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import emulation, golang, monitoring
from devcluster.layout import REPOSITORY

pytestmark = pytest.mark.integration

MANIFESTS = REPOSITORY / "manifests" / "monitoring"
MOUNT = "/etc/prometheus"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def promtool() -> Path:
    return golang.build(monitoring.promtool(), print)


def rendered(overlay: Path) -> list[dict[str, Any]]:
    """The objects that `kubectl apply -k` would apply."""
    kubectl = golang.build(golang.kubernetes(), print)
    done = subprocess.run(
        [kubectl, "kubectl", "kustomize", overlay], capture_output=True, text=True, check=True
    )
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def deployment(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]
    return pod


def lay_out(objects: list[dict[str, Any]], folder: Path) -> Path:
    """Put the ConfigMaps where the pod would see them, below `folder`; returns the main file."""
    config_maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    volume = next(v for v in deployment(objects)["volumes"] if v["name"] == "config")
    for source in volume["projected"]["sources"]:
        data = config_maps[source["configMap"]["name"]]
        items = source["configMap"].get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            path = folder / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(data[item["key"]].replace(MOUNT, str(folder)).replace(ACCOUNT, str(folder)))
    for name in ("ca.crt", "token"):
        (folder / name).touch()
    return folder / "prometheus.yml"


def jobs(folder: Path) -> dict[str, dict[str, Any]]:
    files = [yaml.safe_load(path.read_text()) for path in (folder / "scrape").glob("*.yml")]
    return {job["job_name"]: job for file in files for job in file["scrape_configs"]}


@pytest.mark.parametrize("overlay", [".", "dev"])
def test_prometheus_accepts_the_configuration_as_its_pod_would_see_it(
    overlay: str, promtool: Path, tmp_path: Path
) -> None:
    main = lay_out(rendered(MANIFESTS / overlay), tmp_path)
    done = subprocess.run([promtool, "check", "config", main], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout


def test_the_alerts_behave_as_their_own_tests_say(promtool: Path) -> None:
    tests = MANIFESTS / "base" / "rules" / "inferenceslo_test.yml"
    done = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_cluster_is_asked_for_real_figures_and_the_development_cluster_for_emulated_ones(
    tmp_path: Path,
) -> None:
    real, emulated = rendered(MANIFESTS), rendered(MANIFESTS / "dev")
    lay_out(real, tmp_path / "real")
    lay_out(emulated, tmp_path / "emulated")
    assert sorted(jobs(tmp_path / "real")) == ["cadvisor", "gpu-exporter", "pods"]
    assert sorted(jobs(tmp_path / "emulated")) == ["gpu-exporter", "pods"], (
        "real CPU time would be counted too"
    )
    addresses = [
        rule.get("replacement")
        for rule in jobs(tmp_path / "emulated")["gpu-exporter"]["relabel_configs"]
        if rule.get("target_label") == "__address__"
    ]
    assert addresses == [f"$1:{emulation.EXPORTER_PORT}"]
    (official,) = (c["image"] for c in deployment(real)["containers"])
    (built,) = (c["image"] for c in deployment(emulated)["containers"])
    assert official == f"quay.io/prometheus/prometheus:v{monitoring.VERSION}"
    assert f"docker.io/{built}" == monitoring.IMAGE
