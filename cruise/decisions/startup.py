"""When the CPU that a pod got for its start is taken back: 30 seconds after it became ready."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ReasonCode, RefusedResize, ResizePod
from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.startup_boosts import find_startup_boosts

# A process does its last work of starting, and compiles the first requests, after it reports to be ready.
READY_TIME = timedelta(seconds=30)
# A pod that is not ready by then keeps nothing longer; Deployments count as failed after the same time by default.
LONGEST_START = timedelta(minutes=10)


def get_boost_end(pod: Pod) -> datetime | None:
    """Return when the CPU of a boosted pod is taken back, None if it has not started.

    A restart of a container starts the time after it again, within the longest start of the pod.
    """
    started_at = pod.started_at or pod.ready_since
    if started_at is None:
        return None
    latest = started_at + LONGEST_START
    return latest if pod.ready_since is None else min(latest, pod.ready_since + READY_TIME)


def select_boosted_pods(snapshot: ClusterSnapshot) -> list[Pod]:
    """Return the bound pods that still have the CPU of their start."""
    return [
        pod
        for pod in snapshot.pods
        if STARTUP_BOOST in pod.annotations and pod.node is not None and find_startup_boosts(pod)
    ]


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
        targets = tuple([one.settle(containers[one.container]) for one in find_startup_boosts(pod)])
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
