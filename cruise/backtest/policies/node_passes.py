"""Cruise under replay: its own statistics, admission, node pass and OOM reaction, in columns.

What a pass decides pod by pod on a live cluster (which pods may be touched, eviction rankings, admission, reactions,
budgets) the same functions decide here, with pods made for the purpose; whether a pod may be touched is decided again
only once something has changed that the answer depends on.
"""

from dataclasses import replace

import numpy as np

from cruise.backtest.policies.disruptions import Disruptions
from cruise.backtest.policies.exits import ReplayedDestinations
from cruise.backtest.policies.kill_reactions import KillReactions
from cruise.backtest.policies.known_statistics import UNKNOWN, KnownStatistics
from cruise.backtest.policies.replayed_calm import ReplayedCalm
from cruise.backtest.policies.replayed_headroom import ReplayedHeadroom
from cruise.backtest.policies.replayed_pods import NO_OVERRIDES, ReplayedPods, sizes_of
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.touchable_pods import TouchablePods
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, Kill, KillReaction, Sizes
from cruise.backtest.replay.resize_room import held_to_room
from cruise.decisions.admission.replacing import replacements
from cruise.decisions.eviction.earlier import NOTHING_SEEN, Earlier
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.sizing.fitting import Circumstances, Fit, crowds_of, fit_nodes, shortages
from cruise.decisions.sizing.headroom.risk_level import InForce
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.decisions.sizing.node_sizes import size_nodes
from cruise.decisions.sizing.recommendation import demand_table
from cruise.decisions.sizing.sharing import average_sharing, headrooms_of
from cruise.domain.arrays import BoolArray, Float32Array, Int64Array
from cruise.domain.headroom import Sharing
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.admission.admission import Admitter
from cruise.simulation.cluster.timeline import utc


