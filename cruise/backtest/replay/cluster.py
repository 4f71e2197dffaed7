"""Simulates the cluster around the replayed pods: creates, places, resizes and evicts them."""

from collections.abc import Sequence

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.nodes import ABSENT_NODE, ReplayedPodState
from cruise.backtest.replay.policy import ContainerSizes, ReplayDecision, ReplayedOomReaction, ReplayPolicy
from cruise.backtest.replay.scoring import ChangeCounts
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_threshold
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

# The same for every policy.
_UPDATE_THRESHOLD = get_update_threshold(Policy())


def limit_growth_to_capacity(
    resized: BoolArray,
    planned: ContainerSizes,
    current: ContainerSizes,
    node: Int64Array,
    free: tuple[Int64Array, Int64Array],
    threshold: UpdateThreshold,
) -> BoolArray:
    """Limit planned increases to free capacity, in place; return which pods are still to be resized.

    Entries are pods, in the order in which they use free capacity. `free` is each node's free capacity before the pass:
    decreases free capacity only once they are actual. An increase that does not fit keeps its decreases only. This is
    the rule of the write guards on a live cluster.
    """  # fmt: skip
    growth = tuple(
        np.maximum(np.where(resized, after - before, 0), 0)
        for after, before in (
            (planned.cpu_millicores, current.cpu_millicores),
            (planned.memory_bytes, current.memory_bytes),
        )
    )
    rejected = _find_rejected_growth(growth, node, free)
    if not rejected.size:
        return resized
    limit, current_limit = planned.memory_limit_bytes, current.memory_limit_bytes
    # A limit that was raised only because of the request is not raised without it.
    is_raised = (limit == planned.memory_bytes)[rejected] & (growth[1] > 0)[rejected] & (current_limit > 0)[rejected]
    limit[rejected[is_raised]] = current_limit[rejected[is_raised]]
    for after, before in (
        (planned.cpu_millicores, current.cpu_millicores),
        (planned.memory_bytes, current.memory_bytes),
    ):
        after[rejected] = np.minimum(after[rejected], before[rejected])
    # A container without a memory request keeps none, and has no limit.
    planned.memory_limit_bytes[rejected[planned.memory_bytes[rejected] == 0]] = 0
    remaining = resized.copy()
    remaining[rejected] = exceeds_update_threshold(planned, current, threshold)[rejected]
    return remaining


def _find_rejected_growth(
    growth: tuple[Int64Array, ...], node: Int64Array, free: tuple[Int64Array, Int64Array]
) -> Int64Array:
    is_full = np.zeros(len(free[0]), dtype=np.bool_)
    for increase, capacity in zip(growth, free, strict=True):
        total = np.zeros(len(capacity), dtype=np.int64)
        np.add.at(total, node, increase)
        is_full |= (total > 0) & (total > capacity)
    growing = np.flatnonzero(is_full[node] & ((growth[0] > 0) | (growth[1] > 0)))
    free_cpu, free_memory = free[0].tolist(), free[1].tolist()
    rejected = []
    columns = (growing, node[growing], growth[0][growing], growth[1][growing])
    for index, on, cpu, memory in zip(*(column.tolist() for column in columns), strict=True):
        if (cpu == 0 or cpu <= free_cpu[on]) and (memory == 0 or memory <= free_memory[on]):
            free_cpu[on] -= cpu
            free_memory[on] -= memory
        else:
            rejected.append(index)
    return np.array(rejected, dtype=np.int64)


def exceeds_update_threshold(planned: ContainerSizes, current: ContainerSizes, threshold: UpdateThreshold) -> BoolArray:
    """Return a mask of the pods with a size that changes by more than the update threshold."""
    return (
        threshold.is_exceeded(ResourceName.CPU, current.cpu_millicores, planned.cpu_millicores)
        | threshold.is_exceeded(ResourceName.MEMORY, current.memory_bytes, planned.memory_bytes)
        | threshold.is_exceeded(ResourceName.MEMORY, current.memory_limit_bytes, planned.memory_limit_bytes)
    )


