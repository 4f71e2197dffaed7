"""The findings of a first scan: containers at risk, reclaimable requests, pending pods, slow starts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import explain_startup_cpu_of_new_pod, predict_replacement_pods
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.skip_reason_unlocks import EligibilityInputs
from cruise.decisions.scan.coverage import Coverage, estimate_coverage, sum_coverage
from cruise.decisions.scan.pending_pods import PendingPod, explain_pending_pods
from cruise.decisions.scan.risks import ContainerRisk, rank_risks
from cruise.decisions.scan.waste import (
    ClusterRequestTotals,
    WorkloadRequests,
    estimate_waste,
    list_pod_requests,
)
from cruise.decisions.sizing.node_plans import SizingContext, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import Mode, Policy, StartupPolicy
from cruise.domain.prices import ResourcePrices
from cruise.domain.usage import SampleRejectionReason, StatisticsTable

# A start that needs less more than its size does not wait for CPU noticeably.
LEAST_RATIO = 1.5
LEAST_MILLICORES = 100


@dataclass(frozen=True, slots=True)
class SlowStart:
    """A container that needs more CPU while it starts than afterwards; `pods` are those of its workload.

    A new pod would request `boosted` during its start and `settled` after it with `startup: learn`, in millicores.
    """

    namespace: str
    workload: str  # Kind/name
    container: str
    pods: int
    boosted: int
    settled: int


def find_slow_starts(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime
) -> tuple[SlowStart, ...]:
    """Return the containers whose known starts need far more CPU than their size, largest difference first.

    Workloads that state the CPU of their start are left out, and those whose starts may get no more.
    """
    workloads = _find_candidates(statistics)
    if not workloads:
        return ()
    policy = replace(policy, startup=StartupPolicy.LEARN)
    eligibility = Eligibility(snapshot, statistics, {}, policy, now)
    nodes = NodeIndex(snapshot.known_nodes)
    pods: dict[tuple[str, str], list[Pod]] = {}
    for pod in snapshot.pods:
        key = (pod.namespace, str(pod.workload))
        if pod.workload is not None and key in workloads and not pod.is_finished:
            pods.setdefault(key, []).append(pod)
    found = [
        SlowStart(namespace, workload, step.container, len(group), step.boost.boosted_request, step.boost.request)
        for (namespace, workload), group in pods.items()
        for step in explain_startup_cpu_of_new_pod(group[0], snapshot, eligibility, nodes, policy)
        if step.boost is not None and step.stated.is_learned
    ]
    slow = [
        one
        for one in found
        if one.boosted >= LEAST_RATIO * one.settled and one.boosted - one.settled >= LEAST_MILLICORES
    ]
    return tuple(sorted(slow, key=lambda one: (one.settled - one.boosted, one.namespace, one.workload, one.container)))


def _find_candidates(statistics: StatisticsTable) -> set[tuple[str, str]]:
    """Return the namespaces and workloads of which a container's starts may need that much more than its base."""
    base, start = statistics.cpu_base_millicores, statistics.cpu_start_millicores
    rows = np.flatnonzero((start >= LEAST_RATIO * base) & (start - base >= LEAST_MILLICORES))
    keys = [statistics.keys[row] for row in rows.tolist()]
    return {(key.namespace, key.workload) for key in keys if not key.pod}


@dataclass(frozen=True, slots=True)
class ImplausibleUsage:
    """How many containers had samples rejected for a reason, and the share of a window for the worst of them."""

    reason: SampleRejectionReason
    containers: int
    namespace: str
    pod: str
    container: str
    percent: int


