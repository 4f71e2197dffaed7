"""A tiny cluster through the whole packer, compared with an exhaustive search."""

from dataclasses import dataclass

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, PackingProposal, PackingSizes
from cruise.packer.answer import Packing, PackingStatus, compute_figures
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_cluster import best_plan, key_of_now

# Enough for any of these clusters; counted in work, so that every run answers the same.
WORK_UNITS = 2e9
SIZES = {PackingObjective.PAPER: PackingSizes.FIXED, PackingObjective.OPERATOR: PackingSizes.RIGHTSIZED}


@dataclass(frozen=True)
class PackedTrial:
    """What the packer answers, and what that is in the cluster's names."""

    packing: Packing
    proposal: PackingProposal | MoveOrderFailure
    now: tuple[int, ...]

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.packing.status in (PackingStatus.OPTIMAL, PackingStatus.ALREADY_OPTIMAL)


def pack_trial(
    snapshot: ClusterSnapshot, objective: PackingObjective, allowance: EvictionAllowance = UNLIMITED
) -> PackedTrial:
    """Pack a cluster; its reports are looked at as well."""
    built = build_packing_problem(snapshot, sizes=SIZES[objective], allowance=allowance)
    reported: list[Packing] = []
    packing = pack(built.problem, SolveBudget(work_units=WORK_UNITS), reported.append)
    keys = [report.planned.get_key(objective) for report in reported]
    assert keys == sorted(keys), "a report is worse than the one before"
    assert compute_figures(built.problem, packing.pod_node) == packing.planned
    now = compute_figures(built.problem, built.problem.pod_node).get_key(objective)
    return PackedTrial(packing, build_proposal(built, packing), now)


def find_disagreements(
    snapshot: ClusterSnapshot, objective: PackingObjective, allowance: EvictionAllowance = UNLIMITED
) -> list[str]:
    """Say where the packer and trying all plans disagree about a cluster, and what the judge objects to."""
    answer = pack_trial(snapshot, objective, allowance)
    best = best_plan(snapshot, objective, allowance=allowance)
    found = []
    if answer.now != key_of_now(snapshot, objective):
        found.append(f"what runs now is {answer.now}, not {key_of_now(snapshot, objective)}")
    key, bound = answer.packing.planned.get_key(objective), tuple(answer.packing.bound)
    if key != best.key:
        found.append(f"packed {key}, the best is {best.key}: {best.places}")
    if bound != best.key:
        found.append(f"the bound is {bound}, the best {best.key}")
    if isinstance(answer.proposal, MoveOrderFailure):
        found.append(str(answer.proposal.reason))
    else:
        objections = find_plan_objections(snapshot, answer.proposal, allowance=allowance)
        found += [one for one in objections if "neither placed" not in one]
    return found
