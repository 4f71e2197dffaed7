"""The first page's lines over time."""

from datetime import timedelta

from cruise.domain.cluster_hours import ClusterHour, hour_of
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.interfaces.dashboard.overview import charts_of
from cruise.interfaces.http.figures import ClusterMoment
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import NOW, asking, busy_scene

AMOUNT = Resources(2000, 1024 * MEBIBYTE)


def hour(back: int, saved: Resources = AMOUNT) -> ClusterHour:
    return ClusterHour(hour_of(NOW) - back, AMOUNT, AMOUNT, AMOUNT, saved)


async def test_thirty_days_of_the_store_are_drawn_and_stand_in_a_table():
    scene = await busy_scene()
    for back in (30 * 24 + 1, 30 * 24, 2, 1, 0):
        await scene.store.record_cluster_hour(hour(back, Resources(-300, MEBIBYTE) if back == 2 else AMOUNT))
    async with browser(scene) as page:
        shown = (await page.get("/")).text
    oldest = hour(30 * 24).at
    assert f"by the hour since {oldest:%Y-%m-%d %H:%M} UTC" in shown
    assert shown.count("data-chart=") == 2 and "-300m" in shown
    assert shown.count(f"<td>{oldest:%m-%d %H:%M}</td>") == 2
    async with asking(scene) as api:
        items = (await api.get("/history")).json()["items"]
        newest = (await api.get("/history", params={"since": NOW.isoformat()})).json()["items"]
        assert (await api.get("/history", params={"since": "then"})).status_code == 422
    assert len(items) == 4 and len(newest) == 1
    assert items[1]["saved"] == {"cpuMillicores": -300, "memoryBytes": MEBIBYTE}


def test_before_there_are_two_hours_the_passes_of_this_process_are_drawn():
    passes = [ClusterMoment(NOW + timedelta(minutes=5 * step), AMOUNT, AMOUNT, None) for step in range(3)]
    assert charts_of([hour(0)], passes[:1]) == ()
    assert [len(one.times) for one in charts_of([hour(0)], passes)] == [3, 3]
    assert [line.name for line in charts_of([], passes)[0].lines] == ["allocatable", "requested", "used"]
    assert [line.name for line in charts_of([hour(1), hour(0)], passes)[1].lines][-1] == "saved"
