"""Sign-in by an identity provider in a real browser, with cookies and Content-Security-Policy."""

import time
from contextlib import AsyncExitStack
from datetime import timedelta

from playwright.async_api import expect

from cruise.adapters.oidc import OidcProvider
from cruise.adapters.webhook_tls.certificates import (
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.http_server import serve_http
from cruise.app.process import get_current_time
from cruise.interfaces.dashboard.sign_in import IdentityProviderAuthority
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send
from cruise.interfaces.http.request_guard import RequestGuardRules
from tests.adapters.identity_provider import run_identity_provider
from tests.e2e.browser.test_dashboard import chromium, demo, pytestmark, served
from tests.interfaces.dashboard.test_sign_in import OfTeam

__all__ = ["pytestmark"]


async def test_from_a_page_to_the_provider_and_back_signed_in_until_signed_out(tmp_path):
    behind: list[AsgiApp] = []

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        await behind[0](scope, receive, send)

    context = create_server_context_without_certificate()
    set_served_certificate(context, make_key_pair(["localhost"], get_current_time(), timedelta(hours=1))[0])
    view, reports = await demo(), []
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(run_identity_provider(tmp_path))
        port = await stack.enter_async_context(serve_http(front, "127.0.0.1", 0, tls=context, stop_seconds=1))
        # To a browser the provider at 127.0.0.1 is another site than localhost.
        address = f"https://localhost:{port}/"
        settings = provider.settings(redirect_url=f"{address}signed-in")
        callers = IdentityProviderAuthority(OidcProvider(settings, get_current_time), OfTeam(), time.monotonic)
        behind.append(served(view, RequestGuardRules(callers, allows_anonymous_reads=False)))
        browser = await stack.enter_async_context(chromium())
        own = await browser.new_context(ignore_https_errors=True)
        page = await own.new_page()
        page.on("console", lambda message: reports.append(message.text))
        page.on("pageerror", lambda error: reports.append(str(error)))

        await page.goto(f"{address}workloads?text=thumb")
        await page.get_by_role("link", name="Sign in with 127.0.0.1").click()
        await page.get_by_role("link", name="Yes, I am").click()
        await page.wait_for_url(f"{address}workloads?text=thumb")
        assert await page.evaluate("document.cookie") == ""
        await expect(page.locator("tbody td.name > a").first).to_be_visible()

        await page.goto(f"{address}actions")
        await page.get_by_role("button", name="Pause all writes").click()
        await page.get_by_text("cruise is paused").wait_for()
        await expect(page.get_by_text(f"{provider.address}#ann").first).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("link", name="Sign in with 127.0.0.1").wait_for()
        await page.goto(f"{address}workloads")
        await expect(page.get_by_role("link", name="Sign in with 127.0.0.1")).to_be_visible()
        assert reports == []
