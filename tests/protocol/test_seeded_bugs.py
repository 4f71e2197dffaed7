"""Each seeded bug is found twice: by spin in the model, and on the simulated cluster in code that is built with it.

The code is built wrongly by the constructors' own arguments and by doubles at its ports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from cruise.domain.actions import Action, ActionResult, EvictPod, Outcome, RefusedResize, ResizePod, WriteIntent
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths
from tests.protocol.replaying import Differs, LawBroken, Replay
from tests.protocol.replaying_plans import PackingReplay
from tests.protocol.replicas import Construction, Replica, WatchedWriter
from tests.protocol.scene import POLICY
from tests.protocol.spin import PACKING_MODEL, WHY_NOT, check

pytestmark = [pytest.mark.server, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]


class Stale(Construction):
    """Decisions of any age are written, and usage is not looked at again."""

    policy = replace(POLICY, max_decision_age=timedelta(days=1))

    def writer(self, replica: Replica) -> WatchedWriter:
        return self.built(replica, latest=lambda: None)


class ForgottenBudget(Construction):
    """Budgets count what is known to be done, and not what was begun."""

    def writer(self, replica: Replica) -> WatchedWriter:
        return self.built(replica, evictions=EvictionLock())

    def spent(self, lines: Sequence[Outcome]) -> Sequence[Outcome]:
        return [line for line in lines if line.result is ActionResult.DONE]


class TwoLeaders(Construction):
    """No replica looks at its Lease, and writes are fenced on the pod's uid alone."""

    def may_write(self, replica: Replica) -> bool:
        return True

    def as_sent(self, action: Action) -> Action:
        assert isinstance(action, ResizePod | EvictPod)
        return replace(action, resource_version="")


class OlderDatabase(Construction):
    """Nobody knows which epoch the database had."""

    notices_older_database = False


class LostAnswer(Construction):
    """A write without an answer is taken not to have been sent."""

    def writer(self, replica: Replica) -> WatchedWriter:
        return self.built(replica, growths=PendingGrowths(replica.around.monotonic))

    def left_open(self, intents: Sequence[WriteIntent]) -> Sequence[WriteIntent]:
        return ()

    def unanswered(self, lines: Sequence[Outcome]) -> Sequence[Outcome]:
        return ()


class ForgottenRoom(Construction):
    """What a former leader found without an end is not looked at by the next."""

    def unanswered(self, lines: Sequence[Outcome]) -> Sequence[Outcome]:
        return ()


class ForgottenRefusal(Construction):
    """What a kubelet called infeasible is asked for again."""

    def refused(self, known: Mapping[str, RefusedResize]) -> Mapping[str, RefusedResize]:
        return {}


class EagerEviction(Construction):
    """A shrink that is requested counts as actual."""

    def as_seen(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        def in_force(pod: Pod) -> Pod:
            return replace(pod, containers=tuple(replace(one, allocated=None, actual=None) for one in pod.containers))

        return replace(snapshot, pods=tuple(map(in_force, snapshot.pods)))


class ForgottenReservation(Construction):
    """A new leader does not look for a plan in progress before its first node pass."""

    resumes_plans = False


@dataclass(frozen=True)
class Bug:
    """A bug by its name in the model, as code, and the law that it breaks; how much of the model shows it."""

    name: str
    code: type[Construction]
    law: str
    size: tuple[str, ...]


BUGS = (
    Bug("STALE", Stale, "law_fresh", ("FAULTS=1", "TERMS=1")),
    Bug("FORGOTTEN_BUDGET", ForgottenBudget, "law_budget", ("FAULTS=2",)),
    Bug("TWO_LEADERS", TwoLeaders, "law_fence", ("FAULTS=2",)),
    Bug("OLDER_DATABASE", OlderDatabase, "law_budget", ("FAULTS=1", "TERMS=1")),
    Bug("FORGOTTEN_REFUSAL", ForgottenRefusal, "law_refused", ("FAULTS=1", "TERMS=1", "PLANS=5")),
    # Found by three leaders in turn, each killed or replaced.
    Bug("FORGOTTEN_ROOM", ForgottenRoom, "law_room", ("FAULTS=2", "TERMS=3", "PLANS=4", "ODD=2")),
    Bug("LOST_ANSWER", LostAnswer, "law_room", ("FAULTS=1", "TERMS=1")),
)


PACKING_BUGS = (
    Bug("EAGER_EVICTION", EagerEviction, "law_actual", ("FAULTS=0", "TERMS=1", "PLANS=1", "GROWS=0")),
    Bug("FORGOTTEN_RESERVATION", ForgottenReservation, "law_reserved", ("FAULTS=1", "PLANS=1")),
    Bug("FORGOTTEN_BUDGET", ForgottenBudget, "law_budget", ("FAULTS=1", "TERMS=1")),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.lower())
async def test_a_seeded_bug_is_found_in_the_model_and_in_the_code(tmp_path: Path, bug: Bug):
    found = check(tmp_path, (bug.name, *bug.size))
    assert found.broken == bug.law
    print(f"{bug.name}: {bug.law} by {'; '.join(map(str, found.events))}")
    with pytest.raises(LawBroken, match=bug.law):
        await Replay(bug.code(), compares=False).play(found.events)
    # Code without the bug leaves the way that breaks the law.
    with pytest.raises(Differs):
        await Replay(compares=False).play(found.events)


@pytest.mark.parametrize("bug", PACKING_BUGS, ids=lambda bug: bug.name.lower())
async def test_a_seeded_bug_of_packing_plans_is_found_in_the_model_and_in_the_code(tmp_path: Path, bug: Bug):
    found = check(tmp_path, (bug.name, *bug.size), model=PACKING_MODEL)
    assert found.broken == bug.law
    print(f"{bug.name}: {bug.law} by {'; '.join(map(str, found.events))}")
    with pytest.raises(LawBroken, match=bug.law):
        await PackingReplay(bug.code(), compares=False).play(found.events)
    with pytest.raises(Differs):
        await PackingReplay(compares=False).play(found.events)