class ReplayedCluster:
    """The API server, controllers, kube-scheduler and node autoscaler of a replay."""

    def __init__(
        self, recording: UsageRecording, pods: ReplayedPodState, policy: ReplayPolicy, changes: ChangeCounts
    ) -> None:
        self._pods = pods
        self._policy = policy
        self._changes = changes
        self._has_memory = recording.has_memory
        self._rank = _rank_by_name(recording)

    def create(self, containers: Int64Array, time: int) -> None:
        """Create pods with the sizes of the policy's admission, and place them."""
        if not containers.size:
            return
        self._admit(containers, time)
        for container in self.enqueue(containers).tolist():
            self._place(container)

    def _admit(self, containers: Int64Array, time: int) -> None:
        self._pods.create(containers, time)
        self._changes.count_creation(containers)
        self._pods.resize(containers, self._policy.admit(containers, self._pods.get_view(time)))

    def enqueue(self, containers: Int64Array) -> Int64Array:
        """Return pods created at the same time in scheduling order, by namespace and name."""
        return containers[np.argsort(self._rank[containers])]

    def _place(self, container: int) -> None:
        """Bind a pod to a node, else to a new node; a pod that fits on no empty node stays pending."""
        nodes = self._pods.nodes
        if not self._place_on_existing_node(container) and nodes.fits_empty_node(self._pods.get_need(container)):
            self._pods.bind(container, nodes.add())

    def _place_on_existing_node(self, container: int) -> bool:
        chosen = self._pods.nodes.choose(self._pods.get_need(container))
        if chosen is not None:
            self._pods.bind(container, chosen)
        return chosen is not None

    def evict(self, containers: Int64Array, time: int) -> None:
        """Delete pods; their controllers create replacements immediately.

        A terminating pod still counts on its node while the replacements are scheduled. A replacement that fits nowhere
        is placed after the termination, before a node is added.
        """
        if not containers.size:
            return
        self._changes.evictions[containers] += 1
        nodes = self._pods.nodes
        running = containers[self._pods.node[containers] >= 0].tolist()
        terminating = [(int(self._pods.node[container]), self._pods.get_need(container)) for container in running]
        self._pods.remove(containers)
        for node, need in terminating:
            nodes.add_pod(node, need)
        self._admit(containers, time)
        queue = self.enqueue(containers).tolist()
        pending = [container for container in queue if not self._place_on_existing_node(container)]
        for node, need in terminating:
            nodes.remove_pod(node, need)
        for container in pending:
            self._place(container)

    def move(self, containers: Int64Array, time: int) -> None:
        """Evict pods for consolidation."""
        self._changes.moves[containers] += 1
        self.evict(containers, time)

    def remove(self, containers: Int64Array) -> None:
        """Delete pods permanently, and then the empty nodes."""
        if not containers.size:
            return
        self._pods.remove(containers)
        self._pods.nodes.remove_empty()

    def apply(self, decision: ReplayDecision, time: int) -> None:
        """Write decreases, evict, write increases that fit. A resize that increases one resource is an increase.

        Of an increase that does not fit only the decreases are written, if they exceed the update threshold; or the pod
        is evicted, if the policy asks for it. A pod that is not running, or uses more memory than its new limit, is not
        resized.
        """
        if not decision.resize.size and not decision.evict.size:
            return
        evicted = _deduplicate(decision.evict)
        evicted = evicted[self._pods.node[evicted] != ABSENT_NODE]
        is_resized = (self._pods.node[decision.resize] >= 0) & ~self._find_limits_below_usage(decision)
        if evicted.size:
            is_resized &= ~np.isin(decision.resize, evicted)
        containers, sizes = decision.resize[is_resized], decision.sizes.select(is_resized)
        cpu, memory = self._compute_changes(containers, sizes)
        is_increase = (cpu > 0) | (memory > 0)
        self._write(containers[~is_increase], sizes.select(~is_increase), time)
        self.evict(evicted, time)
        containers, sizes = containers[is_increase], sizes.select(is_increase)
        rejected = ~self._write_increases(containers, sizes, time)
        if decision.evict_without_capacity:
            self.evict(containers[rejected], time)
        else:
            self._write_decreases(containers[rejected], sizes.select(rejected), time)
        self._pods.nodes.remove_empty()

    def apply_oom_reaction(self, container: int, reaction: ReplayedOomReaction, time: int) -> None:
        """Apply a policy's reaction to a kill, within the node's free capacity."""
        places = np.array([container], dtype=np.int64)
        if reaction.evict:
            self.evict(places, time)
            self._pods.nodes.remove_empty()
        elif reaction.sizes is not None and self._pods.node[container] >= 0:
            self._write_increases(places, reaction.sizes, time)

    def _find_limits_below_usage(self, decision: ReplayDecision) -> BoolArray:
        """Return a mask of the resizes that the kubelet defers: the new, lower limit is below the memory in use."""
        limit, current = decision.sizes.memory_limit_bytes, self._pods.sizes.memory_limit_bytes[decision.resize]
        is_lower = (limit > 0) & ((current == 0) | (limit < current))
        return np.asarray(is_lower & (self._pods.memory_in_use[decision.resize] > limit))

    def _write_increases(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> BoolArray:
        """Write increases on nodes where all of them fit, then others by name while they fit; return those written."""
        node, changes = self._pods.node[containers], self._compute_changes(containers, sizes)
        written = self._find_fitting_together(node, changes)
        self._write(containers[written], sizes.select(written), time)
        others = np.flatnonzero(~written)
        others = others[np.argsort(self._rank[containers[others]])]
        others = others[self._find_fitting_in_order(node[others], [change[others] for change in changes])]
        self._write(containers[others], sizes.select(others), time)
        written[others] = True
        return written

    def _write_decreases(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> None:
        """Write the decreases of resizes, and their limits."""
        current = self._pods.sizes.select(containers)
        decreases = ContainerSizes(
            np.minimum(sizes.cpu_millicores, current.cpu_millicores),
            np.minimum(sizes.memory_bytes, current.memory_bytes),
            sizes.memory_limit_bytes,
        )
        written = exceeds_update_threshold(decreases, current, _UPDATE_THRESHOLD)
        self._write(containers[written], decreases.select(written), time)

    def _compute_changes(self, containers: Int64Array, sizes: ContainerSizes) -> tuple[Int64Array, Int64Array]:
        """Return the changes of CPU and memory requests; 0 for memory that was not recorded."""
        current = self._pods.sizes
        cpu = sizes.cpu_millicores - current.cpu_millicores[containers]
        if not self._has_memory:
            return cpu, np.zeros_like(cpu)
        return cpu, sizes.memory_bytes - current.memory_bytes[containers]

    def _find_fitting_together(self, node: Int64Array, changes: tuple[Int64Array, Int64Array]) -> BoolArray:
        """Return a mask of the resizes on nodes where all increases fit, so that their order does not matter."""
        fits = np.ones(len(node), dtype=np.bool_)
        for free, change in zip(self._pods.nodes.get_free(), changes, strict=True):
            increase = np.maximum(change, 0)
            total = np.zeros(len(free), dtype=np.int64)
            np.add.at(total, node, increase)
            fits &= (increase == 0) | (total <= free)[node]
        return fits

    def _find_fitting_in_order(self, node: Int64Array, changes: Sequence[Int64Array]) -> BoolArray:
        """Return a mask of the resizes that fit when written one after the other."""
        free_cpu, free_memory = (free.tolist() for free in self._pods.nodes.get_free())
        fits = np.zeros(len(node), dtype=np.bool_)
        for place, (on, cpu, memory) in enumerate(zip(node.tolist(), *(c.tolist() for c in changes), strict=True)):
            if (cpu <= 0 or cpu <= free_cpu[on]) and (memory <= 0 or memory <= free_memory[on]):
                free_cpu[on] -= cpu
                free_memory[on] -= memory
                fits[place] = True
        return fits

    def _write(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> None:
        if not containers.size:
            return
        cpu, memory = self._compute_changes(containers, sizes)
        changed = (cpu != 0) | (memory != 0)
        if self._has_memory:
            changed |= sizes.memory_limit_bytes != self._pods.sizes.memory_limit_bytes[containers]
        if changed.any():
            self._changes.count_resizes(containers[changed], cpu[changed], memory[changed], time)
        self._pods.resize(containers, sizes)


def _deduplicate(containers: Int64Array) -> Int64Array:
    return containers[np.sort(np.unique(containers, return_index=True)[1])]


def _rank_by_name(recording: UsageRecording) -> Int64Array:
    names = [(one.namespace, one.pod, one.container) for one in recording.containers]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[order] = np.arange(len(names))
    return ranks
