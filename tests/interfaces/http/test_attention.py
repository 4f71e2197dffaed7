"""Recent actions and items that need attention, in the API and on the first page."""

from dataclasses import replace
from datetime import timedelta

from cruise.decisions.scan.policy_status import PolicyProblems
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode
from cruise.domain.policy import EvictionRanking
from cruise.domain.prices import PriceSettings, ResourcePrices
from cruise.domain.resources import ResourceName
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.users import Access, Caller, PodAccess
from cruise.interfaces.http.attention import list_attention_items, list_visible_policy_problems
from cruise.interfaces.http.audit import RECENT, RecentActions, read_recent_actions
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.figures import ControllerFigures, JobFigures, PackingActivityFigures
from cruise.interfaces.http.view import NamespaceVisibility
from tests.interfaces.http.api_scene import NOW, ApiScene, create_api_client, make_busy_scene

NO_PROBLEMS = PolicyProblems()
QUIET = RecentActions(NOW, 0, 0, 0, 0, {}, [])


def evict(pod: str, result: ActionResult, minutes: int, namespace: str = "shop") -> Outcome:
    action = EvictPod(namespace, pod, pod, "n1", None, EvictionRanking.LOW, ResourceName.MEMORY, ReasonCode.OOM_KILLED)
    return Outcome(NOW - timedelta(minutes=minutes), action, result, action.reason)


async def test_actions_of_a_day_are_counted_and_the_newest_shown():
    scene = await make_busy_scene()
    await scene.store.record_outcomes(
        [
            evict("a", ActionResult.DONE, 3),
            evict("b", ActionResult.DONE, 2, "other"),
            evict("c", ActionResult.FAILED, 1),
            evict("d", ActionResult.DONE, 60 * 25),
        ]
    )
    async with create_api_client(scene) as api:
        everything = (await api.get("/actions")).json()
        of_one = (await api.get("/actions", params={"namespace": "other"})).json()
        older = (await api.get("/actions", params={"since": (NOW - timedelta(days=2)).isoformat()})).json()
    assert (everything["resizes"], everything["evictions"], everything["oomKillsAnswered"]) == (5, 2, 2)
    assert everything["refused"] == 1
    # The replicas of one workload are one line.
    assert [one["action"] for one in everything["newest"]] == ["resize", "evict", "evict"]
    assert "→" in everything["newest"][0]["changes"]
    assert (of_one["resizes"], of_one["evictions"], [one["pod"] for one in of_one["newest"]]) == (0, 1, ["b"])
    assert older["evictions"] == 3


class OtherOnly:
    """Grants the pods of the namespace `other`."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        return access == PodAccess("other")


async def test_the_newest_actions_of_a_quiet_namespace_are_shown_despite_many_of_others():
    scene = await make_busy_scene()
    quiet = evict("quiet", ActionResult.DONE, 60, "other")
    await scene.store.record_outcomes([quiet, *(evict(f"p{number}", ActionResult.DONE, 5) for number in range(600))])
    async with create_api_client(scene) as api:
        of_one = (await api.get("/actions", params={"namespace": "other"})).json()
    assert (of_one["evictions"], [one["pod"] for one in of_one["newest"]]) == (1, ["quiet"])
    mine = await read_recent_actions(scene, NamespaceVisibility(Caller("tenant"), OtherOnly()), NOW - RECENT)
    assert (mine.resizes, mine.evictions, [one.pod for one in mine.newest]) == (0, 1, ["quiet"])


async def test_items_that_need_a_person_link_to_their_page_and_urgent_ones_are_first():
    scene = await make_busy_scene()
    summary = await ClusterSummaryCache(scene).get_newest()
    figures = replace(scene.get_figures(), packing=PackingActivityFigures(pending=2))
    assert [item.code for item in await items(scene, figures)] == ["pending"]
    assert list_attention_items(scene.get_figures(), summary, (), NO_PROBLEMS, QUIET, scene.policy, NOW) == []
    broken = replace(
        figures,
        statistics_at=NOW - timedelta(hours=2),
        jobs=[JobFigures("node pass", failures_in_a_row=3, error="refused")],
    )
    found = await items(scene, broken)
    assert [item.code for item in found] == ["stale-statistics", "job-failing", "pending"]
    assert [item.urgent for item in found] == [True, True, False]
    assert "failed: refused (3 times in a row)" in found[1].message
    async with create_api_client(scene) as api:
        assert (await api.get("/attention")).json() == {"items": []}


async def items(scene: ApiScene, figures: ControllerFigures):
    summary = await ClusterSummaryCache(scene).get_newest()
    return list_attention_items(figures, summary, (), NO_PROBLEMS, QUIET, scene.policy, NOW)


async def test_policies_that_conflict_or_select_nothing_need_a_person_who_may_see_them():
    scene = await make_busy_scene()
    summary = await ClusterSummaryCache(scene).get_newest()
    a, b, cluster = RightsizingPolicy("shop", "a"), RightsizingPolicy("other", "b"), RightsizingPolicy("", "all")
    problems = PolicyProblems(unreadable=(cluster,), conflicting=(a, b), unmatched=(b,))
    found = list_attention_items(scene.get_figures(), summary, (), problems, QUIET, scene.policy, NOW)
    assert [(one.code, one.urgent, one.page) for one in found] == [
        ("policy-unreadable", True, "policies#objects"),
        ("policy-conflict", False, "policies#objects"),
        ("policy-unmatched", False, "policies#objects"),
    ]
    assert "RightsizingPolicy shop/a contradicts" in found[1].message and "1 other policy" in found[1].message
    summary = replace(summary, policy_problems=problems)
    of_tenant = await list_visible_policy_problems(summary, NamespaceVisibility(Caller("tenant"), OtherOnly()))
    assert of_tenant == PolicyProblems((), (b,), (b,))


async def test_money_is_null_until_prices_are_set():
    scene = await make_busy_scene()
    async with create_api_client(scene) as api:
        without = (await api.get("/summary")).json()
    scene = replace(scene, prices=PriceSettings(ResourcePrices(0.03, 0.004)))
    async with create_api_client(scene) as api:
        priced = (await api.get("/summary")).json()
    assert without["prices"] is None and without["reclaimableMonthlyCost"] is None
    assert priced["prices"] == {"cpuCoreHour": 0.03, "memoryGibHour": 0.004, "currency": "$"}
    amount = priced["reclaimable"]
    month = 730 * (amount["cpuMillicores"] / 1000 * 0.03 + amount["memoryBytes"] / 2**30 * 0.004)
    assert abs(priced["reclaimableMonthlyCost"] - month) < 0.01
