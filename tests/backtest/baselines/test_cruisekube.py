from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.baselines.cruisekube import CruiseKubeBaseline
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
)
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.arrays import Int64Array
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import GIBIBYTE, get_sizes, make_recording, make_view

MEGABYTE = 1_000_000
HOUR = 3600
ALL = np.arange(2, dtype=np.int64)
NOW = get_sizes([1000, 1000], [4 * GIBIBYTE] * 2, [8 * GIBIBYTE] * 2)


def steady(kind: str = "Deployment") -> UsageRecording:
    """Two pods of different workloads: 100 m and 200 MB, and 50 m and 100 MB with a peak of 400 m and 300 MB."""
    cpu, memory = np.full((48, 2), [100.0, 50.0]), np.full((48, 2), [200e6, 100e6])
    cpu[4::12, 1], memory[4::12, 1] = 400.0, 300e6
    return make_recording(cpu, memory, kind=kind)


def passes(
    policy: CruiseKubeBaseline, recording: UsageRecording, *, until: int, sizes: ContainerSizes = NOW
) -> Iterator[tuple[int, ReplayDecision]]:
    """Let pods be created at 0, and pass after pass go by without anything being done."""
    policy.admit(ALL, make_view(sizes, time=0))
    for row in range(until // 300):
        time = (row + 1) * 300
        one = slice(row, row + 1)
        policy.observe(time, recording.cpu_millicores[one], recording.memory_bytes[one])
        yield time, policy.decide(make_view(sizes, time=time))


def started(*, until: int, kind: str = "Deployment") -> CruiseKubeBaseline:
    recording = steady(kind)
    policy = CruiseKubeBaseline(recording, ReplayOptions())
    for _ in passes(policy, recording, until=until):
        pass
    return policy


def admitted(policy: CruiseKubeBaseline, time: int) -> ContainerSizes:
    return policy.admit(ALL, make_view(NOW, time=time))


def killed(
    policy: CruiseKubeBaseline, time: int, *, limit: int, container: int = 0, creation_count: int = 1
) -> ReplayedOomReaction:
    view = make_view(get_sizes([1000] * 2, [GIBIBYTE] * 2, [limit] * 2), time=time, creation_count=[creation_count] * 2)
    return policy.react_to_oom_kill(ReplayedOomKill(container, time, limit + 1, by_limit=True), view)


def test_new_workloads_are_skipped_for_an_hour() -> None:
    recording = steady()
    touched = [
        time
        for time, decision in passes(CruiseKubeBaseline(recording, ReplayOptions()), recording, until=5400)
        if decision.resize.size
    ]
    assert touched[0] == HOUR
    assert len(touched) == (5400 - HOUR) // 300 + 1
    assert admitted(started(until=3300), 3300).cpu_millicores.tolist() == [1000, 1000]
    assert admitted(started(until=HOUR), HOUR).cpu_millicores.tolist() == [100, 400]


def test_in_place_each_gets_its_base_and_its_part_of_the_largest_rest() -> None:
    policy, recording = CruiseKubeBaseline(steady(), ReplayOptions()), steady()
    decision = dict(passes(policy, recording, until=HOUR))[HOUR]
    assert decision.resize.tolist() == [0, 1]
    assert decision.sizes.cpu_millicores.tolist() == [100, 400], "all of 350 m is the second's"
    assert decision.sizes.memory_bytes.tolist() == [200 * MEGABYTE, 300 * MEGABYTE]
    assert decision.sizes.memory_limit_bytes.tolist() == [8590 * MEGABYTE] * 2, "not lowered"
    assert decision.evict.tolist() == []
    assert decision.base is not None
    assert decision.headroom is not None
    assert [decision.base[0].tolist(), decision.headroom[0].tolist()] == [[150], [350]]
    assert [decision.base[1].tolist(), decision.headroom[1].tolist()] == [[300 * MEGABYTE], [200 * MEGABYTE]]


def test_statistics_are_updated_every_quarter_of_an_hour() -> None:
    cpu = np.full((48, 1), 10.0)
    cpu[0], cpu[16:] = 20.0, 500.0  # seen at 5100 first
    recording = make_recording(cpu, np.full((48, 1), 1e8))
    policy, sizes = CruiseKubeBaseline(recording, ReplayOptions()), get_sizes([1000], [GIBIBYTE], [2 * GIBIBYTE])
    policy.admit(np.zeros(1, dtype=np.int64), make_view(sizes, time=0))
    written = []
    for row in range(20):
        time = (row + 1) * 300
        policy.observe(time, recording.cpu_millicores[row : row + 1], recording.memory_bytes[row : row + 1])
        policy.decide(make_view(sizes, time=time))
        written.append(int(policy.admit(np.zeros(1, dtype=np.int64), make_view(sizes, time=time)).cpu_millicores[0]))
    assert written[11:] == [20, 10, 10, 10, 10, 10, 10, 500, 500], "made at 3000, 3900, 4800, 5700"


def test_pods_that_do_not_fit_on_their_node_are_evicted() -> None:
    recording = steady()
    policy = CruiseKubeBaseline(recording, ReplayOptions())
    for _ in passes(policy, recording, until=HOUR):
        pass
    tight = replace(make_view(NOW, time=HOUR + 300), allocatable=Resources(499, 64 * GIBIBYTE))
    decision = policy.decide(tight)
    assert decision.evict.tolist() == [1], "150 m and 350 m are one millicore too many"
    assert decision.resize.tolist() == [], "who is left has no rest to share, which makes no number"


def test_single_pods_of_a_workload_and_stateful_ones_are_evicted_after_the_others() -> None:
    cpu, memory = np.full((13, 3), [50.0, 50.0, 50.0]), np.full((13, 3), 1e8)
    cpu[4, 0], cpu[4, 1:] = 400.0, 300.0
    recording = make_recording(cpu, memory, workloads=["alone", "twice", "twice"])
    policy, sizes = (
        CruiseKubeBaseline(recording, ReplayOptions()),
        get_sizes([1000] * 3, [GIBIBYTE] * 3, [2 * GIBIBYTE] * 3),
    )
    policy.admit(np.arange(3, dtype=np.int64), make_view(sizes, time=0))
    for row in range(12):
        one = slice(row, row + 1)
        policy.observe((row + 1) * 300, recording.cpu_millicores[one], recording.memory_bytes[one])
        if row < 11:
            policy.decide(make_view(sizes, time=(row + 1) * 300))
    tight = replace(make_view(sizes, time=HOUR), allocatable=Resources(499, 64 * GIBIBYTE))
    assert policy.decide(tight).evict.tolist() == [1], "not the first, though its rest is larger"


def test_skipped_pods_count_with_their_requests() -> None:
    cpu, memory = np.full((13, 2), 50.0), np.full((13, 2), 1e8)
    cpu[4] = 400.0
    recording = make_recording(cpu, memory)
    bare = replace(recording.containers[1], workload=replace(recording.containers[1].workload, kind="Job"))
    recording = replace(recording, containers=[recording.containers[0], bare])
    policy = CruiseKubeBaseline(recording, ReplayOptions())
    for _ in passes(policy, recording, until=HOUR):
        pass
    # The job's pod requests a core, the other one has 50 + 350 m.
    roomy = replace(make_view(NOW, time=HOUR + 300), allocatable=Resources(1400, 64 * GIBIBYTE))
    assert policy.decide(roomy).evict.tolist() == []
    tight = replace(make_view(NOW, time=HOUR + 600), allocatable=Resources(1399, 64 * GIBIBYTE))
    assert policy.decide(tight).evict.tolist() == [0]
    assert admitted(policy, 2 * HOUR).cpu_millicores.tolist() == [400, 1000]


def test_memory_limited_to_its_request_is_unchanged_until_the_pod_is_recreated() -> None:
    policy, recording = CruiseKubeBaseline(steady(), ReplayOptions()), steady()
    equal = get_sizes([1000] * 2, [4 * GIBIBYTE] * 2, [4 * GIBIBYTE] * 2)
    decision = dict(passes(policy, recording, until=HOUR, sizes=equal))[HOUR]
    assert decision.sizes.cpu_millicores.tolist() == [100, 400]
    assert decision.sizes.memory_bytes.tolist() == [4 * GIBIBYTE] * 2
    sizes = admitted(policy, HOUR)
    assert sizes.memory_bytes.tolist() == [200 * MEGABYTE, 300 * MEGABYTE]
    assert sizes.memory_limit_bytes.tolist() == [512 * MEGABYTE, 600 * MEGABYTE]


def test_a_kill_evicts_and_its_limit_in_mebibytes_sizes_the_next_pod_in_megabytes() -> None:
    policy = started(until=HOUR)
    assert killed(policy, HOUR + 60, limit=1000 << 20).evict
    sizes = admitted(policy, HOUR + 60)
    assert sizes.memory_bytes.tolist() == [1000 * MEGABYTE, 300 * MEGABYTE], "less than the 1,048 that it was killed at"
    assert sizes.memory_limit_bytes.tolist() == [2000 * MEGABYTE, 600 * MEGABYTE]
    decision = policy.decide(make_view(NOW, time=HOUR + 300))
    assert decision.sizes.memory_bytes.tolist() == [1000 * MEGABYTE, 300 * MEGABYTE], "all base, without a rest"


def test_the_next_statistics_know_the_limit_at_kills_of_half_an_hour_and_forget_it_then() -> None:
    policy, recording = started(until=HOUR), steady()
    killed(policy, HOUR + 60, limit=1000 << 20)
    seen = []
    for row in range(12, 24):
        time = (row + 1) * 300
        policy.observe(time, recording.cpu_millicores[row : row + 1], recording.memory_bytes[row : row + 1])
        seen.append(int(admitted(policy, time).memory_bytes[0]) // MEGABYTE)
    # Due at 3900 (made 4 minutes before: left out), 4800, 5700, 6600.
    assert seen == [1000] * 3 + [1049] * 3 + [200] * 6


def test_a_pod_that_was_killed_within_five_minutes_is_not_evicted_again() -> None:
    policy = started(until=HOUR)
    assert killed(policy, HOUR + 60, limit=GIBIBYTE).evict
    assert not killed(policy, HOUR + 359, limit=2 * GIBIBYTE).evict
    assert admitted(policy, HOUR + 359).memory_bytes[0] == 1024 * MEGABYTE, "nor is its limit remembered"
    assert killed(policy, HOUR + 360, limit=GIBIBYTE).evict
    assert killed(policy, HOUR + 361, limit=GIBIBYTE, creation_count=2).evict, "a new pod has a new name"


def test_a_stateful_pod_keeps_its_name_and_its_cool_down() -> None:
    policy = started(until=HOUR, kind="StatefulSet")
    assert killed(policy, HOUR + 60, limit=GIBIBYTE).evict
    assert not killed(policy, HOUR + 120, limit=GIBIBYTE, creation_count=2).evict


def test_a_kill_without_a_limit_clears_the_oom_memory() -> None:
    policy = started(until=HOUR)
    killed(policy, HOUR + 60, limit=GIBIBYTE)
    assert killed(policy, HOUR + 400, limit=0).evict
    assert admitted(policy, HOUR + 400).memory_bytes[0] == 200 * MEGABYTE


def test_a_pod_without_statistics_is_not_evicted_after_a_kill() -> None:
    assert not killed(CruiseKubeBaseline(steady(), ReplayOptions()), 60, limit=GIBIBYTE).evict
    assert not killed(started(until=HOUR, kind="Job"), HOUR, limit=GIBIBYTE).evict


def test_passes_more_often_than_it_applies_are_not_used() -> None:
    cpu = np.full((80, 2), 50.0)
    cpu[30] = 90.0
    recording = make_recording(cpu, np.full((80, 2), 1e8), start=60, step_seconds=60)
    policy = CruiseKubeBaseline(recording, ReplayOptions(pass_seconds=60))
    policy.admit(ALL, make_view(NOW, time=0))
    touched = []
    for row in range(80):
        time = (row + 1) * 60
        policy.observe(time, recording.cpu_millicores[row : row + 1], recording.memory_bytes[row : row + 1])
        if policy.decide(make_view(NOW, time=time)).resize.size:
            touched.append(time)
    assert touched == [3660, 3960, 4260, 4560]


def random_recording(seed: int, *, future: int | None = None) -> UsageRecording:
    """Bursty pods, some of which share a workload; what comes after row 150 is shuffled where `future` is given."""
    random = np.random.default_rng(seed)
    cpu, memory = random.gamma(0.5, 300.0, (300, 12)), 1e8 + random.gamma(0.5, 4e8, (300, 12))
    if future is not None:
        rows = 150 + np.random.default_rng(future).permutation(150)
        cpu[150:], memory[150:] = cpu[rows], memory[rows]
    return make_recording(cpu, memory, workloads=[f"w{column // 2}" for column in range(12)])


class Witnessed(CruiseKubeBaseline):
    """Records the writes of each pass."""

    written: list[tuple[int, list[int], list[int], list[int]]]

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        decision = super().decide(view)
        sizes = decision.sizes
        self.written.append(
            (view.time, sizes.cpu_millicores.tolist(), sizes.memory_bytes.tolist(), decision.evict.tolist())
        )
        return decision


@pytest.mark.parametrize("future", [1, 2, 3])
def test_no_sample_is_seen_before_its_time(future: int) -> None:
    options = ReplayOptions(node=Resources(4000, 12 * GIBIBYTE))
    seen = []
    for recording in (random_recording(5), random_recording(5, future=future)):
        policy = Witnessed(recording, options)
        policy.written = []
        replay_policy(recording, policy, options)
        seen.append(policy.written)
    one, other = seen
    assert len(one) == 300
    assert one[:150] == other[:150]
    assert one[150:] != other[150:], "the shuffled half is another one"
    assert any(cpu for _, cpu, _, _ in one[:150])
    assert any(evict for _, _, _, evict in one), "or the node was never tight"


def test_a_replay_has_less_slack_than_provisioned() -> None:
    recording, options = random_recording(7), ReplayOptions(node=Resources(8000, 24 * GIBIBYTE))
    score = replay_policy(recording, CruiseKubeBaseline(recording, options), options)
    assert score.memory is not None
    provisioned = float(1 - recording.cpu_millicores.mean() / 1000)
    assert score.cpu.relative_slack < provisioned - 0.1
    assert score.memory.relative_slack < 0.8
    assert score.resizes_per_container_day > 10


def test_recordings_without_memory_leave_its_requests_alone() -> None:
    made = make_recording(
        steady().cpu_millicores.astype(np.float64), np.zeros((48, 2)), requests=[Resources(1000, 0)] * 2
    )
    recording = replace(made, has_memory=False)
    policy, sizes = CruiseKubeBaseline(recording, ReplayOptions()), get_sizes([1000, 1000], [0, 0])
    decision = dict(passes(policy, recording, until=HOUR, sizes=sizes))[HOUR]
    written: Int64Array = decision.sizes.memory_bytes + decision.sizes.memory_limit_bytes
    assert decision.sizes.cpu_millicores.tolist() == [100, 400]
    assert written.tolist() == [0, 0]
