"""The priorities of pods that state none."""

import json

import pytest

from cruise.errors import BadInputError
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import Json, make_list_json, make_node_json, make_pod_json
from tests.storage_builders import make_priority_class_json

HIGH = make_priority_class_json("high", 1000)
POLITE = make_priority_class_json("polite", 500, preemptionPolicy="Never")
DEFAULT = make_priority_class_json("usual", 10, globalDefault=True)


def pods_of(*items: Json) -> list[tuple[int, bool]]:
    text = json.dumps(make_list_json(make_node_json("n1"), *items)).encode()
    return [(pod.priority, pod.may_preempt) for pod in read_snapshot([text], "f.json").pods]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (10, True)),
        ({"priority": 7}, (7, True)),
        ({"priority": 0, "priorityClassName": "high"}, (0, True)),
        ({"priorityClassName": "high"}, (1000, True)),
        ({"priorityClassName": "polite"}, (500, False)),
        ({"priorityClassName": "high", "preemptionPolicy": "Never"}, (1000, False)),
        ({"priority": 3, "preemptionPolicy": "PreemptLowerPriority"}, (3, True)),
        ({"priorityClassName": "system-node-critical"}, (2_000_001_000, True)),
    ],
)
@pytest.mark.parametrize("classes_first", [True, False])
def test_a_pod_without_a_priority_has_that_of_its_class(spec, expected, classes_first):
    pod, classes = make_pod_json(spec=spec), [HIGH, POLITE, DEFAULT]
    assert pods_of(*classes, pod) == pods_of(pod, *classes) == [expected]


def test_without_a_default_the_priority_is_zero_and_of_several_the_lowest_counts():
    assert pods_of(make_pod_json(), HIGH) == [(0, True)]
    assert pods_of(make_pod_json(), DEFAULT, make_priority_class_json("second", 5, globalDefault=True)) == [(5, True)]


def test_a_class_that_does_not_exist_is_reported():
    with pytest.raises(BadInputError, match=r'x2x4z: spec.priorityClassName: "high" is not in the list; print prio'):
        pods_of(make_pod_json(spec={"priorityClassName": "high"}))


def test_an_invalid_policy_is_rejected():
    with pytest.raises(
        BadInputError, match=r'PriorityClass odd: preemptionPolicy: "No" is not a policy; write one of Never'
    ):
        pods_of(make_priority_class_json("odd", 1, preemptionPolicy="No"))
