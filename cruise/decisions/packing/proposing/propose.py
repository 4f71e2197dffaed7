"""Puts a packing into a cluster's names, with the order in which it can be carried out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.packing.blocking import why_unplaced
from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.proposing.agenda import Agenda
from cruise.decisions.packing.proposing.knots import Step
from cruise.decisions.packing.proposing.matching import Changes, changes_of, match
from cruise.decisions.packing.proposing.sizing import NoRoom, Sizing, as_they_are, decide_sizing
from cruise.decisions.packing.proposing.staging import Staging
from cruise.decisions.packing.proposing.standing import Standing
from cruise.domain.actions import ResizePod
from cruise.domain.packing import Arrival, Preemption, Proposal, Sizes, Stage, TierLine
from cruise.domain.unplaced import Unplaced
from cruise.packer.answer import Packing
from cruise.packer.problem import Objective, Problem

# What keeps a pod pending for which there is a place that no plan found so far has used.
OUT_OF_TIME = "time-limit"

Explain = Callable[[Built, Packing], Sequence[Unplaced]]


@dataclass(frozen=True, slots=True)
class NoOrder:
    """A packing that cannot be carried out step by step, so that it is no plan; `reason` is for people.

    `unsizable` are uids of pods whose sizes stood in the way: a problem built with them in `Usage.unsizable` minds it.
    """

    reason: str
    unsizable: frozenset[str] = frozenset()


def propose(built: Built, packing: Packing, explain: Explain = why_unplaced) -> Proposal | NoOrder:
    """Say what a packing of `built.problem` changes, pod by pod, and in which stages.

    `explain` says of all pods that stay pending why, sorted by namespace and pod, for the packing that it is given:
    among equal pods it need not be the same ones as in `packing`.
    """
    ordered = _in_order(built, match(built.problem, packing.pod_node))
    if ordered is None:
        # Pods of a class are equal in the end, but not on the way if one stands where the others cannot follow.
        ordered = _in_order(built, changes_of(built.problem, packing.pod_node))
    if ordered is None:
        return NoOrder("no order was found in which kube-scheduler would let every pod in")
    if isinstance(ordered, NoRoom):
        return NoOrder(f"the pods on node {ordered.node} cannot be made as small as planned", ordered.unsizable)
    changes, sizing = ordered.changes, ordered.sizing
    names = _Names(built, ordered.target, sizing)
    return Proposal(
        status=packing.status,
        sizes=built.sizes,
        placed=names.arrivals(changes.placed),
        moves=names.arrivals(changes.moved),
        preempted=names.preemptions(changes.preempted),
        resizes=names.resizes(sizing.resizes),
        unplaced=tuple(
            one if one.blocked_by else replace(one, blocked_by=(OUT_OF_TIME,))
            for one in explain(built, replace(packing, pod_node=changes.pod_node))
        ),
        by_priority=_tier_lines(built.problem, packing),
        stages=tuple(names.stage(step) for step in ordered.steps),
        notes=(*built.notes, *packing.notes),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """The pods that change places, at which sizes, in which steps; `target` has each pod's node, -1 for none."""

    changes: Changes
    sizing: Sizing
    target: Sequence[int]
    steps: Sequence[Step]


def _in_order(built: Built, changes: Changes) -> _Ordered | NoRoom | None:
    """Return the changes in an order, None where none is found."""
    problem, fixed = built.problem, built.sizes is Sizes.FIXED
    sizing = as_they_are(built) if fixed else decide_sizing(built, changes)
    if isinstance(sizing, NoRoom):
        return sizing
    arriving = frozenset(problem.pod_class[[*changes.placed, *changes.moved]].tolist())
    standing = Standing(problem, arriving, sizing.now, sizing.there)
    agenda = Agenda(standing, changes, problem.priorities[problem.pod_class].tolist(), may_exchange=fixed)
    steps = Staging(standing, agenda).steps()
    return None if steps is None else _Ordered(changes, sizing, agenda.target, steps)


class _Names:
    """Turns indices into what the cluster calls them."""

    def __init__(self, built: Built, target: Sequence[int], sizing: Sizing) -> None:
        self._built = built
        self._sizing = sizing
        self._target = target
        self._unsaid: dict[int, list[int]] = {}
        for pod in sizing.resizes:
            self._unsaid.setdefault(target[pod], []).append(pod)

    def arrivals(self, pods: Iterable[int]) -> tuple[Arrival, ...]:
        """Return arrivals in the order given."""
        return tuple(self._arrival(pod) for pod in pods)

    def preemptions(self, pods: Iterable[int]) -> tuple[Preemption, ...]:
        """Return preemptions in the order given."""
        return tuple(self._preemption(pod) for pod in pods)

    def resizes(self, pods: Iterable[int]) -> tuple[ResizePod, ...]:
        """Return resizes, sorted by pod."""
        return tuple(self._sizing.resizes[pod] for pod in sorted(pods))

    def stage(self, step: Step) -> Stage:
        """Return a step in names, with the shrinks of every node at which something arrives for the first time."""
        leaves = sorted(step.leaves)
        nodes = dict.fromkeys(self._target[pod] for pod in step.arrivals)
        shrinks = [pod for node in nodes for pod in self._unsaid.pop(node, ())]
        return Stage(
            resizes=self.resizes(shrinks),
            leaves=tuple(self._arrival(pod) if self._target[pod] >= 0 else self._preemption(pod) for pod in leaves),
            arrivals=self.arrivals(step.arrivals),
        )

    def _arrival(self, index: int) -> Arrival:
        pod, node = self._built.pods[index], self._built.nodes[self._target[index]]
        containers = self._sizing.containers.get(index, ())
        return Arrival(pod.namespace, pod.name, pod.uid, pod.node, node.name, containers)

    def _preemption(self, index: int) -> Preemption:
        pod = self._built.pods[index]
        assert pod.node is not None
        return Preemption(pod.namespace, pod.name, pod.uid, pod.node)


def _tier_lines(problem: Problem, packing: Packing) -> tuple[TierLine, ...]:
    """Say for each priority what the plan places, what runs now, and what no plan surpasses."""
    paper = problem.objective is Objective.PAPER
    most = packing.bound[::2] if paper else packing.bound[:-1]
    return tuple(
        TierLine(after.priority, after.placed, now.placed, bound)
        for after, now, bound in zip(packing.after.tiers, packing.now.tiers, most, strict=True)
    )
