"""Policy objects on the dashboard: the list of them, and the YAML of one for a workload."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cruise.domain.annotations import PREFIX, Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelSelector
from cruise.interfaces.export_patches import render_manifest
from cruise.kube_json.policy_documents import build_workload_policy


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy object: what it selects in words, and what it states; `error` says why it cannot be used."""

    namespace: str
    name: str
    selects: str
    settings: Mapping[str, str]
    error: str = ""


def list_policy_objects(snapshot: ClusterSnapshot, visible: Iterable[str] | None) -> Sequence[PolicyRow]:
    """Return the policies of the visible namespaces, and those of the cluster if all namespaces are visible."""
    shown = None if visible is None else frozenset(visible)
    return [_build_row(one) for one in snapshot.rightsizing_policies if shown is None or one.namespace in shown]


def render_policy_object(namespace: str, workload: WorkloadRef, settings: Mapping[str, str]) -> str:
    """Return the YAML of a policy that states settings for a workload; empty if there are none or they are wrong.

    `settings` are named as annotations without prefix.
    """
    overrides = parse_overrides({f"{PREFIX}{name}": value for name, value in settings.items() if value})
    if isinstance(overrides, UnreadableAnnotations) or overrides == Overrides():
        return ""
    return render_manifest(build_workload_policy(namespace, workload, overrides))


def _build_row(policy: RightsizingPolicy) -> PolicyRow:
    if isinstance(policy.overrides, UnreadableAnnotations):
        return PolicyRow(policy.namespace, policy.name, describe_selector(policy.selector), {}, policy.overrides.detail)
    settings = format_settings(policy.overrides)
    return PolicyRow(policy.namespace, policy.name, describe_selector(policy.selector), settings)


def describe_selector(selector: PolicySelector) -> str:
    """Return what a policy selects: `Deployment, StatefulSet; web-*; labels team in (a)`; `all` without a part."""
    parts = [", ".join(sorted(names)) for names in (selector.namespaces, selector.kinds, selector.names) if names]
    if selector.namespace_labels is not None:
        parts.append(f"namespaces with labels {_describe_labels(selector.namespace_labels)}")
    if selector.pod_labels is not None:
        parts.append(f"labels {_describe_labels(selector.pod_labels)}")
    return "; ".join(parts) or "all"


def _describe_labels(selector: LabelSelector) -> str:
    described = []
    for one in selector.requirements:
        values = f" ({', '.join(one.values)})" if one.values else ""
        described.append(f"{one.key} {one.operator.value}{values}")
    return ", ".join(described) or "any"
