"""The model's cluster as a simulated one: the same pods and sizes, with kubelets that do what the model says.

No simulated time passes: each step of a kubelet or controller is one event of the model.
"""

from dataclasses import replace
from datetime import timedelta

from cruise.domain.cluster import ClusterSnapshot, Container, OomKill, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, ResizePending
from cruise.domain.scheduling import SchedulingConstraints
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulatedPod
from cruise.simulation.cluster.workloads import SimulatedWorkload
from tests.builders import make_statistic_for, make_table
from tests.simulation.scenes import BY_SECOND, START, amounts, container, node, template, workload

UNIT = 512  # MiB, wide of every dead band
ALLOCATABLE = 13
GOAL = 7
RESIZED = ("a", "g", "o")
EVICTABLE = ("b0", "b1")
PENDING = "p"
NEEDED = 5
_FIRST = {"a": 5, "g": 2, "o": 1, "b0": 2, "b1": 2, PENDING: NEEDED}
_LONG_AGO = START - timedelta(days=9)
# Whatever is not of this model is out of the way: one budget, nothing that waits for its time, no limits.
POLICY = Policy(
    mode=Mode.FULL,
    max_evictions_per_node=9,
    max_evictions_per_workload=9,
    max_evictions_per_hour=1,
    memory_tolerance=0.0,
    cpu_tolerance=0.0,
    over_requested_stabilization=timedelta(0),
    under_requested_stabilization=timedelta(0),
    shrink_cooldown=timedelta(0),
    memory_limits=MemoryLimitPolicy.NEVER,
)


class World:
    """The cluster, and what is known of its usage."""

    guest = "guest"
    """The pod of others that may be bound to the node."""

    def __init__(self, *more: SimulatedWorkload) -> None:
        nodes = [node("n1", 4000, ALLOCATABLE * UNIT, labels={"name": "n1"})]
        self.cluster = SimulatedCluster(nodes, [*_workloads(), *more], START, BY_SECOND)
        self._state = self.cluster._state
        # Added now, so that every pod of the model began on n1.
        self._state.add_nodes([node("n2", 4000, 8 * UNIT)])
        self._originals = {app: self._found(app) for app in (*RESIZED, *EVICTABLE)}
        self.base = {"a": 2, "g": GOAL, "o": 1, "b0": 2, "b1": 2}

    def _found(self, app: str) -> SimulatedPod:
        return next(
            one for one in self._state.records.values() if one.pod.labels["app"] == app and one.pod.node == "n1"
        )

    def record(self, number: int) -> SimulatedPod:
        """Return the pod with a number of the model."""
        return self._originals[(*RESIZED, *EVICTABLE)[number]]

    def statistics(self) -> StatisticsTable:
        """Return what a usage pass would know now: each pod's usage, without any headroom."""
        now = int(self.cluster.now.timestamp())
        known = [one.pod for one in self._state.records.values() if one.pod.labels["app"] in self.base]
        return make_table(*(_statistic(pod, self.base[pod.labels["app"]], now) for pod in known))

    def counted(self) -> int:
        """Return what kube-scheduler counts on the model's node, in units."""
        pods = [one.pod for one in self._state.records.values() if one.pod.node == "n1"]
        return sum(count_pod_requests(pod).memory_bytes for pod in pods) // (UNIT * MEBIBYTE)

    def kill(self) -> OomKill:
        """Kill O for its memory, and return what is seen of it."""
        record = self.record(2)
        kill = self.cluster._kubelet.kill(record.rows["app"], self._state.clock.now)
        self.base["o"] = 2
        return replace(kill, last_working_set_bytes=2 * UNIT * MEBIBYTE)

    def put_in_force(self, number: int) -> bool:
        """Let a kubelet look at a resize; tell whether it is in force then."""
        record, now = self.record(number), self._state.clock.now
        self.cluster._resizing._allocate(record, now)
        if record.pod.resize.pending is ResizePending.DEFERRED:
            return False
        self.cluster._resizing._actuate(record, now)
        return True

    def put_off(self, number: int) -> None:
        """Let a kubelet put a resize off."""
        self.cluster._resizing._set_pending(self.record(number), ResizePending.DEFERRED, self._state.clock.now)

    def refuse(self, number: int) -> None:
        """Let a kubelet say that it will never do a resize."""
        self.cluster._resizing._set_pending(self.record(number), ResizePending.INFEASIBLE, self._state.clock.now)

    def end(self, number: int) -> None:
        """Let a terminating pod end, and its replacement be bound and start elsewhere."""
        record, now = self.record(number), self._state.clock.now
        self.cluster._kubelet.remove(record, now)
        self.cluster._controllers.reconcile(now, self.cluster.admit)
        for one in self.cluster._scheduler.queue():
            if one.pod.labels["app"] == PENDING:
                continue
            chosen = self.cluster._scheduler.choose(one)
            assert chosen == "n2"
            self.cluster._kubelet.bind(one, chosen)
            self.cluster._kubelet.start_at_past_time(one, now)

    def count_unseen(self, snapshot: ClusterSnapshot) -> int:
        """Return what others' pod takes of the node, in units, if it was bound after a snapshot."""
        pods = (one.pod for one in self._state.records.values())
        now = next((pod for pod in pods if pod.labels["app"] == self.guest and pod.node is not None), None)
        was_bound = any(one.labels["app"] == self.guest and one.node is not None for one in snapshot.pods)
        return 0 if now is None or was_bound else _units(now)

    def add_guest(self) -> None:
        """Bind somebody else's pod to the node."""
        pod = replace(
            self.record(0).pod,
            name="guest",
            uid="guest",
            containers=(_container(1),),
            labels={"app": "guest"},
            workload=None,
            owner_kind=None,
            owner_name=None,
            node=None,
        )
        record = SimulatedPod(pod, replace(self.record(0).workload, ref=None), 0)
        self._state.add(record)
        self.cluster._kubelet.bind(record, "n1")
        self._state.put(record, replace(record.pod, phase="Running", ready=True))

    def seen(self) -> str:
        """Return sizes and evictions as the model prints them."""
        pods = [self.record(number).pod for number in range(3)]
        spec = "".join(str(_units(pod)) for pod in pods)
        actual = "".join(str(_units(pod, actual=True)) for pod in pods)
        gone = "".join(str(self.progress(number)) for number in (3, 4))
        return f"{spec} {actual} {gone}"

    def progress(self, number: int) -> int:
        """Return how far an eviction is: 0 for a running pod, 1 for a terminating one, 2 for one that is gone."""
        record = self.record(number)
        return 2 if record.is_deleted else int(record.pod.terminating)


