"""Which pods may be evicted: the one home of what protects a pod and of how PodDisruptionBudgets count."""

from collections import Counter

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.domain.annotations import PROTECTIVE, Guidance
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.details import Detail
from cruise.domain.policy import EvictionRanking, Mode
from cruise.domain.rules import DEFAULT_RULES, Rules


class Evictability:
    """The rules on evictions for one snapshot; pods with the same labels share what is found for them."""

    def __init__(self, snapshot: Snapshot, rules: Rules = DEFAULT_RULES) -> None:
        self._snapshot = snapshot
        self._careful = rules.careful_evictions
        self._covering = CoveringBudgets(snapshot.budgets)
        self._deleting = frozenset(node.name for node in snapshot.nodes if node.deleting)
        self._pods_of_workload: Counter[tuple[str, WorkloadRef]] | None = None
        self._unready: dict[tuple[str, WorkloadRef], str] | None = None

    def ranking_of(self, pod: Pod, guidance: Guidance) -> EvictionRanking:
        """Return the stated ranking; by default medium for StatefulSets and single replicas, low for the rest."""
        if guidance.ranking is not None:
            return guidance.ranking
        ref = pod.workload
        single = ref is None or ref.kind == "StatefulSet" or self._replicas(pod.namespace, ref) <= 1
        return EvictionRanking.MEDIUM if single else EvictionRanking.LOW

    def why_kept(self, pod: Pod, guidance: Guidance) -> str | None:
        """Return the detail that forbids an eviction: the guidance, or what protects the pod; None if it may go."""
        if guidance.ranking is EvictionRanking.NEVER:
            return Detail.RANKING_NEVER
        if guidance.mode < Mode.FULL:
            return Detail.MODE_WITHOUT_EVICTIONS.of(guidance.mode.label)
        if pod.node in self._deleting:
            return Detail.NODE_BEING_DELETED
        if self._careful and pod.runs_to_completion and guidance.ranking is not EvictionRanking.LOW:
            return Detail.JOB
        return self.why_protected(pod)

    def why_not_now(self, pod: Pod) -> str | None:
        """Return the detail that forbids an eviction for the moment: a disruption budget, or a replica not ready."""
        if not self._careful:
            return None
        budget = self.exhausted_budget(pod)
        if budget is not None:
            return Detail.BUDGET_EXHAUSTED.of(f"PodDisruptionBudget {budget}")
        unready = self._unready_replica(pod)
        return None if unready is None else Detail.REPLICA_NOT_READY.of(unready)

    def why_protected(self, pod: Pod) -> str | None:
        """Return the detail that protects a pod from eviction whatever its guidance; None where nothing does."""
        if pod.owner_kind is None or pod.mirror:
            return Detail.NO_CONTROLLER
        if pod.owner_kind == "DaemonSet":
            return Detail.DAEMON_SET
        if pod.pod_group:
            # One less may be fewer than the group's minimum, and the replacement waits for that of the whole group.
            return Detail.POD_GROUP.of(pod.pod_group)
        for one in PROTECTIVE:
            if one.name in pod.annotations and one.read(pod.annotations[one.name]):
                return Detail.PROTECTED.of(f"{one.name}: {pod.annotations[one.name]}")
        names = sorted(budget.name for budget in self._covering.of(pod))
        return Detail.SEVERAL_BUDGETS.of(", ".join(names)) if len(names) > 1 else None

    def exhausted_budget(self, pod: Pod) -> str | None:
        """Return the PodDisruptionBudget that allows no eviction of the pod now, None if none forbids it."""
        return next((budget.name for budget in self._covering.of(pod) if budget.disruptions_allowed < 1), None)

    def _unready_replica(self, pod: Pod) -> str | None:
        """Return the first replica of the pod's workload that waits for a node or does not serve, None without one."""
        if self._unready is None:
            self._unready = {}
            for one in self._snapshot.pods:
                if one.workload is not None and not (one.ready and one.node is not None) and _counts(one):
                    self._unready.setdefault((one.namespace, one.workload), one.name)
        return None if pod.workload is None else self._unready.get((pod.namespace, pod.workload))

    def _replicas(self, namespace: str, ref: WorkloadRef) -> int:
        workload = self._snapshot.workloads.get((namespace, ref))
        if workload is not None and workload.replicas is not None:
            return workload.replicas
        if self._pods_of_workload is None:
            self._pods_of_workload = Counter(
                (pod.namespace, pod.workload)
                for pod in self._snapshot.pods
                if pod.workload is not None and not pod.terminal
            )
        return self._pods_of_workload[namespace, ref]


def _counts(pod: Pod) -> bool:
    """Tell whether a pod is one of its workload's replicas still."""
    return not pod.terminal and not pod.terminating
