"""Every dashboard page in Chromium: no console errors, no external requests, no overlapping elements."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

from cruise.app.demo import DemoView
from cruise.app.http_server import serve_http
from cruise.app.serve.controller import Controller
from cruise.app.serve.serve import build_http_app
from cruise.domain.policy import Mode, Policy
from cruise.domain.prices import PriceSettings, ResourcePrices
from cruise.interfaces.dashboard.pages import MENU_PAGES
from cruise.interfaces.http.figures import JobFigures
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send
from cruise.interfaces.http.request_guard import RequestGuardRules, StaticTokenAuthority
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.demo_cluster import create_demo_cluster
from cruise.simulation.store import InMemoryStore

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
VENDOR = Path(__file__).parents[3] / "cruise/interfaces/dashboard/vendor/echarts.common.min.js"
CHROMIUM = shutil.which("chromium")
WORKLOAD = "workloads/shop/Deployment/thumbnails"
POLICY = "policies/shop/Deployment/thumbnails"
OF_ONE = ("namespaces/shop", "nodes/node-1", POLICY, "policies/namespaces/shop")
SIGHTS = [(1280, "light"), (390, "dark")]
TOKEN = "a token of cruise's own, of 32 bytes"
SERIOUS = """axe.run(document).then((found) => found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => one.id + ": " + one.nodes.map((node) => node.target.join(" "))))"""
# Of the numbers that must explain themselves, those that do not: each is focusable and described by a text.
UNEXPLAINED = """[...document.querySelectorAll(".cards.first b, .modes .number, th.n")]
    .filter((one) => !one.closest(".figures"))
    .filter((one) => {
        const subject = one.querySelector("[aria-describedby]");
        const tip = subject && document.getElementById(subject.getAttribute("aria-describedby"));
        return !tip || !tip.textContent.trim() || subject.tabIndex < 0;
    }).map((one) => one.textContent.trim())"""
# Links beside other words that only their colour distinguishes; names in tables are bold. Axe reports them only where
# there are more words than links.
HARD_TO_SEE = """[...document.querySelectorAll("main a")]
    .filter((one) => [...one.parentNode.childNodes].some((other) =>
        other.nodeType === Node.TEXT_NODE ? /[\\p{L}\\p{N}]/u.test(other.data)
        : other.tagName === "SMALL" && getComputedStyle(other).display === "inline"))
    .filter((one) => !getComputedStyle(one).textDecorationLine.includes("underline"))
    .filter((one) => getComputedStyle(one.parentNode).display !== "flex" && !one.closest("td.name"))
    .map((one) => one.textContent.trim())"""
# What a person asks first, and whether all of it is within the first screen.
FIRST_QUESTIONS = ["Saved", "Reclaimable", "Coverage", "Last 24 hours", "Needs a person", "What cruise did"]
FIRST_SCREEN = """QUESTIONS.filter((title) => {
    const heading = [...document.querySelectorAll("h2")].find((one) => one.textContent.trim() === title);
    const part = heading && (heading.closest(".card") || heading.closest("section").querySelector("li, .empty"));
    return !part || part.getBoundingClientRect().bottom > window.innerHeight;
})""".replace("QUESTIONS", str(FIRST_QUESTIONS))
# Tables that go on beyond the edge of their panels, but for what is folded away.
CUT_OFF = """[...document.querySelectorAll(".scroll")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && !one.closest("details"))
    .map((one) => one.textContent.trim().slice(0, 60))"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not AXE.is_file() or not VENDOR.is_file(),
    reason="no chromium, or no npm for the pages' scripts (tests/setup/40-browser.sh)",
)


@dataclass
class Visit:
    """A page in a browser, and all that it had to say."""

    page: Page
    address: str
    reports: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self.address}{path}")
        await self.page.wait_for_load_state("networkidle")


async def demo(passes: int = 3) -> DemoView:
    """The demo's cluster after some passes, ten minutes apart."""
    cluster, usage = create_demo_cluster(START)
    store, policy = InMemoryStore(), Policy(mode=Mode.FULL)
    reading = UsageReadingSettings(scrape_delay_seconds=0)
    controller = Controller(cluster, usage, store, policy, lambda: cluster.now, reading)
    cluster.advance(START + timedelta(minutes=1))
    for step in range(1, passes + 1):
        await controller.refresh_statistics()
        await controller.rightsize()
        cluster.advance(START + timedelta(minutes=10 * step))
    return DemoView(cluster, store, policy, controller.activity)


