import json

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import ContainerRole
from cruise.domain.packing_plan import PackingSizes, PlannedPlacement, PlanStage, PriorityResult
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources
from cruise.interfaces.packing.document import render_pack_json
from cruise.packer.answer import PackingStatus
from tests.builders import make_container, make_pod
from tests.interfaces.packing.proposals import by_name, make_proposal, make_scene


def document(pods=None, seconds=0.41, **changes):
    return json.loads(b"".join(render_pack_json(make_proposal(**changes), pods or by_name(make_scene()), seconds)))


def test_the_document_has_exactly_the_keys_of_the_contract():
    assert document() == {
        "status": "optimal",
        "sizes": "fixed",
        "seconds": 0.41,
        "placed": [{"namespace": "a", "pod": "p", "node": "n1"}],
        "moves": [{"namespace": "a", "pod": "q", "from": "n1", "to": "n2"}],
        "preempted": [{"namespace": "a", "pod": "low", "from": "n2"}],
        "resizes": [{"namespace": "a", "pod": "r", "node": "n1", "cpuMillicores": 200, "memoryBytes": 512 * MEBIBYTE}],
        "unplaced": [{"namespace": "a", "pod": "z", "blockedBy": ["cpu", "node-selector"], "impossible": True}],
        "byPriority": [
            {"priority": 1000, "placed": 1, "bound": 1},
            {"priority": 0, "placed": 3, "bound": 3},
            {"priority": -10, "placed": 0, "bound": 0},
        ],
        "evictions": 2,
        "evictionsBound": 0,
    }


def test_a_pod_that_some_plan_could_place_is_not_called_impossible():
    one = UnplacedPod("a", "z", ("cpu",), UnschedulableReason(UnschedulableCode.SCHEDULABLE), impossible=False)
    assert document(unplaced=(one,))["unplaced"] == [{"namespace": "a", "pod": "z", "blockedBy": ["cpu"]}]


def test_keys_are_in_the_order_of_the_contract():
    assert list(document()) == [
        "status",
        "sizes",
        "seconds",
        "placed",
        "moves",
        "preempted",
        "resizes",
        "unplaced",
        "byPriority",
        "evictions",
        "evictionsBound",
    ]


def test_an_open_proof_shows_in_the_bound():
    found = document(status=PackingStatus.FEASIBLE, by_priority=(PriorityResult(7, 12, 10, 15),))
    assert found["status"] == "feasible"
    assert found["byPriority"] == [{"priority": 7, "placed": 12, "bound": 15}]


def test_the_least_evictions_of_any_such_plan_are_shown_with_those_of_the_plan():
    found = document(status=PackingStatus.FEASIBLE, min_evicted=1)
    assert (found["evictions"], found["evictionsBound"]) == (2, 1)


def test_a_pod_that_arrives_smaller_is_a_resize_on_its_target():
    sizes = (ContainerTarget("app", ContainerRole.MAIN, StatedResources(300, None), StatedResources()),)
    placed = (PlannedPlacement("a", "p", "uid-a-p", None, "n3", sizes),)
    found = document(sizes=PackingSizes.RIGHTSIZED, stages=(PlanStage((), (), placed),))
    assert found["sizes"] == "rightsized"
    # What is left as it is counts as it did.
    assert found["resizes"] == [
        {"namespace": "a", "pod": "p", "node": "n3", "cpuMillicores": 300, "memoryBytes": 1024 * MEBIBYTE}
    ]


def test_a_resize_counts_the_whole_pod_with_what_is_not_resized():
    pods = by_name(make_scene())
    containers = [make_container(cpu=1000, memory_mib=1024), make_container("proxy", cpu=50, memory_mib=64)]
    pods["a", "r"] = make_pod("r", "a", "n1", containers, overhead=Resources(10, MEBIBYTE))
    [resize] = document(pods)["resizes"]
    assert (resize["cpuMillicores"], resize["memoryBytes"]) == (200 + 50 + 10, (512 + 64 + 1) * MEBIBYTE)


def test_seconds_have_milliseconds():
    assert document(seconds=1.23456)["seconds"] == 1.235
