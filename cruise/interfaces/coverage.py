"""Coverage in words and as a document: the same lines for scan, dashboard, API and check."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS, SkipReasonUnlock, SkipReasonUnlockKind
from cruise.decisions.scan.coverage import Coverage, CoverageGroup
from cruise.decisions.scan.waste import ClusterRequestTotals
from cruise.domain.actions import ReasonCode
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.reasons import REASON_DESCRIPTIONS
from cruise.interfaces.text import JsonValue, format_cores, format_count, format_gibibytes, format_share

SIZED = "sized"
PARTLY_KNOWN_NOTE = "* without the pods that have no usable statistics, or a second reason"
_FORMATTERS: Mapping[ResourceName, Callable[[int], str]] = {
    ResourceName.CPU: format_cores,
    ResourceName.MEMORY: format_gibibytes,
}


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One line of the coverage: the sized requests, or those skipped for one reason; `total` is all requests."""

    reason: ReasonCode | None
    group: CoverageGroup
    total: Resources

    @property
    def label(self) -> str:
        """The code of the reason, or `sized`."""
        return SIZED if self.reason is None else self.reason.value

    @property
    def description(self) -> str:
        """The description of the reason."""
        return "" if self.reason is None else REASON_DESCRIPTIONS[self.reason]

    @property
    def unlock(self) -> SkipReasonUnlock | None:
        """What makes the requests sized."""
        return None if self.reason is None else UNLOCKS[self.reason]

    @property
    def unlock_description(self) -> str:
        """What makes the requests sized, in words."""
        return "" if self.unlock is None else self.unlock.description

    @property
    def is_partly_known(self) -> bool:
        """Whether the reclaimable amount lacks a part of the requests."""
        return any(self.group.unknown.get(one) and self.group.is_known(one) for one in ResourceName)

    def format_requested(self, resource: ResourceName) -> str:
        """Write the requests of a resource, `–` if there are none."""
        requested = self.group.requested.get(resource)
        return _FORMATTERS[resource](requested) if requested else "–"

    def format_share(self, resource: ResourceName) -> str:
        """Write the share of all requests of a resource, empty if there are none."""
        requested = self.group.requested.get(resource)
        return format_share(requested, self.total.get(resource)) if requested else ""

    def format_reclaimable(self, resource: ResourceName) -> str:
        """Write what is or would be reclaimable: `unknown`, `–` if nothing can be, `1.20*` if partly known."""
        if not self.group.requested.get(resource):
            return "–"
        if not self.group.is_known(resource):
            return "–" if self.unlock is not None and self.unlock.kind is SkipReasonUnlockKind.NOTHING else "unknown"
        amount = _FORMATTERS[resource](self.group.reclaimable.get(resource))
        return f"{amount}*" if self.group.unknown.get(resource) else amount

    @property
    def is_money_known(self) -> bool:
        """Whether a price of the reclaimable amount can be told."""
        return any(self.group.is_known(one) and self.group.requested.get(one) for one in ResourceName)


def list_coverage_rows(coverage: Coverage) -> list[CoverageRow]:
    """Return the sized requests, then the reasons, the one with the largest share of the requests first."""
    total = coverage.requested
    groups = [(None, coverage.sized), *coverage.skipped.items()]
    return [CoverageRow(reason, group, total) for reason, group in groups]


def describe_coverage(coverage: Coverage) -> str:
    """Return how much of the requests is sized, in one clause."""
    requested, sized = coverage.requested, coverage.sized.requested
    cpu, memory = (format_share(sized.get(one), requested.get(one)) for one in ResourceName)
    return f"{cpu} of the requested CPU and {memory} of the requested memory are sized"


def describe_best_effort_pods(totals: ClusterRequestTotals) -> str:
    """Return what pods without requests use, for which kube-scheduler counts nothing; empty without such pods."""
    if not totals.best_effort_pods:
        return ""
    used = totals.used_without_requests
    pods = format_count(totals.best_effort_pods, "pod without requests uses", "pods without requests use")
    return (
        f"{pods} {format_cores(used.cpu_millicores)} cores and {format_gibibytes(used.memory_bytes)} GiB, which "
        "kube-scheduler does not count"
    )


def build_amounts_document(amounts: Resources) -> JsonValue:
    """Return CPU and memory for JSON and YAML."""
    return {"cpuMillicores": amounts.cpu_millicores, "memoryBytes": amounts.memory_bytes}


def build_reclaimable_document(group: CoverageGroup) -> JsonValue:
    """Return the reclaimable amounts; null where nothing is known."""
    return {
        name: group.reclaimable.get(one) if group.is_known(one) else None
        for name, one in (("cpuMillicores", ResourceName.CPU), ("memoryBytes", ResourceName.MEMORY))
    }


def build_unlock_document(unlock: SkipReasonUnlock) -> JsonValue:
    """Return what unlocks a reason; null for a setting or an annotation that is not there."""
    return {
        "kind": unlock.kind.value,
        "setting": unlock.setting or None,
        "value": unlock.value or None,
        "annotation": unlock.annotation or None,
        "description": unlock.description,
    }
