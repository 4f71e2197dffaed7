"""`cruise serve` on a host whose clock is wrong by the minutes given as argument."""

import sys
from datetime import datetime, timedelta

from cruise.adapters.kube.leading import leases
from cruise.app import clock
from cruise.app.serve import connections, serving
from cruise.cli import main

_true_time = clock.wall_clock


def _skewed() -> datetime:
    return _true_time() + timedelta(minutes=int(sys.argv[1]))


# Everything that judges by the time of day is handed it by these; the scheduler of passes only measures how long.
for place, name in ((serving, "wall_clock"), (connections, "wall_clock"), (leases, "_wall_clock")):
    assert hasattr(place, name)
    setattr(place, name, _skewed)
sys.exit(main(["serve"]))
