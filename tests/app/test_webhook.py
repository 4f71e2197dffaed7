"""When the webhook refreshes its state: on changes and deadlines, at most once a second."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cruise.app.webhook import AdmissionRefresher
from cruise.app.webhook_stored_view import StorePoller, StoreState
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler
from cruise.domain.policy import Mode, Policy
from cruise.errors import BadInputError, UnavailableError
from cruise.kube_json.objects.owners import NO_OWNERS
from cruise.runtime.admission_reviewer import AdmissionReviewer
from tests.admission_reviews import decode_response, encode_review, get_patch, make_review
from tests.builders import (
    NOW,
    make_amounts,
    make_autoscaler,
    make_node,
    make_pod_json,
    make_ref,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

TABLE = make_table(make_statistic("", cpu_peak=400, memory_peak_mib=300))


class Cluster:
    """The calls of the refresher to a cluster."""

    def __init__(self) -> None:
        self.version = 1
        self.lag = 0.0
        self.known = make_snapshot([], nodes=[make_node()], workloads=[make_workload()])
        self.snapshots = 0

    def get_lag_seconds(self) -> float:
        return self.lag

    async def wait_until_synced(self) -> None:
        await asyncio.sleep(0)

    async def snapshot(self) -> ClusterSnapshot:
        self.snapshots += 1
        if self.lag > 60:
            raise UnavailableError("nodes: not in sync for 61 s")
        # A snapshot is a new object, but its parts are only where they have changed.
        return replace(self.known)

    def get_owner_index(self):
        return NO_OWNERS


class Setting:
    def __init__(self, mode=Mode.INITIAL) -> None:
        self.cluster = Cluster()
        self.store = StorePoller(lambda: None, lambda: self.now)  # type: ignore[arg-type,return-value]
        self.store.state = StoreState(TABLE, {}, False, NOW)
        self.reviewer = AdmissionReviewer(budget_seconds=60)
        self.now = NOW
        self.seconds = 100.0
        self.uses = 0
        use = self.reviewer.set_state

        def counted(*arguments) -> None:
            self.uses += 1
            use(*arguments)

        self.reviewer.set_state = counted  # type: ignore[assignment,method-assign]
        self.quotas: dict[str, tuple[ResourceQuota, ...]] = {}
        self.upkeep = AdmissionRefresher(
            self.cluster,  # type: ignore[arg-type]
            self.store,
            Policy(mode=mode),
            self.reviewer,
            lambda: self.now,
            lambda: self.quotas,
        )

    async def look(self, seconds: float = 0.2) -> int:
        """Let time pass, look once, and return how often the state was renewed by that."""
        before = self.uses
        self.seconds += seconds
        self.now += timedelta(seconds=seconds)
        await self.upkeep.refresh_if_due(self.seconds)
        return self.uses - before

    def review(self):
        return decode_response(self.reviewer.review(encode_review(make_review(make_pod_json(name="", node=None)))))


async def test_without_a_change_nothing_is_renewed():
    setting = Setting()
    assert await setting.look() == 1
    assert get_patch(setting.review())
    for _ in range(50):
        assert await setting.look(1) == 0
    assert setting.cluster.snapshots == 1


async def test_a_change_of_what_admission_reads_renews_at_most_once_a_second():
    setting = Setting()
    await setting.look()
    setting.cluster.version += 1
    setting.cluster.known = replace(setting.cluster.known, autoscalers=(make_autoscaler(),))
    assert await setting.look(0.5) == 0
    assert await setting.look(0.5) == 1
    [requests] = [one for one in get_patch(setting.review()) if one["path"].endswith("requests")]
    assert requests["value"]["cpu"] == "100m"


async def test_a_change_that_a_review_waits_for_renews_at_once():
    setting = Setting()
    owner = setting.cluster.known.workloads
    setting.cluster.known = replace(setting.cluster.known, workloads={}, namespaces=frozenset({"shop"}))
    await setting.look()
    pod = make_pod_json(name="", node=None, owner="ReplicaSet/web-5d", labels={"pod-template-hash": "5d"})
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(setting.reviewer.answer(encode_review(make_review(pod))))
        await asyncio.sleep(0)
        # Nothing was seen meanwhile.
        assert await setting.look(0.1) == 0
        setting.cluster.version += 1
        setting.cluster.known = replace(setting.cluster.known, workloads=owner)
        assert await setting.look(0.1) == 1
    assert get_patch(decode_response(waits.result()))


async def test_a_vpa_that_appears_is_heeded_by_the_next_review():
    setting = Setting()
    await setting.look()
    assert get_patch(setting.review())
    setting.cluster.version += 1
    vertical = VerticalPodAutoscaler("shop", "web", make_ref("Deployment/web"), "Initial")
    setting.cluster.known = replace(setting.cluster.known, vertical_autoscalers=(vertical,))
    assert await setting.look(1) == 1
    assert get_patch(setting.review()) == []


async def test_a_change_of_what_admission_does_not_read_renews_nothing():
    setting = Setting()
    await setting.look()
    setting.cluster.version += 1
    assert await setting.look(1) == 0
    assert setting.cluster.snapshots == 2
    assert await setting.look(1) == 0
    assert setting.cluster.snapshots == 2


async def test_a_quota_that_is_used_up_counts_at_once():
    setting = Setting()
    await setting.look()
    assert get_patch(setting.review())
    setting.quotas = {"shop": (ResourceQuota(make_amounts(399, None)),)}
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.answers["left", ReasonCode.QUOTA_EXCEEDED.value] == 1


async def test_new_statistics_and_a_pause_are_taken_up():
    setting = Setting()
    await setting.look()
    view = setting.store.state
    setting.store.state = StoreState(view.statistics, view.paused_workloads, False, NOW + timedelta(seconds=30))
    assert await setting.look(1) == 0
    setting.store.state = replace(view, paused=True)
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.answers["left", ReasonCode.PAUSED.value] == 1
    setting.store.state = replace(view, statistics=make_table(make_statistic("", cpu_peak=700)))
    assert await setting.look(1) == 1
    assert "700m" in str(get_patch(setting.review()))


async def test_while_a_database_lacks_usage_that_it_had_new_pods_get_what_their_templates_ask_for():
    setting = Setting()
    await setting.look()
    view = setting.store.state
    assert get_patch(setting.review())
    setting.store.state = replace(view, history_incomplete=True)
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.answers["left", ReasonCode.HISTORY_INCOMPLETE.value] == 1
    setting.store.state = view
    assert await setting.look(1) == 1
    assert get_patch(setting.review())


async def test_statistics_that_grow_stale_stop_to_count():
    setting = Setting()
    await setting.look(0)
    assert await setting.look(15 * 60) == 0
    assert get_patch(setting.review())
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.answers["left", ReasonCode.STALE_STATISTICS.value] == 1
    assert await setting.look(3600) == 0


async def test_a_workload_counts_once_it_is_no_longer_new():
    setting = Setting()
    young = make_workload(created_at=NOW - timedelta(minutes=20))
    setting.cluster.known = make_snapshot([], nodes=[make_node()], workloads=[young])
    await setting.look(0)
    assert "patch" not in setting.review()
    setting.now += timedelta(seconds=1)
    assert await setting.look(598) == 0
    assert await setting.look(1) == 1
    assert get_patch(setting.review())


async def test_what_is_remembered_is_bounded():
    setting = Setting()
    await setting.look()
    setting.reviewer.decided = 50_000
    assert await setting.look(1) == 1
    assert setting.reviewer.decided == 0


async def test_on_an_old_view_of_the_cluster_nothing_is_decided():
    setting = Setting()
    await setting.look()
    setting.cluster.lag = 61
    assert await setting.look(1) == 0
    response = setting.review()
    assert response["warnings"] == ["cruise leaves the pod as it is: nodes: not in sync for 61 s"]
    assert not setting.reviewer.ready
    setting.cluster.lag = 0
    assert await setting.look(1) == 1
    assert get_patch(setting.review())


async def test_mode_observe_decides_the_same_as_modes_that_write():
    setting = Setting(Mode.OBSERVE)
    await setting.look()
    assert setting.review() == {"uid": setting.review()["uid"], "allowed": True}
    assert setting.reviewer.counts.answers == {("left", ReasonCode.MODE_OBSERVE.value): 2}


async def test_what_ends_the_reading_of_the_store_ends_upkeep():
    setting = Setting()
    setting.store._failure = BadInputError("database_url: no such database")
    with pytest.raises(BadInputError, match="no such database"):
        await setting.upkeep.run()


async def test_a_suspension_and_its_end_are_logged_once():
    setting = Setting()
    await setting.look()
    with capture_logs() as logs:
        for lag in (61, 90, 0, 0):
            setting.cluster.lag = lag
            await setting.look(seconds=2)
    assert [(one["log_level"], one["event"]) for one in logs] == [
        ("warning", "admission suspended"),
        ("info", "admission continues"),
    ]
