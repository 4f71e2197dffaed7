"""HPAs over a recording: the use of a workload's pods becomes the demand that the HPA's pods share."""

from dataclasses import replace

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.recordings.scaling import MAX_OF_MIN_REPLICAS, ReplayHpaOptions, add_autoscalers
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import HorizontalPodAutoscaler, WorkloadRef
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from tests.backtest.replayed import make_recording

EACH = ReplayHpaOptions(70)


def with_use(recording: UsageRecording, use) -> UsageRecording:
    cpu = np.array(use, dtype=np.float32)
    return replace(recording, cpu_millicores=cpu, memory_bytes=np.where(np.isnan(cpu), np.nan, MEBIBYTE * cpu))


def test_the_smallest_number_of_pods_shares_what_all_used():
    recording = with_use(make_recording("web", "api", "web", length=2), [[100, 5, 300], [50, 6, 60]])
    scaled = add_autoscalers(recording, EACH)
    web, api = scaled.autoscalers
    assert (web.min_replicas, web.max_replicas, api.min_replicas) == (2, 2 * MAX_OF_MIN_REPLICAS, 1)
    assert scaled.cpu_demand.tolist() == [[400, 5], [110, 6]]
    assert scaled.memory_bytes.tolist() == [[200 * MEBIBYTE, 5 * MEBIBYTE], [55 * MEBIBYTE, 6 * MEBIBYTE]]
    pods = scaled.recording.cpu_millicores[:, web.first : web.first + web.max_replicas]
    assert pods[:, :2].tolist() == [[200, 200], [55, 55]] and np.isnan(pods[:, 2:]).all()
    assert len({(one.namespace, one.pod) for one in scaled.recording.containers}) == 12


def test_the_smallest_number_is_the_one_that_was_mostly_recorded():
    nothing = np.nan
    use = [[nothing, nothing, nothing], [9, nothing, nothing], [9, 9, nothing], [9, 9, 9], [9, 9, nothing]]
    [web] = add_autoscalers(with_use(make_recording("web", "web", "web", length=5), use), EACH).autoscalers
    assert (web.min_replicas, web.first_row, web.last_row) == (2, 1, 4)


def test_the_template_requests_the_largest_requests():
    recording = make_recording("web", "web")
    first, second = recording.containers
    recording = replace(recording, containers=[first, replace(second, requests=Resources(900, 100))])
    [web] = add_autoscalers(recording, EACH).autoscalers
    assert web.container.requests == Resources(900, 512 * MEBIBYTE)


def test_pods_without_replicas_or_requests_keep_their_use():
    recording = make_recording("agent", "web", length=1)
    agent, web = recording.containers
    recording = replace(
        recording,
        containers=[
            replace(agent, workload=WorkloadRef("DaemonSet", "agent")),
            replace(web, requests=Resources(0, MEBIBYTE)),
        ],
    )
    scaled = add_autoscalers(recording, EACH)
    assert not scaled.autoscalers and scaled.recording.containers == tuple(recording.containers)
    assert scaled.recording.cpu_millicores.tolist() == recording.cpu_millicores.tolist()


def hpa(name: str, *metrics: UtilizationMetric, smallest: int = 3, largest: int = 7) -> HorizontalPodAutoscaler:
    scaling = UtilizationScaling(metrics, smallest, largest, smallest, smallest, True)
    resources = frozenset(one.resource for one in metrics)
    return HorizontalPodAutoscaler("shop", name, WorkloadRef("Deployment", name), resources, "apps/v1", scaling)


def test_the_cluster_s_own_hpas_have_their_bounds_and_targets():
    cpu, memory = (UtilizationMetric(one, "", 60) for one in ResourceName)
    recording = replace(
        make_recording("web", "api", "both", "proxied", length=2),
        autoscalers=(
            hpa("web", cpu),
            hpa("api", cpu._replace(container="app"), smallest=0, largest=2),
            hpa("both", cpu, memory),
            hpa("proxied", cpu._replace(container="proxy")),
            hpa("elsewhere", cpu),
        ),
    )
    scaled = add_autoscalers(recording, ReplayHpaOptions())
    found = {
        one.container.workload.name: (one.target_percent, one.min_replicas, one.max_replicas)
        for one in scaled.autoscalers
    }
    assert found == {"web": (60, 3, 7), "api": (60, 1, 2)}
    assert len(scaled.recording.containers) == 7 + 2 + 2


def test_a_workload_of_several_containers_has_none():
    recording = make_recording("web", "web", length=2)
    first, second = recording.containers
    recording = replace(
        recording,
        containers=[first, replace(second, container="proxy")],
        autoscalers=(hpa("web", UtilizationMetric(ResourceName.CPU, "", 60)),),
    )
    assert not add_autoscalers(recording, ReplayHpaOptions()).autoscalers
