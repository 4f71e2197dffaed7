"""The roles of each mode grant exactly the listed verbs on a real API server."""

from collections.abc import Iterator

import pytest

from tests.controlplane.api import Api, ApiError
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.installing import (
    ACCOUNTS,
    CERTIFICATES,
    MODES,
    NAMESPACE,
    SERVE,
    WEBHOOK,
    check_permission,
    documents,
    grant,
    rbac_files,
    rules,
    token,
)

READ = ("get", "list", "watch")
READ_BY_SERVE = {
    "": ("limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "resourcequotas"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "autoscaling": ("horizontalpodautoscalers",),
    "autoscaling.k8s.io": ("verticalpodautoscalers",),
    "cruise.io": ("clusterrightsizingpolicies", "rightsizingpolicies"),
    "apps.kruise.io": ("clonesets",),
    "batch": ("cronjobs", "jobs"),
    "karpenter.sh": ("nodeclaims", "nodepools"),
    "policy": ("poddisruptionbudgets",),
    "scheduling.k8s.io": ("priorityclasses",),
    "storage.k8s.io": ("csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"),
}
READ_BY_WEBHOOK = {
    "": ("limitranges", "namespaces", "nodes", "resourcequotas"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "autoscaling": ("horizontalpodautoscalers",),
    "autoscaling.k8s.io": ("verticalpodautoscalers",),
    "cruise.io": ("clusterrightsizingpolicies", "rightsizingpolicies"),
    "apps.kruise.io": ("clonesets",),
    "batch": ("cronjobs", "jobs"),
    "karpenter.sh": ("nodepools",),
}
CONFIGURATIONS = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "cruise")
STATUS_OF_AUTOSCALER = {("get", "", "configmaps", "cluster-autoscaler-status")}
# (account, mode from which on it holds, everywhere or only in cruise's own namespace, permissions).
REVIEWS = {
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
}
BEYOND_READS = [
    (SERVE, "observe", "", REVIEWS),
    (SERVE, "observe", "kube-system", STATUS_OF_AUTOSCALER),
    (WEBHOOK, "initial", "kube-system", STATUS_OF_AUTOSCALER),
    (CERTIFICATES, "initial", "", {("get", *CONFIGURATIONS), ("patch", *CONFIGURATIONS)}),
    (
        CERTIFICATES,
        "initial",
        NAMESPACE,
        {(verb, "", "secrets", "cruise-webhook-tls") for verb in ("get", "patch")},
    ),
    (
        SERVE,
        "resize",
        "",
        {("patch", "", "pods/resize", ""), ("create", "", "events", "")}
        | {("patch", "cruise.io", f"{scope}rightsizingpolicies/status", "") for scope in ("", "cluster")},
    ),
    (
        SERVE,
        "resize",
        NAMESPACE,
        {("create", "coordination.k8s.io", "leases", "")}
        | {(verb, "coordination.k8s.io", "leases", "cruise-serve") for verb in ("get", "update")},
    ),
    (SERVE, "full", "", {("create", "", "pods/eviction", ""), ("patch", "", "nodes", "")}),
]
# What no account of cruise may do in any mode.
NEVER = [
    ("delete", "", "pods", ""),
    ("deletecollection", "", "pods", ""),
    ("create", "", "pods", ""),
    ("patch", "", "pods", ""),
    ("update", "", "pods", ""),
    ("patch", "", "pods", "status"),
    ("create", "", "pods", "binding"),
    ("create", "", "pods", "exec"),
    ("get", "", "pods", "log"),
    ("delete", "", "nodes", ""),
    ("update", "", "nodes", ""),
    ("patch", "", "nodes", "status"),
    ("get", "", "nodes", "proxy"),
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("create", "", "secrets", ""),
    ("list", "", "configmaps", ""),
    ("patch", "apps", "deployments", ""),
    ("patch", "apps", "deployments", "scale"),
    ("patch", "apps", "statefulsets", ""),
    ("patch", "apps", "daemonsets", ""),
    ("patch", "apps", "replicasets", ""),
    ("patch", "policy", "poddisruptionbudgets", ""),
    ("patch", "autoscaling", "horizontalpodautoscalers", ""),
    ("patch", "", "limitranges", ""),
    ("patch", "cruise.io", "rightsizingpolicies", ""),
    ("patch", "cruise.io", "clusterrightsizingpolicies", ""),
    ("patch", "", "namespaces", ""),
    ("delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("impersonate", "", "users", ""),
    ("create", "", "serviceaccounts", "token"),
]


def of(account: str, mode: str, namespace: str) -> set[tuple[str, str, str, str]]:
    """What an account may do in a mode, seen from a namespace."""
    by_webhook = READ_BY_WEBHOOK if account == WEBHOOK and mode != "observe" else {}
    reads = READ_BY_SERVE if account == SERVE else by_webhook
    held = {(verb, group, one, "") for group, resources in reads.items() for one in resources for verb in READ}
    if reads:
        held.add(("get", "*", "*/scale", ""))
    for whose, since, where, permissions in BEYOND_READS:
        if whose == account and MODES.index(since) <= MODES.index(mode) and where in ("", namespace):
            held |= permissions
    return held


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[str]:
    grant(control_plane.api(), request.param)
    yield request.param


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("where", [NAMESPACE, "kube-system", "default"])
def test_an_account_may_do_this_and_nothing_else(
    control_plane: ControlPlane, admin: Api, mode: str, account: str, where: str
):
    api = control_plane.api(token=token(admin, account))
    assert rules(api, where) == of(account, mode, where)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_table_of_what_is_forbidden_holds_in_every_mode(admin: Api, mode: str, account: str):
    allowed = [
        one
        for one in NEVER
        for where in ("", NAMESPACE, "default")
        if check_permission(admin, account, *one, namespace=where)
    ]
    assert allowed == []


def test_each_permission_begins_with_its_mode(admin: Api, mode: str):
    for account, since, where, permissions in BEYOND_READS:
        expected = MODES.index(since) <= MODES.index(mode)
        for verb, group, resource, name in permissions:
            plain, _, subresource = resource.partition("/")
            answer = check_permission(admin, account, verb, group, plain, subresource, name, where)
            assert answer is expected, (account, verb, resource, mode)


def test_in_mode_observe_there_is_no_verb_that_writes():
    rules_of_mode = [rule for one in documents(*rbac_files("observe")) for rule in one.get("rules", ())]
    writing = [rule for rule in rules_of_mode if set(rule["verbs"]) - set(READ)]
    # The server stores neither review.
    assert {(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in writing} == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


def test_the_server_itself_refuses_what_the_mode_does_not_give(control_plane: ControlPlane, admin: Api, mode: str):
    api = control_plane.api(token=token(admin, SERVE))
    attempts = {
        "resize": lambda: api.resize("default", "nobody", {"app": {"requests": {"cpu": "1"}}}),
        "evict": lambda: api.evict("default", "nobody", "some-uid"),
        "taint": lambda: api.patch("nodes", None, "nobody", {"spec": {"taints": []}}),
    }
    answers = {}
    for name, attempt in attempts.items():
        with pytest.raises(ApiError) as refused:
            attempt()
        # An authorized caller gets Not Found.
        answers[name] = refused.value.status
    may_resize, may_evict = mode in ("resize", "full"), mode == "full"
    assert answers == {
        "resize": 404 if may_resize else 403,
        "evict": 404 if may_evict else 403,
        "taint": 404 if may_evict else 403,
    }
