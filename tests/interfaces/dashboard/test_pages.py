"""What every page has, who gets in, and what stands in place of a page that cannot be shown."""

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

from cruise.domain.callers import Access, Caller, PathAccess
from cruise.interfaces.dashboard.frame import POLICY
from cruise.interfaces.dashboard.front import DashboardFront
from cruise.interfaces.dashboard.pages import MENU, add_dashboard
from cruise.interfaces.dashboard.sessions import COOKIE, Sessions
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.gate import Authority, GateRules, gated
from cruise.interfaces.http.hosts import hosts
from cruise.interfaces.http.pods import Explanations
from cruise.interfaces.http.survey import Surveys
from tests.interfaces.http.api_scene import Scene, busy_scene, looking_at, present

ADMINISTRATOR, READER, TENANT, STRANGER = map(Caller, ("administrator", "reader", "tenant", "stranger"))
OF_ONE = ("/workloads/shop/Deployment/web", "/nodes/n1", "/policies/shop/Deployment/web")
PATHS = [f"/{page.path}" for page in MENU] + list(OF_ONE)


class Roles:
    """Implements `Authority`: tokens are names; the reader reads everything, the administrator also writes.

    A tenant may get the pods of namespace shop alone.
    """

    async def caller(self, token: str) -> Caller | None:
        return next((one for one in (ADMINISTRATOR, READER, TENANT, STRANGER) if one.name == token), None)

    async def allows(self, caller: Caller, access: Access) -> bool:
        reads = not isinstance(access, PathAccess) or access.verb == "get"
        if caller == TENANT and not isinstance(access, PathAccess):
            return access.namespace == "shop"
        return caller == ADMINISTRATOR or (caller in (READER, TENANT) and reads)


ROLES = Roles()


@cache
def _dashboard(authority: Authority | None) -> tuple[FastAPI, DashboardFront]:
    view, surveys, explanations, sessions = present(4)
    api = create_api(view, surveys, explanations)
    return api, add_dashboard(api, view, surveys, explanations, sessions, authority)


@asynccontextmanager
async def browser(scene: Scene, *, known: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """A browser at the scene's dashboard, where callers are known or reads are open."""
    authority = ROLES if known else None
    api, front = _dashboard(authority)
    rules = GateRules(authority, hosts(["cruise"]), reads_open=not known, front=front)
    app = looking_at(gated(api, rules), scene, Surveys(scene), Explanations(scene), Sessions(lambda: 0.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cruise") as client:
        yield client


async def sign_in(page: httpx.AsyncClient, name: str) -> str:
    """Sign in by name, and return what the forms of the session hold."""
    await page.post("/sign-in", data={"token": name})
    [token] = re.findall(r'name="form_token" value="([^"]+)"', (await page.get("/health")).text)
    return str(token)


@pytest.fixture
async def scene() -> Scene:
    return await busy_scene()


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_has_its_policy_and_nothing_that_it_forbids(scene, path):
    async with browser(scene) as page:
        answer = await page.get(path)
    assert (answer.status_code, answer.headers["content-security-policy"]) == (200, POLICY)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src)|href=\"/|src=\"/|action=\"/", answer.text)


async def test_a_page_links_files_by_their_content(scene):
    async with browser(scene) as page:
        links = re.findall(r"(?:href|src)=\"\./(static/[^\"]+)\"", (await page.get("/")).text)
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


async def test_who_may_not_see_a_page_reads_what_to_do(scene):
    async with browser(scene, known=True) as page:
        await page.post("/sign-in", data={"token": "stranger"})
        answer = await page.get("/")
    assert answer.status_code == 403
    assert "Stranger may not get /cruise/api/v1/overview" in answer.text and "cruise-reader" in answer.text


async def test_only_a_page_of_the_session_signs_out(scene):
    async with browser(scene, known=True) as page:
        await page.post("/sign-in", data={"token": "reader"})
        assert (await page.post("/sign-out", data={"form_token": "guessed"})).status_code == 403
        [token] = re.findall(r'name="form_token" value="([^"]+)"', (await page.get("/")).text)
        assert (await page.post("/sign-out", data={"form_token": token})).status_code == 303
        page.cookies.delete(COOKIE)
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
    assert "no node pass was made yet" in answer.text and 'http-equiv="refresh"' in answer.text


async def test_old_statistics_are_no_good_news(scene):
    async with browser(scene) as page:
        assert "nothing is judged by them" not in (await page.get("/")).text
        scene.done = replace(scene.done, at=scene.now() + timedelta(hours=1))
        assert "nothing is judged by them" in (await page.get("/")).text


async def test_so_large_a_cluster_is_added_up_while_its_reader_waits_elsewhere(scene, monkeypatch):
    monkeypatch.setattr("cruise.interfaces.http.survey._FEW_PODS", 0)
    async with browser(scene) as page:
        answer = await page.get("/")
        assert answer.status_code == 503 and "being added up" in answer.text
        assert (await page.get("/")).status_code == 200