def below(prefix: str, inner: AsgiApp) -> AsgiApp:
    """A proxy that serves something below a path."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(f"{prefix}/"), f"{scope['path']} leads out of {prefix}"
        await inner({**scope, "path": scope["path"].removeprefix(prefix)}, receive, send)

    return app


@asynccontextmanager
async def visiting(browser: Browser, app: AsgiApp, prefix: str = "", **context: Any) -> AsyncIterator[Visit]:
    """Serve an application, and open it in a separate browser."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve_http(app, "127.0.0.1", 0, stop_seconds=1))
        own = await browser.new_context(**context)
        stack.push_async_callback(own.close)
        page = await own.new_page()
        visit = Visit(page, f"http://127.0.0.1:{port}{prefix}/")
        # A breach of the policy is reported on the console as well.
        page.on("console", lambda message: visit.reports.append(message.text))
        page.on("pageerror", lambda error: visit.reports.append(str(error)))
        page.on(
            "request", lambda request: visit.reports.append(request.url) if not is_own(visit, request.url) else None
        )
        yield visit


def is_own(visit: Visit, url: str) -> bool:
    return url.startswith(visit.address)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


def served(view: DemoView, rules: RequestGuardRules) -> AsgiApp:
    return build_http_app(view, rules, view.reasons, view.metrics)


