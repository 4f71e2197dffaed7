"""The preflight checks exactly the access that deploy/rbac grants."""

from collections.abc import Iterator
from itertools import product

import pytest

from cruise.decisions.preflight.preflight import list_required_access
from cruise.domain.policy import Mode
from cruise.domain.preflight import RequiredAccess
from tests.deploy.installing import NAMESPACE, SERVE, documents, rbac_files


def granted(mode: str) -> Iterator[RequiredAccess]:
    """The access that the files of a mode grant to `cruise serve`."""
    objects = documents(*rbac_files(mode))
    roles = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    for binding in objects:
        if SERVE not in {subject["name"] for subject in binding.get("subjects", ())}:
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            cells = product(rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""]))
            for group, resource, verb, name in cells:
                plural, _, subresource = resource.partition("/")
                yield RequiredAccess(verb, plural, group, subresource, namespace, name)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.OFF])
def test_the_rights_of_a_mode_are_those_of_its_files(mode):
    assert set(list_required_access(mode, NAMESPACE, reviews_callers=True)) == set(granted(mode.label))
