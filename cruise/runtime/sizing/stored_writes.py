"""What was written before this process began, as far as later passes go by it."""

from dataclasses import replace
from datetime import datetime, timedelta

from cruise.decisions.eviction.earlier import Earlier, PodWrite
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.ports import Store


async def with_stored_writes(earlier: Earlier, store: Store, policy: Policy, now: datetime) -> Earlier:
    """Return what earlier passes saw with each pod's last resize of the last day.

    Which resource it changed is not known: both count as written then.
    """
    if not policy.rules.calm:
        return earlier
    last = {uid: one.at for uid, one in (await store.original_sizes()).items() if now - one.at < timedelta(days=1)}
    resized = {(uid, resource): at for uid, at in last.items() for resource in ResourceName}
    writes = sorted((PodWrite(uid, at) for uid, at in last.items()), key=lambda write: (write.at, write.uid))
    return replace(earlier, resized=resized, writes=tuple(writes))
