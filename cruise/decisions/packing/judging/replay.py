"""A plan stage by stage, as the API server and kube-scheduler would see it."""

from collections.abc import Iterator, Sequence
from itertools import chain

from cruise.decisions.packing.judging.leaving import Leaving
from cruise.decisions.packing.judging.sizing import (
    Demands,
    find_growth,
    find_lack_of_headroom,
    find_removals,
    find_wrong_sizes,
)
from cruise.decisions.scheduling.board import Board, PodKey, key_of, waits_for_a_node
from cruise.decisions.scheduling.scheduler import Scheduler
from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.packing import Arrival, Preemption, Proposal, Sizes, Stage
from cruise.domain.sizes import sized


class Replay:
    """The cluster while a plan is carried out; `objections` gathers what would go wrong."""

    def __init__(self, snapshot: Snapshot, proposal: Proposal, leaving: Leaving) -> None:
        self.board = Board(snapshot)
        self.arrived: dict[PodKey, Pod] = {}
        self.gone: list[Pod] = []
        self.gone_by_stage: list[list[Pod]] = []
        self.objections: list[str] = []
        self._snapshot = snapshot
        self._proposal = proposal
        self._leaving = leaving
        self._scheduler = Scheduler(self.board)
        self._pods = {key_of(pod): pod for pod in snapshot.pods}
        self._preempted_nodes = _made_by_preemption(proposal)
        waiting = [
            pod.priority
            for pod in snapshot.pods
            if pod.preempts
            and waits_for_a_node(pod)
            and not pod.pod_group
            and leaving.why_claims_are_unusable(pod) is None
        ]
        self._highest_waiting = max(waiting, default=None)
        self._out: dict[PodKey, Arrival] = {}
        self._left: set[PodKey] = set()
        self._resized: set[PodKey] = set()
        self._welcome: list[PodKey] = []
        self._crowded: set[PodKey] = set()

    def run(self) -> None:
        """Carry out all stages, then look at what arrived once more, with everything else in place.

        Of pods that come before any leaves it is enough that they were let in: nothing made room for them. What held
        for them then, no eviction may undo.
        """
        for number, stage in enumerate(self._proposal.stages, 1):
            before = len(self.gone)
            if stage.leaves and not self.gone:
                self._crowd()
            self._run(stage, f"stage {number}: ")
            self.gone_by_stage.append(self.gone[before:])
        if not self.gone:
            self._crowd()
        for key, pod in self.arrived.items():
            node_name = self.board.place_of(key)
            if node_name is not None and key not in self._crowded:
                self.board.remove(key)
                self._ask_scheduler("in the end: ", pod, node_name)
                self.board.add(pod, node_name)

    def _crowd(self) -> None:
        """Note the pods that were let in, and would not be again for others that came after them."""
        if self._proposal.sizes is not Sizes.FIXED:
            return
        for key in self._welcome:
            pod, node = self.arrived[key], self.board.nodes[self.board.place_of(key) or ""]
            self.board.remove(key)
            if next(self._scheduler.refuse(pod, node), None) is not None:
                self._crowded.add(key)
            self.board.add(pod, node.name)

    def lacks_of_headroom(self, demands: Demands) -> Iterator[str]:
        """Say which nodes cannot hold what the pods there need, of those at which some arrived and still are."""
        found: dict[str, list[Pod]] = {}
        for key, pod in self.arrived.items():
            place = self.board.place_of(key)
            if place is not None:
                found.setdefault(place, []).append(pod)
        for node, arrived in found.items():
            yield from find_lack_of_headroom(self.board, node, arrived, demands)

    def _run(self, stage: Stage, where: str) -> None:
        if not (stage.resizes or stage.leaves or stage.arrivals):
            self.objections.append(f"{where}nothing happens")
        for resize in stage.resizes:
            self._resize(resize, where)
        for leave in stage.leaves:
            self._leave(leave, where)
        for arrival in stage.arrivals:
            self._arrive(arrival, where)
        for key, move in self._out.items():
            self._object(where, key, f"leaves {move.source} and does not arrive on {move.target}")
        self._out.clear()

    def _resize(self, resize: ResizePod, where: str) -> None:
        key = resize.key
        pod = self._find(key, resize.uid, where)
        if pod is None:
            return
        self._judge_sizes(pod, resize.containers, where, "is resized")
        if resize.node != self.board.place_of(key):
            self._object(where, key, f"is resized on {resize.node}, but is on {self.board.place_of(key)}")
        if pod.terminal or pod.terminating:
            self._object(where, key, "is resized, though it ends")
        if key in self._resized:
            self._object(where, key, "is resized twice")
        self._resized.add(key)
        for wrong in chain(find_removals(pod, resize.containers), find_growth(pod, resize.containers)):
            self._object(where, key, wrong)
        self._pods[key] = sized(pod, resize.containers)
        place = self.board.place_of(key)
        if place is not None:
            self.board.remove(key)
            self.board.add(self._pods[key], place)

    def _leave(self, leave: Arrival | Preemption, where: str) -> None:
        key = leave.key
        pod = self._find(key, leave.uid, where)
        if pod is None:
            return
        if key in self._left:
            self._object(where, key, "leaves twice")
            return
        place = self.board.place_of(key)
        if place is None or leave.source != place:
            self._object(where, key, f"leaves {leave.source}, but is on {place}")
            return
        why = self._leaving.why_stays(pod)
        if why is not None:
            self._object(where, key, f"may not be evicted: {why}")
        self._left.add(key)
        self.gone.append(self.board.remove(key))
        if isinstance(leave, Preemption):
            self._judge_preemption(pod, where)
        else:
            self._out[key] = leave

    def _judge_preemption(self, pod: Pod, where: str) -> None:
        highest = self._highest_waiting
        fixed = self._proposal.sizes is Sizes.FIXED
        if highest is None or pod.priority > highest or (pod.priority == highest and not fixed):
            self._object(where, key_of(pod), f"of priority {pod.priority} is preempted for pods of at most {highest}")

    def _arrive(self, arrival: Arrival, where: str) -> None:
        key = arrival.key
        pod = self._find(key, arrival.uid, where)
        if pod is None:
            return
        if self.board.place_of(key) is not None:
            self._object(where, key, f"arrives on {arrival.target}, but is on {self.board.place_of(key)}")
            return
        if arrival.source is None and not waits_for_a_node(pod):
            self._object(where, key, "arrives as if it were pending and free to be scheduled")
        if arrival.source is not None and self._out.pop(key, None) != arrival:
            self._object(where, key, f"arrives from {arrival.source} without having left it for {arrival.target}")
        if arrival.source == arrival.target:
            self._object(where, key, "moves to where it is")
        if arrival.containers:
            self._judge_sizes(pod, arrival.containers, where, "arrives with other sizes")
            pod = sized(pod, arrival.containers)
        if arrival.target in self._preempted_nodes and not pod.preempts:
            self._object(where, key, f"never preempts, but gets room on {arrival.target} by preemption")
        if arrival.target in self.board.nodes:
            if self._ask_scheduler(where, pod, arrival.target) and not self.gone:
                self._welcome.append(key)
            self.arrived[key] = pod
            self.board.add(pod, arrival.target)
        else:
            self._object(where, key, f"arrives on {arrival.target}, which does not exist")

    def _judge_sizes(self, pod: Pod, targets: Sequence[ContainerTarget], where: str, what: str) -> None:
        if self._proposal.sizes is Sizes.FIXED:
            self._object(where, key_of(pod), f"{what}, though sizes are fixed")
        anothers = self._leaving.why_anothers(pod)
        if anothers is not None:
            self._object(where, key_of(pod), f"{what}, though {anothers}")
        for wrong in find_wrong_sizes(self._snapshot, pod, targets):
            self._object(where, key_of(pod), wrong)

    def _ask_scheduler(self, where: str, pod: Pod, node_name: str) -> bool:
        """Object to what refuses the pod there; tell whether nothing does."""
        refusals = list(self._scheduler.refuse(pod, self.board.nodes[node_name]))
        for refusal in refusals:
            self._object(where, key_of(pod), f"is not let onto {node_name}, which {refusal}")
        return not refusals

    def _find(self, key: PodKey, uid: str, where: str) -> Pod | None:
        pod = self._pods.get(key)
        if pod is None:
            self._object(where, key, "does not exist")
        elif pod.uid != uid:
            self._object(where, key, f"has uid {pod.uid}, not {uid}")
        else:
            return pod
        return None

    def _object(self, where: str, key: PodKey, what: str) -> None:
        self.objections.append(f"{where}pod {key[0]}/{key[1]} {what}")


def _made_by_preemption(proposal: Proposal) -> set[str]:
    """The nodes from which pods are preempted, and those from which pods move to such a one."""
    leaves = [leave for stage in proposal.stages for leave in stage.leaves]
    found = {gone.source for gone in (*proposal.preempted, *leaves) if isinstance(gone, Preemption)}
    moves = [
        (leave.source, leave.target) for leave in leaves if isinstance(leave, Arrival) and leave.source is not None
    ]
    while more := {source for source, target in moves if target in found} - found:
        found |= more
    return found
