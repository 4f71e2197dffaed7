"""The reference page of policy objects, from their definitions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cruise.domain.rightsizing_policies import CLUSTER_POLICY_KIND, POLICY_GROUP, POLICY_VERSION
from scripts.reference.markdown import code, page, section, table
from scripts.reference.policy_objects import build_definitions

_INTRODUCTION = f"""Configure cruise for many workloads with objects that are kept in Git: a `RightsizingPolicy` for
one namespace, a `ClusterRightsizingPolicy` for all of them (`{POLICY_GROUP}/{POLICY_VERSION}`). The API server
refuses values that cruise could not use, and `kubectl explain rightsizingpolicy.spec` describes the fields. The
chart installs both definitions (`crds.install`); with `kubectl`, apply `deploy/crds/`. They
require Kubernetes 1.29. Without them there are no policies, and nothing else changes."""
_EXAMPLE = """```yaml
apiVersion: cruise.io/v1alpha1
kind: RightsizingPolicy
metadata: {name: web, namespace: shop}
spec:
  selector:
    kinds: [Deployment]
    names: ["web-*"]
  mode: resize
  evictionRanking: high
  minAllowed: {memory: 256Mi}
  containers:
    - name: istio-proxy
      mode: "off"
```"""
_PRECEDENCE: Sequence[tuple[str, str, str]] = (
    ("1", "annotations of the pod (its template)", "a tenant"),
    ("2", "annotations of the workload", "a tenant"),
    ("3", "a VerticalPodAutoscaler that changes no pods", "a tenant"),
    ("4", "annotations of the namespace", "an administrator"),
    ("5", "a pause of the workload, or a revert of it: mode `observe`", "an administrator"),
    ("6", "RightsizingPolicies of the namespace, the most specific first", "a tenant"),
    ("7", "ClusterRightsizingPolicies, the most specific first", "an administrator"),
    ("8", "settings", "an administrator"),
)
_PRECEDENCE_RULES = """For each setting the first source that states it applies. What a tenant requests beyond the
pod template is granted from free capacity only; an administrator's requests may cost other pods.

- **The most specific policy** is one that names the workload, then one whose pattern matches the
  name, then one that selects by labels of pods, then by namespaces, then by kinds, and last one that
  selects all.
- **The mode** is the lowest of all sources. Of several policies of one kind, only the most specific
  one that states a mode counts, so a ClusterRightsizingPolicy may set `observe` for all namespaces,
  and another one `resize` for one of them. The settings' mode remains the highest.
- **The maximum** of the most specific ClusterRightsizingPolicy that states one (`maxAllowed`) is a limit: a
  larger one that a pod, a workload, a namespace or a RightsizingPolicy states has no effect, a smaller one
  has. For one container, the limit stated for it takes precedence over that of all containers. A tenant's
  minimum above the limit excludes the pods (`unreadable-annotation`). To allow one namespace more, write a
  ClusterRightsizingPolicy that selects it. All other values are defaults, which tenants may replace.
- **Equally specific policies**: the one that states the lowest mode takes precedence, then the first by
  name.
- **A policy that cannot be read** (written to the API server without validation, or for a newer
  cruise) excludes the pods that it may select: `unreadable-annotation`, with an Event on each."""

_STATUS = """From mode `resize` on, the leader writes the status of each policy after a node pass, if something changed:
the selected workloads, sized pods, skipped pods by reason, what the pods save of their requests
before cruise, conflicts, and the conditions `Accepted` and `Conflicted` with the time since when they
hold.
`kubectl get rightsizingpolicies -A` shows the figures. In the modes below, cruise has no permission
to write, so the status stays as it is; `cruise explain` shows in every mode which policy states a
value.

Two equally specific policies that state different values for a workload are a conflict: both name
the other one, the settings, and the winner. So is a bound of a RightsizingPolicy above the limit of a
ClusterRightsizingPolicy: the former names the latter (`AboveClusterMaximum`). *Needs a person* on the dashboard's
first page names them, and policies that select nothing."""

_FORMS = "The dashboard has a form for one object of each workload, of each namespace, and of all namespaces."
_FORM_PAGES: Sequence[tuple[str, str, str]] = (
    (
        "the policy page of a workload",
        "`RightsizingPolicy KIND-NAME` in its namespace",
        "`/api/v1/policies/NAMESPACE/KIND/NAME`",
    ),
    (
        "*policy of this namespace* on the page of a namespace",
        "`ClusterRightsizingPolicy namespace-NAMESPACE`",
        "`/api/v1/policies/namespaces/NAMESPACE`",
    ),
    (
        "*policy of all namespaces* on *Policies*",
        "`ClusterRightsizingPolicy all-namespaces`",
        "`/api/v1/policies/namespaces`",
    ),
)
_FORM_RULES = """By default cruise may not write policies, and the form shows the YAML to apply or to commit.
With the chart's `rbac.writePolicies` (or `deploy/rbac/policies.yaml`) it writes the object, from mode `initial` on:

- for a user who may `create` and `patch` RightsizingPolicies of the namespace, or ClusterRightsizingPolicies, by their
  own roles. `cruise-admin` alone is not enough. With `api_token_file`, the holder of the token may.
- only a new object, or one that the form wrote: with the label `app.kubernetes.io/managed-by: cruise` and no other
  field manager of its spec. An object that Argo CD, Flux, Helm or `kubectl apply` applies is never changed: the form
  says who manages it and shows the YAML.
- unless it changed since it was read. Every write is an API request by `cruise-serve`; the user's name is in
  `GET /api/v1/user-actions`.

`GET`, `PUT` and `DELETE` of the address in the API do the same."""

# Fields whose parts are well known.
_NOT_NESTED = ("minAllowed", "maxAllowed", "matchExpressions")


def policies_page() -> str:
    """Return the page."""
    definition = next(one for one in build_definitions() if one["spec"]["names"]["kind"] == CLUSTER_POLICY_KIND)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return page(
        "Policy objects",
        _INTRODUCTION,
        _EXAMPLE,
        section("Precedence", table(("", "source", "counts as"), _PRECEDENCE), _PRECEDENCE_RULES),
        section("Status", _STATUS),
        section("Forms", _FORMS, table(("page", "object", "address in the API"), _FORM_PAGES), _FORM_RULES),
        section(
            "Fields",
            "`selector.namespaces` and `namespaceSelector` are only in ClusterRightsizingPolicies.",
            table(("field", "values", "meaning"), _list_fields(schema["spec"])),
        ),
    )


def _list_fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        place = f"{path}{name}"
        yield code(place), _describe_values(field), field["description"]
        nested = field.get("items", field)
        if "properties" in nested and not name.endswith("Selector") and name not in _NOT_NESTED:
            if name == "containers":
                yield code(f"{place}[]…"), "", "The name, and the fields from `mode` to `maxAllowed` above."
            else:
                yield from _list_fields(nested, f"{place}[]." if "items" in field else f"{place}.")


def _describe_values(field: Mapping[str, Any]) -> str:
    choices = field.get("enum") or field.get("items", {}).get("enum")
    if choices:
        return ", ".join(map(code, choices))
    if "maximum" in field:
        return f"{field['minimum']} to {field['maximum']}"
    if set(field.get("properties", ())) == {"cpu", "memory"}:
        return "`cpu`, `memory`: quantities"
    if "x-kubernetes-int-or-string" in field:
        return "a factor such as `2x`, a quantity, `learn` or `off`"
    return {"array": "a list", "object": "", "string": "a text"}[field["type"]]
