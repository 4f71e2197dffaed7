"""The revert that a person asks for: every pod back to the sizes that it had before cruise."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import msgspec
import structlog

from cruise.decisions.revert import Sizes, decide_reverts
from cruise.domain.actions import OriginalSizes, Outcome, Reason, ResizePod, Verdict
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod
from cruise.domain.original_resources import parse_original_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.writing.writer import Writer

log = structlog.get_logger()


async def revert_pass(
    cluster: Cluster,
    store: Store,
    policy: Policy,
    now: datetime,
    namespace: str | None = None,
) -> list[Outcome]:
    """Put back the original sizes of all pods, or of one namespace's, in place; never evicts.

    Works in any mode and while paused, and lasts only while nothing else writes: pause first, or the next node pass
    undoes it. A grow waits (held, `waiting-for-room`) where its node has no room: try again later. What a resize
    cannot restore is in the outcome's detail. Sorted by namespace and pod. Raises Unavailable.
    """
    snapshot = await cluster.snapshot()
    stored = await store.original_sizes()
    known: dict[str, Sizes] = {}
    outcomes: list[Outcome] = []
    for pod in snapshot.pods:
        try:
            sizes = _original_sizes(pod, stored)
        except (ValueError, msgspec.MsgspecError) as error:
            if namespace in (None, pod.namespace) and not pod.terminal:
                detail = f"annotation {ORIGINAL_RESOURCES}: {error}"
                outcomes.append(Outcome(now, _nothing(pod), Verdict.HELD, Reason.UNREADABLE_ANNOTATION, detail))
            continue
        if sizes is not None:
            known[pod.uid] = sizes
    reversions = decide_reverts(snapshot, known, namespace)
    outcomes += [Outcome(now, one.resize, Verdict.HELD, one.held, one.detail) for one in reversions if one.held]
    tried = [one for one in reversions if one.held is None]
    ended = await Writer(cluster, store, policy).apply([one.resize for one in tried], snapshot, now, asked_for=True)
    for one, outcome in zip(tried, ended, strict=True):
        details = [text for text in (outcome.detail, one.detail) if text]
        outcomes.append(replace(outcome, detail="; ".join(details)))
    log.info("revert", done=sum(one.verdict is Verdict.DONE for one in outcomes), of=len(outcomes))
    return sorted(outcomes, key=_place)


def _original_sizes(pod: Pod, stored: Mapping[str, OriginalSizes]) -> Sizes | None:
    """Return a pod's original sizes: from its annotation, else from the store. Raises what a bad annotation raises."""
    annotation = pod.annotations.get(ORIGINAL_RESOURCES)
    if annotation is not None:
        return parse_original_resources(annotation)
    remembered = stored.get(pod.uid)
    if remembered is None:
        return None
    return {target.container: (target.requests, target.limits) for target in remembered.containers}


def _nothing(pod: Pod) -> ResizePod:
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (), NO_RESOURCES, Reason.REVERTED)


def _place(outcome: Outcome) -> tuple[str, str]:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return (action.namespace, action.pod)
