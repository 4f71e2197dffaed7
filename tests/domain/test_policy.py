"""Excluded namespaces: names, patterns and invalid entries."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.namespace_patterns import check_namespace_pattern, is_dns_label, matches_any_pattern
from cruise.domain.policy import Policy
from cruise.errors import BadInputError
from cruise.settings import load_settings


def policy(text: str) -> Policy:
    return load_settings({"CRUISE_EXCLUDED_NAMESPACES": text}).to_policy()


@pytest.mark.parametrize(
    ("text", "excluded", "others"),
    [
        ("openshift-*", ["openshift-dns", "openshift-"], ["openshift", "shop"]),
        ("team-?", ["team-a"], ["team-", "team-ab"]),
        ("shard-[0-3]", ["shard-0", "shard-3"], ["shard-4"]),
        ("shard-[!0-3]", ["shard-4"], ["shard-0"]),
        ("*-system", ["cattle-system"], ["system"]),
        ("ops", ["ops"], ["ops-2", "devops"]),
        ("*", ["shop"], []),
    ],
)
def test_a_pattern_excludes_what_it_matches_and_the_default_is_kept(text, excluded, others):
    found = policy(text)
    assert all(map(found.excludes_namespace, ("kube-system", "cruise", *excluded)))
    assert not any(map(found.excludes_namespace, others))


def test_what_is_excluded_by_itself_is_taken_out_by_name_alone():
    assert not policy("!kube-system,ops").excludes_namespace("kube-system")
    with pytest.raises(BadInputError, match='"!shop" removes nothing: only cruise, kube-system are excluded'):
        policy("!shop")


@pytest.mark.parametrize(
    "text",
    [
        "OpenShift",
        "Kube-System",
        "/openshift-.*/",
        "^openshift-",
        "openshift-.*",
        "kube_system",
        "shop|bank",
        "(shop)",
        "a.b",
        "kube-system bank",
        "-shop",
        "shop-",
        "*-",
        "-*",
        "[",
        "team-[a",
        "[A-Z]*",
        "[-]*",
        "[!-a-z0-9]",
        '["shop"]',
        "['shop']",
        "[^a]*",
        "[Aa]*",
        "x" * 64,
        "?" * 64,
        "kube-system;bank",
    ],
)
@pytest.mark.parametrize("setting", ["excluded_namespaces", "prometheus_namespaces"])
def test_what_can_match_no_namespace_is_rejected_in_one_line_that_quotes_it(setting, text):
    with pytest.raises(BadInputError) as refused:
        load_settings({f"CRUISE_{setting.upper()}": f"ops,{text}"})
    line = str(refused.value)
    assert line.startswith(f"CRUISE_{setting.upper()}: ")
    assert text[:40] in line
    assert "write e.g. monitoring" in line
    assert "\n" not in line


@pytest.mark.parametrize("text", ["Cruise", "cruise-*", "a,b", "x" * 64])
def test_cruises_own_namespace_is_one_name(text):
    with pytest.raises(BadInputError, match=r"CRUISE_NAMESPACE: .* is not the name of a namespace; write e.g. cruise"):
        load_settings({"CRUISE_NAMESPACE": text})


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)


@given(st.text("ab0-*?[]!", min_size=1, max_size=8), NAMES)
def test_nothing_that_matches_a_name_is_rejected_and_fnmatch_says_what_matches(pattern, name):
    matches = fnmatchcase(name, pattern)
    assert matches_any_pattern([pattern], name) == matches
    if matches:
        check_namespace_pattern(pattern)


@given(NAMES)
def test_every_name_is_a_pattern_of_itself(name):
    assert is_dns_label(name)
    check_namespace_pattern(name)
    assert matches_any_pattern([name], name)
