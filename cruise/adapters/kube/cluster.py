"""The Cluster port over a real API server."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote

from cruise.adapters.kube.asking.node_autoscaling import AskedNodeAutoscaler
from cruise.adapters.kube.following.cache import Cache
from cruise.adapters.kube.following.former_nodes import FormerNodes
from cruise.adapters.kube.following.kinds import ALL_KINDS, FIRST_LISTED, NODES, PODS, Kind
from cruise.adapters.kube.following.scales import ScaleReader
from cruise.adapters.kube.following.watch_lines import WatchLines, named, shared
from cruise.adapters.kube.following.watching import KindWatch, Timing
from cruise.adapters.kube.following.written import Place, Written
from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.writing.actions import perform
from cruise.domain.actions import Action
from cruise.domain.cluster import OomKill, Pod, Snapshot
from cruise.domain.policy import NodeAutoscaling
from cruise.errors import BadInput, NotFound, Unavailable
from cruise.kube_json.objects.owners import Owners
from cruise.kube_json.reading.stream import Unreadable
from cruise.kube_json.wire.object_json import NodeObject
from cruise.kube_json.wire.pod_json import PodObject

MOST_LAG_SECONDS = 60.0
_SCALES_SECONDS = 10.0


class KubeCluster:
    """A cluster, kept in memory by watches of its API server for as long as `run` does.

    `may_write` is called with each action right before it is sent: False refuses it. Nothing is decided on old data:
    `snapshot` raises Unavailable where some kind was not known to be in step within the last minute.
    """

    def __init__(
        self,
        client: KubeClient,
        kinds: Collection[Kind] = ALL_KINDS,
        may_write: Callable[[Action], bool] = lambda action: True,
        clock: Callable[[], float] = time.monotonic,
        *,
        timing: Timing | None = None,
        most_lag_seconds: float = MOST_LAG_SECONDS,
        node_autoscaling: NodeAutoscaling = NodeAutoscaling.DETECT,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._most_lag_seconds = most_lag_seconds
        self._cache = Cache()
        self._former_nodes = FormerNodes(clock)
        self._node_autoscaling = node_autoscaling
        self._asked = AskedNodeAutoscaler(client)
        timing = timing or Timing()
        self._lines = WatchLines()
        self._watches = {
            kind.plural: KindWatch(client, kind, self._cache.shelf(kind), timing, clock, self._lines) for kind in kinds
        }
        self._scales = ScaleReader(client, self._cache, clock)
        self._written = Written(self._cache, self._read_ahead)
        self._clock = clock

    @property
    def version(self) -> int:
        """How often what is known has changed."""
        return self._cache.version

    async def run(self) -> None:
        """Keep in step until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for watch in self._watches.values():
                    group.create_task(self._follow(watch), name=f"watch {watch.kind.plural}")
                group.create_task(self._asked.run(), name="node autoscaler")
                group.create_task(self._scales.run(), name="scales")
        finally:
            self._lines.say()

    async def synced(self) -> None:
        """Wait until every kind was listed."""
        for watch in self._watches.values():
            await watch.listed.wait()
        await self._asked.asked.wait()
        # Late answers are not waited for: until they come, the pods that they could concern are held.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SCALES_SECONDS):
                await self._scales.read_due()

    def lag_seconds(self) -> float:
        """How long ago the least fresh kind was last known to be in step; infinite before all were listed."""
        return max(watch.lag_seconds() for watch in self._watches.values())

    def lists(self) -> dict[str, int]:
        """Return how often each kind was listed: more than once where a watch could not go on."""
        return {name: watch.lists for name, watch in self._watches.items()}

    def problems(self) -> list[str]:
        """Return in words, a line, why kinds are not followed now; empty where all is well."""
        found = {name: watch.problem for name, watch in self._watches.items() if watch.problem and not watch.absent}
        return [f"{named(list(found))}: {shared(found)}"] if found else []

    def unreadable(self) -> list[Unreadable]:
        """Return the objects that cannot be decoded and are held apart."""
        return list(self._cache.unreadable())

    def owners(self) -> Owners:
        """Return who controls ReplicaSets and Jobs, for pods that are being created; it stays up to date."""
        return self._cache.owners

    async def snapshot(self) -> Snapshot:
        self._check_in_step()
        await self._written.settle()
        taken_at = self._clock()
        snapshot = self._asked.seen.beside(self._cache.snapshot())
        autoscaler = self._node_autoscaling.settled(snapshot.node_autoscaler)
        # Where nodes do not come by themselves, one that is gone is gone.
        former = () if autoscaler is None else self._former_nodes.beside(snapshot.nodes)
        return replace(snapshot, node_autoscaler=autoscaler, former_nodes=former, taken_at=taken_at)

    async def pod(self, namespace: str, name: str) -> Pod | None:
        document = await self._read_pod(namespace, name)
        try:
            return None if document is None else self._cache.pods.read(document)
        except BadInput as error:
            raise Unavailable(str(error)) from error

    def known_pod(self, namespace: str, name: str) -> Pod | None:
        return self._cache.pods.get(namespace, name)

    def oom_kills(self) -> AsyncGenerator[OomKill, None]:
        return self._cache.oom.kills()

    async def perform(self, action: Action) -> None:
        if not self._may_write(action):
            raise Unavailable("not the leader any more")
        try:
            await perform(self._client, action)
        except Unavailable:
            # It may have been done all the same.
            self._written.add(action, certain=False)
            raise
        self._written.add(action, certain=True)

    def _check_in_step(self) -> None:
        for name, watch in self._watches.items():
            lag = watch.lag_seconds()
            if lag > self._most_lag_seconds:
                because = f": {watch.problem}" if watch.problem else ""
                since = f"not in step for {lag:.0f} s" if watch.listed.is_set() else "not listed yet"
                raise Unavailable(f"{name}: {since}{because}")

    async def _follow(self, watch: KindWatch) -> None:
        if watch.kind == PODS:
            for plural in self._watches.keys() & FIRST_LISTED:
                await self._watches[plural].listed.wait()
        await watch.run()

    async def _read_ahead(self, place: Place) -> None:
        """Read a pod or node that was just written, in front of its watch."""
        plural, namespace, name = place
        kind, watch = (NODES, self._watches["nodes"]) if plural == NODES.plural else (PODS, self._watches["pods"])
        document: PodObject | NodeObject | None
        document = await (self._read_node(name) if kind == NODES else self._read_pod(namespace, name))
        shelf = self._cache.shelf(kind)
        if document is None:
            shelf.forget((namespace, name))
        else:
            shelf.merge(document, watch.version)

    async def _read_node(self, name: str) -> NodeObject | None:
        try:
            answer = await self._client.get(f"{NODES.path}/{quote(name, safe='')}")
        except NotFound:
            return None
        return decoded(answer, NodeObject, f"Node {name}")

    async def _read_pod(self, namespace: str, name: str) -> PodObject | None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        try:
            answer = await self._client.get(path)
        except NotFound:
            return None
        return decoded(answer, PodObject, f"Pod {namespace}/{name}")