def find_implausible_usage(statistics: StatisticsTable) -> tuple[ImplausibleUsage, ...]:
    """Return the reasons for rejected samples, the one with the most containers first."""
    rows = [row for row in np.flatnonzero(statistics.rejected_percent).tolist() if statistics.keys[row].pod]
    found = []
    for reason in SampleRejectionReason:
        of_reason = [statistic for row in rows if reason in (statistic := statistics.get_row(row)).rejections]
        if of_reason:
            worst = min(of_reason, key=lambda one: (-one.rejected_percent, one.key))
            key = worst.key
            found.append(
                ImplausibleUsage(reason, len(of_reason), key.namespace, key.pod, key.container, worst.rejected_percent)
            )
    return tuple(sorted(found, key=lambda one: -one.containers))


@dataclass(frozen=True, slots=True)
class FindingsBasis:
    """What the findings are based on; times are None without statistics.

    `containers` run on nodes, `known` of them have fresh statistics, `pressure_known` of these with CPU pressure.
    `history_since` is the median start of their histories.
    """

    nodes: int
    pods: int
    containers: int
    known: int
    pressure_known: int
    history_since: datetime | None
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScanFindings:
    """All findings. `full_nodes` cannot hold their pods even after sizing, or only with evictions."""

    at: datetime
    basis: FindingsBasis
    risks: tuple[ContainerRisk, ...]
    workloads: tuple[WorkloadRequests, ...]
    totals: ClusterRequestTotals
    coverage: Coverage
    prices: ResourcePrices
    pending: tuple[PendingPod, ...]
    full_nodes: tuple[str, ...]
    skipped: Mapping[ReasonCode, int]
    implausible: tuple[ImplausibleUsage, ...] = ()
    slow_starts: tuple[SlowStart, ...] = ()


def find_scan_findings(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, prices: ResourcePrices, now: datetime
) -> ScanFindings:
    """Scan a cluster; targets are those of mode `full`, whatever the policy's mode."""
    policy = replace(policy, mode=Mode.FULL)
    plans = decide_node_plans(snapshot, statistics, policy, now, replacements=predict_replacement_pods)
    pods = list_pod_requests(snapshot, plans)
    workloads, totals = estimate_waste(snapshot, statistics, plans, pods)
    coverage = estimate_coverage(
        EligibilityInputs(snapshot, {}, policy),
        statistics,
        now,
        pods,
        SizingContext(replacements=predict_replacement_pods),
    )
    return ScanFindings(
        at=now,
        basis=_build_basis(snapshot, statistics, policy, now),
        risks=rank_risks(snapshot, statistics, plans, policy, now),
        workloads=workloads,
        totals=totals,
        prices=prices,
        pending=explain_pending_pods(snapshot, plans),
        full_nodes=tuple(plan.node for plan in plans if plan.is_full),
        coverage=sum_coverage(coverage.values()),
        skipped=dict(Counter(one.reason for plan in plans for one in plan.skipped).most_common()),
        implausible=find_implausible_usage(statistics),
        slow_starts=find_slow_starts(snapshot, statistics, policy, now),
    )


def _build_basis(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime
) -> FindingsBasis:
    oldest = int((now - policy.max_age).timestamp())
    updated_at, history_since, psi_known = (
        statistics.updated_at.tolist(),
        statistics.history_since.tolist(),
        statistics.psi_known.tolist(),
    )
    pods = containers = 0
    rows = []
    for pod in snapshot.pods:
        if pod.node is None or pod.is_finished:
            continue
        pods += 1
        for container in pod.sized_containers:
            containers += 1
            row = statistics.find_row(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None and updated_at[row] >= oldest:
                rows.append(row)
    starts = sorted(history_since[row] for row in rows if history_since[row])
    newest = max((updated_at[row] for row in rows), default=None)
    return FindingsBasis(
        nodes=len(snapshot.nodes),
        pods=pods,
        containers=containers,
        known=len(rows),
        pressure_known=sum(psi_known[row] for row in rows),
        history_since=datetime.fromtimestamp(starts[len(starts) // 2], now.tzinfo) if starts else None,
        updated_at=datetime.fromtimestamp(newest, now.tzinfo) if newest is not None else None,
    )
