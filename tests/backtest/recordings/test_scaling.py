"""HPAs over a recording: the use of a workload's pods becomes the demand that the HPA's pods share."""

from dataclasses import replace

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.recordings.scaling import MAX_OF_MIN_REPLICAS, add_autoscalers
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.replayed import make_recording


def with_use(recording: UsageRecording, use) -> UsageRecording:
    cpu = np.array(use, dtype=np.float32)
    return replace(recording, cpu_millicores=cpu, memory_bytes=np.where(np.isnan(cpu), np.nan, MEBIBYTE * cpu))


def test_the_smallest_number_of_pods_shares_what_all_used():
    recording = with_use(make_recording("web", "api", "web", length=2), [[100, 5, 300], [50, 6, 60]])
    scaled = add_autoscalers(recording, 70)
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
    [web] = add_autoscalers(with_use(make_recording("web", "web", "web", length=5), use), 70).autoscalers
    assert (web.min_replicas, web.first_row, web.last_row) == (2, 1, 4)


def test_the_template_requests_the_largest_requests():
    recording = make_recording("web", "web")
    first, second = recording.containers
    recording = replace(recording, containers=[first, replace(second, requests=Resources(900, 100))])
    [web] = add_autoscalers(recording, 70).autoscalers
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
    scaled = add_autoscalers(recording, 70)
    assert not scaled.autoscalers and scaled.recording.containers == tuple(recording.containers)
    assert scaled.recording.cpu_millicores.tolist() == recording.cpu_millicores.tolist()
