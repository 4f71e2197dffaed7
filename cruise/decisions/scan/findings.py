"""What a first look at a cluster finds: containers at risk, then waste, then pending pods."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from cruise.decisions.admission.replacing import replacements
from cruise.decisions.scan.implausible import Implausible, find_implausible
from cruise.decisions.scan.pending import PendingPod, explain_pending
from cruise.decisions.scan.risks import Risk, rank_risks
from cruise.decisions.scan.waste import Prices, Totals, WorkloadWaste, estimate_waste
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import Reason
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class Basis:
    """What the findings rest on; times are None where no statistic tells.

    `containers` run on nodes, `known` of them have statistics that are fresh, `pressure_known` of these with CPU
    pressure. `history_since` is when the history of half of the known ones had begun.
    """

    nodes: int
    pods: int
    containers: int
    known: int
    pressure_known: int
    history_since: datetime | None
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Findings:
    """The whole report. `full_nodes` do not hold their pods even after sizing, or only with evictions."""

    at: datetime
    basis: Basis
    risks: tuple[Risk, ...]
    workloads: tuple[WorkloadWaste, ...]
    totals: Totals
    prices: Prices
    pending: tuple[PendingPod, ...]
    full_nodes: tuple[str, ...]
    held: Mapping[Reason, int]
    implausible: tuple[Implausible, ...] = ()


def scan(snapshot: Snapshot, statistics: StatisticsTable, policy: Policy, prices: Prices, now: datetime) -> Findings:
    """Look at a cluster; the recommendations are those of mode `full`, whatever the policy's mode."""
    policy = replace(policy, mode=Mode.FULL)
    plans = decide_node_plans(snapshot, statistics, policy, now, replacements=replacements)
    workloads, totals = estimate_waste(snapshot, statistics, plans)
    return Findings(
        at=now,
        basis=_basis(snapshot, statistics, policy, now),
        risks=rank_risks(snapshot, statistics, plans, policy, now),
        workloads=workloads,
        totals=totals,
        prices=prices,
        pending=explain_pending(snapshot, plans),
        full_nodes=tuple(plan.node for plan in plans if plan.evict or not plan.fits),
        held=dict(Counter(hold.reason for plan in plans for hold in plan.hold).most_common()),
        implausible=find_implausible(statistics),
    )


def _basis(snapshot: Snapshot, statistics: StatisticsTable, policy: Policy, now: datetime) -> Basis:
    oldest = int((now - policy.max_age).timestamp())
    updated, since, psi = (
        statistics.updated_at.tolist(),
        statistics.history_since.tolist(),
        statistics.psi_known.tolist(),
    )
    pods = containers = 0
    rows = []
    for pod in snapshot.pods:
        if pod.node is None or pod.terminal:
            continue
        pods += 1
        for container in pod.sized_containers:
            containers += 1
            row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None and updated[row] >= oldest:
                rows.append(row)
    starts = sorted(since[row] for row in rows if since[row])
    newest = max((updated[row] for row in rows), default=None)
    return Basis(
        nodes=len(snapshot.nodes),
        pods=pods,
        containers=containers,
        known=len(rows),
        pressure_known=sum(psi[row] for row in rows),
        history_since=datetime.fromtimestamp(starts[len(starts) // 2], now.tzinfo) if starts else None,
        updated_at=datetime.fromtimestamp(newest, now.tzinfo) if newest is not None else None,
    )
