"""A controller's activity on a simulated cluster, served by the API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import msgspec
from fastapi import FastAPI

from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.prices import PriceSettings
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import UserAction
from cruise.domain.written_policies import PolicyOwnership
from cruise.errors import ConflictError, CruiseError
from cruise.interfaces.http.api import create_api
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.figures import ControllerFigures, JobFigures, summarize_node_pass
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send
from cruise.interfaces.http.request_guard import (
    CallerAuthority,
    RequestGuardRules,
    StaticTokenAuthority,
    create_allowed_hosts,
    guard_requests,
)
from cruise.interfaces.http.view import WhatIfPort
from cruise.interfaces.http.workload import PodExplainer
from cruise.kube_json.objects.rightsizing_policies import decode_policy
from cruise.kube_json.wire.policy_json import AnyPolicy
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.revert import revert_workload
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store import InMemoryStore
from tests.builders import make_statistic_for
from tests.simulation.scenes import START, cluster, node, pods, workload

NOW = START
TOKEN = "correct horse battery staple of 43 bytes"
FULL = Policy(mode=Mode.FULL)


class PolicyObjects:
    """Implements `PolicyObjectPort` with objects in memory; `missing` are the verbs that cruise lacks."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}
        self.managers: dict[tuple[str, str], frozenset[str]] = {}
        self.missing: set[str] = set()
        self.refusal: CruiseError | None = None
        self._version = 0

    def read(self) -> tuple[RightsizingPolicy, ...]:
        """The policies as cruise watches them."""
        found = [decode_policy(msgspec.convert(one, AnyPolicy)) for one in self.documents.values()]
        return tuple(sorted(found, key=lambda one: one.key))

    def put(self, document: dict[str, Any], manager: str) -> None:
        """Write an object as its manager."""
        self._version += 1
        metadata = {"resourceVersion": str(self._version), "uid": "uid", **document["metadata"]}
        key = metadata.get("namespace", ""), metadata["name"]
        self.documents[key] = {**document, "metadata": metadata}
        self.managers[key] = self.managers.get(key, frozenset()) | {manager}

    async def list_missing_access(self, namespace: str, verbs: tuple[str, ...]) -> Sequence[str]:
        return [verb for verb in verbs if verb in self.missing]

    async def read_ownership(self, namespace: str, name: str) -> PolicyOwnership | None:
        found = self.documents.get((namespace, name))
        if found is None:
            return None
        metadata = found["metadata"]
        marks = {**metadata.get("annotations", {}), **metadata.get("labels", {})}
        return PolicyOwnership("uid", metadata["resourceVersion"], marks, self.managers[namespace, name])

    async def apply(
        self, namespace: str, name: str, document: Mapping[str, Any], before: PolicyOwnership | None
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        await self._require(namespace, name, before)
        self.put(dict(document), "cruise")

    async def delete(self, namespace: str, name: str, before: PolicyOwnership) -> None:
        await self._require(namespace, name, before)
        del self.documents[namespace, name], self.managers[namespace, name]

    async def _require(self, namespace: str, name: str, before: PolicyOwnership | None) -> None:
        if await self.read_ownership(namespace, name) != before:
            raise ConflictError("the object has been modified")


@dataclass
class ApiScene:
    """Implements `ApiView`."""

    world: SimulatedCluster
    store: StorePort = field(default_factory=InMemoryStore)
    policy: Policy = FULL
    authority: CallerAuthority | None = None
    done: NodePassResult | None = None
    leader: bool = True
    consolidation: ConsolidationPassResult | None = None
    what_if_runs: WhatIfPort | None = None
    announced: list[UserAction] = field(default_factory=list)
    prices: PriceSettings = PriceSettings()
    policy_objects: PolicyObjects = field(default_factory=PolicyObjects)

    def now(self) -> datetime:
        return NOW

    def get_figures(self) -> ControllerFigures:
        return ControllerFigures(
            self.policy.mode,
            self.leader,
            (JobFigures("node pass", runs=1, last_ended_at=NOW, last_success_at=NOW),),
            last_pass=summarize_node_pass(self.done) if self.done is not None else None,
            statistics_at=NOW,
            watch_lag_seconds=float("inf"),
            consolidation=self.consolidation,
        )

    def get_last_pass(self) -> NodePassResult | None:
        return self.done

    async def snapshot(self) -> ClusterSnapshot:
        return replace(await self.world.snapshot(), rightsizing_policies=self.policy_objects.read())

    async def statistics(self) -> StatisticsTable:
        return await self.store.read_statistics()

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        return await revert_workload(
            PassContext(self.world, self.store, self.policy, self.world.now), namespace, workload
        )

    async def announce(self, action: UserAction) -> None:
        self.announced.append(action)

    def app(self, allows_anonymous_reads: bool = True, **rules: Any) -> AsgiApp:
        """The API behind its gate."""
        app = guard_requests(
            _api(),
            RequestGuardRules(
                self.authority, create_allowed_hosts(["cruise"]), allows_anonymous_reads=allows_anonymous_reads, **rules
            ),
        )
        return make_view(app, self, ClusterSummaryCache(self), PodExplainer(self))


_looked_at: ContextVar[tuple[object, ...]] = ContextVar("looked_at")


def make_view(app: AsgiApp, *parts: object) -> AsgiApp:
    """Have requests to an app made of `present` look at these parts."""

    async def looking(scope: Scope, receive: Receive, send: Send) -> None:
        _looked_at.set(parts)
        await app(scope, receive, send)

    return looking


class _Present:
    """A part of what the request under way looks at."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(_looked_at.get()[self._place], name)


def make_present(count: int) -> Sequence[Any]:
    """Stand for so many parts of what is looked at, in an app that all scenes share: to make one takes its time."""
    return [_Present(place) for place in range(count)]


@cache
def _api() -> FastAPI:
    return create_api(*make_present(3))


async def make_busy_scene(token_file: Path | None = None, policy: Policy = FULL) -> ApiScene:
    """Three nodes with five pods, after one pass."""
    nodes = [node(f"n{number}") for number in (1, 2, 3)]
    scene = ApiScene(
        cluster(workload(replicas=5, created_at=START.replace(day=1)), nodes),
        authority=StaticTokenAuthority(token_file) if token_file is not None else None,
        policy=policy,
    )
    rows = [make_statistic_for(pod, updated_at=int(NOW.timestamp())) for pod in await pods(scene.world)]
    await scene.store.write_statistics(StatisticsTable.from_rows(rows))
    scene.done = await run_node_pass(PassContext(scene.world, scene.store, scene.policy, NOW))
    return scene


@asynccontextmanager
async def create_api_client(
    scene: ApiScene, token: str | None = None, **rules: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the scene's API."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    transport = httpx.ASGITransport(scene.app(**rules))
    async with httpx.AsyncClient(transport=transport, base_url="http://cruise/api/v1", headers=headers) as client:
        yield client
