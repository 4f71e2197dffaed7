"""The pods selected by HPA targets, from the scale subresource of a real API server and from servers without one."""

import json

import pytest

from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.adapters.kube.scales import ScaleReader
from cruise.domain.cluster import WorkloadRef
from cruise.kube_json.objects.scheduling import parse_selector
from cruise.kube_json.reading.stream import StreamDecoder
from cruise.kube_json.wire.object_json import HorizontalAutoscalerObject, VerticalAutoscalerObject
from tests.adapters.kube.answering_server import PreparedAnswer, ReceivedRequest, build_status, create_client
from tests.builders import make_autoscaler_json

CONNECT = ("shop", WorkloadRef("KafkaConnect", "web"))
SERVED = {
    "resources": [{"name": "kafkaconnects/scale", "kind": "Scale"}, {"name": "kafkaconnects", "kind": "KafkaConnect"}]
}
GROUP = "/apis/kafka.strimzi.io/v1beta2"
SCALE = f"{GROUP}/namespaces/shop/kafkaconnects/web/scale"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def cache_with(*targets: str) -> ClusterCache:
    """A cache that knows an autoscaler on each target."""
    cache = ClusterCache()
    [kind] = [one for one in ALL_KINDS if one.plural == "horizontalpodautoscalers"]
    for target in targets:
        document = make_autoscaler_json(target.replace("/", "-").lower(), target=target)
        if not target.startswith("Deployment/"):
            document["spec"]["scaleTargetRef"]["apiVersion"] = "kafka.strimzi.io/v1beta2"
        listed = {"metadata": {"resourceVersion": "1"}, "items": [document]}
        for item in StreamDecoder(HorizontalAutoscalerObject).decode_page(json.dumps(listed).encode()).items:
            cache.get_store(kind).put(item, "1")
    return cache


def answer(document: object) -> PreparedAnswer:
    return PreparedAnswer((json.dumps(document).encode(),))


def respond(selector: str):
    def by_path(asked: ReceivedRequest) -> PreparedAnswer:
        if asked.path == GROUP:
            return answer(SERVED)
        return answer({"status": {"selector": selector}}) if asked.path == SCALE else build_status(404)

    return by_path


async def test_reads_the_scale_of_a_target_of_an_unwatched_kind_periodically(tmp_path):
    cache, clock = cache_with("KafkaConnect/web", "Deployment/web"), Clock()
    async with create_client(tmp_path, respond("strimzi.io/cluster=web")) as (client, server):
        reader = ScaleReader(client, cache, clock)
        version = cache.version
        for _ in range(3):
            await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: parse_selector("strimzi.io/cluster=web")}
        assert cache.version == version + 1
        assert [one.path for one in server.asked] == [GROUP, SCALE]
        clock.seconds = 301
        await reader.read_if_due()
        assert [one.path for one in server.asked][2:] == [SCALE]


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        (lambda asked: build_status(403, 'User "c" cannot get resource "web/scale"'), "cannot get resource"),
        (lambda asked: build_status(500), ""),
        (lambda asked: build_status(401), ""),
        (lambda asked: answer("no document"), ""),
        (respond(""), "its scale has no selector"),
        (respond("a > 1"), "a > 1"),
    ],
)
async def test_reads_a_scale_again_that_the_server_did_not_answer(tmp_path, first, problem):
    cache, clock, now = cache_with("KafkaConnect/web"), Clock(), [first]
    async with create_client(tmp_path, lambda asked: now[0](asked)) as (client, _):
        reader = ScaleReader(client, cache, clock)
        await reader.read_if_due()
        assert cache.snapshot().scales == {}
        unreadable = cache.snapshot().unreadable_scales
        assert unreadable.keys() == ({CONNECT} if problem else set())
        assert problem in unreadable.get(CONNECT, "")
        now[0] = respond("app=web")
        await reader.read_if_due()
        assert cache.snapshot().scales == {}
        clock.seconds = 31
        await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: parse_selector("app=web")}
        assert cache.snapshot().unreadable_scales == {}


@pytest.mark.parametrize("first", [lambda asked: build_status(404), lambda asked: answer({"resources": []})])
async def test_reads_a_missing_scale_again(tmp_path, first):
    cache, clock, now = cache_with("KafkaConnect/web"), Clock(), [first]
    async with create_client(tmp_path, lambda asked: now[0](asked)) as (client, _):
        reader = ScaleReader(client, cache, clock)
        assert CONNECT not in cache.snapshot().scales
        await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: None}
        now[0], clock.seconds = respond("app=web"), 1.5
        await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: parse_selector("app=web")}


async def test_keeps_earlier_answers_while_the_server_is_down(tmp_path):
    cache, clock, now = cache_with("KafkaConnect/web"), Clock(), [respond("app=web")]
    async with create_client(tmp_path, lambda asked: now[0](asked)) as (client, _):
        reader = ScaleReader(client, cache, clock)
        await reader.read_if_due()
        now[0], clock.seconds = (lambda asked: build_status(500)), 301
        await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: parse_selector("app=web")}
        now[0], clock.seconds = (lambda asked: build_status(404)), 332
        await reader.read_if_due()
        assert cache.snapshot().scales == {CONNECT: None}


@pytest.mark.parametrize("api", ["../api/v1/pods?watch=1&a=/v1", "a/../../api/v1", "x?/v1", "a b/v1", "/v1", "v1/"])
async def test_an_api_version_that_is_another_path_is_not_requested(tmp_path, api):
    cache = ClusterCache()
    [kind] = [one for one in ALL_KINDS if one.plural == "verticalpodautoscalers"]
    document = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "v", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"targetRef": {"kind": "KafkaConnect", "name": "web", "apiVersion": api}},
    }
    listed = {"metadata": {"resourceVersion": "1"}, "items": [document]}
    for item in StreamDecoder(VerticalAutoscalerObject).decode_page(json.dumps(listed).encode()).items:
        cache.get_store(kind).put(item, "1")
    async with create_client(tmp_path, respond("a=b")) as (client, server):
        await ScaleReader(client, cache, Clock()).read_if_due()
        assert server.asked == []
        assert cache.snapshot().scales == {CONNECT: None}
