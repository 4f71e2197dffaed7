"""The real HPA controller keeps the replicas that it would have kept without cruise."""

from collections.abc import Iterator

import pytest

from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.hpa.metrics_api import serve_metrics
from tests.e2e.hpa.replay import STABILIZATION_SECONDS, Replay
from tests.e2e.hpa.services import REPLAYED, SERVICES

FLAGS = (
    # Custom resources are not encoded as protobuf.
    "--kube-api-content-type=application/json",
    "--horizontal-pod-autoscaler-sync-period=1s",
    f"--horizontal-pod-autoscaler-downscale-stabilization={STABILIZATION_SECONDS}s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
    "--concurrent-horizontal-pod-autoscaler-syncs=10",
)


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with (
        ControlPlane(controller_manager_flags=FLAGS) as control_plane,
        TestKubelet(control_plane.api(KUBELET.name)) as kubelet,
    ):
        kubelet.add_nodes([SimulatedNodeSpec(f"n{n}", "100", "200Gi", pods=250) for n in range(2)])
        serve_metrics(control_plane.api())
        replay = Replay(control_plane, SERVICES)
        replay.create()
        yield replay


def check(replay: Replay, step_minutes: int) -> None:
    result = replay.run(range(0, REPLAYED, step_minutes))
    resting = [one for one in SERVICES if all(counts[one.name][1] == one.minimum for counts in result.replicas)]
    scaled = [one for one in SERVICES if len({counts[one.name][1] for counts in result.replicas}) > 1]
    before = sum(one.minimum * sum(cpu for cpu, _ in one.containers.values()) for one in resting)
    after = sum(result.requested[-1][one.name] for one in resting)
    print(
        f"{len(result.replicas)} steps of {step_minutes} minutes, {len(SERVICES)} services, {result.resizes} resizes, "
        f"{len(result.differences)} differences of replicas; {len(resting)} services always at their minimum request "
        f"{after}m instead of {before}m; {len(scaled)} services were scaled"
    )
    for difference in result.differences[:40]:
        print(difference, result.requested[difference[0]][difference[1]])
    assert len(scaled) >= 3 and len(resting) >= 10 and after < before / 2
    assert not result.differences


def test_replicas_are_those_without_cruise(replay: Replay):
    check(replay, 480)


@pytest.mark.long
def test_replicas_are_those_without_cruise_every_four_hours(replay: Replay):
    check(replay, 240)
