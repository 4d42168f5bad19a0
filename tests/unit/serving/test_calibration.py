"""The emulation's numbers, its view of the container, and its faults."""

import json
from pathlib import Path

import pytest

from devcluster.serving.emulation.calibration import CpuStage, Curve, load_profile
from devcluster.serving.emulation.faults import RefusedLoad, current_faults, delays_batches
from devcluster.serving.emulation.host import Host


def test_a_curve_is_linear_between_and_beyond_its_points() -> None:
    curve = Curve(((1, 120.0), (4, 138.0), (16, 210.0)))
    assert [curve.at(batch) for batch in (1, 2, 4, 8, 16, 20)] == [120, 126, 138, 162, 210, 234]


def test_the_a100_profile_takes_114_plus_6_ms_per_item() -> None:
    model = load_profile({}).forward_model("forward-large")
    for batch in range(1, 17):
        assert model.seconds.at(batch) == pytest.approx(0.114 + 0.006 * batch)


def test_busy_share_grows_less_than_the_batch() -> None:
    share = load_profile({}).forward_model("forward-small").busy_share
    for batch in range(1, 16):
        assert share.at(batch) < share.at(batch + 1) < share.at(batch) * (batch + 1) / batch


def test_one_instance_of_each_model_takes_45_percent_of_a_gpu() -> None:
    profile = load_profile({})
    assert sum(model.memory_mib for model in profile.forward.values()) / profile.gpu_memory_mib == 0.45


def test_the_longest_prompts_take_nearly_three_times_the_mean() -> None:
    stage = load_profile({}).preprocessing
    assert stage.seconds(209) == pytest.approx(0.01755, abs=1e-4)
    assert stage.seconds(1024) == pytest.approx(0.0493, abs=1e-4)
    assert CpuStage(0.01, 0.001, 0.02).seconds(1000) == 0.02


def test_an_unknown_profile_or_model_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"EMULATION_PROFILE='h100'.*a100, small"):
        load_profile({"EMULATION_PROFILE": "h100"})
    with pytest.raises(
        ValueError, match=r"'forward-huge': it has forward-base, forward-large, forward-small"
    ):
        load_profile({"EMULATION_PROFILE": "small"}).forward_model("forward-huge")


def test_instances_take_turns_on_the_container_s_gpus() -> None:
    host = Host.from_environment({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b", "EMULATED_CPU_CORES": "7.5"})
    assert (host.gpus, host.cores) == (("GPU-a", "GPU-b"), 7.5)
    assert [host.gpu_of(f"forward-small_0_{index}") for index in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("devices", ["", "all", "void"])
def test_without_a_device_plugin_there_are_two_gpus(devices: str) -> None:
    assert Host.from_environment({"NVIDIA_VISIBLE_DEVICES": devices}).gpus == (
        "GPU-emulated-0",
        "GPU-emulated-1",
    )


def test_something_else_on_the_host_keeps_none_of_its_cores_busy_unless_told() -> None:
    assert Host.from_environment({}).other_cores == 0
    assert Host.from_environment({"EMULATED_OTHER_CORES": "0.7"}).other_cores == 0.7
    with pytest.raises(ValueError, match="EMULATED_OTHER_CORES='-1'"):
        Host.from_environment({"EMULATED_OTHER_CORES": "-1"})


@pytest.mark.parametrize("cores", ["0", "-1", "many", "nan", "inf"])
def test_a_wrong_core_count_names_its_variable(cores: str) -> None:
    with pytest.raises(ValueError, match="EMULATED_CPU_CORES"):
        Host.from_environment({"EMULATED_CPU_CORES": cores})


def test_faults_come_from_the_variable_until_the_file_is_there(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    environment = {"EMULATION_FAULTS_FILE": str(file), "EMULATION_FAULTS": '{"slow": {"forward-small": 1.5}}'}
    assert current_faults(environment).seconds("forward-small", 0.12, delays_batches=False) == pytest.approx(
        0.18
    )
    file.write_text(json.dumps({"fail_load": ["forward-base"], "batching_adds_ms": 80}))
    faults = current_faults(environment)
    assert faults.seconds("forward-small", 0.12, delays_batches=False) == 0.12
    assert faults.seconds("forward-small", 0.12, delays_batches=True) == pytest.approx(0.20)
    faults.check_load("forward-small")
    with pytest.raises(RefusedLoad, match="forward-base"):
        faults.check_load("forward-base")


def test_an_unknown_fault_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown slowness"):
        current_faults(
            {"EMULATION_FAULTS_FILE": str(tmp_path / "none"), "EMULATION_FAULTS": '{"slowness": 1}'}
        )


def test_batching_delays_only_with_a_delay() -> None:
    assert not delays_batches({})
    assert not delays_batches({"dynamic_batching": {"preferred_batch_size": [4]}})
    assert delays_batches({"dynamic_batching": {"max_queue_delay_microseconds": 5000}})
