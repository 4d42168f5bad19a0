"""The emulated host's account: several processes share cores, GPUs and memory through one file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devcluster.serving.emulation.account import CPU, Account, OutOfGpuMemory, process_start
from devcluster.serving.emulation.stage import Stage

GPU = 1  # resource number of the first GPU


class Machine:
    """Processes with a clock that only moves when the test says so."""

    def __init__(self, path: Path, cores: float = 4, gpus: int = 2, memory_mib: int = 1000) -> None:
        self.path, self.capacities, self.memory_mib = path, [cores, *[1.0] * gpus], memory_mib
        self.now = 100.0
        self.alive: dict[int, int] = {}

    def process(self, pid: int, born: int = 1) -> Account:
        self.alive[pid] = born
        account = Account(
            self.path,
            self.capacities,
            self.memory_mib,
            clock=lambda: self.now,
            pid=pid,
            born_of=self.alive.get,
        )
        account.join()
        return account

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "account")


def test_executions_that_fit_run_at_full_speed(machine: Machine) -> None:
    first, second = machine.process(1), machine.process(2)
    first.start(GPU, 0.25)
    assert second.start(GPU, 0.75).rate == 1.0


def test_executions_beyond_a_whole_gpu_slow_each_other_in_proportion(machine: Machine) -> None:
    first, second = machine.process(1), machine.process(2)
    first.start(GPU, 0.5)
    machine.sleep(1.0)  # alone: 1 virtual second
    assert second.start(GPU, 1.5).rate == 0.5
    machine.sleep(1.0)  # 0.5 + 1.5 = 2 busy shares on one GPU: half a virtual second
    assert first.progress(GPU).virtual == pytest.approx(1.5)
    second.stop()
    machine.sleep(1.0)
    assert first.progress(GPU).virtual == pytest.approx(2.5)


def test_gpus_and_cores_do_not_slow_each_other(machine: Machine) -> None:
    first, second, third = (machine.process(pid) for pid in (1, 2, 3))
    first.start(GPU, 1.0)
    assert second.start(GPU + 1, 1.0).rate == 1.0
    assert third.start(CPU, 1.0).rate == 1.0


def test_usage_counts_busy_seconds_and_core_seconds_up_to_the_capacity(machine: Machine) -> None:
    processes = [machine.process(pid) for pid in range(1, 7)]
    processes[0].start(GPU, 0.25)
    machine.sleep(2.0)
    processes[0].stop()
    for process in processes:  # six on four cores
        process.start(CPU, 1.0)
    machine.sleep(3.0)
    usage = processes[0].usage()
    assert usage.gpu_busy_seconds == pytest.approx((0.5, 0.0))
    assert usage.cpu_seconds == pytest.approx(4 * 3.0)


def test_a_killed_process_no_longer_slows_the_others(machine: Machine) -> None:
    killed, other = machine.process(1), machine.process(2)
    killed.start(GPU, 1.0)
    assert other.start(GPU, 1.0).rate == 0.5
    del machine.alive[1]
    machine.sleep(2.0)
    assert other.progress(GPU).rate == 1.0


def test_a_reused_pid_does_not_inherit_the_dead_process_s_memory(machine: Machine) -> None:
    machine.process(1, born=10).reserve(0, 900, "old", "GPU-a")
    machine.alive[1] = 99  # another process under the same number
    machine.process(2).reserve(0, 900, "new", "GPU-a")
    assert machine.process(3).usage().gpu_memory_mib == (900, 0)


def test_a_load_that_does_not_fit_says_what_is_free_and_takes_nothing(machine: Machine) -> None:
    machine.process(1).reserve(0, 600, "forward_0_0", "GPU-a")
    late = machine.process(2)
    with pytest.raises(OutOfGpuMemory, match=r"forward_0_1 needs 500 MiB on GPU-a, 400 of 1000 MiB are free"):
        late.reserve(0, 500, "forward_0_1", "GPU-a")
    assert late.usage().gpu_memory_mib == (600, 0)
    late.reserve(1, 500, "forward_0_1", "GPU-b")
    assert late.usage().gpu_memory_mib == (600, 500)


def test_leaving_gives_memory_and_share_back_but_keeps_the_counters(machine: Machine) -> None:
    first, other = machine.process(1), machine.process(2)
    first.reserve(0, 600, "forward_0_0", "GPU-a")
    first.start(GPU, 0.5)
    machine.sleep(1.0)
    first.leave()
    machine.sleep(1.0)
    assert other.usage().gpu_memory_mib == (0, 0)
    assert other.usage().gpu_busy_seconds == pytest.approx((0.5, 0.0))


def test_an_account_without_capacity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="each above 0"):
        Account(tmp_path / "account", [0.0, 1.0], 1000)


def test_a_process_has_a_start_time_and_a_dead_one_none() -> None:
    assert (process_start(1) or 0) >= 0
    assert process_start(2**22 + 1) is None  # above the kernel's largest pid


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.05, 1.0), st.floats(0.0, 0.5)), min_size=1, max_size=30)
)
def test_busy_seconds_only_grow_and_never_exceed_wall_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float, float]]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("account") / "file")
    processes = [machine.process(pid) for pid in range(1, 5)]
    busy, virtual = 0.0, 0.0
    for who, weight, seconds in steps:
        processes[who].start(GPU, weight)
        machine.sleep(seconds)
        grown, progress = processes[0].usage().gpu_busy_seconds[0], processes[0].progress(GPU).virtual
        assert busy <= grown <= machine.now - 100.0 + 1e-9
        assert virtual <= progress <= machine.now - 100.0 + 1e-9
        busy, virtual = grown, progress


def test_an_execution_lasts_its_time_when_it_has_the_gpu_to_itself(machine: Machine) -> None:
    stage = Stage(machine.process(1), GPU, clock=lambda: machine.now, sleep=machine.sleep)
    with stage.running(0.25):
        machine.sleep(0.003)  # real work inside counts
        stage.until(0.120)
    assert machine.now == pytest.approx(100.120)


def test_an_execution_on_a_full_gpu_lasts_longer(machine: Machine) -> None:
    other = machine.process(2)
    other.start(GPU, 1.5)
    stage = Stage(machine.process(1), GPU, clock=lambda: machine.now, sleep=machine.sleep)
    with stage.running(0.5):
        stage.until(0.120)  # 2 busy shares: half speed
    assert machine.now == pytest.approx(100.240)


def test_late_wake_ups_do_not_add_up_over_a_queue(machine: Machine) -> None:
    def late_sleep(seconds: float) -> None:
        machine.sleep(seconds + 0.004)

    stage = Stage(machine.process(1), CPU, clock=lambda: machine.now, sleep=late_sleep)
    for _ in range(50):
        with stage.running(1.0):
            stage.until(0.030)
    assert machine.now == pytest.approx(100.0 + 50 * 0.030 + 0.004)


def test_lateness_is_forgotten_after_a_pause(machine: Machine) -> None:
    stage = Stage(
        machine.process(1), CPU, clock=lambda: machine.now, sleep=lambda s: machine.sleep(s + 0.004)
    )
    with stage.running(1.0):
        stage.until(0.030)
    machine.sleep(1.0)
    begun = machine.now
    with stage.running(1.0):
        stage.until(0.030)
    assert machine.now - begun == pytest.approx(0.034)
