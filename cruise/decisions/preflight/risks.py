"""Whether nodes' demand lately kept to the stated risks."""

from collections.abc import Iterator, Mapping

from cruise.decisions.preflight.items import CheckItem, Level
from cruise.decisions.sizing.headroom.risk_level import REPORTED_DAYS, KeptRisk
from cruise.domain.resources import ResourceName

_NAMES = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "memory"}


def risk_items(risks: Mapping[ResourceName, KeptRisk]) -> Iterator[CheckItem]:
    """Yield an item for each resource of which something was seen."""
    for resource, risk in risks.items():
        if not risk.is_known:
            continue
        name = _NAMES[resource]
        words = (
            f"demand for {name} passed the requests of a node's pods in {100 * risk.observed:.2g} % of "
            f"{risk.intervals:,} intervals of the last {REPORTED_DAYS} days, {100 * risk.asked:.2g} % are allowed"
        )
        if risk.is_kept:
            yield CheckItem("headroom", f"{name} risk", Level.OK, words)
        else:
            fix = "none is needed at once: nodes keep more by now; see docs/runbooks.md#cruiseriskabove"
            yield CheckItem("headroom", f"{name} risk", Level.WARN, words, fix)
