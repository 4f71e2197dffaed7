"""The cluster around the replayed pods: it creates and places them, resizes them where there is room, evicts them."""

from collections.abc import Sequence

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.pods import ABSENT_NODE, ReplayedPodState
from cruise.backtest.replay.policy import ContainerSizes, ReplayDecision, ReplayedOomReaction, ReplayPolicy
from cruise.backtest.replay.scoring import ChangeCounts
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_default_update_threshold
from cruise.domain.policy import Policy
from cruise.domain.resources import BoolArray, Int64Array, ResourceName

# Which grows of a pass have room now: what the guards of a live application let through, in columns.


def limit_growth_to_capacity(
    patched: BoolArray,
    wanted: ContainerSizes,
    current: ContainerSizes,
    node: Int64Array,
    free: tuple[Int64Array, Int64Array],
    band: UpdateThreshold,
) -> BoolArray:
    """Cut, in place, what grows without room to the part that takes none; return which are left to be written.

    One entry a pod, in the order in which they take room; `free` is what each node has left over what it counts before
    anything of this pass is done: what shrinks frees its room only once it is actual. As in `Guards.has_room` and
    `without_growth` on a live cluster.
    """  # fmt: skip
    growth = tuple(
        np.maximum(np.where(patched, want - now, 0), 0)
        for want, now in (
            (wanted.cpu_millicores, current.cpu_millicores),
            (wanted.memory_bytes, current.memory_bytes),
        )
    )
    rejected = _rejected(growth, node, free)
    if not rejected.size:
        return patched
    limit, before = wanted.memory_limit_bytes, current.memory_limit_bytes
    # A limit that was raised for the request alone stays with it.
    idle = rejected[(limit == wanted.memory_bytes)[rejected] & (growth[1] > 0)[rejected] & (before > 0)[rejected]]
    limit[idle] = before[idle]
    for want, now in ((wanted.cpu_millicores, current.cpu_millicores), (wanted.memory_bytes, current.memory_bytes)):
        want[rejected] = np.minimum(want[rejected], now[rejected])
    # A request that is not stated must stay so, and has no limit either.
    bare = rejected[wanted.memory_bytes[rejected] == 0]
    wanted.memory_limit_bytes[bare] = 0
    left = patched.copy()
    left[rejected] = exceeds_update_threshold(wanted, current, band)[rejected]
    return left


def _rejected(growth: tuple[Int64Array, ...], node: Int64Array, free: tuple[Int64Array, Int64Array]) -> Int64Array:
    crowded = np.zeros(len(free[0]), dtype=np.bool_)
    for more, left in zip(growth, free, strict=True):
        wanted = np.zeros(len(left), dtype=np.int64)
        np.add.at(wanted, node, more)
        crowded |= (wanted > 0) & (wanted > left)
    growers = np.flatnonzero(crowded[node] & ((growth[0] > 0) | (growth[1] > 0)))
    room_cpu, room_memory = free[0].tolist(), free[1].tolist()
    rejected = []
    columns = (growers, node[growers], growth[0][growers], growth[1][growers])
    for index, on, cpu, memory in zip(*(column.tolist() for column in columns), strict=True):
        if (cpu == 0 or cpu <= room_cpu[on]) and (memory == 0 or memory <= room_memory[on]):
            room_cpu[on] -= cpu
            room_memory[on] -= memory
        else:
            rejected.append(index)
    return np.array(rejected, dtype=np.int64)


def exceeds_update_threshold(wanted: ContainerSizes, current: ContainerSizes, band: UpdateThreshold) -> BoolArray:
    """Tell for each pod whether any of its sizes moves far enough to be written."""
    return (
        band.is_exceeded(ResourceName.CPU, current.cpu_millicores, wanted.cpu_millicores)
        | band.is_exceeded(ResourceName.MEMORY, current.memory_bytes, wanted.memory_bytes)
        | band.is_exceeded(ResourceName.MEMORY, current.memory_limit_bytes, wanted.memory_limit_bytes)
    )


