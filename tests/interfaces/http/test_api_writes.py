"""Writes through the API: pauses and overrides, with their token."""

import json
from datetime import timedelta

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.annotations import ORIGINAL_RESOURCES, ContainerOverrides, Overrides
from cruise.domain.overrides import format_settings
from cruise.domain.policy import EvictionRanking, Mode, RequestBounds
from cruise.domain.resources import ResourceName
from cruise.domain.users import Access, Caller, PathAccess, PodAccess, PolicyAccess, UserAction, UserActionKind
from cruise.domain.written_policies import PolicyScope
from cruise.errors import ConflictError, NotFoundError, RefusedError, UnavailableError
from cruise.interfaces.http.policies import read_policy_settings
from cruise.kube_json.objects.rightsizing_policies import build_written_policy
from tests.builders import make_amounts, make_ref
from tests.interfaces.http.api_scene import NOW, TOKEN, create_api_client, make_busy_scene

WEB = "/policies/shop/Deployment/web"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
async def scene(token_file):
    return await make_busy_scene(token_file)


@pytest.fixture
async def api(scene):
    async with create_api_client(scene, TOKEN) as client:
        yield client


async def stored(scene):
    """What the workload's own policy states, None without one."""
    found = [one for one in scene.policy_objects.read() if one.key == ("shop", "deployment-web")]
    return found[0].overrides if found else None


async def test_a_pause_is_set_and_lifted(api, scene):
    for method, paused in (("PUT", True), ("PUT", True), ("DELETE", False), ("DELETE", False)):
        answered = await api.request(method, "/pause")
        who = (
            {"by": "API token", "since": NOW.isoformat().replace("+00:00", "Z")}
            if paused
            else {"by": None, "since": None}
        )
        assert (answered.status_code, answered.json()) == (200, {"paused": paused, **who})
        assert await scene.store.is_paused() is paused
        assert (await api.get("/pause")).json() == {"paused": paused, **who}


async def test_a_pause_names_the_user_who_began_it_even_if_a_revert_did(api, scene):
    def done(minutes, caller, deed, workload=None):
        return UserAction(scene.now() - timedelta(minutes=minutes), caller, deed, None, workload)

    for one in (
        done(50, "a", UserActionKind.PAUSE),
        done(40, "b", UserActionKind.RESUME),
        done(30, "c", UserActionKind.REVERT, make_ref("Deployment/web")),
        done(20, "d", UserActionKind.REVERT),
        done(10, "e", UserActionKind.PAUSE),
    ):
        await scene.store.record_user_action(one)
    await scene.store.set_paused(True)
    assert (await api.get("/pause")).json()["by"] == "d"


async def test_a_policy_says_what_an_annotation_would(api, scene):
    settings = {
        "mode": "resize",
        "eviction-ranking": "no-eviction",
        "cruise.io/resources": "cpu",
        "cpu-min": "100m",
        "memory-max.app": "2Gi",
        "headroom-factor": 1.5,
    }
    answered = await api.put(WEB, json=settings)
    assert answered.status_code == 200
    found = await stored(scene)
    assert (found.mode, found.ranking, found.resources) == (
        Mode.RESIZE,
        EvictionRanking.NEVER,
        frozenset({ResourceName.CPU}),
    )
    assert found.bounds == RequestBounds(minimum=make_amounts(100))
    assert found.containers == {"app": ContainerOverrides(bounds=RequestBounds(maximum=make_amounts(None, 2048)))}
    expected = {"mode": "resize", "eviction-ranking": "never", "resources": "cpu", "cpu-min": "100m"}
    expected |= {"memory-max.app": "2Gi", "headroom-factor": "1.5"}
    entry = answered.json()
    assert (entry["policy"], entry["settings"], entry["notWritable"]) == ("deployment-web", expected, "")
    assert (await api.get(WEB)).json() == entry
    [listed] = (await api.get("/policies")).json()["items"]
    assert (listed["name"], listed["selects"], listed["settings"]) == ("deployment-web", "Deployment; web", expected)


