"""How long each kind of record is kept."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Retention:
    """The age past which `Store.prune` drops a record."""

    sample_blocks: timedelta = timedelta(minutes=70)  # the 60-minute window and two passes
    hourly_peaks: timedelta = timedelta(days=8)  # the 7-day windows and the hours of a day on either side
    oom_records: timedelta = timedelta(days=8)
    statistics: timedelta = timedelta(days=8)
    partitions: timedelta = timedelta(days=8)  # nothing left to continue from: read anew
    outcomes: timedelta = timedelta(days=30)
    interventions: timedelta = timedelta(days=90)
    refused_targets: timedelta = timedelta(days=1)
    original_sizes: timedelta = timedelta(days=90)  # since the pod's last resize; few pods live as long unchanged
    signing_key: timedelta = timedelta(days=30)  # then another one signs; it is dropped `original_sizes` later
    risk_days: timedelta = timedelta(days=29)  # the level of headroom, and how risks were kept
    cluster_hours: timedelta = timedelta(days=90)  # a row an hour
    packing_plans: timedelta = timedelta(days=1)  # one may be of thousands of moves


RETENTION = Retention()
