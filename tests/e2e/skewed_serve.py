"""`cruise serve` on a host with a wrong clock: minutes as argument, or from the file that it names."""

import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from apscheduler.executors import base as executors
from apscheduler.schedulers import base as schedulers

from cruise.adapters.kube import leases
from cruise.app import process, usage_source
from cruise.app.serve import connections, jobs, serve
from cruise.cli import main

_true_time = process.get_current_time


def _wrong_by() -> timedelta:
    stated = sys.argv[1]
    return timedelta(minutes=int(Path(stated).read_text() if Path(stated).is_file() else stated))


def _skewed() -> datetime:
    return _true_time() + _wrong_by()


class _Skewed(datetime):
    """What APScheduler reads the time from."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return _skewed().astimezone(tz)


# Everything that judges by the time of day is handed it by these.
for scheduling in (schedulers, executors):
    scheduling.datetime = _Skewed
for place, name in (
    (serve, "get_current_time"),
    (connections, "get_current_time"),
    (jobs, "get_current_time"),
    (usage_source, "get_current_time"),
    (leases, "_wall_clock"),
):
    assert hasattr(place, name)
    setattr(place, name, _skewed)
sys.exit(main(["serve"]))
