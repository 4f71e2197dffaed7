"""Requests that an attacker with a stolen cruise token might send; each must be denied in every mode."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.controlplane.api import Api, Json
from tests.deploy.installing import CERTIFICATES, NAMESPACE, SERVE

CONFIGURATION = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
POLICY = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDING = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
ROLE_BINDING = "clusterrolebindings.rbac.authorization.k8s.io"
TLS = "cruise-webhook-tls"
OWN_TAINT = {"key": "cruise.io/overloaded", "value": "true", "effect": "NoSchedule"}
FOREIGN_TAINT = {"key": "example.com/reserved", "value": "batch", "effect": "NoSchedule"}

Attempt = Callable[[Api], object]


@dataclass(frozen=True, slots=True)
class AttackTargets:
    """What is there to be attacked: a namespace with a Deployment and a pod `one`, and a node."""

    namespace: str
    node: str


def list_attempts_beyond_roles(there: AttackTargets) -> Mapping[str, Attempt]:
    """What only the authorizer refuses: reading, acting in another's name, and changing policies themselves."""
    pod = ("pods", there.namespace, "one")
    csr = {"request": "", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
    return {
        "list Secrets": _get("secrets", None),
        "read a Secret": _get("secrets", there.namespace, "one"),
        "read the Secret of the database": _get("secrets", NAMESPACE, "cruise-database"),
        "list ConfigMaps": _get("configmaps", None),
        "list ServiceAccounts": _get("serviceaccounts", None),
        "list roles": _get("clusterroles.rbac.authorization.k8s.io", None),
        "read a pod's log": lambda api: api.get(f"{api.path(*pod)}/log"),
        "reach a pod through the API server": lambda api: api.get(f"{api.path(*pod)}/proxy/"),
        "reach a kubelet through the API server": lambda api: api.get(
            f"{api.path('nodes', None, there.node)}/proxy/pods"
        ),
        "act as an administrator": lambda api: api.impersonating("admin", "system:masters").items("secrets"),
        "ask for a client certificate": _create(
            "CertificateSigningRequest", None, {"spec": csr}, "certificates.k8s.io/v1"
        ),
        "weaken the policies": lambda api: api.patch(
            POLICY, None, "cruise-accounts", {"spec": {"failurePolicy": "Ignore"}}, "merge"
        ),
        "unbind the policies": lambda api: api.delete(BINDING, None, "cruise-accounts"),
    }


def list_attempts_beyond_policies(there: AttackTargets) -> Mapping[str, Attempt]:
    """What would change too much: policies refuse it even where a role grants it."""
    return {
        **_on_pods(there),
        **_on_nodes(there),
        **_on_workloads(there),
        **_on_rights(there),
        **_on_webhooks(),
        **_on_own_namespace(),
    }


def _on_pods(there: AttackTargets) -> Mapping[str, Attempt]:
    own = partial(_patch, "pods", there.namespace, "one")
    target = {"kind": "Node", "name": there.node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"}, "target": target}
    larger = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "20m"}}}]}}
    debugger = {"spec": {"ephemeralContainers": [{"name": "d", "image": "example.com/d:1"}]}}
    return {
        "run a pod": _create("Pod", there.namespace, {"spec": {"containers": [{"name": "app", "image": "x"}]}}),
        "run a pod as a system component": _create(
            "Pod", "kube-system", {"spec": {"containers": [{"name": "app", "image": "x"}], "hostNetwork": True}}
        ),
        "delete a pod": lambda api: api.delete("pods", there.namespace, "one"),
        "delete all pods": lambda api: api.delete_all("pods", there.namespace),
        "give a pod another image": own({"spec": {"containers": [{"name": "app", "image": "example.com/evil:1"}]}}),
        "label a pod": own({"metadata": {"labels": {"app": "shop"}}}),
        "annotate a pod": own({"metadata": {"annotations": {"cruise.io/mode": "off"}}}),
        "write a pod's status": own({"status": {"podIP": "10.0.0.66"}}, subresource="status"),
        "bind a pod": lambda api: api.request("POST", api.path("pods", there.namespace, "one", "binding"), binding),
        "put a container into a running pod": own(debugger, subresource="ephemeralcontainers"),
        "run a command in a pod": _connect(there, "exec?command=sh"),
        "attach to a pod": _connect(there, "attach"),
        "forward a port of a pod": _connect(there, "portforward?ports=1"),
        "resize a pod of the system": _patch("pods", "kube-system", "one", larger, subresource="resize"),
        "resize a pod of cruise": _patch("pods", NAMESPACE, "one", larger, subresource="resize"),
        "evict a pod of the system": lambda api: api.evict("kube-system", "one", "some-uid"),
        "evict a pod of cruise": lambda api: api.evict(NAMESPACE, "one", "some-uid"),
        "evict whichever pod has that name": lambda api: api.evict(there.namespace, "one"),
        "evict without a grace period": partial(_evict_at_once, there),
        "delete a PersistentVolumeClaim": lambda api: api.delete("persistentvolumeclaims", there.namespace, "one"),
        "tell lies about a node": _event({"kind": "Node", "name": there.node}, "cruise"),
        "tell lies about a Deployment": _event({"kind": "Deployment", "namespace": "default", "name": "one"}, "cruise"),
        "tell lies in a kubelet's name": _event(
            {"kind": "Pod", "namespace": there.namespace, "name": "one"}, "kubelet", there.namespace
        ),
    }


