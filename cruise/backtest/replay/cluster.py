"""The cluster around the replayed pods: it creates and places them, resizes them where there is room, evicts them."""

from collections.abc import Sequence

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.churn import Churn
from cruise.backtest.replay.pods import ABSENT, Pods
from cruise.backtest.replay.policy import Decision, KillReaction, ReplayPolicy, Sizes
from cruise.backtest.replay.resize_room import leave_dead_band
from cruise.decisions.sizing.dead_band import default_dead_band
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.policy import Policy


class ReplayedCluster:
    """API server, controllers, kube-scheduler and autoscaler around the replayed pods, for one policy."""

    def __init__(self, recording: Recording, pods: Pods, policy: ReplayPolicy, churn: Churn) -> None:
        self._pods = pods
        self._policy = policy
        self._churn = churn
        self._has_memory = recording.has_memory
        self._rank = _ranks(recording)

    def create(self, containers: Int64Array, at: int) -> None:
        """Create pods with what the policy admits them with, and place them."""
        if not containers.size:
            return
        self._admit(containers, at)
        for container in self.queue(containers).tolist():
            self._place(container)

    def _admit(self, containers: Int64Array, at: int) -> None:
        self._pods.create(containers, at)
        self._churn.born(containers)
        self._pods.resize(containers, self._policy.admit(containers, self._pods.view(at)))

    def queue(self, containers: Int64Array) -> Int64Array:
        """Return pods created at the same time in scheduling order: by namespace and name."""
        return containers[np.argsort(self._rank[containers])]

    def _place(self, container: int) -> None:
        """Give a pod the node that kube-scheduler chooses, else a new one; what fits no empty node stays pending."""
        nodes = self._pods.nodes
        if not self._place_on_what_there_is(container) and nodes.fits_empty_node(self._pods.need(container)):
            self._pods.place(container, nodes.add())

    def _place_on_what_there_is(self, container: int) -> bool:
        chosen = self._pods.nodes.choose(self._pods.need(container))
        if chosen is not None:
            self._pods.place(container, chosen)
        return chosen is not None

    def evict(self, containers: Int64Array, at: int) -> None:
        """Delete pods; their controllers create them again at once.

        A pod counts on its node as long as it terminates, and the scheduler does not wait for it: its replacement goes
        where there is room beside it. A pod without any is placed once the room is free, before a node is added.
        """
        if not containers.size:
            return
        self._churn.evictions[containers] += 1
        nodes = self._pods.nodes
        running = containers[self._pods.node[containers] >= 0].tolist()
        terminating = [(int(self._pods.node[container]), self._pods.need(container)) for container in running]
        self._pods.remove(containers)
        for node, need in terminating:
            nodes.put(node, need)
        self._admit(containers, at)
        queue = self.queue(containers).tolist()
        waiting = [container for container in queue if not self._place_on_what_there_is(container)]
        for node, need in terminating:
            nodes.take(node, need)
        for container in waiting:
            self._place(container)

    def move(self, containers: Int64Array, at: int) -> None:
        """Evict pods for consolidation's sake."""
        self._churn.moves[containers] += 1
        self.evict(containers, at)

    def leave(self, containers: Int64Array) -> None:
        """Delete pods that are not created again, and the nodes that this empties."""
        if not containers.size:
            return
        self._pods.remove(containers)
        self._pods.nodes.remove_empty()

    def carry_out(self, decision: Decision, at: int) -> None:
        """Shrink, then evict, then grow where there is room; a resize that grows one resource is a growth.

        Of a growth without room the part is done that takes none, if it leaves the dead band, unless the policy wants
        an eviction. A pod that does not run is not resized, nor one that uses more memory than its new limit.
        """
        if not decision.resize.size and not decision.evict.size:
            return
        going = _first_of_each(decision.evict)
        going = going[self._pods.node[going] != ABSENT]
        wanted = (self._pods.node[decision.resize] >= 0) & ~np.isin(decision.resize, going)
        wanted &= ~self._undercuts_use(decision)
        containers, sizes = decision.resize[wanted], decision.sizes.take(wanted)
        cpu, memory = self._change(containers, sizes)
        grows = (cpu > 0) | (memory > 0)
        self._write(containers[~grows], sizes.take(~grows), at)
        self.evict(going, at)
        containers, sizes = containers[grows], sizes.take(grows)
        refused = ~self._grow(containers, sizes, at)
        if decision.evict_without_room:
            self.evict(containers[refused], at)
        else:
            self._grow_nothing(containers[refused], sizes.take(refused), at)
        self._pods.nodes.remove_empty()

    def react(self, container: int, reaction: KillReaction, at: int) -> None:
        """Do at once what a policy does about a kill, within the node's room."""
        places = np.array([container], dtype=np.int64)
        if reaction.evict:
            self.evict(places, at)
            self._pods.nodes.remove_empty()
        elif reaction.sizes is not None and self._pods.node[container] >= 0:
            self._grow(places, reaction.sizes, at)

    def _undercuts_use(self, decision: Decision) -> BoolArray:
        """Tell for which resizes the kubelet does nothing yet, as memory in use is above a limit that is to fall."""
        limit, now = decision.sizes.memory_limit_bytes, self._pods.sizes.memory_limit_bytes[decision.resize]
        falls = (limit > 0) & ((now == 0) | (limit < now))
        return np.asarray(falls & (self._pods.memory_in_use[decision.resize] > limit))

    def _grow(self, containers: Int64Array, sizes: Sizes, at: int) -> BoolArray:
        """Resize where the node has room for all that grows on it, then the others by name while there is room.

        Returns which resizes were done.
        """
        node, growth = self._pods.node[containers], self._change(containers, sizes)
        done = self._room_for_all(node, growth)
        self._write(containers[done], sizes.take(done), at)
        late = np.flatnonzero(~done)
        late = late[np.argsort(self._rank[containers[late]])]
        late = late[self._one_by_one(node[late], [change[late] for change in growth])]
        self._write(containers[late], sizes.take(late), at)
        done[late] = True
        return done

    def _grow_nothing(self, containers: Int64Array, sizes: Sizes, at: int) -> None:
        """Write the part of resizes that takes no room."""
        now = self._pods.sizes.take(containers)
        part = Sizes(
            np.minimum(sizes.cpu_millicores, now.cpu_millicores),
            np.minimum(sizes.memory_bytes, now.memory_bytes),
            sizes.memory_limit_bytes,
        )
        moves = leave_dead_band(part, now, _BAND)
        self._write(containers[moves], part.take(moves), at)

    def _change(self, containers: Int64Array, sizes: Sizes) -> tuple[Int64Array, Int64Array]:
        """Return how far the requests would move; memory that was not recorded does not."""
        now = self._pods.sizes
        cpu = sizes.cpu_millicores - now.cpu_millicores[containers]
        if not self._has_memory:
            return cpu, np.zeros_like(cpu)
        return cpu, sizes.memory_bytes - now.memory_bytes[containers]

    def _room_for_all(self, node: Int64Array, changes: tuple[Int64Array, Int64Array]) -> BoolArray:
        """Tell which are on a node that has room for everything that grows on it: there the order does not matter."""
        fits = np.ones(len(node), dtype=np.bool_)
        for free, change in zip(self._pods.nodes.free(), changes, strict=True):
            growth = np.maximum(change, 0)
            growing = np.zeros(len(free), dtype=np.int64)
            np.add.at(growing, node, growth)
            fits &= (growth == 0) | (growing <= free)[node]
        return fits

    def _one_by_one(self, node: Int64Array, changes: Sequence[Int64Array]) -> BoolArray:
        """Tell which have room as each takes it from the next."""
        free_cpu, free_memory = (free.tolist() for free in self._pods.nodes.free())
        done = np.zeros(len(node), dtype=np.bool_)
        for place, (on, cpu, memory) in enumerate(zip(node.tolist(), *(c.tolist() for c in changes), strict=True)):
            if (cpu <= 0 or cpu <= free_cpu[on]) and (memory <= 0 or memory <= free_memory[on]):
                free_cpu[on] -= cpu
                free_memory[on] -= memory
                done[place] = True
        return done

    def _write(self, containers: Int64Array, sizes: Sizes, at: int) -> None:
        if not containers.size:
            return
        cpu, memory = self._change(containers, sizes)
        changed = (cpu != 0) | (memory != 0)
        if self._has_memory:
            changed |= sizes.memory_limit_bytes != self._pods.sizes.memory_limit_bytes[containers]
        if changed.any():
            self._churn.resized(containers[changed], cpu[changed], memory[changed], at)
        self._pods.resize(containers, sizes)


# Every policy's resizes meet the same guards.
_BAND = default_dead_band(Policy())


def _first_of_each(containers: Int64Array) -> Int64Array:
    return containers[np.sort(np.unique(containers, return_index=True)[1])]


def _ranks(recording: Recording) -> Int64Array:
    names = [(one.namespace, one.pod, one.container) for one in recording.containers]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[order] = np.arange(len(names))
    return ranks
