"""Elements of every page, access control, and error pages."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from cruise.domain.policy import Mode
from cruise.domain.users import Access, Caller, PathAccess, UserAction, UserActionKind
from cruise.interfaces.dashboard.layout import CONTENT_SECURITY_POLICY, SESSION_COOKIE, SignInSessions
from cruise.interfaces.dashboard.pages import MENU_PAGES, add_dashboard
from cruise.interfaces.dashboard.sign_in import DashboardAccess
from cruise.interfaces.dashboard.terms import TERMS
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.request_guard import (
    CallerAuthority,
    RequestGuardRules,
    create_allowed_hosts,
    guard_requests,
)
from cruise.interfaces.http.workload import PodExplainer
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene, make_present, make_view

ADMINISTRATOR, READER, TENANT, STRANGER = map(Caller, ("administrator", "reader", "tenant", "stranger"))
OF_ONE = (
    "/namespaces/shop",
    "/workloads/shop/Deployment/web",
    "/nodes/n1",
    "/policies/shop/Deployment/web",
    "/policies/namespaces/shop",
)
PATHS = [f"/{page.path}" for page in MENU_PAGES] + list(OF_ONE)


class Roles:
    """Implements `Authority`: tokens are names; the reader reads everything, the administrator also writes.

    A tenant may get the pods of namespace shop alone.
    """

    async def authenticate(self, token: str) -> Caller | None:
        return next((one for one in (ADMINISTRATOR, READER, TENANT, STRANGER) if one.name == token), None)

    async def authorize(self, caller: Caller, access: Access) -> bool:
        reads = not isinstance(access, PathAccess) or access.verb == "get"
        if caller == TENANT and not isinstance(access, PathAccess):
            return access.namespace == "shop"
        return caller == ADMINISTRATOR or (caller in (READER, TENANT) and reads)


ROLES = Roles()


@cache
def _dashboard(authority: CallerAuthority | None) -> tuple[FastAPI, DashboardAccess]:
    view, surveys, explanations, sessions = make_present(4)
    api = create_api(view, surveys, explanations)
    return api, add_dashboard(api, view, surveys, explanations, sessions, authority)


@asynccontextmanager
async def browser(scene: ApiScene, *, known: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """A browser at the scene's dashboard, where callers are known or reads are open."""
    authority = ROLES if known else None
    api, front = _dashboard(authority)
    rules = RequestGuardRules(
        authority, create_allowed_hosts(["cruise"]), allows_anonymous_reads=not known, access_rules=front
    )
    app = make_view(
        guard_requests(api, rules), scene, ClusterSummaryCache(scene), PodExplainer(scene), SignInSessions(lambda: 0.0)
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cruise") as client:
        yield client


async def sign_in(page: httpx.AsyncClient, name: str) -> str:
    """Sign in with name, and return what the forms of the session hold."""
    await page.post("/sign-in", data={"token": name})
    token, *_ = re.findall(r'name="form_token" value="([^"]+)"', (await page.get("/health")).text)
    return str(token)


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_has_its_policy_and_nothing_that_it_forbids(scene, path):
    async with browser(scene) as page:
        answer = await page.get(path)
    assert (answer.status_code, answer.headers["content-security-policy"]) == (200, CONTENT_SECURITY_POLICY)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src)|href=\"/|src=\"/|action=\"/", answer.text)


async def test_a_page_links_files_by_their_content(scene):
    async with browser(scene) as page:
        links = re.findall(r"(?:href|src)=\"\./(static/[^\"]+)\"", (await page.get("/nodes")).text)
        for link in links:
            answer = await page.get(f"/{link}")
            assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
        assert {Path(link).name for link in links} >= {"dashboard.css", "dashboard.js", "icon.svg"}
        assert (await page.get("/static/0/dashboard.css")).status_code == 404


async def test_an_unknown_browser_signs_in_first_and_gets_where_it_wanted(scene):
    async with browser(scene, known=True) as page:
        away = await page.get("/workloads", params={"text": "web"})
        assert (away.status_code, away.headers["location"]) == (303, "./sign-in?to=workloads%3Ftext%3Dweb")
        assert (await page.get("/api/v1/status")).status_code == 401
        wrong = await page.post("/sign-in", data={"token": "nobody's"})
        assert wrong.status_code == 401 and "not accepted" in wrong.text
        right = await page.post("/sign-in", data={"token": "reader", "to": "workloads?text=web"})
        assert (right.status_code, right.headers["location"]) == (303, "./workloads?text=web")
        assert "HttpOnly; SameSite=Strict" in right.headers["set-cookie"]
        assert (await page.get("/workloads")).status_code == 200
        # The session is for pages: a program shows its token.
        assert (await page.get("/api/v1/status")).status_code == 401


async def test_a_forbidden_page_says_what_to_do(scene):
    async with browser(scene, known=True) as page:
        await page.post("/sign-in", data={"token": "stranger"})
        answer = await page.get("/")
    assert answer.status_code == 403
    assert "Stranger may not get /cruise/api/v1/summary" in answer.text and "cruise-reader" in answer.text


