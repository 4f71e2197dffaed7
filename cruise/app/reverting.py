"""The revert as a command: the pause first, then the original sizes back in place, then nothing more."""

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
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Policy
from cruise.errors import BadInput
from cruise.runtime.ports import Store
from cruise.runtime.revert import original_sizes_of, revert_pass

# Writers read the pause twice a second; a request under way is given time to end.
_PAUSE_TAKES_HOLD = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Reverted:
    """What came of it; `before` is the cluster as it was, `paused_before` whether it had been paused already."""

    at: datetime
    before: Snapshot
    outcomes: Sequence[Outcome]
    paused_before: bool


async def sized_pods(kube: KubeSettings, opening: AbstractAsyncContextManager[Store], namespace: str | None) -> int:
    """Count the pods whose original sizes are known. Raises BadInput, Unavailable."""
    async with connect(kube) as client, opening as store:
        snapshot = (await look(client, lambda kind, count: None)).snapshot
        _check_namespace(namespace, snapshot)
        stored, keys = await store.original_sizes(), await store.signing_keys()
        return sum(
            original_sizes_of(pod, stored, keys) is not None and not pod.terminal and namespace in (None, pod.namespace)
            for pod in snapshot.pods
        )


async def revert(
    kube: KubeSettings, opening: AbstractAsyncContextManager[Store], policy: Policy, namespace: str | None
) -> Reverted:
    """Pause, and put back the original sizes of all pods or of one namespace's. Raises BadInput, Unavailable."""
    async with connect(kube) as client, opening as store:
        # The view of the cluster is retried without end; this request shows at once what is wrong.
        await client.get("/version")
        cluster = KubeCluster(client)
        async with followed(cluster):
            await in_step(cluster, PATIENCE)
            before = await cluster.snapshot()
            _check_namespace(namespace, before)
            paused_before = await store.paused()
            caller = local_caller()
            await store.record_intervention(Intervention(wall_clock(), caller, Deed.REVERT, namespace))
            if not paused_before:
                await store.record_intervention(Intervention(wall_clock(), caller, Deed.PAUSE))
                await store.set_paused(True)
                await asyncio.sleep(_PAUSE_TAKES_HOLD.total_seconds())
            now = wall_clock()
            outcomes = await revert_pass(cluster, store, policy, now, namespace)
            return Reverted(now, before, outcomes, paused_before)


def _check_namespace(namespace: str | None, snapshot: Snapshot) -> None:
    names = sorted({pod.namespace for pod in snapshot.pods})
    if namespace is not None and namespace not in names:
        alike = get_close_matches(namespace, names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(alike)}?" if alike else ""
        raise BadInput(f"the cluster has no pod in namespace {namespace}{hint}")
