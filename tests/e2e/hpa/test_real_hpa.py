"""The real HPA controller keeps the replicas that it would have kept without cruise."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import gt

import pytest

from tests.cadvisor import RECORDED
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.hpa.metrics_api import serve_metrics
from tests.e2e.hpa.replay import STABILIZATION_SECONDS, Replay, ReplayResult
from tests.e2e.hpa.services import REPLAYED, SERVICES, Service, read_recorded_services

FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=1s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={STABILIZATION_SECONDS}s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
    "--concurrent-horizontal-pod-autoscaler-syncs=10",
)


@contextmanager
def start(services: Sequence[Service]) -> Iterator[Replay]:
    with (
        ControlPlane(controller_manager_flags=FLAGS) as control_plane,
        TestKubelet(control_plane.api(KUBELET.name)) as kubelet,
        serve_metrics(control_plane.api()) as metrics,
    ):
        kubelet.add_nodes([SimulatedNodeSpec(f"n{n}", "100", "200Gi", pods=250) for n in range(3)])
        replay = Replay(control_plane, metrics, services)
        replay.create()
        yield replay


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with start(SERVICES) as replay:
        yield replay


def check(replay: Replay, services: Sequence[Service], step_minutes: int) -> ReplayResult:
    minutes = range(0, REPLAYED, step_minutes)
    result = replay.run(minutes)
    resting = [one for one in services if all(counts[one.name][1] == one.minimum for counts in result.replicas)]
    scaled = [one for one in services if len({counts[one.name][1] for counts in result.replicas}) > 1]
    before = sum(one.minimum * sum(cpu for cpu, _ in one.containers.values()) for one in resting)
    after = sum(result.requested[-1][one.name] for one in resting)
    print(
        f"{len(result.replicas)} steps of {step_minutes} minutes, {len(services)} services, {result.resizes} resizes, "
        f"{len(result.differences)} differences of replicas; {len(resting)} services always at their minimum request "
        f"{after}m instead of {before}m; {len(scaled)} services were scaled"
    )
    for difference in result.differences[:40]:
        print(difference, result.requested[difference[0]][difference[1]])
    assert len(scaled) >= 3 and len(resting) >= 10 and after < before / 2
    for one in services:
        twin = [counts[one.name][1] for counts in result.replicas]
        assert twin == simulate(one, minutes), f"{one.name}: the simulated controller differs from the real one"
    return result


def simulate(service: Service, minutes: Iterable[int]) -> list[int]:
    """The replicas that the simulated controller comes to at each of these minutes."""
    replicas, found = service.minimum, []
    for minute in minutes:
        replicas = service.settle(minute, replicas)
        found.append(replicas)
    return found


def find_unexplained(service: Service, result: ReplayResult, step_minutes: int) -> list[int]:
    """The steps from which on replicas differ although the use was not above all use before."""
    largest, is_explained, found = service.history(), False, []
    for step, counts in enumerate(result.replicas):
        use = service.use(step * step_minutes, service.minimum)
        sized, twin = counts[service.name]
        if sized == twin:
            is_explained = False
        elif not is_explained:
            is_explained = any(max(map(gt, use[name], largest[name])) for name in use)
            found += [] if is_explained else [step]
        largest = {
            name: (max(cpu, largest[name][0]), max(memory, largest[name][1])) for name, (cpu, memory) in use.items()
        }
    return found


def test_replicas_are_those_without_cruise(replay: Replay):
    assert not check(replay, SERVICES, 480).differences


@pytest.mark.long
def test_replicas_are_those_without_cruise_every_four_hours(replay: Replay):
    assert not check(replay, SERVICES, 240).differences


@pytest.mark.long
@pytest.mark.timeout(10_800)
@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded traces are not in ../shared/data/traces")
def test_replicas_differ_only_where_recorded_use_is_larger_than_ever():
    services = read_recorded_services(RECORDED / "bitbrains-a")
    with start(services) as replay:
        result = check(replay, services, 60)
    unexplained = {one.name: find_unexplained(one, result, 60) for one in services}
    assert not {name: steps for name, steps in unexplained.items() if steps}
