"""From a cluster to a plan: built, packed and ordered, anew where some pods keep the sizes they have, and judged."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cruise.decisions.packing.building import NOTHING_KNOWN, Built, Usage, build_problem
from cruise.decisions.packing.building.kept_room import without_lower_nominations
from cruise.decisions.packing.consolidating import Fleet
from cruise.decisions.packing.judging import Demand, find_objections
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.decisions.packing.proposing.propose import arrives_at
from cruise.decisions.scheduling.board import PodKey, key_of
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import UNLIMITED, Allowance, Proposal, Sizes
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.packer.answer import Packing
from cruise.packer.problem import Problem

P = TypeVar("P", bound=Proposal | NoOrder)

# How often a problem is put anew where some pods turn out to keep the sizes they have.
_MOST_PROBLEMS = 4

# Packs a problem, given the seconds that were taken before; returns those that this took as well.
Pack = Callable[[Problem, float], Awaitable[tuple[Packing, float]]]


@dataclass(frozen=True, slots=True)
class Scene:
    """What a problem is built from; with a `fleet` it is one of as few nodes as can be."""

    snapshot: Snapshot
    policy: Policy
    usage: Usage = NOTHING_KNOWN
    allowance: Allowance = UNLIMITED
    sizes: Sizes = Sizes.RIGHTSIZED
    fleet: Fleet | None = None
    keep_domains: bool = False


@dataclass(frozen=True, slots=True)
class Made(Generic[P]):
    """A plan, or why there is none, with what it was made from, and how long solving took."""

    built: Built
    packing: Packing
    plan: P
    seconds: float

    @property
    def evicts_unproved(self) -> bool:
        """Tell whether pods would be evicted although another plan might need none."""
        return isinstance(self.plan, Proposal) and bool(self.plan.evicted) and not self.packing.needs_evictions

    @property
    def reached(self) -> Packing:
        """The packing that the plan arrives at, which may be less than what was packed."""
        assert isinstance(self.plan, Proposal)
        return arrives_at(self.built, self.packing, self.plan)


async def planned(
    scene: Scene, pack: Pack, busy: Callable[[str], AbstractContextManager[object]] = nullcontext
) -> Made[Proposal | NoOrder]:
    """Build, pack and order; `busy` surrounds what takes a while, by name.

    Where pods stay pending that may take what is kept for a nominated pod of lower priority, that is tried as well.
    """
    made = await _planned(scene, pack, busy, 0.0)
    if scene.fleet is not None or isinstance(made.plan, NoOrder):
        return made
    waiting = {one.key for one in made.plan.unplaced}
    freed = without_lower_nominations(scene.snapshot, [pod for pod in made.built.pods if key_of(pod) in waiting])
    if freed is None:
        return made
    other = await _planned(replace(scene, snapshot=freed), pack, busy, made.seconds)
    if isinstance(other.plan, NoOrder) or _placed(other.plan) <= _placed(made.plan):
        return replace(made, seconds=other.seconds)
    # The judge goes by the nominations that there are.
    objections = objections_to(other.plan, replace(other.built, snapshot=scene.snapshot), scene.allowance)
    return replace(made, seconds=other.seconds) if objections else other


def _placed(plan: Proposal) -> list[int]:
    """Return how many pods a plan places of each priority, the highest first."""
    return [tier.placed for tier in plan.by_priority]


async def _planned(
    scene: Scene, pack: Pack, busy: Callable[[str], AbstractContextManager[object]], seconds: float
) -> Made[Proposal | NoOrder]:
    usage = scene.usage
    for left in reversed(range(_MOST_PROBLEMS)):
        with busy("putting the cluster into numbers"):
            built = await asyncio.to_thread(_built, replace(scene, usage=usage))
        packing, took = await pack(built.problem, seconds)
        seconds += took
        with busy("putting the plan in order"):
            plan = await asyncio.to_thread(propose, built, packing)
        if not isinstance(plan, NoOrder) or plan.unsizable <= usage.unsizable or not left:
            break
        # Some keep the sizes that they have, which is found out only where all are sized together.
        usage = replace(usage, unsizable=usage.unsizable | plan.unsizable)
    return Made(built, packing, plan, seconds)


def objections_to(proposal: Proposal, built: Built, allowance: Allowance) -> Sequence[str]:
    """Return what the judge has against a plan for a problem."""
    return find_objections(
        built.snapshot,
        proposal,
        demands=demands_of(built) if built.sizes is Sizes.RIGHTSIZED else None,
        policy=built.policy,
        stored=built.usage.stored,
        allowance=allowance,
    )


def demands_of(built: Built) -> Mapping[PodKey, Demand]:
    """Return what each pod of a problem needs on its node, for the judge."""
    problem = built.problem
    cpu, memory = problem.resources.index("cpu"), problem.resources.index("memory")
    of_class = [
        Demand(Resources(int(base[cpu]), int(base[memory])), Resources(int(share[cpu]), int(share[memory])))
        for base, share in zip(problem.demands, problem.headroom, strict=True)
    ]
    return {key_of(pod): of_class[number] for pod, number in zip(built.pods, problem.pod_class.tolist(), strict=True)}


def _built(scene: Scene) -> Built:
    return build_problem(
        scene.snapshot,
        scene.policy,
        scene.sizes,
        scene.usage,
        allowance=scene.allowance,
        prices=None if scene.fleet is None else scene.fleet.prices,
        keep_domains=scene.keep_domains,
    )
