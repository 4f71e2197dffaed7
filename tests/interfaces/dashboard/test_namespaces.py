"""The page of a namespace: its money, its policy from every source, and nothing of other namespaces."""

from dataclasses import replace

from cruise.domain.annotations import OverrideSource
from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import Mode
from cruise.domain.prices import PriceSettings, ResourcePrices
from cruise.interfaces.dashboard.policies import list_namespace_settings
from tests.builders import NOW, make_pod, make_snapshot
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import create_api_client, make_busy_scene

WEB, API = WorkloadRef("Deployment", "web"), WorkloadRef("Deployment", "api")


def test_settings_of_every_source_are_listed_with_the_workloads_that_they_apply_to():
    pods = [
        make_pod("web-1", namespace="shop", workload=WEB, annotations={"cruise.io/cpu-max": "2"}),
        make_pod("api-1", namespace="shop", workload=API),
        make_pod("other-1", namespace="other", workload=WEB),
    ]
    snapshot = replace(make_snapshot(pods), namespace_annotations={"shop": {"cruise.io/mode": "resize"}})
    paused = {("shop", API): NOW}
    found = list_namespace_settings(snapshot, paused, "shop", Mode.FULL)
    assert [(one.source.setter, one.setting, one.value, len(one.workloads), one.effective) for one in found] == [
        (OverrideSource.CLUSTER, "mode", "full", 2, 0),
        (OverrideSource.PAUSED_WORKLOAD, "mode", "observe", 1, 1),
        (OverrideSource.NAMESPACE, "mode", "resize", 2, 1),
        (OverrideSource.POD, "cpu-max", "2", 1, 1),
    ]


async def test_a_namespace_has_its_sums_in_pages_and_api_and_is_hidden_from_others():
    scene = replace(await make_busy_scene(), prices=PriceSettings(ResourcePrices(0.03, 0.004)))
    async with create_api_client(scene) as api:
        [one] = (await api.get("/namespaces")).json()["items"]
        summary = (await api.get("/summary")).json()
    assert (one["namespace"], one["workloads"], one["pods"]) == ("shop", 1, 5)
    assert one["reclaimable"] == summary["reclaimable"]
    assert one["reclaimableMonthlyCost"] == summary["reclaimableMonthlyCost"]
    async with browser(scene, known=True) as page:
        await sign_in(page, "tenant")
        assert (await page.get("/namespaces/shop")).status_code == 200
        assert (await page.get("/namespaces/other")).status_code == 403
        assert 'href="namespaces/shop"' in (await page.get("/namespaces")).text
    async with browser(scene) as page:
        assert (await page.get("/namespaces/elsewhere")).status_code == 404