class PackingWorld(World):
    """The same cluster with a pending pod, which fits once A has shrunk and one pod has been evicted."""

    guest = PENDING

    def __init__(self) -> None:
        pod = replace(template(_container(NEEDED)), placement=SchedulingConstraints(node_selector=(("name", "n1"),)))
        super().__init__(workload(PENDING, pod, created_at=_LONG_AGO))
        self._pending = next(one for one in self._state.records.values() if one.pod.labels["app"] == PENDING)
        self._state.put(self._pending, replace(self._pending.pod, unschedulable_since=START))

    @property
    def pending(self) -> Pod:
        """The pod that a plan is made for."""
        return self._pending.pod

    def bind(self) -> None:
        """Let kube-scheduler bind the pending pod, and its kubelet start it."""
        assert self.cluster._scheduler.choose(self._pending) == "n1"
        self.cluster._kubelet.bind(self._pending, "n1")
        self.cluster._kubelet.start_at_past_time(self._pending, self._state.clock.now)


def _container(units: int, limit: int | None = None) -> Container:
    return container(50, units * UNIT, NOTHING_STATED if limit is None else amounts(None, limit * UNIT))


def _workloads() -> list[SimulatedWorkload]:
    found = []
    for app in (*RESIZED, *EVICTABLE):
        pod = replace(
            template(_container(_FIRST[app], 2 if app == "o" else None)), priority=0 if app in EVICTABLE else 10
        )
        # Of a DaemonSet nothing is evicted for lack of room.
        found.append(workload(app, pod, kind="DaemonSet" if app == "o" else "Deployment", created_at=_LONG_AGO))
    return found


def _statistic(pod: Pod, units: int, now: int) -> Statistic:
    return make_statistic_for(
        pod,
        cpu_base=50,
        cpu_peak=50,
        memory_base_mib=units * UNIT,
        memory_peak_mib=units * UNIT,
        updated_at=now,
        history_since=int(_LONG_AGO.timestamp()),
    )


def _units(pod: Pod, *, actual: bool = False) -> int:
    [one] = pod.containers
    amounts_now = one.actual if actual else one.requests
    assert amounts_now is not None and amounts_now.memory_bytes is not None
    return amounts_now.memory_bytes // (UNIT * MEBIBYTE)
