"""The preferred node affinity that is patched into submitted pods."""

import copy
from typing import Any

import pytest

from cruise.errors import BadInputError
from cruise.kube_json.patches import build_preferred_affinity, check_preferred_affinity, get_preferred_terms
from tests.admission_reviews import apply_response_patch

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
def test_a_node_is_preferred_next_to_all_that_was_preferred_before(affinity):
    pod: dict[str, Any] = {"spec": {"containers": []}}
    if affinity != "absent":
        pod["spec"]["affinity"] = affinity
    before = copy.deepcopy(pod)
    operations = build_preferred_affinity(pod, "n7")
    assert pod == before
    result = apply_response_patch(pod, operations)
    terms = result["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert terms == [*get_preferred_terms(pod), TERM]
    check_preferred_affinity(get_preferred_terms(pod), result, "n7")
    result["spec"]["affinity"]["nodeAffinity"][PREFERRED] = get_preferred_terms(pod)
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
    with pytest.raises(BadInputError, match="prefer"):
        check_preferred_affinity([], pod, "n7")
