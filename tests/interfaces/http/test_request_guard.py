"""API access: authentication, allowed hosts, concurrency limits and visible namespaces."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import httpx
import pytest

from cruise.domain.annotations import Overrides
from cruise.domain.policy import Mode
from cruise.domain.users import Access, Caller, PathAccess, PodAccess, UserAction, UserActionKind
from cruise.domain.written_policies import PolicyScope
from cruise.errors import ThrottledError, UnavailableError
from cruise.interfaces.http.health import create_health_app, send_response
from cruise.interfaces.http.request_guard import RequestGuardRules, create_allowed_hosts, guard_requests
from cruise.interfaces.http.view import NamespaceVisibility, collect_namespace_values, filter_by_namespace
from cruise.kube_json.objects.rightsizing_policies import add_written_policy_label, build_written_policy
from tests.builders import make_ref
from tests.interfaces.http.api_scene import NOW, ApiScene, create_api_client, make_busy_scene

ADMIN, TENANT, STRANGER = (Caller(name) for name in ("admin", "tenant", "stranger"))


@dataclass
class Roles:
    """Implements `Authority`: tokens are names; the tenant reads, of one namespace, and the admin does everything."""

    asked: list[Access] = field(default_factory=list)
    sees: str = "shop"

    async def authenticate(self, token: str) -> Caller | None:
        if token == "away":
            raise UnavailableError("the API server is away")
        if token == "flood":
            raise ThrottledError("too many")
        return next((one for one in (ADMIN, TENANT, STRANGER) if one.name == token), None)

    async def authorize(self, caller: Caller, access: Access) -> bool:
        self.asked.append(access)
        if caller is ADMIN:
            return True
        if caller is STRANGER:
            return False
        if isinstance(access, PathAccess):
            return access.verb == "get" and access.path.startswith("/cruise/api/v1/")
        return access == PodAccess(self.sees)


@pytest.fixture
async def scene() -> ApiScene:
    found = await make_busy_scene()
    found.authority = Roles()
    for namespace in ("shop", "other"):
        await found.store.write_workload_pause(namespace, make_ref("Deployment/web"), NOW)
        document = build_written_policy(PolicyScope(namespace, make_ref("Deployment/web")), Overrides(mode=Mode.OFF))
        found.policy_objects.put(add_written_policy_label(document), "cruise")
    return found


async def status(scene: ApiScene, token: str | None, method: str, path: str) -> int:
    async with create_api_client(scene, token, allows_anonymous_reads=False) as api:
        return (await api.request(method, path, json={"mode": "off"} if method == "PUT" else None)).status_code


WEB = "/policies/shop/Deployment/web"


@pytest.mark.parametrize(
    ("token", "read", "written"),
    [(None, 401, 401), ("nobody's", 401, 401), ("stranger", 403, 403), ("tenant", 200, 403), ("admin", 200, 200)],
)
async def test_each_path_needs_its_right(scene, token, read, written):
    for path in (
        "/status",
        "/nodes",
        "/audit",
        "/policies",
        "/pause/workloads",
        "/pause",
        WEB,
        "/openapi.json",
        "/user-actions",
    ):
        assert await status(scene, token, "GET", path) == read
    assert await status(scene, token, "PUT", "/pause") == written
    assert await status(scene, token, "PUT", WEB) == written
    assert await scene.store.is_paused() is (written == 200)


@pytest.mark.parametrize(("token", "code"), [("away", 503), ("flood", 429)])
async def test_no_caller_is_admitted_if_callers_cannot_be_authorized(scene, token, code):
    assert await status(scene, token, "GET", "/status") == code


async def test_a_refusal_names_the_account_and_the_missing_right(scene):
    async with create_api_client(scene, "tenant", allows_anonymous_reads=False) as api:
        answered = await api.put("/pause")
    assert answered.json() == {"error": "tenant may not put /cruise/api/v1/pause: no role of the user allows it"}


async def test_nothing_of_a_request_is_judged_before_its_caller(scene):
    for token, code in ((None, 401), ("stranger", 403)):
        for path in ("/nowhere", "/nodes?limit=many", "/pods/NO/good", "/policies/shop/deployment/web"):
            assert await status(scene, token, "GET", path) == code


def pods_of(document: object) -> set[str]:
    return collect_namespace_values(document)


@pytest.mark.parametrize(("sees", "expected"), [("shop", {"shop"}), ("other", {"other"}), ("none", set())])
async def test_a_tenant_sees_only_the_pods_of_its_namespaces(scene, sees, expected):
    scene.authority.sees = sees
    async with create_api_client(scene, "tenant", allows_anonymous_reads=False) as api:
        nodes = (await api.get("/nodes")).json()
        assert nodes["total"] == 3
        assert pods_of(nodes) == expected & {"shop"}
        one = (await api.get("/nodes/n1")).json()
        assert pods_of(one) == expected & {"shop"}
        assert pods_of((await api.get("/pause/workloads")).json()) == expected
        policies = (await api.get("/policies")).json()
        assert (pods_of(policies), policies["total"]) == (expected, len(expected))
        assert pods_of((await api.get("/audit")).json()["items"]) <= expected
        assert (await api.get(WEB)).status_code == (200 if sees == "shop" else 403)
        assert (await api.get("/pods/shop/no-such-pod")).status_code == (404 if sees == "shop" else 403)
        coverage = (await api.get("/coverage")).json()
        assert (coverage["sized"]["pods"] + sum(one["pods"] for one in coverage["skipped"]) > 0) is (sees == "shop")
        assert (await api.get("/coverage?namespace=shop")).status_code == (200 if sees == "shop" else 403)
        # Of one piece, so that it takes all namespaces.
        assert (await api.get("/packing")).status_code == 403


async def test_a_tenant_reads_its_own_lines_however_many_newer_ones_others_have(scene):
    [own, *_] = scene.done.outcomes
    newer = [
        replace(own, at=own.at + timedelta(seconds=number), action=replace(own.action, namespace="other"))
        for number in range(1, 5_001)
    ]
    await scene.store.record_outcomes(newer)
    for number in range(1_001):
        at = NOW + timedelta(seconds=number)
        await scene.store.record_user_action(UserAction(at, "ann", UserActionKind.REVERT, "other"))
    await scene.store.record_user_action(UserAction(NOW, "bob", UserActionKind.REVERT, "shop"))
    async with create_api_client(scene, "tenant", allows_anonymous_reads=False) as api:
        audit = (await api.get("/audit", params={"limit": 1})).json()
        actions = (await api.get("/user-actions", params={"since": "2020-01-01T00:00:00Z"})).json()
    assert pods_of(audit["items"]) == {"shop"}
    assert [one["caller"] for one in actions["items"]] == ["bob"]
    assert actions["more"] is False


async def test_an_explanation_names_no_pod_of_another_namespace(scene):
    [pod, *_] = (await scene.snapshot()).pods
    async with create_api_client(scene, "tenant", allows_anonymous_reads=False) as api:
        answered = (await api.get(f"/pods/shop/{pod.name}")).json()
    assert answered["pod"] == pod.name
    assert pods_of(answered) == {"shop"}


class Slow(Roles):
    """Roles that take a moment, and count how many questions wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = self.most = 0

    async def authorize(self, caller: Caller, access: Access) -> bool:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        return await super().authorize(caller, access)


