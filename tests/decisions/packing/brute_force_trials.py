"""One tiny cluster through the whole packer, beside what trying all plans says of it."""

from dataclasses import dataclass

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import UNLIMITED, Allowance, Proposal, Sizes
from cruise.packer.answer import Packing, Status, figures_of
from cruise.packer.budget import Budget
from cruise.packer.pack import pack
from cruise.packer.problem import Objective
from tests.decisions.packing.brute_force_cluster import best_plan, key_of_now

# Enough for any of these clusters; counted in work, so that every run answers the same.
WORK_UNITS = 2e9
SIZES = {Objective.PAPER: Sizes.FIXED, Objective.OPERATOR: Sizes.RIGHTSIZED}


@dataclass(frozen=True)
class Packed:
    """What the packer answers, and what that is in the cluster's names."""

    packing: Packing
    proposal: Proposal | NoOrder
    now: tuple[int, ...]

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.packing.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL)


def packed(snapshot: Snapshot, objective: Objective, allowance: Allowance = UNLIMITED) -> Packed:
    """Pack a cluster; its reports are looked at as well."""
    built = build_problem(snapshot, sizes=SIZES[objective], allowance=allowance)
    reported: list[Packing] = []
    packing = pack(built.problem, Budget(work_units=WORK_UNITS), reported.append)
    keys = [report.after.key(objective) for report in reported]
    assert keys == sorted(keys), "a report is worse than the one before"
    assert figures_of(built.problem, packing.pod_node) == packing.after
    now = figures_of(built.problem, built.problem.pod_node).key(objective)
    return Packed(packing, propose(built, packing), now)


def find_disagreements(snapshot: Snapshot, objective: Objective, allowance: Allowance = UNLIMITED) -> list[str]:
    """Say where the packer and trying all plans disagree about a cluster, and what the judge objects to."""
    answer = packed(snapshot, objective, allowance)
    best = best_plan(snapshot, objective, allowance=allowance)
    found = []
    if answer.now != key_of_now(snapshot, objective):
        found.append(f"what runs now is {answer.now}, not {key_of_now(snapshot, objective)}")
    key, bound = answer.packing.after.key(objective), tuple(answer.packing.bound)
    if key != best.key:
        found.append(f"packed {key}, the best is {best.key}: {best.places}")
    if bound != best.key:
        found.append(f"the bound is {bound}, the best {best.key}")
    if isinstance(answer.proposal, NoOrder):
        found.append(str(answer.proposal.why))
    else:
        objections = find_objections(snapshot, answer.proposal, allowance=allowance)
        found += [one for one in objections if "neither placed" not in one]
    return found