async def test_pages_load_without_errors_and_are_accessible():
    app = served(await demo(), RequestGuardRules())
    async with chromium() as browser:
        for width, scheme in SIGHTS:
            looks: Mapping[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            async with visiting(browser, app, **looks) as visit:
                for path in [*(page.path for page in MENU_PAGES), *OF_ONE, WORKLOAD]:
                    await visit.open(path)
                    assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width, path
                    assert await visit.page.evaluate(CUT_OFF) == [], (path, width)
                    assert await serious(visit) == [], (path, width, scheme)
                    assert await visit.page.evaluate(HARD_TO_SEE) == [], (path, width, scheme)
                assert await visit.page.locator("[data-chart] canvas").count() == 2
                # The target of the link is loaded by now.
                assert await visit.page.locator("#explanation").get_by_text("Container app").count() == 1
                assert "kind: Deployment" in await visit.page.locator("#explanation pre").inner_text()
                assert visit.reports == []


async def test_the_first_screen_answers_what_is_asked_first(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    view = replace(await demo(), prices=PriceSettings(ResourcePrices(0.03, 0.004)))
    for name in ("first", "second", "third", "fourth"):
        error = "the API server did not answer within 10 s"
        view.activity.jobs[name] = JobFigures(name, failures_in_a_row=2, error=error)
    app = served(view, RequestGuardRules(StaticTokenAuthority(file)))
    async with chromium() as browser:
        for width, height, scheme in [(1280, 800, "light"), (1280, 800, "dark"), (390, 844, "light")]:
            looks: Mapping[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
            async with visiting(browser, app, **looks) as visit:
                await signed_in(visit, "sign-in?to=health", "health")
                await visit.open("")
                assert await visit.page.evaluate(FIRST_SCREEN) == [], (width, scheme)
                assert await visit.page.locator("section[aria-labelledby=newest] .change").count() > 0
                money = visit.page.locator(".cards.first b", has_text="a month")
                assert await money.count() == 2
                assert [text[0] for text in await money.all_inner_texts()] == ["$", "$"]
                pause = visit.page.get_by_role("button", name="Pause all writes")
                box = await pause.bounding_box()
                assert box is not None and box["y"] + box["height"] <= height
                assert "→" in await visit.page.locator("section[aria-labelledby=newest]").inner_text()
                assert await serious(visit) == []
                assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width
        await pause_and_resume(browser, app)


async def pause_and_resume(browser: Browser, app: AsgiApp) -> None:
    """The first page tells and changes whether cruise is paused."""
    async with visiting(browser, app, viewport={"width": 1280, "height": 800}) as visit:
        await signed_in(visit, "sign-in?to=health", "health")
        await visit.open("")
        await visit.page.get_by_role("button", name="Pause all writes").click()
        await visit.page.get_by_text("cruise is paused").wait_for()
        assert await visit.page.locator(".state").get_by_text("paused: nothing is written").is_visible()
        assert await visit.page.evaluate(FIRST_SCREEN) == []
        await visit.page.get_by_role("button", name="Resume writes").click()
        await visit.page.get_by_text("running in mode full").wait_for()


async def test_numbers_explain_themselves_on_hover_and_by_keyboard_and_escape_hides_it():
    app = served(await demo(), RequestGuardRules())
    async with chromium() as browser, visiting(browser, app, viewport={"width": 1280, "height": 800}) as visit:
        for path in [*(page.path for page in MENU_PAGES), *OF_ONE, WORKLOAD]:
            await visit.open(path)
            assert await visit.page.evaluate(UNEXPLAINED) == [], path
        await visit.open("")
        number = visit.page.locator(".cards.first .subject").first
        tip = visit.page.locator(".cards.first .tip").first
        assert not await tip.is_visible()
        await number.hover()
        assert await tip.is_visible()
        await visit.page.mouse.move(640, 790)
        assert not await tip.is_visible()
        await number.focus()
        assert await tip.is_visible() and "before cruise" in await tip.inner_text()
        assert await serious(visit) == []
        await visit.page.keyboard.press("Escape")
        assert not await tip.is_visible()
        # An explanation of a heading within a scrolled table is whole.
        heading = visit.page.locator("th .subject", has_text="reclaimable").first
        await heading.scroll_into_view_if_needed()
        await heading.focus()
        box = await visit.page.locator("th .tip:visible").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 800
        assert visit.reports == []


async def test_actions_are_filtered_by_cause_and_charts_by_time():
    app = served(await demo(), RequestGuardRules())
    async with chromium() as browser, visiting(browser, app) as visit:
        await visit.open("actions")
        everything = await visit.page.locator("#rows tbody tr").count()
        cause = await visit.page.get_by_label("Cause").locator("option").nth(1).inner_text()
        await visit.page.get_by_label("Cause").select_option(cause)
        await visit.page.wait_for_url(f"**cause={cause}**")
        await visit.page.wait_for_function(
            f"[...document.querySelectorAll('#rows tbody tr')].every((row) => row.textContent.includes('{cause}'))"
        )
        assert 0 < await visit.page.locator("#rows tbody tr").count() <= everything
        await visit.open("?period=7d")
        ranges = visit.page.get_by_role("navigation", name="Time range")
        assert await ranges.locator("[aria-current]").inner_text() == "7d"
        await ranges.get_by_text("1d").click()
        await visit.page.wait_for_url("**period=1d")
        assert visit.reports == []


async def serious(visit: Visit) -> list[str]:
    """What axe finds wrong with a page."""
    await visit.page.evaluate(AXE.read_text())
    found: list[str] = await visit.page.evaluate(SERIOUS)
    return found


async def test_an_address_that_nothing_is_at_and_a_refused_form_are_pages_with_the_menu(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    view = await demo(passes=1)
    async with (
        chromium() as browser,
        visiting(browser, served(view, RequestGuardRules(StaticTokenAuthority(file)))) as visit,
    ):
        await visit.open("nothing/here")
        assert "Page not found" in await visit.page.locator("h1").inner_text()
        assert await serious(visit) == []
        await visit.page.get_by_role("link", name="Nodes", exact=True).click()
        await visit.page.wait_for_url("**/nodes")
        await signed_in(visit, f"sign-in?to={POLICY}", POLICY)
        await visit.page.get_by_label("memory-max").fill("2Gi")
        await visit.page.get_by_label("cpu-max").fill("lots")
        await visit.page.get_by_role("button", name="Show the YAML").click()
        wrong = visit.page.locator("[aria-invalid=true]")
        await wrong.wait_for()
        assert (await wrong.input_value(), await wrong.get_attribute("name")) == ("lots", "setting.cpu-max")
        assert await visit.page.get_by_label("memory-max").input_value() == "2Gi"
        assert await serious(visit) == []
        await wrong.fill("2")
        await visit.page.get_by_role("button", name="Show the YAML").click()
        # The demo has no API server to write to.
        await visit.page.locator("#manifest-text", has_text="memory: 2Gi").wait_for()
        assert await visit.page.get_by_label("memory-max").input_value() == "2Gi"
        assert await serious(visit) == []
        await visit.page.get_by_role("button", name="Pause this workload").click()
        await visit.page.get_by_role("button", name="Resume this workload").wait_for()
        assert all(any(code in report for code in ("404", "409", "422")) for report in visit.reports)


async def test_workloads_are_found_and_sorted_below_any_path_and_by_keyboard():
    app = below("/tools/cruise", served(await demo(), RequestGuardRules()))
    async with chromium() as browser, visiting(browser, app, "/tools/cruise") as visit:
        await visit.open("workloads")
        names = visit.page.locator("tbody td.name > a")
        everything = await names.count()
        await visit.page.keyboard.press("Tab")
        assert await visit.page.evaluate("document.activeElement.textContent") == "Skip to the page"
        await visit.page.locator("#text").press_sequentially("thumb")
        await visit.page.wait_for_url("**text=thumb**")
        assert await names.all_inner_texts() == ["thumbnails"] and everything > 20
        await visit.open("workloads")
        await visit.page.locator("th a", has_text="Workload").press("Enter")
        await visit.page.wait_for_url("**sort=name**")
        found = await names.all_inner_texts()
        places = await visit.page.locator("tbody td.name > a").evaluate_all("links => links.map(a => a.pathname)")
        assert places == sorted(places) and len(found) == everything
        await names.first.click()
        await visit.page.wait_for_selector("#explanation h3")
        assert visit.reports == []


async def test_a_token_opens_the_pages_and_their_forms_and_signing_out_closes_them(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    app = served(await demo(), RequestGuardRules(StaticTokenAuthority(file), allows_anonymous_reads=False))
    async with chromium() as browser, visiting(browser, app) as visit:
        await visit.open("workloads?text=web")
        await visit.page.get_by_label("Token").fill("wrong")
        await visit.page.get_by_label("Token").press("Enter")
        await visit.page.get_by_role("alert").wait_for()
        await visit.page.get_by_label("Token").fill(TOKEN)
        await visit.page.get_by_label("Token").press("Enter")
        await visit.page.wait_for_url("**/workloads?text=web")
        assert await visit.page.evaluate("document.cookie") == ""
        await visit.open("actions")
        await visit.page.get_by_role("button", name="Pause all writes").click()
        await visit.page.get_by_text("cruise is paused").wait_for()
        await visit.open(POLICY)
        await visit.page.get_by_label("cpu-max").fill("lots")
        await visit.page.get_by_role("button", name="Show the YAML").click()
        await visit.page.get_by_role("alert").wait_for()
        await visit.open(POLICY)
        await visit.page.get_by_label("cpu-max").fill("1500m")
        await visit.page.get_by_role("button", name="Show the YAML").click()
        await visit.page.locator("#manifest-text", has_text="cpu: 1500m").wait_for()
        assert await visit.page.get_by_label("cpu-max").input_value() == "1500m"
        await visit.page.get_by_role("button", name="Sign out").click()
        await visit.page.get_by_label("Token").wait_for()
        assert all(any(code in report for code in ("401", "409", "422")) for report in visit.reports)


async def test_one_workload_is_reverted_from_the_actions_page_and_remains_reverted(tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    view = await demo()
    app = served(view, RequestGuardRules(StaticTokenAuthority(file), allows_anonymous_reads=False))
    async with chromium() as browser, visiting(browser, app) as visit:
        await signed_in(visit, "actions?result=done")
        revert = visit.page.locator("tr").filter(has=visit.page.locator("details.back")).first
        workload = await revert.locator("td.name a").get_attribute("href")
        await revert.get_by_text("Revert", exact=True).click()
        await revert.get_by_role("button", name="Restore original sizes").click()
        await visit.page.wait_for_url("**/actions")
        await visit.page.get_by_text("its original requests are restored").first.wait_for()
        assert workload is not None
        await visit.open(workload.replace("workloads", "policies", 1))
        assert "mode observe" in await visit.page.locator(".heading").inner_text()
        await visit.open("policies")
        assert await visit.page.get_by_role("button", name="Resume", exact=True).count() == 1
        assert await visit.page.get_by_text("There is no recorded usage to replay.").count() == 1
        assert visit.reports == []


async def signed_in(visit: Visit, to: str, then: str = "") -> None:
    """Sign in on the way to a page, or at an address that leads on to another."""
    await visit.open(to)
    await visit.page.get_by_label("Token").fill(TOKEN)
    await visit.page.get_by_label("Token").press("Enter")
    await visit.page.wait_for_url(f"**/{then or to}")


async def test_without_scripts_the_same_is_there():
    app = served(await demo(), RequestGuardRules())
    async with chromium() as browser, visiting(browser, app, java_script_enabled=False) as visit:
        await visit.open(WORKLOAD)
        await visit.page.get_by_text("Values", exact=True).first.click()
        assert await visit.page.locator("figure table").first.is_visible()
        await visit.page.get_by_role("link", name="explain thumbnails").click()
        assert await visit.page.get_by_role("heading", name="Container app").count() == 1
