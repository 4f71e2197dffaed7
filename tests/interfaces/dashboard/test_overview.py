"""The charts of the first page."""

from datetime import timedelta

from cruise.domain.records import HourlyClusterTotals, get_clock_hour
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.interfaces.dashboard.overview import build_overview_charts
from cruise.interfaces.http.figures import ClusterTotalsAtPass
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import NOW, create_api_client, make_busy_scene

AMOUNT = Resources(2000, 1024 * MEBIBYTE)


def hour(back: int, saved: Resources = AMOUNT) -> HourlyClusterTotals:
    return HourlyClusterTotals(get_clock_hour(NOW) - back, AMOUNT, AMOUNT, AMOUNT, saved)


async def test_thirty_days_of_history_are_drawn_and_listed_in_a_table():
    scene = await make_busy_scene()
    for back in (30 * 24 + 1, 30 * 24, 2, 1, 0):
        await scene.store.store_hourly_totals(hour(back, Resources(-300, MEBIBYTE) if back == 2 else AMOUNT))
    async with browser(scene) as page:
        shown = (await page.get("/")).text
    oldest = hour(30 * 24).at
    assert f"hourly since {oldest:%Y-%m-%d %H:%M} UTC" in shown
    assert shown.count("data-chart=") == 2 and '<td class="n">-300</td>' in shown
    assert shown.count("Time, UTC<small>millicores</small>") == 1 and shown.count("Time, UTC<small>GiB</small>") == 1
    assert shown.count(f"<td>{oldest:%m-%d %H:%M}</td>") == 2
    async with create_api_client(scene) as api:
        items = (await api.get("/history")).json()["items"]
        newest = (await api.get("/history", params={"since": NOW.isoformat()})).json()["items"]
        assert (await api.get("/history", params={"since": "then"})).status_code == 422
    assert len(items) == 4 and len(newest) == 1
    assert items[1]["saved"] == {"cpuMillicores": -300, "memoryBytes": MEBIBYTE}


def test_before_there_are_two_hours_the_passes_of_this_process_are_drawn():
    passes = [ClusterTotalsAtPass(NOW + timedelta(minutes=5 * step), AMOUNT, AMOUNT, None) for step in range(3)]
    assert build_overview_charts([hour(0)], passes[:1]) == ()
    assert [len(one.times) for one in build_overview_charts([hour(0)], passes)] == [3, 3]
    assert [line.name for line in build_overview_charts([], passes)[0].lines] == ["allocatable", "requested", "used"]
    assert [line.name for line in build_overview_charts([hour(1), hour(0)], passes)[1].lines][-1] == "saved"


async def test_the_page_opens_with_cards_and_coverage_of_the_namespaces_that_the_caller_sees():
    scene = await make_busy_scene()
    async with browser(scene) as page:
        shown = (await page.get("/")).text
    assert 0 < shown.index('class="cards first"') < shown.index('id="coverage"') < shown.index('id="at-risk"')
    assert "of the requested CPU and" in shown