class ReplayedCluster:
    """API server, controllers, kube-scheduler and autoscaler around the replayed pods, for one policy."""

    def __init__(
        self, recording: UsageRecording, pods: ReplayedPodState, policy: ReplayPolicy, changes: ChangeCounts
    ) -> None:
        self._pods = pods
        self._policy = policy
        self._changes = changes
        self._has_memory = recording.has_memory
        self._rank = _ranks(recording)

    def create(self, containers: Int64Array, time: int) -> None:
        """Create pods with what the policy admits them with, and place them."""
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
        """Return pods created at the same time in scheduling order: by namespace and name."""
        return containers[np.argsort(self._rank[containers])]

    def _place(self, container: int) -> None:
        """Give a pod the node that kube-scheduler chooses, else a new one; what fits no empty node stays pending."""
        nodes = self._pods.nodes
        if not self._place_on_what_there_is(container) and nodes.fits_empty_node(self._pods.get_need(container)):
            self._pods.bind(container, nodes.add())

    def _place_on_what_there_is(self, container: int) -> bool:
        chosen = self._pods.nodes.choose(self._pods.get_need(container))
        if chosen is not None:
            self._pods.bind(container, chosen)
        return chosen is not None

    def evict(self, containers: Int64Array, time: int) -> None:
        """Delete pods; their controllers create them again at once.

        A pod counts on its node as long as it terminates, and the scheduler does not wait for it: its replacement goes
        where there is room beside it. A pod without any is placed once the room is free, before a node is added.
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
        pending = [container for container in queue if not self._place_on_what_there_is(container)]
        for node, need in terminating:
            nodes.remove_pod(node, need)
        for container in pending:
            self._place(container)

    def move(self, containers: Int64Array, time: int) -> None:
        """Evict pods for consolidation's sake."""
        self._changes.moves[containers] += 1
        self.evict(containers, time)

    def remove(self, containers: Int64Array) -> None:
        """Delete pods that are not created again, and the nodes that this empties."""
        if not containers.size:
            return
        self._pods.remove(containers)
        self._pods.nodes.remove_empty()

    def apply(self, decision: ReplayDecision, time: int) -> None:
        """Shrink, then evict, then grow where there is room; a resize that grows one resource is a growth.

        Of a growth without room the part is done that takes none, if it leaves the dead band, unless the policy wants
        an eviction. A pod that does not run is not resized, nor one that uses more memory than its new limit.
        """
        if not decision.resize.size and not decision.evict.size:
            return
        going = _first_of_each(decision.evict)
        going = going[self._pods.node[going] != ABSENT_NODE]
        wanted = (self._pods.node[decision.resize] >= 0) & ~np.isin(decision.resize, going)
        wanted &= ~self._undercuts_use(decision)
        containers, sizes = decision.resize[wanted], decision.sizes.select(wanted)
        cpu, memory = self._change(containers, sizes)
        grows = (cpu > 0) | (memory > 0)
        self._write(containers[~grows], sizes.select(~grows), time)
        self.evict(going, time)
        containers, sizes = containers[grows], sizes.select(grows)
        rejected = ~self._grow(containers, sizes, time)
        if decision.evict_without_capacity:
            self.evict(containers[rejected], time)
        else:
            self._grow_nothing(containers[rejected], sizes.select(rejected), time)
        self._pods.nodes.remove_empty()

    def apply_oom_reaction(self, container: int, reaction: ReplayedOomReaction, time: int) -> None:
        """Do at once what a policy does about a kill, within the node's room."""
        places = np.array([container], dtype=np.int64)
        if reaction.evict:
            self.evict(places, time)
            self._pods.nodes.remove_empty()
        elif reaction.sizes is not None and self._pods.node[container] >= 0:
            self._grow(places, reaction.sizes, time)

    def _undercuts_use(self, decision: ReplayDecision) -> BoolArray:
        """Tell for which resizes the kubelet does nothing yet, as memory in use is above a limit that is to fall."""
        limit, now = decision.sizes.memory_limit_bytes, self._pods.sizes.memory_limit_bytes[decision.resize]
        falls = (limit > 0) & ((now == 0) | (limit < now))
        return np.asarray(falls & (self._pods.memory_in_use[decision.resize] > limit))

    def _grow(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> BoolArray:
        """Resize where the node has room for all that grows on it, then the others by name while there is room.

        Returns which resizes were done.
        """
        node, growth = self._pods.node[containers], self._change(containers, sizes)
        done = self._room_for_all(node, growth)
        self._write(containers[done], sizes.select(done), time)
        late = np.flatnonzero(~done)
        late = late[np.argsort(self._rank[containers[late]])]
        late = late[self._one_by_one(node[late], [change[late] for change in growth])]
        self._write(containers[late], sizes.select(late), time)
        done[late] = True
        return done

    def _grow_nothing(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> None:
        """Write the part of resizes that takes no room."""
        now = self._pods.sizes.select(containers)
        part = ContainerSizes(
            np.minimum(sizes.cpu_millicores, now.cpu_millicores),
            np.minimum(sizes.memory_bytes, now.memory_bytes),
            sizes.memory_limit_bytes,
        )
        moves = exceeds_update_threshold(part, now, _BAND)
        self._write(containers[moves], part.select(moves), time)

    def _change(self, containers: Int64Array, sizes: ContainerSizes) -> tuple[Int64Array, Int64Array]:
        """Return how far the requests would move; memory that was not recorded does not."""
        now = self._pods.sizes
        cpu = sizes.cpu_millicores - now.cpu_millicores[containers]
        if not self._has_memory:
            return cpu, np.zeros_like(cpu)
        return cpu, sizes.memory_bytes - now.memory_bytes[containers]

    def _room_for_all(self, node: Int64Array, changes: tuple[Int64Array, Int64Array]) -> BoolArray:
        """Tell which are on a node that has room for everything that grows on it: there the order does not matter."""
        fits = np.ones(len(node), dtype=np.bool_)
        for free, change in zip(self._pods.nodes.get_free(), changes, strict=True):
            growth = np.maximum(change, 0)
            growing = np.zeros(len(free), dtype=np.int64)
            np.add.at(growing, node, growth)
            fits &= (growth == 0) | (growing <= free)[node]
        return fits

    def _one_by_one(self, node: Int64Array, changes: Sequence[Int64Array]) -> BoolArray:
        """Tell which have room as each takes it from the next."""
        free_cpu, free_memory = (free.tolist() for free in self._pods.nodes.get_free())
        done = np.zeros(len(node), dtype=np.bool_)
        for place, (on, cpu, memory) in enumerate(zip(node.tolist(), *(c.tolist() for c in changes), strict=True)):
            if (cpu <= 0 or cpu <= free_cpu[on]) and (memory <= 0 or memory <= free_memory[on]):
                free_cpu[on] -= cpu
                free_memory[on] -= memory
                done[place] = True
        return done

    def _write(self, containers: Int64Array, sizes: ContainerSizes, time: int) -> None:
        if not containers.size:
            return
        cpu, memory = self._change(containers, sizes)
        changed = (cpu != 0) | (memory != 0)
        if self._has_memory:
            changed |= sizes.memory_limit_bytes != self._pods.sizes.memory_limit_bytes[containers]
        if changed.any():
            self._changes.count_resizes(containers[changed], cpu[changed], memory[changed], time)
        self._pods.resize(containers, sizes)


# Every policy's resizes meet the same guards.
_BAND = get_default_update_threshold(Policy())


def _first_of_each(containers: Int64Array) -> Int64Array:
    return containers[np.sort(np.unique(containers, return_index=True)[1])]


def _ranks(recording: UsageRecording) -> Int64Array:
    names = [(one.namespace, one.pod, one.container) for one in recording.containers]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[order] = np.arange(len(names))
    return ranks
