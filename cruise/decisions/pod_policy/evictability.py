"""Which pods may be evicted: everything that protects a pod, and how PodDisruptionBudgets count."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cruise.decisions.scheduling.placements import SelectorIndex
from cruise.domain.annotations import CONTROLLER_REVISION, EVICTION_PROTECTION, EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Pod, PodDisruptionBudget, QosClass, WorkloadRef
from cruise.domain.pod_resources import requests_devices
from cruise.domain.policy import DEFAULT_RULES, EnabledRules, EvictionRanking, Mode
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import StatisticsTable


class DisruptionBudgetIndex:
    """PodDisruptionBudgets, indexed by a label that they require; pods with equal labels share a result."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = tuple(budgets)
        self._index: dict[str, SelectorIndex[int]] = {}
        for number, budget in enumerate(self._budgets):
            self._index.setdefault(budget.namespace, SelectorIndex()).add(budget.selector, number)
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], tuple[PodDisruptionBudget, ...]] = {}

    def find_for_pod(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that an eviction of the pod counts against, in the given order."""
        index = self._index.get(pod.namespace)
        if index is None:
            return ()
        key = (pod.namespace, frozenset(pod.labels.items()))
        found = self._known.get(key)
        if found is None:
            candidates = [self._budgets[number] for number in sorted(index.find_candidates(pod.labels))]
            found = self._known[key] = tuple([one for one in candidates if one.selector.matches(pod.labels)])
        return found

    def find_exceeded(self, pods: Iterable[Pod]) -> list[tuple[PodDisruptionBudget, int]]:
        """Return the budgets that do not allow evicting all of these pods, with how many of them they cover."""
        counts = Counter(budget for pod in pods for budget in self.find_for_pod(pod))
        found = [(budget, covered) for budget, covered in counts.items() if covered > budget.disruptions_allowed]
        return sorted(found, key=lambda entry: (entry[0].namespace, entry[0].name))


class Evictability:
    """The eviction rules for one snapshot; pods with equal labels share results."""

    def __init__(self, snapshot: ClusterSnapshot, rules: EnabledRules = DEFAULT_RULES) -> None:
        self._snapshot = snapshot
        self._has_safeguards = rules.eviction_safeguards
        self._budgets = DisruptionBudgetIndex(snapshot.budgets)
        self._deleting = frozenset(node.name for node in snapshot.nodes if node.deleting)
        self._updated_on_delete = {key: one for key, one in snapshot.workloads.items() if one.revision_on_delete}
        self._pods_of_workload: Counter[tuple[str, WorkloadRef]] | None = None
        self._unready: dict[tuple[str, WorkloadRef], str] | None = None

    def get_ranking(self, pod: Pod, effective_policy: EffectivePolicy) -> EvictionRanking:
        """Return the configured ranking; by default medium for StatefulSets and single replicas, low for others."""
        if effective_policy.ranking is not None:
            return effective_policy.ranking
        ref = pod.workload
        is_single = ref is None or ref.kind == "StatefulSet" or self._count_replicas(pod.namespace, ref) <= 1
        return EvictionRanking.MEDIUM if is_single else EvictionRanking.LOW

    def explain_not_evictable(self, pod: Pod, effective_policy: EffectivePolicy) -> str | None:
        """Return why the pod's effective policy or protection forbids an eviction, None if it may be evicted."""
        if effective_policy.ranking is EvictionRanking.NEVER:
            return ReasonDetailCode.RANKING_NEVER
        if effective_policy.mode < Mode.FULL:
            return ReasonDetailCode.MODE_WITHOUT_EVICTIONS.create(effective_policy.mode.label)
        if pod.node in self._deleting:
            return ReasonDetailCode.NODE_BEING_DELETED
        if self._has_safeguards and pod.runs_to_completion and effective_policy.ranking is not EvictionRanking.LOW:
            return ReasonDetailCode.JOB
        return self.explain_protection(pod)

    def explain_not_evictable_for_sizing(
        self, pod: Pod, effective_policy: EffectivePolicy, *, killed: bool = False
    ) -> str | None:
        """Return why a pod is not evicted to relieve its node or to get a larger size, None if it may be.

        A device may be free on no other node, and a Guaranteed pod uses nothing that others request; one that was
        `killed` for lack of memory may get more elsewhere. Packing plans may move both: they place what they move.
        """
        if self._has_safeguards and effective_policy.ranking is None:
            if requests_devices(pod):
                return ReasonDetailCode.DEVICES
            if pod.qos is QosClass.GUARANTEED and not killed:
                return ReasonDetailCode.GUARANTEED
        return self.explain_not_evictable(pod, effective_policy)

    def explain_not_evictable_now(self, pod: Pod) -> str | None:
        """Return why an eviction is forbidden at present: a disruption budget, or a replica that is not ready."""
        if not self._has_safeguards:
            return None
        budget = self.find_exhausted_budget(pod)
        if budget is not None:
            return ReasonDetailCode.BUDGET_EXHAUSTED.create(f"PodDisruptionBudget {budget}")
        unready = self._find_unready_replica(pod)
        return None if unready is None else ReasonDetailCode.REPLICA_NOT_READY.create(unready)

    def explain_protection(self, pod: Pod) -> str | None:
        """Return what protects a pod from eviction regardless of its effective policy, None if nothing does."""
        if pod.owner_kind is None or pod.is_mirror_pod:
            return ReasonDetailCode.NO_CONTROLLER
        if pod.owner_kind == "DaemonSet":
            return ReasonDetailCode.DAEMON_SET
        if pod.pod_group:
            # One pod less may fall below the group's minimum, and a replacement waits for the whole group.
            return ReasonDetailCode.POD_GROUP.create(pod.pod_group)
        revision = self._find_revision_on_delete(pod)
        if revision:
            return ReasonDetailCode.UPDATES_ON_DELETE.create(revision)
        for one in EVICTION_PROTECTION if pod.annotations else ():
            if one.name in pod.annotations and one.read(pod.annotations[one.name]):
                return ReasonDetailCode.PROTECTED.create(f"{one.name}: {pod.annotations[one.name]}")
        budgets = self._budgets.find_for_pod(pod)
        names = ", ".join(sorted(budget.name for budget in budgets)) if len(budgets) > 1 else ""
        return ReasonDetailCode.SEVERAL_BUDGETS.create(names) if names else None

    def find_exhausted_budget(self, pod: Pod) -> str | None:
        """Return the PodDisruptionBudget that allows no eviction of the pod now, None if there is none."""
        for budget in self._budgets.find_for_pod(pod):
            if budget.disruptions_allowed < 1:
                return budget.name
        return None

    def _find_revision_on_delete(self, pod: Pod) -> str:
        """Return the revision to which an eviction would update a pod that its owner updates by hand; empty if none."""
        if not self._updated_on_delete or not self._has_safeguards or pod.workload is None:
            return ""
        workload = self._updated_on_delete.get((pod.namespace, pod.workload))
        revision = "" if workload is None else workload.revision_on_delete
        return "" if revision == pod.labels.get(CONTROLLER_REVISION, revision) else revision

    def _find_unready_replica(self, pod: Pod) -> str | None:
        """Return the first replica of the pod's workload that is pending or not ready, None if there is none."""
        if self._unready is None:
            self._unready = {}
            for one in self._snapshot.pods:
                if one.workload is not None and not (one.ready and one.node is not None) and _is_active_replica(one):
                    self._unready.setdefault((one.namespace, one.workload), one.name)
        return None if pod.workload is None else self._unready.get((pod.namespace, pod.workload))

    def _count_replicas(self, namespace: str, ref: WorkloadRef) -> int:
        workload = self._snapshot.workloads.get((namespace, ref))
        if workload is not None and workload.replicas is not None:
            return workload.replicas
        if self._pods_of_workload is None:
            self._pods_of_workload = Counter(
                (pod.namespace, pod.workload)
                for pod in self._snapshot.pods
                if pod.workload is not None and not pod.is_finished
            )
        return self._pods_of_workload[namespace, ref]


def _is_active_replica(pod: Pod) -> bool:
    """Return whether a pod still is one of its workload's replicas."""
    return not pod.is_finished and not pod.terminating


def is_node_bound_pod(pod: Pod) -> bool:
    """Return whether a pod belongs to its node, so that it does not keep the node in use."""
    return pod.is_mirror_pod or pod.owner_kind == "DaemonSet"


def estimate_daemonset_requests(
    snapshot: ClusterSnapshot, statistics: StatisticsTable
) -> Mapping[tuple[str, str], Resources]:
    """Return what a pod of each DaemonSet may come to request, by namespace and workload.

    For each container that is its template's request, or its largest peak on any node: node autoscalers assume that a
    new node runs the same pods as the present ones. A DaemonSet whose template fits no known node runs nowhere.
    """
    sizes = frozenset(node.allocatable for node in snapshot.known_nodes)
    by_daemonset: dict[tuple[str, str], dict[str, Resources]] = {}
    for (namespace, ref), workload in snapshot.workloads.items():
        if ref.kind != "DaemonSet":
            continue
        stated = {name: one.resources for name, one in (workload.requests or {}).items()}
        main = [one for name, one in stated.items() if name not in workload.init_containers]
        needed = sum(main, NO_RESOURCES)
        if not sizes or any(needed.fits_in(size) for size in sizes):
            by_daemonset[namespace, str(ref)] = stated
    for key, row in statistics.row_of_workload.items() if by_daemonset else ():
        containers = by_daemonset.get((key.namespace, key.workload))
        if containers is not None:
            peak = Resources(int(statistics.cpu_peak_millicores[row]), int(statistics.memory_peak_bytes[row]))
            containers[key.container] = containers.get(key.container, NO_RESOURCES).max_with(peak)
    return {key: sum(containers.values(), NO_RESOURCES) for key, containers in by_daemonset.items()}
