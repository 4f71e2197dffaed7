"""Simulates workload controllers, which create missing pods, and PodDisruptionBudgets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Node, Pod, PodDisruptionBudget
from cruise.domain.pod_resources import get_qos_class
from cruise.domain.scheduling import LabelSelector
from cruise.errors import RefusedError, ThrottledError
from cruise.simulation.cluster.api_server import SimulatedQuotas, apply_limit_range_defaults, check_creation
from cruise.simulation.cluster.state import PodKey, SimulatedClusterState, SimulatedPod, convert_to_datetime
from cruise.simulation.cluster.workloads import SimulatedWorkload, create_pod, is_daemonset_node

MAX_FINISHED = 3
AdmitFunction = Callable[[Pod], Pod]


class WorkloadControllers:
    """Deployment, StatefulSet, DaemonSet, Job, CronJob and CronWorkflow controllers in one."""

    def __init__(
        self,
        state: SimulatedClusterState,
        workloads: Sequence[SimulatedWorkload],
        limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
        quotas: SimulatedQuotas,
    ) -> None:
        self._state = state
        self._workloads = list(workloads)
        self._replaced: list[SimulatedWorkload] = []
        self._limit_ranges = limit_ranges
        self._quotas = quotas
        self._start = start = state.clock.now
        self._created: dict[tuple[int, int], int] = {}
        self._number = {id(workload): number for number, workload in enumerate(workloads)}
        self._pods: list[dict[PodKey, SimulatedPod]] = [{} for _ in workloads]
        self._outdated = dict.fromkeys(range(len(workloads)))
        self._crons = [
            number for number, workload in enumerate(workloads) if workload.kind in ("CronJob", "CronWorkflow")
        ]
        self._runs: dict[int, dict[int, None]] = {number: {} for number in self._crons}
        self._last_run = {number: start // workloads[number].period_seconds for number in self._crons}

    def update(self, workload: SimulatedWorkload) -> None:
        """Reconcile a workload at the next call, because one of its pods ended. A bare pod has no controller."""
        if workload.ref is not None:
            self._outdated[self._number[id(workload)]] = None

    def roll_out(self, workload: SimulatedWorkload, changed: SimulatedWorkload) -> None:
        """Create pods from a changed template from now on; existing pods remain until they end."""
        number = self._number[id(workload)]
        # Its pods still refer to it, and no other object may have its id.
        self._replaced.append(workload)
        self._workloads[number] = changed
        self._number[id(changed)] = number

    def update_daemonsets(self) -> None:
        """Reconcile every DaemonSet at the next call, because a node changed."""
        for number, workload in enumerate(self._workloads):
            if workload.kind == "DaemonSet":
                self._outdated[number] = None

    def reconcile(self, now: int, admit: AdmitFunction) -> None:
        """Create the missing pods; a pod that the API server rejects is retried the next time."""
        for number in self._crons:
            self._start_runs(number, now)
        outdated = sorted(self._outdated)
        self._outdated = {}
        for number in outdated:
            records = self._pods[number]
            for key in [key for key, record in records.items() if record.is_deleted]:
                del records[key]
            for slot, node in self._find_missing_slots(number):
                self._create(number, slot, node, now, admit)

    def find_outdated(self) -> list[SimulatedPod]:
        """Return the finished pods of runs to remove, oldest first, and forget their runs."""
        found: list[SimulatedPod] = []
        for number in self._crons:
            finished = sorted(
                (record for record in self._pods[number].values() if record.pod.is_finished and not record.is_deleted),
                key=lambda record: record.slot,
            )
            for record in finished[:-MAX_FINISHED]:
                self._runs[number].pop(record.slot // self._workloads[number].pods_per_run, None)
                found.append(record)
        return found

    def _start_runs(self, number: int, now: int) -> None:
        for run in range(self._last_run[number] + 1, now // self._workloads[number].period_seconds + 1):
            self._runs[number][run] = None
            self._outdated[number] = None
            self._last_run[number] = run

    def _find_missing_slots(self, number: int) -> list[tuple[int, Node | None]]:
        """Return the slots without a pod; StatefulSets and DaemonSets first wait for the old pod to be removed."""
        workload = self._workloads[number]
        must_wait = workload.kind in ("StatefulSet", "DaemonSet")
        used_slots = {record.slot for record in self._pods[number].values() if must_wait or not record.pod.terminating}
        match workload.kind:
            case "DaemonSet":
                wanted: list[tuple[int, Node | None]] = [
                    (self._state.node_index[node.name], node)
                    for node in self._state.nodes.values()
                    if is_daemonset_node(workload, node)
                ]
            case "CronJob" | "CronWorkflow":
                count = workload.pods_per_run
                wanted = [(run * count + pod, None) for run in self._runs[number] for pod in range(count)]
            case _:
                wanted = [(slot, None) for slot in range(workload.replicas)]
        return [(slot, node) for slot, node in wanted if slot not in used_slots]

    def _create(self, number: int, slot: int, node: Node | None, now: int, admit: AdmitFunction) -> None:
        workload = self._workloads[number]
        ranges = self._limit_ranges.get(workload.namespace, ())
        serial = self._created.get((number, slot), 0)
        created = convert_to_datetime(now) if workload.created_at is None or now > self._start else workload.created_at
        pod = admit(
            apply_limit_range_defaults(
                create_pod(workload, slot, serial, self._state.settings.seed, created, node), ranges
            )
        )
        try:
            check_creation(pod, ranges)
            self._quotas.check_creation(pod, (record.pod for record in self._state.records.values()))
        except RefusedError:
            # Like a FailedCreate event: the pod is retried.
            self._state.counts.creations_refused += 1
            self._outdated[number] = None
            return
        self._created[number, slot] = serial + 1
        self._state.counts.pods_created += 1
        record = SimulatedPod(replace(pod, qos=get_qos_class(pod)), workload, slot)
        self._pods[number][record.key] = record
        self._state.add(record)


@dataclass(frozen=True, slots=True)
class DisruptionBudgetSpec:
    """A PodDisruptionBudget's spec: either bound, as a number of pods or as a share such as `50%`."""

    namespace: str
    name: str
    selector: LabelSelector
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def covers(self, record: SimulatedPod) -> bool:
        """Return whether the budget selects the pod."""
        return record.pod.namespace == self.namespace and self.selector.matches(record.pod.labels)


