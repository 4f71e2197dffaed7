"""The API of a controller after a pass on a simulated cluster."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from cruise.adapters.store.connection import Database
from cruise.adapters.store.postgres import PostgresStore
from cruise.interfaces.http.audit import AuditPage
from cruise.interfaces.http.controller import ControllerStatus, NodePage, NodePlanDocument
from cruise.interfaces.http.packing import HistoryDocument
from cruise.interfaces.http.policies import PolicyPage
from cruise.interfaces.http.request_guard import StaticTokenAuthority
from cruise.interfaces.http.user_actions import PauseStatus
from cruise.interfaces.http.view import RequestError
from cruise.interfaces.packing.document import LastPackingPlanDocument
from cruise.interfaces.plan_document import render_plan_json
from tests.interfaces.http.api_scene import NOW, TOKEN, create_api_client, make_busy_scene
from tests.interfaces.packing.packing_plans import PLAN
from tests.simulation.scenes import pods


@pytest.fixture
async def scene():
    return await make_busy_scene()


@pytest.fixture
async def api(scene):
    async with create_api_client(scene) as client:
        yield client


async def get(api, path: str):
    answered = await api.get(path)
    assert answered.status_code == 200, answered.text
    return answered.json()


async def refused(api, path: str, status: int, method: str = "GET") -> str:
    answered = await api.request(method, path)
    assert answered.status_code == status, answered.text
    assert answered.headers["content-type"] == "application/json"
    assert list(answered.json()) == ["error"]
    return str(answered.json()["error"])


async def test_the_status_reports_the_instance_and_the_results_of_its_jobs(api):
    status = await get(api, "/status")
    assert (status["mode"], status["paused"], status["leader"]) == ("full", False, True)
    assert status["jobs"][0] == {
        "name": "node pass",
        "runs": 1,
        "failures": 0,
        "failuresInARow": 0,
        "lastSeconds": 0.0,
        "lastEndedAt": "2026-01-05T09:00:00Z",
        "lastSuccessAt": "2026-01-05T09:00:00Z",
        "error": None,
    }
    assert (status["lastPassAt"], status["watchLagSeconds"]) == ("2026-01-05T09:00:00Z", None)


async def test_nodes_are_the_plans_that_the_command_prints(api, scene):
    [printed] = [json.loads(b"".join(render_plan_json(scene.done.plans)))]
    page = await get(api, "/nodes")
    assert page["items"] == printed["nodes"]
    assert (page["at"], page["total"], page["offset"]) == ("2026-01-05T09:00:00Z", 3, 0)
    assert await get(api, "/nodes/n2") == printed["nodes"][1]
    assert sum(len(plan["resize"]) for plan in page["items"]) == 5


async def test_pages_hold_what_they_are_asked_for(api):
    page = await get(api, "/nodes?offset=1&limit=1")
    assert ([plan["node"] for plan in page["items"]], page["total"]) == (["n2"], 3)
    assert (await get(api, "/nodes?offset=9"))["items"] == []


async def test_a_pod_is_explained_as_the_command_does(api, scene):
    [first, *_] = await pods(scene.world)
    explained = await get(api, f"/pods/{first.namespace}/{first.name}")
    assert explained["containers"][0]["statistic"]["cpuPeakMillicores"] == 200
    assert explained["history"]["outcomes"][0]["result"] == "done"


async def test_outcomes_are_listed_newest_first_with_whether_there_are_more(api):
    page = await get(api, "/audit?limit=2")
    assert (len(page["items"]), page["more"]) == (2, True)
    line = page["items"][0]
    assert (line["action"], line["result"], line["workload"]) == ("resize", "done", "Deployment/web")
    assert (await get(api, "/audit?limit=5"))["more"] is False
    later = (NOW + timedelta(seconds=1)).isoformat()
    assert (await get(api, "/audit?since=" + later))["items"] == []


async def test_every_answer_is_of_its_documented_shape(api):
    for path, model in (
        ("/status", ControllerStatus),
        ("/nodes", NodePage),
        ("/nodes/n1", NodePlanDocument),
        ("/audit", AuditPage),
        ("/policies", PolicyPage),
        ("/pause", PauseStatus),
        ("/packing", LastPackingPlanDocument),
        ("/history", HistoryDocument),
    ):
        answered = await api.get(path)
        read = TypeAdapter(model).validate_json(answered.content, strict=True, by_alias=True)
        assert type(read) is model


async def test_the_last_packing_plan_is_there_with_its_progress(scene, api):
    assert await get(api, "/packing") == {"plan": None}
    await scene.store.write_packing_plan(PLAN)
    answered = await api.get("/packing")
    assert (
        TypeAdapter(LastPackingPlanDocument).validate_json(answered.content, strict=True, by_alias=True).plan
        is not None
    )
    plan = answered.json()["plan"]
    assert (plan["phase"], plan["stage"], plan["evictedInStage"]) == ("in-progress", 1, 1)
    assert plan["moves"] == [{"namespace": "shop", "pod": "web-1", "from": "n1", "to": "n2"}]
    assert plan["byPriority"] == [{"priority": 5, "placed": 3, "running": 2, "bound": 4}]
    assert plan["stages"][1]["evictions"] == ["shop/web-1 from n1", "shop/low from n1"]
    assert plan["remainingRounds"]["rounds"] == [{"placed": 3, "evictions": 2}, {"placed": 1, "evictions": 1}]


async def test_coverage_is_of_the_last_pass(api):
    found = await get(api, "/coverage")
    assert (found["sized"]["pods"], found["skipped"]) == (5, [])
    assert found["requested"] == found["sized"]["requested"] == (await get(api, "/summary"))["requested"]
    assert found["sized"]["reclaimable"] == (await get(api, "/summary"))["reclaimable"]
    assert await get(api, "/coverage?namespace=shop") == found


async def test_all_keys_of_all_documents_are_in_camel_case(api):
    schemas = (await get(api, "/openapi.json"))["components"]["schemas"]
    assert [(name, key) for name, one in schemas.items() for key in one.get("properties", ()) if "_" in key] == []


async def test_the_openapi_document_is_whole(api):
    document = await get(api, "/openapi.json")
    assert set(document["paths"]) == {
        "/api/v1/status",
        "/api/v1/history",
        "/api/v1/nodes",
        "/api/v1/nodes/{name}",
        "/api/v1/pods/{namespace}/{name}",
        "/api/v1/what-if",
        "/api/v1/what-if/{namespace}/{kind}/{name}",
        "/api/v1/reverts/{namespace}/{kind}/{name}",
        "/api/v1/audit",
        "/api/v1/actions",
        "/api/v1/attention",
        "/api/v1/policies",
        "/api/v1/policies/{namespace}/{kind}/{name}",
        "/api/v1/policies/namespaces",
        "/api/v1/policies/namespaces/{namespace}",
        "/api/v1/pause",
        "/api/v1/pause/workloads",
        "/api/v1/pause/{namespace}/{kind}/{name}",
        "/api/v1/consolidation",
        "/api/v1/packing",
        "/api/v1/user-actions",
        "/api/v1/summary",
        "/api/v1/workloads",
        "/api/v1/coverage",
        "/api/v1/namespaces",
    }
    text = json.dumps(document)
    assert "HTTPValidationError" not in text
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["description"]
            assert operation["security"] == [{"HTTPBearer": []}]
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": f"#/components/schemas/{RequestError.__name__}"}
    references = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= set(document["components"]["schemas"])


REFUSED = {
    "no such place": ("/nowhere", 404, "/api/v1/nowhere does not exist; see /api/v1/openapi.json"),
    "no such node": ("/nodes/n9", 404, "the last node pass saw no node n9"),
    "no such pod": ("/pods/shop/stranger", 404, "there is no pod shop/stranger"),
    "no pod's name": ("/pods/shop/Über", 422, "name: string should match pattern"),
    "no namespace": ("/pods/a.b/web", 422, "namespace: string should match pattern"),
    "limit of none": ("/audit?limit=0", 422, "limit: input should be greater than or equal to 1"),
    "limit too large": ("/nodes?limit=201", 422, "limit: input should be less than or equal to 200"),
    "limit no number": ("/audit?limit=many", 422, "limit: input should be a valid integer"),
    "offset below none": ("/nodes?offset=-1", 422, "offset: input should be greater than or equal to 0"),
    "time without zone": ("/audit?since=2026-01-01T00:00:00", 422, "has no zone"),
    "no time": ("/audit?since=yesterday", 422, 'since: "yesterday" is not a time'),
    "time before all": ("/audit?since=0001-01-01T00:00:00%2B14:00", 422, "is not a time"),
    "no kind": ("/policies/shop/deployment/web", 422, "kind: string should match pattern"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_wrong_requests_are_refused_in_one_line(api, name):
    path, status, expected = REFUSED[name]
    said = await refused(api, path, status)
    assert expected in said
    assert "\n" not in said


async def test_a_zone_may_be_written_with_an_unescaped_plus(api):
    assert (await get(api, "/audit?since=2026-01-01T00:00:00+00:00"))["items"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/status"), ("PATCH", "/pause"), ("DELETE", "/nodes")])
async def test_other_methods_are_refused_likewise(scene, tmp_path, method, path):
    (tmp_path / "token").write_text(TOKEN)
    scene.authority = StaticTokenAuthority(tmp_path / "token")
    async with create_api_client(scene, TOKEN) as api:
        assert await refused(api, path, 405, method) == "Method Not Allowed"


async def test_without_a_pass_there_is_no_plan_and_the_reason_is_said(scene):
    scene.done = None
    async with create_api_client(scene) as api:
        assert await refused(api, "/nodes", 503) == "this process has no plan: no node pass has run yet"
        scene.leader = False
        assert "another process is the leader" in await refused(api, "/nodes/n1", 503)


async def test_without_the_store_only_what_it_holds_is_missing(scene):
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    scene.store = PostgresStore(database)
    async with create_api_client(scene) as api:
        for path in ("/audit", "/pause/workloads", "/pause"):
            assert "Postgres at 127.0.0.1:1/none" in await refused(api, path, 503)
        status = await get(api, "/status")
        assert (status["paused"], "nothing listens there" in status["storeError"]) == (None, True)
        assert (await get(api, "/nodes"))["total"] == 3
    await database.close()


async def test_an_internal_error_is_reported_without_details(scene):
    broken = replace(scene.done, plans=None)
    scene.done = broken
    transport = httpx.ASGITransport(scene.app(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://cruise/api/v1") as api:
        assert await refused(api, "/nodes", 500) == "an internal error of cruise; see its log"


@pytest.mark.parametrize(("method", "path"), [("PUT", "/pause"), ("DELETE", "/policies/shop/Deployment/web")])
async def test_without_a_token_file_nothing_is_written(api, scene, method, path):
    said = await refused(api, path, 403, method)
    assert "api_token_file" in said
    assert await scene.store.is_paused() is False


ODD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(ODD, ODD, ODD)
def test_words_of_any_kind_get_one_answer_of_one_shape(first, second, third):
    a, b, c = (quote(word, safe="") for word in (first, second, third))
    paths = [
        f"/nodes/{a}",
        f"/pods/{a}/{b}",
        f"/audit?since={a}&limit={b}",
        f"/nodes?offset={a}&limit={c}",
        f"/policies/{a}/{b}/{c}",
    ]

    async def ask() -> None:
        async with create_api_client(FUZZED, TOKEN) as api:
            for path in paths:
                answered = await api.get(path)
                assert answered.status_code in (200, 404, 422)
                assert answered.status_code == 200 or list(answered.json()) == ["error"]

    asyncio.run(ask())


FUZZED = asyncio.run(make_busy_scene())
