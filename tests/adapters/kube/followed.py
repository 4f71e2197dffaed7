"""A cluster followed by watches, for as long as a test needs it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from cruise.adapters.kube.cluster import KubeCluster
from cruise.adapters.kube.following.watching import Timing
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.domain.cluster import Pod, Snapshot
from cruise.errors import Unavailable
from tests.controlplane.control_plane import ADMIN, ControlPlane

# Kinds of custom resources that nobody has installed on the control plane of the tests.
NOT_INSTALLED = frozenset({"clonesets", "verticalpodautoscalers"})
# Waits that are made for a cluster's years are shortened to what a test can wait for.
SHORT = Timing(
    watch_seconds=1.0,
    trust_seconds=0.3,
    unproved_seconds=2.0,
    grace_seconds=1.0,
    steady_seconds=0.3,
    least_seconds=0.1,
    first_wait_seconds=0.05,
    longest_wait_seconds=0.5,
    missing_wait_seconds=0.5,
)


@asynccontextmanager
async def following(
    plane: ControlPlane, timing: Timing | None = None, user: str = ADMIN.name, timeout_seconds: float = 30, **more: Any
) -> AsyncIterator[KubeCluster]:
    """Yield a cluster in step with the control plane."""
    async with connect(KubeSettings(plane.kubeconfig(user), timeout_seconds=timeout_seconds)) as client:
        cluster = KubeCluster(client, timing=timing, **more)
        running = asyncio.ensure_future(cluster.run())
        try:
            await asyncio.wait_for(cluster.synced(), 60)
            yield cluster
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def eventually(check: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Wait until `check`, which may be a coroutine function, returns something true, and return it."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(0.02)


async def snapshot_or_none(cluster: KubeCluster) -> Snapshot | None:
    """Return a snapshot, None where the cluster has lost touch."""
    try:
        return await cluster.snapshot()
    except Unavailable:
        return None


async def pods_in(cluster: KubeCluster, namespace: str) -> list[Pod]:
    """Return the pods of a namespace as a snapshot has them."""
    return [pod for pod in (await cluster.snapshot()).pods if pod.namespace == namespace]
