"""Plans for a hundred drawn clusters, bound by the real kube-scheduler: it accepts nearly every pod's planned node."""

import time

from cruise.decisions.packing.budget import Budget
from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.pack import pack
from cruise.decisions.packing.proposal import Proposal
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.cluster import Snapshot
from tests.e2e.packing.carrying import Carrying
from tests.e2e.packing.stage import Stage

SECONDS_EACH = 0.5


def test_the_real_scheduler_accepts_what_plans_want(stage: Stage):
    plans = {}
    for name, snapshot in stage.snapshots().items():
        plan = plan_for(snapshot)
        assert isinstance(plan, Proposal), f"{name}: {plan.reason}"
        assert find_objections(snapshot, plan) == (), name
        plans[name] = plan
    carrying = Carrying(stage, plans)
    carrying.run()
    landings = carrying.landings
    for one in landings:
        if not one.as_planned:
            print(one)
    print(
        len(landings),
        sum(one.as_planned for one in landings),
        sum(len(p.moves) for p in plans.values()),
        sum(len(p.preempted) for p in plans.values()),
    )
    assert sum(one.as_planned for one in landings) >= 0.99 * len(landings)


def plan_for(snapshot: Snapshot) -> Proposal | NoOrder:
    """The plan for a cluster as it is."""
    built = build_problem(snapshot)
    budget = Budget(time.monotonic() + SECONDS_EACH)
    return propose(built, pack(built.problem, budget, lambda packing: None))
