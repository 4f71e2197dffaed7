"""The revert that a user requests: pods get the requests back that they had before cruise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from cruise.decisions.revert import OriginalSizesByUid, decide_reverts
from cruise.decisions.sizing.resizes import build_resize
from cruise.domain.actions import ActionResult, OriginalSizes, Outcome, ReasonCode, ResizePod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.original_resources import read_signed_original_resources
from cruise.domain.resources import NO_RESOURCES
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()


async def run_revert_pass(
    inputs: PassContext,
    namespace: str | None = None,
    workload: WorkloadRef | None = None,
    writer: ClusterWriter | None = None,
) -> list[Outcome]:
    """Restore in place the original sizes of all pods, of one namespace or of one workload; never evicts.

    Works in any mode and while paused, but later passes of the controller resize the pods again: pause first. An
    increase without free capacity on its node is skipped with `waiting-for-capacity`: try again later. The outcome's
    detail names what a resize cannot restore. Outcomes are sorted by namespace and pod, and are in the audit. `writer`
    is one of this process's, if it has others. Raises UnavailableError.
    """
    store, now = inputs.store, inputs.now
    snapshot = await inputs.cluster.snapshot()
    stored, keys = await read_stored_original_sizes(store, snapshot)
    known: dict[str, OriginalSizesByUid] = {}
    outcomes: list[Outcome] = []
    for pod in snapshot.pods:
        if namespace not in (None, pod.namespace) or workload not in (None, pod.workload):
            continue
        sizes = get_original_sizes(pod, stored, keys)
        if sizes is not None:
            known[pod.uid] = sizes
        elif ORIGINAL_RESOURCES in pod.annotations and not pod.is_finished:
            nothing = build_resize(pod, (), NO_RESOURCES, ReasonCode.REVERTED)
            outcomes.append(Outcome(now, nothing, ActionResult.SKIPPED, ReasonCode.UNSIGNED_ANNOTATION))
    reverts = decide_reverts(snapshot, known)
    outcomes += [
        Outcome(now, one.resize, ActionResult.SKIPPED, one.skipped, one.detail) for one in reverts if one.skipped
    ]
    await store.record_outcomes(outcomes)
    attempted = [one for one in reverts if one.skipped is None]
    writer = writer or ClusterWriter(inputs.cluster, store, inputs.policy)
    results = await writer.apply_plan([one.resize for one in attempted], snapshot, now, user_requested=True)
    for one, outcome in zip(attempted, results, strict=True):
        details = [text for text in (outcome.detail, one.detail) if text]
        outcomes.append(replace(outcome, detail="; ".join(details)))
    log.info("revert", done=sum(one.result is ActionResult.DONE for one in outcomes), of=len(outcomes))
    return sorted(outcomes, key=_get_sort_key)


async def revert_workload(
    inputs: PassContext,
    namespace: str,
    workload: WorkloadRef,
    writer: ClusterWriter | None = None,
) -> list[Outcome]:
    """Pause one workload, and revert its pods as `run_revert_pass` does. Raises UnavailableError."""
    # First, so that no later pass resizes the reverted pods.
    await inputs.store.write_workload_pause(namespace, workload, inputs.now)
    return await run_revert_pass(inputs, namespace, workload, writer)


async def read_stored_original_sizes(
    store: StorePort, snapshot: ClusterSnapshot
) -> tuple[Mapping[str, OriginalSizes], Sequence[bytes]]:
    """Return what the database knows of the original sizes of a snapshot's pods: by uid, and the signing keys."""
    stored = await store.read_original_sizes([pod.uid for pod in snapshot.pods])
    return stored, await store.read_signing_keys()


def get_original_sizes_by_uid(
    snapshot: ClusterSnapshot, stored: Mapping[str, OriginalSizes], signing_keys: Sequence[bytes]
) -> dict[str, OriginalSizesByUid]:
    """Return the known original sizes by pod uid."""
    sizes = {pod.uid: get_original_sizes(pod, stored, signing_keys) for pod in snapshot.pods}
    return {uid: one for uid, one in sizes.items() if one is not None}


def get_original_sizes(
    pod: Pod, stored: Mapping[str, OriginalSizes], signing_keys: Sequence[bytes]
) -> OriginalSizesByUid | None:
    """Return a pod's original sizes: from the database, otherwise from an annotation that the webhook signed."""
    stored_sizes = stored.get(pod.uid)
    if stored_sizes is None:
        return read_signed_original_resources(pod, signing_keys)
    return {target.container: (target.requests, target.limits) for target in stored_sizes.containers}


def _get_sort_key(outcome: Outcome) -> tuple[str, str]:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return (action.namespace, action.pod)
