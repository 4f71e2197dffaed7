"""The files that commands read."""

import os
from dataclasses import replace
from datetime import datetime

from cruise.adapters import files
from cruise.cli.terminal import busy, remark
from cruise.decisions.oom import with_shown_kills
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import NodeAutoscaling, Policy
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.missing_kinds import missing_kinds_words

_LARGE_FILE_BYTES = 32 << 20


def is_large(path: str) -> bool:
    """Tell whether reading a file takes long enough to say so."""
    try:
        return os.path.getsize(path) >= _LARGE_FILE_BYTES
    except OSError:
        return False


def load_snapshot(path: str, node_autoscaling: NodeAutoscaling = NodeAutoscaling.DETECT) -> Snapshot:
    """Read a snapshot file, and settle what adds and removes its nodes. Raises BadInput.

    Kinds of objects that it lacks are remarked.
    """
    with busy(f"reading {path}", is_large(path)):
        snapshot = files.load_snapshot(path)
    missing = missing_kinds_words(snapshot, files.shown(path))
    if missing:
        remark(missing)
    return replace(snapshot, node_autoscaler=node_autoscaling.settled(snapshot.node_autoscaler))


def load_usage(path: str, snapshot: Snapshot, now: datetime | None, policy: Policy) -> tuple[StatisticsTable, datetime]:
    """Read a usage file that belongs to a snapshot, and the time that it is judged at. Raises BadInput.

    The snapshot's out-of-memory kills count as well.
    """
    with busy(f"reading {path}", is_large(path)):
        statistics, at = files.load_usage(path, snapshot, now)
    return with_shown_kills(statistics, snapshot, policy, at), at
