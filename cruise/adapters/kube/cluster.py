"""The cluster of a real API server: followed by watches, or read once by lists."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

from cruise.adapters.kube.actions import perform_action
from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.discovery import NodeAutoscalerPoller, read_node_autoscaler_objects
from cruise.adapters.kube.kinds import (
    ALL_KINDS,
    FIRST_LISTED,
    NODES,
    PODS,
    WatchedKind,
    explain_unreadable_kind,
    list_pages,
)
from cruise.adapters.kube.object_store import Key, RemovedNodeTypes, get_object_key
from cruise.adapters.kube.pending_writes import ObjectKey, PendingWrites
from cruise.adapters.kube.responses import decode_answer
from cruise.adapters.kube.scales import ScaleReader
from cruise.adapters.kube.watching import BatchedWatchLog, KindWatch, WatchTiming, format_kinds, format_shared_problem
from cruise.domain.actions import Action
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod
from cruise.domain.policy import NodeAutoscalerSetting
from cruise.errors import BadInputError, ExpiredVersionError, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.owners import OwnerIndex
from cruise.kube_json.reading.stream import StreamDecoder, UnreadableObject
from cruise.kube_json.wire.object_json import NodeObject
from cruise.kube_json.wire.pod_json import PodObject

MAX_LAG_SECONDS = 60.0
_SCALES_TIMEOUT_SECONDS = 10.0


class KubernetesCluster:
    """A cluster that is kept in memory by watches while `run` runs.

    Each action is sent only if `may_write` returns True right before. `snapshot` raises UnavailableError if a kind was
    not in sync within the last `max_lag_seconds`.
    """

    def __init__(
        self,
        client: KubernetesClient,
        kinds: Collection[WatchedKind] = ALL_KINDS,
        may_write: Callable[[Action], bool] = lambda action: True,
        clock: Callable[[], float] = time.monotonic,
        *,
        timing: WatchTiming | None = None,
        max_lag_seconds: float = MAX_LAG_SECONDS,
        node_autoscaling: NodeAutoscalerSetting = NodeAutoscalerSetting.DETECT,
    ) -> None:
        self._client = client
        self._may_write = may_write
        self._max_lag_seconds = max_lag_seconds
        self._cache = ClusterCache()
        self._removed_nodes = RemovedNodeTypes(clock)
        self._node_autoscaling = node_autoscaling
        self._node_autoscalers = NodeAutoscalerPoller(client)
        timing = timing or WatchTiming()
        self._log = BatchedWatchLog()
        self._watches = {
            kind.plural: KindWatch(client, kind, self._cache.get_store(kind), timing, clock, self._log)
            for kind in kinds
        }
        self._scales = ScaleReader(client, self._cache, clock)
        self._pending_writes = PendingWrites(self._cache, self._read_ahead)
        self._clock = clock

    @property
    def version(self) -> int:
        """The number of changes to the cached objects."""
        return self._cache.version

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for watch in self._watches.values():
                    group.create_task(self._follow(watch), name=f"watch {watch.kind.plural}")
                group.create_task(self._node_autoscalers.run(), name="node autoscaler")
                group.create_task(self._scales.run(), name="scales")
        finally:
            self._log.write()

    async def wait_until_synced(self) -> None:
        """Wait until every kind is listed."""
        for watch in self._watches.values():
            await watch.listed.wait()
        await self._node_autoscalers.answered.wait()
        # Not waited for longer: pods that a missing scale could concern are skipped until it is read.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SCALES_TIMEOUT_SECONDS):
                await self._scales.read_if_due()

    def get_lag_seconds(self) -> float:
        """Return the age of the least fresh kind; infinite before all kinds are listed."""
        return max(watch.get_lag_seconds() for watch in self._watches.values())

    def count_lists_by_kind(self) -> dict[str, int]:
        """Return how often each kind was listed; more than once if a watch could not continue."""
        return {name: watch.list_count for name, watch in self._watches.items()}

    def list_problems(self) -> list[str]:
        """Return one line that says why kinds are not followed at present; empty if all are."""
        found = {name: watch.problem for name, watch in self._watches.items() if watch.problem and not watch.is_absent}
        return [f"{format_kinds(list(found))}: {format_shared_problem(found)}"] if found else []

    def list_unreadable(self) -> list[UnreadableObject]:
        """Return the objects that cannot be decoded."""
        return list(self._cache.list_unreadable())

    def get_owner_index(self) -> OwnerIndex:
        """Return the controllers of ReplicaSets and Jobs, for pods at admission; it stays up to date."""
        return self._cache.owners

    async def snapshot(self) -> ClusterSnapshot:
        self._check_lag()
        await self._pending_writes.settle()
        taken_at = self._clock()
        snapshot = self._node_autoscalers.objects.combine(self._cache.snapshot())
        autoscaler = self._node_autoscaling.resolve(snapshot.node_autoscaler)
        # Only a node autoscaler adds a node of a removed kind again.
        removed = () if autoscaler is None else self._removed_nodes.get_nodes_of_absent_types(snapshot.nodes)
        return replace(snapshot, node_autoscaler=autoscaler, removed_nodes=removed, taken_at=taken_at)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        document = await self._read_pod(namespace, name)
        try:
            return None if document is None else self._cache.pods.read(document)
        except BadInputError as error:
            raise UnavailableError(str(error)) from error

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        return self._cache.pods.get(namespace, name)

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self._cache.list_autoscalers()

    def watch_oom_kills(self) -> AsyncGenerator[OomKill, None]:
        return self._cache.oom_watch.watch_oom_kills()

    async def wait_for_write_turn(self) -> None:
        await self._client.wait_for_turn()

    async def perform(self, action: Action) -> None:
        if not self._may_write(action):
            raise UnavailableError("no longer the leader")
        try:
            await perform_action(self._client, action)
        except UnavailableError:
            # The server may have received the request.
            self._pending_writes.add(action, certain=False)
            raise
        self._pending_writes.add(action, certain=True)

    def _check_lag(self) -> None:
        for name, watch in self._watches.items():
            lag = watch.get_lag_seconds()
            if lag > self._max_lag_seconds:
                problem = f": {watch.problem}" if watch.problem else ""
                state = f"not in sync for {lag:.0f} s" if watch.listed.is_set() else "not listed yet"
                raise UnavailableError(f"{name}: {state}{problem}")

    async def _follow(self, watch: KindWatch) -> None:
        if watch.kind == PODS:
            for plural in self._watches.keys() & FIRST_LISTED:
                await self._watches[plural].listed.wait()
        await watch.run()

    async def _read_ahead(self, key: ObjectKey) -> None:
        """Read a pod or node after a write, before its watch reports it."""
        plural, namespace, name = key
        kind, watch = (NODES, self._watches["nodes"]) if plural == NODES.plural else (PODS, self._watches["pods"])
        document: PodObject | NodeObject | None
        document = await (self._read_node(name) if kind == NODES else self._read_pod(namespace, name))
        store = self._cache.get_store(kind)
        if document is None:
            store.clear((namespace, name))
        else:
            store.merge(document, watch.version)

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


_PAGE_SIZE = 500
# A list that takes longer than the server keeps its version is started again.
_LIST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ClusterReadResult:
    """A snapshot, and the objects that cannot be decoded."""

    snapshot: ClusterSnapshot
    unreadable: Sequence[UnreadableObject]


async def read_cluster_once(client: KubernetesClient, on_read: Callable[[str, int], None]) -> ClusterReadResult:
    """List every kind that decisions read; `on_read` receives the number of objects of a kind so far.

    Raises BadInputError if a kind may not be listed, ThrottledError and UnavailableError.
    """
    cache = ClusterCache()
    for first in (True, False):
        kinds = [kind for kind in ALL_KINDS if (kind.plural in FIRST_LISTED) is first]
        answers = await asyncio.gather(*(_list(client, kind, cache, on_read) for kind in kinds), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
    await ScaleReader(client, cache, time.monotonic).read_if_due()
    snapshot = (await read_node_autoscaler_objects(client)).combine(cache.snapshot())
    return ClusterReadResult(snapshot, list(cache.list_unreadable()))


async def _list(
    client: KubernetesClient, kind: WatchedKind, cache: ClusterCache, on_read: Callable[[str, int], None]
) -> None:
    for _ in range(_LIST_ATTEMPTS):
        try:
            await _list_once(client, kind, cache, on_read)
        except ExpiredVersionError:
            continue
        except (NotFoundError, RefusedError) as error:
            problem = await explain_unreadable_kind(client, kind, error)
            if problem is None:
                return
            if not isinstance(problem, RefusedError):
                raise BadInputError(f"{kind.plural} cannot be listed: {problem}") from error
            hint = (
                "; deploy/rbac/observe.yaml grants all permissions that are needed"
                if problem.cause == "Forbidden"
                else ""
            )
            raise BadInputError(f"{kind.plural} cannot be listed: {problem}{hint}") from error
        return
    raise UnavailableError(
        f"{kind.plural}: the list took longer than the server keeps it, {_LIST_ATTEMPTS} times in a row"
    )


async def _list_once(
    client: KubernetesClient, kind: WatchedKind, cache: ClusterCache, on_read: Callable[[str, int], None]
) -> None:
    store, count = cache.get_store(kind), 0
    names: set[Key] = set()
    async for page in list_pages(client, kind, StreamDecoder(kind.shape), _PAGE_SIZE):
        for item in (*page.items, *page.unreadable):
            names.add(get_object_key(item))
            store.put(item, page.version)
        count += len(page.items) + len(page.unreadable)
        on_read(kind.plural, count)
    store.retain(names)
