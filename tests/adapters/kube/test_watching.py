"""Lists and watches under every kind of server and network failure."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from cruise.adapters.kube.kinds import WatchedKind
from cruise.errors import UnavailableError
from cruise.kube_json.wire.object_json import LimitRangeObject
from tests.adapters.kube.followed import SHORT, get_snapshot_or_none, wait_until_true
from tests.adapters.kube.loopback import (
    EXPIRED_LINE,
    NODES,
    PODS,
    LoopbackServer,
    answer_with,
    bookmark,
    close_connection,
    end_immediately,
    refuse,
    stop_sending,
    watch_loopback,
)
from tests.builders import make_limit_range_json, make_node_json, make_pod_json


def pod(name: str, **more):
    return make_pod_json(f"{name}", owner=None, **more)


@asynccontextmanager
async def a_cluster(directory, pods=5, timing=SHORT, **more):
    server = LoopbackServer()
    await server.put(NODES, make_node_json("n1"))
    await server.put_all(PODS, [pod(f"p{index:03d}") for index in range(pods)])
    async with watch_loopback(server, directory, timing, **more) as cluster:
        yield server, cluster


async def names(cluster):
    snapshot = await get_snapshot_or_none(cluster)
    return None if snapshot is None else [one.name for one in snapshot.pods]


async def shows(cluster, *wanted):
    return await names(cluster) == list(wanted)


@pytest.mark.parametrize("pods", [0, 1, 2, 5, 6])
async def test_lists_are_read_in_pages(tmp_path, pods):
    async with a_cluster(tmp_path, pods, replace(SHORT, page_size=2)) as (server, cluster):
        assert await names(cluster) == [f"p{index:03d}" for index in range(pods)]
        assert server.verbs(PODS).count("list") == max(1, (pods + 1) // 2)
        assert all(query["limit"] == "2" for path, verb, query in server.asked if verb == "list")


async def test_starts_a_list_again_if_it_takes_too_long(tmp_path):
    server = LoopbackServer()
    await server.put_all(PODS, [pod(f"p{index}") for index in range(5)])

    async def expired(server, request):
        if not request.query.get("continue"):
            server.faults[PODS, "list"].append(refuse(410, "Expired"))
        return await server.list(request)

    server.faults[PODS, "list"] += [expired]
    async with watch_loopback(server, tmp_path, replace(SHORT, page_size=2)) as cluster:
        assert len(await names(cluster)) == 5
        resumed = [query.get("continue") for path, verb, query in server.asked if (path, verb) == (PODS, "list")]
        assert resumed == [None, "2", None, "2", "4"]


async def test_a_watch_continues_from_the_list_and_from_each_event(tmp_path):
    async with a_cluster(tmp_path, 1) as (server, cluster):
        listed_at = str(server.version)
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        await server.put(PODS, pod("q"))
        told_at = str(server.version)
        await wait_until_true(lambda: shows(cluster, "p000", "q"), "the new pod is seen")
        await wait_until_true(lambda: server.verbs(PODS).count("watch") == 2, "the watch is opened again")
        versions = [query["resourceVersion"] for path, verb, query in server.asked if (path, verb) == (PODS, "watch")]
        assert versions == [listed_at, told_at]
        assert server.verbs(PODS).count("list") == 1


async def test_bookmarks_advance_a_watch_without_events(tmp_path):
    async with a_cluster(tmp_path, 1) as (server, _cluster):
        await server.put(NODES, make_node_json("n2"))
        await wait_until_true(lambda: server.verbs(PODS).count("watch") == 2, "the watch is opened again")
        last = [query for path, verb, query in server.asked if (path, verb) == (PODS, "watch")][-1]
        assert last["resourceVersion"] == str(server.version)
        assert last["allowWatchBookmarks"] == "true"


async def lost_touch(server):
    """Two pods are deleted and one is created while no watch is open, and the history is compacted."""
    for name in ("p000", "p001"):
        await server.remove(PODS, pod(name), silently=True)
    server.objects[PODS]["shop/new"] = pod("new")
    server.forget_history()


@pytest.mark.parametrize(
    "fault",
    [refuse(410, "Expired"), refuse(410, "Gone"), answer_with(EXPIRED_LINE)],
    ids=["refused", "gone", "in the stream"],
)
async def test_lists_again_after_an_expired_version_and_sees_deletions(tmp_path, fault):
    async with a_cluster(tmp_path, 3) as (server, cluster):
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        await lost_touch(server)
        server.faults[PODS, "watch"] += [fault]
        await wait_until_true(lambda: shows(cluster, "new", "p002"), "the cluster is as it is now")


@pytest.mark.parametrize(
    "faults",
    [
        [close_connection] * 3,
        [refuse(500, "InternalError"), refuse(503, "ServiceUnavailable"), refuse(504, "Timeout")],
        [refuse(429, "TooManyRequests", {"Retry-After": "1"})],
        [refuse(401, "Unauthorized")] * 3,
        [refuse(403, "Forbidden")],
        [answer_with({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}})],
        [
            answer_with({"nonsense": 1}),
            answer_with({"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": 5}}}),
        ],
        [stop_sending],
        [end_immediately] * 3,
    ],
    ids=["broken", "5xx", "429", "401", "403", "error event", "nonsense", "silence", "ended"],
)
@pytest.mark.parametrize("verb", ["watch", "list"])
async def test_recovers_from_failures(tmp_path, faults, verb):
    if (verb == "list" and faults[0] in (stop_sending, end_immediately)) or (verb == "list" and len(faults) == 2):
        faults = [close_connection]
    async with a_cluster(tmp_path, 2) as (server, cluster):
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        server.faults[PODS, verb] += faults
        if verb == "list":
            server.faults[PODS, "watch"] += [refuse(410, "Expired")]
        await wait_until_true(lambda: not any(server.faults.values()), "the faults were met")
        await server.put(PODS, pod("q"))
        await wait_until_true(lambda: shows(cluster, "p000", "p001", "q"), "the new pod is seen")
        await wait_until_true(lambda: not cluster.list_problems(), "all is well again")


async def test_waits_for_the_retry_after_of_the_server(tmp_path):
    async with a_cluster(tmp_path, 1) as (server, _cluster):
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        loop = asyncio.get_running_loop()
        refused_at = []

        async def refuse_and_note(server, request):
            refused_at.append(loop.time())
            return await refuse(429, "TooManyRequests", {"Retry-After": "3"})(server, request)

        server.faults[PODS, "watch"] += [refuse_and_note]
        await wait_until_true(lambda: refused_at, "the watch is refused")
        before = server.verbs(PODS).count("watch")
        await wait_until_true(lambda: server.verbs(PODS).count("watch") > before, "the watch is opened again")
        assert loop.time() - refused_at[0] >= 2.9


async def test_lists_again_after_an_unknown_version(tmp_path):
    too_large = refuse(504, "Timeout")
    async with a_cluster(tmp_path, 2, replace(SHORT, relist_failures=3)) as (server, cluster):
        server.faults[PODS, "watch"] += [too_large] * 3
        await wait_until_true(lambda: server.verbs(PODS).count("list") == 2, "the pods are listed again")
        await wait_until_true(lambda: not cluster.list_problems(), "all is well again")


async def test_without_proof_there_is_no_snapshot(tmp_path):
    async with a_cluster(tmp_path, 2, max_lag_seconds=4.0) as (server, cluster):
        await wait_until_true(lambda: "watch" in server.verbs(NODES), "the watch is open")
        server.faults[NODES, "watch"] += [close_connection] * 1000
        server.faults[NODES, "list"] += [close_connection] * 1000
        await wait_until_true(lambda: cluster.get_lag_seconds() > 4.0, "the nodes are out of sync")
        with pytest.raises(UnavailableError, match=r"^nodes: not in sync for \d+ s: .+"):
            await cluster.snapshot()
        server.faults.clear()
        await wait_until_true(lambda: shows(cluster, "p000", "p001"), "it is in step again")


async def test_kinds_without_events_stay_in_sync(tmp_path):
    async with a_cluster(tmp_path, 2, replace(SHORT, watch_seconds=1.0)) as (server, cluster):
        loop = asyncio.get_running_loop()
        ends_at, worst = loop.time() + 4, 0.0
        while loop.time() < ends_at:
            worst = max(worst, cluster.get_lag_seconds())
            await asyncio.sleep(0.05)
        assert 0 < worst < 3
        assert server.verbs(NODES).count("list") == 1


async def test_a_watch_that_fails_right_after_opening_proves_nothing(tmp_path):
    failing = answer_with({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd is away"}})
    timing = replace(SHORT, relist_failures=10**6, unconfirmed_seconds=1000)
    async with a_cluster(tmp_path, 2, timing, max_lag_seconds=3) as (server, cluster):
        server.faults[PODS, "watch"] += [failing] * 1000
        await wait_until_true(lambda: cluster.get_lag_seconds() > 3, "it is out of sync")
        with pytest.raises(UnavailableError, match="pods: not in sync for 3 s: etcd is away"):
            await cluster.snapshot()


async def test_lists_prove_sync_if_watches_end_early(tmp_path):
    async with a_cluster(tmp_path, 2) as (server, cluster):
        server.faults[NODES, "watch"] += [end_immediately] * 1000
        loop = asyncio.get_running_loop()
        ends_at, worst = loop.time() + 7, 0.0
        while loop.time() < ends_at:
            worst = max(worst, cluster.get_lag_seconds())
            await asyncio.sleep(0.05)
        assert worst < 5
        assert 1 < server.verbs(NODES).count("list") < 6


async def test_a_burst_of_events_lets_other_tasks_run(tmp_path):
    events = 100_000
    timing = replace(SHORT, watch_seconds=600)
    async with a_cluster(tmp_path, 1, timing, max_lag_seconds=600) as (server, cluster):
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        many = [pod(f"b{index % 2000:05d}", labels={"turn": str(index // 2000)}) for index in range(events)]
        await server.put_all(PODS, many)
        turns = 0
        while cluster.version < events:
            await asyncio.sleep(0)
            turns += 1
        snapshot = await cluster.snapshot()
        assert {one.labels["turn"] for one in snapshot.pods if one.name != "p000"} == {"49"}
        assert len(snapshot.pods) == 2001
        assert turns > events / 1000


async def test_accepts_a_bookmark_without_an_object(tmp_path):
    async with a_cluster(tmp_path, 1) as (server, cluster):

        async def told(server, request):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(bookmark(4711))
            return response

        server.faults[PODS, "watch"] += [told]
        await wait_until_true(
            lambda: any(query.get("resourceVersion") == "4711" for _, _, query in server.asked), "it goes on from there"
        )
        assert await names(cluster) == ["p000"]


ODDITIES = WatchedKind("/apis/example.com/v1/oddities", LimitRangeObject, optional=True)
NEEDED = replace(ODDITIES, optional=False)


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFoundError"), (403, "Forbidden")])
async def test_continues_without_an_optional_kind(tmp_path, code, reason):
    server = LoopbackServer()
    server.objects[ODDITIES.path] = {}
    server.faults[ODDITIES.path, "list"] += [refuse(code, reason)]
    timing = replace(SHORT, forbidden_retry_seconds=0.5)
    async with watch_loopback(server, tmp_path, timing, kinds=[ODDITIES]) as cluster:
        assert (await cluster.snapshot()).limit_ranges == {}
        assert (cluster.get_lag_seconds(), cluster.list_problems()) == (0, [])
        await server.put(ODDITIES.path, make_limit_range_json({"type": "Pod", "max": {"cpu": "1"}}))

        async def there():
            return (await cluster.snapshot()).limit_ranges

        await wait_until_true(there, "it is there by now")


GROUP = "/apis/example.com"
READ_IF_SERVED = replace(ODDITIES, read_if_served=True)


def serve_version(server, version):
    """Have the group of the kind in one version; without this there is no group."""

    def answer(document):
        async def answer_discovery(server, request):
            return web.json_response(document)

        return deque([answer_discovery] * 1000)

    server.faults[GROUP, "get"] = answer({"versions": [{"version": version}]})
    server.faults[f"{GROUP}/{version}", "get"] = answer({"resources": [{"name": ODDITIES.plural}]})


@pytest.mark.parametrize(
    ("code", "reason", "version", "told"),
    [
        (403, "Forbidden", "v1", ""),
        (404, "NotFoundError", "v1beta1", "oddities.example.com as v1beta1 only: .* must serve v1"),
    ],
)
async def test_requires_an_optional_kind_that_is_served(tmp_path, code, reason, version, told):
    server = LoopbackServer()
    server.objects[ODDITIES.path] = {}
    serve_version(server, version)
    server.faults[ODDITIES.path, "list"] += [refuse(code, reason)] * 1000
    async with watch_loopback(server, tmp_path, kinds=[READ_IF_SERVED], synced=False) as cluster:
        await wait_until_true(cluster.list_problems, "the refusal is told")
        with pytest.raises(UnavailableError, match=f"oddities: not listed yet: .*{told}"):
            await cluster.snapshot()
        # Without the group there can be none of the kind.
        del server.faults[GROUP, "get"]
        await asyncio.wait_for(cluster.wait_until_synced(), 120)
        assert (await cluster.snapshot()).limit_ranges == {}


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFoundError"), (403, "Forbidden")])
async def test_raises_no_snapshot_without_a_required_kind(tmp_path, code, reason):
    server = LoopbackServer()
    server.objects[NEEDED.path] = {}
    server.faults[NEEDED.path, "list"] += [refuse(code, reason)] * 1000
    async with watch_loopback(server, tmp_path, kinds=[NEEDED], synced=False) as cluster:
        await wait_until_true(cluster.list_problems, "the refusal is told")
        with pytest.raises(UnavailableError, match="oddities: not listed yet: "):
            await cluster.snapshot()
        server.faults.clear()
        await asyncio.wait_for(cluster.wait_until_synced(), 120)
        await wait_until_true(lambda: not cluster.list_problems(), "all is well")


async def test_reads_an_incomplete_line_again(tmp_path):
    async def half(server, request):
        response = web.StreamResponse()
        await response.prepare(request)
        await server.put_all(PODS, [pod("whole"), pod("broken")])
        first, second = (line for _, line in server.events_of(PODS)[-2:])
        await response.write(first + second[: len(second) // 2])
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    async with a_cluster(tmp_path, 1) as (server, cluster):
        await wait_until_true(lambda: "watch" in server.verbs(PODS), "the watch is open")
        server.faults[PODS, "watch"] += [half]
        await wait_until_true(lambda: shows(cluster, "broken", "p000", "whole"), "both are seen")
        assert server.verbs(PODS).count("list") == 1
