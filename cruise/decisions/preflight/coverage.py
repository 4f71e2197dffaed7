"""Which part of the requests cruise could size once usage is known, and what keeps it from the rest."""

from collections.abc import Iterator
from datetime import datetime

from cruise.decisions.pod_policy.unlocks import UNLOCKS, DecisionInputs
from cruise.decisions.preflight.items import CheckItem, CheckLevel
from cruise.decisions.scan.coverage import CoverageGroup, estimate_coverage, sum_coverage
from cruise.decisions.scan.waste import count_requests_at_targets
from cruise.decisions.sizing.node_plans import SizingContext
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_AREA = "coverage"
_MAX_REASONS = 6


def check_coverage(snapshot: ClusterSnapshot, policy: Policy, now: datetime) -> Iterator[CheckItem]:
    """Yield the share of the requests that can be sized, and the reasons with the largest shares of the others."""
    inputs, statistics = DecisionInputs(snapshot, {}, policy.planning_policy), StatisticsTable.from_rows(())
    pods = count_requests_at_targets(snapshot, ())
    if not pods:
        return
    found = sum_coverage(estimate_coverage(inputs, statistics, now, pods, SizingContext()).values())
    # No statistics are read here, so this is the only reason of the pods that can be sized.
    sizable = found.skipped.get(ReasonCode.NO_STATISTICS, CoverageGroup()).requested
    shares = " and ".join(
        f"{100 * sizable.get(one) / max(1, found.requested.get(one)):.0f} % of the requested {name}"
        for one, name in ((ResourceName.CPU, "CPU"), (ResourceName.MEMORY, "memory"))
    )
    words = f"{shares} can be sized once usage is known"
    yield CheckItem(_AREA, "requests", CheckLevel.OK, words, "cruise scan shows what each reason below costs")
    reasons = [reason for reason in found.skipped if reason is not ReasonCode.NO_STATISTICS]
    for reason in reasons[:_MAX_REASONS]:
        group = found.skipped[reason]
        pods_of_reason = f"{group.pods:,} pod{'' if group.pods == 1 else 's'}"
        finding = f"{pods_of_reason}: {_describe_amounts(group.requested)} are skipped"
        yield CheckItem(_AREA, reason.value, CheckLevel.OK, finding, UNLOCKS[reason].description)


def _describe_amounts(amounts: Resources) -> str:
    return f"{amounts.cpu_millicores / 1000:,.2f} cores and {amounts.memory_bytes / (1 << 30):,.2f} GiB"