@pytest.mark.parametrize("setting", ["memory-max", "cpu-min", "headroom-factor"])
@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, f'"{"9" * 400}"', "0." + "9" * 400])
async def test_numbers_of_hundreds_of_digits_are_refused_in_words(api, setting, text):
    answered = await api.put(WEB, content=f'{{"{setting}": {text}}}')
    # Less than a byte is below the smallest request.
    assert answered.status_code == (200 if text.startswith("0.") and setting != "memory-max" else 422)


@pytest.mark.parametrize(("kind", "code"), [("Deploymnt", 422), ("Statefulset", 422), ("Rollout", 200), ("Job", 200)])
async def test_a_misspelt_kind_is_refused_and_a_foreign_kind_is_not(api, scene, kind, code):
    answered = await api.put(f"/policies/shop/{kind}/web", json={"mode": "off"})
    assert answered.status_code == code
    assert ("did you mean" in answered.text) is (code == 422)
    assert (await api.get("/policies")).json()["total"] == (code == 200)


async def test_a_step_of_a_workflow_has_a_policy_too(api, scene):
    for workload in ("CronWorkflow/nightly:train", "DAG/Daily_report:load.all", "Workload/report"):
        answered = await api.put(f"/policies/shop/{workload}", json={"cpu-min": "100m"})
        assert answered.status_code == 200, answered.text
        assert answered.json()["policy"] in {one.name for one in scene.policy_objects.read()}
    assert (await api.put("/policies/shop/DAG/a%2Fb", json={"cpu-min": "100m"})).status_code in (404, 422)


async def test_what_is_answered_can_be_sent_again(api, scene):
    first = await api.put(WEB, json={"headroom-factor": 1.23456789, "memory-min": "100000001"})
    before = await stored(scene)
    again = await api.put(WEB, json=first.json()["settings"])
    assert (again.json(), await stored(scene)) == (first.json(), before)


async def test_a_put_replaces_and_a_delete_removes(api, scene):
    await api.put(WEB, json={"mode": "off", "cpu-min": "1"})
    await api.put(WEB, json={"cpu-max": "2"})
    assert (await api.get(WEB)).json()["settings"] == {"cpu-max": "2"}
    for _ in range(2):
        assert (await api.delete(WEB)).status_code == 204
    assert await stored(scene) is None


