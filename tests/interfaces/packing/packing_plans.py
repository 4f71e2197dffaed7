"""A packing plan with something of everything."""

from cruise.domain.actions import ContainerTarget, Reason, ResizePod
from cruise.domain.cluster import ContainerRole
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import (
    Arrival,
    Budget,
    Departure,
    Go,
    Larger,
    Later,
    PackingPlan,
    Phase,
    Preemption,
    Proposal,
    Sizes,
    Spent,
    Stage,
    TierLine,
)
from cruise.domain.resources import NO_AMOUNTS, NO_RESOURCES
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.packer.answer import Note, NoteCode, Status
from tests.builders import NOW, make_amounts

_TARGET = ContainerTarget("app", ContainerRole.MAIN, make_amounts(200, 256), NO_AMOUNTS)
RESIZE = ResizePod("shop", "api-1", "uid-api", "n2", None, (_TARGET,), NO_RESOURCES, Reason.PACKED)
MOVE = Arrival("shop", "web-1", "uid-web", "n1", "n2")
LATE = Arrival("shop", "late-1", "uid-late", None, "n1")
LOW = Preemption("shop", "low", "uid-low", "n1")
LATER = Later((Spent(Budget.NODE, ("n1",), 2),), (Go(3, 2), Go(1, 1)), Larger(1, 4, ((Budget.NODE, 3),)))
PLAN = PackingPlan(
    id="20260101T000000.000000Z",
    at=NOW,
    proposal=Proposal(
        Status.FEASIBLE,
        Sizes.RIGHTSIZED,
        (Unplaced("shop", "huge", ("cpu",), Finding(Pattern.STATED, stated="no node is large enough"), True),),
        (TierLine(5, 3, 2, 4),),
        (Stage((RESIZE,), (), ()), Stage((), (MOVE, LOW), (MOVE, LATE))),
        (Note(NoteCode.STATED, "one node is cordoned"),),
        later=LATER,
    ),
    seconds=0.25,
    phase=Phase.UNDER_WAY,
    changed_at=NOW,
    stage=1,
    departed=(Departure("uid-web", NOW),),
    halt=Halt(HaltCode.BINDING, "shop/web-1"),
)
