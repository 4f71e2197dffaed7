"""When the CPU that a pod got for its start is taken back: 30 seconds after it became ready."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.startup_boosts import get_boost_end, has_boost_in_force
from cruise.domain.actions import ReasonCode, RefusedResize, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.startup_boosts import find_startup_boosts


def select_boosted_pods(snapshot: ClusterSnapshot, now: datetime) -> list[Pod]:
    """Return the bound pods that still have the CPU of their start."""
    return [pod for pod in snapshot.pods if pod.node is not None and has_boost_in_force(pod, now)]


def decide_boost_ends(
    pods: list[Pod], eligibility: Eligibility, refused: Mapping[str, RefusedResize], now: datetime
) -> list[ResizePod]:
    """Return the resizes that take back the CPU of boosted pods whose time is over.

    Neither statistics nor write damping matter: the size was decided at creation. A pod that may not be resized any
    more keeps what it has, and so does one with a resize in progress or whose node refused this.
    """
    resizes = []
    for pod in pods:
        end = get_boost_end(pod)
        if end is None or end > now or pod.phase != "Running" or pod.terminating or pod.resize.pending is not None:
            continue
        if eligibility.explain_no_resize(pod) is not None:
            continue
        containers = {one.name: one for one in pod.containers}
        targets = tuple([one.get_sizes_after_start(containers[one.container]) for one in find_startup_boosts(pod)])
        earlier = refused.get(pod.uid)
        if earlier is not None and earlier.containers == targets:
            continue
        resizes.append(
            ResizePod(
                pod.namespace,
                pod.name,
                pod.uid,
                pod.node,
                pod.workload,
                targets,
                NO_RESOURCES,
                ReasonCode.START_COMPLETED,
            )
        )
    return resizes
