from dataclasses import replace

import numpy as np

from cruise.backtest.baselines.autopilot import AutopilotBaseline
from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
)
from cruise.domain.arrays import Float64Array
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import GIBIBYTE, get_sizes, make_recording, make_view

HOUR = 12
BOTH = np.array([0, 1])


def used(columns: list[float], windows: int) -> Float64Array:
    return np.tile(np.array(columns), (windows, 1))


def autopilot(cpu: Float64Array, memory: Float64Array, *, workloads: list[str] | None = None) -> AutopilotBaseline:
    policy = AutopilotBaseline(make_recording(cpu, memory, workloads=workloads), ReplayOptions())
    observe(policy, cpu, memory)
    return policy


def observe(policy: AutopilotBaseline, cpu: Float64Array, memory: Float64Array, first: int = 1) -> None:
    for row in range(len(cpu)):
        time = 300 * (first + row)
        policy.observe(time, cpu[row : row + 1].astype(np.float32), memory[row : row + 1].astype(np.float32))


def view(
    sizes: ContainerSizes, *, node: list[int] | None = None, allocatable: Resources | None = None
) -> ReplayClusterView:
    return make_view(sizes, time=300 * HOUR, node=node, allocatable=allocatable)


PROVISIONED = get_sizes([1000, 1000], [4 * GIBIBYTE] * 2)


def test_pods_without_history_have_their_provisioned_sizes() -> None:
    policy = autopilot(used([100, 100], 0), used([GIBIBYTE] * 2, 0))

    sizes = policy.admit(BOTH, view(PROVISIONED))

    assert sizes.cpu_millicores.tolist() == [1000, 1000]
    assert sizes.memory_bytes.tolist() == [4 * GIBIBYTE] * 2
    assert sizes.memory_limit_bytes.tolist() == [0, 0]


def test_in_its_first_hour_a_job_gets_no_less_than_it_was_provisioned_with() -> None:
    is_new = autopilot(used([100, 2000], HOUR - 1), used([GIBIBYTE] * 2, HOUR - 1))
    grown = autopilot(used([100, 2000], HOUR), used([GIBIBYTE] * 2, HOUR))

    assert is_new.admit(BOTH, view(PROVISIONED)).cpu_millicores[0] == 1000
    assert is_new.admit(BOTH, view(PROVISIONED)).cpu_millicores[1] > 2000
    assert 115 <= grown.admit(BOTH, view(PROVISIONED)).cpu_millicores[0] <= 119


def test_all_tasks_of_a_job_have_the_limits_of_the_one_that_uses_most() -> None:
    policy = autopilot(used([100, 400], HOUR), used([GIBIBYTE, 2 * GIBIBYTE], HOUR), workloads=["web", "web"])

    decision = policy.decide(view(PROVISIONED))

    assert decision.resize.tolist() == [0, 1]
    assert decision.sizes.cpu_millicores[0] == decision.sizes.cpu_millicores[1] >= 400
    assert decision.sizes.memory_bytes[0] == decision.sizes.memory_bytes[1] >= 2 * GIBIBYTE


def test_a_job_is_a_container_of_a_workload() -> None:
    recording = make_recording(used([1, 1, 1], 1), used([1, 1, 1], 1), workloads=["a", "b", "a"])

    assert recording.number_workload_containers().tolist() == [0, 1, 0]


def test_a_limit_that_changes_by_less_than_a_tenth_is_not_written() -> None:
    policy = autopilot(used([100, 100], HOUR), used([GIBIBYTE] * 2, HOUR))
    wanted = policy.admit(BOTH, view(PROVISIONED))
    near = get_sizes([int(wanted.cpu_millicores[0] * 1.05), 500], [int(wanted.memory_bytes[0] * 0.95)] * 2)

    decision = policy.decide(view(near))

    assert decision.resize.tolist() == [1]
    assert decision.sizes.cpu_millicores.tolist() == [wanted.cpu_millicores[1]]
    assert decision.sizes.memory_bytes.tolist() == [near.memory_bytes[1]]


def test_only_pods_on_a_node_are_resized_and_those_that_do_not_fit_move() -> None:
    policy = autopilot(used([100, 100], HOUR), used([GIBIBYTE] * 2, HOUR))

    decision = policy.decide(view(PROVISIONED, node=[-1, 0]))

    assert decision.resize.tolist() == [1]
    assert decision.evict.tolist() == []
    assert decision.evict_without_capacity


def test_no_limit_exceeds_a_node() -> None:
    policy = autopilot(used([3900, 100], HOUR), used([15.5 * GIBIBYTE, GIBIBYTE], HOUR))

    sizes = policy.admit(BOTH, view(PROVISIONED, allocatable=Resources(4000, 16 * GIBIBYTE)))

    assert sizes.cpu_millicores[0] == 4000
    assert sizes.memory_bytes[0] == 16 * GIBIBYTE


def test_the_recommendation_after_a_kill_covers_the_use_that_led_to_it() -> None:
    policy = autopilot(used([100, 100], HOUR), used([GIBIBYTE] * 2, HOUR))
    sizes = policy.admit(BOTH, view(PROVISIONED))
    peak = 3 * GIBIBYTE

    reaction = policy.react_to_oom_kill(ReplayedOomKill(0, 300 * (HOUR + 1), peak, by_limit=False), view(sizes))
    observe(policy, used([100, 100], 1), used([peak, GIBIBYTE], 1), first=HOUR + 1)
    decision = policy.decide(view(sizes))

    assert reaction == ReplayedOomReaction()
    assert decision.resize.tolist() == [0]
    assert decision.sizes.memory_bytes[0] >= 1.1 * peak


def test_unrecorded_memory_keeps_the_provisioned_request() -> None:
    cpu, memory = used([100, 100], HOUR), used([0, 0], HOUR)
    policy = AutopilotBaseline(replace(make_recording(cpu, memory), has_memory=False), ReplayOptions())
    observe(policy, cpu, memory)

    sizes = policy.admit(BOTH, view(PROVISIONED))

    assert sizes.memory_bytes.tolist() == [4 * GIBIBYTE] * 2
    assert sizes.cpu_millicores[0] < 200


def test_the_future_of_a_recording_changes_nothing() -> None:
    random = np.random.default_rng(5)
    cpu, memory = random.uniform(10, 900, (40, 2)), random.uniform(1e8, 3e9, (40, 2))
    shuffled_cpu, shuffled_memory = cpu.copy(), memory.copy()
    random.shuffle(shuffled_cpu[20:])
    random.shuffle(shuffled_memory[20:])
    decisions = []
    for usage in ((cpu, memory), (shuffled_cpu, shuffled_memory)):
        policy = AutopilotBaseline(make_recording(*usage), ReplayOptions())
        observe(policy, usage[0][:20], usage[1][:20])
        decisions.append(policy.decide(view(PROVISIONED)))

    assert decisions[0].resize.tolist() == decisions[1].resize.tolist() == [0, 1]
    assert decisions[0].sizes.cpu_millicores.tolist() == decisions[1].sizes.cpu_millicores.tolist()
    assert decisions[0].sizes.memory_bytes.tolist() == decisions[1].sizes.memory_bytes.tolist()
