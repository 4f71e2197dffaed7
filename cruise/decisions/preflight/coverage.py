"""Which part of the requests cruise sizes, or could size once usage is known, and what keeps it from the rest."""

from collections.abc import Iterator
from datetime import datetime

from cruise.decisions.pod_policy.unlocks import UNLOCKS, DecisionInputs
from cruise.decisions.scan.coverage import Coverage, CoverageGroup, estimate_coverage, sum_coverage
from cruise.decisions.scan.waste import count_requests_at_targets
from cruise.decisions.sizing.node_plans import SizingContext, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.preflight import CheckItem, CheckLevel
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_AREA = "coverage"
_MAX_REASONS = 6


def check_coverage(
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime,
    statistics: StatisticsTable | None = None,
    prices: ResourcePrices | None = None,
) -> Iterator[CheckItem]:
    """Yield the share of the requests that is sized, and the reasons with the largest shares of the others.

    With fresh statistics each has what is reclaimable, and its monthly cost if prices are known. Without them the first
    item is what can be sized once usage is known.
    """
    oldest = int((now - policy.max_age).timestamp())
    is_used = statistics is not None and bool((statistics.updated_at >= oldest).any())
    table = statistics if statistics is not None and is_used else StatisticsTable.from_rows(())
    policy = policy.planning_policy
    plans = decide_node_plans(snapshot, table, policy, now) if is_used else ()
    pods = count_requests_at_targets(snapshot, plans)
    if not pods:
        return
    inputs = DecisionInputs(snapshot, {}, policy)
    found = sum_coverage(estimate_coverage(inputs, table, now, pods, SizingContext()).values())
    yield _describe_sized(found, prices) if is_used else _describe_sizable(found)
    hidden = () if is_used else (ReasonCode.NO_STATISTICS,)
    for reason in [one for one in found.skipped if one not in hidden][:_MAX_REASONS]:
        group = found.skipped[reason]
        pods_of_reason = f"{group.pods:,} pod{'' if group.pods == 1 else 's'}"
        finding = f"{pods_of_reason}: {_describe_amounts(group.requested)} are skipped"
        if any(group.is_known(one) and group.requested.get(one) for one in ResourceName) and is_used:
            finding += f"; without the reason, {_describe_reclaimable(group, prices)}"
        yield CheckItem(_AREA, reason.value, CheckLevel.OK, finding, UNLOCKS[reason].description)


def _describe_sized(found: Coverage, prices: ResourcePrices | None) -> CheckItem:
    words = f"{_describe_shares(found.sized, found)} are sized; {_describe_reclaimable(found.sized, prices)}"
    return CheckItem(_AREA, "requests", CheckLevel.OK, words, "cruise scan lists what is reclaimable by workload")


def _describe_sizable(found: Coverage) -> CheckItem:
    # Without statistics this is the only reason of the pods that can be sized.
    sizable = found.skipped.get(ReasonCode.NO_STATISTICS, CoverageGroup())
    words = f"{_describe_shares(sizable, found)} can be sized once usage is known"
    return CheckItem(_AREA, "requests", CheckLevel.OK, words, "cruise scan shows what each reason below costs")


def _describe_shares(group: CoverageGroup, found: Coverage) -> str:
    return " and ".join(
        f"{100 * group.requested.get(one) / max(1, found.requested.get(one)):.0f} % of the requested {name}"
        for one, name in ((ResourceName.CPU, "CPU"), (ResourceName.MEMORY, "memory"))
    )


def _describe_reclaimable(group: CoverageGroup, prices: ResourcePrices | None) -> str:
    amounts = group.reclaimable
    words = f"{_describe_amounts(amounts)} are reclaimable"
    return words if prices is None else f"{words}, about ${prices.compute_monthly_cost(amounts):,.0f} a month"


def _describe_amounts(amounts: Resources) -> str:
    return f"{amounts.cpu_millicores / 1000:,.2f} cores and {amounts.memory_bytes / (1 << 30):,.2f} GiB"