WRONG = {
    "nothing": (b"", "the body is not a JSON object of settings, such as {"),
    "no object": (b'["mode"]', "the body is not a JSON object of settings"),
    "no value": (b'{"mode":null}', "the body is not a JSON object of settings"),
    "truth": (b'{"mode":true}', "the body is not a JSON object of settings"),
    "nested": (b'{"mode":{"a":1}}', "the body is not a JSON object of settings"),
    "deep": (b"[" * 30_000, "the body is not a JSON object of settings"),
    "no UTF-8": (b'{"mode":"\xff"}', "the body is not a JSON object of settings"),
    "empty": (b"{}", "the body has no settings"),
    "unknown": (b'{"moed":"off"}', "cruise.io/moed: no such setting; did you mean cruise.io/mode?"),
    "no mode": (b'{"mode":"fast"}', '"fast" is no mode; write one of off, observe, initial, resize, full'),
    "no quantity": (b'{"cpu-min":"much"}', '"much" is not a quantity'),
    "negative": (b'{"cpu-min":-1}', '"-1" is negative'),
    "huge": (b'{"headroom-factor":1e308}', "is no factor"),
    "crossed": (b'{"cpu-min":"2","cpu-max":"1"}', "the minimum is above the maximum"),
    "twice": (b'{"mode":"off","cruise.io/mode":"full"}', "a setting is given twice"),
    "a record": (json.dumps({ORIGINAL_RESOURCES: "{}"}).encode(), "is written by cruise and is not a setting"),
    "NUL": (b'{"cpu-min.a\\u0000":"1"}', "contains a NUL"),
    "many": (json.dumps({f"cpu-min.c{i}": "1" for i in range(501)}).encode(), "501 settings are more than 500"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_no_setting_is_refused_and_changes_nothing(api, scene, name):
    body, expected = WRONG[name]
    await api.put(WEB, json={"mode": "observe"})
    answered = await api.put(WEB, content=body)
    assert answered.status_code == 422
    assert expected in answered.json()["error"]
    assert (await stored(scene)).mode is Mode.OBSERVE


async def test_a_body_without_end_is_cut_off(api):
    async def endless():
        while True:
            yield b" " * 10_000

    answered = await api.put(WEB, content=endless())
    assert (answered.status_code, answered.json()) == (413, {"error": "the body is larger than 64 KiB"})


async def test_a_body_that_breaks_off_changes_nothing(scene):
    sent = []
    pieces = iter([{"type": "http.request", "body": b'{"mode":', "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(pieces)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "PUT",
        "path": f"/api/v1{WEB}",
        "headers": [(b"host", b"cruise"), (b"authorization", f"Bearer {TOKEN}".encode())],
        "query_string": b"",
    }
    await scene.app()(scope, receive, send)
    assert sent[0]["status"] == 400
    assert await stored(scene) is None


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
async def test_only_the_token_opens(scene, token):
    async with create_api_client(scene) as api:
        headers = {} if token is None else {b"Authorization": f"Bearer {token}".encode()}
        answered = await api.put("/pause", headers=headers)
    assert answered.status_code == 401
    assert answered.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer TOKEN" in answered.json()["error"]
    assert await scene.store.is_paused() is False


async def test_another_way_of_signing_in_does_not_open(scene):
    async with create_api_client(scene) as api:
        assert (await api.put("/pause", auth=("admin", TOKEN))).status_code == 401


async def test_without_the_token_not_even_the_body_is_read(scene):
    async with create_api_client(scene) as api:
        assert (await api.put(WEB, content=b"{")).status_code == 401


async def test_a_token_that_changes_on_disk_changes_at_once(scene, token_file):
    another = "another token that is long enough for everybody"
    token_file.write_text(f"{another}\n")
    async with create_api_client(scene, TOKEN) as api:
        assert (await api.put("/pause")).status_code == 401
    async with create_api_client(scene, another) as api:
        assert (await api.put("/pause")).status_code == 200


async def test_a_token_may_be_of_any_characters(scene, token_file):
    token = "schlüssel✓" * 4
    token_file.write_text(f"{token}\n")
    async with create_api_client(scene) as api:
        headers = {b"Authorization": f"Bearer {token}".encode()}
        assert (await api.put("/pause", headers=headers)).status_code == 200


@pytest.mark.parametrize("broken", [None, "\n", "x" * 31])
async def test_an_empty_token_file_admits_no_caller(scene, token_file, broken):
    if broken is None:
        token_file.unlink()
    else:
        token_file.write_text(broken)
    async with create_api_client(scene, "") as api:
        answered = await api.put("/pause", headers={"Authorization": f"Bearer {(broken or '').strip() or 'x'}"})
    assert answered.status_code == 503
    assert "api_token_file" in answered.json()["error"]


async def test_writes_are_audited_with_their_author(api, scene):
    await api.put("/pause")
    await api.put(WEB, json={"mode": "off"})
    await api.put(WEB, json={"mode": "of"})
    await api.delete(WEB)
    await api.delete("/pause")
    lines = (await api.get("/user-actions")).json()
    assert [(one["kind"], one["workload"], one["detail"]) for one in reversed(lines["items"])] == [
        ("pause", None, ""),
        ("put-policy", "Deployment/web", '{"mode":"off"}'),
        ("delete-policy", "Deployment/web", ""),
        ("resume", None, ""),
    ]
    assert {one["caller"] for one in lines["items"]} == {"API token"}
    assert list(scene.announced) == list(reversed(await scene.store.read_user_actions(NOW)))


async def test_what_cannot_be_put_on_record_is_not_done(api, scene, monkeypatch):
    async def away(_: object) -> None:
        raise UnavailableError("the database is away")

    monkeypatch.setattr(scene.store, "record_user_action", away)
    assert (await api.put("/pause")).status_code == 503
    assert await scene.store.is_paused() is False
    assert scene.announced == []


async def test_reading_needs_no_token(scene):
    async with create_api_client(scene) as api:
        assert (await api.get("/pause")).status_code == 200


NAMES = st.sampled_from(
    ["mode", "resources", "cpu-min", "cpu-max.app", "memory-min", "headroom-factor", "cruise.io/mode"]
)
VALUES = st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.sampled_from(["off", "cpu", "1", "2Gi"]))
OBJECTS = st.dictionaries(st.one_of(NAMES, st.text(max_size=20)), VALUES, max_size=5)


@given(st.one_of(OBJECTS.map(lambda settings: json.dumps(settings).encode()), st.binary(max_size=200)))
def test_any_body_is_a_policy_that_reads_the_same_again_or_is_refused(body):
    try:
        found = read_policy_settings(body)
    except HTTPException as refusal:
        assert refusal.status_code == 422
        assert refusal.detail
        return
    assert read_policy_settings(json.dumps(format_settings(found)).encode()) == found


class Tenant:
    """May do everything on paths, and only `allowed` with the policies of its namespace."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    async def authenticate(self, token: str) -> Caller:
        return Caller("ann")

    async def authorize(self, caller: Caller, access: Access) -> bool:
        return not isinstance(access, PolicyAccess) or (access.verb in self.allowed and access.namespace == "shop")


@pytest.mark.parametrize(
    ("allowed", "path", "lacking"),
    [
        (("create",), WEB, "ann may not patch rightsizingpolicies in namespace shop"),
        (("create", "patch"), "/policies/blog/Deployment/web", "ann may not create rightsizingpolicies in namespace"),
        ((), WEB, "ann may not create rightsizingpolicies in namespace shop"),
        (("create", "patch", "delete"), WEB, ""),
    ],
)
async def test_a_caller_who_may_not_write_a_policy_with_kubectl_may_not_here(scene, allowed, path, lacking):
    scene.authority = Tenant(*allowed)
    async with create_api_client(scene, TOKEN, allows_anonymous_reads=False) as api:
        answered = await api.put(path, json={"mode": "off"})
        shown = (await api.get(path)).json()["notWritable"]
        deleted = await api.delete(path)
    assert answered.status_code == (403 if lacking else 200)
    assert lacking in (answered.json().get("error") or "") and lacking in shown
    assert deleted.status_code == (204 if "delete" in allowed else 403)
    assert not scene.policy_objects.read() and bool(scene.announced) is not bool(lacking)


@pytest.mark.parametrize(
    ("path", "name", "selects"),
    [
        ("/policies/namespaces/shop", "namespace-shop", "shop"),
        ("/policies/namespaces", "all-namespaces", "all"),
    ],
)
async def test_the_policy_of_a_namespace_and_that_of_the_cluster_are_cluster_policies(api, scene, path, name, selects):
    entry = (await api.put(path, json={"mode": "observe", "memory-max": "2Gi"})).json()
    assert (entry["policy"], entry["kind"], entry["notWritable"]) == (name, "", "")
    [policy] = scene.policy_objects.read()
    assert policy.title == f"ClusterRightsizingPolicy {name}"
    assert (await api.get(path)).json() == entry
    [listed] = (await api.get("/policies")).json()["items"]
    assert (listed["namespace"], listed["name"], listed["selects"]) == ("", name, selects)
    assert [(await api.delete(path)).status_code for _ in range(2)] == [204, 204]
    assert not scene.policy_objects.read()
    namespace = "shop" if path.endswith("shop") else None
    assert {(one.namespace, one.workload) for one in scene.announced} == {(namespace, None)}


class PlatformTeam(Tenant):
    """May also do with ClusterRightsizingPolicies what is allowed."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        if isinstance(access, PolicyAccess) and not access.namespace:
            return access.verb in self.allowed
        return await super().authorize(caller, access)


@pytest.mark.parametrize("path", ["/policies/namespaces/shop", "/policies/namespaces"])
async def test_the_rights_on_policies_of_a_namespace_do_not_include_cluster_policies(scene, path):
    for authority, code in ((Tenant("create", "patch", "delete"), 403), (PlatformTeam("create", "patch"), 200)):
        scene.authority = authority
        async with create_api_client(scene, TOKEN, allows_anonymous_reads=False) as api:
            answered = await api.put(path, json={"mode": "off"})
            shown = (await api.get(path)).json()["notWritable"]
        assert answered.status_code == code
        expected = "" if code == 200 else "ann may not create clusterrightsizingpolicies: no role of the user allows it"
        assert shown == expected == answered.json().get("error", "")
    assert [one.key for one in scene.policy_objects.read()] != []


async def test_a_policy_of_all_namespaces_needs_all_of_them_to_be_read(scene):
    class ShopOnly(Tenant):
        async def authorize(self, caller: Caller, access: Access) -> bool:
            return access == PodAccess("shop") or isinstance(access, PathAccess)

    scene.authority = ShopOnly()
    async with create_api_client(scene, TOKEN, allows_anonymous_reads=False) as api:
        codes = [(await api.get(f"/policies/namespaces{one}")).status_code for one in ("", "/other", "/shop")]
    assert codes == [403, 403, 200]


async def test_a_foreign_object_is_neither_changed_nor_deleted(api, scene):
    document = build_written_policy(PolicyScope("shop", make_ref("Deployment/web")), Overrides(mode=Mode.OBSERVE))
    document["metadata"]["labels"] = {"argocd.argoproj.io/instance": "shop"}
    scene.policy_objects.put(document, "argocd-controller")
    for answered in (await api.put(WEB, json={"mode": "off"}), await api.delete(WEB)):
        assert answered.status_code == 409
        assert "RightsizingPolicy shop/deployment-web is not changed" in answered.json()["error"]
        assert "managed by Argo CD" in answered.json()["error"]
    assert (await stored(scene)).mode is Mode.OBSERVE
    assert not scene.announced


@pytest.mark.parametrize(
    ("refusal", "status", "words"),
    [
        (RefusedError("spec.mode: Unsupported value", cause="Invalid"), 422, "spec.mode: Unsupported value"),
        (RefusedError("cruise-serve may not", cause="Forbidden"), 403, "cruise-serve may not"),
        (ConflictError("modified"), 409, "changed at the same time"),
        (NotFoundError("no such kind"), 409, "crds.install"),
        (UnavailableError("no answer"), 503, "no answer"),
    ],
)
async def test_what_the_api_server_says_is_passed_on(api, scene, refusal, status, words):
    scene.policy_objects.refusal = refusal
    answered = await api.put(WEB, json={"mode": "off"})
    assert (answered.status_code, words in answered.json()["error"]) == (status, True)


async def test_a_workload_is_paused_once_and_resumed(api, scene):
    path = "/pause/shop/Deployment/web"
    first = await api.put(path)
    again = await api.put(path)
    assert (first.status_code, first.json()) == (200, again.json())
    assert (await api.get("/pause/workloads")).json()["items"] == [first.json()]
    assert (await api.get("/pause")).json()["paused"] is False
    assert (await api.put("/pause/shop/Deployment/wib")).status_code == 404
    assert [(await api.delete(path)).status_code for _ in range(2)] == [204, 204]
    assert (await api.get("/pause/workloads")).json()["items"] == []
