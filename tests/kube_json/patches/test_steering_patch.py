"""The preferred node affinity as it is patched into submitted pods."""

import copy
from typing import Any

import pytest

from cruise.errors import BadInput
from cruise.kube_json.patches.steering_patch import affinity_operations, check_affinity, preferred_terms
from tests.admission_reviews import patched

OTHER = {"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
TERM = {
    "weight": 100,
    "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]},
}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    "affinity",
    [
        "absent",
        None,
        {},
        {"podAffinity": {}},
        {"nodeAffinity": None},
        {"nodeAffinity": {}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED, PREFERRED: None}},
        {"nodeAffinity": {PREFERRED: [OTHER]}, "podAntiAffinity": {}},
    ],
    ids=str,
)
def test_a_node_is_preferred_beside_all_that_was_asked_before(affinity):
    pod: dict[str, Any] = {"spec": {"containers": []}}
    if affinity != "absent":
        pod["spec"]["affinity"] = affinity
    before = copy.deepcopy(pod)
    operations = affinity_operations(pod, "n7")
    assert pod == before
    result = patched(pod, operations)
    terms = result["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert terms == [*preferred_terms(pod), TERM]
    check_affinity(preferred_terms(pod), result, "n7")
    result["spec"]["affinity"]["nodeAffinity"][PREFERRED] = preferred_terms(pod)
    kept = result["spec"]["affinity"]
    for name, value in (affinity or {} if affinity != "absent" else {}).items():
        if name != "nodeAffinity":
            assert kept[name] == value
        else:
            assert {k: v for k, v in kept[name].items() if k != PREFERRED} == {
                k: v for k, v in (value or {}).items() if k != PREFERRED
            }


def test_a_patch_that_gave_something_else_is_not_sent():
    pod = {"spec": {"affinity": {"nodeAffinity": {PREFERRED: [OTHER]}}}}
    with pytest.raises(BadInput, match="prefer"):
        check_affinity([], pod, "n7")
