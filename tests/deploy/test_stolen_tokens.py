"""A stolen token of any cruise account cannot do more than that account's work."""

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cruise.adapters.kube.access import KubernetesAuthority
from cruise.adapters.kube.actions import perform_action
from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.events import PodEventRecorder, UserActionEventRecorder
from cruise.adapters.webhook_tls.certificate_keeper import AUTHORITIES, CERTIFICATE, KEY, TlsSecret, publish_ca
from cruise.app.serve.leadership import create_lease_contender
from cruise.domain.actions import ContainerTarget, EvictPod, PodEvent, ReasonCode, ResizePod, TaintNode, UntaintNode
from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, StatedResources
from cruise.domain.users import PodAccess, UserAction, UserActionKind
from tests.controlplane.api import Api, ApiError, Json
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.manifests import budget, container, pod, pod_template, workload
from tests.deploy.attempts import (
    CONFIGURATION,
    FOREIGN_TAINT,
    OWN_TAINT,
    AttackTargets,
    list_attempts_beyond_policies,
    list_attempts_beyond_roles,
)
from tests.deploy.installing import (
    ACCOUNTS,
    CERTIFICATES,
    MODES,
    NAMESPACE,
    SERVE,
    documents,
    grant,
    grant_permissions,
    remove,
    token,
)

OTHERS = "of-others"
LATER = datetime(2026, 1, 1, tzinfo=UTC)