@dataclass(frozen=True, slots=True)
class DisruptionBudgetStatus:
    """The status of the disruption controller: healthy, desired healthy and expected pods."""

    healthy: int
    desired: int
    expected: int

    @property
    def allowed(self) -> int:
        """The number of pods that may be disrupted now."""
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0


def compute_budget_status(rule: DisruptionBudgetSpec, records: Iterable[SimulatedPod]) -> DisruptionBudgetStatus:
    """Return the status of a budget over all pods of the cluster.

    Healthy pods are ready and not terminating. Expected are the replicas of the selected pods' controllers, or the pods
    themselves if a plain number must be available. Percentages round up. Source: the disruption controller's
    documentation.
    """
    covered = [record for record in records if rule.covers(record) and not record.pod.is_finished]
    healthy = sum(_is_healthy(record) for record in covered)
    # Pods of controllers without a number of replicas count one by one.
    scaled = {id(record.workload): record.workload for record in covered if record.workload.counts_replicas}
    expected = sum(workload.replicas for workload in scaled.values())
    expected += sum(not record.workload.counts_replicas for record in covered)
    if rule.max_unavailable is not None:
        return DisruptionBudgetStatus(healthy, max(0, expected - _number(rule.max_unavailable, expected)), expected)
    if isinstance(rule.min_available, str):
        return DisruptionBudgetStatus(healthy, _number(rule.min_available, expected), expected)
    return DisruptionBudgetStatus(healthy, rule.min_available or 0, len(covered))


def list_disruption_budgets(
    rules: Sequence[DisruptionBudgetSpec], records: Sequence[SimulatedPod]
) -> tuple[PodDisruptionBudget, ...]:
    """Return the budgets with their status, sorted by namespace and name."""
    return tuple(
        PodDisruptionBudget(rule.namespace, rule.name, rule.selector, compute_budget_status(rule, records).allowed)
        for rule in sorted(rules, key=lambda rule: (rule.namespace, rule.name))
    )


def check_eviction_allowed(
    record: SimulatedPod, rules: Sequence[DisruptionBudgetSpec], records: Sequence[SimulatedPod]
) -> None:
    """Raise ThrottledError if a budget forbids the eviction now, RefusedError if several budgets select the pod."""
    pod = record.pod
    if pod.is_finished or pod.terminating or pod.phase == "Pending":
        return
    covering = [rule for rule in rules if rule.covers(record)]
    if not covering:
        return
    if len(covering) > 1:
        raise RefusedError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            "MultipleDisruptionBudgets",
        )
    status = compute_budget_status(covering[0], records)
    # An unready pod may be evicted if enough others are healthy.
    if not record.pod.ready and 0 < status.desired <= status.healthy:
        return
    if status.allowed < 1:
        raise ThrottledError(
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget "
            f"{covering[0].name} needs {status.desired} healthy pods and has {status.healthy} currently",
            cause="DisruptionBudget",
        )


def _is_healthy(record: SimulatedPod) -> bool:
    return record.pod.ready and not record.pod.terminating


def _number(bound: int | str, expected: int) -> int:
    """Return a bound as a number of pods, percentages rounded up."""
    return bound if isinstance(bound, int) else -(-expected * int(bound.removesuffix("%")) // 100)
