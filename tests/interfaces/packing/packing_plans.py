"""A packing plan that contains an entry of every kind."""

from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import ContainerRole
from cruise.domain.packing_plan import (
    EvictedPod,
    EvictionBudgetKind,
    LargerBudgetPlan,
    PackingPlan,
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanPhase,
    PlanRound,
    PlanStage,
    PriorityResult,
    RemainingRounds,
    SpentBudget,
)
from cruise.domain.reasons import PlanCondition, PlanStatusReason, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from tests.builders import NOW, make_amounts

_TARGET = ContainerTarget("app", ContainerRole.MAIN, make_amounts(200, 256), NOTHING_STATED)
RESIZE = ResizePod(
    "shop", "api-1", "uid-api", "n2", None, (_TARGET,), NO_RESOURCES, ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS
)
MOVE = PlannedPlacement("shop", "web-1", "uid-web", "n1", "n2")
LATE = PlannedPlacement("shop", "late-1", "uid-late", None, "n1")
LOW = PlannedPreemption("shop", "low", "uid-low", "n1")
LATER = RemainingRounds(
    (SpentBudget(EvictionBudgetKind.NODE, ("n1",), 2),),
    (PlanRound(3, 2), PlanRound(1, 1)),
    LargerBudgetPlan(1, 4, ((EvictionBudgetKind.NODE, 3),)),
)
PLAN = PackingPlan(
    id="20260101T000000.000000Z",
    at=NOW,
    proposal=PackingProposal(
        PackingStatus.FEASIBLE,
        PackingSizes.RIGHTSIZED,
        (
            UnplacedPod(
                "shop",
                "huge",
                ("cpu",),
                UnschedulableReason(UnschedulableCode.NO_NODES),
                True,
            ),
        ),
        (PriorityResult(5, 3, 2, 4),),
        (PlanStage((RESIZE,), (), ()), PlanStage((), (MOVE, LOW), (MOVE, LATE))),
        (PackingNote(PackingNoteCode.PLAN_DROPPED, "one node is cordoned"),),
        remaining_rounds=LATER,
    ),
    seconds=0.25,
    phase=PlanPhase.IN_PROGRESS,
    changed_at=NOW,
    stage=1,
    evicted=(EvictedPod("uid-web", NOW),),
    condition=PlanCondition(PlanStatusReason.POD_BINDING, "shop/web-1"),
)
