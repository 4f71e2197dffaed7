"""Policy objects as Kubernetes JSON: read from a cluster, written with settings of users, and their status."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from cruise.domain.annotations import (
    BOUNDS,
    CONTAINER_SETTINGS,
    MANAGED_BY,
    OVERRIDES,
    POD_SETTINGS,
    Overrides,
    UnreadableAnnotations,
)
from cruise.domain.namespace_patterns import is_dns_label
from cruise.domain.overrides import format_setting_value, iterate_settings, parse_settings
from cruise.domain.resources import MEBIBYTE, format_cpu_millicores, format_memory_bytes, quote_text
from cruise.domain.rightsizing_policies import (
    ALL_CONTAINERS,
    CLUSTER_POLICY_KIND,
    POLICY_GROUP,
    POLICY_KIND,
    POLICY_VERSION,
    PolicyCondition,
    PolicySelector,
    PolicyStatus,
    RightsizingPolicy,
    format_policy_field,
)
from cruise.domain.written_policies import OWN_MANAGER, PolicyScope
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import convert_to_single_line, explain_validation_error
from cruise.kube_json.objects.scheduling import read_selector
from cruise.kube_json.wire.policy_json import (
    ContainerPolicyFields,
    PolicyObject,
    PolicySelectorJson,
    PolicySpec,
    PolicyStatusJson,
    RightsizingPolicyObject,
)

_Setting = tuple[str, str, str]

# Of modes, the lowest applies.
_STATED_ONCE = tuple(one for one in ContainerPolicyFields.__struct_fields__ if one not in ("name", "mode"))
JsonObject = dict[str, Any]


def decode_policy(document: PolicyObject) -> RightsizingPolicy:
    """Return a policy; if it cannot be read, one that selects all that it could and says why."""
    metadata, conditions = document.metadata, _read_conditions(document)
    namespace = (metadata.namespace or "default") if isinstance(document, RightsizingPolicyObject) else ""
    problem = ""
    try:
        spec = msgspec.convert(document.spec or {}, PolicySpec)
        selector = _read_policy_selector(spec)
        _check_patterns(selector)
        _check_containers(spec)
    except msgspec.ValidationError as error:
        problem = explain_validation_error(error, PolicySpec, "spec")
    except BadInputError as error:
        problem = str(error)
    else:
        if namespace and (selector.namespaces or selector.namespace_labels is not None):
            problem = "spec: it selects in its own namespace; write a ClusterRightsizingPolicy for others"
    if problem:
        unreadable = build_unreadable_policy(namespace, metadata.name, problem)
        return replace(unreadable, generation=metadata.generation, uid=metadata.uid or "", conditions=conditions)
    overrides = parse_settings(_iterate_policy_settings(spec))
    return RightsizingPolicy(
        namespace, metadata.name, selector, overrides, metadata.generation, metadata.uid or "", conditions
    )


def _read_conditions(document: PolicyObject) -> Mapping[str, PolicyCondition]:
    """Return the conditions by type; none if they are incomplete: they say since when, and decide nothing."""
    try:
        status = msgspec.convert(document.status or {}, PolicyStatusJson)
    except msgspec.ValidationError:
        return {}
    return {one.type: PolicyCondition(one.status == "True", one.last_transition_time) for one in status.conditions}


def build_unreadable_policy(namespace: str, name: str, problem: str) -> RightsizingPolicy:
    """Return a policy whose selector is unreadable; `namespace` is empty for one of the cluster."""
    return RightsizingPolicy(namespace, name, overrides=UnreadableAnnotations(convert_to_single_line(problem)))


def _read_policy_selector(spec: PolicySpec) -> PolicySelector:
    stated, namespaces = spec.selector or PolicySelectorJson(), spec.namespace_selector
    selects_labels = bool(stated.match_labels or stated.match_expressions)
    return PolicySelector(
        kinds=frozenset(stated.kinds or ()),
        names=frozenset(stated.names or ()),
        pod_labels=read_selector(stated, "spec.selector") if selects_labels else None,
        namespaces=frozenset(stated.namespaces or ()),
        namespace_labels=None if namespaces is None else read_selector(namespaces, "spec.namespaceSelector"),
    )


def _check_patterns(selector: PolicySelector) -> None:
    """Raise BadInputError for patterns that seem to exclude names: they match none."""
    for field, patterns in (("names", selector.names), ("namespaces", selector.namespaces)):
        negated = min((one for one in patterns if one.startswith("!")), default="")
        if negated:
            raise BadInputError(
                f"spec.selector.{field}: {quote_text(negated)} matches no name; write those that the policy selects"
            )


def _check_containers(spec: PolicySpec) -> None:
    """Raise BadInputError for what the API server refuses: it would have no effect, or two."""
    names = [one.name for one in spec.containers or ()]
    for name in names:
        if name != ALL_CONTAINERS and not is_dns_label(name):
            raise BadInputError(
                f"spec.containers: {quote_text(name)} is no name of a container; "
                f'write one, or "{ALL_CONTAINERS}" for all containers'
            )
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise BadInputError(f"spec.containers[{repeated}]: it is stated twice; write one item for each container")

    of_all = next((one for one in spec.containers or () if one.name == ALL_CONTAINERS), None)
    for field in _STATED_ONCE:
        if getattr(spec, field) is not None and getattr(of_all, field, None) is not None:
            stated = format_policy_field(field.replace("_", "-"))
            raise BadInputError(f"spec.containers[{ALL_CONTAINERS}].{stated}: spec states it as well; write it once")


def _iterate_policy_settings(spec: PolicySpec) -> Iterator[_Setting]:
    for override in POD_SETTINGS:
        value = getattr(spec, override.setting.replace("-", "_"))
        if value is not None:
            yield f"spec.{format_policy_field(override.setting)}", override.setting, str(value)
    yield from _iterate_container_settings(spec, "spec", "")
    for container in spec.containers or ():
        place = f"spec.containers[{container.name}]"
        suffix = "" if container.name == ALL_CONTAINERS else f".{container.name}"
        yield from _iterate_container_settings(container, place, suffix)


def _iterate_container_settings(stated: ContainerPolicyFields, place: str, suffix: str) -> Iterator[_Setting]:
    for override in CONTAINER_SETTINGS:
        value = getattr(stated, override.setting.replace("-", "_"))
        if value is not None:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            yield f"{place}.{format_policy_field(override.setting)}", f"{override.setting}{suffix}", text
    for bound, quantities in (("min", stated.min_allowed), ("max", stated.max_allowed)):
        for resource, quantity in sorted((quantities or {}).items()):
            if f"{resource}-{bound}" in OVERRIDES and quantity is not None:
                yield f"{place}.{bound}Allowed.{resource}", f"{resource}-{bound}{suffix}", str(quantity)


def build_written_policy(scope: PolicyScope, overrides: Overrides) -> JsonObject:
    """Return the policy object that states overrides for a scope."""
    selected = scope.selector
    parts = {"kinds": selected.kinds, "names": selected.names, "namespaces": selected.namespaces}
    selector = {field: sorted(names) for field, names in parts.items() if names}
    settings = build_policy_settings(overrides)
    return {**_build_head(*scope.key), "spec": {"selector": selector, **settings} if selector else settings}


def add_written_policy_label(document: JsonObject) -> JsonObject:
    """Return a policy with the label of those that forms write."""
    return {**document, "metadata": {**document["metadata"], "labels": {MANAGED_BY: OWN_MANAGER}}}


def build_policy_settings(overrides: Overrides) -> JsonObject:
    """Return the settings of a policy's spec."""
    spec: JsonObject = {}
    containers: dict[str, JsonObject] = {}
    for setting, value in iterate_settings(overrides):
        name, _, container = setting.partition(".")
        fields = containers.setdefault(container, {"name": container}) if container else spec
        if name in _BOUND_FIELDS:
            bound, resource = _BOUND_FIELDS[name]
            fields.setdefault(bound, {})[resource] = format_setting_value(name, value)
        elif name == "resources":
            fields[name] = sorted(one.value for one in value)
        elif type(value) in (int, float):  # an IntEnum is written by its name
            fields[format_policy_field(name)] = value
        else:
            fields[format_policy_field(name)] = format_setting_value(name, value)
    return {**spec, "containers": list(containers.values())} if containers else spec