def _on_nodes(there: AttackTargets) -> Mapping[str, Attempt]:
    own = partial(_patch, "nodes", None, there.node, kind="merge")
    return {
        "delete a node": lambda api: api.delete("nodes", None, there.node),
        "register a node": _create("Node", None, {"spec": {}}),
        "cordon a node": own({"spec": {"unschedulable": True}}),
        "move a node to another provider": own({"spec": {"providerID": "other://1"}}),
        "label a node": own({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        "annotate a node": own({"metadata": {"annotations": {"example.com/drain": "now"}}}),
        "hold a node with a finalizer": own({"metadata": {"finalizers": ["example.com/hold"]}}),
        "take off another's taint": own({"spec": {"taints": None}}),
        "put on another's taint": own({"spec": {"taints": [FOREIGN_TAINT, {**FOREIGN_TAINT, "key": "a.example"}]}}),
        "change another's taint": own({"spec": {"taints": [{**FOREIGN_TAINT, "effect": "NoExecute"}]}}),
        "evict all pods by its own taint": own(
            {"spec": {"taints": [FOREIGN_TAINT, {**OWN_TAINT, "effect": "NoExecute"}]}}
        ),
        "taint and cordon at once": own({"spec": {"taints": [FOREIGN_TAINT, OWN_TAINT], "unschedulable": True}}),
        "write a node's status": own({"status": {"allocatable": {"cpu": "1"}}}, subresource="status"),
    }


def _on_workloads(there: AttackTargets) -> Mapping[str, Attempt]:
    own = partial(_patch, "deployments.apps", there.namespace, "one")
    image = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "example.com/evil:1"}]}}}}
    return {
        "change a Deployment": own(image),
        "scale a Deployment": own({"spec": {"replicas": 0}}, subresource="scale"),
        "delete a Deployment": lambda api: api.delete("deployments.apps", there.namespace, "one"),
        "run a DaemonSet": _create("DaemonSet", there.namespace, _runs({"app": "d"}), "apps/v1"),
        "run a Job": _create("Job", there.namespace, {"spec": {"template": _template("Never")}}, "batch/v1"),
        "let a PodDisruptionBudget go": lambda api: api.delete("poddisruptionbudgets.policy", there.namespace, "one"),
        "loosen a PodDisruptionBudget": _patch(
            "poddisruptionbudgets.policy", there.namespace, "one", {"spec": {"minAvailable": 0}}, "merge"
        ),
        "make a LimitRange": _create("LimitRange", there.namespace, {"spec": {"limits": []}}),
        "make a ResourceQuota": _create("ResourceQuota", there.namespace, {"spec": {"hard": {"pods": "0"}}}),
        "label a namespace": _patch("namespaces", None, there.namespace, {"metadata": {"labels": {"team": "evil"}}}),
        "delete a namespace": lambda api: api.delete("namespaces", None, there.namespace),
    }


def _on_rights(there: AttackTargets) -> Mapping[str, Attempt]:
    rbac = "rbac.authorization.k8s.io"
    me = [{"kind": "ServiceAccount", "name": SERVE, "namespace": NAMESPACE}]
    admin = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    return {
        "become administrator": _create("ClusterRoleBinding", None, {"roleRef": admin, "subjects": me}, f"{rbac}/v1"),
        "widen its own role": _patch(f"clusterroles.{rbac}", None, "cruise-observe", {"rules": everything}, "merge"),
        "give its role to others": _patch(ROLE_BINDING, None, "cruise-observe", {"subjects": []}, "merge"),
        "get a token of another account": lambda api: api.service_account_token("kube-system", "default"),
        "prolong its own token": lambda api: api.service_account_token(NAMESPACE, SERVE),
        "make an account": _create("ServiceAccount", there.namespace, {}),
        "go first at the API server": _patch(
            "flowschemas.flowcontrol.apiserver.k8s.io", None, "cruise", {"spec": {"matchingPrecedence": 2}}, "merge"
        ),
    }


