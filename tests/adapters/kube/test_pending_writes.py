"""The time between a write and its watch event: wait for the cache, or read the object."""

import asyncio
from dataclasses import replace

import pytest

from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import NODES, PODS
from cruise.adapters.kube.pending_writes import PendingWrites
from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.errors import UnavailableError
from tests.adapters.kube.test_cache import put
from tests.builders import make_container_json, make_node_json, make_pod_json
from tests.simulation.scenes import amounts, evict, resize

OVERLOADED = {"key": "cruise.io/overloaded", "value": "true", "effect": "NoSchedule"}


class Scene:
    """A cache with a pod and a node, and the keys that were read by themselves."""

    def __init__(self, fails: bool = False) -> None:
        self.cache = ClusterCache()
        self.read: list[tuple[str, str, str]] = []
        put(self.cache, make_node_json("n1"), make_pod_json("p", owner=None))
        pod = self.cache.pods.get("shop", "p")
        assert pod is not None
        self.pod = pod
        self._fails = fails
        self.written = PendingWrites(self.cache, self._read, timeout_seconds=0.2)

    async def _read(self, place: tuple[str, str, str]) -> None:
        self.read.append(place)
        if self._fails:
            raise UnavailableError("away")


RESIZED = make_pod_json("p", owner=None, containers=[make_container_json(cpu="300m")])
GOING = make_pod_json("p", owner=None, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        (lambda pod: resize(pod, amounts(300)), RESIZED),
        (lambda pod: resize(pod, amounts(300)), GOING),
        (evict, GOING),
        (evict, make_pod_json("p", owner=None, metadata={"uid": "another"})),
        (lambda pod: TaintNode("n1", ReasonCode.OVERLOADED), make_node_json("n1", taints=[OVERLOADED])),
    ],
    ids=["resize", "resized pod goes", "evict", "replaced", "taint"],
)
async def test_the_watch_is_waited_for(action, shown):
    scene = Scene()
    scene.written.add(action(scene.pod), certain=True)
    asyncio.get_running_loop().call_later(0.05, put, scene.cache, shown)
    await scene.written.settle()
    assert scene.read == []


@pytest.mark.parametrize(
    "action",
    [lambda pod: resize(pod, amounts(300)), evict, lambda pod: TaintNode("n1", ReasonCode.OVERLOADED)],
    ids=["resize", "evict", "taint"],
)
async def test_reads_once_what_the_watch_does_not_show_in_time(action):
    scene = Scene()
    scene.written.add(action(scene.pod), certain=True)
    await scene.written.settle()
    assert len(scene.read) == 1
    await scene.written.settle()
    assert len(scene.read) == 1


async def test_does_not_wait_for_a_write_without_effect():
    scene = Scene()
    scene.written.add(resize(scene.pod, amounts(100)), certain=True)
    scene.written.add(UntaintNode("n1", ReasonCode.LOAD_NORMAL), certain=True)
    await scene.written.settle()
    assert scene.read == []


async def test_a_write_without_an_answer_is_read_whatever_the_watch_shows():
    scene = Scene()
    scene.written.add(resize(scene.pod, amounts(100)), certain=False)
    await scene.written.settle()
    assert scene.read == [("pods", "shop", "p")]


async def test_keeps_all_objects_while_the_server_is_down():
    scene = Scene(fails=True)
    scene.written.add(resize(scene.pod, amounts(300)), certain=True)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await scene.written.settle()
    assert len(scene.read) == 2


async def test_writes_to_other_pods_of_the_name_and_containers_do_not_count():
    scene = Scene()
    scene.written.add(resize(replace(scene.pod, uid="earlier"), amounts(300)), certain=True)
    await scene.written.settle()
    assert scene.read == []
    scene.written.add(resize(scene.pod, amounts(300), name="nobody"), certain=True)
    await scene.written.settle()
    assert len(scene.read) == 1
    assert {NODES.plural, PODS.plural} >= {place[0] for place in scene.read}


async def test_does_not_wait_for_later_writes():
    scene = Scene()
    scene.written.add(resize(scene.pod, amounts(300)), certain=True)
    waiting = asyncio.ensure_future(scene.written.settle())
    await asyncio.sleep(0)
    scene.written.add(resize(scene.pod, amounts(400)), certain=True)
    scene.written.add(TaintNode("n1", ReasonCode.OVERLOADED), certain=True)
    put(scene.cache, RESIZED)
    await waiting
    assert scene.read == []
    await scene.written.settle()
    assert sorted(scene.read) == [("nodes", "", "n1"), ("pods", "shop", "p")]
