"""Pods through the API, each explained."""

import asyncio

import msgspec
from fastapi import APIRouter, HTTPException, Response

from cruise.decisions.eviction.earlier import SAME_AGAIN
from cruise.decisions.explaining.explanation import Basis, Explanation, basis_of, explain_on
from cruise.decisions.explaining.past import Past, past_of
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.retention import RETENTION
from cruise.interfaces.explain.document import explanation_json
from cruise.interfaces.http.requests import Name, Namespace, failures
from cruise.interfaces.http.sight import SightOf, namespaces_in, seen_part
from cruise.interfaces.http.view import ApiView, in_time
from cruise.runtime.sizing.node_pass import NodePass
from cruise.runtime.sizing.pass_headroom import stored_headroom


class Explanations:
    """Explains pods as the last pass saw them: it is taken again once, for all that are explained until the next one.

    A pod that has changed since is explained by the cluster as it is now, which takes a pass each time; one at a time
    is enough for people.
    """

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._turn = asyncio.Lock()
        self._known: tuple[NodePass, StoredOverrides, Basis] | None = None

    async def of(self, pod: Pod, snapshot: Snapshot) -> Explanation:
        """Explain a pod of the snapshot. Raises Unavailable."""
        last, stored = self._view.last_pass(), await in_time(self._view.store.overrides())
        was = None if last is None else _same(pod, last.snapshot)
        async with self._turn:
            if last is None or was is None:
                basis = await self._basis(snapshot, stored)
            elif self._known is not None and self._known[0] is last and self._known[1] == stored:
                basis = self._known[2]
            else:
                basis = await self._basis(last.snapshot, stored)
                self._known = last, stored, basis
        return await asyncio.to_thread(explain_on, basis, was or pod)

    async def _basis(self, snapshot: Snapshot, stored: StoredOverrides) -> Basis:
        view = self._view
        statistics = await in_time(view.statistics())
        refused = await in_time(view.store.refused_targets())
        headroom = await in_time(stored_headroom(view.store, statistics, view.policy))
        now, last = view.now(), view.last_pass()
        return await asyncio.to_thread(
            basis_of,
            snapshot,
            statistics,
            view.policy,
            now,
            stored=stored,
            refused=refused,
            headroom=headroom,
            earlier=SAME_AGAIN if last is None else last.seen,
        )


def _same(pod: Pod, snapshot: Snapshot) -> Pod | None:
    """Return the pod as a snapshot has it, None where it is not the same there."""
    return next((one for one in snapshot.pods if one.uid == pod.uid and one == pod), None)


def pod_routes(view: ApiView, explanations: Explanations) -> APIRouter:
    """Return the routes under /pods."""
    routes = APIRouter(tags=["pods"])

    @routes.get("/pods/{namespace}/{name}", response_model=dict, responses=failures(403, 404, 422, 503))
    async def pod(sight: SightOf, namespace: Namespace, name: Name) -> Response:
        """Explain a pod as `cruise explain --format json` does, without pods that the caller may not get."""
        await sight.require(namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, name)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{name}")
        past = await _past(view, found)
        document = explanation_json(await explanations.of(found, snapshot), view.now(), past)
        if not await sight.is_whole():
            whole = msgspec.json.decode(document)
            seen = await sight.of(namespaces_in(whole))
            document = msgspec.json.encode(whole if seen is None else seen_part(whole, seen))
        return Response(document, media_type="application/json")

    return routes


async def _past(view: ApiView, pod: Pod) -> Past:
    now = view.now()
    workload = str(pod.workload) if pod.workload is not None else ""
    since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return past_of(
        pod.namespace,
        pod.name,
        workload,
        pod.identity,
        await in_time(view.store.outcomes_of_pod(pod.namespace, pod.name, now - RETENTION.outcomes)),
        await in_time(view.store.oom_records(now - RETENTION.oom_records)),
        await in_time(view.store.hourly_peaks(pod.namespace, pod.workload_name, since_hour)),
    )
