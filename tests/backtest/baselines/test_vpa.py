from collections.abc import Sequence

import numpy as np
import pytest

from cruise.backtest.baselines.vpa import VpaBaseline
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ContainerSizes, ReplayDecision, ReplayedOomKill, ReplayOptions
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import get_sizes, make_recording, make_view

MIB = 1 << 20
GIB = 1 << 30
HOUR = 3600
ALL = np.array([0])
NODE = ReplayOptions().node


def recorded(
    requests: Sequence[Resources], workloads: Sequence[str] | None = None, *, step_seconds: int = 300
) -> UsageRecording:
    one = np.zeros((1, len(requests)))
    return make_recording(
        one, one, requests=requests, workloads=workloads, start=step_seconds, step_seconds=step_seconds
    )


class Run:
    """A policy and its inputs: by default the same usage at every pass, and sizes that change as it decides."""

    def __init__(self, recording: UsageRecording, options: ReplayOptions | None = None, *, room: bool = True) -> None:
        requests = [container.requests for container in recording.containers]
        memory = [one.memory_bytes for one in requests]
        limits = [container.memory_limit_bytes for container in recording.containers]
        self.vpa = VpaBaseline(recording, options if options is not None else ReplayOptions())
        self.sizes: ContainerSizes = get_sizes([one.cpu_millicores for one in requests], memory, limits)
        self.creation_count = [1] * len(requests)
        self.node = [0] * len(requests)
        self.step = recording.step_seconds
        self.at = 0
        self.room = room
        self.admitted()

    def observe(self, cpu: Sequence[float], memory: Sequence[float]) -> None:
        self.at += self.step
        rows = [np.array([row], dtype=np.float32) for row in (cpu, memory)]
        self.vpa.observe(self.at, rows[0], rows[1])

    def decide(self) -> ReplayDecision:
        decision = self.vpa.decide(
            make_view(self.sizes, time=self.at, node=self.node, creation_count=self.creation_count)
        )
        if self.room:
            self.sizes.assign(decision.resize, decision.sizes)
        return decision

    def pass_by(self, cpu: Sequence[float], memory: Sequence[float]) -> ReplayDecision:
        self.observe(cpu, memory)
        return self.decide()

    def admitted(self) -> ContainerSizes:
        containers = np.arange(len(self.creation_count))
        return self.vpa.admit(
            containers, make_view(self.sizes, time=self.at, node=self.node, creation_count=self.creation_count)
        )

    def kill(self, time: int) -> None:
        """Kill the first container; nothing is done about it before the pass."""
        view = make_view(self.sizes, time=time, node=self.node, creation_count=self.creation_count)
        reaction = self.vpa.react_to_oom_kill(ReplayedOomKill(0, time, 0, True), view)
        assert (reaction.sizes, reaction.evict) == (None, False)


def test_a_pod_is_admitted_as_requested_until_its_workload_was_seen() -> None:
    run = Run(recorded([Resources(1000, 4 * GIB)]))
    before = run.admitted()
    run.observe([100], [GIB])
    after = run.admitted()
    assert (before.cpu_millicores[0], before.memory_bytes[0], before.memory_limit_bytes[0]) == (1000, 4 * GIB, 8 * GIB)
    assert 115 <= after.cpu_millicores[0] <= 130
    assert after.memory_bytes[0] == pytest.approx(1.15 * GIB, rel=0.06)
    assert after.memory_limit_bytes[0] == 2 * after.memory_bytes[0], "in the proportion that was provisioned"


def test_a_new_replica_inherits_its_workloads_target() -> None:
    run = Run(recorded([Resources(1000, 4 * GIB), Resources(3000, GIB)], ["web", "web"]))
    run.node = [0, -2]
    run.observe([100, np.nan], [GIB, np.nan])
    admitted = run.admitted()
    assert admitted.cpu_millicores[0] == admitted.cpu_millicores[1]
    assert admitted.memory_limit_bytes[0] == admitted.memory_limit_bytes[1]


def test_a_pod_without_a_memory_request_has_no_limit() -> None:
    run = Run(recorded([Resources(1000, 0)]))
    run.observe([100], [GIB])
    admitted = run.admitted()
    assert admitted.memory_bytes[0] > GIB
    assert admitted.memory_limit_bytes[0] == 0


