"""The `revert` command: reverts under a pause, which stays unless one workload is reverted."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster, read_cluster_once
from cruise.app.process import get_current_time, get_local_caller
from cruise.app.serve.connections import SYNC_TIMEOUT, keep_cluster_synced, wait_until_synced
from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.users import UserAction, UserActionKind
from cruise.errors import BadInputError
from cruise.interfaces.text import suggest_similar
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.revert import get_original_sizes, read_stored_original_sizes, revert_workload, run_revert_pass

# Writers read the pause twice a second, and a request in progress needs time to end.
_PAUSE_TAKES_HOLD = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class RevertResult:
    """The result of a revert; `before` is the cluster before it, `paused_before` whether writes were paused already."""

    at: datetime
    before: ClusterSnapshot
    outcomes: Sequence[Outcome]
    was_paused: bool


async def count_resized_pods(
    kube: KubernetesSettings,
    opening: AbstractAsyncContextManager[StorePort],
    namespace: str | None,
    workload: WorkloadRef | None = None,
) -> int:
    """Count the pods whose original sizes are known. Raises BadInputError, UnavailableError."""
    async with connect_to_kubernetes(kube) as client, opening as store:
        snapshot = (await read_cluster_once(client, lambda kind, count: None)).snapshot
        _check_scope(namespace, workload, snapshot)
        stored, keys = await read_stored_original_sizes(store, snapshot)
        return sum(
            get_original_sizes(pod, stored, keys) is not None and not pod.is_finished
            for pod in snapshot.pods
            if namespace in (None, pod.namespace) and workload in (None, pod.workload)
        )


async def revert_under_pause(
    kube: KubernetesSettings,
    opening: AbstractAsyncContextManager[StorePort],
    policy: Policy,
    namespace: str | None,
    workload: WorkloadRef | None = None,
) -> RevertResult:
    """Pause, and revert all pods, those of a namespace, or those of a workload; then only a workload's pause ends.

    Raises BadInputError, UnavailableError.
    """
    async with connect_to_kubernetes(kube) as client, opening as store:
        # Syncing retries without end; this request reports errors immediately.
        await client.get("/version")
        cluster = KubernetesCluster(client)
        async with keep_cluster_synced(cluster):
            await wait_until_synced(cluster, SYNC_TIMEOUT)
            before = await cluster.snapshot()
            _check_scope(namespace, workload, before)
            paused_before = await store.is_paused()
            caller = get_local_caller()
            await store.record_user_action(
                UserAction(get_current_time(), caller, UserActionKind.REVERT, namespace, workload)
            )
            if not paused_before:
                await store.record_user_action(UserAction(get_current_time(), caller, UserActionKind.PAUSE))
                await store.set_paused(True)
                await asyncio.sleep(_PAUSE_TAKES_HOLD.total_seconds())
            now = get_current_time()
            if namespace is None or workload is None:
                return RevertResult(
                    now,
                    before,
                    await run_revert_pass(PassContext(cluster, store, policy, now), namespace),
                    paused_before,
                )
            outcomes = await revert_workload(PassContext(cluster, store, policy, now), namespace, workload)
            if not paused_before:
                # The pause stopped passes in progress, which did not know the new stored mode.
                await store.record_user_action(UserAction(get_current_time(), caller, UserActionKind.RESUME))
                await store.set_paused(False)
            return RevertResult(now, before, outcomes, paused_before)


def _check_scope(namespace: str | None, workload: WorkloadRef | None, snapshot: ClusterSnapshot) -> None:
    names = sorted({pod.namespace for pod in snapshot.pods})
    if namespace is not None and namespace not in names:
        raise BadInputError(f"the cluster has no pod in namespace {namespace}{suggest_similar(namespace, names)}")
    found = sorted({str(pod.workload) for pod in snapshot.pods if pod.namespace == namespace and pod.workload})
    if workload is not None and str(workload) not in found:
        hint = suggest_similar(str(workload), found)
        raise BadInputError(f"namespace {namespace} has no pod of {workload}{hint}")
