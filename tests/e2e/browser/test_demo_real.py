"""The dashboard over a real control plane, as in `make demo-real`: no errors, complete pages, working forms."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser

from cruise.interfaces.dashboard.pages import MENU_PAGES
from tests.controlplane.control_plane import ControlPlane
from tests.e2e.browser.test_dashboard import AXE, SERIOUS, Visit, chromium, is_own, pytestmark

__all__ = ["pytestmark"]

ROOT = Path(__file__).parents[3]
SIGHTS = [(1280, "light"), (390, "dark")]


@asynccontextmanager
async def playing() -> AsyncIterator[tuple[str, str]]:
    """The demo until it is left: its dashboard's address, and the token that signs in."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.demo_real",
        cwd=ROOT,
        env={**os.environ, "DEMO_SECONDS": "600", "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = ""
    try:
        while not (found := re.search(r"^dashboard: +(\S+)\nsign in: .* (\S+)$", said, re.MULTILINE)):
            line = await process.stdout.readline()
            assert line, said
            said += line.decode()
        # Its further output must not block it.
        draining = asyncio.ensure_future(process.stdout.read())
        yield found[1], Path(found[2]).read_text()
        draining.cancel()
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def looking(browser: Browser, address: str, **context: object) -> AsyncIterator[Visit]:
    own = await browser.new_context(**context)  # type: ignore[arg-type]
    page = await own.new_page()
    visit = Visit(page, address)
    page.on("console", lambda message: visit.reports.append(message.text))
    page.on("pageerror", lambda error: visit.reports.append(str(error)))
    page.on("request", lambda asked: visit.reports.append(asked.url) if not is_own(visit, asked.url) else None)
    yield visit
    await own.close()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_every_page_of_a_real_cluster_is_quiet_and_its_forms_write_to_it(control_plane: ControlPlane):
    """The shared control plane only shows that one can run; the demo has its own."""
    async with playing() as (address, token), chromium() as browser:
        async with looking(browser, address) as visit:
            await visit.open("sign-in?to=actions?result=done")
            await visit.page.get_by_label("Token").fill(token)
            await visit.page.get_by_label("Token").press("Enter")
            revert = visit.page.locator("tr").filter(has=visit.page.locator("details.back"))
            async with asyncio.timeout(120):
                while not await revert.count():
                    await asyncio.sleep(2)
                    await visit.open("actions?result=done")
            workload = await revert.first.locator("td.name a").get_attribute("href")
            await revert.first.get_by_text("Revert", exact=True).click()
            await revert.first.get_by_role("button", name="Restore original sizes").click()
            await visit.page.wait_for_url("**/actions")
            await visit.page.get_by_text("its original requests are restored").first.wait_for()
            await visit.page.get_by_role("button", name="Pause all writes").click()
            await visit.page.get_by_text("cruise is paused").wait_for()
            await visit.page.get_by_role("button", name="Resume writes").click()
            await visit.open("policies")
            assert await visit.page.get_by_role("button", name="Resume", exact=True).count() == 1
            assert visit.reports == []
        assert workload is not None
        for width, scheme in SIGHTS:
            looks = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            async with looking(browser, address, **looks) as visit:
                for path in [
                    *(page.path for page in MENU_PAGES),
                    workload,
                    workload.replace("workloads", "policies", 1),
                ]:
                    await visit.open(path)
                    assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width, path
                    await visit.page.evaluate(AXE.read_text())
                    assert await visit.page.evaluate(SERIOUS) == [], (path, width, scheme)
                    if shots := os.environ.get("CRUISE_SHOTS"):
                        name = path.replace("/", "_") or "overview"
                        await visit.page.screenshot(path=f"{shots}/{name}-{width}-{scheme}.png", full_page=True)
                assert visit.reports == []
