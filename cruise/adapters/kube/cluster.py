"""The Cluster port over a real API server."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

from cruise.adapters.kube.actions import perform_action
from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.kinds import (
    ALL_KINDS,
    FIRST_LISTED,
    NODES,
    PODS,
    WatchedKind,
    is_optional_kind_missing,
    list_pages,
)
from cruise.adapters.kube.node_autoscalers import NodeAutoscalerPoller, read_node_autoscaler_objects
from cruise.adapters.kube.object_store import Key, RemovedNodes, get_object_key
from cruise.adapters.kube.pending_writes import ObjectKey, PendingWrites
from cruise.adapters.kube.responses import decode_answer
from cruise.adapters.kube.scales import ScaleReader
from cruise.adapters.kube.watching import KindWatch, WatchLog, WatchTiming, format_kinds, format_shared_problem
from cruise.domain.actions import Action
from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod
from cruise.domain.policy import NodeAutoscalerSetting
from cruise.errors import BadInputError, ExpiredVersionError, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.owners import OwnerIndex
from cruise.kube_json.reading.stream import StreamDecoder, UnreadableObject
from cruise.kube_json.wire.object_json import NodeObject
from cruise.kube_json.wire.pod_json import PodObject

MAX_LAG_SECONDS = 60.0
_SCALES_SECONDS = 10.0


class KubernetesCluster:
    """A cluster, kept in memory by watches of its API server for as long as `run` does.

    `may_write` is called with each action right before it is sent: False refuses it. Nothing is decided on old data:
    `snapshot` raises Unavailable where some kind was not known to be in step within the last minute.
    """

    def __init__(
        self,
        client: KubernetesClient,
        kinds: Collection[WatchedKind] = ALL_KINDS,
        may_write: Callable[[Action], bool] = lambda action: True,
        clock: Callable[[], float] = time.monotonic,
        *,
        timing: WatchTiming | None = None,
        most_lag_seconds: float = MAX_LAG_SECONDS,
        node_autoscaling: NodeAutoscalerSetting = NodeAutoscalerSetting.DETECT,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._most_lag_seconds = most_lag_seconds
        self._cache = ClusterCache()
        self._former_nodes = RemovedNodes(clock)
        self._node_autoscaling = node_autoscaling
        self._asked = NodeAutoscalerPoller(client)
        timing = timing or WatchTiming()
        self._lines = WatchLog()
        self._watches = {
            kind.plural: KindWatch(client, kind, self._cache.get_store(kind), timing, clock, self._lines)
            for kind in kinds
        }
        self._scales = ScaleReader(client, self._cache, clock)
        self._written = PendingWrites(self._cache, self._read_ahead)
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
            self._lines.write()

    async def is_synced(self) -> None:
        """Wait until every kind was listed."""
        for watch in self._watches.values():
            await watch.listed.wait()
        await self._asked.answered.wait()
        # Late answers are not waited for: until they come, the pods that they could concern are held.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SCALES_SECONDS):
                await self._scales.read_if_due()

    def get_lag_seconds(self) -> float:
        """How long ago the least fresh kind was last known to be in step; infinite before all were listed."""
        return max(watch.lag_seconds() for watch in self._watches.values())

    def count_listed(self) -> dict[str, int]:
        """Return how often each kind was listed: more than once where a watch could not go on."""
        return {name: watch.list_count for name, watch in self._watches.items()}

    def problems(self) -> list[str]:
        """Return in words, a line, why kinds are not followed now; empty where all is well."""
        found = {name: watch.problem for name, watch in self._watches.items() if watch.problem and not watch.is_absent}
        return [f"{format_kinds(list(found))}: {format_shared_problem(found)}"] if found else []

    def unreadable(self) -> list[UnreadableObject]:
        """Return the objects that cannot be decoded and are held apart."""
        return list(self._cache.unreadable())

    def get_owner_index(self) -> OwnerIndex:
        """Return who controls ReplicaSets and Jobs, for pods that are being created; it stays up to date."""
        return self._cache.owners

    async def snapshot(self) -> ClusterSnapshot:
        self._check_in_step()
        await self._written.settle()
        taken_at = self._clock()
        snapshot = self._asked.objects.combine(self._cache.snapshot())
        autoscaler = self._node_autoscaling.resolve(snapshot.node_autoscaler)
        # Where nodes do not come by themselves, one that is gone is gone.
        former = () if autoscaler is None else self._former_nodes.get_not_in(snapshot.nodes)
        return replace(snapshot, node_autoscaler=autoscaler, removed_nodes=former, taken_at=taken_at)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        document = await self._read_pod(namespace, name)
        try:
            return None if document is None else self._cache.pods.read(document)
        except BadInputError as error:
            raise UnavailableError(str(error)) from error

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self._cache.pods.get(namespace, name)

    def oom_kills(self) -> AsyncGenerator[OomKill, None]:
        return self._cache.oom_watch.oom_kills()

    async def perform(self, action: Action) -> None:
        if not self._may_write(action):
            raise UnavailableError("not the leader any more")
        try:
            await perform_action(self._client, action)
        except UnavailableError:
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
                raise UnavailableError(f"{name}: {since}{because}")

    async def _follow(self, watch: KindWatch) -> None:
        if watch.kind == PODS:
            for plural in self._watches.keys() & FIRST_LISTED:
                await self._watches[plural].listed.wait()
        await watch.run()

    async def _read_ahead(self, place: ObjectKey) -> None:
        """Read a pod or node that was just written, in front of its watch."""
        plural, namespace, name = place
        kind, watch = (NODES, self._watches["nodes"]) if plural == NODES.plural else (PODS, self._watches["pods"])
        document: PodObject | NodeObject | None
        document = await (self._read_node(name) if kind == NODES else self._read_pod(namespace, name))
        shelf = self._cache.get_store(kind)
        if document is None:
            shelf.clear((namespace, name))
        else:
            shelf.merge(document, watch.version)

    async def _read_node(self, name: str) -> NodeObject | None:
        try:
            answer = await self._client.get(f"{NODES.path}/{quote(name, safe='')}")
        except NotFoundError:
            return None
        return decode_answer(answer, NodeObject, f"Node {name}")

    async def _read_pod(self, namespace: str, name: str) -> PodObject | None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        try:
            answer = await self._client.get(path)
        except NotFoundError:
            return None
        return decode_answer(answer, PodObject, f"Pod {namespace}/{name}")


# A cluster read once, by lists alone: a report needs no watches and no more than read rights.

_PAGE = 500
# A list that outlived its version is begun anew; one that does so again and again will not end.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The cluster, and the objects in it that cannot be read."""

    snapshot: ClusterSnapshot
    unreadable: Sequence[UnreadableObject]