def secured(namespace: str) -> Json:
    """A pod that every namespace takes."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    one = container(requests={"cpu": "10m", "memory": "16Mi"}, securityContext=security)
    # It is never run.
    return pod(namespace, "one", one, schedulingGates=[{"name": "example.com/never"}])


def named(kind: str, namespace: str | None, name: str, more: Json, api_version: str = "v1") -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def victims_of(namespace: str) -> list[Json]:
    """What attempts are made on, besides what deploy/ has."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    [configuration] = [one for one in documents("webhook.yaml") if one["kind"] == "MutatingWebhookConfiguration"]
    # It has no endpoint.
    configuration["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "none"}}
    lease, deployed = "coordination.k8s.io/v1", ("network.yaml", "flowcontrol.yaml", "certificates.yaml")
    return [
        *(secured(where) for where in (namespace, "kube-system", NAMESPACE)),
        workload("Deployment", namespace, "one", pod_template("one"), replicas=0),
        budget(namespace, "one", "one", 1),
        named("Secret", namespace, "one", {}),
        named("Secret", NAMESPACE, "cruise-database", {}),
        named("PersistentVolumeClaim", namespace, "one", {"spec": claim}),
        named("Lease", "kube-system", "one", {"spec": {}}, lease),
        named("Lease", NAMESPACE, "cruise-serve", {"spec": {}}, lease),
        configuration,
        {**configuration, "metadata": {"name": OTHERS}},
        *(one for one in documents(*deployed) if one["kind"] in ("NetworkPolicy", "FlowSchema", "Deployment")),
    ]


@pytest.fixture
def there(admin: Api, kubelet: TestKubelet, namespace: str) -> Iterator[AttackTargets]:
    node = kubelet.add_node(f"{namespace}-n").name
    admin.patch("nodes", None, node, {"spec": {"taints": [FOREIGN_TAINT]}}, "merge")
    grant(admin, "full")
    [level] = [one for one in documents("flowcontrol.yaml") if one["kind"] == "PriorityLevelConfiguration"]
    admin.apply(level)
    made = victims_of(namespace)
    for one in made:
        admin.apply(one)
    yield AttackTargets(namespace, node)
    for one in reversed(made):
        if one["metadata"].get("namespace") != namespace:
            remove(admin, one)


def seen(admin: Api, there: AttackTargets) -> Json:
    """What may not change, without what others write by and by."""
    places = [
        ("nodes", None, there.node),
        ("namespaces", None, there.namespace),
        (CONFIGURATION, None, "cruise"),
        (CONFIGURATION, None, OTHERS),
        *((kind, where, "one") for kind in ("pods",) for where in (there.namespace, "kube-system", NAMESPACE)),
        *((kind, there.namespace, "one") for kind in ("deployments.apps", "poddisruptionbudgets.policy", "secrets")),
        ("secrets", NAMESPACE, "cruise-webhook-tls"),
        ("leases.coordination.k8s.io", NAMESPACE, "cruise-serve"),
    ]
    kept = ("spec", "data", "webhooks", "immutable")

    def of(found: Json) -> list[Any]:
        metadata = {name: found["metadata"].get(name) for name in ("uid", "labels", "annotations", "finalizers")}
        return [metadata, [found.get(name) for name in kept]]

    return {"/".join(str(part) for part in place): of(admin.read(*place)) for place in places}


def answer(api: Api, attempt: Any) -> str:
    """The server's response to an attempt."""
    try:
        attempt(api)
    except ApiError as error:
        return f"{error.status} {error.message}"
    return "done"


def test_what_a_stolen_token_must_not_do_is_refused_in_every_mode(
    control_plane: ControlPlane, admin: Api, there: AttackTargets
):
    before = seen(admin, there)
    attempts = {**list_attempts_beyond_roles(there), **list_attempts_beyond_policies(there)}
    assert len(attempts) >= 40
    gone_through = []
    for mode in reversed(MODES):
        grant(admin, mode)
        for account in ACCOUNTS:
            api = control_plane.api(token=token(admin, account))
            answers = {name: answer(api, attempt) for name, attempt in attempts.items()}
            gone_through += [(mode, account, name, said) for name, said in answers.items() if said[:3] != "403"]
    assert gone_through == []
    assert seen(admin, there) == before


@pytest.mark.parametrize("account", ACCOUNTS)
def test_policies_refuse_it_to_an_account_that_was_given_every_role(admin: Api, there: AttackTargets, account: str):
    before = seen(admin, there)
    api = grant_permissions(admin, account)
    answers = {name: answer(api, attempt) for name, attempt in list_attempts_beyond_policies(there).items()}
    other = {name: said for name, said in answers.items() if "ValidatingAdmissionPolicy 'cruise-accounts'" not in said}
    assert other == {}
    assert seen(admin, there) == before


def settings_for(control_plane: ControlPlane, admin: Api, account: str) -> KubernetesSettings:
    kubeconfig: Path = control_plane.kubeconfig(f"stolen-{account}", token(admin, account))
    return KubernetesSettings(kubeconfig)


async def test_writes_of_serve_are_allowed(control_plane: ControlPlane, admin: Api, there: AttackTargets):
    found = admin.read("pods", there.namespace, "one")
    of_pod = (there.namespace, "one", found["metadata"]["uid"], None, None)
    target = ContainerTarget("app", ContainerRole.MAIN, StatedResources(20, 32 << 20), StatedResources())
    node = admin.read("nodes", None, there.node)
    async with connect_to_kubernetes(settings_for(control_plane, admin, SERVE)) as client:
        await perform_action(client, ResizePod(*of_pod, (target,), NO_RESOURCES, ReasonCode.RIGHTSIZED))
        await perform_action(client, TaintNode(there.node, ReasonCode.OVERLOADED))
        assert OWN_TAINT in admin.read("nodes", None, there.node)["spec"]["taints"]
        await perform_action(client, UntaintNode(there.node, ReasonCode.OVERLOADED))
        announced = PodEvent(*of_pod[:3], ReasonCode.OOM_KILLED, "it was killed", warning=True)
        await PodEventRecorder(client, "here").record([announced], LATER)
        people = UserActionEventRecorder(client, "here", NAMESPACE)
        await people.record(UserAction(LATER, "ann", UserActionKind.PAUSE), "ann paused")
        web = WorkloadRef("Deployment", "web")
        await people.record(UserAction(LATER, "ann", UserActionKind.PUT_POLICY, there.namespace, web), "ann overrode")
        reviews = KubernetesAuthority(client, lambda: 0.0)
        caller = await reviews.authenticate(token(admin, SERVE))
        assert caller is not None
        assert await reviews.authorize(caller, PodAccess(""))
        remove(admin, named("Lease", NAMESPACE, "cruise-serve", {}, "coordination.k8s.io/v1"))
        for _ in range(2):
            # Made by the first, taken over by the second.
            await create_lease_contender(client, NAMESPACE, timedelta(seconds=3)).lead(_nothing)
        await perform_action(client, EvictPod(*of_pod, EvictionRanking.LOW, ResourceName.MEMORY, ReasonCode.RIGHTSIZED))
    assert admin.read("nodes", None, there.node)["spec"] == node["spec"]
    assert {"it was killed", "ann overrode"} <= {one["message"] for one in admin.items("events", there.namespace)}
    assert "ann paused" in {one["message"] for one in admin.items("events", NAMESPACE)}
    left = admin.items("pods", there.namespace)
    assert all(one["metadata"].get("deletionTimestamp") for one in left)


async def test_writes_of_the_certificate_controller_are_allowed(
    control_plane: ControlPlane, admin: Api, there: AttackTargets
):
    async with connect_to_kubernetes(settings_for(control_plane, admin, CERTIFICATES)) as client:
        place = TlsSecret(client, NAMESPACE, "cruise-webhook-tls")
        for text in (b"one", b"two"):
            await place.write({CERTIFICATE: text, KEY: text, AUTHORITIES: text}, (await place.read()).version)
            assert await publish_ca(client, "cruise", text)
        await place.write({}, (await place.read()).version)
    [webhook] = admin.read(CONFIGURATION, None, "cruise")["webhooks"]
    assert b64decode(webhook["clientConfig"]["caBundle"]) == b"two"


async def _nothing() -> None:
    """A term that ends at once."""
