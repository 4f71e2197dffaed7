"""When the webhook's state is renewed: on changes, when time matters, and never more than once a second."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from cruise.app.webhook.admission_upkeep import AdmissionUpkeep
from cruise.app.webhook.stored_view import StoredView, StoreFollower
from cruise.domain.actions import Reason
from cruise.domain.cluster import Snapshot, VerticalAutoscaler
from cruise.domain.policy import Mode, Policy
from cruise.domain.quotas import Quota
from cruise.errors import BadInput, Unavailable
from cruise.kube_json.objects.owners import NO_OWNERS
from cruise.runtime.admission.reviewing import Reviewer
from tests.admission_reviews import encoded, make_review, patch_in, response_of
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
    """What upkeep asks of a cluster."""

    def __init__(self) -> None:
        self.version = 1
        self.lag = 0.0
        self.known = make_snapshot([], nodes=[make_node()], workloads=[make_workload()])
        self.snapshots = 0

    def lag_seconds(self) -> float:
        return self.lag

    async def synced(self) -> None:
        await asyncio.sleep(0)

    async def snapshot(self) -> Snapshot:
        self.snapshots += 1
        if self.lag > 60:
            raise Unavailable("nodes: not in step for 61 s")
        # A snapshot is a new object, but its parts are only where they have changed.
        return replace(self.known)

    def owners(self):
        return NO_OWNERS


class Setting:
    def __init__(self, mode=Mode.INITIAL) -> None:
        self.cluster = Cluster()
        self.store = StoreFollower(lambda: None, lambda: self.now)  # type: ignore[arg-type,return-value]
        self.store.view = StoredView(TABLE, {}, False, NOW)
        self.reviewer = Reviewer()
        self.now = NOW
        self.seconds = 100.0
        self.uses = 0
        use = self.reviewer.use

        def counted(*arguments) -> None:
            self.uses += 1
            use(*arguments)

        self.reviewer.use = counted  # type: ignore[assignment,method-assign]
        self.quotas: dict[str, tuple[Quota, ...]] = {}
        self.upkeep = AdmissionUpkeep(
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
        await self.upkeep.renew_if_due(self.seconds)
        return self.uses - before

    def review(self):
        return response_of(self.reviewer.review(encoded(make_review(make_pod_json(name="", node=None)))))


async def test_without_a_change_nothing_is_renewed():
    setting = Setting()
    assert await setting.look() == 1
    assert patch_in(setting.review())
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
    [requests] = [one for one in patch_in(setting.review()) if one["path"].endswith("requests")]
    assert requests["value"]["cpu"] == "100m"


async def test_a_change_that_a_review_waits_for_renews_at_once():
    setting = Setting()
    owner = setting.cluster.known.workloads
    setting.cluster.known = replace(setting.cluster.known, workloads={}, namespaces=frozenset({"shop"}))
    await setting.look()
    pod = make_pod_json(name="", node=None, owner="ReplicaSet/web-5d", labels={"pod-template-hash": "5d"})
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(setting.reviewer.answer(encoded(make_review(pod))))
        await asyncio.sleep(0)
        # Nothing was seen meanwhile.
        assert await setting.look(0.1) == 0
        setting.cluster.version += 1
        setting.cluster.known = replace(setting.cluster.known, workloads=owner)
        assert await setting.look(0.1) == 1
    assert patch_in(response_of(waits.result()))


async def test_a_vpa_that_appears_is_heeded_by_the_next_review():
    setting = Setting()
    await setting.look()
    assert patch_in(setting.review())
    setting.cluster.version += 1
    vertical = VerticalAutoscaler("shop", "web", make_ref("Deployment/web"), "Initial")
    setting.cluster.known = replace(setting.cluster.known, vertical_autoscalers=(vertical,))
    assert await setting.look(1) == 1
    assert patch_in(setting.review()) == []


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
    assert patch_in(setting.review())
    setting.quotas = {"shop": (Quota(make_amounts(399, None)),)}
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.verdicts["left", Reason.QUOTA.value] == 1


async def test_new_statistics_and_a_pause_are_taken_up():
    setting = Setting()
    await setting.look()
    view = setting.store.view
    setting.store.view = StoredView(view.statistics, view.overrides, False, NOW + timedelta(seconds=30))
    assert await setting.look(1) == 0
    setting.store.view = replace(view, paused=True)
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.verdicts["left", Reason.PAUSED.value] == 1
    setting.store.view = replace(view, statistics=make_table(make_statistic("", cpu_peak=700)))
    assert await setting.look(1) == 1
    assert "700m" in str(patch_in(setting.review()))


async def test_statistics_that_grow_stale_stop_to_count():
    setting = Setting()
    await setting.look(0)
    assert await setting.look(15 * 60) == 0
    assert patch_in(setting.review())
    assert await setting.look(1) == 1
    assert "patch" not in setting.review()
    assert setting.reviewer.counts.verdicts["left", Reason.STALE_STATISTICS.value] == 1
    assert await setting.look(3600) == 0


async def test_a_workload_counts_as_soon_as_it_is_new_no_longer():
    setting = Setting()
    young = make_workload(created_at=NOW - timedelta(minutes=20))
    setting.cluster.known = make_snapshot([], nodes=[make_node()], workloads=[young])
    await setting.look(0)
    assert "patch" not in setting.review()
    setting.now += timedelta(seconds=1)
    assert await setting.look(598) == 0
    assert await setting.look(1) == 1
    assert patch_in(setting.review())


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
    assert response["warnings"] == ["cruise leaves the pod as it is: nodes: not in step for 61 s"]
    assert not setting.reviewer.ready
    setting.cluster.lag = 0
    assert await setting.look(1) == 1
    assert patch_in(setting.review())


async def test_mode_observe_decides_as_if_it_would_patch():
    setting = Setting(Mode.OBSERVE)
    await setting.look()
    assert setting.review() == {"uid": setting.review()["uid"], "allowed": True}
    assert setting.reviewer.counts.verdicts == {("left", Reason.MODE_OBSERVE.value): 2}


async def test_what_ends_the_reading_of_the_store_ends_upkeep():
    setting = Setting()
    setting.store._failure = BadInput("database_url: no such database")
    with pytest.raises(BadInput, match="no such database"):
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
        ("info", "admission goes on"),
    ]
