"""A cluster that is watched for the duration of a test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.kube.watching import WatchTiming
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.errors import UnavailableError
from tests.controlplane.control_plane import ADMIN, ControlPlane

# Custom resources that are not installed on the control plane of the tests.
NOT_INSTALLED = frozenset({"clonesets", "verticalpodautoscalers", "rightsizingpolicies", "clusterrightsizingpolicies"})
# Waits that are made for a cluster's years are shortened to what a test can wait for.
SHORT = WatchTiming(
    watch_seconds=1.0,
    trust_seconds=0.3,
    unconfirmed_seconds=2.0,
    grace_period_seconds=1.0,
    steady_seconds=0.3,
    min_reopen_seconds=0.1,
    first_retry_seconds=0.05,
    max_retry_seconds=0.5,
    missing_retry_seconds=0.5,
)


@asynccontextmanager
async def run_watch(
    plane: ControlPlane,
    timing: WatchTiming | None = None,
    user: str = ADMIN.name,
    timeout_seconds: float = 30,
    **more: Any,
) -> AsyncIterator[KubernetesCluster]:
    """Yield a cluster in sync with the control plane."""
    async with connect_to_kubernetes(
        KubernetesSettings(plane.kubeconfig(user), timeout_seconds=timeout_seconds)
    ) as client:
        cluster = KubernetesCluster(client, timing=timing, **more)
        running = asyncio.ensure_future(cluster.run())
        try:
            await asyncio.wait_for(cluster.wait_until_synced(), 120)
            yield cluster
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def wait_until_true(check: Callable[[], Any], what: str) -> Any:
    """Wait until `check`, which may be a coroutine function, returns something true, and return it."""
    deadline = asyncio.get_running_loop().time() + 240
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"not within 240 s: {what}"
        await asyncio.sleep(0.02)


async def get_snapshot_or_none(cluster: KubernetesCluster) -> ClusterSnapshot | None:
    """Return a snapshot, None where the cluster has lost touch."""
    try:
        return await cluster.snapshot()
    except UnavailableError:
        return None


async def list_pods(cluster: KubernetesCluster, namespace: str) -> list[Pod]:
    """Return the pods of a namespace as a snapshot has them."""
    return [pod for pod in (await cluster.snapshot()).pods if pod.namespace == namespace]
