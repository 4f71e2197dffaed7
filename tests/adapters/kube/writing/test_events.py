from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.adapters.kube.writing.events import PodEvents, event_reason
from cruise.domain.actions import Announcement, Reason
from tests.adapters.kube.answering_server import Answer, asking, in_turn, status
from tests.controlplane.api import Api, Json
from tests.controlplane.control_plane import ControlPlane

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"
ONE = Announcement("default", "web-0", UID, Reason.RIGHTSIZED, "cpu 500m → 130m", False)


def told(admin: Api, namespace: str) -> list[Json]:
    return admin.items("events", namespace)


def announcement(namespace: str, **changed: object) -> Announcement:
    return replace(ONE, namespace=namespace, **changed)  # type: ignore[arg-type]


async def test_an_event_says_who_did_what_to_which_pod(client: KubeClient, admin: Api, namespace: str):
    events = PodEvents(client, "cruise-7d4f-x")
    await events.record([announcement(namespace)], NOW)
    await events.record([announcement(namespace, reason=Reason.DISRUPTION_BUDGET, message="no", warning=True)], NOW)
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
    assert (refused["type"], refused["reason"]) == ("Warning", "DisruptionBudget")


async def test_the_same_is_told_once_in_an_hour(client: KubeClient, admin: Api, namespace: str):
    events = PodEvents(client, "host")
    for minutes in (0, 1, 59, 60, 119, 120):
        await events.record([announcement(namespace)] * 2, NOW + timedelta(minutes=minutes))
    assert len(told(admin, namespace)) == 3


async def test_what_differs_is_told_at_once(client: KubeClient, admin: Api, namespace: str):
    events = PodEvents(client, "host")
    different = [
        announcement(namespace),
        announcement(namespace, message="cpu 130m → 140m"),
        announcement(namespace, reason=Reason.WITHDRAWN),
        announcement(namespace, pod_uid="other"),
    ]
    await events.record(different, NOW)
    assert len(told(admin, namespace)) == 4


async def test_not_too_many_in_all(client: KubeClient, admin: Api, namespace: str):
    events = PodEvents(client, "host")
    many = [announcement(namespace, pod_uid=str(number)) for number in range(80)]
    await events.record(many, NOW)
    assert len(told(admin, namespace)) == 50
    # What was dropped is new when it comes again.
    await events.record(many, NOW + timedelta(seconds=2))
    assert len(told(admin, namespace)) == 60


async def test_long_names_and_messages_are_cut(client: KubeClient, admin: Api, namespace: str):
    events = PodEvents(client, "host")
    # Cut where it ends in what no name may end in.
    name = "p" * 198 + "-." + "p" * 53
    await events.record([announcement(namespace, pod=name, message="ö" * 5000)], NOW)
    [event] = told(admin, namespace)
    assert event["involvedObject"]["name"] == name
    assert event["message"].startswith("ööö")


async def test_a_namespace_that_is_gone_keeps_nobody_else_from_being_told(
    client: KubeClient, admin: Api, namespace: str
):
    events = PodEvents(client, "host")
    await events.record([announcement("nowhere", pod_uid="gone"), announcement(namespace)], NOW)
    assert len(told(admin, namespace)) == 1


async def test_without_the_right_nothing_is_raised_and_it_is_logged_once(
    control_plane: ControlPlane, admin: Api, namespace: str, capsys: pytest.CaptureFixture[str]
):
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "mute"}})
    kubeconfig = control_plane.kubeconfig(f"mute-{namespace}", admin.service_account_token(namespace, "mute"))
    async with connect(KubeSettings(kubeconfig)) as client:
        events = PodEvents(client, "host")
        for message in ("a", "b", "c"):
            await events.record([announcement(namespace, message=message)], NOW)
    assert told(admin, namespace) == []
    assert capsys.readouterr().out.count("events cannot be written") == 1


async def test_a_server_that_does_not_answer_is_not_asked_again_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    many = [replace(ONE, pod_uid=str(number)) for number in range(20)]
    answers = in_turn(status(503), Answer(silent=True), status(429), Answer(), status(503))
    async with asking(tmp_path, answers) as (client, server):
        events = PodEvents(client, "host")
        for minutes in range(3):
            await events.record(many, NOW + timedelta(minutes=minutes))
            assert len(server.asked) == minutes + 1
        assert capsys.readouterr().out.count("events cannot be written") == 2
        await events.record(many, NOW + timedelta(minutes=4))
    # Told again once something had worked in between.
    assert capsys.readouterr().out.count("events cannot be written") == 1


def test_reasons_are_written_as_kubernetes_writes_them():
    assert [event_reason(reason) for reason in (Reason.OOM_KILLED, Reason.RIGHTSIZED, Reason.AUTOSCALED)] == [
        "OomKilled",
        "Rightsized",
        "Hpa",
    ]
    assert all(event_reason(reason).isalpha() for reason in Reason)