async def test_many_namespaces_are_asked_about_a_few_at_a_time():
    roles = Slow()
    names = [f"n{number}" for number in range(300)]
    roles.sees = "n250"
    assert await NamespaceVisibility(TENANT, roles).get_visible_namespaces([*names, *names]) == {"n250"}
    assert (len(roles.asked), roles.most) == (301, 8)
    roles.asked.clear()
    assert await NamespaceVisibility(ADMIN, roles).get_visible_namespaces(names) is None
    assert roles.asked == [PodAccess("")]


def test_parts_about_other_namespaces_are_left_out():
    mine, other = {"namespace": "a", "pod": "x"}, {"namespace": "b", "pod": "y"}
    document = {"list": [mine, other], "one": other, "deep": {"spikes": {"cpu": other, "memory": mine}}, "n": 1}
    assert collect_namespace_values(document) == {"a", "b"}
    assert filter_by_namespace(document, {"a"}) == {
        "list": [mine],
        "one": None,
        "deep": {"spikes": {"cpu": None, "memory": mine}},
        "n": 1,
    }


async def test_probes_are_open_and_metrics_only_where_that_is_set(scene):
    async def read(path: str, **rules) -> int:
        app = guard_requests(
            create_health_app(list, lambda: b"", scene.app()),
            RequestGuardRules(Roles(), create_allowed_hosts([]), **rules),
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://elsewhere") as client:
            host = {} if path != "/metrics" else {"Host": "127.0.0.1:8080"}
            return (await client.get(path, headers=host)).status_code

    closed = {"allows_anonymous_reads": False, "allows_anonymous_metrics": False}
    assert [await read(path, **closed) for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 401]
    assert await read("/metrics", allows_anonymous_reads=False, allows_anonymous_metrics=True) == 200
    assert await read("/metrics") == 200


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("cruise", 200),
        ("CRUISE:8080", 200),
        ("cruise.", 200),
        ("localhost:8080", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("cruise.evil.example", 421),
        ("user@cruise", 421),
        ("cruise/path", 421),
        ("", 421),
        ("[::1", 421),
        ("cruise:port", 421),
    ],
)
async def test_other_names_are_not_answered(host, code):
    assert await status_of("GET", [(b"host", host.encode())]) == code


