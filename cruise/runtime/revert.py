"""The revert that a person asks for: pods back to the sizes that they had before cruise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.decisions.revert import OriginalSizesByUid, decide_reverts
from cruise.domain.actions import ActionResult, OriginalSizes, Outcome, ReasonCode, ResizePod
from cruise.domain.annotations import ORIGINAL_RESOURCES, Overrides
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.original_resources import read_signed_original_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()


async def run_revert_pass(
    cluster: ClusterPort,
    store: StorePort,
    policy: Policy,
    now: datetime,
    namespace: str | None = None,
    workload: WorkloadRef | None = None,
    writer: ClusterWriter | None = None,
) -> list[Outcome]:
    """Put back the original sizes of all pods, of one namespace's or of one workload's, in place; never evicts.

    Works in any mode and while paused, and lasts only while nothing else writes: pause first, or the next node pass
    undoes it. A grow waits (held, `waiting-for-capacity`) where its node has no room: try again later. What a resize
    cannot restore is in the outcome's detail. Sorted by namespace and pod, and all of it in the audit. `writer` is one
    of this process's, where others of it write too. Raises Unavailable.
    """
    snapshot = await cluster.snapshot()
    stored, keys = await store.original_sizes(), await store.signing_keys()
    known: dict[str, OriginalSizesByUid] = {}
    outcomes: list[Outcome] = []
    for pod in snapshot.pods:
        if namespace not in (None, pod.namespace) or workload not in (None, pod.workload):
            continue
        sizes = get_original_sizes(pod, stored, keys)
        if sizes is not None:
            known[pod.uid] = sizes
        elif ORIGINAL_RESOURCES in pod.annotations and not pod.is_finished:
            outcomes.append(Outcome(now, _nothing(pod), ActionResult.SKIPPED, ReasonCode.UNSIGNED_ANNOTATION))
    reversions = decide_reverts(snapshot, known)
    outcomes += [
        Outcome(now, one.resize, ActionResult.SKIPPED, one.skipped, one.detail) for one in reversions if one.skipped
    ]
    await store.record_outcomes(outcomes)
    tried = [one for one in reversions if one.skipped is None]
    writer = writer or ClusterWriter(cluster, store, policy)
    ended = await writer.apply_plan([one.resize for one in tried], snapshot, now, user_requested=True)
    for one, outcome in zip(tried, ended, strict=True):
        details = [text for text in (outcome.detail, one.detail) if text]
        outcomes.append(replace(outcome, detail="; ".join(details)))
    log.info("revert", done=sum(one.result is ActionResult.DONE for one in outcomes), of=len(outcomes))
    return sorted(outcomes, key=_place)


async def revert_workload(
    cluster: ClusterPort,
    store: StorePort,
    policy: Policy,
    now: datetime,
    namespace: str,
    workload: WorkloadRef,
    writer: ClusterWriter | None = None,
) -> list[Outcome]:
    """Leave one workload alone from now on, by a stored mode `observe`, and revert its pods as `revert_pass` does.

    What else is stored for it stays. Raises Unavailable.
    """
    stored = (await store.overrides()).get((namespace, workload), Overrides())
    # First, so that no pass that begins from now on sizes what is put back.
    mode = Mode.OBSERVE if stored.mode is None else min(stored.mode, Mode.OBSERVE)
    await store.put_override(namespace, workload, replace(stored, mode=mode))
    return await run_revert_pass(cluster, store, policy, now, namespace, workload, writer)


def collect_original_sizes(
    snapshot: ClusterSnapshot, stored: Mapping[str, OriginalSizes], signing_keys: Sequence[bytes]
) -> dict[str, OriginalSizesByUid]:
    """Return the original sizes that are known, by pod uid."""
    sizes = {pod.uid: get_original_sizes(pod, stored, signing_keys) for pod in snapshot.pods}
    return {uid: one for uid, one in sizes.items() if one is not None}


def get_original_sizes(
    pod: Pod, stored: Mapping[str, OriginalSizes], signing_keys: Sequence[bytes]
) -> OriginalSizesByUid | None:
    """Return a pod's original sizes: from the store, else from an annotation that the webhook signed."""
    remembered = stored.get(pod.uid)
    if remembered is None:
        return read_signed_original_resources(pod, signing_keys)
    return {target.container: (target.requests, target.limits) for target in remembered.containers}


def _nothing(pod: Pod) -> ResizePod:
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (), NO_RESOURCES, ReasonCode.REVERTED)


def _place(outcome: Outcome) -> tuple[str, str]:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return (action.namespace, action.pod)
