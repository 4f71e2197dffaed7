"""Admission of one pod: its workload's statistics and the cluster around it in, the pod as it is created out."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.admission import Leave, Mutate, admitted, decide_admission, original_amounts
from cruise.decisions.scope import Scope, StoredOverrides
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import ORIGINAL_RESOURCES
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import StatisticsTable
from cruise.kube_json.original_resources import format_original_resources


class Admitter:
    """Admits pods under one state of cluster, statistics and overrides; prepared once, for many pods."""

    def __init__(
        self,
        snapshot: Snapshot,
        statistics: StatisticsTable,
        stored: StoredOverrides,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._scope = Scope(snapshot, statistics, stored, policy, now)
        self._snapshot = snapshot
        self._statistics = statistics
        self._policy = policy

    def admit(self, pod: Pod) -> tuple[Pod, Mutate | Leave]:
        """Return the pod as it is created under the policy, and the decision."""
        snapshot = self._snapshot
        decision = decide_admission(
            pod,
            self._scope,
            self._statistics,
            snapshot.nodes,
            snapshot.limit_ranges.get(pod.namespace, ()),
            self._policy,
        )
        if isinstance(decision, Leave) or self._policy.mode < Mode.INITIAL:
            return pod, decision
        return admitted(pod, decision, _annotations(pod, decision)), decision


def admit_pod(
    pod: Pod,
    snapshot: Snapshot,
    statistics: StatisticsTable,
    stored: StoredOverrides,
    policy: Policy,
    now: datetime,
) -> tuple[Pod, Mutate | Leave]:
    """Admit a single pod."""
    return Admitter(snapshot, statistics, stored, policy, now).admit(pod)


def _annotations(pod: Pod, decision: Mutate) -> Mapping[str, str]:
    """Keep what the first mutation replaced; a later one must not overwrite it."""
    if ORIGINAL_RESOURCES in pod.annotations:
        return {}
    return {ORIGINAL_RESOURCES: format_original_resources(original_amounts(pod, decision))}
