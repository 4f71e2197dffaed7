"""The revert as a command: under a pause, which outlasts it unless it was of one workload alone."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches

from cruise.adapters.kube.cluster import KubeCluster
from cruise.adapters.kube.following.one_time_list import look
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.app.clock import wall_clock
from cruise.app.local_caller import local_caller
from cruise.app.serve.connections import PATIENCE, followed, in_step
from cruise.domain.actions import Outcome
from cruise.domain.callers import Deed, Intervention
from cruise.domain.cluster import Snapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.errors import BadInput
from cruise.runtime.ports import Store
from cruise.runtime.revert import original_sizes_of, revert_pass, revert_workload

# Writers read the pause twice a second; a request under way is given time to end.
_PAUSE_TAKES_HOLD = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Reverted:
    """What came of it; `before` is the cluster as it was, `paused_before` whether it had been paused already."""

    at: datetime
    before: Snapshot
    outcomes: Sequence[Outcome]
    paused_before: bool


async def sized_pods(
    kube: KubeSettings,
    opening: AbstractAsyncContextManager[Store],
    namespace: str | None,
    workload: WorkloadRef | None = None,
) -> int:
    """Count the pods whose original sizes are known. Raises BadInput, Unavailable."""
    async with connect(kube) as client, opening as store:
        snapshot = (await look(client, lambda kind, count: None)).snapshot
        _check_scope(namespace, workload, snapshot)
        stored, keys = await store.original_sizes(), await store.signing_keys()
        return sum(
            original_sizes_of(pod, stored, keys) is not None and not pod.terminal
            for pod in snapshot.pods
            if namespace in (None, pod.namespace) and workload in (None, pod.workload)
        )


async def revert(
    kube: KubeSettings,
    opening: AbstractAsyncContextManager[Store],
    policy: Policy,
    namespace: str | None,
    workload: WorkloadRef | None = None,
) -> Reverted:
    """Pause, and put back the original sizes of all pods or of one namespace's; of one workload's without staying so.

    Raises BadInput, Unavailable.
    """
    async with connect(kube) as client, opening as store:
        # The view of the cluster is retried without end; this request shows at once what is wrong.
        await client.get("/version")
        cluster = KubeCluster(client)
        async with followed(cluster):
            await in_step(cluster, PATIENCE)
            before = await cluster.snapshot()
            _check_scope(namespace, workload, before)
            paused_before = await store.paused()
            caller = local_caller()
            await store.record_intervention(Intervention(wall_clock(), caller, Deed.REVERT, namespace, workload))
            if not paused_before:
                await store.record_intervention(Intervention(wall_clock(), caller, Deed.PAUSE))
                await store.set_paused(True)
                await asyncio.sleep(_PAUSE_TAKES_HOLD.total_seconds())
            now = wall_clock()
            if namespace is None or workload is None:
                return Reverted(now, before, await revert_pass(cluster, store, policy, now, namespace), paused_before)
            outcomes = await revert_workload(cluster, store, policy, now, namespace, workload)
            if not paused_before:
                # The pause was for passes under way, which knew nothing of the mode that is stored now.
                await store.record_intervention(Intervention(wall_clock(), caller, Deed.RESUME))
                await store.set_paused(False)
            return Reverted(now, before, outcomes, paused_before)


def _check_scope(namespace: str | None, workload: WorkloadRef | None, snapshot: Snapshot) -> None:
    names = sorted({pod.namespace for pod in snapshot.pods})
    if namespace is not None and namespace not in names:
        alike = get_close_matches(namespace, names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        raise BadInput(f"the cluster has no pod in namespace {namespace}{hint}")
    found = sorted({str(pod.workload) for pod in snapshot.pods if pod.namespace == namespace and pod.workload})
    if workload is not None and str(workload) not in found:
        alike = get_close_matches(str(workload), found, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        raise BadInput(f"namespace {namespace} has no pod of {workload}{hint}")
