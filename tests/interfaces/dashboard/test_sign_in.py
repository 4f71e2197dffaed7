"""Sign-in by an identity provider and the return to the requested page; no token is logged."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import structlog

from cruise.adapters.oidc import OidcProvider
from cruise.app.process import get_current_time
from cruise.domain.users import Access, Caller
from cruise.interfaces.dashboard.layout import SignInSessions
from cruise.interfaces.dashboard.pages import add_dashboard
from cruise.interfaces.dashboard.sign_in import IdentityProviderAuthority
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.request_guard import RequestGuardRules, create_allowed_hosts, guard_requests
from cruise.interfaces.http.workload import PodExplainer
from tests.adapters.identity_provider import LocalIdentityProvider, run_identity_provider
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene


class OfTeam:
    """Implements `Authority`: members of the team may read everything and pause, nobody else anything."""

    async def authenticate(self, token: str) -> Caller | None:
        return None

    async def authorize(self, caller: Caller, access: Access) -> bool:
        return "team" in caller.groups and "system:authenticated" in caller.groups


@dataclass
class Stage:
    scene: ApiScene
    provider: LocalIdentityProvider
    page: httpx.AsyncClient
    logged: list[structlog.typing.EventDict]

    async def leave(self, to: str = "actions") -> tuple[str, dict[str, str]]:
        """Leave for the provider; where it sends the browser back to, and what it was asked."""
        answer = await self.page.get("/sign-in-elsewhere", params={"to": to})
        assert answer.status_code == 303, answer.text
        asked = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
        return self.provider.authorize(asked).removeprefix("https://cruise"), asked


@pytest.fixture
async def stage(tmp_path) -> AsyncIterator[Stage]:
    async with run_identity_provider(tmp_path) as provider, at(provider) as stage:
        yield stage


@asynccontextmanager
async def at(provider: LocalIdentityProvider) -> AsyncIterator[Stage]:
    scene = await make_busy_scene()
    authority = IdentityProviderAuthority(OidcProvider(provider.settings(), get_current_time), OfTeam(), lambda: 0.0)
    surveys, explanations = ClusterSummaryCache(scene), PodExplainer(scene)
    api = create_api(scene, surveys, explanations)
    front = add_dashboard(api, scene, surveys, explanations, SignInSessions(lambda: 0.0), authority)
    app = guard_requests(
        api,
        RequestGuardRules(
            authority, create_allowed_hosts(["cruise"]), allows_anonymous_reads=False, access_rules=front
        ),
    )
    with structlog.testing.capture_logs() as logged:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://cruise") as page:
            yield Stage(scene, provider, page, logged)


async def test_from_a_page_to_the_provider_and_back_to_it(stage):
    turned_away = await stage.page.get("/actions")
    assert turned_away.headers["location"] == "./sign-in?to=actions"
    form = (await stage.page.get("/sign-in", params={"to": "actions"})).text
    assert f"Sign in with {urlsplit(stage.provider.address).netloc}" in form
    assert 'href="./sign-in-elsewhere?to=actions"' in form
    back, _ = await stage.leave()
    done = await stage.page.get(back)
    assert done.status_code == 200 and 'content="0;url=./actions"' in done.text
    assert any("HttpOnly; SameSite=Strict; Secure" in one for one in done.headers.get_list("set-cookie"))
    shown = (await stage.page.get("/actions")).text
    assert "Pause all writes" in shown and f"{stage.provider.address}#ann" in shown
    [token] = set(re.findall(r'name="form_token" value="([^"]+)"', shown))
    assert (await stage.page.post("/forms/put/pause", data={"form_token": token, "to": ""})).status_code == 303
    assert [one.caller for one in stage.scene.announced] == [f"{stage.provider.address}#ann"]
    assert (await stage.page.post("/sign-out", data={"form_token": token})).status_code == 303
    assert (await stage.page.get("/actions")).status_code == 303
    assert (await stage.page.get(back)).status_code == 403


async def test_a_signed_in_user_sees_only_what_roles_permit(stage):
    stage.provider.claims["groups"] = ["others"]
    back, _ = await stage.leave()
    assert (await stage.page.get(back)).status_code == 200
    refused = await stage.page.get("/actions")
    assert refused.status_code == 403 and "#ann may not" in refused.text


@pytest.mark.parametrize("wrong", ["browser", "state", "code", "denied", "token"])
async def test_each_refusal_is_one_clear_line_without_a_session(stage, wrong):
    back, asked = await stage.leave()
    said = {"browser": "in another browser", "state": "not started here", "code": "invalid_grant"}.get(wrong, "")
    if wrong == "browser":
        stage.page.cookies.clear()
    elif wrong == "state":
        back = back.replace(asked["state"], "guessed")
    elif wrong == "code":
        back = re.sub(r"code=[^&]+", "code=guessed", back)
    elif wrong == "denied":
        back, said = f"/signed-in?error=access_denied&state={asked['state']}", "denied the sign-in: access_denied"
    else:
        stage.provider.claims["nonce"], said = "another", "claim nonce does not have the expected value"
    answer = await stage.page.get(back)
    assert answer.status_code == 403 and said in answer.text
    assert re.findall(r'<p class="wrong" role="alert">[^<]+\.</p>', answer.text)
    assert (await stage.page.get("/actions")).status_code == 303


async def test_nothing_that_signs_in_is_logged_or_sent_to_the_browser(stage):
    for claims in ({}, {"nonce": "another"}, {"exp": 1}):
        stage.provider.claims |= claims
        back, _ = await stage.leave()
        answer = await stage.page.get(back)
        shown = answer.text + str(answer.headers)
        told = str(stage.logged)
        assert stage.provider.said and "signed in" in told
        assert [one for one in stage.provider.said if one in told or one in shown] == []


async def test_a_provider_that_is_away_is_a_page_that_says_so(stage):
    stage.provider.document = {"issuer": "https://elsewhere"}
    answer = await stage.page.get("/sign-in-elsewhere")
    assert answer.status_code == 503 and "another issuer" in answer.text