async def read_cluster_once(client: KubernetesClient, on_read: Callable[[str, int], None]) -> ClusterReading:
    """List every kind that decisions read; `on_read` gets the number of objects of a kind so far.

    Raises BadInputError where a kind may not be read, Throttled, Unavailable.
    """
    cache = ClusterCache()
    for stage in (True, False):
        kinds = [kind for kind in ALL_KINDS if (kind.plural in FIRST_LISTED) is stage]
        answers = await asyncio.gather(*(_list(client, kind, cache, on_read) for kind in kinds), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
    await ScaleReader(client, cache, time.monotonic).read_if_due()
    snapshot = (await read_node_autoscaler_objects(client)).combine(cache.snapshot())
    return ClusterReading(snapshot, list(cache.unreadable()))


async def _list(
    client: KubernetesClient, kind: WatchedKind, cache: ClusterCache, on_read: Callable[[str, int], None]
) -> None:
    for _ in range(_TRIES):
        try:
            await _list_once(client, kind, cache, on_read)
        except ExpiredVersionError:
            continue
        except (NotFoundError, RefusedError) as error:
            if await is_optional_kind_missing(client, kind, error):
                return
            if isinstance(error, NotFoundError):
                raise BadInputError(f"the cluster has no {kind.plural}: {error}") from error
            hint = "; deploy/rbac/observe.yaml has all rights that are needed" if error.cause == "Forbidden" else ""
            raise BadInputError(f"{kind.plural} cannot be listed: {error}{hint}") from error
        return
    raise UnavailableError(f"{kind.plural}: the list took longer than the server keeps it, {_TRIES} times in a row")


async def _list_once(
    client: KubernetesClient, kind: WatchedKind, cache: ClusterCache, on_read: Callable[[str, int], None]
) -> None:
    shelf, count = cache.get_store(kind), 0
    names: set[Key] = set()
    async for page in list_pages(client, kind, StreamDecoder(kind.shape), _PAGE):
        for item in (*page.items, *page.unreadable):
            names.add(get_object_key(item))
            shelf.put(item, page.version)
        count += len(page.items) + len(page.unreadable)
        on_read(kind.plural, count)
    shelf.retain(names)
