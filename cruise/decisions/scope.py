"""Who may be touched: for each pod the guidance that holds for it, or the reason to leave it alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cruise.domain.actions import Hold, Reason
from cruise.domain.cluster import Autoscaler, Container, ContainerRole, Pod, QosClass, Snapshot, WorkloadRef
from cruise.domain.overrides import Guidance, Unreadable, parse_overrides, resolve_guidance
from cruise.domain.policy import NO_OVERRIDES, EvictionRanking, Mode, Overrides, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable

StoredOverrides = Mapping[tuple[str, WorkloadRef], Overrides]
FIRST_RESIZING_KUBELET = (1, 33)

_HOLD_BY_MODE = {Mode.OFF: Reason.MODE_OFF, Mode.OBSERVE: Reason.MODE_OBSERVE, Mode.INITIAL: Reason.MODE_INITIAL}
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
# The newer form of Karpenter's annotation holds a duration: anything but "false" asks to be left in peace.
_DO_NOT_DISRUPT = (
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    "cruisekube.truefoundry.com/do-not-disrupt",
)


@dataclass(frozen=True, slots=True)
class Touchable:
    """A pod that may be resized: its guidance, and for each sized container the row of its statistic.

    `sized` are the main containers and sidecars, in the pod's order; `manages_cpu` and `manages_memory` tell which
    resources are not left to the user or to an autoscaler.
    """

    pod: Pod
    guidance: Guidance
    sized: tuple[Container, ...]
    rows: tuple[int, ...]
    manages_cpu: bool
    manages_memory: bool


class Scope:
    """The rules on who may be touched, prepared for one snapshot; every answer is pure.

    Overrides and autoscalers are resolved once for each workload, since thousands of pods share them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        statistics: StatisticsTable,
        stored: StoredOverrides,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._snapshot = snapshot
        self._statistics = statistics
        self._stored = stored
        self._policy = policy
        self._now_seconds = int(now.timestamp())
        self._oldest_seconds = int((now - policy.max_age).timestamp())
        self._newest_start_seconds = int((now - policy.new_workload_age).timestamp())
        self._updated_at = statistics.updated_at.tolist()
        self._history_since = statistics.history_since.tolist()
        self._autoscaled = _autoscaled_resources(snapshot.autoscalers)
        self._budgets: dict[str, list[int]] = {}
        for index, budget in enumerate(snapshot.budgets):
            self._budgets.setdefault(budget.namespace, []).append(index)
        self._kubelets = {node.name: node.kubelet_version for node in snapshot.nodes}
        self._guidance: dict[tuple[str, WorkloadRef | None], Guidance | Unreadable] = {}
        self._new: dict[tuple[str, WorkloadRef], bool] = {}
        self._pods_of_workload: Counter[tuple[str, WorkloadRef]] | None = None

    def of(self, pod: Pod) -> Touchable | Hold:
        """Tell whether a bound pod may be resized, and under which guidance, or why it is left alone."""
        guidance = self.guidance_of(pod)
        reason = self._why_untouchable(pod, guidance)
        if reason is not None:
            detail = guidance.detail if isinstance(guidance, Unreadable) else ""
            return Hold(pod.namespace, pod.name, reason, detail)
        assert isinstance(guidance, Guidance)
        kubelet = self._kubelets.get(pod.node or "")
        if kubelet is not None and kubelet < FIRST_RESIZING_KUBELET:
            return Hold(pod.namespace, pod.name, Reason.RESIZE_UNSUPPORTED, f"kubelet {kubelet[0]}.{kubelet[1]}")
        return self._with_statistics(pod, guidance)

    def guidance_of(self, pod: Pod) -> Guidance | Unreadable:
        """Resolve the overrides that hold for a pod: its own, its workload's, its namespace's, the stored ones."""
        key = (pod.namespace, pod.workload)
        if pod.annotations:
            return self._resolve(pod.annotations, key)
        known = self._guidance.get(key)
        if known is None:
            known = self._guidance[key] = self._resolve({}, key)
        return known

    def ranking_of(self, pod: Pod, guidance: Guidance) -> EvictionRanking:
        """Return the asked ranking; by default medium for StatefulSets and single replicas, low for the rest."""
        if guidance.ranking is not None:
            return guidance.ranking
        if pod.workload is None or pod.workload.kind == "StatefulSet" or self._replicas(pod) <= 1:
            return EvictionRanking.MEDIUM
        return EvictionRanking.LOW

    def why_unmovable(self, pod: Pod) -> str | None:
        """Tell why no one may evict the pod, whatever its ranking; None if it may be moved."""
        if pod.owner_kind is None or pod.mirror:
            return "no controller would start it again"
        if pod.owner_kind == "DaemonSet":
            return "a DaemonSet pod would come back to the same node"
        if pod.annotations.get(_SAFE_TO_EVICT) == "false":
            return f"annotation {_SAFE_TO_EVICT}: false"
        for key in _DO_NOT_DISRUPT:
            if pod.annotations.get(key, "false") != "false":
                return f"annotation {key}: {pod.annotations[key]}"
        matching = [
            self._snapshot.budgets[index].name
            for index in self._budgets.get(pod.namespace, ())
            if self._snapshot.budgets[index].selector.selects(pod.labels)
        ]
        if len(matching) > 1:
            return f"more than one PodDisruptionBudget ({', '.join(sorted(matching))})"
        return None

    def why_untouchable_at_admission(self, pod: Pod, guidance: Guidance | Unreadable) -> Reason | None:
        """Tell why a pod that is being created is left as it is, statistics apart."""
        return self._why_untouchable(pod, guidance, needs=Mode.INITIAL)

    def managed(self, pod: Pod, guidance: Guidance) -> frozenset[ResourceName]:
        """Return the resources that neither an override nor an autoscaler takes from cruise."""
        if pod.workload is None:
            return guidance.resources
        return guidance.resources - self._autoscaled.get((pod.namespace, pod.workload), frozenset())

    def why_statistics_forbid(self, pod: Pod, rows: Sequence[int | None]) -> Reason | None:
        """Tell what is wrong with a pod's statistics: missing, stale, or from a workload under an hour old."""
        known = [row for row in rows if row is not None]
        if len(known) < len(rows) or not known:
            return Reason.NO_STATISTICS
        if any(self._updated_at[row] < self._oldest_seconds for row in known):
            return Reason.STALE_STATISTICS
        if any(self._history_since[row] > self._newest_start_seconds for row in known) or self._workload_is_new(pod):
            return Reason.NEW_WORKLOAD
        return None

    def _with_statistics(self, pod: Pod, guidance: Guidance) -> Touchable | Hold:
        managed = self.managed(pod, guidance)
        if not managed:
            return Hold(
                pod.namespace, pod.name, Reason.AUTOSCALED, "an HPA targets utilisation of what cruise may size"
            )
        sized = tuple(container for container in pod.containers if container.role is not ContainerRole.INIT)
        find = self._statistics.find
        rows = [find(pod.namespace, pod.name, pod.workload, container.name, pod.identity) for container in sized]
        reason = self.why_statistics_forbid(pod, rows)
        if reason is not None:
            lacking = ", ".join(container.name for container, row in zip(sized, rows, strict=True) if row is None)
            return Hold(pod.namespace, pod.name, reason, lacking)
        manages_cpu = ResourceName.CPU in managed and not any(c.cpu_resize_restarts for c in sized)
        manages_memory = ResourceName.MEMORY in managed and not any(c.memory_resize_restarts for c in sized)
        if not manages_cpu and not manages_memory:
            return Hold(pod.namespace, pod.name, Reason.RESIZE_RESTARTS, "resizePolicy RestartContainer")
        return Touchable(
            pod, guidance, sized, tuple(row for row in rows if row is not None), manages_cpu, manages_memory
        )

    def _why_untouchable(self, pod: Pod, guidance: Guidance | Unreadable, needs: Mode = Mode.RESIZE) -> Reason | None:
        if pod.terminal:
            return Reason.TERMINAL
        if pod.terminating:
            return Reason.TERMINATING
        if pod.namespace in self._policy.excluded_namespaces:
            return Reason.EXCLUDED_NAMESPACE
        if isinstance(guidance, Unreadable):
            return Reason.UNREADABLE_ANNOTATION
        if guidance.mode < needs:
            return _HOLD_BY_MODE[guidance.mode]
        return self._why_unfit(pod)

    def _why_unfit(self, pod: Pod) -> Reason | None:
        """Tell what about the pod itself forbids a resize."""
        checks = (
            (pod.mirror, Reason.STATIC_POD),
            (pod.windows, Reason.WINDOWS),
            (pod.qos is QosClass.GUARANTEED, Reason.GUARANTEED),
            (pod.qos is QosClass.BEST_EFFORT, Reason.BEST_EFFORT),
            (pod.pod_requests is not None or pod.pod_limits is not None, Reason.POD_LEVEL_RESOURCES),
            (bool(pod.extended_requests) and not self._policy.allow_extended_resources, Reason.EXTENDED_RESOURCES),
            (pod.workload is None, Reason.NO_CONTROLLER),
        )
        return next((reason for applies, reason in checks if applies), None)

    def _resolve(self, annotations: Mapping[str, str], key: tuple[str, WorkloadRef | None]) -> Guidance | Unreadable:
        namespace, ref = key
        workload = self._snapshot.workloads.get((namespace, ref)) if ref is not None else None
        layers: list[Overrides] = []
        for where, stated in (
            ("pod", annotations),
            (str(ref), workload.annotations if workload is not None else {}),
            (f"namespace {namespace}", self._snapshot.namespace_annotations.get(namespace, {})),
        ):
            layer = parse_overrides(stated) if stated else NO_OVERRIDES
            if isinstance(layer, Unreadable):
                return Unreadable(f"{where}: {layer.detail}")
            layers.append(layer)
        if ref is not None and (namespace, ref) in self._stored:
            layers.append(self._stored[(namespace, ref)])
        return resolve_guidance(self._policy.mode, layers)

    def _workload_is_new(self, pod: Pod) -> bool:
        if pod.workload is None:
            return False
        key = (pod.namespace, pod.workload)
        known = self._new.get(key)
        if known is None:
            workload = self._snapshot.workloads.get(key)
            created = workload.created_at if workload is not None else None
            known = created is not None and self._newest_start_seconds < created.timestamp() <= self._now_seconds
            self._new[key] = known
        return known

    def _replicas(self, pod: Pod) -> int:
        assert pod.workload is not None
        key = (pod.namespace, pod.workload)
        workload = self._snapshot.workloads.get(key)
        if workload is not None and workload.replicas is not None:
            return workload.replicas
        if self._pods_of_workload is None:
            self._pods_of_workload = Counter(
                (other.namespace, other.workload)
                for other in self._snapshot.pods
                if other.workload is not None and not other.terminal
            )
        return self._pods_of_workload[key]


def _autoscaled_resources(
    autoscalers: Sequence[Autoscaler],
) -> dict[tuple[str, WorkloadRef], frozenset[ResourceName]]:
    found: dict[tuple[str, WorkloadRef], frozenset[ResourceName]] = {}
    for autoscaler in autoscalers:
        key = (autoscaler.namespace, autoscaler.target)
        found[key] = found.get(key, frozenset()) | autoscaler.utilisation_of
    return found