def test_recommendations_end_at_the_minimum_and_at_the_nodes_size() -> None:
    run = Run(recorded([Resources(1000, 4 * GIB), Resources(1000, 4 * GIB)]))
    run.observe([1, 60_000], [MIB, 500 * GIB])
    admitted = run.admitted()
    assert admitted.cpu_millicores.tolist() == [25, NODE.cpu_millicores]
    assert admitted.memory_bytes.tolist() == [250 * MIB, NODE.memory_bytes]


def test_a_single_replica_is_shrunk_in_place_once_its_request_is_above_the_upper_bound() -> None:
    """The bound starts without end; 1.15 x 400 m x (1 + 1 / days) comes down to 4 cores after three to four hours."""
    run = Run(recorded([Resources(4000, 8 * GIB)]))
    decision = run.pass_by([400], [6 * GIB])
    while not decision.resize.size and run.at < 12 * HOUR:
        decision = run.pass_by([400], [6 * GIB])
    assert 3 * HOUR < run.at < 4 * HOUR
    assert (decision.resize.tolist(), decision.evict.tolist()) == ([0], [])
    assert 460 <= decision.sizes.cpu_millicores[0] <= 500


def test_a_pod_far_from_the_target_but_within_bounds_is_updated_after_twelve_hours() -> None:
    run = Run(recorded([Resources(460, 9 * GIB)]))
    while run.at < 12 * HOUR - 300:
        assert run.pass_by([300], [7 * GIB]).resize.size == 0
    assert run.pass_by([300], [7 * GIB]).resize.tolist() == [0]


def test_requests_below_the_lower_bound_increase_immediately() -> None:
    run = Run(recorded([Resources(100, 8 * GIB)]))
    for _ in range(3):
        decision = run.pass_by([1000], [6 * GIB])
        if decision.resize.size:
            break
    assert decision.resize.tolist() == [0]
    assert run.sizes.cpu_millicores[0] >= 1150


@pytest.mark.parametrize(("passes", "resized"), [(0, [0]), (2, [])])
def test_a_replica_killed_within_ten_minutes_of_its_start_is_resized_immediately(
    passes: int, resized: list[int]
) -> None:
    """The kill raises the target of all three, but the median stays: only a quick kill takes one out of turn."""
    run = Run(recorded([Resources(1000, 2 * GIB)] * 3, ["web"] * 3))
    for _ in range(passes):
        assert run.pass_by([900] * 3, [1.7 * GIB] * 3).resize.size == 0
    run.kill(run.at + run.step)
    decision = run.pass_by([900] * 3, [1.7 * GIB] * 3)
    assert decision.resize.tolist() == resized
    assert run.admitted().memory_bytes == pytest.approx([1.2 * 2 * GIB * 1.15] * 3, rel=0.06)
    run.creation_count = [2, 1, 1]
    assert run.pass_by([900] * 3, [1.7 * GIB] * 3).resize.size == 0, "a new pod has not been killed"


def test_a_quick_kill_is_forgotten_after_ten_minutes() -> None:
    run = Run(recorded([Resources(1000, 2 * GIB)] * 3, ["web"] * 3))
    run.kill(run.at + run.step)
    run.node = [-1, 0, 0]
    assert all(run.pass_by([900] * 3, [1.7 * GIB] * 3).resize.size == 0 for _ in range(3))
    run.node = [0, 0, 0]
    assert run.pass_by([900] * 3, [1.7 * GIB] * 3).resize.size == 0


def test_the_first_sample_of_a_new_pod_is_not_its_forerunners() -> None:
    """Each pod has one peak in a day, and the newer one weighs more: the median follows the new pod immediately."""
    run = Run(recorded([Resources(1000, 2 * GIB)]))
    while run.at < 6 * HOUR:
        assert run.pass_by([800], [GIB]).resize.size == 0
    run.creation_count = [2]
    assert run.pass_by([800], [1.9 * GIB]).resize.tolist() == [0]


