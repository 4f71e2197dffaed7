"""Out-of-memory kills that a pod's status still shows."""

from collections.abc import Iterator, Sequence

from cruise.domain.cluster import OomKill, Pod
from cruise.kube_json.wire.pod_json import ContainerStatus, PodStatus, Terminated

_REASON = "OOMKilled"


def oom_kills_of(pod: Pod, status: PodStatus | None) -> Sequence[OomKill]:
    """Return the kills in `lastState` and `state` of every container, by container.

    Container runtimes report OOMKilled where the kernel killed any process of the container's control group, whatever
    the exit code: a container whose main process outlives a killed child may end with 0, 1 or 143 (ADR 0097). The
    limit in force at the kill is not recorded: it is what the container has now.
    """
    if status is None:
        return ()
    kills: list[OomKill] = []
    for report in (status.init_container_statuses or ()) + (status.container_statuses or ()):
        for state in (report.last_state, report.state):
            if state is not None and state.terminated is not None:
                kills += _kills(pod, report, state.terminated)
    return kills


def _kills(pod: Pod, report: ContainerStatus, ended: Terminated) -> Iterator[OomKill]:
    if ended.reason != _REASON or ended.finished_at is None:
        return
    for container in pod.containers:
        if container.name == report.name:
            limits, requests = container.actual_limits or container.limits, container.actual or container.requests
            yield OomKill(
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                container=container.name,
                workload=pod.workload,
                identity=pod.identity,
                node=pod.node,
                finished_at=ended.finished_at,
                memory_limit_bytes=limits.memory_bytes,
                memory_request_bytes=requests.memory_bytes,
                role=container.role,
                restarts=report.restart_count,
                runs_to_completion=pod.runs_to_completion,
            )