def _on_webhooks() -> Mapping[str, Attempt]:
    own = partial(_patch, CONFIGURATION, None, "cruise")

    def changed(**more: Any) -> Attempt:
        return own({"webhooks": [{"name": "pods.cruise.io", **more}]})

    everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]
    named = {"metadata": {"name": "attempt"}, "webhooks": []}
    return {
        "register a webhook": lambda api: api.create(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", **named}
        ),
        "register a validating webhook": lambda api: api.create(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", **named}
        ),
        "remove the webhook": lambda api: api.delete(CONFIGURATION, None, "cruise"),
        "send reviews elsewhere": changed(clientConfig={"service": {"name": "evil", "namespace": "default"}}),
        "send reviews to another path": changed(
            clientConfig={"service": {"name": "cruise-webhook", "namespace": NAMESPACE, "path": "/evil"}}
        ),
        "hold up every pod": changed(failurePolicy="Fail"),
        "hold up every pod for longer": changed(timeoutSeconds=30),
        "see every object": changed(rules=everything),
        "see every namespace": own([{"op": "remove", "path": "/webhooks/0/namespaceSelector"}], kind="json"),
        "see what nobody controls": own([{"op": "remove", "path": "/webhooks/0/matchConditions"}], kind="json"),
        "add a webhook": own([{"op": "copy", "from": "/webhooks/0", "path": "/webhooks/-"}, _renamed(1)], kind="json"),
        "rename the webhook": own([_renamed(0)], kind="json"),
        "drop the webhook": own([{"op": "replace", "path": "/webhooks", "value": []}], kind="json"),
        "annotate the configuration": own({"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}}),
        "change another's configuration": _patch(CONFIGURATION, None, "of-others", {"webhooks": []}, "merge"),
    }


def _on_own_namespace() -> Mapping[str, Attempt]:
    lease = partial(_create, "Lease", api_version="coordination.k8s.io/v1")
    return {
        "hold another Lease": lease(NAMESPACE, {"metadata": {"name": "attempt"}, "spec": {}}),
        "hold a Lease of the system": lease("kube-system", {"metadata": {"name": "cruise-serve"}, "spec": {}}),
        "take a Lease of the system": _patch(
            "leases.coordination.k8s.io", "kube-system", "one", {"spec": {"holderIdentity": "me"}}, "merge"
        ),
        "take the Lease away": lambda api: api.delete("leases.coordination.k8s.io", NAMESPACE, "cruise-serve"),
        "make a Secret": _create("Secret", NAMESPACE, {}),
        "change another Secret": _patch("secrets", NAMESPACE, "cruise-database", {"data": {"url": "eA=="}}, "merge"),
        "freeze the certificate": _patch("secrets", NAMESPACE, TLS, {"immutable": True}, "merge"),
        "annotate the certificate": _patch("secrets", NAMESPACE, TLS, {"metadata": {"annotations": {"a": "b"}}}),
        "delete the certificate": lambda api: api.delete("secrets", NAMESPACE, TLS),
        "change the settings": _patch("configmaps", NAMESPACE, "cruise", {"data": {"CRUISE_MODE": "full"}}, "merge"),
        "take the NetworkPolicy away": lambda api: api.delete("networkpolicies.networking.k8s.io", NAMESPACE, "cruise"),
        "change the Deployment": _patch("deployments.apps", NAMESPACE, CERTIFICATES, {"spec": {"replicas": 9}}),
    }


def _get(resource: str, namespace: str | None, name: str | None = None) -> Attempt:
    return lambda api: api.get(api.path(resource, namespace, name))


def _patch(
    resource: str, namespace: str | None, name: str, body: Any, kind: Any = "strategic", subresource: str | None = None
) -> Attempt:
    return lambda api: api.patch(resource, namespace, name, body, kind, subresource)


def _create(kind: str, namespace: str | None, more: Json, api_version: str = "v1") -> Attempt:
    metadata = {"name": "attempt", **({"namespace": namespace} if namespace else {}), **more.get("metadata", {})}
    return lambda api: api.create({"apiVersion": api_version, "kind": kind, **more, "metadata": metadata})


def _connect(there: AttackTargets, how: str) -> Attempt:
    return lambda api: api.request("POST", f"{api.path('pods', there.namespace, 'one')}/{how}")


def _evict_at_once(there: AttackTargets, api: Api) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": there.namespace, "name": "one"},
        "deleteOptions": {"preconditions": {"uid": "some-uid"}, "gracePeriodSeconds": 0},
    }
    api.request("POST", api.path("pods", there.namespace, "one", "eviction"), body)


def _event(about: Json, component: str, namespace: str = "default") -> Attempt:
    told = {"involvedObject": about, "source": {"component": component}, "reason": "Drained", "type": "Normal"}
    return _create("Event", namespace, told)


def _template(restart: str = "Always") -> Json:
    spec = {"containers": [{"name": "app", "image": "x"}], "restartPolicy": restart}
    return {"metadata": {"labels": {"app": "d"}}, "spec": spec}


def _runs(labels: Json) -> Json:
    return {"spec": {"selector": {"matchLabels": labels}, "template": _template()}}


def _renamed(index: int) -> Json:
    return {"op": "replace", "path": f"/webhooks/{index}/name", "value": "more.cruise.io"}
