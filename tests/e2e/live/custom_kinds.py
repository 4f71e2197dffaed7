"""CustomResourceDefinitions for scenes: VerticalPodAutoscalers, and a kind with a scale subresource."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.deploy.installing import documents, remove, resource_of

VERTICAL = "/apis/autoscaling.k8s.io/v1"
KARPENTER_KINDS = "NodePool", "NodeClaim"
SCALED = "/apis/scenes.example.com/v1"


def _definition(group: str, kind: str, scope: str = "Namespaced", **version: object) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    singular, plural = kind.lower(), resource_of({"kind": kind, "apiVersion": "v1"})
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": kind},
            "versions": [one],
        },
    }


@contextmanager
def defined(admin: Api, definition: Json) -> Iterator[None]:
    """Have the kind of a CustomResourceDefinition, in each version that is served.

    An established definition is not yet served: its group, the list of the group's kinds and the objects follow one
    by one.
    """
    admin.apply(definition)
    spec = definition["spec"]
    versions = [f"/apis/{spec['group']}/{one['name']}" for one in spec["versions"] if one["served"]]

    def is_served() -> bool:
        groups = {one["name"] for one in admin.get("/apis")["groups"]}
        return spec["group"] in groups and all(_serves(admin, one, spec["names"]["plural"]) for one in versions)

    try:
        wait_until(is_served, f"{definition['metadata']['name']} are served")
        yield
    finally:
        remove(admin, definition)


def _serves(admin: Api, version: str, plural: str) -> bool:
    try:
        listed = {one["name"] for one in admin.get(version)["resources"]}
        return plural in listed and bool(admin.get(f"{version}/{plural}?limit=1"))
    except ApiError as refused:
        if refused.status != 404:
            raise
        return False


@contextmanager
def foreign_kinds(admin: Api, kinds: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Have kinds of version v1 of other projects, by group, whatever their fields."""
    with ExitStack() as stack:
        for group, names in kinds.items():
            for kind in names:
                stack.enter_context(defined(admin, _definition(group, kind)))
        yield


@contextmanager
def vertical_autoscalers(admin: Api) -> Iterator[None]:
    """Have VerticalPodAutoscalers, as their project defines them but for the schema."""
    with defined(admin, _definition("autoscaling.k8s.io", "VerticalPodAutoscaler", subresources={"status": {}})):
        yield


@contextmanager
def policy_objects(admin: Api) -> Iterator[None]:
    """Have RightsizingPolicies and ClusterRightsizingPolicies, as deploy/ defines them."""
    with ExitStack() as stack:
        for definition in documents("crds/definitions.yaml"):
            stack.enter_context(defined(admin, definition))
        yield


@contextmanager
def node_pools(admin: Api) -> Iterator[None]:
    """Have Karpenter's NodePools and NodeClaims, as their project defines them but for the schema."""
    kinds = (_definition("karpenter.sh", kind, "Cluster", subresources={"status": {}}) for kind in KARPENTER_KINDS)
    with ExitStack() as stack:
        for definition in kinds:
            stack.enter_context(defined(admin, definition))
        yield


@contextmanager
def engines(admin: Api) -> Iterator[None]:
    """Have Engines, which can be scaled and say which pods they have."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    scale["labelSelectorPath"] = ".status.selector"
    with defined(admin, _definition("scenes.example.com", "Engine", subresources={"scale": scale})):
        yield


def create_vertical(
    admin: Api, namespace: str, deployment: str, mode: str | None = None, policies: Sequence[Json] = ()
) -> None:
    """Create a VerticalPodAutoscaler on a Deployment; `policies` are those of containers."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}
    spec: Json = {"targetRef": target} | ({"updatePolicy": {"updateMode": mode}} if mode else {})
    if policies:
        spec["resourcePolicy"] = {"containerPolicies": list(policies)}
    body = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": deployment},
        "spec": spec,
    }
    admin.request("POST", f"{VERTICAL}/namespaces/{namespace}/verticalpodautoscalers", body)


def create_engine(admin: Api, namespace: str, name: str, selector: str) -> None:
    """Create an Engine whose pods are those that a selector selects."""
    body = {
        "apiVersion": "scenes.example.com/v1",
        "kind": "Engine",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"replicas": 1},
        "status": {"replicas": 1, "selector": selector},
    }
    admin.request("POST", f"{SCALED}/namespaces/{namespace}/engines", body)
