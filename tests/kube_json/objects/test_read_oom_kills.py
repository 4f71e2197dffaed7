"""OOM kills in the statuses of pods."""

from datetime import timedelta

import msgspec
import pytest

from cruise.domain.cluster import ContainerRole, OomKill, WorkloadRef
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.containers import read_oom_kills
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.wire.pod_json import PodObject
from tests.builders import NOW, Json, make_container_json, make_pod_json, stamp


def terminated(reason: str = "OOMKilled", exit_code: int = 137, **more: object) -> Json:
    return {"terminated": {"reason": reason, "exitCode": exit_code, "finishedAt": stamp(NOW), **more}}


def kills_of(**pod: object) -> list[OomKill]:
    document = make_pod_json("web-1", **pod)  # type: ignore[arg-type]
    return list(read_oom_kills(decode_pod(document), msgspec.convert(document, PodObject).status))


def test_a_kill_in_the_last_state_carries_what_is_known():
    limited = make_container_json(memory="100Mi", memory_limit="200Mi")
    status = {"name": "app", "lastState": terminated(), "state": {"running": {"startedAt": stamp(NOW)}}}
    assert kills_of(owner="DaemonSet/agent", containers=[limited], container_statuses=[status]) == [
        OomKill(
            namespace="shop",
            pod="web-1",
            pod_uid="uid-shop-web-1",
            container="app",
            workload=WorkloadRef("DaemonSet", "agent"),
            identity="n1",
            node="n1",
            finished_at=NOW,
            memory_limit_bytes=200 * MEBIBYTE,
            memory_request_bytes=100 * MEBIBYTE,
        )
    ]


def test_what_the_kubelet_reports_takes_precedence_over_the_spec():
    reported = {"requests": {"memory": "150Mi"}, "limits": {"memory": "300Mi"}}
    (kill,) = kills_of(container_statuses=[{"name": "app", "state": terminated(), "resources": reported}])
    assert (kill.memory_limit_bytes, kill.memory_request_bytes) == (300 * MEBIBYTE, 150 * MEBIBYTE)


def test_two_kills_of_one_container_are_two():
    earlier = terminated(finishedAt=stamp(NOW - timedelta(minutes=3)))
    kills = kills_of(container_statuses=[{"name": "app", "state": terminated(), "lastState": earlier}])
    assert [kill.finished_at for kill in kills] == [NOW - timedelta(minutes=3), NOW]


def test_sidecars_are_killed_too():
    sidecar = make_container_json("proxy", restartPolicy="Always")
    kills = kills_of(init_containers=[sidecar], init_container_statuses=[{"name": "proxy", "state": terminated()}])
    assert [kill.container for kill in kills] == ["proxy"]


@pytest.mark.parametrize("exit_code", [0, 1, 137, 143])
def test_the_reason_counts_whatever_the_exit_code(exit_code):
    # The kernel killed a process of the container; the main process may end with any code.
    [kill] = kills_of(container_statuses=[{"name": "app", "state": terminated(exit_code=exit_code)}])
    assert kill.finished_at == NOW


def test_init_containers_are_killed_too():
    migrate = make_container_json("migrate", memory_limit="64Mi")
    state = {"name": "migrate", "restartCount": 3, "lastState": terminated(exit_code=1)}
    [kill] = kills_of(init_containers=[migrate], init_container_statuses=[state])
    assert (kill.container, kill.role, kill.restarts) == ("migrate", ContainerRole.INIT, 3)
    assert kill.memory_limit_bytes == 64 * MEBIBYTE


def test_a_kill_of_a_pod_that_runs_to_completion_says_so():
    state = {"name": "app", "state": terminated()}
    [ended] = kills_of(owner="Job/report-1", container_statuses=[state], phase="Failed")
    [running] = kills_of(container_statuses=[state])
    assert (ended.runs_to_completion, running.runs_to_completion) == (True, False)


def test_a_pod_that_the_kubelet_evicted_is_no_oom_kill():
    status = {"name": "app", "state": terminated(reason="Error"), "lastState": {}}
    assert kills_of(phase="Failed", container_statuses=[status], status={"reason": "Evicted"}) == []


@pytest.mark.parametrize(
    "state",
    [
        terminated(reason="Error"),
        terminated(reason="Completed", exit_code=0),
        terminated(reason="ContainerStatusUnknown"),
        terminated(finishedAt=None),
        {"running": {"startedAt": stamp(NOW)}},
        {},
    ],
)
def test_other_terminations_are_no_kills(state):
    assert kills_of(container_statuses=[{"name": "app", "state": state}]) == []


def test_a_kill_at_no_possible_time_is_ignored():
    late = terminated(finishedAt="9999-12-31T23:59:59-23:59")
    assert kills_of(container_statuses=[{"name": "app", "lastState": late, "state": terminated()}]) == kills_of(
        container_statuses=[{"name": "app", "state": terminated()}]
    )


def test_a_status_of_an_unknown_container_is_ignored():
    assert kills_of(container_statuses=[{"name": "gone", "state": terminated()}]) == []
