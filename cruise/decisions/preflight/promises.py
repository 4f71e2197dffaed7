"""Whether nodes' demand lately kept to the stated risks."""

from collections.abc import Iterator, Mapping

from cruise.decisions.preflight.items import CheckItem, Level
from cruise.decisions.sizing.headroom.promise import Promise
from cruise.domain.resources import ResourceName

_NAMES = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "memory"}
_SETTINGS = {ResourceName.CPU: "headroom_cpu_risk", ResourceName.MEMORY: "headroom_risk"}


def promise_items(promises: Mapping[ResourceName, Promise]) -> Iterator[CheckItem]:
    """Yield an item for each resource of which something was promised, and seen since."""
    for resource, promise in promises.items():
        if not promise.scores:
            continue
        words = (
            f"nodes wanted more {_NAMES[resource]} than was promised in {100 * promise.observed:.2g} % of "
            f"{promise.scores:,} intervals of the last two days, {100 * promise.asked:.2g} % are allowed"
        )
        if promise.drifts:
            fix = "none is needed: these days count by themselves now; see docs/runbooks.md#cruiseheadroomdrifts"
            yield CheckItem("headroom", f"{_NAMES[resource]} risk", Level.WARN, words, fix)
        elif not promise.is_kept:
            fix = f"wait: the headroom follows what was seen; if it stays so, lower {_SETTINGS[resource]}"
            yield CheckItem("headroom", f"{_NAMES[resource]} risk", Level.WARN, words, fix)
        else:
            yield CheckItem("headroom", f"{_NAMES[resource]} risk", Level.OK, words)