async def test_no_host_and_two_hosts_are_none():
    assert await status_of("GET", []) == 421
    assert await status_of("GET", [(b"host", b"cruise"), (b"host", b"evil.example")]) == 421


async def fine(scope, receive, send):
    await send_response(scope, send, 200, b"done")


async def status_of(method: str, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """What becomes of a request that every role may send."""
    found: list[int] = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            found.append(message["status"])

    scope = {"type": "http", "method": method, "path": "/api/v1/pause", "headers": headers}
    await guard_requests(fine, RequestGuardRules(Roles(), create_allowed_hosts(["cruise"])))(scope, receive, send)
    return found[0]


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        (None, 200),
        ("http://cruise", 200),
        ("https://cruise", 200),
        ("http://evil.example", 403),
        ("http://cruise.evil.example", 403),
        ("http://cruise:1", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_a_page_of_another_origin_writes_nothing(origin, code):
    headers = [(b"host", b"cruise"), (b"authorization", b"Bearer admin")]
    headers += [] if origin is None else [(b"origin", origin.encode())]
    assert await status_of("PUT", headers) == code
    # What it reads, its browser keeps from it.
    assert await status_of("GET", headers) == 200


async def test_one_caller_has_so_many_requests_at_a_time():
    entered, leave = 0, asyncio.Event()

    async def slow(scope, receive, send):
        nonlocal entered
        entered += 1
        await leave.wait()
        await send_response(scope, send, 200, b"done")

    app = guard_requests(
        slow,
        RequestGuardRules(
            Roles(), create_allowed_hosts(["cruise"]), allows_anonymous_reads=False, concurrent_requests=2
        ),
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cruise") as client:

        async def ask(token: str) -> httpx.Response:
            return await client.get("/api/v1/status", headers={"Authorization": f"Bearer {token}"})

        async with asyncio.TaskGroup() as tasks:
            under_way = [tasks.create_task(ask(token)) for token in ("tenant", "tenant", "admin", "admin")]
            while entered < 4:
                await asyncio.sleep(0)
            refused = await ask("tenant")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            leave.set()
        assert [task.result().status_code for task in under_way] == [200] * 4
        assert (await ask("tenant")).status_code == 200