class CruisePasses:
    """Cruise in mode full under one policy."""

    def __init__(
        self, recording: Recording, policy: Policy, name: str = "cruise", stored: StoredOverrides = NO_OVERRIDES
    ) -> None:
        count = len(recording.containers)
        self._name = name
        self._policy = replace(policy, mode=Mode.FULL)
        self._statistics = ReplayedStatistics(recording, self._policy)
        self._known = KnownStatistics(recording, self._statistics)
        self._headroom = ReplayedHeadroom(self._policy, self._statistics)
        self._stored = stored
        self._pods = ReplayedPods(recording, stored)
        self._touchable = TouchablePods(recording, self._pods, self._policy)
        self._disruptions = Disruptions(self._pods, self._policy)
        self._kills = KillReactions(count, self._pods, self._statistics, self._known, self._disruptions, self._policy)
        self._born = np.zeros(count, dtype=np.int64)
        self._admitter: tuple[int, Admitter] | None = None
        self._sharing: Sharing | None = None
        self._earlier = NOTHING_SEEN
        self._calm = ReplayedCalm(count, self._policy)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self._name

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in samples."""
        self._statistics.observe(at, cpu, memory)
        self._headroom.observe(at, cpu, memory)
        self._admitter = None

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Size new pods as the webhook does."""
        now = utc(view.at)
        if self._admitter is None or self._admitter[0] != view.at:
            nowhere = self._pods.snapshot(view, NO_CONTAINERS)
            known = replace(self._statistics.of_workloads(), sharing=self._sharing)
            self._admitter = (view.at, Admitter(nowhere, known, self._stored, self._policy, now))
        # What a pod that still runs would be created with may be wanted as well.
        replaced = containers[view.born[containers] > np.maximum(self._born[containers], 1)]
        self._statistics.replaced(replaced)
        self._headroom.replaced(replaced)
        self._calm.replaced(replaced)
        self._born[containers] = view.born[containers]
        admitted = []
        for container in containers.tolist():
            self._pods.note_admission(container, False)
            created = self._pods.created(container, now)
            pod, _ = self._admitter[1].admit(created)
            self._pods.note_admission(container, pod is not created)
            admitted.append(pod)
        return sizes_of(admitted)

    def decide(self, view: ClusterView) -> Decision:
        """Run a node pass."""
        self._known.refresh(view)
        candidates, chosen = self._touchable.candidates(view, self._known)
        row_of, statistics = self._known.row_of, self._known.columns
        sizes = view.sizes.take(chosen)
        stated = np.column_stack(
            (sizes.cpu_millicores, sizes.memory_bytes, np.zeros(len(chosen), np.int64), sizes.memory_limit_bytes)
        )
        columns = NodeColumns(
            nodes=self._pods.nodes(view),
            available=_room(view, chosen),
            node_of_pod=view.node[chosen],
            counted={ResourceName.CPU: sizes.cpu_millicores, ResourceName.MEMORY: sizes.memory_bytes},
            table=demand_table(candidates, stated, statistics, row_of[chosen], self._policy),
        )
        headroom = self._headroom.of_pass(row_of, len(statistics.updated_at), self._known.own_rows)
        calm = self._calm.of_pass(view, chosen)
        sized = size_nodes(columns, self._fit(view, columns), headroom, calm=calm)
        self._sharing = average_sharing(headrooms_of(sized.sums, sized.shares))
        staying = sized.fit.stays[columns.candidates.pod_of]
        rests = self._kills.rests(view)[chosen]
        wanted = Sizes(
            sized.written.cpu_millicores.copy(),
            sized.written.memory_bytes.copy(),
            sized.written.memory_limit_bytes.copy(),
        )
        free, cpu, memory = _room(view, NO_CONTAINERS), sized.sums[ResourceName.CPU], sized.sums[ResourceName.MEMORY]
        patched = held_to_room(
            sized.rightsized & ~rests,
            wanted,
            sizes,
            view.node[chosen],
            (free[ResourceName.CPU], free[ResourceName.MEMORY]),
            candidates.dead_band,
        )
        resized = np.flatnonzero(patched)
        self._calm.note(view.at, chosen, sized, resized)
        in_force = {
            ResourceName.CPU: np.where(patched, wanted.cpu_millicores, sizes.cpu_millicores)[staying],
            ResourceName.MEMORY: np.where(patched, wanted.memory_bytes, sizes.memory_bytes)[staying],
        }
        nodes = columns.node_of[staying]
        self._headroom.note_requests(InForce(view.at, chosen[staying], nodes, len(columns.nodes), in_force))
        return Decision(
            resize=chosen[resized],
            sizes=wanted.take(resized),
            evict=self._evictions(view, sized.fit, chosen, rests),
            base=(cpu.base, memory.base),
            headroom=(cpu.headroom, memory.headroom),
        )

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        """React to a kill as the OOM reactor does."""
        self._admitter = None
        return self._kills.react(kill, view)

    def _fit(self, view: ClusterView, columns: NodeColumns) -> Fit:
        """Decide the fit; nodes are added for what is pending, but none larger than they all are."""
        short = shortages(columns)
        names = [node.name for node in columns.nodes]
        earlier, self._earlier = self._earlier, NOTHING_SEEN
        if not short:
            return fit_nodes(columns, {}, short)
        # What is left alone demands CPU as well.
        running = np.flatnonzero((view.node >= 0) & (self._known.row_of >= 0))
        bases = self._known.columns.cpu_base_millicores[self._known.row_of[running]]
        demand = np.bincount(view.node[running], weights=bases, minlength=len(names)).astype(np.int64)
        eligibility = self._pods.eligibility(view, UNKNOWN, self._policy)
        places = self._destinations(view, columns)
        around = Circumstances(demand, earlier, exits=None if places is None else places.of_node)
        fit = fit_nodes(columns, crowds_of(columns, eligibility, self._policy.rules, around, short), short)
        self._earlier = Earlier(frozenset((names[at], one) for at in fit.pressing for one in fit.pressing[at]))
        return replace(fit, promised=places.promised()) if places is not None and fit.evicted else fit

    def _destinations(self, view: ClusterView, columns: NodeColumns) -> ReplayedDestinations | None:
        """Return where evicted pods go; None where evictions need not know it."""
        nowhere, known = self._pods.snapshot(view, NO_CONTAINERS), self._statistics.of_workloads()
        known = replace(known, sharing=self._sharing)
        eligibility = Eligibility(nowhere, known, self._stored, self._policy, utc(view.at))
        prospects = replacements(nowhere, eligibility, known, self._policy)
        if prospects is None:
            return None
        free, available = _room(view, NO_CONTAINERS), columns.available
        base, spike = columns.base_of_nodes, columns.spike_of_nodes
        cpu = available[ResourceName.CPU] - base[ResourceName.CPU]
        memory = available[ResourceName.MEMORY] - base[ResourceName.MEMORY] - spike[ResourceName.MEMORY]
        there = np.bincount(view.node[view.node >= 0], minlength=len(view.alive))
        most = np.array([node.allocatable_pods for node in columns.nodes], dtype=np.int64)
        return ReplayedDestinations(
            prospects.anew,
            view.allocatable,
            view.alive,
            free=np.column_stack((free[ResourceName.CPU], free[ResourceName.MEMORY])),
            spare=np.column_stack((cpu, memory)),
            places=most - there,
        )

    def _evictions(self, view: ClusterView, fit: Fit, chosen: Int64Array, rests: BoolArray) -> Int64Array:
        """Return the containers to evict of those marked: within the budgets, and not while a kill is answered."""
        going = []
        for node in sorted(fit.evicted):
            for eviction in fit.evicted[node]:
                if rests[eviction.index]:
                    continue
                container = int(chosen[eviction.index])
                if self._disruptions.spend(eviction.action(self._pods.pod(container, view)), view) is None:
                    going.append(container)
        return np.array(going, dtype=np.int64)


def _room(view: ClusterView, chosen: Int64Array) -> dict[ResourceName, Int64Array]:
    """Return each node's allocatable without what the other pods than the chosen take."""
    others = view.node >= 0
    others[chosen] = False
    nodes = view.node[others]
    room = {}
    for resource, taken in (
        (ResourceName.CPU, view.sizes.cpu_millicores),
        (ResourceName.MEMORY, view.sizes.memory_bytes),
    ):
        room[resource] = np.full(len(view.alive), view.allocatable.of(resource), dtype=np.int64)
        np.subtract.at(room[resource], nodes, taken[others])
    return room
