"""How long the CPU that a pod got for its start is in force: until 30 seconds after it became ready, then a while."""

from datetime import datetime, timedelta

from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.cluster import Pod
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME, find_startup_boosts

# What could not be taken back by then, and what a pod has grown to again, is a size like any other.
OVERDUE_TIME = timedelta(hours=1)


def get_boost_end(pod: Pod) -> datetime | None:
    """Return when the CPU of a boosted pod is taken back, None if it has not started.

    A restart of a container starts the time after it again, within the longest start of the pod.
    """
    latest = _get_latest_end(pod)
    if latest is None:
        return None
    return latest if pod.ready_since is None else min(latest, pod.ready_since + READY_TIME)


def has_boost_in_force(pod: Pod, now: datetime) -> bool:
    """Return whether a pod has the CPU of its start, which is no size yet.

    The times of the pod decide as well as its requests: a busy pod may grow to the CPU that it started with.
    """
    if STARTUP_BOOST not in pod.annotations or not find_startup_boosts(pod):
        return False
    latest = _get_latest_end(pod)
    return latest is None or now < latest + OVERDUE_TIME


def _get_latest_end(pod: Pod) -> datetime | None:
    """Return when the longest start of a pod is over, None if it has not started."""
    started_at = pod.started_at or pod.ready_since
    return None if started_at is None else started_at + LONGEST_START
