from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.events import PodEventRecorder, format_event_reason
from cruise.domain.actions import PodEvent, ReasonCode
from tests.adapters.kube.answering_server import PreparedAnswer, answer_in_order, build_status, create_client
from tests.controlplane.api import Api, Json
from tests.controlplane.control_plane import ControlPlane

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"
ONE = PodEvent("default", "web-0", UID, ReasonCode.RIGHTSIZED, "cpu 500m → 130m", False)


def told(admin: Api, namespace: str) -> list[Json]:
    return admin.items("events", namespace)


def announcement(namespace: str, **changed: object) -> PodEvent:
    return replace(ONE, namespace=namespace, **changed)  # type: ignore[arg-type]


async def test_an_event_says_who_did_what_to_which_pod(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "cruise-7d4f-x")
    await events.record([announcement(namespace)], NOW)
    await events.record(
        [announcement(namespace, reason=ReasonCode.POD_DISRUPTION_BUDGET, message="no", warning=True)], NOW
    )
    done, refused = sorted(told(admin, namespace), key=lambda event: str(event["type"]))
    assert done["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": namespace,
        "name": "web-0",
        "uid": UID,
    }
    assert (done["type"], done["reason"], done["message"]) == ("Normal", "Rightsized", "cpu 500m → 130m")
    assert done["source"] == {"component": "cruise", "host": "cruise-7d4f-x"}
    assert (done["reportingComponent"], done["reportingInstance"]) == ("cruise", "cruise-7d4f-x")
    assert done["firstTimestamp"] == done["lastTimestamp"] == "2026-11-21T08:00:00Z"
    assert (refused["type"], refused["reason"]) == ("Warning", "PodDisruptionBudget")


async def test_writes_the_same_event_once_per_hour(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    for minutes in (0, 1, 59, 60, 119, 120):
        await events.record([announcement(namespace)] * 2, NOW + timedelta(minutes=minutes))
    assert len(told(admin, namespace)) == 3


async def test_logs_other_reports_separately(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    different = [
        announcement(namespace),
        announcement(namespace, message="cpu 130m → 140m"),
        announcement(namespace, reason=ReasonCode.WITHDRAWN),
        announcement(namespace, pod_uid="other"),
    ]
    await events.record(different, NOW)
    assert len(told(admin, namespace)) == 4


async def test_forgets_pods_that_are_gone(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    kept, gone, new = (announcement(namespace, pod_uid=uid) for uid in ("kept", "gone", "new"))
    await events.record([kept, gone], NOW)
    later = NOW + timedelta(minutes=1)
    # A pod that was created after the list was read is not gone.
    await events.record([new], later)
    events.forget_gone_pods({"kept"}, later)
    assert {uid for uid, _ in events._written} == {"kept", "new"}
    await events.record([kept, new], later)
    assert len(told(admin, namespace)) == 3


async def test_forgets_events_after_an_hour(client: KubernetesClient, namespace: str):
    events = PodEventRecorder(client, "host")
    for minutes in range(0, 180, 3):
        at = NOW + timedelta(minutes=minutes)
        await events.record(
            [announcement(namespace, pod_uid=str(minutes)), announcement(namespace, message=str(at))], at
        )
    assert len(events._written) == 21


async def test_not_too_many_in_all(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    many = [announcement(namespace, pod_uid=str(number)) for number in range(80)]
    await events.record(many, NOW)
    assert len(told(admin, namespace)) == 50
    # A dropped event is written when it is repeated.
    await events.record(many, NOW + timedelta(seconds=2))
    assert len(told(admin, namespace)) == 60


async def test_long_names_and_messages_are_cut(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    # Cut where it ends in what no name may end in.
    name = "p" * 198 + "-." + "p" * 53
    await events.record([announcement(namespace, pod=name, message="ö" * 5000)], NOW)
    [event] = told(admin, namespace)
    assert event["involvedObject"]["name"] == name
    assert event["message"].startswith("ööö")


async def test_a_deleted_namespace_does_not_prevent_other_events(client: KubernetesClient, admin: Api, namespace: str):
    events = PodEventRecorder(client, "host")
    await events.record([announcement("nowhere", pod_uid="gone"), announcement(namespace)], NOW)
    assert len(told(admin, namespace)) == 1


async def test_without_permission_logs_once_and_raises_nothing(
    control_plane: ControlPlane, admin: Api, namespace: str, capsys: pytest.CaptureFixture[str]
):
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "mute"}})
    kubeconfig = control_plane.kubeconfig(f"mute-{namespace}", admin.service_account_token(namespace, "mute"))
    async with connect_to_kubernetes(KubernetesSettings(kubeconfig)) as client:
        events = PodEventRecorder(client, "host")
        for message in ("a", "b", "c"):
            await events.record([announcement(namespace, message=message)], NOW)
    assert told(admin, namespace) == []
    assert capsys.readouterr().out.count("events cannot be written") == 1


async def test_a_server_that_does_not_answer_is_not_queried_repeatedly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    many = [replace(ONE, pod_uid=str(number)) for number in range(20)]
    answers = answer_in_order(
        build_status(503), PreparedAnswer(silent=True), build_status(429), PreparedAnswer(), build_status(503)
    )
    async with create_client(tmp_path, answers) as (client, server):
        events = PodEventRecorder(client, "host")
        for minutes in range(3):
            await events.record(many, NOW + timedelta(minutes=minutes))
            assert len(server.asked) == minutes + 1
        assert capsys.readouterr().out.count("events cannot be written") == 2
        await events.record(many, NOW + timedelta(minutes=4))
    # Told again once something had worked in between.
    assert capsys.readouterr().out.count("events cannot be written") == 1


def test_formats_reasons_as_kubernetes_does():
    assert [
        format_event_reason(reason)
        for reason in (ReasonCode.OOM_KILLED, ReasonCode.RIGHTSIZED, ReasonCode.MANAGED_BY_HPA)
    ] == [
        "OomKilled",
        "Rightsized",
        "ManagedByHpa",
    ]
    assert all(format_event_reason(reason).isalpha() for reason in ReasonCode)