_BOUND_FIELDS = {
    one.setting: (f"{one.setting.partition('-')[2]}Allowed", one.setting.partition("-")[0]) for one in BOUNDS
}


def build_policy_status(policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> JsonObject:
    """Return a policy with its status only, for server-side apply; its uid is a precondition.

    A condition that says the same as before keeps its time.
    """
    head = _build_head(policy.namespace, policy.name)
    head["metadata"] |= {"uid": policy.uid} if policy.uid else {}
    return {
        **head,
        "status": {
            "observedGeneration": status.generation,
            "workloads": status.workloads,
            "sized": status.sized_pods,
            "skippedPods": sum(status.skipped.values()),
            "skipped": [{"reason": reason, "count": pods} for reason, pods in sorted(status.skipped.items())],
            "saved": {
                "cpu": format_cpu_millicores(status.saved.cpu_millicores),
                "memory": format_memory_bytes(round(status.saved.memory_bytes / MEBIBYTE) * MEBIBYTE),
            },
            "conflictCount": len(status.conflicts),
            "conflicts": [
                {
                    "policy": one.policy,
                    "winner": one.winner,
                    "settings": list(one.settings),
                    "workload": one.workload,
                }
                for one in status.conflicts[:_MAX_CONFLICTS]
            ],
            "conditions": _build_conditions(policy, status, now),
        },
    }


def _build_conditions(policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> list[JsonObject]:
    """Return whether the policy can be used, and whether it conflicts with others."""
    others = ", ".join(one.policy for one in status.conflicts[:_MAX_CONFLICTS])
    are_equal = any(not one.is_maximum for one in status.conflicts)
    conflict = "EquallySpecific" if are_equal else "AboveClusterMaximum" if others else "NoConflict"
    stated = (
        ("Accepted", not status.problem, "Unreadable" if status.problem else "Accepted", status.problem),
        ("Conflicted", bool(others), conflict, others),
    )
    conditions = []
    for kind, is_true, reason, message in stated:
        before = policy.conditions.get(kind)
        since = now if before is None or before.is_true != is_true else before.since
        conditions.append(
            {
                "type": kind,
                "status": "True" if is_true else "False",
                "observedGeneration": status.generation,
                "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "reason": reason,
                "message": message,
            }
        )
    return conditions


# One that contradicts many others is recognized by the first of them.
_MAX_CONFLICTS = 20


def _build_head(namespace: str, name: str) -> JsonObject:
    metadata = {"namespace": namespace, "name": name} if namespace else {"name": name}
    kind = POLICY_KIND if namespace else CLUSTER_POLICY_KIND
    return {"apiVersion": f"{POLICY_GROUP}/{POLICY_VERSION}", "kind": kind, "metadata": metadata}
