"""When the status of policies is written: mode, pause, budget, and only what changed."""

from dataclasses import replace
from datetime import datetime

import pytest

from cruise.domain.policy import Mode, Policy
from cruise.domain.rightsizing_policies import PolicyStatus, RightsizingPolicy
from cruise.errors import ConflictError, NotFoundError, RefusedError, UnavailableError
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.publication import PolicyStatusUpdater
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, make_pod, make_snapshot

RESIZE = Policy(mode=Mode.RESIZE)


class Recording:
    """Keeps what is written; raises `failure` where there is one."""

    def __init__(self) -> None:
        self.written: list[tuple[str, PolicyStatus]] = []
        self.failure: Exception | None = None
        self.refused = ""

    async def write_status(self, policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> None:
        if self.failure is not None:
            raise self.failure
        if policy.name == self.refused:
            raise RefusedError("denied by another webhook", cause="Forbidden")
        self.written.append((policy.name, status))


def node_pass(count: int = 1, pods: int = 1, generation: int = 1, uid: str = "uid") -> NodePassResult:
    policies = tuple(
        RightsizingPolicy("shop", f"p{at}", generation=generation, uid=f"{uid}-{at}") for at in range(count)
    )
    snapshot = make_snapshot([make_pod(f"web-{at}") for at in range(pods)])
    return NodePassResult(NOW, replace(snapshot, rightsizing_policies=policies), (), ())


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL])
async def test_nothing_is_written_below_mode_resize(mode: Mode):
    recording = Recording()
    assert await PolicyStatusUpdater(recording, InMemoryStore(), Policy(mode=mode)).write(node_pass()) == 0
    assert recording.written == []


async def test_nothing_is_written_while_paused():
    recording, store = Recording(), InMemoryStore()
    await store.set_paused(True)
    assert await PolicyStatusUpdater(recording, store, RESIZE).write(node_pass()) == 0
    assert recording.written == []


async def test_only_what_changed_is_written():
    recording = Recording()
    statuses = PolicyStatusUpdater(recording, InMemoryStore(), RESIZE)
    assert await statuses.write(node_pass(2)) == 2
    assert await statuses.write(node_pass(2)) == 0
    assert await statuses.write(node_pass(2, pods=2)) == 2
    assert await statuses.write(node_pass(2, pods=2, generation=2)) == 2
    assert recording.written[-1] == ("p1", PolicyStatus(2, workloads=1, sized_pods=2))


async def test_a_policy_that_was_created_again_gets_a_status():
    statuses = PolicyStatusUpdater(Recording(), InMemoryStore(), RESIZE)
    await statuses.write(node_pass())
    assert await statuses.write(node_pass(uid="other")) == 1


async def test_a_pass_has_a_budget_and_new_policies_are_handled_first():
    recording = Recording()
    statuses = PolicyStatusUpdater(recording, InMemoryStore(), RESIZE, limit=2)
    assert [await statuses.write(node_pass(3, pods=pods)) for pods in (1, 2, 2, 2)] == [2, 2, 1, 0]
    assert [name for name, _ in recording.written] == ["p0", "p1", "p2", "p0", "p1"]


@pytest.mark.parametrize(
    "failure", [ConflictError("other uid"), NotFoundError("gone"), RefusedError("forbidden", cause="Forbidden")]
)
async def test_a_refusal_is_tried_again_in_the_next_pass(failure: Exception):
    recording = Recording()
    statuses = PolicyStatusUpdater(recording, InMemoryStore(), RESIZE)
    recording.failure = failure
    assert await statuses.write(node_pass()) == 0
    recording.failure = None
    assert await statuses.write(node_pass()) == 1


async def test_one_that_is_always_refused_keeps_no_other_from_being_written():
    recording = Recording()
    statuses = PolicyStatusUpdater(recording, InMemoryStore(), RESIZE)
    recording.refused = "p0"
    assert [await statuses.write(node_pass(count=3)) for _ in range(3)] == [0, 2, 0]
    recording.refused = ""
    assert await statuses.write(node_pass(count=3)) == 1


async def test_a_server_that_does_not_answer_ends_the_pass():
    recording = Recording()
    recording.failure = UnavailableError("no answer")
    with pytest.raises(UnavailableError):
        await PolicyStatusUpdater(recording, InMemoryStore(), RESIZE).write(node_pass())