def test_a_single_replica_is_resized_after_any_kill() -> None:
    """The kill is the peak of the day, and the newest day is the median: the lower bound is above the request."""
    run = Run(recorded([Resources(1000, 2 * GIB)]))
    while run.at < 2 * HOUR:
        run.pass_by([900], [1.7 * GIB])
    run.kill(run.at + run.step)
    decision = run.pass_by([900], [2 * GIB])
    assert decision.resize.tolist() == [0]
    assert decision.sizes.memory_bytes[0] == pytest.approx(1.2 * 2 * GIB * 1.15, rel=0.06)


def test_a_pending_resize_is_retried_and_ends_in_an_eviction() -> None:
    run = Run(recorded([Resources(100, 8 * GIB)]), room=False)
    decision = run.pass_by([1000], [6 * GIB])
    while not decision.resize.size:
        decision = run.pass_by([1000], [6 * GIB])
    asked = decision.sizes.cpu_millicores.tolist()
    again = run.pass_by([9000], [6 * GIB])
    assert again.sizes.cpu_millicores.tolist() == asked, "the pod is given no other size while one waits"
    assert again.evict.size == 0
    last = run.pass_by([9000], [6 * GIB])
    assert (last.resize.tolist(), last.evict.tolist()) == ([], [0])


def test_a_replaced_pod_does_not_wait_for_what_its_forerunner_was_refused() -> None:
    run = Run(recorded([Resources(100, 8 * GIB)]), room=False)
    while not run.pass_by([1000], [6 * GIB]).resize.size:
        pass
    run.creation_count = [2]
    run.sizes.assign(ALL, run.admitted())
    for _ in range(4):
        decision = run.pass_by([1000], [6 * GIB])
        assert (decision.resize.size, decision.evict.size) == (0, 0)


def test_the_replacement_of_an_evicted_pod_counts_when_it_runs() -> None:
    """Both of two replicas wait for room; the loops of a pass evict one of them, since the other has to stay."""
    run = Run(recorded([Resources(100, 8 * GIB)] * 2, ["web"] * 2), room=False)
    evicted: list[int] = []
    while not evicted:
        evicted = run.pass_by([1000] * 2, [6 * GIB] * 2).evict.tolist()
    assert evicted == [0]


def test_pending_pods_are_skipped() -> None:
    run = Run(recorded([Resources(100, 8 * GIB)]))
    run.node = [-1]
    assert all(run.pass_by([1000], [6 * GIB]).resize.size == 0 for _ in range(10))


def test_a_pod_that_uses_more_than_its_new_limit_is_evicted() -> None:
    """The kubelet does not lower the limit of the replica that uses far more than nineteen others."""
    count = 20
    run = Run(recorded([Resources(1000, 32 * GIB)] * count, ["web"] * count))
    memory = [float(GIB)] * (count - 1) + [20.0 * GIB]
    while run.at < 24 * HOUR:
        decision = run.pass_by([900] * count, memory)
        if decision.evict.size:
            break
    assert decision.evict.tolist() == [count - 1]
    assert decision.resize.tolist() == list(range(count - 1))


def test_half_of_a_workload_is_updated_in_a_minute() -> None:
    recording = recorded([Resources(100, 8 * GIB)] * 4, ["web"] * 4, step_seconds=60)
    run = Run(recording, ReplayOptions(pass_seconds=60))
    touched: list[int] = []
    while not touched:
        touched = run.pass_by([1000] * 4, [6 * GIB] * 4).resize.tolist()
    assert touched == [0, 1]
    assert run.pass_by([1000] * 4, [6 * GIB] * 4).resize.tolist() == [2, 3]


def test_memory_that_was_not_recorded_is_unchanged() -> None:
    one = np.zeros((1, 1))
    known = make_recording(one, one, requests=[Resources(100, 8 * GIB)])
    recording = UsageRecording(
        known.name, known.containers, known.start, 300, known.cpu_millicores, known.memory_bytes, has_memory=False
    )
    run = Run(recording)
    for _ in range(3):
        run.pass_by([1000], [0])
    assert run.sizes.cpu_millicores[0] > 1000
    assert (run.sizes.memory_bytes[0], run.sizes.memory_limit_bytes[0]) == (8 * GIB, 16 * GIB)
    assert run.admitted().memory_limit_bytes[0] == 16 * GIB