async def test_only_a_page_of_the_session_signs_out(scene):
    async with browser(scene, known=True) as page:
        await page.post("/sign-in", data={"token": "reader"})
        assert (await page.post("/sign-out", data={"form_token": "guessed"})).status_code == 403
        [token] = re.findall(r'name="form_token" value="([^"]+)"', (await page.get("/nodes")).text)
        assert (await page.post("/sign-out", data={"form_token": token})).status_code == 303
        page.cookies.delete(SESSION_COOKIE)
        assert (await page.get("/")).status_code == 303


@pytest.mark.parametrize("to", ["https://elsewhere", "//elsewhere", "/\\elsewhere", "javascript:alert(1)", "a\nb"])
async def test_signing_in_leads_nowhere_else(scene, to):
    async with browser(scene, known=True) as page:
        answer = await page.post("/sign-in", data={"token": "reader", "to": to})
    assert answer.headers["location"] == "./"


async def test_before_the_first_pass_a_page_says_so_and_tries_again(scene):
    scene.done = None
    async with browser(scene) as page:
        answer = await page.get("/workloads")
    assert answer.status_code == 503
    assert "no node pass has run yet" in answer.text and 'http-equiv="refresh"' in answer.text


async def test_old_statistics_are_no_good_news(scene):
    async with browser(scene) as page:
        assert "cruise does not act on them" not in (await page.get("/")).text
        scene.done = replace(scene.done, at=scene.now() + timedelta(hours=1))
        assert "cruise does not act on them" in (await page.get("/")).text


async def test_a_large_cluster_is_summed_up_in_another_thread(scene, monkeypatch):
    monkeypatch.setattr("cruise.interfaces.http.cluster_summary._SMALL_CLUSTER_PODS", 0)
    async with browser(scene) as page:
        answer = await page.get("/")
        assert answer.status_code == 503 and "being computed" in answer.text
        assert (await page.get("/")).status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_shows_who_paused_cruise_since_when_and_how_to_resume(scene, path):
    await scene.store.record_user_action(
        UserAction(scene.now() - timedelta(hours=2), "alice@example.com", UserActionKind.PAUSE)
    )
    await scene.store.set_paused(True)
    async with browser(scene, known=True) as page:
        await sign_in(page, "reader")
        shown = (await page.get(path)).text
        assert "cruise is paused" in shown and "alice@example.com paused it 2h ago" in shown
        assert "forms/delete/pause" in shown
        page.cookies.delete(SESSION_COOKIE)
        assert "alice" not in (await page.get("/sign-in")).text


async def test_without_a_session_the_command_that_resumes_writes_is_shown(scene):
    await scene.store.set_paused(True)
    async with browser(scene) as page:
        shown = (await page.get("/nodes")).text
    assert "cruise resume" in shown and "Who paused it is not recorded" in shown


async def test_a_mode_that_only_reads_is_said_on_every_page(scene):
    async with browser(scene) as page:
        assert "writes nothing" not in (await page.get("/nodes")).text
        scene.policy = replace(scene.policy, mode=Mode.OBSERVE)
        assert "writes nothing" in (await page.get("/nodes")).text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/sign-out", 405)])
async def test_browsers_get_a_page_where_nothing_is_and_programs_get_json(scene, method, path, status):
    async with browser(scene) as page:
        shown = await page.request(method, path, headers={"Accept": "text/html,*/*;q=0.8"})
        told = await page.request(method, path)
        api = await page.request(method, f"/api/v1{path}", headers={"Accept": "text/html"})
    assert shown.status_code == told.status_code == status
    assert shown.headers["content-security-policy"] == CONTENT_SECURITY_POLICY and 'aria-label="Pages"' in shown.text
    assert shown.headers.get("allow") == told.headers.get("allow")
    assert "error" in told.json() and "error" in api.json()


async def test_a_mistake_of_cruises_own_is_a_page_too(scene):
    def broken() -> None:
        raise ZeroDivisionError

    scene.snapshot = broken
    async with browser(scene) as page:
        page._transport = httpx.ASGITransport(page._transport.app, raise_app_exceptions=False)  # type: ignore[attr-defined]
        shown = await page.get("/pending", headers={"Accept": "text/html"})
    assert shown.status_code == 500 and "See its log" in shown.text and "ZeroDivision" not in shown.text


ANCHORS = {"skipped pods": "skipped", "effective settings": "effective-policy", "consolidation": "packing-plan"}


def test_tooltips_are_the_definitions_of_the_glossary():
    glossary = Path("docs/glossary.md").read_text()
    rows = re.findall(r'<a id="([^"]+)"></a>[^|]*\| ([^|]+) \|', glossary)
    meanings = {anchor: re.sub(r"[*`]", "", meaning) for anchor, meaning in rows}
    assert {term: meanings[ANCHORS.get(term, term.replace(" ", "-"))] for term in TERMS} == TERMS
